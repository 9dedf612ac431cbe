//! Tests of the cache under grants: how long answers are valid, and which ones a change ends.

mod overtaking;

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use env_sim::{Sim, SimConfig};
use ldlm::grants::{ChangeId, Name, Recall};
use types::{Fid, Instant, Span, Transno};
use wire::Attr;
use wire::attr::{AttrFlags, S_IFDIR, S_IFREG};
use wire::dirent::Dirent;

use super::*;
use crate::{DirPage, Error};

const D: Fid = Fid::ROOT;
const OTHER: Fid = Fid { oid: 7, ..Fid::ROOT };
const FILE: Fid = Fid { oid: 8, ..Fid::ROOT };
const LEASED: Gift = Gift::Timed(Span::millis(50));

/// Numbers rise with each answer.
fn next_number() -> Number {
    static LAST: AtomicU64 = AtomicU64::new(0);
    Number(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

fn at(ms: u64) -> Instant {
    Instant(1_000_000_000) + Span::millis(ms)
}

fn dir(fid: Fid, version: u64) -> Attr {
    Attr { mode: S_IFDIR, version, ..Attr::default() }.with_fid(fid)
}

fn file(version: u64) -> Attr {
    Attr { mode: S_IFREG, version, ..Attr::default() }.with_fid(FILE)
}

/// An answer that leases what it tells.
fn stat(attr: Attr, as_of: u64) -> Stat {
    Stat {
        attr,
        as_of: Transno(as_of),
        lease: LEASED,
        name_lease: LEASED,
        is_cached: false,
        is_write_kept: false,
        is_kept_elsewhere: false,
        grant: next_number(),
        layout: None,
        epoch: 0,
        handle: 0,
        disposition: wire::body::Disposition::empty(),
        mtime_set: types::Timespec::default(),
        stripes: layout::StripeSet::default(),
        lost: false,
        touched: None,
        dir: None,
        bytes: None,
    }
}

/// The same of a change, which tells of its directory too.
fn made(parent: Attr, as_of: u64) -> Stat {
    Stat { dir: Some((parent, LEASED)), ..stat(file(as_of), as_of) }
}

/// Whether what was asked at `ms` and answered at once holds for attributes and name.
fn hear(known: &mut Known, stat: &Stat, ms: u64) -> (bool, bool) {
    let question = known.cache.ask(at(ms));
    answer(known, question, stat, ms)
}

fn answer(known: &mut Known, question: Question, stat: &Stat, ms: u64) -> (bool, bool) {
    let lease = known.told(question, at(ms), stat, at(ms));
    known.cache.finish(question);
    assert!([lease.attrs, lease.name].iter().all(|end| [Instant(0), at(ms + 50)].contains(end)));
    (lease.attrs > Instant(0), lease.name > Instant(0))
}

struct Change {
    id: ChangeId,
    question: Question,
    scope: Scope,
}

fn begin(known: &mut Known, mut scope: Scope) -> Change {
    Change { id: known.begin(&mut scope, at(0)), question: known.cache.ask(at(0)), scope }
}

fn end(known: &mut Known, change: &Change, stat: &Stat) {
    known.end((change.id, &change.scope), change.question, at(0), stat, at(1));
    known.cache.finish(change.question);
}

fn version(known: &mut Known, fid: Fid, ms: u64) -> Option<u64> {
    known.attributes(fid, at(ms)).map(|(attr, _)| attr.version)
}

#[test]
fn an_answer_from_before_a_change_of_this_client_holds_for_no_time() {
    let mut known = Known::default();
    let [before, old, new, elsewhere] = [(); 4].map(|()| known.cache.ask(at(0)));
    let change = begin(&mut known, Scope::removal(D, b"n"));
    assert_eq!(answer(&mut known, before, &stat(dir(D, 4), 4), 0), (true, true));
    end(&mut known, &change, &Stat { lease: Gift::None, ..made(dir(D, 5), 5) });
    assert_eq!(answer(&mut known, old, &stat(file(3), 4), 1), (false, false), "it had that name");
    assert_eq!(answer(&mut known, new, &stat(file(5), 5), 1), (true, true));
    assert_eq!(answer(&mut known, elsewhere, &stat(dir(OTHER, 1), 4), 1), (true, true));
}

#[test]
fn what_was_held_when_the_lease_ended_is_given_back() {
    let mut known = Known::default();
    known.cache.leased(Span::secs(10), at(10_000));
    let told = Stat { lease: Gift::Called, name_lease: Gift::None, ..stat(file(1), 1) };
    let question = known.cache.ask(at(0));
    known.told(question, at(0), &told, at(0));
    known.cache.finish(question);
    assert!(known.attributes(FILE, at(1)).is_some() && known.shed.is_empty());
    known.lapse();
    let shed: Vec<_> = known.shed.iter().map(|shed| (shed.fid, shed.number)).collect();
    assert_eq!(shed, [(FILE, told.grant)], "the MDT counts it as held");
    assert!(known.attributes(FILE, at(1)).is_none());
}

#[test]
fn a_file_whose_name_is_taken_is_not_answered_for_until_the_change_is_answered() {
    let mut known = Known::default();
    known.cache.leased(Span::secs(10), at(10_000));
    for attr in [file(1), dir(OTHER, 1)] {
        let told = Stat { lease: Gift::Called, name_lease: Gift::Called, ..stat(attr, 1) };
        let question = known.cache.ask(at(0));
        known.told(question, at(0), &told, at(0));
        known.cache.finish(question);
    }
    known.stands_for((D, b"n"), FILE);
    let answered =
        |known: &mut Known| [FILE, OTHER].map(|fid| known.attributes(fid, at(1)).is_some());
    assert_eq!(answered(&mut known), [true, true]);
    let rename = Scope::rename((D, b"n"), (D, b"m"), false);
    for (scope, expected) in [
        (Scope::removal(D, b"n"), [false, true]),
        (Scope::removal(D, b"m"), [false; 2]),
        (rename, [false; 2]),
    ] {
        let change = begin(&mut known, scope);
        assert_eq!(answered(&mut known), expected, "{:?}", change.scope);
        assert_eq!(known.takings.quiet(), None);
        known.end_silently(change.id, &change.scope, at(1));
        known.cache.finish(change.question);
        assert_eq!(answered(&mut known), [true, true], "it was refused");
    }
    assert_eq!(known.takings.quiet(), Some(3), "three were under way");
}

/// Attributes of a directory came, and are granted until a recall. Whether a name is known to be
/// absent then.
fn is_known_to_lack_a_name(known: &mut Known, attr: Attr, as_of: u64) -> bool {
    let told = Stat { lease: Gift::Called, name_lease: Gift::None, ..stat(attr, as_of) };
    let question = known.cache.ask(at(1));
    known.told(question, at(1), &told, at(1));
    known.cache.finish(question);
    known.has_no_name((attr.fid(), b"n"), at(1))
}

#[test]
fn a_directory_without_names_answers_that_names_are_absent() {
    let lacks = |attr: Attr| {
        let mut known = Known::default();
        known.cache.leased(Span::secs(10), at(10_000));
        is_known_to_lack_a_name(&mut known, attr, 1)
    };
    let empty = Attr { nlink: 2, ..dir(D, 1) };
    assert!(lacks(empty));
    assert!(lacks(Attr { flags: AttrFlags::SHARD, ..empty }));
    assert!(!lacks(Attr { flags: AttrFlags::STRIPED, ..empty }), "its shards have its names");
    assert!(!lacks(Attr { size: 1, ..empty }) && !lacks(Attr { nlink: 3, ..empty }));
    assert!(!lacks(Attr { nlink: 0, ..empty }), "it is gone");
}

#[test]
fn an_old_answer_about_a_directory_without_names_hides_no_name() {
    let mut known = Known::default();
    known.cache.leased(Span::secs(10), at(10_000));
    let old = known.cache.ask(at(0));
    let change = begin(&mut known, Scope::entry(D, b"n"));
    let empty = Attr { nlink: 2, ..dir(D, 1) };
    let full = Attr { size: 1, nlink: 2, ..dir(D, 5) };
    let answer = Stat { dir: Some((full, Gift::Called)), ..made(full, 5) };
    end(&mut known, &change, &answer);
    let late = Stat { lease: Gift::Called, name_lease: Gift::None, ..stat(empty, 4) };
    known.told(old, at(0), &late, at(1));
    known.cache.finish(old);
    assert!(!known.has_no_name((D, b"n"), at(1)));
}

#[test]
fn a_name_that_is_being_made_in_a_directory_without_names_is_not_known_to_be_absent() {
    let mut known = Known::default();
    known.cache.leased(Span::secs(10), at(10_000));
    let change = begin(&mut known, Scope::entry(D, b"n"));
    let empty = Attr { nlink: 2, ..dir(D, 1) };
    assert!(!is_known_to_lack_a_name(&mut known, empty, 4));
    let full = Attr { size: 1, nlink: 2, ..dir(D, 5) };
    end(&mut known, &change, &Stat { dir: Some((full, Gift::Called)), ..made(full, 5) });
    assert!(!known.has_no_name((D, b"n"), at(1)) && known.has_no_name((D, b"m"), at(1)));
}

#[test]
fn a_directory_is_answered_as_of_the_last_change_in_it() {
    let mut known = Known::default();
    hear(&mut known, &stat(dir(D, 1), 1), 0);
    assert_eq!((version(&mut known, D, 49), version(&mut known, D, 50)), (Some(1), None));
    let [first, second] = [(); 2].map(|()| begin(&mut known, Scope::entry(D, b"n")));
    assert_eq!(version(&mut known, D, 0), None);
    end(&mut known, &second, &made(dir(D, 3), 3));
    assert_eq!(version(&mut known, D, 1), None, "the other change is under way");
    end(&mut known, &first, &made(dir(D, 2), 2));
    assert_eq!(version(&mut known, D, 1), Some(3), "answers may overtake each other");
}

#[test]
fn a_change_whose_answer_tells_nothing_of_the_directory_leaves_it_unknown() {
    let mut known = Known::default();
    hear(&mut known, &stat(dir(D, 1), 1), 0);
    let change = begin(&mut known, Scope::entry(D, b"n"));
    end(&mut known, &change, &Stat { dir: None, ..made(dir(D, 0), 4) });
    assert_eq!(version(&mut known, D, 1), None);
    hear(&mut known, &stat(dir(D, 1), 3), 1);
    assert_eq!(version(&mut known, D, 1), None, "that was before");
    hear(&mut known, &stat(dir(D, 4), 4), 1);
    assert_eq!(version(&mut known, D, 1), Some(4));
}

#[test]
fn of_a_page_what_is_older_than_a_change_of_this_client_is_not_leased() {
    let mut known = Known::default();
    let entry =
        |attr| Dirent { cookie: 1, attr, has_attr: true, leased: true, name: b"n".to_vec() };
    let [page, later] = [(); 2].map(|()| known.cache.ask(at(0)));
    let change = begin(&mut known, Scope::link(FILE, D, b"n"));
    end(&mut known, &change, &made(dir(D, 5), 5));
    let listed = |known: &mut Known, question, as_of| {
        let mut entries = [entry(file(1)), entry(dir(OTHER, 1))];
        let number = next_number();
        known.listed(question, &mut entries, LEASED, number, Transno(as_of), at(1));
        entries.map(|entry| entry.leased)
    };
    assert_eq!(listed(&mut known, page, 4), [false, true]);
    assert_eq!(listed(&mut known, later, 6), [true, true]);
}

#[test]
fn a_rename_may_have_changed_anything() {
    let mut known = Known::default();
    hear(&mut known, &stat(dir(OTHER, 1), 1), 0);
    let under_way = known.cache.ask(at(0));
    let change = begin(&mut known, Scope::rename((D, b"n"), (D, b"m"), false));
    end(&mut known, &change, &made(dir(D, 5), 5));
    assert_eq!(version(&mut known, OTHER, 1), None, "it may be what was replaced");
    assert_eq!(answer(&mut known, under_way, &stat(dir(OTHER, 1), 6), 1), (false, false));
    assert_eq!(hear(&mut known, &stat(dir(OTHER, 6), 6), 2), (true, true));
}

#[test]
fn a_rename_that_touched_nothing_has_moved_no_name() {
    let mut known = Known::default();
    known.cache.leased(Span::secs(10), at(10_000));
    let told = Stat { lease: Gift::Called, name_lease: Gift::None, ..stat(dir(D, 1), 1) };
    let question = known.cache.ask(at(0));
    known.told(question, at(0), &told, at(0));
    known.cache.finish(question);
    known.cache.begin_names(D, true).expect("it is granted");
    let [from, to] = [b"n", b"m"].map(|name| hash::hash_of(name));
    [from, to].into_iter().for_each(|name| known.cache.add_name(D, name));
    let rename = |known: &mut Known, touched| {
        let change = begin(known, Scope::rename((D, b"n"), (D, b"m"), false));
        let told = made(dir(D, 5), 5);
        let told = Stat { dir: told.dir.map(|(dir, _)| (dir, Gift::Called)), ..told };
        end(known, &change, &Stat { touched: Some(touched), ..told });
        [from, to].map(|name| known.cache.name(D, name, at(1)))
    };
    let both = [Name::Present, Name::Present];
    assert_eq!(rename(&mut known, vec![]), both, "they are names of one file");
    assert_eq!(rename(&mut known, vec![D, FILE])[0], Name::Absent);
}

#[test]
fn absent_xattrs_are_known_until_one_is_set_here() {
    let mut known = Known::default();
    hear(&mut known, &stat(file(1), 1), 0);
    assert!(known.has_no_xattrs(FILE, at(49)) && !known.has_no_xattrs(FILE, at(50)));
    hear(&mut known, &stat(Attr { flags: AttrFlags::HAS_XATTR, ..file(2) }, 2), 0);
    assert!(!known.has_no_xattrs(FILE, at(1)), "it has some");
    hear(&mut known, &stat(file(3), 3), 0);
    let change = begin(&mut known, Scope::attrs(FILE));
    assert!(!known.has_no_xattrs(FILE, at(1)));
    end(&mut known, &change, &Stat { lease: Gift::None, ..stat(file(4), 4) });
    assert!(!known.has_no_xattrs(FILE, at(1)));
}

#[test]
fn a_change_of_mode_or_times_gives_a_file_no_xattrs() {
    let mut known = Known::default();
    let change = |known: &mut Known, scope: Scope, version: u64| {
        let change = begin(known, scope);
        let is_bare = known.has_no_xattrs(FILE, at(1));
        end(known, &change, &Stat { lease: Gift::None, ..stat(file(version), version) });
        [is_bare, known.has_no_xattrs(FILE, at(1))]
    };
    known.cache.leased(Span::secs(10), at(10_000));
    let question = known.cache.ask(at(0));
    known.told(question, at(0), &opened(1), at(0));
    known.cache.finish(question);
    assert!(known.attributes(FILE, at(1)).is_some());
    assert_eq!(change(&mut known, Scope::stat(FILE), 2), [true; 2]);
    assert!(known.attributes(FILE, at(1)).is_none(), "they are other ones");
    assert_eq!(change(&mut known, Scope::attrs(FILE), 3), [false; 2]);
    assert_eq!(change(&mut known, Scope::stat(FILE), 4), [false; 2], "it may have some");
}

#[test]
fn after_a_restart_of_the_mdt_its_history_may_lack_changes() {
    let mut known = Known::default();
    hear(&mut known, &stat(dir(D, 9), 9), 0);
    let late = known.cache.ask(at(0));
    known.forget(at(1));
    assert_eq!(version(&mut known, D, 1), None);
    assert_eq!(answer(&mut known, late, &stat(dir(D, 9), 9), 1), (false, false));
    assert_eq!(hear(&mut known, &stat(dir(D, 8), 8), 2), (true, true), "9 was lost");
}

#[test]
fn a_smaller_cache_keeps_what_is_used() {
    let mut known = Known::default();
    let dirs: Vec<_> = (0..20).map(|oid| Fid { oid, ..OTHER }).collect();
    for fid in &dirs {
        hear(&mut known, &stat(dir(*fid, 1), 1), 0);
    }
    assert_eq!(version(&mut known, dirs[3], 1), Some(1));
    known.set_lru(Lru { size: 5, ..Lru::default() }, at(1));
    let kept =
        |known: &mut Known| dirs.iter().filter(|fid| version(known, **fid, 2).is_some()).count();
    assert_eq!((known.cache.held(at(2)), kept(&mut known)), (5, 5));
    assert_eq!((version(&mut known, dirs[3], 2), known.hits), (Some(1), 7));
    hear(&mut known, &stat(dir(D, 1), 1), 2);
    assert_eq!((known.cache.held(at(2)), known.cache.held(at(52))), (5, 0));
}

/// The reply to an open of [`FILE`], with its bytes and a grant that is called back.
fn opened(version: u64) -> Stat {
    let attr = Attr { size: 3, ..file(version) };
    Stat { lease: Gift::Called, name_lease: Gift::None, ..stat(attr, version) }
}

/// It is heard.
fn open(known: &mut Known, change: &Change, stat: &Stat) {
    let of = (change.id, &change.scope);
    let lease = known.end(of, change.question, at(0), stat, at(1));
    known.cache.finish(change.question);
    known.keep_bytes(stat, lease, &Bytes::from_static(b"abc"), at(1));
}

fn call_back(known: &mut Known) {
    let recall = Recall { fid: FILE, bits: ATTRS, number: next_number() };
    known.cache.recall(recall, at(1));
}

#[test]
fn bytes_that_came_with_an_open_last_as_long_as_the_grant_with_them() {
    let mut known = Known::default();
    known.cache.leased(Span::secs(10), at(10_000));
    let has = |known: &mut Known, ms: u64| known.bytes_of(FILE, at(ms)).is_some();
    let change = begin(&mut known, Scope::open());
    open(&mut known, &change, &opened(1));
    assert_eq!((has(&mut known, 2), has(&mut known, 10_000)), (true, false));
    call_back(&mut known);
    assert!(!has(&mut known, 2));
    let question = known.cache.ask(at(1));
    known.told(question, at(1), &opened(4), at(1));
    known.cache.finish(question);
    assert!(!has(&mut known, 2), "they are those of another version");

    let change = begin(&mut known, Scope::open());
    let late = opened(5);
    call_back(&mut known);
    open(&mut known, &change, &late);
    assert!(!has(&mut known, 2), "it was called back before it was heard");

    let change = begin(&mut known, Scope::open());
    open(&mut known, &change, &opened(6));
    assert!(has(&mut known, 2));
    let change = begin(&mut known, Scope::attrs(FILE));
    assert!(!has(&mut known, 2), "this client may cut it");
    end(&mut known, &change, &Stat { lease: Gift::None, ..stat(file(7), 7) });
    assert!(!has(&mut known, 2));
}

#[test]
fn bytes_that_came_with_an_open_do_not_outlive_a_restart_of_the_mdt() {
    let mut known = Known::default();
    known.cache.leased(Span::secs(10), at(10_000));
    let change = begin(&mut known, Scope::open());
    open(&mut known, &change, &opened(1));
    assert!(known.bytes_of(FILE, at(2)).is_some());
    assert!(known.restart(Transno(1), at(2)).is_empty(), "nothing is lost");
    known.cache.recovered(Transno::NONE);
    assert!(known.attributes(FILE, at(3)).is_some(), "the grant lives on");
    assert!(known.bytes_of(FILE, at(3)).is_none(), "who wrote them may have died");
}

#[test]
fn bytes_without_a_grant_or_of_another_length_are_not_kept() {
    let longer = Stat { attr: Attr { size: 4, ..file(1) }, ..opened(1) };
    let [timed, none] = [LEASED, Gift::None].map(|lease| Stat { lease, ..opened(1) });
    for stat in [longer, timed, none] {
        let mut known = Known::default();
        known.cache.leased(Span::secs(10), at(10_000));
        let change = begin(&mut known, Scope::open());
        open(&mut known, &change, &stat);
        assert_eq!(known.on_open.stats().bytes, 0);
    }
}

#[test]
fn data_may_be_kept_until_this_client_opens_it_for_writing_or_cuts_it() {
    let mut known = Known::default();
    known.cache.leased(Span::secs(10), at(10_000));
    let keeps = |known: &mut Known| known.cached_since(FILE, at(2)).is_some();
    let cached = |version: u64| Stat { is_cached: true, ..opened(version) };
    let give = |known: &mut Known, version: u64| {
        let change = begin(known, Scope::open());
        open(known, &change, &cached(version));
        keeps(known)
    };
    assert!(give(&mut known, 1));
    let scopes: [fn() -> Scope; 3] = [
        || Scope::open_to_change(FILE),
        || Scope::entry(D, b"f").or_changed(),
        || Scope::shape(FILE),
    ];
    for (version, scope) in (1..).map(|round| 2 * round).zip(scopes) {
        let change = begin(&mut known, scope());
        end(&mut known, &change, &Stat { lease: Gift::None, ..stat(file(version), version) });
        assert!(!keeps(&mut known));
        let old = begin(&mut known, Scope::open());
        open(&mut known, &old, &cached(version - 1));
        assert!(!keeps(&mut known), "an answer of before the change");
        assert!(give(&mut known, version + 1));
    }
    let change = begin(&mut known, Scope::attrs(FILE));
    end(&mut known, &change, &stat(file(20), 20));
    assert!(keeps(&mut known), "its mode is no data");
}

/// A client with its directory [`D`] known.
fn grants(env: &Env) -> Rc<Grants> {
    of_first(&AllGrants::new(env, Bugs::default(), &Rc::default()))
}

fn of_first(all: &AllGrants) -> Rc<Grants> {
    let grants = all.of(D);
    grants.asking().told(&stat(dir(D, 1), 1));
    assert!(grants.believed(D).is_some());
    grants
}

fn in_time(test: impl FnOnce(&Env)) {
    let sim = Sim::new(1, SimConfig::default());
    test(&sim.node("client", types::Nid::tcp(std::net::Ipv4Addr::LOCALHOST)).env());
}

/// A kernel that drops data: of which MDTs.
#[derive(Default)]
struct Keeper(RefCell<Vec<Option<u32>>>);

impl Kernel for Keeper {
    fn forget(&self, _: Fid, _: bool) -> Option<LocalFuture<'static, ()>> {
        None
    }

    fn drop_all_pages(&self, mdt: Option<u32>) {
        self.0.borrow_mut().push(mdt);
    }

    fn forget_all(&self) -> Option<LocalFuture<'static, ()>> {
        None
    }
}

#[test]
fn data_of_other_mdts_is_kept_when_one_restarts() {
    in_time(|env| {
        let all = AllGrants::new(env, Bugs::default(), &Rc::default());
        let keeper = Rc::new(Keeper::default());
        all.serve(keeper.clone());
        let keeps = |mdt: u32| all.at(mdt).known().cached_since(FILE, env.now()).is_some();
        for mdt in 0..2 {
            let grants = all.at(mdt);
            grants.known.borrow_mut().cache.leased(Span::secs(10), env.now() + Span::secs(10));
            let lease = Gift::Called;
            grants.asking().told(&Stat { is_cached: true, lease, ..stat(file(1), 1) });
        }
        assert!(keeps(0) && keeps(1));
        assert!(all.at(1).forget().is_none());
        assert!(keeps(0) && !keeps(1));
        assert_eq!(*keeper.0.borrow(), [Some(1)]);
    });
}

#[test]
fn a_change_that_nobody_waits_for_leaves_nothing_known_until_its_fate_is_known() {
    in_time(|env| {
        let all = AllGrants::new(env, Bugs::default(), &Rc::default());
        let grants = of_first(&all);
        let change = grants.changing(Scope::entry(D, b"n"));
        let (hold, asked) = (change.hold(), grants.asking());
        let before = asked.told(&stat(dir(D, 1), 1));
        assert!(all.may_be_told(before));
        let asked = grants.asking();
        drop(change);
        let late = asked.told(&stat(dir(D, 1), 1));
        assert_eq!((late.attrs, late.name), (NEVER, NEVER));
        let lease = grants.asking().told(&stat(dir(D, 1), 1));
        assert!(lease.attrs > env.now() && grants.believed(D).is_none(), "it may still happen");
        for lease in [before, lease] {
            assert!(!all.may_be_told(lease), "the kernel does not hear of it");
        }
        let asked = grants.asking();
        drop(hold);
        assert!(!all.may_be_told(lease), "it may have happened since");
        let late = asked.told(&stat(dir(D, 1), 1));
        assert_eq!((late.attrs, late.name), (NEVER, NEVER));
        let known = grants.asking().told(&stat(dir(D, 2), 2));
        assert!(grants.believed(D).is_some() && all.may_be_told(known));
    });
}

#[test]
fn a_refused_change_leaves_everything_as_it_was() {
    in_time(|env| {
        let grants = grants(env);
        let change = grants.changing(Scope::entry(D, b"n"));
        let asked = grants.asking();
        assert!(grants.believed(D).is_none());
        change.failed(&Error::local(types::Errno::EEXIST, "test"));
        assert!(grants.believed(D).is_some());
        assert!(asked.told(&stat(dir(D, 1), 1)).attrs > env.now());
    });
}

/// An answer grants the directory until it is called back.
fn hear_dir(known: &mut Known, version: u64) {
    let question = known.cache.ask(at(0));
    let told = stat(dir(D, version), version);
    let told = Stat { lease: Gift::Called, name_lease: Gift::None, ..told };
    known.told(question, at(0), &told, at(0));
    known.cache.finish(question);
}

/// A client with UPDATE of [`D`].
fn holding() -> Known {
    let mut known = Known::default();
    known.cache.leased(Span::secs(10), at(10_000));
    hear_dir(&mut known, 1);
    known
}

fn listed_file(cookie: u64) -> Fid {
    Fid { oid: 100 + cookie as u32, ..D }
}

/// A page of [`D`]: each file is named like its cookie.
fn page(cookies: &[u64], at_end: bool) -> DirPage {
    let entry = |cookie: &u64| Dirent {
        cookie: *cookie,
        attr: Attr { mode: S_IFREG, ..Attr::default() }.with_fid(listed_file(*cookie)),
        has_attr: true,
        leased: true,
        name: cookie.to_string().into_bytes(),
    };
    DirPage { entries: cookies.iter().map(entry).collect(), at_end, parent: D }
}

/// A page behind `after` is asked for, and comes with a grant of each entry.
fn read(known: &mut Known, after: u64, cookies: &[u64], at_end: bool) {
    let reading = known.reading(D, after, at(1));
    let (question, mut page) = (known.cache.ask(at(1)), page(cookies, at_end));
    known.listed(question, &mut page.entries, Gift::Called, next_number(), Transno(9), at(1));
    for entry in &page.entries {
        known.stands_for((D, &entry.name), entry.attr.fid());
    }
    known.cache.finish(question);
    if let Some(reading) = reading {
        known.read(reading, &page, at(1));
    }
}

/// The cookies of the page behind `after`, where it is known.
fn known_page(known: &mut Known, after: u64, bytes: usize) -> Option<Vec<u64>> {
    let (page, lease) = known.page(D, (after, bytes), &|_| false, at(2))?;
    assert!(page.entries.iter().all(|entry| entry.leased && entry.has_attr));
    assert_eq!((lease.attrs, lease.name), (at(9_000), at(9_000)), "as long as the lease");
    Some(page.entries.iter().map(|entry| entry.cookie).collect())
}

#[test]
fn a_directory_is_read_again_from_memory_until_a_name_in_it_may_change() {
    let mut known = holding();
    read(&mut known, 0, &[1, 2], false);
    assert_eq!(known_page(&mut known, 0, 4_096), None, "more may follow");
    assert_eq!(known_page(&mut known, 0, 1), Some(vec![1]), "a full page is known");
    read(&mut known, 2, &[3], true);
    let hits = known.hits;
    assert_eq!(known_page(&mut known, 0, 4_096), Some(vec![1, 2, 3]));
    assert_eq!(known_page(&mut known, 2, 4_096), Some(vec![3]));
    assert_eq!(known_page(&mut known, 3, 4_096), Some(vec![]), "the end");
    assert_eq!(known.hits, hits + 3);
    assert!(known.has_no_name((D, b"4"), at(2)) && !known.has_no_name((D, b"3"), at(2)));
    let change = begin(&mut known, Scope::entry(D, b"4"));
    read(&mut known, 0, &[1, 2, 3], true);
    assert_eq!(known_page(&mut known, 0, 4_096), None, "it may be of before the change");
    end(&mut known, &change, &made(dir(D, 9), 9));
    assert!(known.has_no_name((D, b"5"), at(2)) && !known.has_no_name((D, b"4"), at(2)));
    read(&mut known, 0, &[1, 2, 3, 4], true);
    assert_eq!(known_page(&mut known, 2, 4_096), Some(vec![3, 4]));
    known.cache.recall(Recall { fid: D, bits: Bits::UPDATE, number: next_number() }, at(2));
    assert_eq!(known_page(&mut known, 0, 4_096), None, "another client makes a name");
    assert!(!known.has_no_name((D, b"5"), at(2)));
}

#[test]
fn a_page_from_before_an_own_change_is_in_no_later_listing() {
    let mut known = holding();
    let old = known.reading(D, 0, at(1)).expect("UPDATE is held");
    let change = begin(&mut known, Scope::removal(D, b"2"));
    assert!(known.reading(D, 0, at(1)).is_none(), "it is under way");
    end(&mut known, &change, &made(dir(D, 9), 9));
    let new = known.reading(D, 0, at(1)).expect("it is over");
    known.read(old, &page(&[1, 2], true), at(1));
    assert!(known.reading(D, 0, at(1)).is_some(), "the new listing is not whole");
    known.read(new, &page(&[1], true), at(1));
    assert!(known.reading(D, 0, at(1)).is_none(), "it is");
    assert!(known.has_no_name((D, b"2"), at(1)));
}

#[test]
fn a_listing_has_no_gaps_and_its_own_order() {
    let mut known = holding();
    read(&mut known, 0, &[1, 2], false);
    read(&mut known, 5, &[6], true);
    read(&mut known, 1, &[2], false);
    read(&mut known, 2, &[3], false);
    assert_eq!(known_page(&mut known, 0, 400), Some(vec![1, 2]), "whole pages of what is known");
    read(&mut known, 3, &[5, 4], true);
    assert_eq!(known_page(&mut known, 0, 400), None, "no MDT sends that");
}

#[test]
fn a_page_is_of_a_listing_that_says_the_same_now() {
    let mut known = holding();
    let is_of = |known: &Known, after: u64, cookies: &[u64], at_end: bool| {
        known.has_listed(D, after, &page(cookies, at_end), &|cookie: u64| cookie, at(2))
    };
    assert_eq!((known.listed_since(D, at(2)), is_of(&known, 0, &[], false)), (None, None));
    read(&mut known, 0, &[1, 2], false);
    let first = known.listed_since(D, at(2));
    assert!(first.is_some() && first == is_of(&known, 0, &[1, 2], false));
    assert_eq!(is_of(&known, 0, &[1, 3], false), None, "another name");
    assert_eq!(is_of(&known, 2, &[], true), None, "more may follow");
    read(&mut known, 2, &[3], true);
    let parts = [is_of(&known, 0, &[1], false), is_of(&known, 1, &[2, 3], true)];
    assert_eq!((parts, is_of(&known, 3, &[], true)), ([first; 2], first));
    assert_eq!(is_of(&known, 0, &[1, 2], true), None, "a name is missing");
    let moved = DirPage { parent: OTHER, ..page(&[1], false) };
    assert_eq!(known.has_listed(D, 0, &moved, &|cookie: u64| cookie, at(2)), None);
    let shown = |cookie: u64| cookie + 7;
    assert_eq!(known.has_listed(D, 0, &page(&[1], false), &shown, at(2)), None);
    let change = begin(&mut known, Scope::entry(D, b"4"));
    assert_eq!((known.listed_since(D, at(2)), is_of(&known, 0, &[1], false)), (None, None));
    end(&mut known, &change, &made(dir(D, 9), 9));
    read(&mut known, 0, &[1, 2, 3, 4], true);
    assert!(known.listed_since(D, at(2)) > first, "another listing has another number");
    assert_eq!(known.listed_since(D, at(9_500)), None, "the lease is over");
}

#[test]
fn a_page_is_asked_for_if_many_of_its_attributes_are_not_known() {
    let mut known = holding();
    let cookies: Vec<u64> = (1..=16).collect();
    read(&mut known, 0, &cookies, true);
    let call_back = |known: &mut Known, cookie| {
        let (fid, number) = (listed_file(cookie), next_number());
        known.cache.recall(Recall { fid, bits: ATTRS, number }, at(2));
    };
    let bare = |known: &mut Known| {
        let (page, _) = known.page(D, (0, 1 << 16), &|fid| fid == listed_file(9), at(2))?;
        let bare = page.entries.iter().filter(|entry| !entry.leased);
        Some(bare.map(|entry| entry.cookie).collect::<Vec<_>>())
    };
    call_back(&mut known, 1);
    call_back(&mut known, 2);
    assert_eq!(bare(&mut known), Some(vec![1, 2, 9]), "one of them is open here");
    call_back(&mut known, 3);
    assert_eq!(bare(&mut known), None);
}
