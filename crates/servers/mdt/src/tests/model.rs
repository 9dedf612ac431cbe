//! Random operations against a naive model of a namespace: the same answers, the same tree, and the
//! records whole.

use std::collections::BTreeMap;

use types::{Errno, Fid, SplitMix64};
use wire::attr::{S_IFDIR, S_IFREG};
use wire::body::{CloseReq, LinkReq, ReaddirReq, RenameReq, UnlinkReq};
use wire::{Opcode, dirent};

use super::rig::Rig;

#[derive(Clone, Debug)]
struct Node {
    is_dir: bool,
    parent: usize,
    nlink: u32,
    names: BTreeMap<String, usize>,
    opens: u32,
    fid: Fid,
}

/// The namespace as anybody would write it down: nodes by number, 0 is the root.
struct Model {
    nodes: Vec<Node>,
}

impl Model {
    fn new() -> Model {
        let root = Node {
            is_dir: true,
            parent: 0,
            nlink: 2,
            names: BTreeMap::new(),
            opens: 0,
            fid: Fid::ROOT,
        };
        Model { nodes: vec![root] }
    }

    /// Whether the directory has a record still.
    fn is_there(&self, node: usize) -> bool {
        self.nodes[node].nlink > 0 || self.nodes[node].opens > 0
    }

    fn dir(&self, node: usize) -> Result<(), Errno> {
        if !self.is_there(node) {
            return Err(Errno::ESTALE);
        }
        if self.nodes[node].is_dir { Ok(()) } else { Err(Errno::ENOTDIR) }
    }

    fn find(&self, dir: usize, name: &str) -> Option<usize> {
        self.nodes[dir].names.get(name).copied()
    }

    fn create(&mut self, dir: usize, name: &str, is_dir: bool) -> Result<(), Errno> {
        self.dir(dir)?;
        if self.find(dir, name).is_some() {
            return Err(Errno::EEXIST);
        }
        if self.nodes[dir].nlink == 0 {
            return Err(Errno::ENOENT);
        }
        let nlink = if is_dir { 2 } else { 1 };
        self.nodes.push(Node {
            is_dir,
            parent: dir,
            nlink,
            names: BTreeMap::new(),
            opens: 0,
            fid: Fid::ZERO,
        });
        let node = self.nodes.len() - 1;
        self.nodes[dir].names.insert(name.to_owned(), node);
        self.nodes[dir].nlink += u32::from(is_dir);
        Ok(())
    }

    fn link(&mut self, node: usize, dir: usize, name: &str) -> Result<(), Errno> {
        self.dir(dir)?;
        if !self.is_there(node) {
            return Err(Errno::ESTALE);
        }
        if self.find(dir, name).is_some() {
            return Err(Errno::EEXIST);
        }
        if self.nodes[node].is_dir {
            return Err(Errno::EPERM);
        }
        if self.nodes[node].nlink == 0 || self.nodes[dir].nlink == 0 {
            return Err(Errno::ENOENT);
        }
        self.nodes[node].nlink += 1;
        self.nodes[dir].names.insert(name.to_owned(), node);
        Ok(())
    }

    fn drop_name(&mut self, dir: usize, node: usize) {
        if self.nodes[node].is_dir {
            self.nodes[node].nlink = 0;
            self.nodes[dir].nlink -= 1;
        } else {
            self.nodes[node].nlink -= 1;
        }
    }

    fn unlink(&mut self, dir: usize, name: &str, is_dir: bool) -> Result<(), Errno> {
        self.dir(dir)?;
        let node = self.find(dir, name).ok_or(Errno::ENOENT)?;
        match (is_dir, self.nodes[node].is_dir) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (true, true) if !self.nodes[node].names.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.nodes[dir].names.remove(name);
        self.drop_name(dir, node);
        Ok(())
    }

    fn is_below(&self, mut node: usize, dir: usize) -> bool {
        loop {
            if node == dir {
                return true;
            }
            if node == 0 {
                return false;
            }
            node = self.nodes[node].parent;
        }
    }

    fn rename(&mut self, from: (usize, &str), to: (usize, &str), flags: u32) -> Result<(), Errno> {
        self.dir(from.0)?;
        self.dir(to.0)?;
        let moved = self.find(from.0, from.1).ok_or(Errno::ENOENT)?;
        let target = self.find(to.0, to.1);
        if flags == 1 && target.is_some() {
            return Err(Errno::EEXIST);
        }
        if flags == 2 && target.is_none() {
            return Err(Errno::ENOENT);
        }
        if self.nodes[moved].is_dir && from.0 != to.0 && self.is_below(to.0, moved) {
            return Err(Errno::EINVAL);
        }
        if let Some(target) = target.filter(|target| *target != moved) {
            let (one, other) = (self.nodes[moved].is_dir, self.nodes[target].is_dir);
            if flags == 2 {
                if other && from.0 != to.0 && self.is_below(from.0, target) {
                    return Err(Errno::EINVAL);
                }
            } else if one && !other {
                return Err(Errno::ENOTDIR);
            } else if !one && other {
                return Err(Errno::EISDIR);
            } else if one && !self.nodes[target].names.is_empty() {
                return Err(Errno::ENOTEMPTY);
            }
        }
        if self.nodes[to.0].nlink == 0 {
            return Err(Errno::ENOENT);
        }
        if target == Some(moved) {
            return Ok(());
        }
        self.nodes[from.0].names.remove(from.1);
        self.nodes[from.0].nlink -= u32::from(self.nodes[moved].is_dir);
        if let Some(target) = target {
            if flags == 2 {
                self.nodes[to.0].nlink -= u32::from(self.nodes[target].is_dir);
                self.nodes[from.0].nlink += u32::from(self.nodes[target].is_dir);
                self.nodes[from.0].names.insert(from.1.to_owned(), target);
                self.nodes[target].parent = from.0;
            } else {
                self.drop_name(to.0, target);
            }
        }
        self.nodes[to.0].names.insert(to.1.to_owned(), moved);
        self.nodes[to.0].nlink += u32::from(self.nodes[moved].is_dir);
        self.nodes[moved].parent = to.0;
        Ok(())
    }
}

struct Run {
    rig: Rig,
    model: Model,
    handles: Vec<(u64, usize)>,
    chance: SplitMix64,
}

impl Run {
    fn random(&mut self, bound: usize) -> usize {
        self.chance.below(bound as u64) as usize
    }

    fn name(&mut self) -> String {
        ["a", "b", "c", "d"][self.random(4)].to_owned()
    }

    /// Any node, mostly one that is there.
    fn node(&mut self) -> usize {
        let mut node = 0;
        for _ in 0..4 {
            node = self.random(self.model.nodes.len());
            if self.model.is_there(node) {
                break;
            }
        }
        node
    }

    fn step(&mut self) -> String {
        let (dir, name) = (self.node(), self.name());
        let fid = self.model.nodes[dir].fid;
        match self.random(10) {
            0..=2 => {
                let is_dir = self.random(2) == 0;
                let mode = if is_dir { S_IFDIR | 0o755 } else { S_IFREG | 0o644 };
                let real = self.rig.create(fid, &name, mode, None);
                let model = self.model.create(dir, &name, is_dir);
                if let Ok(rep) = real {
                    self.model.nodes.last_mut().expect("made above").fid = rep.attr.fid();
                }
                compare(&format!("create {dir}/{name}"), real.map(drop), model)
            }
            3 => {
                let node = self.node();
                let body = LinkReq {
                    fid: self.model.nodes[node].fid.into(),
                    parent: fid.into(),
                    reserved: 0,
                };
                let real = self.rig.call(Opcode::MdtLink, &body, &[name.as_bytes()]).map(drop);
                compare(
                    &format!("link {node} {dir}/{name}"),
                    real,
                    self.model.link(node, dir, &name),
                )
            }
            4 | 5 => {
                let is_dir = self.random(2) == 0;
                let body = UnlinkReq { parent: fid.into(), is_dir: u32::from(is_dir), reserved: 0 };
                let real = self.rig.call(Opcode::MdtUnlink, &body, &[name.as_bytes()]).map(drop);
                compare(
                    &format!("unlink {dir}/{name}"),
                    real,
                    self.model.unlink(dir, &name, is_dir),
                )
            }
            6 | 7 => {
                let (new_dir, new_name, flags) =
                    (self.node(), self.name(), [0, 0, 1, 2][self.random(4)]);
                let new_fid = self.model.nodes[new_dir].fid;
                let body = RenameReq {
                    parent: fid.into(),
                    new_parent: new_fid.into(),
                    flags,
                    ..RenameReq::default()
                };
                let real = self
                    .rig
                    .call(Opcode::MdtRename, &body, &[name.as_bytes(), new_name.as_bytes()])
                    .map(drop);
                let model = self.model.rename((dir, &name), (new_dir, &new_name), flags);
                compare(&format!("rename {dir}/{name} {new_dir}/{new_name} {flags}"), real, model)
            }
            8 => {
                let node = self.node();
                let real = self.rig.open(self.model.nodes[node].fid, 0);
                let model = if self.model.is_there(node) { Ok(()) } else { Err(Errno::ESTALE) };
                if let Ok(rep) = &real {
                    self.handles.push((rep.handle, node));
                    self.model.nodes[node].opens += 1;
                }
                compare(&format!("open {node}"), real.map(drop), model)
            }
            _ if self.handles.is_empty() => String::new(),
            _ => {
                let place = self.random(self.handles.len());
                let (handle, node) = self.handles.swap_remove(place);
                self.model.nodes[node].opens -= 1;
                let body = CloseReq {
                    fid: self.model.nodes[node].fid.into(),
                    handle,
                    ..CloseReq::default()
                };
                let real = self.rig.call(Opcode::MdtClose, &body, &[]).map(drop);
                compare(&format!("close {node}"), real, Ok(()))
            }
        }
    }

    fn assert_same_tree(&mut self) {
        for node in 0..self.model.nodes.len() {
            let expected = self.model.nodes[node].clone();
            let found = self.rig.getattr(expected.fid).map(|(rep, _)| rep.attr.nlink);
            let there =
                if self.model.is_there(node) { Ok(expected.nlink) } else { Err(Errno::ESTALE) };
            assert_eq!(found, there, "node {node}");
            if expected.is_dir && found.is_ok() {
                let body = ReaddirReq { fid: expected.fid.into(), ..ReaddirReq::default() };
                let page =
                    self.rig.call(Opcode::MdtReaddir, &body, &[]).expect("a directory").buf(1);
                let mut real: Vec<(String, Fid)> = dirent::decode(&page)
                    .expect("our own bytes")
                    .into_iter()
                    .map(|entry| {
                        (String::from_utf8_lossy(&entry.name).into_owned(), entry.attr.fid())
                    })
                    .collect();
                real.sort();
                let names = expected
                    .names
                    .iter()
                    .map(|(name, child)| (name.clone(), self.model.nodes[*child].fid));
                assert_eq!(real, names.collect::<Vec<_>>(), "node {node}");
            }
        }
    }
}

fn compare(what: &str, real: Result<(), Errno>, model: Result<(), Errno>) -> String {
    assert_eq!(real, model, "{what}");
    what.to_owned()
}

#[test]
fn random_operations_agree_with_the_naive_model() {
    for seed in 0..30 {
        let mut run = Run {
            rig: Rig::new(),
            model: Model::new(),
            handles: Vec::new(),
            chance: SplitMix64::new(seed),
        };
        let mut log = Vec::new();
        for step in 0..400 {
            log.push(run.step());
            if step % 7 == 0 {
                assert_eq!(run.rig.store.fsck(), Vec::<String>::new(), "seed {seed}: {log:#?}");
            }
        }
        assert_eq!(run.rig.store.fsck(), Vec::<String>::new(), "seed {seed}");
        run.assert_same_tree();
    }
}
