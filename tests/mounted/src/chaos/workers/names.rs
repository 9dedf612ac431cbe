//! Files that are created, renamed, renamed over each other and removed. Each step is checked
//! through the other mount.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use super::{Worker, pause, with_ost};
use crate::chaos::chance::Chance;
use crate::chaos::found::{Found, Kind};
use crate::chaos::life::{BELIEVED, Life, Over};
use crate::chaos::times::{Nodes, mount, name};

const DIR: &str = "names";
/// Files that a life keeps.
const KEPT: usize = 24;

/// What a name holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    text: Vec<u8>,
    is_synced: bool,
    /// What was done to it, with the time of each step.
    steps: Vec<String>,
}

impl Entry {
    fn step(&mut self, now: Duration, done: &str) {
        self.steps.push(format!("{done} at {:.2} s", now.as_secs_f64()));
    }
}

/// What one life did.
#[derive(Default)]
struct Story {
    /// Begins each of its names.
    prefix: String,
    entries: BTreeMap<String, Entry>,
    /// Names that something was done to since the last fsync that covers them.
    loose: BTreeSet<String>,
    /// All of it is durable: the names are these and no others.
    is_whole: bool,
}

pub(super) struct Names {
    index: usize,
    stories: Vec<Story>,
    chance: Chance,
}

fn content(name: &str, len: usize) -> Vec<u8> {
    name.bytes().chain([b' ']).cycle().take(len).collect()
}

impl Names {
    pub(super) fn new(index: usize, chance: Chance) -> Names {
        Names { index, stories: Vec::new(), chance }
    }

    fn one(&mut self, life: &Life<'_>, number: u64) -> Result<(), Over> {
        let story = self.stories.last_mut().expect("of this life");
        let first = format!("{DIR}/{}n{number}", story.prefix);
        let size = if self.chance.one_in(4) { 100_000 } else { 2_000 };
        story.create(life, &first, self.chance.below(size) as usize)?;
        if self.chance.one_in(4) {
            story.sync(life, &first)?;
        }
        let known: Vec<String> = story.entries.keys().cloned().collect();
        let drawn = known[self.chance.below(known.len() as u64) as usize].clone();
        let last = match self.chance.below(3) {
            0 => first,
            1 if drawn != first => story.rename(life, &first, &drawn)?,
            _ => {
                let fresh = format!("{DIR}/{}r{number}", story.prefix);
                story.rename(life, &first, &fresh)?
            }
        };
        if self.chance.one_in(3) {
            story.look_through_the_other(life, &last)?;
        }
        if self.chance.one_in(6) {
            story.sync(life, &last)?;
        }
        if drawn != last && (story.entries.len() > KEPT || self.chance.one_in(8)) {
            story.remove(life, &drawn)?;
        }
        Ok(())
    }
}

impl Story {
    fn create(&mut self, life: &Life<'_>, name: &str, len: usize) -> Result<(), Over> {
        let (at, text) = (life.at(name), content(name, len));
        self.loose.insert(name.to_owned());
        life.call("create and write", &at, || File::create_new(&at)?.write_all(&text))?;
        let mut entry = Entry { text, is_synced: false, steps: Vec::new() };
        entry.step(life.now(), &format!("made as {name}"));
        self.entries.insert(name.to_owned(), entry);
        Ok(())
    }

    fn rename(&mut self, life: &Life<'_>, from: &str, to: &str) -> Result<String, Over> {
        self.loose.extend([from.to_owned(), to.to_owned()]);
        let at = life.at(to);
        life.call("rename", &at, || fs::rename(life.at(from), &at))?;
        let mut entry = self.entries.remove(from).expect("it was made");
        entry.step(life.now(), &format!("renamed to {to}"));
        entry.is_synced = false;
        self.entries.insert(to.to_owned(), entry);
        life.count("renames");
        self.look_that_it_is_gone(life, from)?;
        Ok(to.to_owned())
    }

    fn remove(&mut self, life: &Life<'_>, name: &str) -> Result<(), Over> {
        if !self.entries.contains_key(name) {
            return Ok(());
        }
        self.loose.insert(name.to_owned());
        let at = life.at(name);
        life.call("unlink", &at, || fs::remove_file(&at))?;
        self.entries.remove(name);
        self.look_that_it_is_gone(life, name)
    }

    fn sync(&mut self, life: &Life<'_>, name: &str) -> Result<(), Over> {
        let at = life.at(name);
        life.call("fsync of a file", &at, || File::open(&at)?.sync_all())?;
        self.loose.remove(name);
        let entry = self.entries.get_mut(name).expect("it is there");
        entry.is_synced = true;
        entry.step(life.now(), "fsynced");
        Ok(())
    }

    fn look_through_the_other(&self, life: &Life<'_>, name: &str) -> Result<(), Over> {
        let at = life.other(name);
        let text = &self.entries[name].text;
        // a mount that was stopped for a moment may believe what was there before
        for is_last in [false, true] {
            let read = || match fs::read(&at) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                other => other.map(Some),
            };
            let Some(there) = life.call_other("read of the other's file", &at, read) else {
                return Ok(());
            };
            if there.as_ref() == Some(text) {
                return Ok(());
            }
            if is_last {
                let len = there.map(|there| there.len());
                let text = format!("{name} at the other mount: {len:?} instead of {}", text.len());
                return Err(life.wrong(Kind::Wrong, text));
            }
            life.count("looks through the other mount that came too early");
            std::thread::sleep(BELIEVED);
        }
        Ok(())
    }

    fn look_that_it_is_gone(&self, life: &Life<'_>, name: &str) -> Result<(), Over> {
        let at = life.other(name);
        for is_last in [false, true] {
            let look = || at.try_exists();
            match life.call_other("look for a name that is gone", &at, look) {
                Some(true) if is_last => {
                    let text = format!("{name} is gone, and is there at the other mount");
                    return Err(life.wrong(Kind::Wrong, text));
                }
                Some(true) => {
                    life.count("looks through the other mount that came too early");
                    std::thread::sleep(BELIEVED);
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// All files, and all that was done to names.
    fn sync_all(&mut self, life: &Life<'_>) -> Result<(), Over> {
        let names: Vec<String> = self.entries.keys().cloned().collect();
        names.iter().try_for_each(|name| self.sync(life, name))?;
        let at = life.at(DIR);
        life.call("fsync of a directory", &at, || File::open(&at)?.sync_all())?;
        self.is_whole = true;
        Ok(())
    }

    fn verify(&self, fresh: &Path, listed: &BTreeSet<String>, found: &Found) {
        let must = |name: &str, entry: &Entry| {
            self.is_whole || (entry.is_synced && !self.loose.contains(name))
        };
        for (name, entry) in self.entries.iter().filter(|(name, entry)| must(name, entry)) {
            found.count("fsynced files", 1);
            match fs::read(fresh.join(name)) {
                Ok(there) if there == entry.text => {}
                Ok(there) => {
                    let text = format!(
                        "{name} was fsynced with {} bytes and has {} or others, {} of them zeros ({})",
                        entry.text.len(),
                        there.len(),
                        there.iter().filter(|byte| **byte == 0).count(),
                        entry.steps.join(", ")
                    );
                    found.at_the_end(Kind::Lost, text);
                }
                Err(error) => {
                    let steps = entry.steps.join(", ");
                    found.at_the_end(Kind::Lost, format!("{name} was fsynced: {error} ({steps})"));
                }
            }
        }
        if self.is_whole {
            let of_this = listed.iter().filter(|name| name.starts_with(&self.whole_prefix()));
            for name in of_this.filter(|name| !self.entries.contains_key(*name)) {
                found.at_the_end(Kind::Wrong, format!("{name} was removed, durably, and is there"));
            }
        }
    }

    fn whole_prefix(&self) -> String {
        format!("{DIR}/{}", self.prefix)
    }
}

impl Worker for Names {
    fn place(&self) -> (usize, Nodes) {
        (self.index, with_ost(3))
    }

    fn live(&mut self, life: &Life<'_>) -> Result<(), Over> {
        let prefix = format!("{}{}-", name(mount(self.index)), life.number);
        self.stories.push(Story { prefix, ..Story::default() });
        for number in 0.. {
            if !life.goes_on() {
                break;
            }
            self.one(life, number)?;
            pause(&mut self.chance);
        }
        self.stories.last_mut().expect("of this life").sync_all(life)
    }

    fn verify(&self, fresh: &Path, found: &Found) {
        let listed = match fs::read_dir(fresh.join(DIR)) {
            Ok(entries) => entries
                .flatten()
                .map(|entry| format!("{DIR}/{}", entry.file_name().to_string_lossy()))
                .collect(),
            Err(error) => return found.at_the_end(Kind::Lost, format!("{DIR}: {error}")),
        };
        self.stories.iter().for_each(|story| story.verify(fresh, &listed, found));
    }
}

#[cfg(test)]
mod tests {
    use super::{BTreeSet, Entry, Found, Story, fs};
    use crate::Scratch;

    #[test]
    fn names_that_must_be_there_and_names_that_must_not_are_looked_for() {
        let scratch = Scratch::new("chaos-names");
        fs::create_dir(scratch.path().join("names")).expect("mkdir");
        let put = |name: &str| fs::write(scratch.path().join(name), name).expect("write");
        let entry = |name: &str| Entry {
            text: name.as_bytes().to_vec(),
            is_synced: true,
            steps: Vec::new(),
        };
        let kinds = |is_whole, there: &[&str]| {
            let names = ["names/a0-n1", "names/a0-n2"];
            let story = Story {
                prefix: "a0-".to_owned(),
                entries: names.map(|name| (name.to_owned(), entry(name))).into(),
                loose: BTreeSet::from(["names/a0-n2".to_owned()]),
                is_whole,
            };
            let _from_before = fs::remove_dir_all(scratch.path().join("names"));
            fs::create_dir(scratch.path().join("names")).expect("mkdir");
            there.iter().for_each(|name| put(name));
            let (found, listed) = (Found::default(), there.iter().map(|name| (*name).to_owned()));
            story.verify(scratch.path(), &listed.collect(), &found);
            let wrong = found.wrong().1;
            wrong.into_iter().map(|wrong| format!("{:?}", wrong.kind)).collect::<Vec<_>>()
        };
        assert!(kinds(true, &["names/a0-n1", "names/a0-n2", "names/a00-n9"]).is_empty());
        assert_eq!(kinds(true, &["names/a0-n1"]), ["Lost"]);
        assert!(kinds(false, &["names/a0-n1", "names/a0-n7"]).is_empty());
        assert_eq!(kinds(false, &["names/a0-n2"]), ["Lost"]);
        assert_eq!(kinds(true, &["names/a0-n1", "names/a0-n2", "names/a0-n7"]), ["Wrong"]);
    }
}
