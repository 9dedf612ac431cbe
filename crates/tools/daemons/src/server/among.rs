//! A node beside others of its process: the ways to them, and a scrape of all of them.

use std::rc::Rc;

use tokio::sync::mpsc;
use types::NidAddr;

use super::{Server, lo_of};

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
    use super::*;

    #[test]
    fn a_node_reaches_itself_and_the_others_over_lo() {
        let at = ["127.0.0.2@tcp", "127.0.0.3:5000@tcp"].map(|at| at.parse().expect("a NID"));
        let all = Among::all(&at);
        assert_eq!(all[1], Among { index: 1, others: vec![at[0]] });
        assert_eq!(all[1].inside(at[1]), [(at[1], lo_of(at[1])), (at[0], lo_of(at[0]))]);
        assert_eq!(Among::all(&at[..1]), [Among::default()], "alone");
    }
}
