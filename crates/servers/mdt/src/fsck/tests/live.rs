//! Mends by MDTs that serve: causes before consequences, and names before counts.

use super::*;

/// Where MDTs are to look after `damage`, and the rule.
fn suspects(damage: impl FnOnce(&mut Stores)) -> Vec<(&'static str, Suspect)> {
    let mut stores = Stores::sound();
    damage(&mut stores);
    next(&mut LiveRounds::default(), &stores)
}

fn next(rounds: &mut LiveRounds, stores: &Stores) -> Vec<(&'static str, Suspect)> {
    let images = stores.images();
    let system = System::new(&images, &[]);
    let next = rounds.next(&system, &check(&system));
    next.into_iter().map(|(finding, suspect)| (finding.rule.name(), suspect)).collect()
}

#[test]
fn a_wrong_count_is_looked_at_by_its_mdt() {
    let found = suspects(|stores| stores.inode(fid(2, 5), S_IFREG, (9, 0), fid(2, 1)));
    assert_eq!(found, [("link-count", Suspect::Counts(fid(2, 5)))]);
    assert_eq!(found[0].1.mdt(), 2);
}

#[test]
fn a_count_waits_for_the_names_of_its_file() {
    let (file, dir) = (fid(2, 5), fid(2, 1));
    let mut stores = Stores::sound();
    stores.drop_link(dir, b"two", file);
    let mut rounds = LiveRounds::default();
    let name = Suspect::Name { dir, name: b"two".to_vec() };
    assert_eq!(next(&mut rounds, &stores), [("unknown-name", name)]);
    let images = stores.images();
    let found = check(&System::new(&images, &[]));
    let finding = found.iter().find(|it| it.rule == Rule::UnknownName).expect("it is found");
    rounds.told(finding.clone(), Err("it is in recovery".to_owned()));
    assert!(next(&mut rounds, &stores).is_empty(), "a lower count would lose the file");
    assert_eq!((rounds.done.len(), rounds.failed.len()), (0, 1));
}

fn pair(dir: Fid, name: &str, fid: Fid) -> Suspect {
    Suspect::Pair { fid, dir, name: name.as_bytes().to_vec() }
}

#[test]
fn a_file_and_a_name_of_another_mdt_are_looked_at_by_the_mdt_of_the_file() {
    let (file, dir) = (fid(2, 5), fid(1, 1));
    let far = || pair(dir, "far-file", file);
    let found = suspects(|stores| stores.drop_link(dir, b"far-file", file));
    assert_eq!(found, [("unknown-name", far())], "the count waits");
    assert_eq!(found[0].1.mdt(), 2);
    let found = suspects(|stores| stores.drop_entry(dir, b"far-file"));
    assert_eq!(found, [("lost-name", far())], "the size of the directory waits");
    let found = suspects(|stores| stores.entry(dir, b"far-file", file, S_IFDIR));
    assert_eq!(found, [("wrong-type", far())]);
    let found = suspects(|stores| stores.entry(dir, b"gone", fid(2, 9), S_IFREG));
    assert_eq!(found, [("dangling-name", pair(dir, "gone", fid(2, 9)))]);
}

#[test]
fn each_name_of_a_directory_with_several_is_looked_at() {
    let sub = fid(2, 1);
    let found = suspects(|stores| stores.name(fid(1, 1), b"again", sub, S_IFDIR));
    let both = [(Fid::ROOT, "c"), (fid(1, 1), "again")];
    assert_eq!(found, both.map(|(dir, name)| ("several-names", pair(dir, name, sub))));
}

#[test]
fn what_only_a_repair_of_a_stopped_file_system_mends_is_left() {
    let found = suspects(|stores| {
        stores.inode(fid(2, 9), S_IFREG, (1, 0), fid(2, 1)); // for lost+found
    });
    assert!(found.iter().all(|(rule, _)| *rule == "link-count"), "{found:?}");
    let found = suspects(|stores| {
        stores.entry(fid(1, 1), b"gone", fid(2, 9), S_IFDIR);
        stores.entry(fid(2, 9), b"below", fid(2, 5), S_IFREG);
    });
    assert!(found.iter().all(|(rule, _)| *rule != "dangling-name"), "it is made again: {found:?}");
}

#[test]
fn files_of_operations_that_are_under_way_are_not_looked_at() {
    let found = suspects(|stores| {
        stores.inode(fid(2, 5), S_IFREG, (9, 0), fid(2, 1));
        stores.record(1, fid(2, 5));
    });
    assert!(found.is_empty(), "{found:?}");
}
