//! Fuzz target: typed replies of hostile servers. Any bytes decode to a value or an error.

use bytes::Bytes;
use layout::Layout;
use types::{Fid, Timespec};
use wire::body::OstAttr;
use wire::{Opcode, Reply, Request, decode_body, dirent};

use crate::inode::Stat;
use crate::namespace::split_nul;
use crate::size;

const TIME: std::time::Duration = std::time::Duration::from_secs(1);

/// A layout of two stripes, and bytes of the input as everything else. One input in two keeps the
/// layout as it is.
fn reply(input: &[u8]) -> Reply {
    let plain = Layout::plain(Fid::new(0x400, 1), 1 << 16, 2);
    let mut record = Layout { generation: 1, ..plain }.encode();
    if let Some([how, at, with, ..]) = input.first_chunk::<3>()
        && how % 2 == 1
    {
        let at = usize::from(*at) % record.len();
        record[at] ^= with;
    }
    let third = input.len() / 3;
    let buf = |part: &[u8]| Bytes::copy_from_slice(part);
    let bufs = vec![buf(&input[..third]), record.into(), buf(&input[third..2 * third])];
    Reply::ok(&Request::new(Opcode::MdtCreate, Vec::new()).header, bufs)
}

#[test]
fn replies() {
    let inputs = bolero::produce::<Vec<u8>>().with().len(0..=700);
    bolero::check!().with_iterations(50_000).with_test_time(TIME).with_generator(inputs).for_each(
        |input: &Vec<u8>| {
            if let Ok(mut stat) = Stat::of(&reply(input), "fuzz") {
                let objects: Vec<OstAttr> =
                    input.chunks(size_of::<OstAttr>()).take(2).map(decode_body).collect();
                if let Some(layout) = &stat.layout {
                    let set = Timespec::new(stat.mtime_set.sec, stat.mtime_set.nsec);
                    let found = size::resolve(&mut stat.attr, set, stat.stripes, layout, &objects);
                    assert_eq!(found.lost & found.there, 0);
                }
            }
            for entry in dirent::decode(input).unwrap_or_default() {
                assert!(!entry.name.is_empty());
            }
            assert!(split_nul(input).all(|text| !text.contains(&0)));
        },
    );
}
