//! readdir, readlink, fid2path.

use bytes::Bytes;
use ldlm::grants::Number;
use types::{Errno, Fid, Transno};
use wire::body::{FidReq, ReaddirRep, ReaddirReq};
use wire::{Opcode, dirent};

use crate::client::{Client, mdt_of};
use crate::grants::Gift;
use crate::{Ctx, DirPage, Error, Lease, Result, limits};

/// Bit of the request: attributes and names with leases.
const WITH_LEASES: u32 = 2;

impl Client {
    /// The entries behind `cookie` (0: from the start), at most `bytes_max` bytes of them as they
    /// travel (about 150 plus the name each). Every entry that exists throughout is seen exactly
    /// once, whatever else changes; a cookie stays good while the directory exists.
    ///
    /// # Errors
    /// ENOTDIR, ENOENT, EACCES.
    pub async fn readdir(
        &self,
        ctx: &Ctx,
        dir: Fid,
        cookie: u64,
        bytes_max: u32,
    ) -> Result<DirPage> {
        self.list(ctx, dir, cookie, bytes_max, 0).await.map(|(page, ..)| page)
    }

    /// The same, and how long its names and the attributes of its leased entries hold. An entry is
    /// not leased of which this client may know something newer. For a kernel, a page that this
    /// client has read under a grant is not asked for again ([`Client::serve_kernel`]).
    ///
    /// # Errors
    /// As [`Client::readdir`].
    pub async fn readdir_leased(
        &self,
        ctx: &Ctx,
        dir: Fid,
        cookie: u64,
        bytes_max: u32,
    ) -> Result<(DirPage, Lease)> {
        let bytes_max = clamped(bytes_max);
        let is_open = |fid: Fid| self.0.inodes.get(fid).is_some();
        let grants = self.0.grants.of(dir);
        if let Some(known) = grants.listed(dir, (cookie, bytes_max), &is_open) {
            return Ok(known);
        }
        let reading = grants.reading(dir, cookie);
        let asking = grants.asking();
        let (mut page, head, as_of) = self.list(ctx, dir, cookie, bytes_max, WITH_LEASES).await?;
        for entry in &mut page.entries {
            let is_exact = !is_open(entry.attr.fid()) && !crate::needs_glimpse(&entry.attr);
            entry.leased &= entry.has_attr && is_exact;
        }
        let lease = asking.told_page(
            &mut page.entries,
            (Gift::of(head.lease_ms), Gift::of(head.name_lease_ms)),
            Number(head.grant),
            (dir, as_of),
        );
        grants.read(reading, &page);
        self.0.shed_grants(dir.mdt_index());
        Ok((page, lease))
    }

    async fn list(
        &self,
        ctx: &Ctx,
        dir: Fid,
        cookie: u64,
        bytes_max: u32,
        flags: u32,
    ) -> Result<(DirPage, ReaddirRep, Transno)> {
        let body = ReaddirReq {
            fid: dir.into(),
            cookie,
            bytes_max: clamped(bytes_max),
            entries_max: u32::MAX,
            flags,
            ..ReaddirReq::default()
        };
        let call = self.0.call(ctx, Opcode::MdtReaddir, &body);
        let reply = self.0.ask(mdt_of(dir), call).await.map_err(|error| error.about(dir))?.reply;
        let head: ReaddirRep = reply.body();
        let entries = dirent::decode(&reply.buf(1))
            .ok_or_else(|| Error::local(Errno::EPROTO, "mds_readpage").about(dir))?;
        let page = DirPage { entries, at_end: head.at_end != 0, parent: head.parent.into() };
        Ok((page, head, Transno(reply.header.as_of)))
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// EINVAL if it is none.
    pub async fn readlink(&self, ctx: &Ctx, fid: Fid) -> Result<Bytes> {
        let call =
            self.0.call(ctx, Opcode::MdtReadlink, &FidReq { fid: fid.into(), ..FidReq::default() });
        Ok(self.0.ask(mdt_of(fid), call).await.map_err(|error| error.about(fid))?.reply.buf(1))
    }

    /// All paths of a file, from the root, with a leading slash.
    ///
    /// # Errors
    /// ENOENT if it has no name; EPERM if the caller may not ask.
    pub async fn fid2path(&self, ctx: &Ctx, fid: Fid) -> Result<Vec<String>> {
        let call =
            self.0.call(ctx, Opcode::MdtFid2path, &FidReq { fid: fid.into(), ..FidReq::default() });
        let paths =
            self.0.ask(mdt_of(fid), call).await.map_err(|error| error.about(fid))?.reply.buf(1);
        Ok(split_nul(&paths).map(|path| format!("/{}", String::from_utf8_lossy(path))).collect())
    }
}

/// What a page may have, of what is wanted.
fn clamped(bytes_max: u32) -> u32 {
    bytes_max.clamp(limits::READDIR_BYTES_MIN, limits::READDIR_BYTES_MAX)
}

/// Strings with a NUL behind each.
pub(crate) fn split_nul(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == 0).map(|text| text.strip_suffix(&[0]).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_at_their_nul() {
        let split = |bytes| split_nul(bytes).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(split(b"a/b\0\0c\0"), [b"a/b".to_vec(), b"".to_vec(), b"c".to_vec()]);
        assert!(split(b"").is_empty());
    }
}
