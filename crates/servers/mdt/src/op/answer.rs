//! Answers of operations, until they are the buffers of a reply.

use bytes::Bytes;
use layout::StripeSet;
use types::{Fid, Timespec};
use wire::body::{AttrRep, ClosesRep, Disposition, GetattrsRep, ReaddirRep, ReaddirState};
use wire::dirent::{self, Dirent};
use wire::stats::{self, StatRecord};
use wire::{Attr, encode_body};

use crate::grants::Gift;
use crate::record::{INODE_HAS_ACL, Inode};

pub(crate) enum Answer {
    /// Attributes of a file.
    Attr(AttrAnswer),
    /// Entries of a directory.
    Page(PageAnswer),
    /// Attributes of many files.
    Many(ManyAnswer),
    /// What closes of several files come to.
    Closed(ClosedAnswer),
    Bufs(Vec<Bytes>),
}

/// Attributes, with what an open or create adds.
pub(crate) struct AttrAnswer {
    pub(crate) attr: Attr,
    pub(crate) handle: u64,
    pub(crate) disposition: Disposition,
    /// When its modification time was set by hand.
    pub(crate) mtime_set: Timespec,
    /// Stripes that must have an object.
    pub(crate) stripes: StripeSet,
    /// Directory that it was made in, or moved to.
    pub(crate) parent: Fid,
    pub(crate) has_acl: bool,
    pub(crate) layout: Vec<u8>,
}

/// A page of a directory.
pub(crate) struct PageAnswer {
    pub(crate) entries: Vec<Listed>,
    pub(crate) state: ReaddirState,
    pub(crate) parent: Fid,
}

/// Attributes of many files, and why there are none of some.
pub(crate) struct ManyAnswer {
    pub(crate) files: Vec<Told>,
}

/// One of them.
pub(crate) struct Told {
    pub(crate) record: StatRecord,
    /// The attributes are the whole truth.
    pub(crate) is_offered: bool,
    /// Directory that it was made in, or moved to.
    pub(crate) parent: Fid,
}

/// An entry of a page.
pub(crate) struct Listed {
    pub(crate) entry: Dirent,
    /// The attributes are the whole truth, and the caller wants a lease on them.
    pub(crate) is_offered: bool,
}

/// What goes with an answer into its reply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras {
    /// Of the file, where the operation changed it.
    pub(crate) version: Option<u64>,
    /// Guards a size that comes later.
    pub(crate) epoch: u64,
    /// Grants of the attributes and of the name.
    pub(crate) lease: Gift,
    pub(crate) name_lease: Gift,
    /// Names them.
    pub(crate) number: u64,
}

impl AttrAnswer {
    pub(super) fn new(
        inode: &Inode,
        handle: u64,
        disposition: Disposition,
        layout: Vec<u8>,
    ) -> AttrAnswer {
        let Inode { attr, mtime_set, parent, .. } = *inode;
        let (stripes, has_acl) = (inode.stripes.clone(), inode.has(INODE_HAS_ACL));
        AttrAnswer { attr, handle, disposition, mtime_set, stripes, parent, has_acl, layout }
    }
}

impl Answer {
    /// Attributes only.
    pub(crate) fn attr(inode: &Inode) -> Answer {
        Answer::Attr(AttrAnswer::new(inode, 0, Disposition::empty(), Vec::new()))
    }

    /// A file on another MDT.
    pub(crate) fn elsewhere(fid: Fid, file_type: u32) -> Answer {
        Answer::Attr(AttrAnswer {
            attr: Attr { mode: file_type, ..Attr::default() }.with_fid(fid),
            handle: 0,
            disposition: Disposition::REMOTE,
            mtime_set: Timespec::default(),
            stripes: StripeSet::default(),
            parent: Fid::ZERO,
            has_acl: false,
            layout: Vec::new(),
        })
    }

    /// Attributes after the close of `handle`.
    pub(crate) fn closed(inode: &Inode, handle: u64) -> Answer {
        Answer::Attr(AttrAnswer::new(inode, handle, Disposition::empty(), Vec::new()))
    }

    /// No body, `data` in buffer 1.
    pub(crate) fn data(data: impl Into<Bytes>) -> Answer {
        Answer::Bufs(vec![Bytes::new(), data.into()])
    }

    /// The buffers of the reply.
    pub(crate) fn into_bufs(self, extras: Extras) -> Vec<Bytes> {
        match self {
            Answer::Bufs(bufs) => bufs,
            Answer::Attr(mut answer) => {
                answer.attr.version = extras.version.unwrap_or(answer.attr.version);
                let body = AttrRep {
                    attr: answer.attr,
                    handle: answer.handle,
                    disposition: answer.disposition,
                    lease_ms: extras.lease.to_ms(),
                    write_epoch: extras.epoch,
                    mtime_set: answer.mtime_set.sec,
                    mtime_set_nsec: answer.mtime_set.nsec,
                    name_lease_ms: extras.name_lease.to_ms(),
                    stripes: answer.stripes.first_part(),
                    grant: extras.number,
                };
                let layout = layout::with_stripes(answer.layout, &answer.stripes);
                vec![encode_body(&body), Bytes::from(layout)]
            }
            Answer::Page(answer) => answer.into_bufs(extras),
            Answer::Many(answer) => answer.into_bufs(extras),
            Answer::Closed(answer) => answer.into_bufs(),
        }
    }

    /// The file that it tells of.
    pub(crate) fn fid(&self) -> Option<Fid> {
        match self {
            Answer::Attr(answer) => Some(answer.attr.fid()),
            Answer::Bufs(_) | Answer::Page(_) | Answer::Many(_) | Answer::Closed(_) => None,
        }
    }
}

impl PageAnswer {
    fn into_bufs(self, extras: Extras) -> Vec<Bytes> {
        let mut page = Vec::new();
        self.entries.iter().for_each(|listed| dirent::push(&mut page, &listed.entry));
        let head = ReaddirRep {
            count: self.entries.len() as u32,
            at_end: self.state,
            parent: self.parent.into(),
            lease_ms: extras.lease.to_ms(),
            name_lease_ms: extras.name_lease.to_ms(),
            grant: extras.number,
        };
        vec![encode_body(&head), page.into()]
    }
}

impl ManyAnswer {
    fn into_bufs(mut self, extras: Extras) -> Vec<Bytes> {
        let mut records = Vec::new();
        for told in &mut self.files {
            told.record.rep.grant = extras.number;
            stats::push(&mut records, &told.record);
        }
        let head = GetattrsRep {
            count: self.files.len() as u32,
            grant: extras.number,
            ..GetattrsRep::default()
        };
        vec![encode_body(&head), records.into()]
    }
}

/// All closes of a request, and what each comes to.
pub(crate) struct ClosedAnswer {
    pub(crate) files: Vec<StatRecord>,
}

impl ClosedAnswer {
    pub(crate) fn into_bufs(self) -> Vec<Bytes> {
        let mut records = Vec::with_capacity(self.files.len() * stats::HEADER_BYTES);
        self.files.iter().for_each(|record| stats::push(&mut records, record));
        let head = ClosesRep { count: self.files.len() as u32, ..ClosesRep::default() };
        vec![encode_body(&head), records.into()]
    }
}
