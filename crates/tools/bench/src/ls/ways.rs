//! Ways to get the attributes of all files of a directory.

use std::collections::VecDeque;
use std::fmt;

use anyhow::{Context, Result};
use client::{Attr, Client, Ctx, DirPage, Listing, Looked, Objects};
use env::Env;
use tokio::sync::oneshot;
use types::{Fid, Instant, Span};

use super::LsArgs;

/// Bytes of a page: as many as a reply has.
const PAGE_BYTES: u32 = 1 << 20;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// One file after another, and its objects so.
    OneByOne(Objects),
    /// Getattrs of so many files in flight.
    Statahead { window: usize, agl: bool },
    /// Whole pages.
    Nacre,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::OneByOne(Objects::InTurn) => f.write_str("2x-sync"),
            Way::OneByOne(Objects::Together) => f.write_str("1x-parallel"),
            Way::Statahead { window, agl: false } => write!(f, "statahead {window}"),
            Way::Statahead { window, agl: true } => write!(f, "statahead+agl {window}"),
            Way::Nacre => f.write_str("nacre"),
        }
    }
}

/// What a mount is set to for a way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Mount options.
    pub(super) options: &'static str,
    /// Parameters of `llite.*`, by their last part.
    pub(super) params: Vec<(&'static str, String)>,
}

impl Way {
    /// The way as settings of a mount.
    pub(super) fn settings(self) -> Settings {
        let (window, agl) = match self {
            Way::Nacre => return Settings { options: "", params: Vec::new() },
            Way::OneByOne(_) => (0, false),
            Way::Statahead { window, agl } => (window, agl),
        };
        let mut params = vec![
            ("som", "0".to_owned()),
            ("glimpse_batch", "1".to_owned()),
            ("statahead_max", window.to_string()),
            ("statahead_agl", u8::from(agl).to_string()),
        ];
        if self == Way::OneByOne(Objects::InTurn) {
            params.push(("glimpse_in_flight", "1".to_owned()));
        }
        Settings { options: "noreaddirplus", params }
    }

    /// Those that are asked for.
    pub(super) fn all(args: &LsArgs) -> Result<Vec<Way>> {
        let mut ways = Vec::new();
        for name in &args.ways {
            let windows = args.windows.iter();
            match &name[..] {
                "2x-sync" => ways.push(Way::OneByOne(Objects::InTurn)),
                "1x-parallel" => ways.push(Way::OneByOne(Objects::Together)),
                "statahead" => {
                    ways.extend(
                        windows.map(|window| Way::Statahead { window: *window, agl: false }),
                    );
                }
                "statahead+agl" => {
                    ways.extend(
                        windows.map(|window| Way::Statahead { window: *window, agl: true }),
                    );
                }
                "nacre" => ways.push(Way::Nacre),
                other => anyhow::bail!(
                    "no way '{other}': 2x-sync, 1x-parallel, statahead, statahead+agl or nacre"
                ),
            }
        }
        Ok(ways)
    }

    /// Lists the directory, as far as the time allows but for the last way. Returns the files whose
    /// attributes are known.
    pub(super) async fn list(
        self,
        env: &Env,
        client: &Client,
        dir: Fid,
        limit: Span,
    ) -> Result<u64> {
        if self != Way::Nacre {
            client.set_glimpse_batch(1);
        }
        let mut scan =
            Scan { env: env.clone(), client: client.clone(), dir, until: env.now() + limit };
        match self {
            Way::OneByOne(objects) => scan.one_by_one(objects).await,
            Way::Statahead { window, agl } => scan.ahead(window, agl).await,
            Way::Nacre => scan.pages().await,
        }
    }
}

/// One pass over a directory.
struct Scan {
    env: Env,
    client: Client,
    dir: Fid,
    until: Instant,
}

impl Scan {
    fn is_late(&self) -> bool {
        self.env.now() >= self.until
    }

    async fn one_by_one(&mut self, objects: Objects) -> Result<u64> {
        let me = Ctx::root();
        let mut names = Names::new(self);
        let mut files = 0;
        while let Some(name) = names.next(self).await? {
            let looked = self.client.look(&me, self.dir, &name).await?;
            self.client.ask_objects(&me, looked, objects).await?;
            files += 1;
            if self.is_late() {
                break;
            }
        }
        Ok(files)
    }

    /// What is asked ahead comes back in the order of the directory.
    async fn ahead(&mut self, window: usize, agl: bool) -> Result<u64> {
        let me = Ctx::root();
        let mut names = Names::new(self);
        let mut ahead: VecDeque<oneshot::Receiver<client::Result<Asked>>> = VecDeque::new();
        let (mut files, mut ended) = (0, false);
        loop {
            while !ended && ahead.len() < window {
                match names.next(self).await? {
                    Some(name) => ahead.push_back(self.ask(name, agl)),
                    None => ended = true,
                }
            }
            let Some(first) = ahead.pop_front() else { return Ok(files) };
            match first.await.context("each is answered")?? {
                Asked::Whole(attr) => assert!(attr.nlink > 0),
                Asked::Without(looked) => {
                    self.client.ask_objects(&me, *looked, Objects::Together).await?;
                }
            }
            files += 1;
            if self.is_late() {
                return Ok(files);
            }
        }
    }

    fn ask(&self, name: Vec<u8>, agl: bool) -> oneshot::Receiver<client::Result<Asked>> {
        let (done, wait) = oneshot::channel();
        let (client, dir) = (self.client.clone(), self.dir);
        self.env.spawn("ahead", async move {
            let me = Ctx::root();
            let asked = async {
                let looked = client.look(&me, dir, &name).await?;
                if !agl {
                    return Ok(Asked::Without(Box::new(looked)));
                }
                client.ask_objects(&me, looked, Objects::Together).await.map(Asked::Whole)
            };
            let _the_pass_is_over = done.send(asked.await);
        });
        wait
    }

    /// The next page is on its way while the sizes of one are asked for.
    async fn pages(&mut self) -> Result<u64> {
        let me = Ctx::root();
        let listing = Listing::new(self.dir);
        let mut page = self.client.readdir_on(&me, &listing, 0, PAGE_BYTES).await?;
        let mut files = 0;
        loop {
            let last = page.entries.last().map_or(0, |entry| entry.cookie);
            let next = async {
                match page.at_end {
                    true => Ok(None),
                    false => {
                        self.client.readdir_on(&me, &listing, last, PAGE_BYTES).await.map(Some)
                    }
                }
            };
            let mut whole: DirPage = page.clone();
            let (completed, next) = tokio::join!(self.client.complete_page(&me, &mut whole), next);
            completed?;
            files += whole.entries.iter().filter(|entry| entry.has_attr).count() as u64;
            match next? {
                Some(next) => page = next,
                None => return Ok(files),
            }
        }
    }
}

/// What came ahead of its use.
enum Asked {
    Whole(Attr),
    /// Without the objects' word.
    Without(Box<Looked>),
}

/// Names of a directory, page after page.
struct Names {
    listing: Listing,
    page: std::vec::IntoIter<Vec<u8>>,
    cookie: u64,
    at_end: bool,
}

impl Names {
    fn new(scan: &Scan) -> Names {
        let listing = Listing::new(scan.dir);
        Names { listing, page: Vec::new().into_iter(), cookie: 0, at_end: false }
    }

    async fn next(&mut self, scan: &Scan) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(name) = self.page.next() {
                return Ok(Some(name));
            }
            if self.at_end {
                return Ok(None);
            }
            let me = Ctx::root();
            let page = scan.client.readdir_on(&me, &self.listing, self.cookie, PAGE_BYTES).await?;
            self.at_end = page.at_end || page.entries.is_empty();
            self.cookie = page.entries.last().map_or(self.cookie, |entry| entry.cookie);
            let names: Vec<Vec<u8>> = page.entries.into_iter().map(|entry| entry.name).collect();
            self.page = names.into_iter();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_other_settings_of_a_mount() {
        let ways = [
            Way::OneByOne(Objects::InTurn),
            Way::OneByOne(Objects::Together),
            Way::Statahead { window: 8, agl: false },
            Way::Statahead { window: 32, agl: false },
            Way::Statahead { window: 32, agl: true },
            Way::Nacre,
        ];
        let settings = ways.map(Way::settings);
        for (at, one) in settings.iter().enumerate() {
            assert!(!settings[..at].contains(one), "{one:?}");
        }
        assert_eq!(settings[5], Settings { options: "", params: Vec::new() }, "as mounts are");
        let sizes = |of: &Settings| of.params.contains(&("som", "0".to_owned()));
        assert!(settings[..5].iter().all(|of| sizes(of) && of.options == "noreaddirplus"));
        assert!(settings[3].params.contains(&("statahead_max", "32".to_owned())));
    }
}
