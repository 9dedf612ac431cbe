//! A node beside others of its process: the ways to them, and a scrape of all of them.

use std::rc::Rc;

use anyhow::Result;
use tokio::sync::mpsc;
use types::NidAddr;

use super::{Server, Trust, data, lo_of, store};
use crate::targets::TargetDir;

/// A node's place among the executors of its process, each of which is a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Among {
    pub index: usize,
    /// Where the other ones listen.
    pub others: Vec<NidAddr>,
}

impl Among {
    /// One for each executor of a process that listens at these addresses.
    pub(crate) fn all(at: &[NidAddr]) -> Vec<Among> {
        let others = |own: usize| {
            let all = at.iter().copied().enumerate();
            all.filter(|(index, _)| *index != own).map(|(_, at)| at).collect()
        };
        (0..at.len()).map(|index| Among { index, others: others(index) }).collect()
    }

    /// Addresses inside this process, each with its place on `lo`: the one of this node, and those
    /// of the other ones.
    pub(super) fn inside(&self, own: NidAddr) -> Vec<(NidAddr, NidAddr)> {
        std::iter::once(own).chain(self.others.iter().copied()).map(|at| (at, lo_of(at))).collect()
    }
}

/// Refuses a reset of the targets of all nodes where none of them lacks a part. One of several
/// nodes does not know what the others' targets lack.
pub(crate) fn check_reset(found: &[TargetDir], trust: Trust) -> Result<()> {
    if trust != Trust::ResetEmpty {
        return Ok(());
    }
    let all = [found, &data::there(found)?].concat();
    store::refuse_idle_reset(trust, store::check_parts(&all, trust)?)
}

impl Server {
    /// Answers Prometheus, if that was asked for, also for these other executors.
    pub async fn serve_metrics(self: &Rc<Self>, others: Vec<mpsc::Sender<metrics::Scrape>>) {
        let endpoint = metrics::start(&self.env, self.metrics_at, self.shown(), others).await;
        *self.metrics.borrow_mut() = endpoint;
    }

    /// From now on answers the executor that Prometheus asks.
    pub fn answer_scrapes(&self, scrapes: mpsc::Receiver<metrics::Scrape>) {
        let answers = metrics::answer(self.env.clone(), self.shown(), scrapes);
        self.env.spawn("scrapes", answers);
    }

    fn shown(&self) -> metrics::Shown {
        metrics::Shown {
            params: self.params.clone(),
            lnet: self.machine.lnet.clone(),
            executor: (!self.among.others.is_empty()).then_some(self.among.index),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use osd_disk::{Superblock, superblock};
    use types::{TargetId, Timespec};

    use super::*;
    use crate::targets;

    #[test]
    fn a_reset_is_for_any_target_of_the_process() {
        let dir = |index: u32| -> PathBuf {
            std::env::temp_dir().join(format!("nacre-reset-{index}-{}", std::process::id()))
        };
        let dirs = [0, 1].map(dir);
        for (index, dir) in (0..).zip(&dirs) {
            let (fsname, id) = ("testfs".parse().expect("a name"), TargetId::ost(index));
            let made = Superblock::new(fsname, id, 6, Vec::new(), Timespec::default());
            superblock::format(dir, &made, false).expect("formats");
        }
        let checked = |trust| check_reset(&targets::find(&dirs).expect("both"), trust);
        assert!(checked(Trust::ResetEmpty).is_err() && checked(Trust::Whole).is_ok());
        superblock::mark_served(&dirs[1]).expect("written"); // and has no records
        assert!(checked(Trust::ResetEmpty).is_ok());
        dirs.iter().for_each(|dir| std::fs::remove_dir_all(dir).expect("cleaned up"));
    }

    #[test]
    fn a_node_reaches_itself_and_the_others_over_lo() {
        let at = ["127.0.0.2@tcp", "127.0.0.3:5000@tcp"].map(|at| at.parse().expect("a NID"));
        let all = Among::all(&at);
        assert_eq!(all[1], Among { index: 1, others: vec![at[0]] });
        assert_eq!(all[1].inside(at[1]), [(at[1], lo_of(at[1])), (at[0], lo_of(at[0]))]);
        assert_eq!(Among::all(&at[..1]), [Among::default()], "alone");
    }
}
