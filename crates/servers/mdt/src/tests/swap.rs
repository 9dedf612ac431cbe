//! Files that swap their objects.

use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{FileLayout, Striping, Template, lov};
use osd::Table;
use types::{Errno, Fid};
use wire::attr::{S_IFDIR, S_IFREG};
use wire::body::{AttrRep, CloseFlags, CloseReq, OstListed, SetxattrReq, SwapReq};
use wire::{Opcode, SizeState, encode_body};

use super::rig::Rig;
use crate::record::DestroyRecord;

const O_RDWR: u32 = 2;

/// A file that begins at the MDT, and one without a name that is striped.
struct World {
    rig: Rig,
    file: Fid,
    other: AttrRep,
}

impl World {
    fn new() -> World {
        let mut rig = Rig::new();
        rig.recovered();
        let dir = rig.create(Fid::ROOT, "d", S_IFDIR | 0o755, None).expect("made").attr.fid();
        let template = CompositeTemplate {
            components: vec![
                TemplateComponent { end: 1 << 16, wanted: Wanted::Mdt },
                TemplateComponent {
                    end: END_OF_FILE,
                    wanted: Wanted::Striped(Template::default()),
                },
            ],
        };
        let value = lov::composite::LovComposite::of_dir(&template).expect("a layout").encode();
        let body = SetxattrReq { fid: dir.into(), ..SetxattrReq::default() };
        rig.call(Opcode::MdtSetxattr, &body, &[b"lustre.lov", &value]).expect("a default");
        let file = rig.create(dir, "f", S_IFREG | 0o644, None).expect("made").attr.fid();
        let other = rig.tmpfile(Fid::ROOT, S_IFREG | 0o600, O_RDWR).expect("made");
        World { rig, file, other }
    }

    fn layout(&mut self, fid: Fid) -> FileLayout {
        let (_, record) = self.rig.getattr(fid).expect("there");
        let Ok(Striping::Layout(layout)) = Striping::decode(fid, &record) else {
            panic!("a layout")
        };
        layout
    }

    fn layouts(&mut self) -> (FileLayout, FileLayout) {
        let other = self.other.attr.fid();
        (self.layout(self.file), self.layout(other))
    }

    /// What a client asks for that knows both layouts.
    fn request(&mut self) -> SwapReq {
        let (mine, theirs) = self.layouts();
        SwapReq {
            other: self.other.attr.fid().into(),
            handle: self.other.handle,
            generation: mine.generation(),
            other_generation: theirs.generation(),
            next: mine.generation().max(theirs.generation()) + 2,
            ..SwapReq::default()
        }
    }

    fn swap(&mut self, request: SwapReq) -> Result<AttrRep, Errno> {
        let body = SetxattrReq { fid: self.file.into(), ..SetxattrReq::default() };
        let value = encode_body(&request);
        Ok(self.rig.call(Opcode::MdtSetxattr, &body, &[b"lustre.lov.swap", &value])?.body())
    }

    fn close(&mut self) {
        let body = CloseReq {
            fid: self.other.attr.fid().into(),
            handle: self.other.handle,
            flags: CloseFlags::WROTE,
            ..CloseReq::default()
        };
        self.rig.call(Opcode::MdtClose, &body, &[]).expect("closed");
    }

    fn destroys(&self) -> Vec<DestroyRecord> {
        let table = self.rig.store.table(Table::Destroys);
        table.iter().map(|(_, value)| DestroyRecord::decode(value).expect("a record")).collect()
    }
}

fn objects(layout: &FileLayout) -> Vec<(Fid, u32)> {
    layout.objects().map(|(_, object, ost)| (object, ost.0)).collect()
}

#[test]
fn a_file_gets_the_others_objects_and_its_own_go_with_the_other() {
    let mut world = World::new();
    let (mine, theirs) = world.layouts();
    let request = world.request();
    let told = world.swap(request).expect("both are as they were");
    assert_eq!(told.attr.size_state(), SizeState::Dirty);
    let (taken, given) = world.layouts();
    assert_eq!((objects(&taken), objects(&given)), (objects(&theirs), objects(&mine)));
    assert_eq!((taken.generation(), given.generation()), (request.next, request.next));
    assert_eq!((taken.origin(), given.origin()), (theirs.origin(), mine.origin()));
    assert_eq!(world.swap(request).err(), Some(Errno::EAGAIN), "they have changed");
    world.close();
    let at_mdt = DestroyRecord { base: world.file, osts: vec![types::DOM_FIRST] };
    assert_eq!(world.destroys(), [at_mdt], "the file's object at the MDT");
    assert_eq!(objects(&world.layout(world.file)), objects(&theirs));
}

#[test]
fn it_survives_a_crash_or_never_was() {
    let mut world = World::new();
    world.rig.commit();
    let before = world.layouts();
    let request = world.request();
    world.swap(request).expect("both are as they were");
    let after = world.layouts();
    world.rig.crash();
    assert_eq!(world.layouts(), before);
    assert!(world.rig.replay(|_| true).iter().all(|(_, reply)| reply.is_ok()));
    assert_eq!(world.layouts(), after, "the same again");
    let bases: Vec<(u64, u32)> =
        after.0.stripings().map(|one| (one.base.seq, one.base.oid)).collect();
    let swapped = world.rig.engine.state.borrow().swapped.clone();
    assert!(bases.iter().all(|base| swapped.contains(base)), "ids of the run before are spared");
    world.rig.recovered();
    assert_eq!(world.layouts(), after);

    let mut world = World::new();
    world.rig.commit();
    let (file, theirs) = world.layouts();
    let request = world.request();
    world.swap(request).expect("both are as they were");
    world.rig.crash();
    world.rig.recovered();
    assert_eq!(world.layout(world.file), file, "its client has died too");
    let gone: Vec<Fid> = world.destroys().iter().map(|record| record.base).collect();
    assert_eq!(gone, theirs.stripings().map(|one| one.base).collect::<Vec<_>>());
}

#[test]
fn nobody_takes_over_what_is_not_his_or_has_changed() {
    let mut world = World::new();
    let request = world.request();
    let mut refused = |request| world.swap(request).err();
    assert_eq!(refused(SwapReq { generation: 7, ..request }), Some(Errno::EAGAIN));
    assert_eq!(refused(SwapReq { other_generation: 7, ..request }), Some(Errno::EAGAIN));
    assert_eq!(refused(SwapReq { next: request.generation, ..request }), Some(Errno::EINVAL));
    assert_eq!(refused(SwapReq { next: 1 << 16, ..request }), Some(Errno::EOVERFLOW));
    assert_eq!(refused(SwapReq { handle: request.handle + 1, ..request }), Some(Errno::EPERM));
    let file = world.file;
    assert_eq!(world.swap(SwapReq { other: file.into(), ..request }).err(), Some(Errno::EINVAL));
    let root = SwapReq { other: Fid::ROOT.into(), ..request };
    assert_eq!(world.swap(root).err(), Some(Errno::EINVAL));
    let named = world.rig.create(Fid::ROOT, "g", S_IFREG | 0o644, Some(O_RDWR)).expect("made");
    let named = SwapReq { other: named.attr.fid().into(), handle: named.handle, ..request };
    assert_eq!(world.swap(named).err(), Some(Errno::EPERM), "it has a name");
    world.rig.client = 2;
    assert_eq!(world.swap(request).err(), Some(Errno::EPERM), "another client's handle");
    world.rig.client = 1;
    world.rig.creds = types::Creds { uid: 7, gid: 7, groups: Vec::new() };
    assert_eq!(world.swap(request).err(), Some(Errno::EPERM), "another user's file");
    world.rig.creds = types::Creds::root();
    world.swap(request).expect("nothing has changed");
}

/// Their records say the file that will take them over, which does not name them yet.
#[test]
fn objects_of_a_file_without_a_name_are_not_taken_for_unnamed() {
    let mut world = World::new();
    let (_, theirs) = world.layouts();
    let base = theirs.stripings().next().expect("objects").base;
    let store = world.rig.engine.state.borrow().number;
    let listed =
        OstListed { object: base.into(), parent: world.file.into(), store, ..OstListed::default() };
    let unnamed = |world: &World| {
        let found = world.rig.engine.unnamed((0, &[listed]), false).expect("reads");
        found.expect("they are of this store").len()
    };
    assert_eq!(unnamed(&world), 0);
    world.close();
    assert_eq!(unnamed(&world), 1);
}
