//! copy_file_range: reads and writes a bounded piece at a time. The data passes through this
//! client, but not through the application or the kernel. The call is not atomic: as with separate
//! `write` calls, a reader may see a part of the copy.

use std::rc::Rc;

use super::{joined, read, write};
use crate::Result;
use crate::handle::Open;
use crate::limits::{COPY_BYTES_MAX, COPY_PIECE_BYTES};

/// Copies up to `len` bytes; says how many. Fewer only at the end of the source, or at the bound of
/// one call.
pub(crate) async fn copy(
    from: &Rc<Open>,
    from_offset: u64,
    to: &Rc<Open>,
    to_offset: u64,
    len: u64,
) -> Result<u64> {
    let len = len.min(COPY_BYTES_MAX);
    let mut done = 0;
    while done < len {
        let piece = (len - done).min(COPY_PIECE_BYTES) as usize;
        let data = match read(from, from_offset + done, piece).await {
            Ok(pieces) => joined(pieces),
            Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
        };
        let asked = data.len();
        if asked == 0 {
            break;
        }
        match write(to, to.flags, to_offset + done, data).await {
            Ok(written) => done += written as u64,
            Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
        }
        if asked < piece {
            break;
        }
    }
    Ok(done)
}
