//! The counters of nodes, and whether the nodes are alive.

use std::fmt::Write as _;
use std::rc::Rc;

use lst::command::{Answer, Sample};
use lst::{BookError, NodeState};
use types::{Nid, Span};
use wire::lst::{Ask, SessionId, Stat, Told};

use super::{Console, said};

impl Console {
    async fn stats(self: &Rc<Self>, nids: Vec<Nid>, patience: Span) -> Vec<(Nid, Option<Stat>)> {
        let asks = nids.into_iter().map(|nid| (nid, Ask::Stat)).collect();
        let heard = self.tell_all(asks, patience).await;
        let stat = |(nid, heard)| match heard {
            Ok(Told::Stat(stat)) => (nid, Some(*stat)),
            _ => (nid, None),
        };
        heard.into_iter().map(stat).collect()
    }

    pub(super) async fn sample(
        self: &Rc<Self>,
        of: &[String],
        patience: Span,
    ) -> Result<Answer, BookError> {
        let mut answer = Answer::default();
        for name in of {
            let nids = self.nodes_of(name)?;
            let nodes = self.stats(nids, patience).await;
            let nodes = nodes.into_iter().map(|(nid, stat)| (nid.0, stat)).collect();
            answer.samples.push(Sample { name: name.clone(), nodes });
        }
        Ok(answer)
    }

    pub(super) async fn show_error(
        self: &Rc<Self>,
        of: &[String],
        session: bool,
    ) -> Result<Answer, BookError> {
        let mut answer = Answer::default();
        for name in of {
            let _ = writeln!(answer.out, "{name}:");
            let mut errors = 0;
            let nids = self.nodes_of(name)?;
            for (nid, stat) in self.stats(nids, lst::limits::CONTROL_TIMEOUT).await {
                let Some(stat) = stat else {
                    let _ = writeln!(answer.err, "RPC failure, can't show error on 12345-{nid}");
                    continue;
                };
                let of_rpc = stat.rpc_errors + stat.rpc_dropped + stat.rpc_expired;
                if stat.brw_errors + stat.ping_errors + if session { 0 } else { of_rpc } == 0 {
                    continue;
                }
                errors += 1;
                let Stat { brw_errors, ping_errors, rpc_errors, rpc_dropped, rpc_expired, .. } =
                    stat;
                let _ = write!(
                    answer.out,
                    "12345-{nid}: [Session {brw_errors} brw errors, {ping_errors} ping errors]"
                );
                if !session {
                    let _ = write!(
                        answer.out,
                        " [RPC: {rpc_errors} errors, {rpc_dropped} dropped, {rpc_expired} expired]"
                    );
                }
                answer.out.push('\n');
            }
            let _ = writeln!(answer.out, "Total {errors} error nodes in {name}");
        }
        Ok(answer)
    }

    pub(super) async fn ping(
        self: &Rc<Self>,
        group: Option<&str>,
        batch: Option<&str>,
        nodes: Option<&str>,
    ) -> Result<Answer, BookError> {
        let nids: Vec<Nid> = match (group, batch, nodes) {
            (Some(group), ..) => self.book.borrow().group(group)?.to_vec(),
            (None, Some(batch), _) => {
                let (sources, destinations) = self.book.borrow().batch(batch)?.nodes(0);
                sources.union(&destinations).copied().collect()
            }
            (None, None, Some(nodes)) => self.nodes_of(nodes)?,
            (None, None, None) => self.book.borrow().nodes().keys().copied().collect(),
        };
        if nids.is_empty() {
            return Ok(said("Target session is empty\n".to_owned()));
        }
        let mut answer = Answer::default();
        for (nid, heard) in self.ask_each(nids, &Ask::Ping).await {
            let state = self.book.borrow().nodes().get(&nid).copied().unwrap_or(NodeState::Unknown);
            let (name, id) = match heard {
                Ok(Told::Busy { name, session }) => (name, session),
                Ok(Told::Done) => (self.config.name.clone(), self.id),
                _ => ("<NULL>".to_owned(), SessionId { console: Nid::LO.0, stamp: 0 }),
            };
            let own = Nid(id.console);
            let _ = writeln!(
                answer.out,
                "\t12345-{nid}: {} [session: {name} id: {}@{own}]",
                state.name(),
                id.stamp
            );
        }
        Ok(answer)
    }
}
