//! For fuzz targets: valid records, and a check of any bytes against every decoder of records.

use layout::StripeSet;
use types::{Acl, Fid, Timespec};
use wire::Attr;

use crate::burnt::{Burnt, Range};
use crate::record::{DestroyRecord, DirentRecord, INODE_HAS_ACL, Inode};

/// A valid record of each sort.
#[must_use]
pub fn records() -> Vec<Vec<u8>> {
    let inode = |symlink: &[u8]| Inode {
        attr: Attr { mode: 0o100_644, nlink: 1, ..Attr::default() }.with_fid(Fid::new(7, 8)),
        flags: INODE_HAS_ACL,
        parent: Fid::ROOT,
        mtime_set: Timespec::new(-1, 5),
        stripes: if symlink.is_empty() {
            [0, 2, 63, 64, 130].into_iter().collect()
        } else {
            StripeSet::from(1u64 << 63 | 5)
        },
        depth: 3,
        symlink: symlink.to_vec(),
    };
    let dirent =
        DirentRecord { fid: Fid::new(1, 2), file_type: 0o100_000, name: b"a name".to_vec() };
    let destroy = DestroyRecord { base: Fid::new(3, 4), osts: vec![5, 0, 9] };
    let range = |first, end| Range { seq: 6, first, end };
    let acl = [(0x01, 7), (0x04, 5), (0x20, 0)]
        .iter()
        .flat_map(|(tag, perm)| [*tag, 0, *perm, 0, 0xff, 0xff, 0xff, 0xff]);
    vec![
        inode(b"").encode(),
        inode(b"over/there").encode(),
        dirent.encode(),
        destroy.encode(),
        Burnt(vec![range(1, 9), range(20, 30)]).encode(),
        [2, 0, 0, 0].into_iter().chain(acl).collect(),
    ]
}

/// Whether a decoder takes `bytes`. What it takes encodes to bytes that mean the same.
#[must_use]
pub fn record(bytes: &[u8]) -> bool {
    let inode = Inode::decode(bytes);
    if let Some(inode) = &inode {
        assert_eq!(Inode::decode(&inode.encode()).as_ref(), Some(inode));
    }
    let dirent = DirentRecord::decode(bytes);
    if let Some(dirent) = &dirent {
        assert_eq!(DirentRecord::decode(&dirent.encode()).as_ref(), Some(dirent));
    }
    let destroy = DestroyRecord::decode(bytes);
    if let Some(destroy) = &destroy {
        assert_eq!(DestroyRecord::decode(&destroy.encode()).as_ref(), Some(destroy));
    }
    let acl = Acl::decode(bytes);
    if let Ok(Some(acl)) = &acl {
        let again = Acl::decode(&acl.encode()).expect("our own encoding decodes");
        assert_eq!(again.as_ref().map(Acl::mode), Some(acl.mode()));
    }
    let burnt = Burnt::decode(bytes);
    if let Some(burnt) = &burnt {
        check_burnt(burnt);
    }
    inode.is_some() || dirent.is_some() || destroy.is_some() || acl.is_ok() || burnt.is_some()
}

/// Of the ids of burnt ranges, those that files hold stay and all others are swept.
fn check_burnt(burnt: &Burnt) {
    assert_eq!(Burnt::decode(&burnt.encode()).as_ref(), Some(burnt));
    let first = burnt.0.first().map(|range| (range.seq, range.first));
    let live = first.into_iter().collect();
    let gaps = burnt.without(&live);
    for gap in &gaps {
        let base = Fid::from(gap.base);
        assert!(gap.count > 0 && burnt.holds(base));
        assert_ne!(Some((base.seq, base.oid)), first);
    }
}
