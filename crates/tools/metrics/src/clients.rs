//! `export_stats` as metrics, for the client nodes with the most requests.

use std::cmp::Reverse;

use types::{Counter, CounterTable, Row};

use crate::families;
use crate::jobs::WAITS;
use crate::text::{Exposition, seconds};

/// Client nodes of a target that are shown: those with the most requests. The others do not count
/// as series that were left out, because a large file system has many and no setting helps.
pub(crate) const CLIENTS_MAX: usize = 16;

pub(crate) fn add(out: &mut Exposition, component: &str, target: &str, table: &CounterTable) {
    let CounterTable::Groups { groups, .. } = table else { return };
    let mut nodes: Vec<(Reverse<u64>, &String, &Vec<Row>)> =
        groups.iter().map(|(nid, rows)| (Reverse(requests(rows)), nid, rows)).collect();
    nodes.sort_unstable_by_key(|(requests, nid, _)| (*requests, *nid));
    for (_, nid, rows) in nodes.into_iter().take(CLIENTS_MAX) {
        let labels = [("component", component), ("target", target), ("nid", nid)];
        for row in rows {
            let Counter { samples, sum, .. } = row.counter;
            match row.name {
                WAITS => {
                    out.add(families::CLIENT_REQUESTS, &labels, samples as f64);
                    out.add(families::CLIENT_WAIT, &labels, seconds(sum));
                }
                "read_bytes" => out.add(families::CLIENT_READ_BYTES, &labels, sum as f64),
                "write_bytes" => out.add(families::CLIENT_WRITE_BYTES, &labels, sum as f64),
                _ => {}
            }
        }
    }
}

fn requests(rows: &[Row]) -> u64 {
    rows.iter().find(|row| row.name == WAITS).map_or(0, |row| row.counter.samples)
}

#[cfg(test)]
mod tests {
    use types::Detail;

    use super::*;

    #[test]
    fn the_nodes_with_most_requests_are_shown() {
        let rows = |node: usize| {
            let samples = node as u64;
            let counter = Counter { samples, sum: 500_000, ..Counter::default() };
            let waits = Row { name: WAITS, unit: "usecs", counter, detail: Detail::Sum };
            vec![Row::requests("open", 900), waits]
        };
        let nodes = 0..CLIENTS_MAX + 2;
        let groups = nodes.map(|node| (format!("10.0.0.{node}@tcp"), rows(node))).collect();
        let table = CounterTable::Groups { title: "export_stats", label: "nid", groups };
        let mut out = Exposition::default();
        add(&mut out, "mdt", "testfs-MDT0000", &table);
        let text = out.finish().to_string();
        let labels = "{component=\"mdt\",target=\"testfs-MDT0000\",nid=\"10.0.0.17@tcp\"}";
        for line in [
            format!("nacre_client_requests_total{labels} 17\n"),
            format!("nacre_client_wait_seconds_total{labels} 0.5\n"),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
        assert_eq!(text.matches("\nnacre_client_requests_total{").count(), CLIENTS_MAX);
        assert!(!text.contains("10.0.0.1@tcp") && text.contains("10.0.0.2@tcp"), "{text}");
        assert!(text.ends_with("nacre_metrics_dropped_series 0\n"), "{text}");
    }
}
