//! A hostile client: it connects like any other client and then sends messages that no client may
//! send.
//!
//! It acts for a user who may change nothing but a directory of its own, and it knows no object's
//! store. So the promises to honest clients hold, whatever answers it gets. Each request is drawn:
//! any operation, with sessions, instances, numbers, flags, handles and lengths of its own or
//! forged. Bodies are bytes of real ones or none. Some links are left half open, and some answers
//! are never read.

use std::rc::Rc;

use bytes::Bytes;
use env::{Env, Link};
use env_sim::{NodeHandle, Rng};
use types::{Fid, NidAddr, Span, TargetId, TargetKind};
use wire::body::{
    CloseReq, ClosesReq, ConnectRep, ConnectReq, FidReq, LookupReq, OpenReq, OstIoReq, WireFid,
};
use wire::{Frame, FrameKind, Opcode, Reply, Request, RequestFlags, encode_body};

/// It gives a link up that says nothing.
const PATIENCE: Span = Span::secs(5);
/// Between two links.
const REST: Span = Span::millis(300);
/// Requests of one link, mostly.
const REQUESTS_MAX: u64 = 40;
/// The same where it floods.
const FLOOD: u64 = 3_000;
/// Links without a Connect, at the same time.
const HALF_OPEN_MAX: usize = 16;
/// Whom it speaks for.
const UID: u32 = 6_666;
/// An object comes to be for whoever names a store, be it invented: these name none.
const MAKES_OBJECTS: [Opcode; 4] =
    [Opcode::OstWrite, Opcode::OstPunch, Opcode::OstFallocate, Opcode::OstRaise];

/// Attacks all of `targets`. `known` are files that there are, its own directory first.
pub(crate) fn start(
    node: &NodeHandle,
    targets: &[(TargetId, NidAddr)],
    known: &[Fid],
    rng: &mut Rng,
) {
    let known: Rc<[Fid]> = known.into();
    for (target, addr) in targets {
        let (env, known, rng) = (node.env(), known.clone(), rng.fork());
        let (target, addr) = (*target, *addr);
        node.env().spawn("hostile", async move {
            let client = (env.random(), env.random());
            let own = Hostile { env, target, addr, known, client, rng, half: Vec::new() };
            own.attack().await;
        });
    }
}

struct Hostile {
    env: Env,
    target: TargetId,
    addr: NidAddr,
    known: Rc<[Fid]>,
    client: (u64, u64),
    rng: Rng,
    half: Vec<Link>,
}

impl Hostile {
    async fn attack(mut self) {
        loop {
            self.env.sleep(self.rng.span(Span::ZERO, REST)).await;
            let Ok(link) = self.env.connect(None, self.addr).await else { continue };
            match self.rng.below(10) {
                0 => self.leave_half_open(link),
                1 => self.send_noise(&link),
                _ => self.use_link(link).await,
            }
        }
    }

    fn leave_half_open(&mut self, link: Link) {
        if self.half.len() >= HALF_OPEN_MAX {
            let index = self.rng.index(self.half.len());
            self.half.swap_remove(index);
        }
        self.half.push(link);
    }

    fn send_noise(&mut self, link: &Link) {
        let len = self.rng.below(300) as usize;
        let bytes: Vec<u8> = (0..len).map(|_| self.rng.bits() as u8).collect();
        let kind = *self.rng.pick(&[FrameKind::Request, FrameKind::Reply, FrameKind::BulkPull]);
        let _closed = link.tx.send(Frame::new(kind, self.rng.bits(), bytes.into()));
    }

    async fn use_link(&mut self, mut link: Link) {
        let Some(joined) = self.join(&mut link).await else { return };
        planted::reached("sim: a hostile client was let in");
        let is_flood = self.rng.chance(20_000);
        let most = if is_flood { FLOOD } else { REQUESTS_MAX };
        let takes = !is_flood && self.rng.chance(700_000);
        for number in 1..=self.rng.range(1, most) {
            let frame = self.request(&joined, number);
            if link.tx.send(frame).is_err() {
                planted::reached("sim: a hostile client's link was closed");
                return;
            }
            if takes && self.rng.chance(300_000) {
                let wait = self.rng.span(Span::ZERO, Span::millis(50));
                let _answer = self.env.timeout(wait, link.rx.recv()).await;
            }
        }
        // what was not taken lies in the server until the link ends
        self.env.sleep(self.rng.span(Span::ZERO, Span::secs(2))).await;
    }

    async fn join(&mut self, link: &mut Link) -> Option<ConnectRep> {
        let body = ConnectReq {
            client_low: self.client.0,
            client_high: self.client.1,
            tags: 64,
            resume: self.rng.below(2) as u32,
            session: self.rng.below(8),
            is_server: u32::from(self.rng.chance(100_000)),
            ..ConnectReq::default()
        };
        let mut request = Request::new(Opcode::Connect, vec![encode_body(&body)]);
        (request.header.xid, request.header.target) = (1, self.target.to_u32());
        link.tx.send(request.to_frame()).ok()?;
        let frame = self.env.timeout(PATIENCE, link.rx.recv()).await??;
        (frame.kind == FrameKind::Reply).then_some(())?;
        Some(Reply::take(frame.into_payload()).ok()?.body())
    }

    fn request(&mut self, joined: &ConnectRep, number: u64) -> Frame {
        let opcode = self.opcode();
        let mut request = Request::new(opcode, self.bufs(opcode));
        self.head(&mut request, joined, number);
        let frame = request.to_frame();
        if MAKES_OBJECTS.contains(&opcode) || !self.rng.chance(200_000) {
            return frame;
        }
        // some bytes are others, or missing
        let (id, mut bytes) = (frame.id, frame.into_payload().to_vec());
        for _ in 0..self.rng.below(4) {
            let at = self.rng.index(bytes.len());
            bytes[at] = self.rng.bits() as u8;
        }
        if self.rng.chance(300_000) {
            bytes.truncate(self.rng.index(bytes.len()));
        }
        Frame::new(FrameKind::Request, id, bytes.into())
    }

    fn opcode(&mut self) -> Opcode {
        loop {
            let opcode = *self.rng.pick(Opcode::ALL);
            let is_its = opcode.target().is_none_or(|kind| kind == self.target.kind);
            if is_its || self.rng.chance(20_000) {
                return opcode;
            }
        }
    }

    fn head(&mut self, request: &mut Request, joined: &ConnectRep, number: u64) {
        let (rng, modifies) = (&mut self.rng, request.opcode().modifies());
        let header = &mut request.header;
        header.target = self.target.to_u32();
        (header.uid, header.gid) = (UID, UID);
        header.xid =
            *rng.pick(&[number + 1, number + 1, number + 1, rng.clone().bits(), 0, u64::MAX]);
        header.acked_xid = *rng.pick(&[0, 0, 0, number, u64::MAX]);
        let other = joined.session.wrapping_add(rng.below(16)).wrapping_sub(8);
        header.session = *rng.pick(&[joined.session, joined.session, joined.session, other]);
        header.instance = *rng.pick(&[joined.instance, joined.instance, joined.instance, 0, 7]);
        header.epoch = *rng.pick(&[joined.epoch, joined.epoch, joined.epoch, 0, u32::MAX]);
        let transno = joined.last_committed.wrapping_add(rng.below(100));
        header.transno = *rng.pick(&[0, 0, 1, transno, u64::MAX]);
        header.tag = *rng.pick(&[1 + rng.clone().below(64) as u32, 0, 1, u32::MAX]);
        header.deadline_ms = *rng.pick(&[10_000, 10_000, 1, 0, u32::MAX]);
        header.replay_index = rng.below(4) as u32;
        if rng.chance(200_000) {
            (header.bulk_id, header.bulk_len) = (1 + rng.below(8), rng.bits() as u32);
        }
        if modifies != rng.chance(50_000) {
            header.flags |= RequestFlags::MODIFIES;
        }
        match rng.below(10) {
            0 => header.flags |= RequestFlags::REPLAY,
            1 => header.flags |= RequestFlags::RESENT,
            2 => header.flags |= RequestFlags::REPLAY | RequestFlags::RESENT,
            _ => {}
        }
    }

    fn fid(&mut self) -> Fid {
        match self.rng.below(8) {
            0..=2 => self.known[0],
            3..=5 => *self.rng.pick(&self.known),
            6 => Fid { seq: self.known[0].seq, oid: self.rng.below(400) as u32, ver: 0 },
            _ => Fid { seq: self.rng.bits(), oid: self.rng.bits() as u32, ver: 0 },
        }
    }

    fn bufs(&mut self, opcode: Opcode) -> Vec<Bytes> {
        let mut bufs = vec![self.body(opcode)];
        if opcode == Opcode::MdtCloses {
            bufs.push(Bytes::from([(); 2].map(|()| self.body(Opcode::MdtClose)).concat()));
        }
        for _ in 0..self.rng.below(4) {
            let some: Vec<u8> = (0..self.rng.below(80)).map(|_| self.rng.bits() as u8).collect();
            let name = *self.rng.pick(&[&b"x"[..], b"y", b"..", b"a/b", b"", b"user0", &some]);
            bufs.push(Bytes::copy_from_slice(name));
        }
        bufs
    }

    /// A body that may be meant, bytes that are none, or one that is cut or longer.
    fn body(&mut self, opcode: Opcode) -> Bytes {
        let (fid, handle) = (WireFid::from(self.fid()), self.rng.below(20));
        let meant = match opcode {
            Opcode::MdtLookup | Opcode::MdtCreate => {
                encode_body(&LookupReq { parent: fid, ..LookupReq::default() })
            }
            Opcode::MdtOpen => {
                let open_flags = *self.rng.pick(&[0, 1, 2, 0o1002, 0o2001, 0o200, u32::MAX]);
                encode_body(&OpenReq { fid, open_flags, ..OpenReq::default() })
            }
            Opcode::MdtClose => encode_body(&CloseReq { fid, handle, ..CloseReq::default() }),
            Opcode::MdtCloses => encode_body(&ClosesReq { count: 2, ..ClosesReq::default() }),
            // without the number of the file's store, which it would have to be told
            _ if self.target.kind == TargetKind::Ost => encode_body(&OstIoReq {
                object: fid,
                parent: fid,
                offset: *self.rng.pick(&[0, 4_096, u64::MAX, 1 << 62]),
                length: *self.rng.pick(&[0, 1, 4_096, u32::MAX]),
                ..OstIoReq::default()
            }),
            _ => encode_body(&FidReq { fid, handle, ..FidReq::default() }),
        };
        let mut bytes = meant.to_vec();
        let kinds = if MAKES_OBJECTS.contains(&opcode) { 1 } else { 3 };
        match self.rng.below(10) {
            kind if kind >= kinds => {}
            0 => bytes.truncate(self.rng.index(bytes.len())),
            1 => bytes.extend((0..self.rng.below(200)).map(|_| self.rng.bits() as u8)),
            _ => bytes.iter_mut().for_each(|byte| *byte = self.rng.bits() as u8),
        }
        bytes.into()
    }
}
