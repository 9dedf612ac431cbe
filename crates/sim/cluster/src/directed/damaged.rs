//! **damaged**: a value in the MDT's records differs from the stored one. Calls that need it fail
//! with EIO, and the log has its table and key. All other calls are answered as before, also after
//! a restart. A damaged client record or reply record prevents the MDT's start, with the same
//! message.

use bytes::Bytes;
use client::{Client, SetAttr};
use env_sim::NodeHandle;
use layout::Template;
use oracle::{read_names, test_ctx};
use osd::Table;
use types::{Errno, Fid, Span};

use super::{O_EXCL, O_RDWR, Stage, create};

/// Damaged records of one run.
const ROUNDS: u32 = 4;
const DIRS: usize = 2;
const FILES: usize = 4;
const STRIPE_SIZE: u64 = 64 << 10;
const SIZE: u64 = 2 * STRIPE_SIZE + 100;
const XATTR: &[u8] = b"user.salt";

/// What makes up files and names.
const OF_FILES: [Table; 5] =
    [Table::Inodes, Table::Dirents, Table::Links, Table::Xattrs, Table::Layouts];
/// What a start needs.
const OF_CLIENTS: [Table; 2] = [Table::Clients, Table::Replies];
/// A start ends, well or not, within this.
const START_MAX: Span = Span::secs(120);

/// A file with its names and content.
#[derive(Clone)]
struct Made {
    fid: Fid,
    dir: Fid,
    name: String,
    salt: u8,
}

/// A record that is damaged.
#[derive(Clone)]
struct Victim {
    table: Table,
    key: Vec<u8>,
}

impl Victim {
    fn fid(&self) -> Option<Fid> {
        Fid::from_key(self.key.get(..16)?)
    }

    /// What the log has to have.
    fn words(&self) -> String {
        let key: String = self.key.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("a record of {:?} is damaged, its key is {key}", self.table)
    }

    /// Whether a call on this file needs the record, and may be EIO.
    fn is_of_file(&self, file: &Made) -> bool {
        self.fid() == Some(file.fid) && self.table != Table::Dirents
    }

    /// The same for the names of a directory.
    fn is_of_dir(&self, dir: Fid) -> bool {
        self.fid() == Some(dir) && matches!(self.table, Table::Inodes | Table::Dirents)
    }
}

impl Stage<'_> {
    pub(super) fn damaged(&mut self) -> Result<(), String> {
        let maker = self.enter("maker");
        let files = self.make(&maker)?;
        for _ in 0..ROUNDS {
            if self.rng.chance(250_000) {
                self.start_with_damage()?;
                continue;
            }
            let Some(victim) = self.damage(&OF_FILES) else { continue };
            self.look_around(&files, Some(&victim))?;
            self.stays(&files, &victim)?;
            if self.rng.chance(500_000) {
                self.mdt().kill(self.rng.clone().chance(500_000));
                self.restarts += 1;
                self.mdt().boot();
                if let Some(why) = self.started() {
                    return Err(format!("{}: the MDT did not start: {why}", victim.words()));
                }
                self.look_around(&files, Some(&victim))?;
            }
            self.mdt().disk.mend_records();
        }
        self.look_around(&files, None)?;
        self.nothing_is_left(&maker)
    }

    fn make(&mut self, who: &(NodeHandle, Client)) -> Result<Vec<Made>, String> {
        let files = self.ask(who, "preparing", async |client| {
            let (ctx, mut made) = (test_ctx(), Vec::new());
            let striped = Template {
                stripe_size: STRIPE_SIZE as u32,
                stripe_count: 2,
                ..Template::default()
            }
            .into();
            for dir in 0..DIRS {
                let name = format!("dir{dir}");
                let dir = client.mkdir(&ctx, Fid::ROOT, name.as_bytes(), 0o777).await?.fid();
                for file in 0..FILES {
                    let (salt, name) = (made.len() as u8 + 1, format!("file{file}"));
                    let flags = O_RDWR | O_EXCL;
                    let (attr, open) = client
                        .create(&ctx, dir, name.as_bytes(), 0o666, flags, Some(&striped))
                        .await?;
                    open.write(0, content(salt)).await?;
                    open.close().await?;
                    let fid = attr.fid();
                    client.setxattr(&ctx, fid, XATTR, Bytes::from(vec![salt; 8]), 0).await?;
                    made.push(Made { fid, dir, name, salt });
                }
            }
            client.sync().await?;
            Ok(made)
        })?;
        self.cluster.sim.run_for(Span::secs(3));
        Ok(files)
    }

    /// Some record; not that of the root, without which nobody mounts.
    fn damage(&mut self, tables: &[Table]) -> Option<Victim> {
        let (disk, table) = (self.mdt().disk.clone(), *self.rng.pick(tables));
        let records = disk.records(table);
        if records.is_empty() {
            return None;
        }
        let victim = Victim { table, key: self.rng.pick(&records).0.clone() };
        if victim.fid() == Some(Fid::ROOT) {
            return None;
        }
        self.cluster.sim.narrate(&victim.words());
        disk.damage_record(victim.table, &victim.key);
        Some(victim)
    }

    /// Why the MDT did not start, if it did not.
    fn started(&mut self) -> Option<String> {
        let (cluster, index) = (self.cluster, self.cluster.mdt_index(0));
        let (server, mut failure) = (&cluster.servers[index], None);
        let is_decided = || {
            failure = server.take_failure();
            failure.is_some() || server.has_recovered()
        };
        match cluster.sim.run_until(START_MAX, is_decided) {
            true => failure,
            false => Some("it is still recovering".to_owned()),
        }
    }

    /// A start needs the records of clients.
    fn start_with_damage(&mut self) -> Result<(), String> {
        let Some(victim) = self.damage(&OF_CLIENTS) else { return Ok(()) };
        self.mdt().kill(false);
        self.restarts += 1;
        self.mdt().boot();
        match self.started() {
            Some(why) if why.contains(&victim.words()) => {}
            other => return Err(format!("{}: the start said {other:?}", victim.words())),
        }
        planted::reached("sim: a damaged record kept an MDT from starting");
        self.mdt().kill(false);
        self.mdt().disk.mend_records();
        self.mdt().boot();
        match self.started() {
            None => Ok(()),
            Some(why) => {
                Err(format!("the record is whole again, and the MDT did not start: {why}"))
            }
        }
    }

    /// A fresh client is answered rightly or, where the damaged record is needed, with EIO.
    fn look_around(&mut self, files: &[Made], victim: Option<&Victim>) -> Result<(), String> {
        let reader = self.enter("reader");
        let mut refused = 0;
        for dir in (0..DIRS).map(|dir| files[dir * FILES].dir) {
            let inside: Vec<_> = files.iter().filter(|file| file.dir == dir).collect();
            refused += self.look_at_dir(&reader, (dir, &inside), victim)?;
        }
        for file in files {
            let refused_here = self.look_at_file(&reader, file)?;
            refused += refused_here;
            if refused_here > 0 && victim.is_none_or(|victim| !victim.is_of_file(file)) {
                return Err(format!("{} is not concerned, and EIO", file.fid));
            }
        }
        reader.0.kill();
        let words = victim.map(Victim::words).unwrap_or_default();
        if refused > 0 {
            planted::reached("sim: a damaged record was EIO");
        }
        if refused > 0 && !self.cluster.sim.errors().iter().any(|line| line.contains(&words)) {
            return Err(format!("somebody was told EIO, and no line of the log has '{words}'"));
        }
        Ok(())
    }

    /// A file stays, with its name, when an attribute of it cannot be read: not everything of it
    /// could go.
    fn stays(&mut self, files: &[Made], victim: &Victim) -> Result<(), String> {
        let of_file = files.iter().find(|file| victim.is_of_file(file));
        let Some(file) = of_file.filter(|_| victim.table == Table::Xattrs) else { return Ok(()) };
        let (remover, own) = (self.enter("remover"), file.clone());
        let answer = self.ask(&remover, "removing a file", async move |client| {
            let gone = client.unlink(&test_ctx(), own.dir, own.name.as_bytes()).await;
            Ok(gone.map_err(|error| error.errno()))
        })?;
        remover.0.kill();
        match answer {
            Err(Errno::EIO) => Ok(()),
            other => Err(format!("{}: {}, and its unlink is {other:?}", file.fid, victim.words())),
        }
    }

    /// Answers with EIO.
    fn look_at_dir(
        &mut self,
        who: &(NodeHandle, Client),
        (dir, inside): (Fid, &[&Made]),
        victim: Option<&Victim>,
    ) -> Result<usize, String> {
        let fresh = format!("new{}", self.ops);
        let names: Vec<_> = inside.iter().map(|file| file.name.clone()).collect();
        let (found, listed, changed) = self.ask(who, "looking at names", async move |client| {
            let (ctx, mut found) = (test_ctx(), Vec::new());
            for name in &names {
                let attr = client.lookup(&ctx, dir, name.as_bytes()).await;
                found.push(attr.map(|attr| attr.fid()).map_err(|error| error.errno()));
            }
            let listed = read_names(client, &ctx, dir, 1 << 16).await;
            let listed = listed
                .map(|names| names.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
                .map_err(|error| error.errno());
            // what cannot be removed stays until everything is
            let changed = async {
                create(client, dir, &fresh).await?;
                client.unlink(&ctx, dir, fresh.as_bytes()).await
            };
            Ok((found, listed, changed.await.map_err(|error| error.errno())))
        })?;
        let mut refused = 0;
        for (file, found) in inside.iter().zip(&found) {
            let is_concerned =
                victim.is_some_and(|victim| victim.is_of_file(file) || victim.is_of_dir(dir));
            match found {
                Ok(fid) if *fid == file.fid => {}
                Err(Errno::EIO) if is_concerned => refused += 1,
                other => return Err(format!("{} in {dir} is found as {other:?}", file.name)),
            }
        }
        let of_entry = victim.is_some_and(|victim| victim.table == Table::Dirents);
        if of_entry && refused > 1 {
            return Err(format!("one entry of {dir} is damaged, {refused} names are EIO"));
        }
        let of_names = victim.is_some_and(|victim| {
            victim.is_of_dir(dir) || inside.iter().any(|file| victim.is_of_file(file))
        });
        let is_right = listed.as_ref().is_ok_and(|listed| {
            let mut listed = listed.clone();
            listed.retain(|name| !name.starts_with("new"));
            listed.sort();
            listed.iter().eq(inside.iter().map(|file| &file.name))
        });
        match (&listed, changed) {
            (Err(Errno::EIO), _) if of_names => refused += 1,
            _ if is_right => {}
            other => return Err(format!("{dir} has {other:?}")),
        }
        match changed {
            Ok(()) => {}
            Err(Errno::EIO) if victim.is_some_and(|victim| victim.is_of_dir(dir)) => refused += 1,
            Err(errno) => return Err(format!("nothing is made and removed in {dir}: {errno}")),
        }
        Ok(refused)
    }

    /// Answers with EIO; others must be right.
    fn look_at_file(&mut self, who: &(NodeHandle, Client), file: &Made) -> Result<usize, String> {
        let own = file.clone();
        let answers = self.ask(who, "looking at a file", async move |client| {
            let (ctx, fid) = (test_ctx(), own.fid);
            let attr = client.getattr(&ctx, fid, None).await.map(|attr| attr.size == SIZE);
            let value = client.getxattr(&ctx, fid, XATTR).await;
            let value = value.map(|value| value.iter().eq([own.salt; 8].iter()));
            let data = async {
                let open = client.open(&ctx, fid, 0).await?;
                let data = open.read(0, 2 * SIZE as usize).await;
                open.close().await?;
                Ok(data? == content(own.salt))
            };
            let data = data.await;
            let mode = SetAttr { mode: Some(0o640), ..SetAttr::default() };
            let changed = client.setattr(&ctx, fid, &mode, None).await;
            let changed = changed.map(|attr| attr.mode & 0o777 == 0o640);
            Ok([attr, value, data, changed].map(|answer| answer.map_err(|error| error.errno())))
        })?;
        if answers.iter().any(|answer| !matches!(answer, Ok(true) | Err(Errno::EIO))) {
            return Err(format!(
                "{}: attributes, xattr, data and change are {answers:?}",
                file.fid
            ));
        }
        Ok(answers.iter().filter(|answer| answer.is_err()).count())
    }
}

fn content(salt: u8) -> Bytes {
    Bytes::from(oracle::pattern(salt, SIZE as usize))
}
