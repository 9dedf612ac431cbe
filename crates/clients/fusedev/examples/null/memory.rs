//! The file system itself: one directory, files in memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use fusedev::abi::{self, cap};
use fusedev::{Body, DirBuf, Handler, LocalFuture, MountOptions, Op, Reply, Request};
use types::Errno;

/// Length of the file `fixed`.
pub(crate) const FIXED_BYTES: u64 = 1 << 30;
const FIXED_NODE: u64 = 2;
/// A name that listings bring without a type, which no kernel takes.
pub(crate) const UNUSABLE: &str = "unusable";
/// References to nodes that kernels gave back, over all file systems of the process.
pub(crate) static FORGOTTEN: AtomicUsize = AtomicUsize::new(0);
/// Bytes of the longest write seen, over all file systems of the process.
pub(crate) static LONGEST_WRITE: AtomicUsize = AtomicUsize::new(0);
const DIR_MODE: u32 = 0o040_777;
const FILE_MODE: u32 = 0o100_666;

/// How it wants to be mounted.
pub(crate) fn options(mountpoint: &Path) -> MountOptions {
    let mut options = MountOptions::new(mountpoint);
    options.want |=
        cap::DO_READDIRPLUS | cap::POSIX_LOCKS | cap::DIRECT_IO_ALLOW_MMAP | cap::ATOMIC_O_TRUNC;
    options
}

#[derive(Default)]
struct State {
    names: BTreeMap<Vec<u8>, u64>,
    data: BTreeMap<u64, Vec<u8>>,
    last: u64,
}

/// One directory in memory.
pub(crate) struct Memory {
    state: RefCell<State>,
    zeros: Bytes,
}

impl Memory {
    /// With the file `fixed`.
    pub(crate) fn new() -> Memory {
        let state = State {
            names: BTreeMap::from([(b"fixed".to_vec(), FIXED_NODE)]),
            last: FIXED_NODE,
            ..State::default()
        };
        Memory { state: RefCell::new(state), zeros: Bytes::from(vec![0; 4 << 20]) }
    }

    fn answer(&self, node: u64, op: Op) -> Reply {
        let mut state = self.state.borrow_mut();
        match op {
            Op::Lookup { name } => {
                state.names.get(&name[..]).map(|node| state.entry(*node)).ok_or(Errno::ENOENT)
            }
            Op::Getattr { .. } => {
                Ok(Body::Attr(abi::AttrOut { attr: state.attr(node), ..Default::default() }))
            }
            Op::Setattr(args) => {
                if args.valid & abi::FATTR_SIZE != 0 {
                    state.data.entry(node).or_default().resize(args.size as usize, 0);
                }
                Ok(Body::Attr(abi::AttrOut { attr: state.attr(node), ..Default::default() }))
            }
            Op::Create { name, .. } => {
                let Body::Entry(entry) = state.make(&name) else { return Err(Errno::EIO) };
                Ok(Body::Create(entry, direct(entry.nodeid)))
            }
            Op::Mknod { name, .. } => Ok(state.make(&name)),
            Op::Unlink { name } => {
                state.names.remove(&name[..]).map(|_| Body::Empty).ok_or(Errno::ENOENT)
            }
            Op::Open(_) => Ok(Body::Open(direct(node))),
            Op::Opendir(_) => Ok(Body::Open(abi::OpenOut::default())),
            Op::Read(args) if node == FIXED_NODE => {
                let left =
                    FIXED_BYTES.saturating_sub(args.offset).min(u64::from(args.size)) as usize;
                Ok(Body::Data(self.zeros.slice(..left.min(self.zeros.len()))))
            }
            Op::Read(args) => {
                let data = state.data.get(&node).map_or(&[][..], |data| &data[..]);
                let from = (args.offset as usize).min(data.len());
                let to = (from + args.size as usize).min(data.len());
                Ok(Body::Data(Bytes::copy_from_slice(&data[from..to])))
            }
            Op::Write { args, data } => {
                LONGEST_WRITE.fetch_max(data.len(), Relaxed);
                state.write(node, args.offset as usize, &data);
                Ok(Body::Write(abi::WriteOut { size: args.size, padding: 0 }))
            }
            Op::Readdir { args, plus } => Ok(Body::Dir(state.readdir(args, plus))),
            Op::Statfs => Ok(Body::Statfs(abi::StatfsOut {
                bsize: 4096,
                namelen: 255,
                frsize: 4096,
                ..Default::default()
            })),
            Op::Release(_) | Op::Releasedir(_) => Ok(Body::Empty),
            _ => Err(Errno::ENOSYS),
        }
    }
}

fn direct(fh: u64) -> abi::OpenOut {
    abi::OpenOut {
        fh,
        open_flags: abi::FOPEN_DIRECT_IO | abi::FOPEN_PARALLEL_DIRECT_WRITES,
        padding: 0,
    }
}

impl State {
    fn attr(&self, node: u64) -> abi::Attr {
        let size = if node == FIXED_NODE {
            FIXED_BYTES
        } else {
            self.data.get(&node).map_or(0, |data| data.len() as u64)
        };
        let mode = if node == abi::ROOT_ID { DIR_MODE } else { FILE_MODE };
        abi::Attr { ino: node, size, mode, nlink: 1, blksize: 4096, ..Default::default() }
    }

    fn entry(&self, node: u64) -> Body {
        Body::Entry(abi::EntryOut {
            nodeid: node,
            generation: 1,
            attr: self.attr(node),
            ..Default::default()
        })
    }

    fn make(&mut self, name: &[u8]) -> Body {
        self.last += 1;
        let node = self.last;
        self.names.insert(name.to_vec(), node);
        self.data.insert(node, Vec::new());
        self.entry(node)
    }

    fn write(&mut self, node: u64, offset: usize, data: &[u8]) {
        let file = self.data.entry(node).or_default();
        if file.len() < offset + data.len() {
            file.resize(offset + data.len(), 0);
        }
        file[offset..offset + data.len()].copy_from_slice(data);
    }

    fn readdir(&self, args: abi::ReadIn, plus: bool) -> DirBuf {
        let mut page = DirBuf::new(args.size);
        for (index, (name, node)) in self.names.iter().enumerate().skip(args.offset as usize) {
            let (off, kind) = (index as u64 + 1, FILE_MODE >> 12);
            let room = match self.entry(*node) {
                Body::Entry(mut entry) if plus => {
                    if name == UNUSABLE.as_bytes() {
                        entry.attr.mode = 0;
                    }
                    page.push_plus(&entry, *node, off, kind, name)
                }
                _ => page.push(*node, off, kind, name),
            };
            if !room {
                break;
            }
        }
        page
    }
}

impl Handler for Memory {
    fn handle(self: Rc<Self>, request: Request) -> LocalFuture {
        let Request { header, op, replier } = request;
        if matches!(op, Op::Setlk { wait: true, .. }) {
            // A lock that is never free: only a signal ends the wait.
            return Box::pin(async move {
                replier.interrupted().await;
                replier.reply(&Err(Errno::EINTR));
            });
        }
        replier.reply(&self.answer(header.nodeid, op));
        Box::pin(std::future::ready(()))
    }

    fn forget(&self, node: u64, nlookup: u64) {
        FORGOTTEN.fetch_add(nlookup as usize, Relaxed);
        let mut state = self.state.borrow_mut();
        if !state.names.values().any(|named| *named == node) {
            state.data.remove(&node);
        }
    }
}
