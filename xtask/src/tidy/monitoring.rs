//! Prometheus accepts the rules and the configuration in `docs/monitoring`. Its `promtool` (Debian:
//! prometheus) checks them where it is installed. Unit tests of `tools/metrics` compare the names
//! with the code.

use anyhow::Result;

use super::tree::Tree;
use crate::{needs, run};

const PROMTOOL: &str = "promtool";

const CHECKED: [[&str; 3]; 2] = [
    ["check", "rules", "docs/monitoring/alerts.yml"],
    ["check", "config", "docs/monitoring/prometheus.yml"],
];

pub(super) fn look(_: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    if !needs::has_program(PROMTOOL) {
        eprintln!("no promtool (Debian: prometheus): it would check the rules in docs/monitoring");
        return Ok(());
    }
    for args in CHECKED {
        if let Err(error) = run::output(PROMTOOL, &args) {
            wrong.push(format!("{error:#}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::CHECKED;
    use crate::run;

    #[test]
    fn the_checked_files_exist() {
        for [_, _, file] in CHECKED {
            assert!(run::root().join(file).is_file(), "{file}");
        }
    }
}
