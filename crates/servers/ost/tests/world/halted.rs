//! Replays whose records the store takes late, with a commit in between.

use env::LocalFuture;
use osd::{MetaStore, Space, StoreError, View, WriteSet};
use types::Instant;

use super::*;

/// Who finds the records busy tries again after this. Other changes wait no longer either.
const LOOK: Span = Span::millis(100);

/// Records that put the next change of [`OBJECT`] off for as long as `halt` says. All other changes
/// are taken meanwhile.
pub(super) struct Halting {
    env: Env,
    meta: MemMeta,
    halt: Rc<Cell<Option<Span>>>,
    until: Cell<Instant>,
}

impl Halting {
    pub(super) fn new(env: &Env, meta: MemMeta, halt: &Rc<Cell<Option<Span>>>) -> Halting {
        Halting { env: env.clone(), meta, halt: halt.clone(), until: Cell::default() }
    }

    fn is_halted(&self) -> bool {
        self.env.now() < self.until.get()
    }
}

fn changes_object(set: &WriteSet) -> bool {
    let key = OBJECT.to_key();
    set.changes.iter().any(|(table, at, _)| *table == Table::Objects && at[..] == key[..])
}

impl MetaStore for Halting {
    fn ready(&self) -> LocalFuture<'_, ()> {
        if self.is_halted() { self.env.sleep(LOOK) } else { self.meta.ready() }
    }

    fn running(&self) -> Result<Box<dyn View + '_>, StoreError> {
        self.meta.running()
    }

    fn apply(&self, set: &WriteSet) -> Result<(), StoreError> {
        if changes_object(set) {
            if let Some(halt) = self.halt.take() {
                self.until.set(self.env.now() + halt);
            }
            if self.is_halted() {
                return Err(StoreError::Busy);
            }
        }
        self.meta.apply(set)
    }

    fn dirty_bytes(&self) -> u64 {
        self.meta.dirty_bytes()
    }

    fn commit(&self) -> LocalFuture<'_, Result<(), StoreError>> {
        self.meta.commit()
    }

    fn space(&self) -> Result<Space, StoreError> {
        self.meta.space()
    }

    fn is_full(&self) -> Result<bool, StoreError> {
        self.meta.is_full()
    }
}

fn write_to(object: Fid) -> Call {
    let body = OstIoReq {
        object: object.into(),
        parent: PARENT.into(),
        length: 4,
        mtime: 1_000,
        claim: CLAIM,
        ..OstIoReq::default()
    };
    let mut call = write(0, b"data", PLAIN);
    call.bufs[0] = encode_body(&body);
    call
}

#[test]
fn a_commit_while_the_store_is_busy_counts_no_replay_as_executed() {
    let world = World::plain();
    let remote = world.remote(1);
    let other = Fid { oid: OBJECT.oid + 1, ..OBJECT };
    let recorded = |object: Fid| {
        let records = world.disk.records(Table::Objects);
        records.iter().any(|(key, _)| key[..] == object.to_key()[..])
    };
    world.attr(&remote, write_to(other)).expect("writes");
    world.attr(&remote, write_to(OBJECT)).expect("writes");
    assert!(!recorded(other) && !recorded(OBJECT), "nothing was committed");
    world.kill();
    world.halt.set(Some(Span::secs(8)));
    world.start();

    let ask = Call::new(Opcode::OstStatfs, vec![Bytes::new()]);
    let (asker, asked) = (remote.clone(), ask.clone());
    world.client.env().spawn("asks", async move { drop(asker.call(asked).await) });
    let is_halted = || world.halt.get().is_none();
    assert!(world.sim.run_until(Span::secs(60), is_halted), "the replay comes");
    world.sim.run_for(Span::secs(4));
    assert!(recorded(other) && !recorded(OBJECT), "a commit came in between");
    world.kill();
    world.start();

    world.call(&remote, ask).expect("recovered");
    world.sim.run_for(Span::secs(3));
    assert!(recorded(OBJECT), "its write was replayed once more");
}
