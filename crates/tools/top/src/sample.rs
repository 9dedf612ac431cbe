//! All counters of one moment. Pure.

use std::collections::{BTreeMap, BTreeSet};

use status::ask::{Answered, Params};
use status::read;

use crate::counters::{self, Count};

/// The parameters that a sample is made of.
pub const PATTERNS: &[&str] = &[
    "{obdfilter,mdt_data}.*.{stats,export_stats,job_stats}",
    "{mdt,mdt_data,obdfilter}.*.exports",
    "mdt.*.{md_stats,export_stats,job_stats}",
    "{ost,mds,mgs,ldlm}.*.*.{stats,nrs_policies}",
];

/// A daemon's life: its name and process.
pub type Life = (String, u32);

/// The kind of a counted subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// By NID.
    Client,
    /// By job id.
    Job,
    Target,
}

/// A counted subject at one target of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub kind: Kind,
    pub life: Life,
    /// Name of the target.
    pub target: String,
    pub name: String,
}

/// A service of one daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Requests that were started.
    pub requests: u64,
    /// Sum of their waiting times in the queue, microseconds.
    pub waited_us: u64,
    /// Policy in force for regular requests.
    pub policy: String,
    /// Regular requests that each policy has started. Of metrics, which have no policy in force.
    pub started: BTreeMap<String, u64>,
    /// Requests that wait now.
    pub queued: u64,
}

/// See the head of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Daemons that have answered.
    pub lives: BTreeSet<Life>,
    pub counts: BTreeMap<Key, Count>,
    /// It is made of metrics, which have the busiest clients and jobs of each target only.
    pub is_partial: bool,
    /// Daemons that have left out series because there are too many.
    pub cut: Vec<String>,
    pub services: BTreeMap<(Life, String), Service>,
    /// Names of clients by NID.
    pub names: BTreeMap<String, String>,
    /// Daemons that have not answered.
    pub silent: Vec<String>,
}

impl Sample {
    /// Of these answers.
    #[must_use]
    pub fn of(answers: &[Answered]) -> Sample {
        let mut sample = Sample::default();
        for Answered { daemon, heard } in answers {
            match heard {
                Ok(heard) => sample.add((daemon.name.clone(), daemon.pid), &heard.params),
                Err(_) => sample.silent.push(daemon.name.clone()),
            }
        }
        sample
    }

    fn add(&mut self, life: Life, params: &Params) {
        for (name, text) in params {
            let parts: Vec<&str> = name.split('.').collect();
            match parts.as_slice() {
                [_, target, "stats" | "md_stats"] => {
                    self.count(Kind::Target, &life, target, target, counters::total(text));
                }
                [_, target, "export_stats"] => self.count_all(Kind::Client, &life, target, text),
                [_, target, "job_stats"] => self.count_all(Kind::Job, &life, target, text),
                [_, _, "exports"] => {
                    let named = read::sessions(text).into_iter();
                    self.names.extend(named.map(|session| (session.nid, session.name)));
                }
                [_, _, service, "stats"] => {
                    let (requests, waited_us) =
                        counters::one(text, counters::WAITS).unwrap_or_default();
                    let entry = self.service(&life, service);
                    (entry.requests, entry.waited_us) = (requests, waited_us);
                }
                [_, _, service, "nrs_policies"] => {
                    let Some(policies) = read::policies(text) else { continue };
                    let entry = self.service(&life, service);
                    (entry.policy, entry.queued) = (policies.regular, policies.queued);
                }
                _ => {}
            }
        }
        self.lives.insert(life);
    }

    pub(crate) fn service(&mut self, life: &Life, name: &str) -> &mut Service {
        self.services.entry((life.clone(), name.to_owned())).or_default()
    }

    fn count_all(&mut self, kind: Kind, life: &Life, target: &str, text: &str) {
        for (name, count) in counters::groups(text) {
            self.count(kind, life, target, &name, count);
        }
    }

    pub(crate) fn count(
        &mut self,
        kind: Kind,
        life: &Life,
        target: &str,
        name: &str,
        count: Count,
    ) {
        let (target, name) = (target.to_owned(), name.to_owned());
        let key = Key { kind, life: life.clone(), target, name };
        let sum = self.counts.entry(key).or_default();
        *sum = sum.plus(count);
    }
}

#[cfg(test)]
mod tests {
    use ctl::Who;
    use ctl::everywhere::Daemon;
    use status::ask::Heard;

    use super::*;

    fn daemon(name: &str) -> Daemon {
        Daemon { name: name.into(), pid: 7, socket: "/run/a".into() }
    }

    #[test]
    fn counters_are_kept_by_target_and_key() {
        let jobs = "job_stats:\n- job_id:         dd.0\n  sync: { samples: 2, unit: reqs }\n";
        let nodes = "export_stats:\n- nid:            10.0.0.1@tcp\n  \
            req_waittime: { samples: 5, unit: usecs, min: 1, max: 9, sum: 30 }\n";
        let params = [
            ("mdt.t-MDT0000.export_stats", nodes),
            ("obdfilter.t-OST0000.job_stats", jobs),
            ("obdfilter.t-OST0001.job_stats", jobs),
            ("obdfilter.t-OST0000.stats", "sync 4 samples [reqs]\n"),
            ("mdt.t-MDT0000.md_stats", "open 3 samples [usecs] 1 2 4\n"),
            ("obdfilter.t-OST0000.exports", "07 0x3 10.0.0.1@tcp node1:/mnt\n"),
            ("ost.OSS.ost_io.stats", "req_waittime 2 samples [usec] 1 9 10 82\n"),
            (
                "ost.OSS.ost_io.nrs_policies",
                "\nregular_requests:\n  - name: fifo\n    state: started\n    fallback: yes\n    queued: 5\n",
            ),
            ("version", "0.1.0"),
        ];
        let params = params.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        let answers = [
            Answered { daemon: daemon("a"), heard: Ok(Heard { who: Who::default(), params }) },
            Answered { daemon: daemon("b"), heard: Err("silent".into()) },
        ];
        let sample = Sample::of(&answers);
        let shown: Vec<_> = sample
            .counts
            .iter()
            .map(|(key, count)| (key.kind, &key.target[2..], &key.name[..], count.operations))
            .collect();
        let expected = [
            (Kind::Client, "MDT0000", "10.0.0.1@tcp", 0),
            (Kind::Job, "OST0000", "dd.0", 2),
            (Kind::Job, "OST0001", "dd.0", 2),
            (Kind::Target, "MDT0000", "t-MDT0000", 3),
            (Kind::Target, "OST0000", "t-OST0000", 4),
        ];
        assert_eq!(shown, expected);
        let client = sample.counts.values().next().expect("a client");
        assert_eq!((client.requests, client.waited_us), (5, 30));
        let life = ("a".to_owned(), 7);
        let service = &sample.services[&(life, "ost_io".to_owned())];
        assert_eq!((service.requests, service.waited_us, service.queued), (2, 10, 5));
        assert_eq!(service.policy, "fifo");
        assert_eq!(sample.names["10.0.0.1@tcp"], "node1:/mnt");
        assert_eq!((sample.lives.len(), sample.silent), (1, vec!["b".to_owned()]));
    }
}
