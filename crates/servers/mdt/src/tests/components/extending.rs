//! Extendable components: steps while OSTs have room, spills where they have none, over crashes.

use std::collections::BTreeMap;

use placement::Space;
use wire::body::CreateReq;

use super::*;

/// The first GiB in the pool `flash` in steps of 64 MiB, the rest in `disk`.
fn spilling() -> CompositeTemplate {
    let of = |pool| Template {
        stripe_size: 1 << 20,
        stripe_count: 1,
        pool: layout::pool::padded(pool).expect("a name"),
        ..Template::default()
    };
    let flash = Wanted::Extendable(of("flash"), 64 * MIB);
    let parts = [(1024 * MIB, flash), (END_OF_FILE, Wanted::Striped(of("disk")))];
    let components = parts.map(|(end, wanted)| TemplateComponent { end, wanted });
    CompositeTemplate { components: components.into() }
}

/// OSTs 0 and 1 are `flash`, 2 and 3 are `disk`.
fn pooled(template: &CompositeTemplate) -> World {
    let mut world = world_of(template);
    set_pools(&world, &[0, 1]);
    remake(&mut world, "pooled");
    world
}

fn set_pools(world: &World, flash: &[u32]) {
    let pools: BTreeMap<String, Vec<u32>> =
        [("flash".to_owned(), flash.to_vec()), ("disk".to_owned(), vec![2, 3])].into();
    world.rig.engine.state.borrow_mut().spaces.set_pools(&pools);
}

/// Another file in the same directory takes the place of the file.
fn remake(world: &mut World, name: &str) {
    let made = world.rig.create(world.dir, name, S_IFREG | 0o644, Some(O_RDWR)).expect("made");
    (world.file, world.handle) = (made.attr.fid(), made.handle);
}

/// What each OST says of its room, often enough to count what it promised before.
fn told(world: &World, room: [u64; 4]) {
    let mut state = world.rig.engine.state.borrow_mut();
    for (ost, bytes_avail) in (0_u32..).zip(room) {
        let space = Space { bytes: 4096 * MIB, bytes_avail, files_free: 1 << 20 };
        (0..2).for_each(|_| state.spaces.told(ost, space, None));
    }
}

/// `END@POOL` of each component with objects, `END` of the others, in MiB.
fn shown(world: &mut World) -> String {
    let part = |part: &layout::composite::Component| {
        let end = match part.extent.end() {
            END_OF_FILE => "eof".to_owned(),
            end => (end / MIB).to_string(),
        };
        let pool = part.objects().map(|layout| {
            let template = layout.template();
            format!("@{}", template.pool_name())
        });
        end + &pool.unwrap_or_default()
    };
    world.layout().1.components.iter().map(part).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_component_grows_in_steps_and_keeps_its_objects() {
    let mut world = pooled(&spilling());
    told(&world, [1024 * MIB; 4]);
    assert_eq!(shown(&mut world), "64@flash 1024 eof", "one step with the file");
    let (version, before) = world.layout();
    world.intend(64 * MIB).expect("it has them");
    assert_eq!(world.layout().0, version, "nothing to do");
    assert!(!world.rig.engine.state.borrow().is_stretched);
    world.intend(64 * MIB + 1).expect("room");
    assert_eq!(shown(&mut world), "128@flash 1024 eof");
    let (now, grown) = world.layout();
    assert_eq!(now, version + 1, "clients see another layout");
    assert_eq!(grown.components[0].place, before.components[0].place, "the same objects");
    assert!(world.rig.engine.state.borrow().is_stretched, "it is durable before the answer");
    world.truncate(300 * MIB).expect("room");
    assert_eq!(shown(&mut world), "320@flash 1024 eof");
}

#[test]
fn a_full_pool_spills_into_the_next_component() {
    let mut world = pooled(&spilling());
    told(&world, [MIB, MIB, 1024 * MIB, 1024 * MIB]);
    let first = world.layout().1.components[0].clone();
    world.intend(64 * MIB + 1).expect("room elsewhere");
    assert_eq!(shown(&mut world), "64@flash eof@disk");
    assert_eq!(world.layout().1.components[0], first);
    remake(&mut world, "spilled");
    assert_eq!(shown(&mut world), "eof@disk", "nothing of a new file goes to a full pool");
    told(&world, [1024 * MIB; 4]);
    remake(&mut world, "flash");
    assert_eq!(shown(&mut world), "64@flash 1024 eof", "it has room again");
}

#[test]
fn a_pool_without_osts_is_passed_over() {
    let mut world = pooled(&spilling());
    set_pools(&world, &[]);
    remake(&mut world, "disk");
    assert_eq!(shown(&mut world), "eof@disk");
    let mut only = spilling();
    only.components.truncate(1);
    set_layout(&mut world.rig, world.dir, &only).expect("a default");
    let made = world.rig.create(world.dir, "nowhere", S_IFREG | 0o644, Some(O_RDWR));
    assert_eq!(made.err(), Some(Errno::ENOSPC), "nothing follows it");
}

#[test]
fn a_spill_of_any_component_is_kept_in_the_layout() {
    let of = |pool| Template {
        stripe_size: 1 << 20,
        stripe_count: 1,
        pool: layout::pool::padded(pool).expect("a name"),
        ..Template::default()
    };
    let parts = |first, second| {
        let parts = [(MIB, of(first)), (END_OF_FILE, of(second))];
        let part = |(end, one)| TemplateComponent { end, wanted: Wanted::Striped(one) };
        CompositeTemplate { components: parts.map(part).into() }
    };
    let is_spilled = |world: &mut World| world.layout().1.origin.has(layout::Origin::SPILLED);
    let mut world = pooled(&parts("disk", "flash"));
    {
        let mut state = world.rig.engine.state.borrow_mut();
        let flash = state.spaces.pools.get_mut("flash").expect("it is there");
        flash.spill = crate::spaces::Spill { target: "disk".to_owned(), threshold_percent: 0 };
    }
    assert!(!is_spilled(&mut world), "its first component is where it should be");
    world.rig.commit();
    world.intend(2 * MIB).expect("room");
    assert_eq!(shown(&mut world), "1@disk eof@disk");
    assert!(is_spilled(&mut world), "a component that got its objects later");
    let grown = world.file;
    set_layout(&mut world.rig, world.dir, &parts("flash", "disk")).expect("a default");
    remake(&mut world, "first");
    assert_eq!(shown(&mut world), "1@disk eof");
    assert!(is_spilled(&mut world), "although another component wants that pool");
    world.rig.crash(); // the pools are forgotten, too
    assert!(world.rig.replay(|_| true).iter().all(|(_, reply)| reply.is_ok()));
    world.rig.recovered();
    for file in [world.file, grown] {
        world.file = file;
        assert!(is_spilled(&mut world), "a replay brings it back");
    }
}

#[test]
fn components_that_name_no_pool_go_to_that_of_the_directory() {
    let mut world = pooled(&progressive());
    let pool = layout::pool::padded("disk").expect("a name");
    let disk = lov::encode_dir(&Template { pool, ..Template::default() });
    let body = SetxattrReq { fid: world.dir.into(), ..SetxattrReq::default() };
    world.rig.call(Opcode::MdtSetxattr, &body, &[b"lustre.lov", &disk]).expect("a default");
    let made = |world: &mut World, name: &str, template: CompositeTemplate| {
        let asked = Asked::Composite(template).encode();
        let body =
            CreateReq { parent: world.dir.into(), mode: S_IFREG | 0o644, ..CreateReq::default() };
        let bufs: [&[u8]; 3] = [name.as_bytes(), b"", &asked];
        let made: AttrRep = world.rig.call(Opcode::MdtCreate, &body, &bufs).expect("made").body();
        world.file = made.attr.fid();
        shown(world)
    };
    assert_eq!(made(&mut world, "open", progressive()), "1@disk 8 eof");
    world.intend(9 * MIB).expect("the owner may");
    assert_eq!(shown(&mut world), "1@disk 8@disk eof@disk");
    assert_eq!(made(&mut world, "named", spilling()), "64@flash 1024 eof");
    let none = Template { pool: layout::pool::IGNORE, ..Template::default() };
    let mut template = progressive();
    template.components[0].wanted = Wanted::Striped(none);
    assert_eq!(made(&mut world, "none", template), "1@ 8 eof");
    let mut short = progressive();
    short.components.pop();
    assert_eq!(made(&mut world, "short", short), "1@disk 8");
    let more = CompositeTemplate::striped(0, [(END_OF_FILE, 1)]);
    let value = lov::composite::LovComposite::of_dir(&more).expect("a layout").encode();
    set_by(&mut world, "lustre.lov.add", &value).expect("it has an end");
    world.intend(9 * MIB).expect("the owner may");
    assert_eq!(shown(&mut world), "1@disk 8@disk eof@disk", "an added one, too");
}

#[test]
fn a_write_far_out_is_promised_only_what_there_is() {
    let mut world = pooled(&spilling());
    told(&world, [200 * MIB, 200 * MIB, 1024 * MIB, 1024 * MIB]);
    world.intend(900 * MIB).expect("room");
    assert_eq!(shown(&mut world), "256@flash eof@disk", "three steps of 64 MiB more");
}

#[test]
fn the_last_component_goes_on_on_other_osts_or_nevertheless() {
    let mut template = spilling();
    template.components.remove(1);
    template.components[0].end = END_OF_FILE;
    let mut world = pooled(&template);
    let on = |world: &mut World, index: usize| {
        let part = world.layout().1.components[index].clone();
        part.objects().expect("objects").osts[0]
    };
    let first = on(&mut world, 0);
    let mut room = [1024 * MIB; 4];
    room[first as usize] = MIB;
    told(&world, room);
    world.intend(64 * MIB + 1).expect("room");
    assert_eq!(shown(&mut world), "64@flash 128@flash eof");
    assert_eq!(on(&mut world, 1), 1 - first, "the other one of the pool");
    told(&world, [MIB; 4]);
    world.intend(128 * MIB + 1).expect("nothing is better");
    assert_eq!(shown(&mut world), "64@flash 192@flash eof");
}

#[test]
fn a_crash_forgets_steps_and_a_replay_gives_the_same() {
    let mut world = pooled(&spilling());
    told(&world, [1024 * MIB; 4]);
    world.rig.commit();
    world.intend(100 * MIB).expect("room");
    told(&world, [MIB, MIB, 1024 * MIB, 1024 * MIB]);
    world.intend(200 * MIB).expect("room elsewhere");
    let before = world.layout();
    assert_eq!(shown(&mut world), "128@flash eof@disk");
    world.rig.crash();
    assert_eq!(shown(&mut world), "64@flash 1024 eof");
    assert!(world.rig.replay(|_| true).iter().all(|(_, reply)| reply.is_ok()));
    world.rig.recovered();
    assert_eq!(world.layout(), before, "whatever the OSTs say now");
}

#[test]
fn a_replay_that_takes_bytes_from_other_components_is_refused() {
    let mut world = pooled(&spilling());
    world.rig.commit();
    world.intend(100 * MIB).expect("room");
    let grown = world.layout().1;
    let mut intent = world.rig.history.pop().expect("it is a change");
    world.rig.crash();
    let truth = intent.clone();
    let mut forged = grown;
    forged.components.pop();
    forged.components[1].extent = types::Extent::new(128 * MIB, END_OF_FILE).expect("not empty");
    intent.reply.bufs[1] = FileLayout::composite(world.file, forged).encode().into();
    world.rig.history = vec![intent];
    assert_eq!(world.rig.replay(|_| true).remove(0).1.err(), Some(Errno::EPROTO));
    world.rig.history = vec![truth];
    assert!(world.rig.replay(|_| true).remove(0).1.is_ok());
}
