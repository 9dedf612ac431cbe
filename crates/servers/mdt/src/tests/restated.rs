//! How long changes wait after a restart while clients state their grants.

use ldlm::grants::{Bits, HolderId, Mdt as Table, MdtConfig, Number, Stated};
use types::{Fid, Instant, Span};
use wire::body::{GrantBits, GrantWord, GrantsFlags};
use wire::grants::{self, VECTOR_MAX};

use super::rig::Rig;
use crate::op::grants::judged;

const SESSIONS: u64 = 25;

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

#[test]
#[expect(clippy::disallowed_methods, reason = "it measures this machine and decides nothing")]
fn a_hundred_thousand_grants_are_judged_and_taken_within_half_a_second() {
    let mut rig = Rig::new();
    rig.osts.borrow_mut().truncate(1);
    let files = (0..VECTOR_MAX).map(|number| {
        let made = rig.create(Fid::ROOT, &format!("file{number}"), 0o644, None).expect("room");
        let bits = GrantBits::LOOKUP | GrantBits::UPDATE | GrantBits::PERM;
        GrantWord { fid: made.attr.fid().into(), number: 1, bits, ..GrantWord::default() }
    });
    let words: Vec<GrantWord> = files.collect();
    rig.commit();
    let bufs = grants::encode(&words, GrantsFlags::LAST);
    let at = Instant(1_000_000_000);
    let rounds = (0..3).map(|_| {
        let mut table = Table::new(MdtConfig::default(), 2, at);
        (1..=SESSIONS).for_each(|session| table.expect(HolderId(session), Span::ZERO, at));
        let begun = std::time::Instant::now();
        for session in 1..=SESSIONS {
            take(&rig, &mut table, HolderId(session), &bufs, at + Span::millis(1));
        }
        let took = begun.elapsed();
        assert!(table.is_recovered() && table.count() > 100_000);
        took
    });
    // other tests use the same cores
    let took = rounds.min().expect("there are some");
    println!("{took:?} for a hundred thousand grants");
    assert!(took < std::time::Duration::from_millis(500), "{took:?}");
}
