//! Groups pieces into requests: neighbouring pieces of one object travel together, up to the RPC
//! size.
//!
//! With small stripes a large transfer has many pieces, but the pieces of one object are adjacent
//! in that object. Sixteen pieces of 64 KiB become one request of 1 MiB. Requests end at multiples
//! of the RPC size in the object, so a stream of unaligned calls soon sends aligned requests.

use std::collections::BTreeMap;

use layout::{FileLayout, Piece};
use types::Extent;

/// One request to one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) stripe: u32,
    pub(crate) object_offset: u64,
    pub(crate) len: u64,
    /// Where its bytes belong in the file, in object order.
    pub(crate) parts: Vec<Part>,
}

/// A stretch of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) file_offset: u64,
    pub(crate) len: u64,
}

impl Part {
    /// Nothing, if it has no byte.
    pub(super) fn extent(self) -> Option<Extent> {
        Extent::new(self.file_offset, self.file_offset + self.len)
    }
}

impl Run {
    /// Whether `piece` follows in the object, within the RPC that the run is in.
    fn takes(&self, piece: &Piece, rpc_bytes: u64) -> bool {
        let end = self.object_offset + self.len;
        end == piece.object_offset && !end.is_multiple_of(rpc_bytes)
    }
}

/// The requests that cover `extent`, those with the lowest file offsets first.
pub(crate) fn runs(layout: &FileLayout, extent: Extent, rpc_bytes: u64) -> Vec<Run> {
    runs_of(layout, [extent], rpc_bytes)
}

/// The same of several extents, which are in the order of the file.
pub(super) fn runs_of(
    layout: &FileLayout,
    extents: impl IntoIterator<Item = Extent>,
    rpc_bytes: u64,
) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut last_of: BTreeMap<u32, usize> = BTreeMap::new();
    let pieces = extents.into_iter().flat_map(|extent| layout.pieces(extent));
    for piece in pieces.flat_map(|piece| cut(piece, rpc_bytes)) {
        let part = Part { file_offset: piece.file_offset, len: piece.len };
        match last_of.get(&piece.stripe).map(|index| &mut runs[*index]) {
            Some(run) if run.takes(&piece, rpc_bytes) => {
                run.len += piece.len;
                run.parts.push(part);
            }
            _ => {
                last_of.insert(piece.stripe, runs.len());
                runs.push(Run {
                    stripe: piece.stripe,
                    object_offset: piece.object_offset,
                    len: piece.len,
                    parts: vec![part],
                });
            }
        }
    }
    runs
}

/// Cuts a piece at multiples of the RPC size in the object.
fn cut(piece: Piece, rpc_bytes: u64) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == piece.len {
            return None;
        }
        let object_offset = piece.object_offset + done;
        let len = (rpc_bytes - object_offset % rpc_bytes).min(piece.len - done);
        let next = Piece {
            stripe: piece.stripe,
            object_offset,
            file_offset: piece.file_offset + done,
            len,
        };
        done += len;
        Some(next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Fid;

    const KIB: u64 = 1 << 10;

    fn layout(stripe_kib: u32, stripe_count: u16) -> FileLayout {
        layout::Layout::plain(Fid::new(0x400, 1), stripe_kib << 10, stripe_count).into()
    }

    /// Runs as "stripe@object offset+length", KiB.
    fn check(layout: &FileLayout, start_kib: u64, end_kib: u64, rpc_kib: u64, want: &str) {
        let extent = Extent::new(start_kib * KIB, end_kib * KIB).expect("not empty");
        let runs = runs(layout, extent, rpc_kib * KIB);
        let text: Vec<_> = runs
            .iter()
            .map(|run| format!("{}@{}+{}", run.stripe, run.object_offset / KIB, run.len / KIB))
            .collect();
        assert_eq!(text.join(" "), want);
        let mut parts: Vec<_> = runs.iter().flat_map(|run| run.parts.iter().copied()).collect();
        parts.sort_by_key(|part| part.file_offset);
        let covered = parts
            .iter()
            .try_fold(extent.start(), |at, part| (part.file_offset == at).then_some(at + part.len));
        assert_eq!(covered, Some(extent.end()), "every byte once");
    }

    #[test]
    fn one_stripe_is_cut_at_rpc_bounds() {
        check(&layout(1024, 1), 0, 4096, 1024, "0@0+1024 0@1024+1024 0@2048+1024 0@3072+1024");
        check(&layout(64, 1), 1000, 2100, 1024, "0@1000+24 0@1024+1024 0@2048+52");
    }

    #[test]
    fn small_stripes_of_one_object_travel_together() {
        check(&layout(64, 2), 0, 512, 1024, "0@0+256 1@0+256");
        check(&layout(64, 2), 32, 160, 1024, "0@32+64 1@0+64");
    }

    #[test]
    fn an_rpc_is_never_longer_than_its_bound() {
        check(&layout(64, 2), 0, 512, 128, "0@0+128 1@0+128 0@128+128 1@128+128");
    }

    #[test]
    fn large_stripes_go_in_file_order() {
        check(&layout(1024, 2), 512, 3072, 1024, "0@512+512 1@0+1024 0@1024+1024");
    }
}
