//! Decoded requests of the kernel. Decoding never panics and never copies payload: names and data
//! are slices of the message's own buffer.

use bytes::Bytes;
use zerocopy::FromBytes;

use crate::abi::{self, opcode};

/// Who asks about which node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the operation.
    pub opcode: u32,
    /// Number of the request; an interrupt names it.
    pub unique: u64,
    /// The node it is about.
    pub nodeid: u64,
    /// Effective (file system) user id of the caller.
    pub uid: u32,
    /// Effective (file system) group id of the caller.
    pub gid: u32,
    /// Thread of the caller; zero for the kernel's own requests.
    pub pid: u32,
}

/// A message that is no request of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Shorter than its header, or its length field lies.
    #[error("request of {got} bytes, header says {said}")]
    Length {
        /// Bytes that came.
        got: usize,
        /// What the header says, zero where there is no header.
        said: u32,
    },
    /// Arguments are cut short.
    #[error("arguments of operation {opcode} are malformed")]
    Arguments {
        /// The request, to answer it.
        header: Header,
        /// The operation.
        opcode: u32,
    },
}

/// An operation with its arguments; `Header::nodeid` is the node, or the directory where there is a
/// name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Find a name.
    Lookup { name: Bytes },
    /// Forget so many lookups; no answer.
    Forget { forgets: Vec<abi::ForgetOne> },
    /// Attributes, through an open file where given.
    Getattr { fh: Option<u64> },
    /// Change attributes.
    Setattr(abi::SetattrIn),
    /// Target of a symbolic link.
    Readlink,
    /// Make a symbolic link.
    Symlink { name: Bytes, target: Bytes },
    /// Make a node.
    Mknod { name: Bytes, mode: u32, rdev: u32, umask: u32 },
    /// Make a directory.
    Mkdir { name: Bytes, mode: u32, umask: u32 },
    /// Remove a name.
    Unlink { name: Bytes },
    /// Remove a directory.
    Rmdir { name: Bytes },
    /// Rename; flags as `renameat2` has them.
    Rename { name: Bytes, newdir: u64, newname: Bytes, flags: u32 },
    /// Another name, in the header's directory, for `oldnodeid`.
    Link { oldnodeid: u64, newname: Bytes },
    /// Open a file.
    Open(abi::OpenIn),
    /// Bytes of an open file.
    Read(abi::ReadIn),
    /// Bytes for an open file.
    Write { args: abi::WriteIn, data: Bytes },
    /// File system statistics.
    Statfs,
    /// Last close of an open file.
    Release(abi::ReleaseIn),
    /// Make durable.
    Fsync { fh: u64, datasync: bool },
    /// Set an extended attribute; flags as `setxattr` has them.
    Setxattr { name: Bytes, value: Bytes, flags: u32 },
    /// Read an extended attribute; size zero asks for its length.
    Getxattr { name: Bytes, size: u32 },
    /// List extended attributes; size zero asks for the length.
    Listxattr { size: u32 },
    /// Remove an extended attribute.
    Removexattr { name: Bytes },
    /// A close of one descriptor.
    Flush { fh: u64, lock_owner: u64 },
    /// Negotiation; answered by the connection.
    Init { args: abi::InitIn, flags2: u32 },
    /// Open a directory.
    Opendir(abi::OpenIn),
    /// Entries; `plus` with attributes.
    Readdir { args: abi::ReadIn, plus: bool },
    /// Last close of a directory.
    Releasedir(abi::ReleaseIn),
    /// Make a directory durable.
    Fsyncdir { fh: u64, datasync: bool },
    /// Who would be in the way of this lock.
    Getlk(abi::LkIn),
    /// Lock or unlock; `wait` until it is free.
    Setlk { args: abi::LkIn, wait: bool },
    /// May I.
    Access { mask: u32 },
    /// Create and open.
    Create { name: Bytes, args: abi::CreateIn },
    /// Make a file without a name and open it.
    Tmpfile { args: abi::CreateIn },
    /// Attributes with more than `Getattr` tells, through an open file where given.
    Statx { fh: Option<u64> },
    /// A signal came for the caller of request `unique`; handled by the connection.
    Interrupt { unique: u64 },
    /// The mount is gone.
    Destroy,
    /// Device control.
    Ioctl { args: abi::IoctlIn, data: Bytes },
    /// Whether an open file is ready.
    Poll(abi::PollIn),
    /// Allocate or punch.
    Fallocate(abi::FallocateIn),
    /// Seek to data or hole.
    Lseek(abi::LseekIn),
    /// Copy within the file system.
    CopyFileRange(abi::CopyFileRangeIn),
    /// Make the whole file system durable.
    Syncfs,
    /// Anything else.
    Unknown,
}

/// Takes a message apart.
///
/// # Errors
/// What is malformed; the connection answers EIO where the header could be read.
pub fn decode(message: &Bytes) -> Result<(Header, Op), DecodeError> {
    let short = |said| DecodeError::Length { got: message.len(), said };
    let (raw, _) = abi::InHeader::read_from_prefix(message).map_err(|_| short(0))?;
    if raw.len as usize != message.len() {
        return Err(short(raw.len));
    }
    let header = Header {
        opcode: raw.opcode,
        unique: raw.unique,
        nodeid: raw.nodeid,
        uid: raw.uid,
        gid: raw.gid,
        pid: raw.pid,
    };
    let bad = DecodeError::Arguments { header, opcode: raw.opcode };
    // Extensions follow the arguments; none is asked for, so none is read.
    let end = message.len().checked_sub(usize::from(raw.total_extlen) * 8);
    let Some(end) = end.filter(|end| *end >= size_of::<abi::InHeader>()) else { return Err(bad) };
    let mut args = Args { rest: message.slice(size_of::<abi::InHeader>()..end) };
    match args.op(header) {
        Some(op) => Ok((header, op)),
        None => Err(bad),
    }
}

/// Arguments not yet taken.
struct Args {
    rest: Bytes,
}

impl Args {
    fn take<T: FromBytes>(&mut self) -> Option<T> {
        let (value, _) = T::read_from_prefix(&self.rest).ok()?;
        self.rest = self.rest.slice(size_of::<T>()..);
        Some(value)
    }

    /// A string up to its NUL.
    fn name(&mut self) -> Option<Bytes> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        let name = self.rest.slice(..end);
        self.rest = self.rest.slice(end + 1..);
        Some(name)
    }

    fn bytes(&mut self, len: u32) -> Option<Bytes> {
        let len = len as usize;
        (len <= self.rest.len()).then(|| self.rest.slice(..len))
    }

    fn op(&mut self, header: Header) -> Option<Op> {
        match header.opcode {
            opcode::FORGET => self.forget(header.nodeid),
            opcode::BATCH_FORGET => self.batch_forget(),
            code => self.op_with_name(code),
        }
    }

    /// Operations that carry the name of an entry or of an attribute.
    fn op_with_name(&mut self, code: u32) -> Option<Op> {
        Some(match code {
            opcode::LOOKUP => Op::Lookup { name: self.name()? },
            opcode::SYMLINK => Op::Symlink { name: self.name()?, target: self.name()? },
            opcode::MKNOD => {
                let args: abi::MknodIn = self.take()?;
                Op::Mknod {
                    name: self.name()?,
                    mode: args.mode,
                    rdev: args.rdev,
                    umask: args.umask,
                }
            }
            opcode::MKDIR => {
                let args: abi::MkdirIn = self.take()?;
                Op::Mkdir { name: self.name()?, mode: args.mode, umask: args.umask }
            }
            opcode::UNLINK => Op::Unlink { name: self.name()? },
            opcode::RMDIR => Op::Rmdir { name: self.name()? },
            opcode::RENAME => {
                let args: abi::RenameIn = self.take()?;
                Op::Rename {
                    name: self.name()?,
                    newdir: args.newdir,
                    newname: self.name()?,
                    flags: 0,
                }
            }
            opcode::RENAME2 => {
                let args: abi::Rename2In = self.take()?;
                Op::Rename {
                    name: self.name()?,
                    newdir: args.newdir,
                    newname: self.name()?,
                    flags: args.flags,
                }
            }
            opcode::LINK => {
                let args: abi::LinkIn = self.take()?;
                Op::Link { oldnodeid: args.oldnodeid, newname: self.name()? }
            }
            opcode::CREATE => {
                let args = self.take()?;
                Op::Create { name: self.name()?, args }
            }
            opcode::SETXATTR => {
                let args: abi::SetxattrIn = self.take()?;
                Op::Setxattr {
                    name: self.name()?,
                    value: self.bytes(args.size)?,
                    flags: args.flags,
                }
            }
            opcode::GETXATTR => {
                let args: abi::GetxattrIn = self.take()?;
                Op::Getxattr { name: self.name()?, size: args.size }
            }
            opcode::REMOVEXATTR => Op::Removexattr { name: self.name()? },
            _ => return self.op_without_name(code),
        })
    }

    /// All others: what they are about is a node or a handle.
    fn op_without_name(&mut self, code: u32) -> Option<Op> {
        Some(match code {
            opcode::GETATTR => {
                let args: abi::GetattrIn = self.take()?;
                Op::Getattr { fh: (args.getattr_flags & abi::GETATTR_FH != 0).then_some(args.fh) }
            }
            opcode::SETATTR => Op::Setattr(self.take()?),
            opcode::LISTXATTR => Op::Listxattr { size: self.take::<abi::GetxattrIn>()?.size },
            opcode::READLINK => Op::Readlink,
            opcode::OPEN => Op::Open(self.take()?),
            opcode::OPENDIR => Op::Opendir(self.take()?),
            opcode::READ => Op::Read(self.take()?),
            opcode::READDIR | opcode::READDIRPLUS => {
                Op::Readdir { args: self.take()?, plus: code == opcode::READDIRPLUS }
            }
            opcode::WRITE => {
                let args: abi::WriteIn = self.take()?;
                Op::Write { args, data: self.bytes(args.size)? }
            }
            opcode::STATFS => Op::Statfs,
            opcode::RELEASE => Op::Release(self.take()?),
            opcode::RELEASEDIR => Op::Releasedir(self.take()?),
            opcode::FSYNC | opcode::FSYNCDIR => {
                let args: abi::FsyncIn = self.take()?;
                let (fh, datasync) = (args.fh, args.fsync_flags & abi::FSYNC_FDATASYNC != 0);
                if code == opcode::FSYNC {
                    Op::Fsync { fh, datasync }
                } else {
                    Op::Fsyncdir { fh, datasync }
                }
            }
            opcode::FLUSH => {
                let args: abi::FlushIn = self.take()?;
                Op::Flush { fh: args.fh, lock_owner: args.lock_owner }
            }
            opcode::INIT => {
                let args = self.take()?;
                Op::Init { args, flags2: self.take::<abi::InitInExt>().map_or(0, |ext| ext.flags2) }
            }
            opcode::GETLK => Op::Getlk(self.take()?),
            opcode::SETLK | opcode::SETLKW => {
                Op::Setlk { args: self.take()?, wait: code == opcode::SETLKW }
            }
            opcode::ACCESS => Op::Access { mask: self.take::<abi::AccessIn>()?.mask },
            opcode::INTERRUPT => Op::Interrupt { unique: self.take::<abi::InterruptIn>()?.unique },
            opcode::DESTROY => Op::Destroy,
            opcode::IOCTL => {
                let args: abi::IoctlIn = self.take()?;
                Op::Ioctl { args, data: self.bytes(args.in_size)? }
            }
            opcode::POLL => Op::Poll(self.take()?),
            opcode::FALLOCATE => Op::Fallocate(self.take()?),
            opcode::LSEEK => Op::Lseek(self.take()?),
            opcode::COPY_FILE_RANGE => Op::CopyFileRange(self.take()?),
            opcode::SYNCFS => Op::Syncfs,
            opcode::TMPFILE => Op::Tmpfile { args: self.take()? },
            opcode::STATX => {
                let args: abi::StatxIn = self.take()?;
                Op::Statx { fh: (args.getattr_flags & abi::GETATTR_FH != 0).then_some(args.fh) }
            }
            _ => Op::Unknown,
        })
    }

    fn forget(&mut self, nodeid: u64) -> Option<Op> {
        let args: abi::ForgetIn = self.take()?;
        Some(Op::Forget { forgets: vec![abi::ForgetOne { nodeid, nlookup: args.nlookup }] })
    }

    fn batch_forget(&mut self) -> Option<Op> {
        let args: abi::BatchForgetIn = self.take()?;
        // The count is the sender's word: what the message cannot hold is refused before anything
        // is reserved.
        if args.count as usize > self.rest.len() / size_of::<abi::ForgetOne>() {
            return None;
        }
        let forgets = (0..args.count).map(|_| self.take()).collect::<Option<Vec<_>>>()?;
        Some(Op::Forget { forgets })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;

    fn message(code: u32, args: &[u8]) -> Bytes {
        let header = abi::InHeader {
            len: u32::try_from(size_of::<abi::InHeader>() + args.len()).expect("small"),
            opcode: code,
            unique: 7,
            nodeid: 1,
            ..Default::default()
        };
        Bytes::from([header.as_bytes(), args].concat())
    }

    fn op(code: u32, args: &[u8]) -> Result<Op, DecodeError> {
        decode(&message(code, args)).map(|(_, op)| op)
    }

    #[test]
    fn names_end_at_their_nul() {
        let name = |text: &'static str| Bytes::from_static(text.as_bytes());
        assert_eq!(op(opcode::LOOKUP, b"file\0"), Ok(Op::Lookup { name: name("file") }));
        assert_eq!(
            op(opcode::SYMLINK, b"n\0target\0"),
            Ok(Op::Symlink { name: name("n"), target: name("target") })
        );
        assert!(op(opcode::LOOKUP, b"no end").is_err());
    }

    #[test]
    fn written_data_is_a_slice_of_the_message() {
        let args = abi::WriteIn { size: 3, offset: 9, ..Default::default() };
        let whole = message(opcode::WRITE, &[args.as_bytes(), b"abc"].concat());
        let (_, Op::Write { data, .. }) = decode(&whole).expect("well formed") else {
            panic!("a write")
        };
        assert_eq!(data.as_ptr(), whole[80..].as_ptr());
        let long = abi::WriteIn { size: 4, ..args };
        assert!(op(opcode::WRITE, &[long.as_bytes(), b"abc"].concat()).is_err());
    }

    #[test]
    fn a_batch_larger_than_its_message_is_refused() {
        let args = abi::BatchForgetIn { count: u32::MAX, dummy: 0 };
        assert!(op(opcode::BATCH_FORGET, args.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&Bytes::from(bytes));
        }

        #[test]
        fn any_arguments_of_any_operation_decode_without_a_panic(
            code in 0u32..60, ext in any::<u16>(), args in proptest::collection::vec(any::<u8>(), 0..160),
        ) {
            let mut bytes = message(code, &args).to_vec();
            let _ = decode(&Bytes::from(bytes.clone()));
            bytes[36..38].copy_from_slice(&ext.to_ne_bytes());
            let _ = decode(&Bytes::from(bytes));
        }
    }
}
