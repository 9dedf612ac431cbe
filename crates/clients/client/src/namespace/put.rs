//! put: a file with all of its bytes. A small file whose first bytes are at the MDT takes one
//! request. Every other file is made, written and closed.

use bytes::Bytes;
use layout::Asked;
use types::{Errno, Fid};
use wire::attr::{S_IFMT, S_IFREG};
use wire::body::CreateFlags;
use wire::{Attr, PUT_BYTES_MAX, SizeState};

use super::make::Make;
use crate::{Client, Ctx, Error, File, Result, flags};

impl Client {
    /// Makes the file `name` in `parent` with these bytes, and returns its attributes. No handle
    /// stays open. `striping`: of the file; else its directory's default.
    ///
    /// If the first component of the file is at the MDT and holds all bytes, at most 64 KiB, this
    /// is one request: another client sees all of the file or nothing, also after a crash. Any
    /// other file is made, written and closed. Then other clients may see it without its bytes, and
    /// a failure may leave it so.
    ///
    /// # Errors
    /// EEXIST if the name exists: nothing is changed then. EACCES, ENOENT, ENOSPC; EINVAL for a
    /// striping out of bounds.
    pub async fn put(
        &self,
        ctx: &Ctx,
        parent: Fid,
        name: &[u8],
        mode: u32,
        data: Bytes,
        striping: Option<&Asked>,
    ) -> Result<Attr> {
        let make = Make {
            mode: S_IFREG | mode & !S_IFMT,
            striping,
            data: Some(&data).filter(|data| !data.is_empty()),
            flags: CreateFlags::DATA.when(!data.is_empty()),
            ..Make::new(parent, name)
        };
        let (length, now) = (data.len(), self.0.env.now());
        let is_unfit = striping.is_none() && self.0.put_refused.holds(parent, length, now);
        if length <= PUT_BYTES_MAX && !is_unfit {
            match self.make(ctx, make).await {
                Ok(made) if has_bytes(&made.attr, length) => return Ok(made.attr),
                // made by an MDT of a version before this
                Ok(made) => {
                    let file = self.open(ctx, made.attr.fid(), flags::O_WRONLY).await?;
                    return self.fill(ctx, &file, data).await;
                }
                Err(error) if error.errno() == Errno::EOPNOTSUPP => {
                    if striping.is_none() {
                        self.0.put_refused.note(parent, length, now);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let open_flags = flags::O_WRONLY | flags::O_EXCL;
        let (_, file) = self.create(ctx, parent, name, mode, open_flags, striping).await?;
        self.fill(ctx, &file, data).await
    }

    /// Writes all bytes of a new file and closes it.
    async fn fill(&self, ctx: &Ctx, file: &File, data: Bytes) -> Result<Attr> {
        let (fid, length) = (file.attr().fid(), data.len());
        let written = file.write(0, data).await;
        file.close().await?;
        if written? < length {
            return Err(Error::local(Errno::ENOSPC, "put").about(fid));
        }
        self.getattr(ctx, fid, None).await
    }
}

/// Whether a new file has all of its bytes.
fn has_bytes(attr: &Attr, length: usize) -> bool {
    length == 0 || (attr.size == length as u64 && attr.size_state() == SizeState::Clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_an_older_mdt_is_seen_to_lack_its_bytes() {
        let attr =
            |size, state: SizeState| Attr { size, size_state: state as u32, ..Attr::default() };
        assert!(has_bytes(&attr(9, SizeState::Clean), 9));
        assert!(!has_bytes(&attr(0, SizeState::NeverWritten), 9));
        assert!(!has_bytes(&attr(8, SizeState::Clean), 9));
        assert!(has_bytes(&attr(0, SizeState::NeverWritten), 0));
    }
}
