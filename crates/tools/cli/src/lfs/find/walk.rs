//! Walks everything below a path, one directory at a time, in directory order.

use std::cell::OnceCell;
use std::fs::{self, Metadata, ReadDir};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use layout::dir::Stripes;
use layout::lov::LovAny;

use super::COMMAND;
use crate::Failed;
use crate::lfs::ids;
use crate::{lmv, lov};

/// A file that was found. What it costs a request to know is asked once, and only when somebody
/// wants to know.
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// As `-type` says it.
    pub(super) kind: char,
    pub(super) depth: usize,
    stat: OnceCell<Metadata>,
    lov: OnceCell<Option<LovAny>>,
    stripes: OnceCell<Option<Stripes>>,
    mdt: OnceCell<u32>,
}

impl Found {
    fn new(path: PathBuf, kind: fs::FileType, depth: usize) -> Found {
        Found {
            path,
            kind: letter(kind),
            depth,
            stat: OnceCell::new(),
            lov: OnceCell::new(),
            stripes: OnceCell::new(),
            mdt: OnceCell::new(),
        }
    }

    fn fail(&self, error: &std::io::Error) -> Failed {
        Failed::io(error, COMMAND, &self.path.display().to_string())
    }

    pub(super) fn stat(&self) -> Result<&Metadata, Failed> {
        if let Some(stat) = self.stat.get() {
            return Ok(stat);
        }
        let stat = fs::symlink_metadata(&self.path).map_err(|error| self.fail(&error))?;
        Ok(self.stat.get_or_init(|| stat))
    }

    /// Whether it is a file without bytes or a directory without names.
    pub(super) fn is_empty(&self) -> Result<bool, Failed> {
        match self.kind {
            'f' => Ok(self.stat()?.len() == 0),
            'd' => fs::read_dir(&self.path)
                .map(|mut names| names.next().is_none())
                .map_err(|error| self.fail(&error)),
            _ => Ok(false),
        }
    }

    /// Its layout, or a directory's own default.
    pub(super) fn lov(&self) -> Result<Option<&LovAny>, Failed> {
        if !matches!(self.kind, 'f' | 'd') {
            return Ok(None);
        }
        if let Some(lov) = self.lov.get() {
            return Ok(lov.as_ref());
        }
        let lov = lov::of(&self.path, COMMAND)?;
        Ok(self.lov.get_or_init(|| lov).as_ref())
    }

    /// The shards of a striped directory.
    pub(super) fn stripes(&self) -> Result<Option<&Stripes>, Failed> {
        if let Some(stripes) = self.stripes.get() {
            return Ok(stripes.as_ref());
        }
        let stripes = lmv::stripes(&self.path, COMMAND)?;
        Ok(self.stripes.get_or_init(|| stripes).as_ref())
    }

    /// Index of its MDT.
    pub(super) fn mdt(&self) -> Result<u32, Failed> {
        if let Some(mdt) = self.mdt.get() {
            return Ok(*mdt);
        }
        let mdt = ids::fid_of(&self.path)?.mdt_index();
        Ok(*self.mdt.get_or_init(|| mdt))
    }
}

fn letter(kind: fs::FileType) -> char {
    match kind {
        _ if kind.is_dir() => 'd',
        _ if kind.is_symlink() => 'l',
        _ if kind.is_fifo() => 'p',
        _ if kind.is_socket() => 's',
        _ if kind.is_block_device() => 'b',
        _ if kind.is_char_device() => 'c',
        _ => 'f',
    }
}

/// Tells `see` of `path` and all that is below it, down to `depth_max` levels; and of what could
/// not be read.
pub(super) fn walk(path: &Path, depth_max: usize, see: &mut dyn FnMut(Result<Found, Failed>)) {
    let fail = |path: &Path, error: &std::io::Error| {
        Failed::io(error, COMMAND, &path.display().to_string())
    };
    let stat = match fs::symlink_metadata(path) {
        Ok(stat) => stat,
        Err(error) => return see(Err(fail(path, &error))),
    };
    see(Ok(Found::new(path.to_owned(), stat.file_type(), 0)));
    let mut open: Vec<ReadDir> = Vec::new();
    let enter = |dir: &Path,
                 open: &mut Vec<ReadDir>,
                 see: &mut dyn FnMut(Result<Found, Failed>)| match fs::read_dir(dir)
    {
        Ok(entries) => open.push(entries),
        Err(error) => see(Err(fail(dir, &error))),
    };
    if stat.is_dir() && depth_max > 0 {
        enter(path, &mut open, see);
    }
    while let Some(entries) = open.last_mut() {
        let Some(entry) = entries.next() else {
            open.pop();
            continue;
        };
        let depth = open.len();
        let (below, kind) = match entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))) {
            Ok(found) => found,
            Err(error) => {
                see(Err(fail(path, &error)));
                continue;
            }
        };
        see(Ok(Found::new(below.clone(), kind, depth)));
        if kind.is_dir() && depth < depth_max {
            enter(&below, &mut open, see);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_seen_whole_down_to_the_depth() {
        let dir = std::env::temp_dir().join(format!("nacre-walk-{}", std::process::id()));
        fs::create_dir_all(dir.join("a/b/c")).expect("directories");
        fs::write(dir.join("a/f"), "").expect("a file");
        std::os::unix::fs::symlink("a", dir.join("l")).expect("a link");
        let below = |depth_max| {
            let mut seen = Vec::new();
            walk(&dir, depth_max, &mut |found| {
                let found = found.unwrap_or_else(|failed| panic!("{}", failed.text));
                seen.push(format!(
                    "{}{} {}",
                    found.kind,
                    found.depth,
                    found.path.strip_prefix(&dir).expect("below").display()
                ));
            });
            seen.sort();
            seen
        };
        assert_eq!(below(9), ["d0 ", "d1 a", "d2 a/b", "d3 a/b/c", "f2 a/f", "l1 l"]);
        assert_eq!(below(1), ["d0 ", "d1 a", "l1 l"]);
        assert_eq!(below(0), ["d0 "]);
        fs::remove_dir_all(&dir).expect("removed");
        let mut errors = 0;
        walk(&dir, 1, &mut |found| {
            errors += usize::from(found.is_err_and(|failed| failed.status == 2))
        });
        assert_eq!(errors, 1);
    }
}
