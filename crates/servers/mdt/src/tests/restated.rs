//! How long changes wait after a restart while clients state their grants.

use std::time::Duration;

use ldlm::grants::{Bits, HolderId, Mdt as Table, MdtConfig, Number, Stated};
use types::{Fid, Instant, Span};
use wire::body::{GrantBits, GrantWord, GrantsFlags};
use wire::grants::{self, VECTOR_MAX};

use super::rig::Rig;
use crate::op::grants::judged;

const SESSIONS: u64 = 25;

/// As many grants in all, in so many tables of few.
const TABLES: usize = 16;

/// By how much many grants in one table may take longer than as many in small ones. Caches of the
/// processor hold a small table, and work that grows with the square of the grants would take 16
/// times as long.
const SLACK: u32 = 4;

/// One client's vector, as an MDT takes it: read, judged by the records of the files, and entered.
fn take(rig: &Rig, table: &mut Table, session: HolderId, bufs: &[bytes::Bytes], at: Instant) {
    let (words, _) = grants::decode::<GrantWord>(bufs).expect("it can be read");
    let credible = judged(&rig.engine, &words);
    let stated = |(word, credible): (&GrantWord, &Bits)| Stated {
        fid: word.fid.into(),
        bits: Bits::from_bits_truncate(word.bits.bits() as u8) & *credible,
        number: Number(word.number),
    };
    let stated: Vec<Stated> = words.iter().zip(&credible).map(stated).collect();
    table.restate(session, &stated, at).expect("a good vector");
    table.restated(session, at);
}

/// How long all clients take to state grants of these files to so many MDTs.
#[expect(clippy::disallowed_methods, reason = "it measures this machine and decides nothing")]
fn time_to_take(rig: &Rig, words: &[GrantWord], tables: usize) -> Duration {
    let bufs = grants::encode(words, GrantsFlags::LAST);
    let at = Instant(1_000_000_000);
    let one = |_| {
        let mut table = Table::new(MdtConfig::default(), 2, at);
        (1..=SESSIONS).for_each(|session| table.expect(HolderId(session), Span::ZERO, at));
        let begun = std::time::Instant::now();
        for session in 1..=SESSIONS {
            take(rig, &mut table, HolderId(session), &bufs, at + Span::millis(1));
        }
        let took = begun.elapsed();
        assert!(table.is_recovered());
        assert_eq!(table.count(), SESSIONS as usize * words.len());
        took
    };
    (0..tables).map(one).sum()
}

#[test]
fn a_hundred_thousand_grants_are_judged_and_taken_as_fast_as_few() {
    let mut rig = Rig::new();
    rig.osts.borrow_mut().truncate(1);
    let files = (0..VECTOR_MAX).map(|number| {
        let made = rig.create(Fid::ROOT, &format!("file{number}"), 0o644, None).expect("room");
        let bits = GrantBits::LOOKUP | GrantBits::UPDATE | GrantBits::PERM;
        GrantWord { fid: made.attr.fid().into(), number: 1, bits, ..GrantWord::default() }
    });
    let words: Vec<GrantWord> = files.collect();
    rig.commit();
    // other tests use the same cores
    let is_fast = (0..3).any(|_| {
        let few = time_to_take(&rig, &words[..VECTOR_MAX / TABLES], TABLES);
        let many = time_to_take(&rig, &words, 1);
        println!("{few:?} in small tables, {many:?} in one");
        many < few * SLACK
    });
    assert!(is_fast, "a grant takes longer among many");
}
