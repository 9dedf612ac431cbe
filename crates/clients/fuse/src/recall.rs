//! Recalls: makes the kernel forget names and attributes that another client is about to change.
//!
//! ```text
//!  attributes   NOTIFY_INVAL_INODE without a range, which waits for nothing; again while the kernel
//!               does not know the inode, whose first answer may be on its way; if it fails, they
//!               end with their time
//!  names        NOTIFY_INVAL_ENTRY, which waits for the directory's lock; whoever has it may wait
//!               for us, in a circle over two mounts: so all names are made old after 20 ms, and
//!               at once where the lock is that of a rename by this mount
//!  of dirs      the same with EXPIRE_ONLY; again later, if an answer may have given it time since
//!  the rest     (answers to changes, names without a place) ends with its short time
//! ```

use std::io;
use std::rc::{Rc, Weak};

use env::LocalFuture;
use fusedev::Name;
use futures_lite::future::{or, zip};
use types::{Fid, Span};

use crate::fs::Fs;
use crate::limits::{ANSWER_LATE, STUCK_AFTER, STUCK_FOR, TELL_AGAIN, TELLING, TELLING_MAX};
use crate::nodes::Believed;

/// The kernel of a mount, as its client calls it.
pub(crate) struct Told(pub(crate) Weak<Fs>);

impl client::Kernel for Told {
    fn forget(&self, fid: Fid, names: bool) -> Option<LocalFuture<'static, ()>> {
        self.0.upgrade()?.forget_told(fid, names)
    }

    fn drop_pages(&self, fid: Fid) -> Option<LocalFuture<'static, ()>> {
        self.0.upgrade()?.give_up_pages(fid)
    }

    fn drop_all_pages(&self, mdt: Option<u32>) {
        if let Some(fs) = self.0.upgrade() {
            fs.doubt_all_pages(mdt);
        }
    }

    fn keeps_pages(&self) -> bool {
        self.0.upgrade().is_some_and(|fs| fs.may_keep_pages())
    }

    fn forget_all(&self) -> Option<LocalFuture<'static, ()>> {
        self.0.upgrade()?.forget_all_told()
    }
}

impl Fs {
    fn forget_told(self: &Rc<Self>, fid: Fid, names: bool) -> Option<LocalFuture<'static, ()>> {
        if self.bugs.keep_called_back() {
            return None;
        }
        let now = self.env.now();
        let Believed { nodeid, is_kept, attrs_until, names_until } =
            self.nodes.borrow().believed(fid, now)?;
        let until = if names { attrs_until.max(names_until) } else { attrs_until };
        let is_forgotten = !is_kept || self.is_told_to_forget(nodeid);
        let names = match names {
            true => self.nodes.borrow().names.of(nodeid, now),
            false => Vec::new(),
        };
        tracing::debug!(nodeid, is_forgotten, names = names.len(), "called back");
        let is_done = is_forgotten && names.is_empty() && until <= now;
        if is_done || self.bugs.acknowledge_early() {
            return None;
        }
        let (fs, unknown) = (self.clone(), if is_forgotten { vec![] } else { vec![nodeid] });
        Some(Box::pin(async move {
            zip(fs.tell_again(unknown), fs.drop_names_of(nodeid, names)).await;
            fs.env.sleep_until(until).await;
        }))
    }

    fn forget_all_told(self: &Rc<Self>) -> Option<LocalFuture<'static, ()>> {
        let now = self.env.now();
        let mut unknown = self.nodes.borrow().all_believed(now);
        unknown.retain(|nodeid| !self.is_told_to_forget(*nodeid));
        let names = self.nodes.borrow().names.all(now);
        if unknown.is_empty() && names.is_empty() {
            return None;
        }
        let fs = self.clone();
        Some(Box::pin(async move {
            zip(fs.tell_again(unknown), fs.drop_names(names)).await;
        }))
    }

    /// Whether the kernel has forgotten the attributes of an inode.
    fn is_told_to_forget(&self, nodeid: u64) -> bool {
        self.nodes.borrow_mut().doubts(nodeid);
        self.notifier.inval_inode(nodeid, -1, 0).is_ok()
    }

    /// The kernel has not forgotten the attributes of inodes. If it does not know them, either it
    /// has dropped them, or the answers are on their way, and later than a caller can be late they
    /// are not. If it cannot be told, the attributes end with their time.
    async fn tell_again(&self, mut left: Vec<u64>) {
        let (mut wait, end) = (TELL_AGAIN, self.env.now() + ANSWER_LATE);
        let mut untold: Vec<(u64, io::Error)> = Vec::new();
        while self.env.now() < end && !left.is_empty() {
            self.env.sleep_until((self.env.now() + wait).min(end)).await;
            untold.clear();
            left.retain(|nodeid| self.is_left(*nodeid, &mut untold));
            wait = Span(wait.0 * 2);
        }
        if let Some((nodeid, error)) = untold.first() {
            tracing::warn!(nodeid, %error, inodes = untold.len(), "the kernel cannot be notified of a recall");
            let nodes = untold.iter().map(|(nodeid, _)| *nodeid);
            let until = nodes.map(|nodeid| self.nodes.borrow().guarded_until(nodeid)).max();
            self.env.sleep_until(until.unwrap_or_default()).await;
        }
    }

    /// Tells the kernel once more. Whether it may still have attributes of the inode; where it
    /// cannot be told, the error goes to `untold`.
    fn is_left(&self, nodeid: u64, untold: &mut Vec<(u64, io::Error)>) -> bool {
        if self.nodes.borrow().get(nodeid).is_none() {
            return false;
        }
        self.nodes.borrow_mut().doubts(nodeid);
        let Err(error) = self.notifier.inval_inode(nodeid, -1, 0) else { return false };
        if error.kind() != io::ErrorKind::NotFound {
            untold.push((nodeid, error));
        }
        true
    }

    /// Makes the kernel forget the names of a node, also those that a rename gives it meanwhile.
    async fn drop_names_of(&self, nodeid: u64, mut names: Vec<Name>) {
        while !names.is_empty() {
            self.drop_names(names).await;
            names = self.nodes.borrow().names.of(nodeid, self.env.now());
        }
    }

    /// Makes the kernel forget names.
    async fn drop_names(&self, names: Vec<Name>) {
        if names.is_empty() {
            return;
        }
        planted::reached("fuse: a name was called back");
        let start = self.env.now();
        let mut in_the_air = self.tell_names(&names).await;
        // From Linux 6.19 on it looks before it has the lock, so the answer may be on its way. A
        // directory's name stays, and any answer on its way gives it time again.
        let told_at = |name: &Name| self.nodes.borrow().names.told_at(name);
        in_the_air.retain(|name| told_at(name) + ANSWER_LATE > self.env.now());
        if let Some(last) = in_the_air.iter().map(told_at).max() {
            self.env.sleep_until(last + ANSWER_LATE).await;
            self.tell_names(&in_the_air).await;
        }
        let mut nodes = self.nodes.borrow_mut();
        for name in names {
            if nodes.names.told_at(&name) <= start {
                nodes.names.remove(&name); // it was not told again since
            }
        }
    }

    /// Returns the names that an answer under way may still bring: those that the kernel does not
    /// know, and those of directories, whose time it may renew.
    async fn tell_names(&self, names: &[Name]) -> Vec<Name> {
        if self.nodes.borrow().names.are_moving(names) && self.notifier.has_epochs() {
            // the rename may be what calls the names back: it would wait for us, and we for it
            self.make_all_old(names).await;
            return Vec::new();
        }
        let late = async {
            let telling = (TELLING.0 * names.len() as u64).min(TELLING_MAX.0);
            self.env.sleep(Span(STUCK_AFTER.0 + telling)).await;
            None
        };
        let is_of_dir = |name: &Name| self.is_of_dir(name);
        let (dirs, others): (Vec<Name>, Vec<Name>) = names.iter().cloned().partition(is_of_dir);
        let told = zip(self.notifier.inval_entries(&others), self.notifier.expire_entries(&dirs));
        let Some((removed, expired)) = or(async { Some(told.await) }, late).await else {
            self.dir_is_stuck(names).await;
            return Vec::new();
        };
        tracing::debug!(?names, ?removed, ?expired, "the kernel was notified of names");
        let mut open = Vec::new();
        let removed = others.into_iter().zip(removed).map(|(name, heard)| (name, heard, false));
        let expired = dirs.into_iter().zip(expired).map(|(name, heard)| (name, heard, true));
        for (name, heard, is_of_dir) in removed.chain(expired) {
            match heard {
                Ok(()) if !is_of_dir => {}
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%error, "the kernel cannot be notified of a name");
                    self.wait_out(std::slice::from_ref(&name)).await;
                }
                _ => open.push(name),
            }
        }
        open
    }

    /// Whether a name may stand for a directory by what the kernel was told: taken away, it would
    /// unmount what is mounted below.
    fn is_of_dir(&self, (dir, name): &Name) -> bool {
        let nodes = self.nodes.borrow();
        let node = nodes.names.node_of(*dir, name).and_then(|nodeid| nodes.get(nodeid));
        node.is_none_or(|node| node.mode & libc::S_IFMT == libc::S_IFDIR)
    }

    /// A directory stays locked: the names of the whole mount are made old instead.
    async fn dir_is_stuck(&self, names: &[Name]) {
        planted::reached("fuse: a directory was locked while a name in it was called back");
        tracing::debug!(?names, "a directory is locked: all names are made old");
        let now = self.env.now();
        if let [(dir, _)] = names {
            self.nodes.borrow_mut().stuck(*dir, now + STUCK_FOR, now);
        }
        self.make_all_old(names).await;
    }

    /// The kernel believes no name any more; if it cannot be told so, these end with their time.
    async fn make_all_old(&self, names: &[Name]) {
        match self.notifier.inc_epoch() {
            Ok(()) => {
                self.tally.made_names_old();
                self.nodes.borrow_mut().names.clear();
                self.kept_dirs.borrow_mut().lost_all();
            }
            Err(_) => self.wait_out(names).await,
        }
    }

    /// The kernel cannot be notified of names: they end with their time.
    async fn wait_out(&self, names: &[Name]) {
        let until = names.iter().map(|name| self.nodes.borrow().names.until(name)).max();
        self.env.sleep_until(until.unwrap_or_default()).await;
    }

    /// Somebody was killed who waited for a change of these names: whatever becomes of it, the
    /// kernel does not know.
    pub(crate) fn doubt_names(self: &Rc<Self>, mut names: Vec<Name>) {
        names.retain(|name| self.nodes.borrow().names.until(name) > self.env.now());
        if !names.is_empty() {
            let fs = self.clone();
            self.env.spawn("names in doubt", async move { fs.drop_names(names).await });
        }
    }
}

/// A rename under way.
pub(crate) struct Moving<'a> {
    fs: &'a Fs,
    from: Name,
    to: Name,
    is_exchange: bool,
}

impl Moving<'_> {
    /// It happened.
    pub(crate) fn done(self) {
        let (from, to) = (self.from.clone(), self.to.clone());
        let now = self.fs.env.now();
        self.fs.nodes.borrow_mut().names.moved(from, to, self.is_exchange, now);
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.fs.nodes.borrow_mut().names.moves_no_more(&self.from, &self.to);
    }
}

impl Fs {
    /// The kernel has asked for a rename.
    pub(crate) fn moving(&self, from: Name, to: Name, is_exchange: bool) -> Moving<'_> {
        self.nodes.borrow_mut().names.moves(&from, &to, is_exchange);
        Moving { fs: self, from, to, is_exchange }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use cluster::{Cluster, Scenario};
    use env::Env;
    use env_sim::NodeHandle;
    use fusedev::{Hears, InitInfo, Notifier};
    use types::{Instant, Timespec};

    use super::*;
    use crate::fs::Setup;
    use crate::guard::Guard;

    const DIR: u64 = 1;
    const FILE: u64 = 7;

    /// A kernel that looks at a name only while no caller has the directory locked.
    struct Kernel {
        env: Env,
        is_locked: Cell<bool>,
        /// What it answers where it is told of an inode.
        refuses: Cell<Option<io::ErrorKind>>,
        names: RefCell<Vec<&'static str>>,
        heard: RefCell<Vec<String>>,
        epochs: Cell<u32>,
    }

    struct Ear(Rc<Kernel>);

    impl Hears for Ear {
        fn inval_inode(&self, _: u64, _: i64, _: i64) -> io::Result<()> {
            self.0.refuses.get().map_or(Ok(()), |kind| Err(kind.into()))
        }

        fn inval_entry(&self, _: u64, name: &[u8]) -> LocalFuture<'static, io::Result<()>> {
            let name = String::from_utf8(name.to_vec()).expect("text");
            self.0.heard.borrow_mut().push(name.clone());
            let kernel = self.0.clone();
            Box::pin(async move {
                while kernel.is_locked.get() {
                    kernel.env.sleep(Span::millis(1)).await;
                }
                let mut names = kernel.names.borrow_mut();
                match names.iter().position(|known| *known == name) {
                    Some(at) => drop(names.remove(at)),
                    None => return Err(io::ErrorKind::NotFound.into()),
                }
                Ok(())
            })
        }

        fn inc_epoch(&self) -> io::Result<()> {
            self.0.epochs.set(self.0.epochs.get() + 1);
            Ok(())
        }

        fn has_epochs(&self) -> bool {
            true
        }
    }

    struct World {
        cluster: Cluster,
        node: NodeHandle,
        kernel: Rc<Kernel>,
        fs: Rc<Fs>,
    }

    /// A mount whose kernel has a directory locked.
    fn locked() -> World {
        let cluster = Cluster::new(1, &Scenario::calm());
        cluster.boot();
        let node = cluster.client_node("c", 0);
        let (client, env) = (cluster.mount(&node), node.env());
        let kernel = Rc::new(Kernel {
            env: env.clone(),
            is_locked: Cell::new(true),
            refuses: Cell::new(None),
            names: RefCell::default(),
            heard: RefCell::default(),
            epochs: Cell::new(0),
        });
        let notifier = Notifier::direct(Rc::new(Ear(kernel.clone())));
        let info = InitInfo { minor: 44, capabilities: 0, max_write: 0, max_readahead: 0 };
        let setup = Setup { notifier, ..Setup::of_test() };
        let fs = Rc::new(Fs::new(&env, client, info, setup));
        World { cluster, node, kernel, fs }
    }

    fn name(of: &str) -> Name {
        (DIR, Rc::from(of.as_bytes()))
    }

    #[test]
    fn a_name_that_is_renamed_while_it_is_called_back_is_forgotten_too() {
        let World { cluster, node, kernel, fs } = locked();
        let end = Instant(u64::MAX);
        let now = fs.env.now();
        fs.nodes.borrow_mut().names.told((DIR, b"a"), FILE, now, end);
        let (own, names) = (fs.clone(), vec![name("a")]);
        let (mover, moved) = (fs.clone(), kernel.clone());
        let both = async move {
            let renames = async {
                mover.env.sleep(Span::millis(2)).await;
                mover.moving(name("a"), name("b"), false).done(); // it is answered, then applied
                moved.names.borrow_mut().push("b");
                moved.is_locked.set(false);
            };
            zip(own.drop_names_of(FILE, names), renames).await
        };
        cluster.sim.block_on_for(&node, Span::secs(1), both).expect("at once");
        assert_eq!(
            *kernel.names.borrow(),
            [""; 0],
            "it knows none, having heard {:?}",
            kernel.heard
        );
        assert!(fs.nodes.borrow().names.of(FILE, now).is_empty());
    }

    /// How long a recall of a file waits of which the kernel believes attributes for 5 s, where it
    /// answers this.
    fn waits(refuses: Option<io::ErrorKind>) -> Span {
        let World { cluster, node, kernel, fs } = locked();
        kernel.refuses.set(refuses);
        let (fid, begun) = (Fid::new(0x2_0000_0400, 1), fs.env.now());
        fs.nodes.borrow_mut().look_up(fid, libc::S_IFREG);
        fs.nodes.borrow_mut().told(fid, begun + Span::secs(5), Guard::Version);
        let Some(forgets) = fs.forget_told(fid, false) else { return Span::ZERO };
        cluster.sim.block_on_for(&node, Span::secs(60), forgets).expect("it is over");
        fs.env.now() - begun
    }

    #[test]
    fn attributes_of_which_the_kernel_cannot_be_told_are_waited_for() {
        assert_eq!(waits(None), Span::ZERO, "it has forgotten them");
        let unknown = waits(Some(io::ErrorKind::NotFound));
        assert!((ANSWER_LATE..Span::millis(40)).contains(&unknown), "it has none: {unknown:?}");
        let untold = waits(Some(io::ErrorKind::OutOfMemory));
        assert!((Span::secs(5)..Span::secs(6)).contains(&untold), "until they end: {untold:?}");
    }

    #[test]
    fn a_locked_directory_delays_a_recovery_by_a_bounded_time() {
        let World { cluster, node, kernel, fs } = locked();
        let now = fs.env.now();
        for file in 0..100_000_u64 {
            let of = file.to_string();
            fs.nodes.borrow_mut().names.told((DIR, of.as_bytes()), file, now, Instant(u64::MAX));
        }
        let forgets = fs.forget_all_told().expect("there are names");
        cluster.sim.block_on_for(&node, Span::millis(300), forgets).expect("it is given up");
        assert_eq!(kernel.epochs.get(), 1);
        let counts = fs.tally.table(Timespec::default()).to_string();
        let row = counts.lines().next_back().expect("it is counted");
        let words: Vec<&str> = row.split_whitespace().take(2).collect();
        assert_eq!(words, ["names_made_old", "1"], "{counts}");
        kernel.is_locked.set(false);
    }

    #[test]
    fn names_of_a_directory_that_was_locked_are_kept_briefly_for_30_s() {
        let World { cluster, node, kernel, fs } = locked();
        let begun = fs.env.now();
        fs.nodes.borrow_mut().names.told((DIR, b"a"), FILE, begun, Instant(u64::MAX));
        let (own, names) = (fs.clone(), vec![name("a")]);
        let forgets = async move { own.drop_names(names).await };
        cluster.sim.block_on_for(&node, Span::secs(1), forgets).expect("it is given up");
        assert_eq!(kernel.epochs.get(), 1);
        let is_stuck = |after: Span| fs.nodes.borrow().is_stuck(DIR, begun + after);
        assert_eq!([Span::secs(29), Span::secs(31)].map(is_stuck), [true, false]);
        kernel.is_locked.set(false);
    }
}
