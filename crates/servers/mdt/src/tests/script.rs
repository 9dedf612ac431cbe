//! Operations as text: each line is an operation and its answer.

use std::collections::BTreeMap;

use layout::{Template, lov};
use types::{Creds, Errno, Fid};
use wire::attr::{S_IFBLK, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG};
use wire::body::{
    AttrRep, CloseFlags, CloseReq, CreateFlags, CreateReq, Disposition, FidReq, LinkReq,
    ReaddirRep, ReaddirReq, ReaddirState, RenameReq, SetattrFlags, SetattrReq, SetxattrReq,
    UnlinkReq,
};
use wire::{Attr, Opcode, SizeState, dirent};

use super::rig::Rig;
use crate::Bugs;

struct Script {
    rig: Rig,
    handles: BTreeMap<String, (AttrRep, u128)>,
}

/// Runs `lines` of `operation -> answer`; an operation without an answer must succeed.
pub(super) fn check(lines: &str) {
    check_with(Bugs::default(), lines);
}

/// The same with planted bugs.
fn check_with(bugs: Bugs, lines: &str) {
    let mut script = Script { rig: Rig::with_bugs(bugs), handles: BTreeMap::new() };
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (operation, expected) = line.split_once(" ->").unwrap_or((line, "ok"));
        let words: Vec<&str> = operation.split_whitespace().collect();
        let answer = script.step(&words).unwrap_or_else(|errno| errno.name().to_owned());
        assert_eq!(answer, expected.trim(), "{line}");
        assert_eq!(script.rig.store.fsck(), Vec::<String>::new(), "after {line}");
    }
}

/// An open with O_LOV_DELAY_CREATE's second half.
fn delays(open: Option<u32>) -> bool {
    open.is_some_and(|flags| flags & 0o20_000 != 0)
}

fn oct(text: &str) -> u32 {
    u32::from_str_radix(text, 8).expect("octal")
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

impl Script {
    /// As root: walks a path that must exist.
    fn walk(&mut self, path: &str) -> Result<Fid, Errno> {
        let creds = std::mem::take(&mut self.rig.creds);
        let mut at = Ok(Fid::ROOT);
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = at.and_then(|at| self.rig.lookup(at, name).map(|attr| attr.fid()));
        }
        self.rig.creds = creds;
        at
    }

    fn split<'p>(&mut self, path: &'p str) -> Result<(Fid, &'p str), Errno> {
        let (dir, name) = path.rsplit_once('/').expect("an absolute path");
        Ok((self.walk(dir)?, name))
    }

    fn step(&mut self, words: &[&str]) -> Result<String, Errno> {
        let ok = |_| "ok".to_owned();
        match *words {
            ["su", uid, ref groups @ ..] => {
                let mut groups = groups.iter().map(|gid| number(gid) as u32);
                let gid = groups.next().unwrap_or(number(uid) as u32);
                self.rig.creds = Creds { uid: number(uid) as u32, gid, groups: groups.collect() };
                Ok("ok".to_owned())
            }
            ["client", id] => {
                self.rig.client = u128::from(number(id));
                Ok("ok".to_owned())
            }
            ["full", on] => {
                self.rig.store.full.set(on == "on");
                Ok("ok".to_owned())
            }
            ["osts", count] => {
                *self.rig.osts.borrow_mut() = (0..number(count) as u32).collect();
                Ok("ok".to_owned())
            }
            ["commits"] => Ok(self.rig.store.commits.get().to_string()),
            ["commit"] => {
                self.rig.commit();
                Ok("ok".to_owned())
            }
            ["mkdir", path, mode] => self.make(path, S_IFDIR | oct(mode), None, b"").map(ok),
            ["mkfile", path, mode] => self.make(path, S_IFREG | oct(mode), None, b"").map(ok),
            ["mkfifo", path, mode] => self.make(path, S_IFIFO | oct(mode), None, b"").map(ok),
            ["mkblk", path, mode] => self.make(path, S_IFBLK | oct(mode), None, b"").map(ok),
            ["symlink", target, path] => self.make(path, S_IFLNK, None, target.as_bytes()).map(ok),
            ["creat", path, mode, flags, handle] => {
                let rep = self.make(path, S_IFREG | oct(mode), Some(oct(flags)), b"")?;
                Ok(self.keep(handle, rep))
            }
            ["open", path, flags, handle] => {
                let fid = self.walk(path)?;
                let rep = self.rig.open(fid, oct(flags))?;
                Ok(self.keep(handle, rep))
            }
            ["tmpfile", path, mode, flags, handle] => {
                let dir = self.walk(path)?;
                let rep = self.rig.tmpfile(dir, S_IFREG | oct(mode), oct(flags))?;
                Ok(self.keep(handle, rep))
            }
            ["linkopen", handle, path] => {
                let (parent, name) = self.split(path)?;
                let body = LinkReq {
                    fid: self.handles[handle].0.attr.fid().into(),
                    parent: parent.into(),
                    ..LinkReq::default()
                };
                self.rig.call(Opcode::MdtLink, &body, &[name.as_bytes()]).map(|_| "ok".to_owned())
            }
            ["close", handle, ref rest @ ..] => self.close(handle, rest),
            ["link", old, new] => {
                let (fid, (parent, name)) = (self.walk(old)?, self.split(new)?);
                let body = LinkReq { fid: fid.into(), parent: parent.into(), ..LinkReq::default() };
                self.rig.call(Opcode::MdtLink, &body, &[name.as_bytes()]).map(|_| "ok".to_owned())
            }
            ["unlink", path] => self.remove(path, 0),
            ["rmdir", path] => self.remove(path, 1),
            ["rename", old, new, ref flags @ ..] => {
                let ((parent, name), (new_parent, new_name)) = (self.split(old)?, self.split(new)?);
                let flags = match flags.first() {
                    Some(&"noreplace") => 1,
                    Some(&"exchange") => 2,
                    _ => 0,
                };
                let body = RenameReq {
                    parent: parent.into(),
                    new_parent: new_parent.into(),
                    flags,
                    ..RenameReq::default()
                };
                self.rig
                    .call(Opcode::MdtRename, &body, &[name.as_bytes(), new_name.as_bytes()])
                    .map(|_| "ok".to_owned())
            }
            ["chmod", path, mode] => {
                self.set(path, SetattrFlags::MODE, Attr { mode: oct(mode), ..Attr::default() })
            }
            ["chown", path, uid, gid] => {
                let valid = SetattrFlags::UID.when(uid != "-") | SetattrFlags::GID.when(gid != "-");
                let id = |text: &str| text.parse().unwrap_or(0);
                self.set(path, valid, Attr { uid: id(uid), gid: id(gid), ..Attr::default() })
            }
            ["truncate", path, size] => {
                self.set(path, SetattrFlags::SIZE, Attr { size: number(size), ..Attr::default() })
            }
            ["killcap", path] => self.set(path, SetattrFlags::KILL_CAPABILITY, Attr::default()),
            ["touch", path] => {
                self.set(path, SetattrFlags::ATIME_NOW | SetattrFlags::MTIME_NOW, Attr::default())
            }
            ["utimes", path, time] => {
                let time = number(time) as i64;
                self.set(
                    path,
                    SetattrFlags::ATIME | SetattrFlags::MTIME,
                    Attr { atime: time, mtime: time, ..Attr::default() },
                )
            }
            ["readat", path, time] => {
                let atime = number(time) as i64;
                self.set(path, SetattrFlags::READ_AT, Attr { atime, ..Attr::default() })
            }
            ["times", path] => {
                let fid = self.walk(path)?;
                let attr = self.rig.getattr(fid)?.0.attr;
                Ok(format!(
                    "{} {} {}",
                    attr.atime,
                    attr.mtime,
                    if attr.ctime == attr.mtime { "same" } else { "changed" }
                ))
            }
            ["known", path, size, ref stripes @ ..] => {
                let fid = self.walk(path)?;
                let epoch = self.rig.getattr(fid)?.0.write_epoch;
                self.known(fid, number(size), epoch, stripes.first().map_or(0, |bits| number(bits)))
            }
            ["stripes", path] => {
                let fid = self.walk(path)?;
                Ok(self.rig.getattr(fid)?.0.stripes.to_string())
            }
            ["stat", path] => self.stat(path),
            ["layout", path] => self.layout(path),
            ["ls", path] => self.list(path),
            ["paths", path] => {
                let fid = self.walk(path)?;
                let reply = self.rig.call(
                    Opcode::MdtFid2path,
                    &FidReq { fid: fid.into(), ..FidReq::default() },
                    &[],
                )?;
                Ok(String::from_utf8_lossy(&reply.buf(1)).trim_end_matches('\0').replace('\0', " "))
            }
            ["readlink", path] => {
                let fid = self.walk(path)?;
                let reply = self.rig.call(
                    Opcode::MdtReadlink,
                    &FidReq { fid: fid.into(), ..FidReq::default() },
                    &[],
                )?;
                Ok(String::from_utf8_lossy(&reply.buf(1)).into_owned())
            }
            ["setx", path, name, value, ref flags @ ..] => self.set_xattr(
                path,
                name,
                value.as_bytes(),
                flags.first().map_or(0, |flags| number(flags) as u32),
            ),
            ["setstripe", path, count, start] => {
                let template = Template {
                    stripe_count: count.parse().expect("a count"),
                    start: start.parse().expect("an index"),
                    ..Template::default()
                };
                self.set_xattr(path, "lustre.lov", &lov::encode_dir(&template), 0)
            }
            ["setlist", path, ref osts @ ..] => {
                let osts = osts.iter().map(|ost| number(ost) as u32).collect();
                self.set_xattr(
                    path,
                    "lustre.lov",
                    &lov::encode_dir(&Template { osts, ..Template::default() }),
                    0,
                )
            }
            // What `getfattr` showed of another file.
            ["setlike", path, like] => {
                let fid = self.walk(like)?;
                let body = FidReq { fid: fid.into(), ..FidReq::default() };
                let value = self.rig.call(Opcode::MdtGetxattr, &body, &[b"lustre.lov"])?.buf(1);
                self.set_xattr(path, "lustre.lov", &value, 0)
            }
            ["setlov", path, magic] => {
                let magic = u32::from_str_radix(magic, 16).expect("hexadecimal");
                self.set_xattr(
                    path,
                    "lustre.lov",
                    &[&magic.to_le_bytes()[..], &[0; 44]].concat(),
                    0,
                )
            }
            ["osts_of", path] => {
                let fid = self.walk(path)?;
                let (_, record) = self.rig.getattr(fid)?;
                Ok(layout::osts_of(&record))
            }
            ["setacl", name, path, ref entries @ ..] => {
                self.set_xattr(path, name, &acl(entries), 0)
            }
            ["getx", path, name] => {
                let fid = self.walk(path)?;
                let reply = self.rig.call(
                    Opcode::MdtGetxattr,
                    &FidReq { fid: fid.into(), ..FidReq::default() },
                    &[name.as_bytes()],
                )?;
                Ok(String::from_utf8_lossy(&reply.buf(1)).into_owned())
            }
            ["rmx", path, name] => {
                let fid = self.walk(path)?;
                self.rig
                    .call(
                        Opcode::MdtRemovexattr,
                        &FidReq { fid: fid.into(), ..FidReq::default() },
                        &[name.as_bytes()],
                    )
                    .map(|_| "ok".to_owned())
            }
            ["listx", path] => {
                let fid = self.walk(path)?;
                let reply = self.rig.call(
                    Opcode::MdtListxattr,
                    &FidReq { fid: fid.into(), ..FidReq::default() },
                    &[],
                )?;
                Ok(String::from_utf8_lossy(&reply.buf(1)).trim_end_matches('\0').replace('\0', " "))
            }
            ["destroys"] => Ok(self.rig.store.table(osd::Table::Destroys).len().to_string()),
            ["inodes"] => Ok(self.rig.store.table(osd::Table::Inodes).len().to_string()),
            _ => panic!("no such operation: {words:?}"),
        }
    }

    fn keep(&mut self, handle: &str, rep: AttrRep) -> String {
        self.handles.insert(handle.to_owned(), (rep, self.rig.client));
        let mut words = Vec::new();
        if rep.disposition.contains(Disposition::CREATED) {
            words.push("created");
        }
        if rep.disposition.contains(Disposition::TRUNCATE) {
            words.push("truncate");
        }
        if words.is_empty() { "ok".to_owned() } else { words.join(" ") }
    }

    fn make(
        &mut self,
        path: &str,
        mode: u32,
        open: Option<u32>,
        target: &[u8],
    ) -> Result<AttrRep, Errno> {
        let (parent, name) = self.split(path)?;
        let body = CreateReq {
            parent: parent.into(),
            mode,
            umask: 0o022,
            open_flags: open.unwrap_or(0),
            flags: CreateFlags::OPEN.when(open.is_some())
                | CreateFlags::NO_LAYOUT.when(delays(open)),
            ..CreateReq::default()
        };
        Ok(self.rig.call(Opcode::MdtCreate, &body, &[name.as_bytes(), target])?.body())
    }

    fn remove(&mut self, path: &str, is_dir: u32) -> Result<String, Errno> {
        let (parent, name) = self.split(path)?;
        let body = UnlinkReq { parent: parent.into(), is_dir, reserved: 0 };
        self.rig.call(Opcode::MdtUnlink, &body, &[name.as_bytes()]).map(|_| "ok".to_owned())
    }

    fn close(&mut self, handle: &str, rest: &[&str]) -> Result<String, Errno> {
        let (rep, client) = self.handles[handle];
        let before = std::mem::replace(&mut self.rig.client, client);
        let mut body =
            CloseReq { fid: rep.attr.fid().into(), handle: rep.handle, ..CloseReq::default() };
        match *rest {
            ["wrote", size, ref stripes @ ..] => {
                body.stripes = stripes.first().map_or(0, |bits| number(bits));
                body.flags = CloseFlags::SIZE | CloseFlags::WROTE;
                (body.size, body.blocks, body.write_epoch) = (number(size), 8, rep.write_epoch);
                body.mtime = self.rig.clock.get() + 1;
            }
            ["wrote"] => body.flags = CloseFlags::WROTE,
            _ => {}
        }
        let outcome = self.rig.call(Opcode::MdtClose, &body, &[]).map(|_| "ok".to_owned());
        self.rig.client = before;
        outcome
    }

    fn set(&mut self, path: &str, valid: SetattrFlags, attr: Attr) -> Result<String, Errno> {
        let fid = self.walk(path)?;
        let body = SetattrReq { attr: attr.with_fid(fid), valid, ..SetattrReq::default() };
        let rep: AttrRep = self.rig.call(Opcode::MdtSetattr, &body, &[])?.body();
        Ok(if rep.disposition == Disposition::TRUNCATE { "truncate" } else { "ok" }.to_owned())
    }

    fn known(
        &mut self,
        fid: Fid,
        size: u64,
        write_epoch: u64,
        stripes: u64,
    ) -> Result<String, Errno> {
        let attr = Attr { size, ..Attr::default() }.with_fid(fid);
        let body = SetattrReq {
            attr,
            valid: SetattrFlags::SIZE_KNOWN,
            write_epoch,
            stripes,
            ..SetattrReq::default()
        };
        self.rig.call(Opcode::MdtSetattr, &body, &[]).map(|_| "ok".to_owned())
    }

    fn set_xattr(
        &mut self,
        path: &str,
        name: &str,
        value: &[u8],
        flags: u32,
    ) -> Result<String, Errno> {
        let fid = self.walk(path)?;
        let body = SetxattrReq { fid: fid.into(), flags, ..SetxattrReq::default() };
        self.rig
            .call(Opcode::MdtSetxattr, &body, &[name.as_bytes(), value])
            .map(|_| "ok".to_owned())
    }

    /// Mode, links, owner, size, state of the size.
    fn stat(&mut self, path: &str) -> Result<String, Errno> {
        let (parent, name) = self.split(path)?;
        let attr = if name.is_empty() {
            self.rig.getattr(parent)?.0.attr
        } else {
            self.rig.lookup(parent, name)?
        };
        let state = match attr.size_state() {
            SizeState::NeverWritten => "never",
            SizeState::Clean => "clean",
            SizeState::Dirty => "dirty",
        };
        Ok(format!(
            "{:o} {} {}:{} {} {state}",
            attr.mode & 0o7777,
            attr.nlink,
            attr.uid,
            attr.gid,
            attr.size
        ))
    }

    fn layout(&mut self, path: &str) -> Result<String, Errno> {
        let fid = self.walk(path)?;
        let (_, record) = self.rig.getattr(fid)?;
        Ok(match layout::record_of(&record) {
            Some((count, first)) => format!("{count} from {first}"),
            None => "none".to_owned(),
        })
    }

    fn list(&mut self, path: &str) -> Result<String, Errno> {
        let fid = self.walk(path)?;
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let body =
                ReaddirReq { fid: fid.into(), cookie, entries_max: 2, ..ReaddirReq::default() };
            let reply = self.rig.call(Opcode::MdtReaddir, &body, &[])?;
            let page = dirent::decode(&reply.buf(1)).expect("our own bytes");
            let rep: ReaddirRep = reply.body();
            assert_eq!(rep.count as usize, page.len());
            for entry in page {
                assert!(entry.cookie > cookie, "cookies rise");
                cookie = entry.cookie;
                names.push(String::from_utf8_lossy(&entry.name).into_owned());
            }
            if rep.at_end.contains(ReaddirState::AT_END) {
                break;
            }
        }
        names.sort();
        Ok(names.join(" "))
    }
}

fn acl(entries: &[&str]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for entry in entries {
        let (tag, perm) = entry.split_once(':').expect("tag:perm");
        let (code, id): (u16, u32) = match (&tag[..1], &tag[1..]) {
            ("u", "") => (1, u32::MAX),
            ("u", id) => (2, id.parse().expect("a number")),
            ("g", "") => (4, u32::MAX),
            ("g", id) => (8, id.parse().expect("a number")),
            ("m", _) => (16, u32::MAX),
            _ => (32, u32::MAX),
        };
        out.extend_from_slice(&code.to_le_bytes());
        out.extend_from_slice(&perm.parse::<u16>().expect("a number").to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out
}

/// What a layout record says, in words.
mod layout {
    use ::layout::Striping;
    pub(super) use ::layout::{Asked, Template, lov};
    use types::Fid;

    /// OSTs of a file's stripes.
    pub(super) fn osts_of(record: &[u8]) -> String {
        let Striping::Layout(layout) = Striping::decode(Fid::ZERO, record).expect("our own bytes")
        else {
            return "none".to_owned();
        };
        layout.osts().map(|ost| ost.to_string()).collect::<Vec<_>>().join(" ")
    }

    /// Stripe count and first OST (-1: any).
    pub(super) fn record_of(record: &[u8]) -> Option<(i32, i64)> {
        match Striping::decode(Fid::ZERO, record).expect("our own bytes") {
            Striping::None => None,
            Striping::Layout(layout) => {
                Some((layout.stripes() as i32, layout.osts().next().map_or(-1, i64::from)))
            }
            Striping::Template(Asked::Plain(template)) => {
                Some((template.stripe_count, i64::from(template.start)))
            }
            Striping::Template(Asked::Composite(_)) => None,
        }
    }
}

mod cases;
mod posix;
