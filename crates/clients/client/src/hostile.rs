//! Fuzz target: typed replies of hostile servers. Any bytes decode to a value or an error.

use bytes::Bytes;
use layout::Layout;
use types::{Fid, Timespec, Transno};
use wire::body::{OstAttr, WireFid};
use wire::stats::{self, StatRecord};
use wire::{Opcode, Reply, Request, decode_body, dirent};

use crate::namespace::split_nul;
use crate::size;
use crate::stat::Stat;

const TIME: std::time::Duration = std::time::Duration::from_secs(1);

/// Their replies carry a directory, the files that were touched, or the bytes of a file.
const OPCODES: [Opcode; 3] = [Opcode::MdtCreate, Opcode::MdtRename, Opcode::MdtOpen];

/// A layout of two stripes. One input in two keeps it as it is.
fn record(input: &[u8]) -> Vec<u8> {
    let plain = Layout::plain(Fid::new(0x400, 1), 1 << 16, 2);
    let mut record = Layout { generation: 1, ..plain }.encode();
    if let Some([how, at, with, ..]) = input.first_chunk::<3>()
        && how % 2 == 1
    {
        let at = usize::from(*at) % record.len();
        record[at] ^= with;
    }
    record
}

/// A layout, and bytes of the input as everything else.
fn reply(input: &[u8]) -> Reply {
    let third = input.len() / 3;
    let buf = |part: &[u8]| Bytes::copy_from_slice(part);
    let bufs = vec![buf(&input[..third]), record(input).into(), buf(&input[third..2 * third])];
    let opcode = OPCODES[usize::from(input.last().copied().unwrap_or(0)) % OPCODES.len()];
    Reply::ok(&Request::new(opcode, Vec::new()).header, bufs)
}

/// The answer of a getattr of two files, with bytes replaced as the input says: place and new byte.
fn answers(input: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for layout in [record(input), Vec::new()] {
        stats::push(&mut bytes, &StatRecord { layout, ..StatRecord::default() });
    }
    for change in input.chunks_exact(3).take(6) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len();
        bytes[at] = change[2];
    }
    bytes
}

/// Takes the objects' word into the attributes.
fn resolve(mut stat: Stat, objects: &[OstAttr]) {
    if let Some(layout) = &stat.layout {
        let set = Timespec::new(stat.mtime_set.sec, stat.mtime_set.nsec);
        let found = size::resolve(&mut stat.attr, set, &stat.stripes, layout, objects);
        assert!(found.lost.common(&found.there).is_empty());
    }
}

/// Whether the attributes of one file, and those of both files of a list, are accepted.
fn accepts(input: &[u8]) -> [bool; 2] {
    let objects: Vec<OstAttr> =
        input.chunks(size_of::<OstAttr>()).take(2).map(decode_body).collect();
    let reply = reply(input);
    let one = Stat::of(&reply, "fuzz").ok();
    let records = stats::decode(&answers(input), 2).unwrap_or_default();
    assert!(records.len() <= 2);
    let told = |record: &StatRecord| {
        Stat::told(&record.rep, &record.layout, Transno::default(), "fuzz").ok()
    };
    let many: Vec<Stat> = records.iter().filter_map(told).collect();
    let accepted = [one.is_some(), many.len() == 2];
    if let Some(touched) = one.as_ref().and_then(|stat| stat.touched.as_ref()) {
        assert_eq!(touched.len(), reply.buf(2).len() / size_of::<WireFid>());
    }
    one.into_iter().chain(many).for_each(|stat| resolve(stat, &objects));
    for entry in dirent::decode(input).unwrap_or_default() {
        assert!(!entry.name.is_empty());
    }
    assert!(split_nul(input).all(|text| !text.contains(&0)));
    accepted
}

#[test]
fn replies() {
    for opcode in 0..OPCODES.len() as u8 {
        let seed = [&[0; 149][..], &[opcode]].concat();
        assert_eq!(accepts(&seed), [true; 2], "{:?}", OPCODES[usize::from(opcode)]);
    }
    let inputs = bolero::produce::<Vec<u8>>().with().len(0..=700);
    bolero::check!()
        .with_iterations(50_000)
        .with_test_time(TIME)
        .with_generator(inputs)
        .for_each(|input: &Vec<u8>| _ = accepts(input));
}
