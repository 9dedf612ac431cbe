//! Fuzz targets: the handlers on hostile bodies, and the start on hostile records.
//!
//! The input is a program of choices ([`super::drawn`]).
//!
//! Bound of the generator: a request has the REPLAY flag only if it was answered before, with the
//! first reply's buffers as they were. A client that invents replays can invent history.

use std::collections::BTreeSet;

use osd::Table;
use types::{ClientId, Creds, Fid, SplitMix64};
use wire::attr::{S_IFDIR, S_IFREG};
use wire::body::{AttrRep, UnlinkReq};
use wire::{Opcode, Reply, Request, encode_body};

use super::drawn::{Choices, Known, PROGRAM_BYTES_MAX, PROGRAMS, TIME, programs};
use super::rig::{Rig, now};
use crate::MdtConfig;
use crate::boot::{Seed, boot};
use crate::op::{self, Run};

/// Requests of one program at most, because `fsck` reads all records after each.
const STEPS_MAX: usize = 60;

/// Those that are decided in one transaction.
const OPCODES: [Opcode; 19] = [
    Opcode::MdtCreate,
    Opcode::MdtLookup,
    Opcode::MdtOpen,
    Opcode::MdtClose,
    Opcode::MdtCloses,
    Opcode::MdtLink,
    Opcode::MdtUnlink,
    Opcode::MdtRename,
    Opcode::MdtSetattr,
    Opcode::MdtReaddir,
    Opcode::MdtReadlink,
    Opcode::MdtGetxattr,
    Opcode::MdtSetxattr,
    Opcode::MdtListxattr,
    Opcode::MdtRemovexattr,
    Opcode::MdtFid2path,
    Opcode::MdtGetattr,
    Opcode::MdtGetattrs,
    Opcode::MdtLayout,
];

/// The target, and what its clients have learned of it.
struct World {
    rig: Rig,
    known: Known,
    /// Operations of which one succeeded.
    done: BTreeSet<Opcode>,
}

impl World {
    fn new() -> World {
        let rig = Rig::new();
        rig.osts.borrow_mut().truncate(2);
        World { rig, known: Known::new(), done: BTreeSet::new() }
    }

    /// One request, or a restart with honest replays.
    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.byte() {
            0 => {
                self.rig.crash();
                self.rig.replay(|_| true);
                self.rig.recovered();
                return;
            }
            1..8 => self.rig.commit(),
            _ => {}
        }
        let who = choices.byte();
        self.rig.client = u128::from(who & 1) + 1;
        let uid = if who & 0x0e == 0 { 1_000 } else { 0 };
        self.rig.creds = Creds { uid, gid: uid, groups: Vec::new() };
        let request = self.known.request(&OPCODES, choices);
        let before = self.rig.store.running.borrow().clone();
        match self.rig.send(request.clone()) {
            Ok(reply) => self.learn(&request, &reply),
            Err(_) => assert!(
                *self.rig.store.running.borrow() == before,
                "{:?} was refused and changed something",
                request.opcode()
            ),
        }
    }

    fn learn(&mut self, request: &Request, reply: &Reply) {
        let again = Reply::decode(&reply.to_frame().into_payload()).expect("a reply decodes");
        assert_eq!(again.bufs, reply.bufs);
        self.done.insert(request.opcode());
        self.known.learn(request.opcode(), reply);
    }
}

/// Checks the records after each request.
fn run(program: &[u8]) -> World {
    let mut choices = Choices::new(program);
    let mut world = World::new();
    for _ in 0..STEPS_MAX {
        if choices.is_done() {
            break;
        }
        world.step(&mut choices);
        assert_eq!(world.rig.store.fsck(), Vec::<String>::new());
    }
    world
}

/// The records are whole after each request, and a request that is refused changes nothing.
#[test]
fn handlers() {
    bolero::check!()
        .with_iterations(PROGRAMS)
        .with_test_time(TIME)
        .with_generator(programs())
        .for_each(|program: &Vec<u8>| drop(run(program)));
}

/// Programs that reached only the refusals would show little.
#[test]
fn every_operation_succeeds_in_some_program() {
    let mut chance = SplitMix64::new(1);
    let mut done = BTreeSet::new();
    for _ in 0..600 {
        let program: Vec<u8> = (0..PROGRAM_BYTES_MAX).map(|_| chance.bits() as u8).collect();
        done.append(&mut run(&program).done);
    }
    assert_eq!(done, BTreeSet::from(OPCODES));
}

#[test]
fn programs_draw_every_operation_of_one_transaction() {
    let is_decided =
        |opcode: &&Opcode| op::row(**opcode).is_some_and(|row| matches!(row.run, Run::Decide(_)));
    let decided: BTreeSet<Opcode> = Opcode::ALL.iter().filter(is_decided).copied().collect();
    assert_eq!(decided, BTreeSet::from(OPCODES));
}

/// A start on records that are damaged succeeds or is refused.
#[test]
fn start() {
    bolero::check!()
        .with_iterations(PROGRAMS)
        .with_test_time(TIME)
        .with_generator(programs())
        .for_each(|program: &Vec<u8>| {
            let mut choices = Choices::new(program);
            let mut world = World::new();
            let rep = world.rig.create(Fid::ROOT, "a", S_IFREG | 0o644, Some(2)).expect("a file");
            world.rig.create(Fid::ROOT, "d", S_IFDIR | 0o755, None).expect("a directory");
            let unlink = UnlinkReq { parent: Fid::ROOT.into(), ..Default::default() };
            world.rig.call(Opcode::MdtUnlink, &unlink, &[b"a"]).expect("an open file is unlinked");
            remember(&world, &rep);
            world.rig.commit();
            world.rig.crash();
            let keys: Vec<_> = world.rig.store.running.borrow().keys().cloned().collect();
            while !choices.is_done() {
                let key = keys[usize::from(choices.byte()) % keys.len()].clone();
                damage_record(&world, key, &mut choices);
            }
            let store: std::rc::Rc<dyn osd::MetaStore> = world.rig.store.clone();
            let seed = Seed {
                words: [1, 2],
                round_robin: 0,
                store: 3,
                now: Default::default(),
                clock: Default::default(),
            };
            let config = MdtConfig::new("testfs".parse().expect("a name"), 0);
            let _ = now(boot(&store, &config, &seed));
        });
}

/// Records of the client and of its answered open, as sessions store them.
fn remember(world: &World, rep: &AttrRep) {
    let name = "node1:/mnt".to_owned();
    let (client, session) = (ClientId(1), 1);
    let client = service::ClientRecord {
        client,
        session,
        name,
        is_server: false,
        silent: false,
        silent_secs: 0,
        nid: types::Nid::default(),
    };
    let request = Request::new(Opcode::MdtCreate, Vec::new());
    let reply = Reply::ok(&request.header, vec![encode_body(rep)]);
    let key = [&client.key()[..], &1_u32.to_be_bytes()].concat();
    let mut image = world.rig.store.running.borrow_mut();
    image.insert((Table::Replies, key), reply.to_frame().into_payload().to_vec());
    image.insert((Table::Clients, client.key()), client.encode());
}

fn damage_record(world: &World, key: (Table, Vec<u8>), choices: &mut Choices<'_>) {
    let mut image = world.rig.store.running.borrow_mut();
    let Some(value) = image.get_mut(&key) else { return };
    let (how, at) = (choices.byte(), usize::from(choices.byte()));
    match how {
        0..8 => drop(image.remove(&key)),
        8..64 => value.truncate(at % (value.len() + 1)),
        64..96 => value.extend(std::iter::repeat_n(choices.byte(), at)),
        _ => {
            let bits = choices.byte();
            let len = value.len().max(1);
            if let Some(byte) = value.get_mut(at % len) {
                *byte ^= bits;
            }
        }
    }
}
