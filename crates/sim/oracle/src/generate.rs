//! Random operations from a seed, chosen with the model's state: mostly sensible, sometimes wrong
//! on purpose.

use env_sim::Rng;

use crate::model::{Body, Model, ROOT};
use crate::op::{EXCHANGE, NOREPLACE, Op, Path, SLOTS, XATTR_CREATE, XATTR_REPLACE};

/// What sequences look like.
#[derive(Clone, Copy, Debug)]
pub struct Taste {
    /// Largest offset of a write.
    pub offset_max: u64,
    /// Largest write, for one in eight; others are small.
    pub write_bytes_max: u32,
    /// Depth of the tree.
    pub depth_max: usize,
    /// Names in use per directory.
    pub names: u64,
    /// OSTs to stripe over.
    pub stripes_max: i32,
}

impl Default for Taste {
    fn default() -> Taste {
        Taste {
            offset_max: 600_000,
            write_bytes_max: 300_000,
            depth_max: 3,
            names: 7,
            stripes_max: 4,
        }
    }
}

pub fn next_op(rng: &mut Rng, model: &Model, taste: &Taste) -> Op {
    let mut draw = Draw { rng, model, taste };
    match draw.rng.below(100) {
        0..=9 => draw.on_directories(),
        10..=29 => draw.on_names(),
        30..=44 => draw.on_opens(),
        45..=54 => draw.on_attributes(),
        55..=84 => draw.on_data(),
        85..=93 => draw.on_xattrs(),
        _ => draw.on_reading(),
    }
}

struct Draw<'a> {
    rng: &'a mut Rng,
    model: &'a Model,
    taste: &'a Taste,
}

impl Draw<'_> {
    fn name(&mut self) -> String {
        match self.rng.below(400) {
            0 => "n".repeat(255),
            1 => "t".repeat(256),
            _ => format!("n{}", self.rng.below(self.taste.names)),
        }
    }

    /// A path that exists, not the root where there is anything else.
    fn existing(&mut self, wanted: impl Fn(&Body) -> bool) -> Option<Path> {
        let mut paths = self.model.paths();
        paths.retain(|(_, ino)| *ino != ROOT && wanted(&self.model.node(*ino).body));
        if paths.is_empty() { None } else { Some(self.rng.pick(&paths).0.clone()) }
    }

    fn directory(&mut self) -> Path {
        let mut paths = self.model.paths();
        paths.retain(|(path, ino)| {
            path.0.len() < self.taste.depth_max && self.model.node(*ino).is_dir()
        });
        self.rng.pick(&paths).0.clone()
    }

    /// A place for something new, often free.
    fn place(&mut self) -> Path {
        if self.rng.chance(30_000)
            && let Some(path) = self.existing(|_| true)
        {
            return path.join("below");
        }
        let name = self.name();
        self.directory().join(&name)
    }

    /// Mostly something that exists.
    fn any(&mut self, wanted: impl Fn(&Body) -> bool) -> Path {
        if self.rng.chance(60_000) {
            return self.place();
        }
        match self.existing(wanted) {
            Some(path) => path,
            None => self.place(),
        }
    }

    fn slot(&mut self) -> u8 {
        let open = self.model.open_slots();
        if open.is_empty() { 0 } else { *self.rng.pick(&open) }
    }

    fn free_slot(&mut self) -> u8 {
        let open = self.model.open_slots();
        (0..SLOTS).find(|slot| !open.contains(slot)).unwrap_or(0)
    }

    fn mode(&mut self) -> u32 {
        *self.rng.pick(&[0o644, 0o600, 0o755, 0o700, 0o640, 0o666])
    }

    fn on_directories(&mut self) -> Op {
        match self.rng.below(10) {
            0..=5 => Op::Mkdir { path: self.place(), mode: self.mode() },
            6..=7 => Op::Rmdir { path: self.any(|body| matches!(body, Body::Dir { .. })) },
            8 => Op::Mkfifo { path: self.place(), mode: self.mode() },
            _ => {
                let target = format!("to/{}", "x".repeat(self.rng.below(80) as usize));
                Op::Symlink { path: self.place(), target }
            }
        }
    }

    fn on_names(&mut self) -> Op {
        match self.rng.below(20) {
            0..=5 => Op::Unlink { path: self.any(|body| !matches!(body, Body::Dir { .. })) },
            6 => Op::Unlink { path: self.any(|_| true) },
            7..=12 => {
                let flags = *self.rng.pick(&[0, 0, 0, 0, NOREPLACE, EXCHANGE]);
                let to = if self.rng.chance(400_000) { self.any(|_| true) } else { self.place() };
                Op::Rename { from: self.any(|_| true), to, flags }
            }
            13 => Op::LinkOpen { slot: self.slot(), to: self.place() },
            14..=15 => Op::Link {
                from: self.any(|body| !matches!(body, Body::Dir { .. })),
                to: self.place(),
            },
            16 => Op::Readlink { path: self.any(|body| matches!(body, Body::Symlink { .. })) },
            _ => Op::Stat { path: self.any(|_| true) },
        }
    }

    fn on_opens(&mut self) -> Op {
        if self.model.open_slots().len() == usize::from(SLOTS) || self.rng.chance(250_000) {
            return Op::Close { slot: self.slot() };
        }
        if self.rng.chance(60_000) {
            let (mode, excl) = (self.mode(), self.rng.chance(200_000));
            return Op::Tmpfile { path: self.directory(), slot: self.free_slot(), mode, excl };
        }
        let (trunc, append) = (self.rng.chance(150_000), self.rng.chance(250_000));
        if self.rng.chance(350_000) {
            let path = self.any(|body| matches!(body, Body::File { .. }));
            return Op::Open { path, slot: self.free_slot(), trunc, append };
        }
        let count = self.rng.range(1, self.taste.stripes_max as u64) as i32;
        let stripe = self.rng.chance(600_000).then_some((64 << 10, count));
        let (excl, mode) = (self.rng.chance(300_000), self.mode());
        Op::Create { path: self.place(), slot: self.free_slot(), excl, trunc, append, mode, stripe }
    }

    fn on_attributes(&mut self) -> Op {
        match self.rng.below(10) {
            0..=1 => Op::Chmod { path: self.any(|_| true), mode: self.mode() },
            2 => Op::Chown {
                path: self.any(|_| true),
                uid: self.rng.below(5) as u32,
                gid: self.rng.below(5) as u32,
            },
            3..=4 => {
                let (sec, nsec) =
                    (self.rng.below(2_000_000_000) as i64, self.rng.below(1_000_000_000) as u32);
                Op::Utimens { path: self.any(|_| true), sec, nsec }
            }
            5..=6 => {
                let path = self.any(|body| matches!(body, Body::File { .. }));
                Op::Truncate { path, size: self.offset() }
            }
            7 => Op::Ftruncate { slot: self.slot(), size: self.offset() },
            _ => Op::Fstat { slot: self.slot() },
        }
    }

    fn offset(&mut self) -> u64 {
        match self.rng.below(4) {
            0 => 0,
            1 => self.rng.below(5_000),
            2 => self.rng.below(self.taste.offset_max / 4_096 + 1) * 4_096,
            _ => self.rng.below(self.taste.offset_max + 1),
        }
    }

    fn len(&mut self) -> u32 {
        match self.rng.below(8) {
            0 => self.rng.below(u64::from(self.taste.write_bytes_max)) as u32,
            1..=3 => self.rng.below(20_000) as u32,
            _ => self.rng.below(300) as u32,
        }
    }

    fn on_data(&mut self) -> Op {
        let slot = self.slot();
        match self.rng.below(20) {
            0..=9 => Op::Write {
                slot,
                offset: self.offset(),
                len: self.len(),
                salt: self.rng.bits() as u8,
            },
            10 => Op::Fsync { slot },
            12 => {
                let mode = *self.rng.pick(&[0, 1, 3, 3, 16, 17, 2]);
                Op::Fallocate { slot, mode, offset: self.offset(), len: self.len() }
            }
            13 => Op::Extents {
                slot,
                offset: if self.rng.chance(500_000) { 0 } else { self.offset() },
            },
            14 => Op::CopyRange {
                from: slot,
                from_offset: self.offset(),
                to: self.slot(),
                to_offset: self.offset(),
                len: self.len(),
            },
            11 if self.rng.chance(200_000) => Op::Sync,
            _ => {
                let len = if self.rng.chance(200_000) { 2_000_000 } else { self.len() };
                Op::Read { slot, offset: self.offset(), len }
            }
        }
    }

    fn on_xattrs(&mut self) -> Op {
        let (path, name) = (
            self.any(|body| matches!(body, Body::File { .. } | Body::Dir { .. })),
            self.rng.below(4) as u8,
        );
        match self.rng.below(8) {
            0..=3 => {
                let flags = *self.rng.pick(&[0, 0, XATTR_CREATE, XATTR_REPLACE]);
                let len = if self.rng.chance(100_000) {
                    self.rng.below(3_000)
                } else {
                    self.rng.below(60)
                };
                Op::Setxattr { path, name, len: len as u32, salt: self.rng.bits() as u8, flags }
            }
            4..=5 => Op::Getxattr { path, name },
            6 => Op::Listxattr { path },
            _ => Op::Removexattr { path, name },
        }
    }

    fn on_reading(&mut self) -> Op {
        if self.rng.chance(150_000) {
            return Op::Readdir { path: self.any(|_| true), page_bytes: 4_096 };
        }
        let page_bytes = *self.rng.pick(&[1_024, 4_096, 1 << 20]);
        Op::Readdir { path: self.directory(), page_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expect;

    #[test]
    fn most_operations_make_sense_and_all_kinds_of_outcomes_come() {
        let (mut rng, mut model) = (Rng::new(1), Model::new());
        let (mut done, mut failed, mut skipped) = (0, 0, 0);
        for _ in 0..5_000 {
            let op = next_op(&mut rng, &model, &Taste::default());
            match model.apply(&op) {
                Expect::Fails(_) => failed += 1,
                Expect::Skip => skipped += 1,
                _ => done += 1,
            }
        }
        assert!(done > 3_000 && failed > 300 && skipped < 1_200, "{done} {failed} {skipped}");
        assert!(model.paths().len() > 10);
    }

    #[test]
    fn the_same_seed_gives_the_same_sequence() {
        let ops = |seed| {
            let (mut rng, mut model) = (Rng::new(seed), Model::new());
            let mut ops = Vec::new();
            for _ in 0..200 {
                let op = next_op(&mut rng, &model, &Taste::default());
                model.apply(&op);
                ops.push(op);
            }
            ops
        };
        assert_eq!(ops(5), ops(5));
        assert_ne!(ops(5), ops(6));
    }
}
