//! Requests of the kernel: one seed per operation.

use bytes::Bytes;
use fusedev::abi::{self, opcode};
use fusedev::{DecodeError, Op};
use zerocopy::{FromBytes, IntoBytes};

fn message(code: u32, args: &[u8]) -> Vec<u8> {
    let header = abi::InHeader {
        len: (size_of::<abi::InHeader>() + args.len()) as u32,
        opcode: code,
        unique: 6,
        nodeid: 1,
        uid: 1_000,
        gid: 100,
        pid: 42,
        ..Default::default()
    };
    [header.as_bytes(), args].concat()
}

pub(crate) fn requests() -> Vec<Vec<u8>> {
    [names(), changes(), files(), handles(), others()]
        .concat()
        .into_iter()
        .map(|(code, args)| message(code, &args))
        .collect()
}

type Arguments = (u32, Vec<u8>);

fn with(args: &[u8], rest: &[u8]) -> Vec<u8> {
    [args, rest].concat()
}

fn names() -> Vec<Arguments> {
    let forget = [abi::BatchForgetIn { count: 2, dummy: 0 }.as_bytes(), &[1; 32]].concat();
    vec![
        (opcode::LOOKUP, b"name\0".to_vec()),
        (opcode::FORGET, abi::ForgetIn { nlookup: 3 }.as_bytes().to_vec()),
        (opcode::BATCH_FORGET, forget),
        (opcode::READLINK, Vec::new()),
        (opcode::SYMLINK, b"name\0over/there\0".to_vec()),
        (opcode::UNLINK, b"name\0".to_vec()),
        (opcode::RMDIR, b"name\0".to_vec()),
        (opcode::RENAME, with(abi::RenameIn { newdir: 2 }.as_bytes(), b"old\0new\0")),
        (
            opcode::RENAME2,
            with(abi::Rename2In { newdir: 2, flags: 1, padding: 0 }.as_bytes(), b"old\0new\0"),
        ),
        (opcode::LINK, with(abi::LinkIn { oldnodeid: 3 }.as_bytes(), b"name\0")),
        (opcode::ACCESS, abi::AccessIn { mask: 4, padding: 0 }.as_bytes().to_vec()),
    ]
}

fn changes() -> Vec<Arguments> {
    let mknod = abi::MknodIn { mode: 0o20_644, rdev: 0x103, umask: 0o22, padding: 0 };
    let mkdir = abi::MkdirIn { mode: 0o755, umask: 0o22 };
    let create = abi::CreateIn { flags: 0o101, mode: 0o100_644, umask: 0o22, open_flags: 0 };
    let setattr = abi::SetattrIn {
        valid: abi::FATTR_MODE | abi::FATTR_SIZE | abi::FATTR_FH,
        fh: 5,
        size: 9,
        mode: 0o600,
        ..Default::default()
    };
    let getattr = abi::GetattrIn { getattr_flags: abi::GETATTR_FH, dummy: 0, fh: 5 };
    let statx = abi::StatxIn {
        getattr_flags: abi::GETATTR_FH,
        fh: 5,
        sx_mask: 0x7ff,
        ..Default::default()
    };
    let set = abi::SetxattrIn { size: 5, flags: 1 };
    let get = abi::GetxattrIn { size: 64, padding: 0 };
    vec![
        (opcode::MKNOD, with(mknod.as_bytes(), b"name\0")),
        (opcode::MKDIR, with(mkdir.as_bytes(), b"name\0")),
        (opcode::CREATE, with(create.as_bytes(), b"name\0")),
        (opcode::TMPFILE, create.as_bytes().to_vec()),
        (opcode::SETATTR, setattr.as_bytes().to_vec()),
        (opcode::GETATTR, getattr.as_bytes().to_vec()),
        (opcode::STATX, statx.as_bytes().to_vec()),
        (opcode::SETXATTR, with(set.as_bytes(), b"user.a\0value")),
        (opcode::GETXATTR, with(get.as_bytes(), b"user.a\0")),
        (opcode::LISTXATTR, get.as_bytes().to_vec()),
        (opcode::REMOVEXATTR, b"user.a\0".to_vec()),
    ]
}

fn files() -> Vec<Arguments> {
    let read = abi::ReadIn { fh: 5, offset: 4_096, size: 512, ..Default::default() };
    let write = abi::WriteIn { fh: 5, offset: 7, size: 4, ..Default::default() };
    let allocate = abi::FallocateIn { fh: 5, offset: 1, length: 2, mode: 3, padding: 0 };
    let seek = abi::LseekIn { fh: 5, offset: 9, whence: 4, padding: 0 };
    let copy = abi::CopyFileRangeIn { fh_in: 5, nodeid_out: 2, len: 3, ..Default::default() };
    vec![
        (opcode::READ, read.as_bytes().to_vec()),
        (opcode::READDIR, read.as_bytes().to_vec()),
        (opcode::READDIRPLUS, read.as_bytes().to_vec()),
        (opcode::WRITE, with(write.as_bytes(), b"data")),
        (opcode::FALLOCATE, allocate.as_bytes().to_vec()),
        (opcode::LSEEK, seek.as_bytes().to_vec()),
        (opcode::COPY_FILE_RANGE, copy.as_bytes().to_vec()),
    ]
}

fn handles() -> Vec<Arguments> {
    let open = abi::OpenIn { flags: 2, open_flags: 0 };
    let release = abi::ReleaseIn { fh: 5, flags: 2, release_flags: 1, lock_owner: 8 };
    let sync = abi::FsyncIn { fh: 5, fsync_flags: abi::FSYNC_FDATASYNC, padding: 0 };
    let flush = abi::FlushIn { fh: 5, lock_owner: 8, ..Default::default() };
    let lock = abi::LkIn {
        fh: 5,
        owner: 8,
        lk: abi::FileLock { start: 0, end: 9, kind: 1, pid: 42 },
        ..Default::default()
    };
    vec![
        (opcode::OPEN, open.as_bytes().to_vec()),
        (opcode::OPENDIR, open.as_bytes().to_vec()),
        (opcode::RELEASE, release.as_bytes().to_vec()),
        (opcode::RELEASEDIR, release.as_bytes().to_vec()),
        (opcode::FSYNC, sync.as_bytes().to_vec()),
        (opcode::FSYNCDIR, sync.as_bytes().to_vec()),
        (opcode::FLUSH, flush.as_bytes().to_vec()),
        (opcode::GETLK, lock.as_bytes().to_vec()),
        (opcode::SETLK, lock.as_bytes().to_vec()),
        (opcode::SETLKW, lock.as_bytes().to_vec()),
    ]
}

fn others() -> Vec<Arguments> {
    let init = abi::InitIn { major: 7, minor: 45, max_readahead: 1 << 17, flags: 0x73ff_ffff };
    let ext = abi::InitInExt { flags2: 0x1ff, ..Default::default() };
    let ioctl = abi::IoctlIn { fh: 5, cmd: 0x8008_6601, in_size: 4, ..Default::default() };
    let poll = abi::PollIn { fh: 5, kh: 1, flags: 1, events: 5 };
    vec![
        (opcode::INIT, with(init.as_bytes(), ext.as_bytes())),
        (opcode::STATFS, Vec::new()),
        (opcode::INTERRUPT, abi::InterruptIn { unique: 4 }.as_bytes().to_vec()),
        (opcode::DESTROY, Vec::new()),
        (opcode::IOCTL, with(ioctl.as_bytes(), b"args")),
        (opcode::POLL, poll.as_bytes().to_vec()),
        (opcode::SYNCFS, abi::SyncfsIn { padding: 0 }.as_bytes().to_vec()),
        (opcode::COPY_FILE_RANGE_64, vec![0; 56]),
    ]
}

/// What is decoded is what the message says: the header's fields, names without a NUL, data as
/// long as announced.
pub(crate) fn request(input: &[u8]) -> bool {
    let raw = abi::InHeader::read_from_prefix(input).map(|(raw, _)| raw);
    match fusedev::decode(&Bytes::copy_from_slice(input)) {
        Ok((header, op)) => {
            let raw = raw.expect("a message that is accepted has a header");
            assert_eq!(raw.len as usize, input.len());
            assert_eq!(
                (header.opcode, header.unique, header.nodeid, header.uid, header.gid, header.pid),
                (raw.opcode, raw.unique, raw.nodeid, raw.uid, raw.gid, raw.pid),
            );
            check(&op, input);
            true
        }
        Err(DecodeError::Arguments { header, opcode }) => {
            assert_eq!(header.opcode, opcode, "the answer goes to the request that was malformed");
            false
        }
        Err(DecodeError::Length { got, .. }) => {
            assert_eq!(got, input.len());
            false
        }
    }
}

fn check(op: &Op, input: &[u8]) {
    let mut slices: Vec<&Bytes> = Vec::new();
    match op {
        Op::Lookup { name }
        | Op::Mknod { name, .. }
        | Op::Mkdir { name, .. }
        | Op::Unlink { name }
        | Op::Rmdir { name }
        | Op::Getxattr { name, .. }
        | Op::Removexattr { name }
        | Op::Create { name, .. } => slices.push(name),
        Op::Symlink { name, target } => slices.extend([name, target]),
        Op::Rename { name, newname, .. } => slices.extend([name, newname]),
        Op::Link { newname, .. } => slices.push(newname),
        Op::Setxattr { name, value, .. } => {
            slices.push(name);
            assert!(value.len() <= input.len());
        }
        Op::Write { args, data } => assert_eq!(args.size as usize, data.len()),
        Op::Ioctl { args, data } => assert_eq!(args.in_size as usize, data.len()),
        Op::Forget { forgets } => assert!(forgets.len() * 8 <= input.len()),
        _ => {}
    }
    for name in slices {
        assert!(!name.contains(&0), "a name ends at its NUL");
    }
}
