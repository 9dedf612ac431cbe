//! Tests of directories' striping: the shards that Lustre chooses, inheritance, refusals and bytes.

use proptest::prelude::*;

use super::*;

#[test]
fn names_lead_to_the_shards_that_lustre_chooses() {
    let of = |name: &[u8]| {
        [
            hash(name, HASH_FNV_1A_64, 4),
            hash(name, HASH_ALL_CHAR, 4),
            hash(name, HASH_CRUSH, 4),
            hash(name, HASH_CRUSH, 8),
        ]
    };
    assert_eq!(fnv_1a_64(b"foo"), 0xdcb2_7518_fed9_d577);
    assert_eq!(of(b"a"), [0, 1, 2, 6]);
    assert_eq!(of(b"foo"), [3, 0, 1, 7]);
    assert_eq!(of(b"file.mdtest.0.0"), [2, 3, 1, 4]);
    assert_eq!(of(b"file.mdtest.0.1"), [1, 0, 1, 1]);
    assert_eq!(hash(b"foo", HASH_CRUSH2, 8), 7);
}

/// Computed apart from this crate, after `lmv_hash_crush` in the public
/// `lustre/include/lustre_lmv.h`.
#[test]
fn crush2_chooses_the_shards_that_lustre_chooses() {
    for (name, over) in [
        ("Makefile", [2, 4, 6]),
        (".Makefile.aB3xYz", [2, 4, 6]),
        ("Makefile.aB3xYz12", [2, 4, 6]),
        ("data", [0, 0, 6]),
        ("data.ORIG", [0, 0, 6]),
        ("results.csv", [1, 1, 1]),
        ("results.csv~", [1, 1, 1]),
        ("checkpoint.000017", [0, 0, 0]),
        ("file.mdtest.0.0", [1, 4, 4]),
    ] {
        assert_eq!(
            [4, 5, 8].map(|count| hash(name.as_bytes(), HASH_CRUSH2, count)),
            over,
            "{name}"
        );
    }
}

#[test]
fn another_shard_moves_few_names_and_only_to_itself() {
    let names: Vec<_> = (0..4_000).map(|number| format!("file.mdtest.0.{number}")).collect();
    let mut moved = 0;
    for name in &names {
        let of = |count| hash(name.as_bytes(), HASH_CRUSH2, count);
        let (before, after) = (of(4), of(5));
        assert!(before == after || after == 4);
        moved += usize::from(before != after);
    }
    assert!((600..1_000).contains(&moved), "{moved}");
    let first = names.iter().filter(|name| hash(name.as_bytes(), HASH_CRUSH2, 4) == 0).count();
    assert!((800..1_200).contains(&first), "{first}");
}

#[test]
fn defaults_end_after_their_levels() {
    let asked = Asked { max_inherit: 3, max_inherit_rr: 2, ..Asked::default() };
    let second = asked.handed_on().expect("three levels");
    assert_eq!((second.max_inherit, second.max_inherit_rr), (2, 1));
    let third = second.handed_on().expect("two levels");
    assert_eq!((third.max_inherit, third.max_inherit_rr), (1, 0));
    assert_eq!(third.handed_on(), None);
    let endless = Asked { max_inherit_rr: UNLIMITED, ..Asked::default() };
    assert_eq!(endless.handed_on(), Some(endless));
}

#[test]
fn levels_of_inheritance_are_as_in_lustre() {
    let byte = |max_inherit| Asked { max_inherit, ..Asked::default() }.encode()[20];
    assert_eq!((byte(UNLIMITED), byte(0), byte(1), byte(250)), (0, 255, 1, 250));
}

#[test]
fn lists_must_fit() {
    let of = |count, mdts: &[u32]| Asked { count, mdts: mdts.to_vec(), ..Asked::default() };
    assert_eq!(of(2, &[3, 1]).check(), Ok(()));
    assert_eq!(of(3, &[3, 1]).check(), Err(DirError::List { count: 3, mdts: 2 }));
    assert_eq!(of(2, &[3, 3]).check(), Err(DirError::Twice(3)));
    let shared = Asked { hash: HASH_CRUSH2 | HASH_OVERSTRIPED, ..of(2, &[3, 3]) };
    assert_eq!(shared.check(), Ok(()));
    assert_eq!(of(COUNT_ALL, &[]).check(), Ok(()));
    assert_eq!(of(257, &[]).check(), Err(DirError::Count(257)));
    let each = |count: i32, hash| Asked { hash, ..of(count.cast_unsigned(), &[]) };
    let over = HASH_CRUSH2 | HASH_OVERSTRIPED;
    assert_eq!((each(-5, over).check(), each(-5, over).on_each()), (Ok(()), Some(5)));
    assert_eq!(Asked::decode(&each(-5, over).encode()), Ok(each(-5, over)));
    assert_eq!(each(-6, over).check(), Err(DirError::Count(-6)));
    assert_eq!(each(-2, HASH_CRUSH2).check(), Err(DirError::Count(-2)));
    let bad = Asked { index: -2, ..Asked::default() };
    assert_eq!(bad.check(), Err(DirError::Mdt(-2)));
}

#[test]
fn flags_that_only_an_mdt_sets_cannot_be_asked_for() {
    let of = |flag| Asked { count: 2, hash: HASH_CRUSH2 | flag, ..Asked::default() };
    for flag in [HASH_MOVING, HASH_SPLIT] {
        assert_eq!(of(flag).check(), Err(DirError::Hash(HASH_CRUSH2 | flag)));
        assert_eq!(Asked::decode(&of(flag).encode()), Err(DirError::Hash(HASH_CRUSH2 | flag)));
    }
    assert_eq!(of(HASH_FIXED | HASH_OVERSTRIPED).check(), Ok(()));
}

#[test]
fn a_striping_whose_names_do_not_move_says_so_whatever_its_hash() {
    let (hash, shards) = (HASH_CRUSH2 | HASH_MOVING, vec![Fid::new(0x2_0000_0400, 1)]);
    let stripes = Stripes { hash, version: 1, master: 0, shards, leaving: None };
    let stored = Stripes { hash: HASH_CRUSH2, ..stripes.clone() };
    assert_eq!(Stripes::decode(&stripes.encode()), Ok(stored));
}

#[test]
fn names_of_hashes() {
    for kind in [HASH_ALL_CHAR, HASH_FNV_1A_64, HASH_CRUSH, HASH_CRUSH2] {
        assert_eq!(hash_kind(hash_name(kind | HASH_FIXED).expect("a name")), Some(kind));
    }
    assert_eq!((hash_name(0), hash_name(5), hash_kind("md5")), (None, None, None));
}

fn swapped(bytes: &[u8], numbers: std::ops::Range<usize>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[numbers].chunks_exact_mut(4).for_each(<[u8]>::reverse);
    bytes
}

#[test]
fn bytes_in_the_other_order_are_understood() {
    let asked = Asked { count: 2, mdts: vec![1, 2], index: 1, ..Asked::default() };
    let bytes = asked.encode();
    let other = [swapped(&bytes[..20], 0..20), swapped(&bytes[20..], 28..76)].concat();
    assert_eq!(Asked::decode(&other), Ok(asked));
}

fn some_asked() -> impl Strategy<Value = Asked> {
    let mdts = prop::collection::btree_set(0..1_000u32, 0..9).prop_map(Vec::from_iter);
    let numbers = (0..=256u32, -1..100i32, 1..=4u32, any::<u8>(), any::<u8>());
    (numbers, mdts).prop_map(|((count, index, hash, max_inherit, max_inherit_rr), mdts)| {
        let count = if mdts.is_empty() { count } else { mdts.len() as u32 };
        Asked { count, index, hash, max_inherit, max_inherit_rr, mdts }
    })
}

fn some_stripes() -> impl Strategy<Value = Stripes> {
    let shard = (0x2_0000_0400..0x2_4000_0000u64, any::<u32>(), any::<u32>());
    let shard = shard.prop_map(|(seq, oid, ver)| Fid { seq, oid, ver });
    let shards = prop::collection::vec(shard, 1..=SHARDS_MAX);
    (1..=4u32, any::<u32>(), 0..100u32, shards).prop_map(|(hash, version, master, shards)| {
        Stripes { hash, version, master, shards, leaving: None }
    })
}

/// Names move between shards that are all different.
fn some_moving() -> impl Strategy<Value = Stripes> {
    let fid = |number: u32| Fid::new(0x2_0000_0400 + u64::from(number % 5), number);
    (1..=4u32, 1..=4u32, 1..40u32, 1..40u32).prop_map(move |(hash, before, new, old)| Stripes {
        hash,
        version: 7,
        master: 0,
        shards: (0..new).map(fid).collect(),
        leaving: Some(Leaving { hash: before, shards: (new..new + old).map(fid).collect() }),
    })
}

#[test]
fn a_directory_becomes_striped_and_plain_again() {
    let dir = Fid::new(0x2_0000_0400, 1);
    let shards: Vec<Fid> = (0..4).map(|mdt| Fid::new(0x2_0000_0400 + (mdt << 16), 9)).collect();
    let leaving = Some(Leaving { hash: HASH_CRUSH2, shards: vec![dir] });
    let stripes = Stripes { hash: HASH_CRUSH2, version: 1, master: 0, shards, leaving };
    let home = stripes.home(b"name");
    assert_eq!(stripes.standing(home, b"name"), Standing::Home(Some(dir)));
    assert_eq!(stripes.standing(dir, b"name"), Standing::Astray, "names are made there no more");
    assert!(stripes.is_left(dir) && !stripes.is_left(home));
    let done = stripes.moved(dir).expect("it is striped");
    assert_eq!((done.version, done.leaving.clone()), (2, None));
    assert_eq!(done.standing(home, b"name"), Standing::Home(None));
    let leaving = Some(Leaving { hash: done.hash, shards: done.shards.clone() });
    let merge = Stripes { shards: vec![dir], leaving, ..done };
    assert_eq!(merge.standing(dir, b"name"), Standing::Home(Some(home)));
    assert_eq!(merge.moved(dir), None, "it is plain");
    let twice = Stripes { shards: vec![dir, home], ..merge };
    assert_eq!(twice.check(), Err(DirError::Both));
}

proptest! {
    #[test]
    fn an_asked_striping_goes_there_and_back(asked in some_asked()) {
        prop_assert_eq!(asked.check(), Ok(()));
        let bytes = asked.encode();
        prop_assert_eq!(Asked::decode(&bytes), Ok(asked));
        for len in 0..bytes.len() {
            prop_assert!(Asked::decode(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn shards_go_there_and_back(stripes in some_stripes(), name in any::<Vec<u8>>()) {
        let bytes = stripes.encode();
        prop_assert_eq!(Stripes::decode(&bytes), Ok(stripes.clone()));
        prop_assert_eq!(Stripes::decode(&swapped_fids(&bytes)), Ok(stripes.clone()));
        prop_assert!(Stripes::decode(&bytes[..bytes.len() - 1]).is_err());
        prop_assert!(stripes.shard_of(&name) < stripes.shards.len());
    }

    #[test]
    fn moving_shards_go_there_and_back(stripes in some_moving()) {
        prop_assert_eq!(stripes.check(), Ok(()));
        prop_assert_eq!(Stripes::decode(&stripes.encode()), Ok(stripes.clone()));
        prop_assert_eq!(Stripes::decode(&swapped_fids(&stripes.encode())), Ok(stripes));
    }

    /// A name belongs to one place and leaves one other place, and both are listed, the one that it
    /// leaves first.
    #[test]
    fn a_name_has_one_home_and_leaves_one_place(
        stripes in some_moving(),
        name in any::<Vec<u8>>(),
    ) {
        let places: Vec<Fid> = stripes.places().collect();
        let homes: Vec<usize> = (0..places.len())
            .filter(|at| stripes.standing(places[*at], &name) != Standing::Astray)
            .collect();
        prop_assert_eq!(homes.len(), 1);
        let old = stripes.old_home(&name).expect("names move");
        prop_assert_eq!(stripes.standing(places[homes[0]], &name), Standing::Home(Some(old)));
        let left = places.iter().position(|place| *place == old);
        prop_assert!(left.is_some_and(|left| left < homes[0]));
        let done = stripes.moved(Fid::ROOT).expect("it has shards");
        prop_assert_eq!(done.home(&name), stripes.home(&name));
        prop_assert_eq!(done.old_home(&name), None);
    }

    #[test]
    fn no_bytes_make_it_panic(
        magic in prop::sample::select(vec![MAGIC_STRIPES, MAGIC_ASKED, MAGIC_LISTED, 0]),
        count in prop_oneof![0..300u32, any::<u32>()],
        rest in prop::collection::vec(any::<u8>(), 0..600),
        swap in any::<bool>(),
    ) {
        let mut bytes = [magic.to_le_bytes(), count.to_le_bytes()].concat();
        bytes.extend(rest);
        if swap {
            bytes = swapped(&bytes, 0..8);
        }
        if let Ok(asked) = Asked::decode(&bytes) {
            prop_assert_eq!(Asked::decode(&asked.encode()), Ok(asked));
        }
        if let Ok(stripes) = Stripes::decode(&bytes) {
            prop_assert_eq!(Stripes::decode(&stripes.encode()), Ok(stripes));
        }
    }

    #[test]
    fn every_name_has_a_shard(name in any::<Vec<u8>>(), kind in any::<u32>(), count in 0..300usize) {
        prop_assert!(hash(&name, kind, count) < count.clamp(1, SHARDS_MAX));
    }
}

/// The same striping in the other byte order.
fn swapped_fids(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = swapped(bytes, 0..STRIPES_BYTES);
    for fid in bytes[STRIPES_BYTES..].chunks_exact_mut(SHARD_BYTES) {
        fid[..8].reverse();
        fid[8..12].reverse();
        fid[12..].reverse();
    }
    bytes
}
