//! Sizes of files whose writer has died. The MDT asks the OSTs itself, and a writer that opens the
//! file meanwhile wins.

use wire::SizeState;
use wire::body::{CloseFlags, CloseReq, FidReq};

use super::*;

/// Until a silent client is evicted, its fences are told, and the objects of its files are asked.
const REPAIRED_WITHIN: Span = Span::secs(300);

impl World {
    /// State and size of a file by the word of the MDT alone.
    fn size(&self, client: usize, fid: Fid) -> (SizeState, u64) {
        let body = FidReq { fid: fid.into(), ..FidReq::default() };
        let call = Call::new(Opcode::MdtGetattr, vec![encode_body(&body)]);
        let attr = self.call(client, TargetId::mdt(0), call).body::<AttrRep>().attr;
        (attr.size_state(), attr.size)
    }

    /// Client 0 has a file open, and has written four bytes to each object. Client 1 is known too.
    fn write_all(&self) -> (Fid, Layout) {
        self.make(1, "warm");
        let file = self.create(0, "a");
        for stripe in 0..OSTS {
            self.use_object(0, &file, stripe, Some(b"data")).expect("writes");
        }
        self.sim.run_for(Span::secs(3));
        assert_eq!(self.size(1, file.0).0, SizeState::Dirty);
        file
    }

    /// Records of clients that OSTs refuse.
    fn fences_told(&self) -> usize {
        let records = self.servers.iter().skip(1).flat_map(|ost| ost.disk.records(Table::Meta));
        records.filter(|(key, _)| key.starts_with(b"fence/")).count()
    }
}

/// Where the byte behind `offset` of the last object is in the file.
fn behind(layout: &Layout, offset: u64) -> u64 {
    u64::from(OSTS - 1) * u64::from(layout.stripe_size) + offset
}

#[test]
fn the_mdt_finds_out_the_size_of_a_file_whose_writer_died() {
    let world = World::new(21, Bugs::default());
    let (fid, layout) = world.write_all();
    world.clients[0].0.kill_as(false);
    world.sim.run_for(REPAIRED_WITHIN);
    assert_eq!(world.size(1, fid), (SizeState::Clean, behind(&layout, 4)));
}

#[test]
fn a_restarted_mdt_finds_such_a_file_again() {
    let world = World::new(22, Bugs::default());
    let (fid, layout) = world.write_all();
    world.clients[0].0.kill_as(false);
    world.servers[0].node.kill_as(false);
    world.boot(0);
    world.sim.run_for(REPAIRED_WITHIN);
    assert_eq!(world.size(1, fid), (SizeState::Clean, behind(&layout, 4)));
}

#[test]
fn a_writer_that_opens_the_file_during_the_question_wins() {
    let world = World::new(23, Bugs::default());
    let file = world.write_all();
    let [mdt, ost] = [0, 1].map(|at| &world.servers[at].node);
    world.sim.partition(&world.clients[0].0, mdt, Cut::BothWays); // it lives, and is given up
    let is_fenced = || world.fences_told() == OSTS as usize;
    assert!(world.sim.run_until(REPAIRED_WITHIN, is_fenced));
    world.sim.run_for(Span::millis(500));
    world.sim.partition(mdt, ost, Cut::BothWays);
    world.sim.run_for(Span::secs(1)); // the question is under way
    assert_eq!(world.size(1, file.0).0, SizeState::Dirty);

    let body = OpenReq { fid: file.0.into(), open_flags: 1, ..OpenReq::default() };
    let mut open = Call::new(Opcode::MdtOpen, vec![encode_body(&body)]);
    open.keep = Keep::Open;
    let opened: AttrRep = world.call(1, TargetId::mdt(0), open).body();
    let (object, on) = file.1.object(OSTS - 1);
    let claim = world.clients[1].1.remote(TargetId::mdt(0)).claim();
    let (object, parent) = (object.into(), file.0.into());
    let write = OstIoReq { object, parent, offset: 100, length: 4, claim, ..OstIoReq::default() };
    let bufs = vec![encode_body(&write), Bytes::from_static(b"more")];
    world.call(1, TargetId::ost(on.0), Call::new(Opcode::OstWrite, bufs));
    world.sim.heal(mdt, ost);
    world.sim.run_for(Span::secs(100));
    assert_eq!(world.size(1, file.0).0, SizeState::Dirty, "it is being written");

    let (fid, flags) = (file.0.into(), CloseFlags::WROTE);
    let body = CloseReq { fid, handle: opened.handle, flags, ..CloseReq::default() };
    world.call(1, TargetId::mdt(0), Call::new(Opcode::MdtClose, vec![encode_body(&body)]));
    world.sim.run_for(Span::secs(60)); // an OST that did not answer has a rest
    assert_eq!(world.size(1, file.0), (SizeState::Clean, behind(&file.1, 104)));
}
