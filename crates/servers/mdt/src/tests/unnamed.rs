//! Objects that no file names.

use layout::{Layout, Striping};
use osd::Table;
use types::Fid;
use wire::Opcode;
use wire::attr::S_IFREG;
use wire::body::{OstListed, UnlinkReq};

use super::rig::Rig;
use crate::UnnamedError;
use crate::record::DestroyRecord;

/// A file of one stripe and its layout.
fn file(rig: &mut Rig, name: &str) -> (Fid, Layout) {
    let made = rig.create(Fid::ROOT, name, S_IFREG | 0o644, Some(1)).expect("room").attr.fid();
    let stored = rig.store.table(Table::Layouts);
    let (_, stored) = stored.iter().find(|(key, _)| key[..] == made.to_key()).expect("a layout");
    let Ok(Striping::Layout(layout)) = Striping::decode(Fid::ZERO, stored) else {
        panic!("a layout")
    };
    let layout = layout.as_plain().expect("one striping").clone();
    (made, layout)
}

/// As the OST of the first stripe tells it.
fn listed(rig: &Rig, file: Fid, layout: &Layout) -> OstListed {
    let (object, store) = (layout.base.into(), rig.engine.state.borrow().number);
    OstListed { object, parent: file.into(), store, size: 7 }
}

/// FIDs of what has no name.
fn unnamed(rig: &Rig, ost: u32, all: &[OstListed], remove: bool) -> Result<Vec<Fid>, UnnamedError> {
    let found = rig.engine.unnamed((ost, all), remove).expect("reads and changes");
    found.map(|found| found.iter().map(|one| one.object).collect())
}

fn log(rig: &Rig) -> Vec<DestroyRecord> {
    let records = rig.store.table(Table::Destroys);
    records.iter().map(|(_, value)| DestroyRecord::decode(value).expect("ours")).collect()
}

#[test]
fn what_a_file_names_stays_and_what_none_names_goes_by_the_log() {
    let mut rig = Rig::new();
    let (kept, of_kept) = file(&mut rig, "kept");
    let (gone, of_gone) = file(&mut rig, "gone");
    let body = UnlinkReq { parent: Fid::ROOT.into(), ..UnlinkReq::default() };
    rig.commit();
    let named = listed(&rig, kept, &of_kept);
    // as an MDT sees it that was made of an older export
    let lost = OstListed { parent: Fid::new(gone.seq, 1).into(), ..listed(&rig, gone, &of_gone) };
    let second = OstListed { object: of_gone.base.stripe(2).into(), ..lost };
    let foreign = OstListed { store: named.store ^ 1, ..lost };
    let unreadable = OstListed { parent: Fid::ZERO.into(), store: 0, ..lost };
    let all = [named, lost, second, foreign, unreadable];
    let want = vec![of_gone.base, of_gone.base.stripe(2)];
    assert_eq!(unnamed(&rig, 3, &all, false), Ok(want.clone()));
    assert_eq!(log(&rig), [], "they were shown alone");
    assert_eq!(unnamed(&rig, 3, &all, true), Ok(want));
    let record = DestroyRecord { base: of_gone.base, osts: vec![3; 3] };
    assert_eq!(log(&rig), [record]);

    // the log goes on behind it
    rig.call(Opcode::MdtUnlink, &body, &[b"kept"]).expect("it is there");
    rig.commit();
    let numbers: Vec<_> =
        rig.store.table(Table::Destroys).into_iter().map(|(key, _)| key).collect();
    assert!(numbers.is_sorted() && numbers.len() <= 2, "{numbers:?}");
}

#[test]
fn an_id_that_is_yet_to_be_given_is_nobodys() {
    let mut rig = Rig::new();
    let (made, layout) = file(&mut rig, "made");
    let own = listed(&rig, made, &layout);
    let next = Fid { oid: layout.base.oid + 1, ..layout.base };
    let younger = OstListed { object: next.into(), ..own };
    assert_eq!(
        unnamed(&rig, 0, &[own, younger], true),
        Err(UnnamedError::Younger { object: next })
    );
    assert_eq!(log(&rig), []);
    let (then, layout) = file(&mut rig, "then");
    assert_eq!(layout.base, next, "a file that is made meanwhile has it");
    let its = listed(&rig, then, &layout);
    assert_eq!(unnamed(&rig, 0, &[own, its], true), Ok(Vec::new()));
    assert_eq!(log(&rig), []);

    // at the data target ids are those of files, and this file has nothing there
    let data = types::TargetId::dom(0).index;
    let beside = |file: Fid| OstListed { object: file.into(), ..its };
    assert_eq!(unnamed(&rig, data, &[beside(made)], false), Ok(vec![made]));
    let next = Fid { oid: then.oid + 1, ..then };
    assert_eq!(
        unnamed(&rig, data, &[OstListed { parent: next.into(), ..beside(next) }], true),
        Err(UnnamedError::Younger { object: next })
    );
}

#[test]
fn the_object_of_a_file_that_is_being_made_stays() {
    let mut rig = Rig::new();
    let (made, layout) = file(&mut rig, "made");
    let data = types::TargetId::dom(0).index;
    let beside = OstListed { object: made.into(), ..listed(&rig, made, &layout) };
    rig.engine.state.borrow_mut().making_begins(made, false);
    assert_eq!(unnamed(&rig, data, &[beside], true), Ok(Vec::new()));
    assert_eq!(log(&rig), []);
    rig.engine.state.borrow_mut().making.end(made);
    assert_eq!(unnamed(&rig, data, &[beside], true), Ok(vec![made]));
}
