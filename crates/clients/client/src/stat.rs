//! The MDT's word about a file, as a reply brings it.

use std::rc::Rc;

use bytes::Bytes;
use layout::{FileLayout, StripeSet, Striping, stripes_behind};
use ldlm::grants::Number;
use types::{Errno, Fid, Timespec, Transno};
use wire::body::{AttrRep, DirRep, Disposition, WireFid};
use wire::{Attr, Opcode, Reply, decode_body};

use crate::grants::Gift;
use crate::{Error, Result};

/// What a reply about a file says.
#[derive(Clone, Debug)]
pub(crate) struct Stat {
    pub(crate) attr: Attr,
    pub(crate) layout: Option<Rc<FileLayout>>,
    pub(crate) epoch: u64,
    pub(crate) handle: u64,
    pub(crate) disposition: Disposition,
    /// When the modification time was set by hand: only a later write of an object counts.
    pub(crate) mtime_set: Timespec,
    /// Stripes that must have an object.
    pub(crate) stripes: StripeSet,
    /// An object that must be there is not: size and blocks are what is left, or was known last.
    pub(crate) lost: bool,
    /// What it grants of the attributes and of the name.
    pub(crate) lease: Gift,
    pub(crate) name_lease: Gift,
    /// The data of the file may be kept.
    pub(crate) is_cached: bool,
    /// What is written to it may be kept.
    pub(crate) is_write_kept: bool,
    /// Another client may keep what it has written: the objects may not have it.
    pub(crate) is_kept_elsewhere: bool,
    /// Names all that it grants.
    pub(crate) grant: Number,
    /// The last change that the answer knows of.
    pub(crate) as_of: Transno,
    /// All that a rename touched.
    pub(crate) touched: Option<Vec<Fid>>,
    /// The directory of the name, after the operation, and what it grants of that.
    pub(crate) dir: Option<(Attr, Gift)>,
    /// All bytes of a file that was opened.
    pub(crate) bytes: Option<Bytes>,
}

impl Stat {
    /// From an `AttrRep` and a layout record, as of a change.
    pub(crate) fn told(
        body: &AttrRep,
        layout: &[u8],
        as_of: Transno,
        stage: &'static str,
    ) -> Result<Stat> {
        let broken = |error| {
            tracing::warn!("{stage}: the MDT sent a broken layout: {error}");
            Error::local(Errno::EPROTO, stage).about(body.attr.fid())
        };
        let must_exist = StripeSet::from_parts(body.stripes, stripes_behind(layout));
        let layout = match Striping::decode(body.attr.fid(), layout).map_err(broken)? {
            Striping::Layout(layout) => Some(Rc::new(layout)),
            Striping::None | Striping::Template(_) => None,
        };
        let of_layout = layout.as_ref().map(|layout| must_exist.below(layout.stripes()));
        Ok(Stat {
            attr: body.attr,
            layout,
            epoch: body.write_epoch,
            handle: body.handle,
            disposition: body.disposition,
            mtime_set: Timespec::new(body.mtime_set, body.mtime_set_nsec),
            stripes: of_layout.unwrap_or_default(),
            lost: false,
            lease: Gift::of(body.lease_ms),
            name_lease: Gift::of(body.name_lease_ms),
            is_cached: body.disposition.contains(Disposition::CACHE),
            is_write_kept: body.disposition.contains(Disposition::WRITES),
            is_kept_elsewhere: body.disposition.contains(Disposition::KEPT),
            grant: Number(body.grant),
            as_of,
            touched: None,
            dir: None,
            bytes: None,
        })
    }

    /// From an `AttrRep`, the layout record behind it, and what else comes along.
    pub(crate) fn of(reply: &Reply, stage: &'static str) -> Result<Stat> {
        let as_of = Transno(reply.header.as_of);
        let stat = Stat::told(&reply.body(), &reply.buf(1), as_of, stage)?;
        let is_rename = reply.header.opcode == Opcode::MdtRename as u16;
        let is_open = reply.header.opcode == Opcode::MdtOpen as u16;
        let third = reply.bufs.get(2).filter(|buf| !buf.starts_with(&wire::updates::RECORD_MAGIC));
        Ok(Stat {
            touched: third.filter(|_| is_rename).map(|fids| fids_of(fids)),
            dir: third.filter(|_| !is_rename && !is_open).map(|dir| {
                let DirRep { attr, lease_ms, .. } = decode_body(dir);
                (attr, Gift::of(lease_ms))
            }),
            bytes: third.filter(|_| is_open).cloned(),
            ..stat
        })
    }
}

/// A list of files, as it travels.
fn fids_of(bytes: &[u8]) -> Vec<Fid> {
    let each = bytes.chunks_exact(size_of::<WireFid>());
    each.map(|fid| decode_body::<WireFid>(fid).into()).collect()
}
