//! Files of several components: when each component gets objects, over crashes, and where those go.

use layout::composite::{
    Composite, CompositeTemplate, END_OF_FILE, Place, TemplateComponent, Wanted,
};
use layout::{Asked, FileLayout, Striping, Template, lov};
use osd::Table;
use types::{Errno, Fid};
use wire::attr::{S_IFDIR, S_IFREG};
use wire::body::{AttrRep, FidReq, LayoutReq, SetattrFlags, SetattrReq, SetxattrReq, UnlinkReq};
use wire::{Attr, Opcode};

use super::rig::Rig;
use crate::record::DestroyRecord;

mod extending;
mod must_exist;

const MIB: u64 = 1 << 20;
const O_RDWR: u32 = 2;

/// One stripe, then two, then four.
fn progressive() -> CompositeTemplate {
    CompositeTemplate::striped(0, [(MIB, 1), (8 * MIB, 2), (END_OF_FILE, 4)])
}

fn set_layout(rig: &mut Rig, fid: Fid, template: &CompositeTemplate) -> Result<(), Errno> {
    let value = lov::composite::LovComposite::of_dir(template).expect("a layout").encode();
    let body = SetxattrReq { fid: fid.into(), ..SetxattrReq::default() };
    rig.call(Opcode::MdtSetxattr, &body, &[b"lustre.lov", &value]).map(drop)
}

struct World {
    rig: Rig,
    dir: Fid,
    file: Fid,
    handle: u64,
}

/// A file in a directory with such a default, open for writing.
fn world_of(template: &CompositeTemplate) -> World {
    let mut rig = Rig::new();
    rig.recovered();
    let dir = rig.create(Fid::ROOT, "d", S_IFDIR | 0o755, None).expect("made").attr.fid();
    set_layout(&mut rig, dir, template).expect("a default");
    let made = rig.create(dir, "f", S_IFREG | 0o644, Some(O_RDWR)).expect("made");
    World { rig, dir, file: made.attr.fid(), handle: made.handle }
}

impl World {
    fn layout(&mut self) -> (u32, Composite) {
        let (rep, record) = self.rig.getattr(self.file).expect("there");
        let Ok(Striping::Layout(layout)) = Striping::decode(self.file, &record) else {
            panic!("a layout")
        };
        (rep.attr.layout_version, layout.as_composite().expect("components").clone())
    }

    /// Objects of each component.
    fn objects(&mut self) -> Vec<usize> {
        let objects = |part: &layout::composite::Component| {
            part.objects().map_or(0, |layout| layout.osts.len())
        };
        self.layout().1.components.iter().map(objects).collect()
    }

    fn intend(&mut self, behind: u64) -> Result<AttrRep, Errno> {
        let body = LayoutReq {
            fid: self.file.into(),
            handle: self.handle,
            behind,
            ..LayoutReq::default()
        };
        Ok(self.rig.call(Opcode::MdtLayout, &body, &[])?.body())
    }

    fn truncate(&mut self, size: u64) -> Result<(), Errno> {
        let attr = Attr { size, ..Attr::default() }.with_fid(self.file);
        let body = SetattrReq { attr, valid: SetattrFlags::SIZE, ..SetattrReq::default() };
        self.rig.call(Opcode::MdtSetattr, &body, &[]).map(drop)
    }

    fn destroys(&self) -> Vec<DestroyRecord> {
        let table = self.rig.store.table(Table::Destroys);
        table.iter().map(|(_, value)| DestroyRecord::decode(value).expect("a record")).collect()
    }
}

#[test]
fn a_component_gets_objects_with_the_first_write_that_needs_it() {
    let mut world = world_of(&progressive());
    assert_eq!(world.objects(), [1, 0, 0], "of the first one with the file");
    let version = world.layout().0;
    world.intend(MIB).expect("it has them");
    assert_eq!(world.layout().0, version, "nothing to do");
    world.intend(MIB + 1).expect("room");
    assert_eq!((world.objects(), world.layout().0), (vec![1, 2, 0], version + 1));
    let second = world.layout();
    world.intend(MIB + 1).expect("another client asks the same");
    assert_eq!(world.layout(), second);
    world.truncate(9 * MIB).expect("room");
    assert_eq!(world.objects(), [1, 2, 4]);
}

#[test]
fn a_write_far_out_gives_objects_to_what_it_skips() {
    let mut world = world_of(&progressive());
    world.intend(100 * MIB).expect("room");
    assert_eq!(world.objects(), [1, 2, 4]);
    let bases: Vec<Fid> = world
        .layout()
        .1
        .components
        .iter()
        .filter_map(|part| part.objects().map(|layout| layout.base))
        .collect();
    let mut different = bases.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!((different.len(), bases.len()), (3, 3), "each has objects of its own");
}

#[test]
fn only_who_may_write_makes_objects() {
    let mut world = world_of(&progressive());
    world.rig.creds = types::Creds { uid: 7, gid: 7, groups: Vec::new() };
    world.rig.client = 2;
    assert_eq!(world.intend(100 * MIB).err(), Some(Errno::EACCES));
    world.rig.creds = types::Creds::root();
    assert_eq!(world.objects(), [1, 0, 0]);
    let body = LayoutReq { fid: world.dir.into(), behind: 1, ..LayoutReq::default() };
    assert_eq!(world.rig.call(Opcode::MdtLayout, &body, &[]).err(), Some(Errno::EINVAL));
}

#[test]
fn behind_the_last_component_is_no_place() {
    let mut template = progressive();
    template.components.pop();
    let mut world = world_of(&template);
    assert_eq!(world.intend(8 * MIB + 1).err(), Some(Errno::ENODATA));
    assert_eq!(world.truncate(8 * MIB + 1).err(), Some(Errno::ENODATA));
    assert_eq!(world.objects(), [1, 0]);
    world.intend(8 * MIB).expect("the last byte of it");
    assert_eq!(world.objects(), [1, 2]);
}

#[test]
fn a_crash_forgets_objects_that_were_not_committed_and_a_replay_gives_the_same() {
    let mut world = world_of(&progressive());
    world.rig.commit();
    world.intend(2 * MIB).expect("room");
    let before = world.layout();
    world.rig.crash();
    assert_eq!(world.objects(), [1, 0, 0]);
    let replies = world.rig.replay(|_| true);
    assert!(replies.iter().all(|(_, reply)| reply.is_ok()));
    world.rig.recovered();
    assert_eq!(world.layout().1, before.1, "the same objects on the same OSTs");
    world.intend(9 * MIB).expect("room");
    assert_eq!(world.objects(), [1, 2, 4]);
}

/// A reply to another file's create would give its objects away.
#[test]
fn a_replay_gives_no_objects_of_another_file() {
    let mut world = world_of(&progressive());
    let other = world.rig.create(world.dir, "g", S_IFREG | 0o644, None).expect("made").attr.fid();
    let (_, others) = world.rig.getattr(other).expect("there");
    world.rig.commit();
    world.intend(2 * MIB).expect("room");
    let mut intent = world.rig.history.pop().expect("it is a change");
    world.rig.crash();
    let truth = intent.clone();
    intent.reply.bufs[1] = others;
    world.rig.history = vec![intent];
    assert_eq!(world.rig.replay(|_| true).remove(0).1.err(), Some(Errno::EPROTO));
    world.rig.history = vec![truth];
    assert!(world.rig.replay(|_| true).remove(0).1.is_ok(), "the truth is believed");
}

#[test]
fn a_removed_file_leaves_a_record_of_each_component() {
    let mut world = world_of(&progressive());
    world.intend(2 * MIB).expect("room");
    let layout = FileLayout::composite(world.file, world.layout().1);
    let before = world.destroys().len();
    world
        .rig
        .call(
            Opcode::MdtClose,
            &wire::body::CloseReq {
                fid: world.file.into(),
                handle: world.handle,
                flags: wire::body::CloseFlags::WROTE,
                ..Default::default()
            },
            &[],
        )
        .expect("closed");
    let body = UnlinkReq { parent: world.dir.into(), ..UnlinkReq::default() };
    world.rig.call(Opcode::MdtUnlink, &body, &[b"f"]).expect("gone");
    let of = |one: &layout::Layout| DestroyRecord { base: one.base, osts: one.osts.clone() };
    assert_eq!(world.destroys()[before..], layout.stripings().map(of).collect::<Vec<_>>());
}

#[test]
fn what_is_set_is_what_is_read_and_an_mdt_takes_no_more_than_it_wants() {
    let at_mdt = TemplateComponent { end: 4 * MIB, wanted: Wanted::Mdt };
    let mut template = progressive();
    template.components[0] = at_mdt;
    let first = |world: &mut World| world.layout().1.components[0].clone();

    let mut world = world_of(&template);
    let again = |world: &mut World, name: &str| {
        let made = world.rig.create(world.dir, name, S_IFREG | 0o644, Some(O_RDWR)).expect("made");
        world.file = made.attr.fid();
        first(world)
    };
    world.rig.engine.state.borrow_mut().lod.dom_stripesize = 0;
    let none = again(&mut world, "none");
    assert!(matches!(none.place, Place::Objects(_)), "this one takes none");
    world.rig.engine.state.borrow_mut().lod.dom_stripesize = MIB;
    let data = types::TargetId::dom(0).index;
    let told = |world: &World, bytes_avail| {
        let space = placement::Space { bytes: 1 << 40, bytes_avail, files_free: 1 << 20 };
        world.rig.engine.state.borrow_mut().spaces.told(data, space, None);
    };
    told(&world, 1 << 20);
    let elsewhere = again(&mut world, "elsewhere");
    assert!(matches!(elsewhere.place, Place::Objects(_)), "it is short of room");
    told(&world, 1 << 39);
    let part = again(&mut world, "g");
    assert_eq!((&part.place, part.extent.end()), (&Place::Mdt, MIB));
    assert_eq!(world.objects(), [0, 0, 0], "small files have no object on an OST");

    let body = FidReq { fid: world.dir.into(), ..FidReq::default() };
    let value = world.rig.call(Opcode::MdtGetxattr, &body, &[b"lustre.lov"]).expect("set").buf(1);
    assert_eq!(lov::composite::decode(&value), Ok(template));
}

/// Sets an attribute that changes the components of the file.
fn set_by(world: &mut World, name: &str, value: &[u8]) -> Result<(), Errno> {
    set_refused(world, name, value, 0)
}

/// The same where the objects refuse layouts before `refused`.
fn set_refused(world: &mut World, name: &str, value: &[u8], refused: u32) -> Result<(), Errno> {
    let body = SetxattrReq { fid: world.file.into(), refused, ..SetxattrReq::default() };
    world.rig.call(Opcode::MdtSetxattr, &body, &[name.as_bytes(), value]).map(drop)
}

/// What `lustre.lov.del` takes for the component `id`.
fn named(world: &mut World, id: u32) -> Vec<u8> {
    let mut shown = lov::composite::LovComposite::of_file(&world.layout().1, world.file);
    shown.entries.retain(|entry| entry.id == id);
    shown.encode()
}

fn close(world: &mut World) {
    let body = wire::body::CloseReq {
        fid: world.file.into(),
        handle: world.handle,
        flags: wire::body::CloseFlags::WROTE,
        ..Default::default()
    };
    world.rig.call(Opcode::MdtClose, &body, &[]).expect("closed");
}

#[test]
fn components_are_added_behind_an_end_over_a_crash_too() {
    let mut template = progressive();
    template.components.pop();
    let mut world = world_of(&template);
    let more = CompositeTemplate::striped(0, [(16 * MIB, 2), (END_OF_FILE, 3)]);
    let value = lov::composite::LovComposite::of_dir(&more).expect("a layout").encode();
    world.rig.commit();
    set_by(&mut world, "lustre.lov.add", &value).expect("there is room");
    assert_eq!(world.objects(), [1, 0, 0, 0], "with no objects yet");
    let before = world.layout().1;
    assert_eq!(set_by(&mut world, "lustre.lov.add", &value), Err(Errno::EINVAL), "no end");
    world.rig.crash();
    assert_eq!(world.layout().1.components.len(), 2);
    world.rig.engine.state.borrow_mut().lod.stripe_size = 4 << 20; // the first reply counts
    assert!(world.rig.replay(|_| true).iter().all(|(_, reply)| reply.is_ok()));
    assert_eq!(world.layout().1, before);
    world.rig.recovered();
    world.intend(20 * MIB).expect("room");
    assert_eq!(world.objects(), [1, 2, 2, 3]);
}

#[test]
fn components_are_taken_from_behind_with_their_objects() {
    let mut world = world_of(&progressive());
    world.intend(100 * MIB).expect("room");
    let gone: Vec<DestroyRecord> = world.layout().1.components[1..]
        .iter()
        .filter_map(|part| part.objects())
        .map(|one| DestroyRecord { base: one.base, osts: one.osts.clone() })
        .collect();
    let second = named(&mut world, 2);
    assert_eq!(set_by(&mut world, "lustre.lov.del", &second), Err(Errno::EBUSY), "it is open");
    close(&mut world);
    let first = named(&mut world, 1);
    assert_eq!(set_by(&mut world, "lustre.lov.del", &first), Err(Errno::EINVAL));
    world.rig.commit();
    set_by(&mut world, "lustre.lov.del", &second).expect("nobody has it");
    assert_eq!((world.objects(), world.destroys()), (vec![1], gone.clone()));
    world.rig.crash();
    assert!(world.rig.replay(|_| true).iter().all(|(_, reply)| reply.is_ok()));
    world.rig.recovered();
    assert_eq!((world.objects(), world.destroys()), (vec![1], gone));
    assert_eq!(set_by(&mut world, "lustre.lov.del", &second), Err(Errno::EINVAL), "it is gone");
    world.rig.creds = types::Creds { uid: 7, gid: 7, groups: Vec::new() };
    assert_eq!(set_by(&mut world, "lustre.lov.del", &second), Err(Errno::EPERM));
}

#[test]
fn components_of_an_open_file_go_where_their_objects_refuse_its_layout() {
    let mut world = world_of(&progressive());
    world.intend(100 * MIB).expect("room");
    let (second, generation) = (named(&mut world, 2), world.layout().1.generation);
    let cut = |world: &mut World, refused| set_refused(world, "lustre.lov.del", &second, refused);
    assert_eq!(cut(&mut world, generation), Err(Errno::EAGAIN), "another layout");
    world.rig.commit();
    cut(&mut world, generation + 1).expect("nobody uses it");
    let left = world.layout();
    assert_eq!((world.objects(), left.1.generation), (vec![1], generation + 1));
    world.rig.crash();
    assert!(world.rig.replay(|_| true).iter().all(|(_, reply)| reply.is_ok()));
    world.rig.recovered();
    assert_eq!(world.layout(), left);
}

#[test]
fn a_layout_that_is_refused_gets_one_later_generation() {
    let mut world = world_of(&progressive());
    let renew = |world: &mut World, handle, refused| {
        let body = LayoutReq { fid: world.file.into(), handle, refused, ..LayoutReq::default() };
        world.rig.call(Opcode::MdtLayout, &LayoutReq { look: 1, ..body }, &[])?;
        world.rig.call(Opcode::MdtLayout, &body, &[]).map(drop)
    };
    let (version, before) = world.layout();
    world.rig.commit();
    for _ in 0..2 {
        renew(&mut world, 0, before.generation + 1).expect("its owner may");
        let (now, after) = world.layout();
        assert_eq!((now, after.generation), (version + 1, before.generation + 1));
        assert_eq!(after.components, before.components, "the same objects");
    }
    world.rig.crash();
    assert!(world.rig.replay(|_| true).iter().all(|(_, reply)| reply.is_ok()));
    world.rig.recovered();
    assert_eq!(world.layout().0, version + 1);
    let attr = Attr { mode: 0o600, ..Attr::default() }.with_fid(world.file);
    let body = SetattrReq { attr, valid: SetattrFlags::MODE, ..SetattrReq::default() };
    world.rig.call(Opcode::MdtSetattr, &body, &[]).expect("its owner may");
    world.rig.creds = types::Creds { uid: 7, gid: 7, groups: Vec::new() };
    assert_eq!(renew(&mut world, 0, before.generation + 2), Err(Errno::EACCES));
    let handle = world.handle;
    renew(&mut world, handle, before.generation + 2).expect("it is open");
    assert_eq!(world.layout().0, version + 2);
}

#[test]
fn a_directory_without_a_default_shows_that_of_the_root() {
    let mut world = world_of(&progressive());
    let get = |world: &mut World, fid: Fid, name: &str| {
        let body = FidReq { fid: fid.into(), ..FidReq::default() };
        let reply = world.rig.call(Opcode::MdtGetxattr, &body, &[name.as_bytes()])?;
        Ok::<_, Errno>(lov::decode_any(&reply.buf(1)).expect("a layout"))
    };
    let bare = world.rig.create(Fid::ROOT, "bare", S_IFDIR | 0o755, None).expect("made");
    let (own, bare) = (world.dir, bare.attr.fid());
    let system = world.rig.engine.state.borrow().lod.template();
    assert_eq!(get(&mut world, bare, "lustre.lov"), Err(Errno::ENODATA));
    assert_eq!(get(&mut world, bare, "lustre.lov.default"), Ok(system.clone().into()));

    let root = Template { stripe_count: 2, ..Template::default() };
    let body = SetxattrReq { fid: Fid::ROOT.into(), ..SetxattrReq::default() };
    let set = world.rig.call(Opcode::MdtSetxattr, &body, &[b"lustre.lov", &lov::encode_dir(&root)]);
    set.expect("a default");
    assert_eq!(get(&mut world, bare, "lustre.lov"), Ok(root.clone().into()));
    assert_eq!(get(&mut world, bare, "trusted.lov"), Err(Errno::ENODATA), "it has none");
    let filled = get(&mut world, bare, "lustre.lov.default");
    assert_eq!(filled, Ok(root.or(&system).into()));
    assert_eq!(get(&mut world, own, "lustre.lov"), Ok(Asked::Composite(progressive())));
    assert_eq!(get(&mut world, own, "lustre.lov.default"), Ok(system.into()), "taken whole");
}

#[test]
fn an_overstriped_file_has_several_objects_on_an_ost() {
    let mut world = world_of(&progressive());
    let asked = Template { stripe_count: -2, overstriped: true, ..Template::default() };
    let body = SetxattrReq { fid: world.dir.into(), ..SetxattrReq::default() };
    let value = lov::encode_dir(&asked);
    world.rig.call(Opcode::MdtSetxattr, &body, &[b"lustre.lov", &value]).expect("a default");
    let made = world.rig.create(world.dir, "wide", S_IFREG | 0o644, Some(O_RDWR)).expect("made");
    let body = FidReq { fid: made.attr.fid().into(), ..FidReq::default() };
    let value = world.rig.call(Opcode::MdtGetxattr, &body, &[b"lustre.lov"]).expect("set").buf(1);
    let shown = lov::inspect(&value).expect("a layout");
    assert_eq!(shown.pattern_name(), "raid0,overstriped");
    let mut osts: Vec<u32> = shown.stripes.iter().map(|stripe| stripe.ost).collect();
    osts.sort_unstable();
    assert_eq!(osts, [0, 0, 1, 1, 2, 2, 3, 3]);

    let wide = Template { stripe_count: 2_000, ..asked };
    let body = SetxattrReq { fid: world.dir.into(), ..SetxattrReq::default() };
    let value = lov::encode_dir(&wide);
    world.rig.call(Opcode::MdtSetxattr, &body, &[b"lustre.lov", &value]).expect("a default");
    let body = FidReq { fid: world.dir.into(), ..FidReq::default() };
    let told = world.rig.call(Opcode::MdtGetxattr, &body, &[b"lustre.lov.why"]).expect("told");
    let told = String::from_utf8(told.buf(1).to_vec()).expect("text");
    assert!(told.contains(" and 1936 more\n") && told.len() < 4_096, "{told}");
}

#[test]
fn it_is_told_which_defaults_decide() {
    let mut world = world_of(&progressive());
    let why = |world: &mut World, fid: Fid| {
        let body = FidReq { fid: fid.into(), ..FidReq::default() };
        let text = world.rig.call(Opcode::MdtGetxattr, &body, &[b"lustre.lov.why"]).expect("told");
        String::from_utf8(text.buf(1).to_vec()).expect("text")
    };
    let (dir, file) = (world.dir, world.file);
    let parts = "to 1048576 1 stripe; to 8388608 2 stripes; to the end 4 stripes";
    let told = why(&mut world, dir);
    assert!(told.contains(&format!("default of the directory    {parts}\n")), "{told}");
    assert!(told.contains("default of the root         none\n"), "{told}");
    assert!(told.contains(&format!("a new file gets             {parts}\n")), "{told}");
    let parts = "the directory; the file system what it leaves open";
    assert!(told.contains(&format!("that is decided by          {parts}\n")), "{told}");
    assert_eq!(told.matches("\nOSTs, if made now           in turn: OST000").count(), 3, "{told}");
    assert_eq!(why(&mut world, dir), told, "a question takes no turn");
    let other = world.rig.create(Fid::ROOT, "f", S_IFREG | 0o644, Some(O_RDWR)).expect("made");
    let told = why(&mut world, other.attr.fid());
    assert!(told.starts_with("this file                   as a new file beside"), "{told}");
    assert!(told.contains("a new file gets             1 stripe of 1048576 bytes\n"), "{told}");
    let fields = "the file system (stripe count, stripe size)";
    assert!(told.contains(&format!("that is decided by          {fields}\n")), "{told}");
    let made = "it was made by              ";
    assert!(told.contains(&format!("{made}the file system's default\n")), "{told}");
    let told = why(&mut world, file);
    let both = "the directory's default, the file system's default";
    assert!(told.contains(&format!("{made}{both}\n")), "{told}");
    assert!(told.starts_with("this file                   as a new file beside"), "{told}");
    let mut shorter = progressive();
    shorter.components.remove(0);
    set_layout(&mut world.rig, dir, &shorter).expect("another default");
    let told = why(&mut world, file);
    let word = "this file                   other than a new file beside it would have";
    assert!(told.starts_with(&format!("{word} (components): ")), "{told}");
    world.intend(100 * MIB).expect("room");
    let told = why(&mut world, file);
    assert!(told.contains(&format!("{made}{both}\n")), "kept: {told}");

    let sized = CompositeTemplate::striped(1 << 20, [(MIB, 1), (END_OF_FILE, 2)]);
    set_layout(&mut world.rig, dir, &sized).expect("a third default");
    let sized = world.rig.create(dir, "sized", S_IFREG | 0o644, Some(O_RDWR)).expect("made");
    let told = why(&mut world, sized.attr.fid());
    assert!(told.contains(&format!("{made}the directory's default\n")), "{told}");
    assert!(told.contains("that is decided by          the directory, all of it\n"), "{told}");
}
