//! Orders a change by this client behind the client's earlier changes that it could depend on.
//!
//! Other clients' changes do not matter here. If such a change is not durable yet, the MDT commits
//! it before another change depends on it. For changes of one client the MDT relies on replay. A
//! change without an answer is not replayed. If a second change depends on it, the replay of the
//! second one is refused, and acknowledged work is lost. Therefore a change waits here while an
//! earlier change of this client that it could depend on has no answer. The kernel's directory
//! locks ensure this for most calls of a mount.
//!
//! A change can depend on a name (that it exists, or that it does not), and on a file's owner, mode
//! and access control list. A file that was looked up by a name that is being changed may be the
//! file that this change creates.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Call, Hold};
use queues::FixedMap;
use tokio::sync::Notify;
use types::Fid;
use wire::body::{
    CreateReq, LinkReq, OpenReq, RenameReq, SetattrFlags, SetattrReq, SetxattrReq, UnlinkReq,
};
use wire::decode_body;

use crate::operations::{self, Turn};

/// Flags of a change of attributes by which permission checks come out differently.
const ACCESS: SetattrFlags = SetattrFlags::MODE
    .union(SetattrFlags::UID)
    .union(SetattrFlags::GID)
    .union(SetattrFlags::KILL_SUID);

/// What a change can depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// A name in a directory.
    Name(Fid, Bytes),
    /// A file: that it exists, and who may do what with it.
    File(Fid),
}

/// What one change is about.
#[derive(Debug, Default, PartialEq, Eq)]
struct Scope {
    /// It could depend on these.
    uses: Vec<Key>,
    /// Others could depend on these after it. A subset of `uses`.
    changes: Vec<Key>,
}

impl Scope {
    fn of(call: &Call) -> Scope {
        let name = |dir: Fid, at: usize| call.bufs.get(at).map(|name| Key::Name(dir, name.clone()));
        let body = call.bufs.first().map_or(&[][..], |body| body);
        let (uses, names, file) = match operations::row(call.opcode).turn {
            Turn::Free => return Scope::default(),
            Turn::Create => {
                let parent = decode_body::<CreateReq>(body).parent.into();
                (vec![parent], vec![name(parent, 1)], None)
            }
            Turn::Link => {
                let LinkReq { fid, parent, .. } = decode_body(body);
                let (fid, parent) = (fid.into(), parent.into());
                (vec![fid, parent], vec![name(parent, 1)], None)
            }
            Turn::Unlink => {
                let parent = decode_body::<UnlinkReq>(body).parent.into();
                (vec![parent], vec![name(parent, 1)], None)
            }
            Turn::Rename => {
                let RenameReq { parent, new_parent, .. } = decode_body(body);
                let (from, to) = (parent.into(), new_parent.into());
                (vec![from, to], vec![name(from, 1), name(to, 2)], None)
            }
            Turn::Open => (vec![decode_body::<OpenReq>(body).fid.into()], Vec::new(), None),
            Turn::Setattr => {
                let SetattrReq { attr, valid, .. } = decode_body(body);
                let changes = valid.intersects(ACCESS).then(|| attr.fid());
                (vec![attr.fid()], Vec::new(), changes)
            }
            Turn::Xattr => {
                let fid = decode_body::<SetxattrReq>(body).fid.into();
                (vec![fid], Vec::new(), Some(fid))
            }
        };
        let mut changes: Vec<Key> =
            names.into_iter().flatten().chain(file.map(Key::File)).collect();
        changes.dedup();
        let uses = uses.into_iter().map(Key::File).chain(changes.iter().cloned()).collect();
        Scope { uses, changes }
    }
}

impl Scope {
    /// What uses a shard uses the directory that it belongs to.
    fn permitted_by(&mut self, master: &dyn Fn(Fid) -> Fid) {
        let masters = self.uses.iter().filter_map(|key| match key {
            Key::File(fid) => Some((*fid, master(*fid))),
            Key::Name(..) => None,
        });
        let masters: Vec<_> = masters.filter(|(fid, master)| fid != master).collect();
        self.uses.extend(masters.into_iter().map(|(_, master)| Key::File(master)));
    }
}

/// Which change under way holds what.
#[derive(Default)]
struct UnderWay {
    by_key: FixedMap<Key, u64>,
    keys: FixedMap<u64, Vec<Key>>,
    last: u64,
}

impl UnderWay {
    /// The number of a change that has begun; `None` while one is under way that it could depend
    /// on.
    fn begin(&mut self, scope: &Scope) -> Option<u64> {
        if scope.uses.iter().any(|key| self.by_key.contains_key(key)) {
            return None;
        }
        self.last += 1;
        for key in &scope.changes {
            let other = self.by_key.insert(key.clone(), self.last);
            assert!(other.is_none(), "what it changes it also uses");
        }
        self.keys.insert(self.last, scope.changes.clone());
        Some(self.last)
    }

    fn end(&mut self, number: u64) {
        for key in self.keys.remove(&number).expect("it began") {
            let removed = self.by_key.remove(&key);
            assert_eq!(removed, Some(number), "one change at a time has a key");
        }
    }

    /// A lookup of `name` found `file`.
    fn found(&mut self, name: &Key, file: Fid) {
        let Some(number) = self.by_key.get(name).copied() else { return };
        let file = Key::File(file);
        if !self.by_key.contains_key(&file) {
            self.by_key.insert(file.clone(), number);
            self.keys.get_mut(&number).expect("it is under way").push(file);
        }
    }
}

#[derive(Default)]
struct Shared {
    under_way: RefCell<UnderWay>,
    ended: Notify,
}

/// The changes of one mount.
#[derive(Default)]
pub(crate) struct Order(Rc<Shared>);

/// A change under way: it lasts until the MDT has executed it or never will.
struct Begun {
    shared: Rc<Shared>,
    number: u64,
    /// What else lives as long.
    _hold: Hold,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.shared.under_way.borrow_mut().end(self.number);
        self.shared.ended.notify_waiters();
    }
}

impl Order {
    /// Waits until no change is under way that `call` could depend on, and lets it begin. `master`:
    /// the directory that a shard belongs to, whose permissions count.
    pub(crate) async fn enter(&self, call: Call, master: &dyn Fn(Fid) -> Fid) -> Call {
        let mut scope = Scope::of(&call);
        if scope.uses.is_empty() {
            return call;
        }
        scope.permitted_by(master);
        loop {
            let ended = self.0.ended.notified();
            if let Some(number) = self.0.under_way.borrow_mut().begin(&scope) {
                let turn = Begun { shared: Rc::clone(&self.0), number, _hold: call.hold };
                return Call { hold: Hold(Some(Rc::new(turn))), ..call };
            }
            planted::reached("client: a change waited for one of its own");
            ended.await;
        }
    }

    /// A lookup of `name` in `dir` found `file`.
    pub(crate) fn found(&self, dir: Fid, name: &[u8], file: Fid) {
        let mut under_way = self.0.under_way.borrow_mut();
        if !under_way.by_key.is_empty() {
            under_way.found(&Key::Name(dir, Bytes::copy_from_slice(name)), file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use wire::{Opcode, encode_body};

    type Entering<'a> = Pin<Box<dyn Future<Output = Call> + 'a>>;

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    const DIR: Fid = Fid::ROOT;

    fn fid(number: u32) -> Fid {
        Fid { oid: number, ..DIR }
    }

    fn called(opcode: Opcode, body: Bytes, names: &[&'static str]) -> Call {
        let names = names.iter().map(|name| Bytes::from_static(name.as_bytes()));
        Call::new(opcode, std::iter::once(body).chain(names).collect())
    }

    fn make(dir: Fid, name: &'static str) -> Scope {
        let body = encode_body(&CreateReq { parent: dir.into(), ..CreateReq::default() });
        Scope::of(&called(Opcode::MdtCreate, body, &[name]))
    }

    fn rename(from: &'static str, to: &'static str) -> Scope {
        let body = RenameReq { parent: DIR.into(), new_parent: DIR.into(), ..RenameReq::default() };
        Scope::of(&called(Opcode::MdtRename, encode_body(&body), &[from, to]))
    }

    fn set(file: Fid, valid: SetattrFlags) -> Scope {
        let attr = wire::Attr::default().with_fid(file);
        let body = SetattrReq { attr, valid, ..SetattrReq::default() };
        Scope::of(&called(Opcode::MdtSetattr, encode_body(&body), &[]))
    }

    #[test]
    fn a_change_of_a_name_waits_for_another_of_the_same_name() {
        let mut under_way = UnderWay::default();
        let first = under_way.begin(&rename("a", "b")).expect("nothing is under way");
        assert_eq!(under_way.begin(&rename("b", "c")), None);
        assert_eq!(under_way.begin(&make(DIR, "a")), None);
        let other = under_way.begin(&make(DIR, "d")).expect("another name");
        assert!(under_way.begin(&make(fid(7), "a")).is_some(), "another directory");
        under_way.end(first);
        assert!(under_way.begin(&rename("b", "c")).is_some());
        under_way.end(other);
    }

    #[test]
    fn a_rename_of_a_name_to_itself_is_one_change() {
        let mut under_way = UnderWay::default();
        let turn = under_way.begin(&rename("a", "a")).expect("it does not wait for itself");
        under_way.end(turn);
        assert!(under_way.by_key.is_empty() && under_way.keys.is_empty());
    }

    #[test]
    fn what_needs_permission_waits_for_a_change_of_permissions() {
        let mut under_way = UnderWay::default();
        let times = under_way.begin(&set(fid(7), SetattrFlags::MTIME)).expect("the first");
        assert!(under_way.begin(&make(fid(7), "a")).is_some(), "times allow and forbid nothing");
        under_way.end(times);
        let mode = under_way.begin(&set(fid(7), SetattrFlags::MODE)).expect("nobody changes it");
        assert_eq!(under_way.begin(&make(fid(7), "b")), None);
        under_way.end(mode);
        assert!(under_way.begin(&make(fid(7), "b")).is_some());
    }

    #[test]
    fn what_uses_a_file_waits_for_the_change_that_may_have_made_it() {
        let mut under_way = UnderWay::default();
        let made = under_way.begin(&make(DIR, "d")).expect("nothing is under way");
        let name = |name: &'static str| Key::Name(DIR, Bytes::from_static(name.as_bytes()));
        under_way.found(&name("e"), fid(8));
        under_way.found(&name("d"), fid(9));
        under_way.found(&name("d"), fid(9));
        assert!(under_way.begin(&make(fid(8), "x")).is_some());
        assert_eq!(under_way.begin(&make(fid(9), "x")), None);
        under_way.end(made);
        assert!(under_way.begin(&make(fid(9), "x")).is_some());
    }

    #[test]
    fn what_uses_a_shard_waits_for_a_change_of_the_permissions_of_its_directory() {
        let mut under_way = UnderWay::default();
        let mode = under_way.begin(&set(fid(7), SetattrFlags::MODE)).expect("the first");
        let mut in_shard = make(fid(8), "a");
        in_shard.permitted_by(&|of| if of == fid(8) { fid(7) } else { of });
        assert_eq!(under_way.begin(&in_shard), None);
        under_way.end(mode);
        assert!(under_way.begin(&in_shard).is_some());
    }

    #[test]
    fn calls_that_change_no_name_and_no_permission_never_wait() {
        for opcode in [Opcode::MdtGetattr, Opcode::MdtLookup, Opcode::MdtClose, Opcode::MdtLock] {
            let call = called(opcode, Bytes::from_static(&[1; 200]), &["a"]);
            assert_eq!(Scope::of(&call), Scope::default(), "{opcode:?}");
        }
    }

    #[test]
    fn one_that_waits_goes_on_when_the_other_is_dropped() {
        let order = Order::default();
        let body = encode_body(&CreateReq { parent: DIR.into(), ..CreateReq::default() });
        let call = called(Opcode::MdtCreate, body, &["a"]);
        let now = |future: &mut Entering<'_>| match future.as_mut().poll(&mut context()) {
            Poll::Ready(call) => Some(call),
            Poll::Pending => None,
        };
        let mut first: Entering<'_> = Box::pin(order.enter(call.clone(), &|fid| fid));
        let first = now(&mut first).expect("nothing is under way");
        let mut second: Entering<'_> = Box::pin(order.enter(call, &|fid| fid));
        assert!(now(&mut second).is_none());
        let again = first.clone(); // as it is kept for another attempt
        drop(first);
        assert!(now(&mut second).is_none(), "it may still be sent");
        drop(again);
        assert!(now(&mut second).is_some());
    }
}
