//! How long changes wait after a restart while clients state their grants, and what is taken of
//! these.

use std::time::Duration;

use ldlm::grants::{Bits, HolderId, Mdt as Table, MdtConfig, Number, Stated};
use types::{FID_SEQUENCES_PER_MDT_BITS, Fid, Instant, Span};
use wire::Opcode;
use wire::body::{GrantBits, GrantWord, GrantsFlags, UnlinkReq};
use wire::grants::{self, VECTOR_MAX};

use super::rig::Rig;
use crate::op::grants::judged;

const SESSIONS: u64 = 25;

/// As many grants in all, in so many tables of few.
const TABLES: usize = 256;

/// By how much many grants in one table may take longer than as many in small ones. Caches of the
/// processor hold a small table: six times, where others use the caches, too. Work that grows with
/// the square of the grants would take 256 times as long.
const SLACK: u32 = 32;

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

#[test]
fn what_clients_state_is_judged_alike_by_one_scan_and_by_a_search_for_each() {
    let mut rig = Rig::new();
    let files: Vec<Fid> = (0..1_000)
        .map(|number| {
            let name = format!("file{number}");
            rig.create(Fid::ROOT, &name, 0o644, None).expect("room").attr.fid()
        })
        .collect();
    let (gone, damaged) = (files[300], files[600]);
    let unlink = UnlinkReq { parent: Fid::ROOT.into(), ..UnlinkReq::default() };
    rig.call(Opcode::MdtUnlink, &unlink, &[b"file300"]).expect("it is there");
    let last = files[files.len() - 1];
    let never_made = (1..=300).map(|more| Fid { oid: last.oid + more, ..last });
    let elsewhere = Fid { seq: last.seq + (1 << FID_SEQUENCES_PER_MDT_BITS), ..last };
    let words = [Fid::ROOT].into_iter().chain(files.iter().copied()).chain(never_made);
    let words: Vec<GrantWord> = words
        .chain([elsewhere])
        .map(|fid| GrantWord { fid: fid.into(), ..GrantWord::default() })
        .collect();
    let judge = |words: &[GrantWord]| judged(&rig.engine, words);
    let check = |lost: &[Fid]| {
        let together = judge(&words);
        let falling: Vec<GrantWord> = words.iter().rev().copied().collect();
        assert!(together.iter().rev().eq(&judge(&falling)), "those have no scan");
        let others = [Fid::ROOT, elsewhere];
        for (word, bits) in words.iter().zip(together) {
            let fid = Fid::from(word.fid);
            let was_made = others.contains(&fid) || files.contains(&fid);
            assert_eq!(!bits.is_empty(), was_made && !lost.contains(&fid), "{fid}");
        }
    };
    check(&[gone]);
    *rig.store.damaged.borrow_mut() = Some((osd::Table::Inodes, damaged.to_key().to_vec()));
    check(&[gone, damaged]);
}
