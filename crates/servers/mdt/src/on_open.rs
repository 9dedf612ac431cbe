//! Read-on-open: the reply to an open carries all bytes of a small file at the MDT, so that its
//! client does not ask the data target.
//!
//! The bytes are valid while the client holds the grant of the attributes in the same reply.
//! Changing the data of a CLEAN file takes an open for writing or a truncate first. Both make it
//! DIRTY, so both wait until all other clients have given that grant up.
//!
//! The MDT reads after it has given the grant, and only a CLEAN file that no client has open for
//! writing. So nothing changes the bytes unless the client has given the grant up meanwhile. The
//! client then takes neither the late grant nor the bytes. Where anything is not certain, the reply
//! has no bytes, and the client reads as usual.
//!
//! Lustre: `mdt_dom_read_on_open`.

use endpoint::{Bulk, Call};
use layout::Striping;
use service::Incoming;
use types::{Fid, Span, TargetId};
use wire::body::{AttrRep, CALLED_BACK, Claim, OstAttr, OstIoReq};
use wire::{OPEN_BUFS, Opcode, Reply, Request, SizeState, encode_body};

use crate::op::caching::room;
use crate::target::Mdt;

/// How long an open waits for the data target. A slower one is asked again by the client's read.
const PATIENCE: Span = Span::secs(1);

/// The object that has all bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Whole {
    file: Fid,
    object: Fid,
    length: u32,
    layout_version: u32,
}

impl Whole {
    /// Of the file that this reply opens: nothing where its bytes are not wanted, are not all at
    /// the MDT, or may change before the client hears of it.
    fn of(request: &Request, reply: &Reply) -> Option<Whole> {
        let room = room(request);
        if room == 0 || reply.errno().is_some() || reply.bufs.len() != OPEN_BUFS {
            return None;
        }
        let told: AttrRep = reply.body();
        if told.lease_ms != CALLED_BACK || told.attr.size_state() != SizeState::Clean {
            return None;
        }
        let size = u32::try_from(told.attr.size).ok();
        let length = size.filter(|size| (1..=room).contains(size))?;
        let file = told.attr.fid();
        let Ok(Striping::Layout(layout)) = Striping::decode(file, &reply.buf(1)) else {
            return None;
        };
        let object = layout.mdt_object()?;
        let is_all = layout.stripe_of(u64::from(length) - 1) == Some(0);
        is_all.then(|| Whole { file, object, length, layout_version: layout.generation() })
    }

    /// Whether this is what was read, without a hole at the end.
    fn is(&self, object: &OstAttr, read: usize) -> bool {
        object.size == u64::from(self.length) && read == self.length as usize
    }
}

impl Mdt {
    /// Adds the bytes of the file to the reply to an open.
    pub(crate) async fn read_on_open(&self, incoming: &Incoming, reply: &mut Reply) {
        let Some(whole) = Whole::of(&incoming.request, reply) else { return };
        let Some(osts) = self.osts.as_ref().filter(|_| self.is_quiet(whole.file)) else { return };
        let data = osts.remote(TargetId::dom(self.engine.config.index));
        if !data.is_connected() {
            return;
        }
        let _had_a_slot = incoming.step_aside();
        match data.call(self.read_of(&whole, incoming.session.id)).await {
            Ok(answer) if whole.is(&answer.reply.body(), answer.data.len()) => {
                planted::reached("mdt: an open came with the bytes of its file");
                reply.bufs.push(answer.data);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(target: "mdt", file = %whole.file, %error, "opened without bytes");
            }
        }
    }

    /// Whether nothing writes to a CLEAN file: not a handle, and not a client that the MDT has
    /// given up and the data target does not refuse yet.
    fn is_quiet(&self, file: Fid) -> bool {
        let state = self.engine.state.borrow();
        state.opens.writers(file) == 0 && !state.fences.is_unsure()
    }

    fn read_of(&self, whole: &Whole, session: u64) -> Call {
        let store = self.engine.state.borrow().number;
        let body = OstIoReq {
            object: whole.object.into(),
            parent: whole.file.into(),
            length: whole.length,
            layout_version: whole.layout_version,
            claim: Claim { session, store, ..Claim::default() },
            ..OstIoReq::default()
        };
        let mut call = Call::new(Opcode::OstRead, vec![encode_body(&body)]);
        (call.bulk, call.patience) = (Bulk::Sink(whole.length as usize), Some(PATIENCE));
        call
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use layout::FileLayout;
    use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
    use wire::Attr;
    use wire::body::OpenReq;

    use super::*;

    const FILE: Fid = Fid { seq: 0x400, oid: 7, ver: 0 };
    const BORDER: u64 = 64 << 10;

    /// A file whose first bytes are at the MDT.
    fn layout() -> FileLayout {
        let mut parts = CompositeTemplate::striped(0, [(BORDER, 1), (END_OF_FILE, 1)]);
        parts.components[0] = TemplateComponent { end: BORDER, wanted: Wanted::Mdt };
        FileLayout::composite(FILE, parts.resolve(&layout::Template::default()).expect("a layout"))
    }

    fn open(open_flags: u32, room: u32) -> Request {
        let body = OpenReq { fid: FILE.into(), open_flags, room, ..OpenReq::default() };
        Request::new(Opcode::MdtOpen, vec![encode_body(&body)])
    }

    fn opened(lease_ms: u32, size_state: SizeState, size: u64, record: Vec<u8>) -> Reply {
        let attr = Attr { size, size_state: size_state as u32, ..Attr::default() }.with_fid(FILE);
        let body = AttrRep { attr, lease_ms, ..AttrRep::default() };
        Reply::ok(&open(0, 0).header, vec![encode_body(&body), Bytes::from(record)])
    }

    /// Bytes to be read for an open that may carry all that it can.
    fn wanted(reply: &Reply) -> Option<u32> {
        Whole::of(&open(0, u32::MAX), reply).map(|whole| whole.length)
    }

    #[test]
    fn the_object_is_read_that_has_all_of_a_clean_file() {
        let reply = opened(CALLED_BACK, SizeState::Clean, 4_096, layout().encode());
        let whole = Whole::of(&open(0, 4_096), &reply).expect("all of it fits");
        assert_eq!((whole.file, whole.object, whole.length), (FILE, FILE, 4_096));
        let object = |size| OstAttr { exists: 1, size, ..OstAttr::default() };
        assert!(whole.is(&object(4_096), 4_096));
        assert!(!whole.is(&object(4_096), 4_095) && !whole.is(&object(4_095), 4_095));
        assert!(!whole.is(&object(5_000), 4_096), "it has grown");
    }

    #[test]
    fn nothing_is_read_of_a_file_that_may_be_written_or_is_elsewhere() {
        let clean = |size| opened(CALLED_BACK, SizeState::Clean, size, layout().encode());
        assert_eq!((wanted(&clean(1)), wanted(&clean(BORDER))), (Some(1), Some(65_536)));
        assert_eq!((wanted(&clean(0)), wanted(&clean(BORDER + 1))), (None, None));
        let of = |lease_ms, state| wanted(&opened(lease_ms, state, 9, layout().encode()));
        assert_eq!(of(CALLED_BACK, SizeState::Dirty), None);
        assert_eq!(of(CALLED_BACK, SizeState::NeverWritten), None);
        assert_eq!((of(0, SizeState::Clean), of(50, SizeState::Clean)), (None, None));
        let plain = layout::Layout::plain(Fid::new(0x500, 1), 1 << 16, 1).encode();
        for record in [plain, Vec::new(), vec![0xff; 9]] {
            assert_eq!(wanted(&opened(CALLED_BACK, SizeState::Clean, 9, record)), None);
        }
        assert_eq!(wanted(&Reply::error(&open(0, 0).header, types::Errno::EACCES)), None);
    }

    #[test]
    fn only_an_open_that_reads_through_the_caches_has_room() {
        let (o_rdwr, o_trunc, o_direct) = (2, 0o1000, 0o40_000);
        assert_eq!((room(&open(0, 9)), room(&open(0, u32::MAX))), (9, wire::INLINE_BYTES_DEFAULT));
        for flags in [o_rdwr, o_trunc, o_direct] {
            assert_eq!(room(&open(flags, 9)), 0);
        }
        let close = Request::new(Opcode::MdtClose, vec![Bytes::from(vec![0xff; 32])]);
        assert_eq!(room(&close), 0);
    }
}
