//! What MDTs mend while they serve: names before counts, and nothing that concerns several MDTs.

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

#[test]
fn what_concerns_two_mdts_is_left_to_a_repair_of_a_stopped_file_system() {
    let found = suspects(|stores| stores.drop_link(fid(1, 1), b"far-file", fid(2, 5)));
    assert!(found.is_empty(), "neither the name nor the count: {found:?}");
}

#[test]
fn files_of_operations_that_are_under_way_are_not_looked_at() {
    let found = suspects(|stores| {
        stores.inode(fid(2, 5), S_IFREG, (9, 0), fid(2, 1));
        stores.record(1, fid(2, 5));
    });
    assert!(found.is_empty(), "{found:?}");
}
