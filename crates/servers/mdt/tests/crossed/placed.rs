//! The MDTs of new directories: in turn, by an MDT's state, and by the caller's right to choose.

use params::ParamTree;
use types::Creds;

use super::*;

/// Sets a parameter of a running MDT.
pub(super) fn set_param(world: &World, mdt: u32, name: &str, value: &str) {
    let tree = ParamTree::new();
    let place = target::Place {
        kind: "mdt",
        name: TargetId::mdt(mdt).name("testfs".parse().expect("a name")),
        dir: String::new(),
        space: Rc::new(|| None),
    };
    let running = world.servers[mdt as usize].running.borrow();
    running.as_ref().expect("it runs").0.register_params(&tree, &place);
    let done = tree.set_now(&format!("mdt.*.{name}"), value).expect("known");
    assert!(done.into_iter().all(|one| one.is_ok()), "{name}={value}");
}

pub(super) fn asked(parent: Fid, name: &str, asked: &dir::Asked) -> Call {
    let body = CreateReq { parent: parent.into(), mode: S_IFDIR | 0o755, ..CreateReq::default() };
    let asked = asked.encode().into();
    let bufs = vec![encode_body(&body), bytes(name), Bytes::new(), Bytes::new(), asked];
    Call::new(Opcode::MdtCreate, bufs)
}

fn set_default(dir: Fid, asked: &dir::Asked) -> Call {
    let body = SetxattrReq { fid: dir.into(), ..SetxattrReq::default() };
    let bufs = vec![encode_body(&body), bytes("lustre.dmv"), asked.encode().into()];
    Call::new(Opcode::MdtSetxattr, bufs)
}

pub(super) fn by_user(call: Call) -> Call {
    Call { creds: Creds { uid: 7, gid: 7, groups: vec![70] }, ..call }
}

/// MDTs of `count` directories without a wish.
fn mdts_of(world: &World, parent: Fid, prefix: &str, count: usize) -> Vec<u32> {
    let name = |number| format!("{prefix}{number}");
    let made = (0..count).map(|number| world.mkdir(parent, &name(number), &[]).expect("made"));
    made.map(|made| made.fid().mdt_index()).collect()
}

#[test]
fn directories_go_to_balanced_mdts_in_turn_where_that_is_asked_for() {
    let world = World::new(21);
    let mut on: Vec<u32> = (0..6)
        .map(|number| {
            let call = asked(Fid::ROOT, &format!("d{number}"), &dir::Asked::default());
            let reply = world.send(0, 0, call).expect("made");
            reply.body::<AttrRep>().attr.fid().mdt_index()
        })
        .collect();
    on.sort_unstable();
    assert_eq!(on, [0, 0, 1, 1, 2, 2]);

    let top = world.mkdir(Fid::ROOT, "top", &[1]).expect("made").fid();
    let two_levels = dir::Asked { max_inherit_rr: 1, ..dir::Asked::default() };
    world.send(0, 1, set_default(top, &two_levels)).expect("set");
    let first: BTreeSet<u32> = mdts_of(&world, top, "a", 3).into_iter().collect();
    assert_eq!(first, BTreeSet::from([0, 1, 2]));
    let sub = world.lookup(0, top, "a0").expect("found").attr.fid();
    let below: BTreeSet<u32> = mdts_of(&world, sub, "b", 4).into_iter().collect();
    assert_eq!(below, BTreeSet::from([sub.mdt_index()]), "deeper ones stay");
    assert_eq!(mdts_of(&world, top, "_temporary.", 4), [1; 4], "their files move up soon");
    world.check();
}

#[test]
fn a_draining_mdt_gets_no_directory_by_choice_and_refuses_those_that_name_it() {
    let world = World::new(22);
    let near = world.mkdir(Fid::ROOT, "near", &[0]).expect("made").fid();
    let far = world.mkdir(Fid::ROOT, "far", &[1]).expect("made").fid();
    let named = dir::Asked { index: 1, ..dir::Asked::default() };
    world.send(0, 0, set_default(near, &named)).expect("set");
    assert_eq!(mdts_of(&world, near, "a", 2), [1, 1]);
    set_param(&world, 1, "no_create", "1");

    for on in [&[1][..], &[0, 1], &[1, 2]] {
        assert_eq!(world.mkdir(Fid::ROOT, "no", on).err(), Some(Errno::EREMOTEIO), "{on:?}");
    }
    assert_eq!(world.mkdir(far, "no", &[1]).err(), Some(Errno::EREMOTEIO), "it knows itself");
    for number in 0..6 {
        let call = asked(Fid::ROOT, &format!("d{number}"), &dir::Asked::default());
        let reply = world.send(0, 0, call).expect("made");
        assert_ne!(reply.body::<AttrRep>().attr.fid().mdt_index(), 1);
    }
    assert!(!mdts_of(&world, near, "b", 6).contains(&1), "the default names it");
    assert!(!mdts_of(&world, far, "c", 6).contains(&1), "its parent is there");
    assert_eq!(world.create(far, "file").mdt_index(), 1, "a file is with its directory");
    let all = dir::Asked { count: dir::COUNT_ALL, ..dir::Asked::default() };
    let wide = world.send(0, 0, asked(Fid::ROOT, "wide", &all)).expect("made");
    assert!(wide.body::<AttrRep>().attr.flags.contains(AttrFlags::STRIPED));
    world.check();

    set_param(&world, 1, "no_create", "0");
    world.mkdir(Fid::ROOT, "yes", &[1]).expect("it is open again");
    assert_eq!(mdts_of(&world, far, "e", 2), [1, 1]);
    world.sim.run_for(Span::secs(70)); // others ask again
    let again = asked(Fid::ROOT, "f", &dir::Asked::default());
    world.send(0, 0, again).expect("made");
    world.settle();
    assert_eq!(mdts_of(&world, near, "d", 2), [1, 1]);
    world.check();
}

#[test]
fn an_mdt_that_is_away_gets_no_directory_by_choice() {
    let world = World::new(23);
    world.kill(2);
    for number in 0..6 {
        let call = asked(Fid::ROOT, &format!("d{number}"), &dir::Asked::default());
        let reply = world.send(0, 0, call).expect("another one is there");
        assert_ne!(reply.body::<AttrRep>().attr.fid().mdt_index(), 2);
    }
    world.boot(2);
    world.settle();
    world.check();
}

#[test]
fn root_and_one_group_may_choose_mdts_and_a_default_serves_all() {
    let world = World::new(24);
    let attr = Attr { mode: 0o777, ..Attr::default() }.with_fid(Fid::ROOT);
    let chmod = SetattrReq { attr, valid: SetattrFlags::MODE, ..SetattrReq::default() };
    world.send(0, 0, Call::new(Opcode::MdtSetattr, vec![encode_body(&chmod)])).expect("set");
    let errno = |call: Call| world.send(0, 0, by_user(call)).err();
    let one = || dir::Asked { index: 1, ..dir::Asked::default() };
    assert_eq!(errno(asked(Fid::ROOT, "a", &one())), Some(Errno::EPERM));
    assert_eq!(errno(asked(Fid::ROOT, "a", &dir::Asked::default())), Some(Errno::EPERM));
    assert_eq!(errno(mkdir(Fid::ROOT, "own", &[])), None);
    let own = world.lookup(0, Fid::ROOT, "own").expect("found").attr.fid();
    assert_eq!(errno(set_default(own, &one())), Some(Errno::EPERM));
    world.send(0, 0, set_default(own, &one())).expect("root may");
    assert_eq!(errno(mkdir(own, "far", &[])), None, "a default needs no right");
    let far = world.lookup(0, own, "far").expect("found").attr.fid();
    assert_eq!(far.mdt_index(), 1);

    for gid in ["70", "-1"] {
        set_param(&world, 0, "enable_remote_dir_gid", gid);
        assert_eq!(errno(asked(Fid::ROOT, &format!("g{gid}"), &one())), None);
    }
    set_param(&world, 0, "enable_remote_dir_gid", "71");
    assert_eq!(errno(asked(Fid::ROOT, "b", &one())), Some(Errno::EPERM));

    set_param(&world, 0, "enable_striped_dir", "0");
    assert_eq!(world.mkdir(Fid::ROOT, "c", &[0, 1]).err(), Some(Errno::EPERM));
    world.mkdir(Fid::ROOT, "c", &[1]).expect("not striped");
    set_param(&world, 0, "enable_remote_dir", "0");
    assert_eq!(world.mkdir(Fid::ROOT, "e", &[1]).err(), Some(Errno::EPERM));
    world.mkdir(Fid::ROOT, "e", &[0]).expect("not remote");
    assert_eq!(mdts_of(&world, own, "near", 2), [0, 0], "a default gives way");
    world.check();
}
