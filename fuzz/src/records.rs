//! Records of targets as their stores hold them, and the superblock.

pub(crate) fn mdt() -> Vec<Vec<u8>> {
    mdt::fuzz::records()
}

pub(crate) fn ost() -> Vec<Vec<u8>> {
    ost::fuzz::records()
}

pub(crate) fn mgt() -> Vec<Vec<u8>> {
    mgt::fuzz::records()
}

/// Key and value in one.
pub(crate) fn clients() -> Vec<Vec<u8>> {
    let record = |name: &str, is_server, silent| {
        let (client, session) = (types::ClientId(7 << 100 | 5), 3 << 32 | 1);
        let (name, nid) = (name.into(), types::Nid::default());
        let silent_secs = 0;
        let record =
            service::ClientRecord { client, session, name, is_server, silent, silent_secs, nid };
        [record.key(), record.encode()].concat()
    };
    vec![
        record("node1:/mnt", false, false),
        record("testfs-MDT0000", true, false),
        record("", false, true),
    ]
}

pub(crate) fn client(input: &[u8]) -> bool {
    let Some((key, value)) = input.split_at_checked(16) else { return false };
    let Some(record) = service::ClientRecord::decode(key, value) else { return false };
    assert_eq!(record.key(), key);
    assert_eq!(service::ClientRecord::decode(key, &record.encode()), Some(record));
    true
}

pub(crate) fn superblocks() -> Vec<Vec<u8>> {
    let fsname = "testfs".parse().expect("a name");
    let mgs = vec!["127.0.0.2@tcp".parse().expect("a NID"); 2];
    let created = types::Timespec::new(1, 2);
    let superblock = |target, mgs| {
        osd_disk::superblock::Superblock::new(fsname, target, 5, mgs, created).encode()
    };
    vec![superblock(types::TargetId::ost(3), mgs), superblock(types::TargetId::mdt(0), Vec::new())]
}

pub(crate) fn superblock(input: &[u8]) -> bool {
    use osd_disk::superblock::Superblock;

    let mut sealed = input.to_vec();
    // a checksum that matches lets the mutations reach the fields behind it
    if let (Some(length), true) = (input.get(10..12), input.len() >= 16) {
        let length = usize::from(u16::from_le_bytes([length[0], length[1]])).min(sealed.len());
        sealed[12..16].fill(0);
        let crc = crc32c::crc32c(&sealed[..length]).to_le_bytes();
        sealed[12..16].copy_from_slice(&crc);
    }
    let mut accepted = false;
    for bytes in [input, &sealed] {
        if let Ok(superblock) = Superblock::decode(bytes) {
            assert_eq!(Superblock::decode(&superblock.encode()).as_ref(), Ok(&superblock));
            accepted = true;
        }
    }
    accepted
}

pub(crate) fn exports() -> Vec<Vec<u8>> {
    vec![include_bytes!("../../fixtures/export-v1.bin").to_vec()]
}

pub(crate) fn export(input: &[u8]) -> bool {
    let is_read = |bytes: &[u8]| {
        let Ok(mut reader) = osd_disk::export::Reader::new(bytes) else { return false };
        let head = reader.head().clone();
        assert_eq!(osd_disk::export::Head::decode(&head.encode()).as_ref(), Ok(&head));
        loop {
            match reader.next_block() {
                Ok(Some(_)) => {}
                Ok(None) => break true,
                Err(_) => break false,
            }
        }
    };
    let mut sealed = input.to_vec();
    let _as_far_as_it_is_one = seal_export(&mut sealed);
    [is_read(input), is_read(&sealed)].contains(&true)
}

/// Checksums that match let the mutations reach the fields behind them.
fn seal_export(bytes: &mut [u8]) -> Option<()> {
    let length = usize::from(u16::from_le_bytes(bytes.get(10..12)?.try_into().ok()?));
    let (head, mut rest) = bytes.split_at_mut_checked(length)?;
    head.get_mut(12..16)?.fill(0);
    let crc = crc32c::crc32c(head);
    head[12..16].copy_from_slice(&crc.to_le_bytes());
    let seed = crc32c::crc32c(head);
    loop {
        let length = u32::from_le_bytes(rest.get(..4)?.try_into().ok()?) as usize;
        let (block, behind) = rest.split_at_mut_checked(length.checked_add(24)?)?;
        block[16..20].fill(0);
        let crc = crc32c::crc32c_append(seed, block);
        block[16..20].copy_from_slice(&crc.to_le_bytes());
        rest = behind;
    }
}
