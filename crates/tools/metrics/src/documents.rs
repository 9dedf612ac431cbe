//! `docs/monitoring` uses metrics as they are: each name exists, only counters are inside `rate` or
//! `increase`, and the page lists all of them.

use std::collections::BTreeSet;

use crate::families::{self, Family, Kind};

const PAGE: &str = include_str!("../../../../docs/monitoring/README.md");
const RULES: &str = include_str!("../../../../docs/monitoring/alerts.yml");
const SCRAPE: &str = include_str!("../../../../docs/monitoring/prometheus.yml");
const BOARD: &str = include_str!("../../../../docs/monitoring/grafana.json");

/// Begin the names of metrics.
const PREFIXES: &[&str] = &["nacre_", "lustre_", "process_"];

/// The program whose names begin like metrics.
const EXPORTER: &str = "lustre_exporter";

/// Names of metrics in `text`, each with the text before it.
fn uses(text: &str) -> Vec<(&str, &str)> {
    let is_separator = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
    let (mut found, mut at) = (Vec::new(), 0);
    for piece in text.split_inclusive(is_separator) {
        let word = piece.trim_end_matches(is_separator);
        let is_ours = PREFIXES.iter().any(|prefix| word.starts_with(prefix));
        if is_ours && word != EXPORTER {
            found.push((&text[..at], word));
        }
        at += piece.len();
    }
    found
}

/// The family of a series. Those of a histogram have a name of their own each.
fn family(name: &str) -> Option<&'static Family> {
    let is_called = |family: &Family| match name.strip_prefix(family.name) {
        Some("") => true,
        Some("_bucket" | "_sum" | "_count") => family.kind == Kind::Histogram,
        _ => false,
    };
    families::ALL.iter().copied().find(|&family| is_called(family))
}

#[test]
fn names_in_documents_are_those_of_metrics() {
    for text in [PAGE, RULES, SCRAPE, BOARD] {
        for (_, name) in uses(text) {
            assert!(family(name).is_some(), "no metric is called {name}");
        }
    }
}

#[test]
fn the_page_lists_every_metric() {
    let listed: BTreeSet<&str> = uses(PAGE).into_iter().map(|(_, name)| name).collect();
    for family in families::ALL {
        assert!(listed.contains(family.name), "the page does not list {}", family.name);
    }
}

#[test]
fn rules_and_board_use_rates_of_counters_and_values_of_gauges() {
    for text in [RULES, BOARD] {
        for (before, name) in uses(text) {
            let is_rate = before.ends_with("rate(") || before.ends_with("increase(");
            let is_counter = family(name).is_some_and(|family| family.kind != Kind::Gauge);
            assert_eq!(is_rate, is_counter, "{name}");
        }
    }
}

#[test]
fn the_page_says_how_to_react_to_each_alert() {
    let alerts: Vec<&str> =
        RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        assert!(PAGE.contains(&format!("`{alert}`")), "the page does not list {alert}");
    }
}

#[test]
fn the_board_is_json_and_each_panel_has_a_place_and_a_question() {
    let board: serde_json::Value = serde_json::from_str(BOARD).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let (mut titles, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(titles.insert(title), "{title} is there twice");
        let place = ["y", "x"].map(|axis| panel["gridPos"][axis].as_u64());
        assert!(places.insert(place) && !place.contains(&None), "{title}: {place:?}");
        let targets = panel["targets"].as_array().map_or(&[][..], Vec::as_slice);
        assert!(panel["type"] == "row" || !targets.is_empty(), "{title} asks for nothing");
        for target in targets {
            let question = target["expr"].as_str().expect("an expression");
            assert!(!uses(question).is_empty(), "{title}: {question}");
        }
    }
}
