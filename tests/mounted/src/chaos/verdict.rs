//! The verdict of a run, as JSON and as Markdown.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use super::Options;
use super::found::Wrong;
use super::life::Run;

/// What a run found.
pub struct Verdict {
    json: Value,
    text: String,
    violations: u64,
}

impl Verdict {
    pub(super) fn of(
        run: &Run,
        options: &Options,
        clock: bool,
        faults: &BTreeMap<&'static str, u64>,
    ) -> Verdict {
        let (violations, wrong) = run.found.wrong();
        let (calls, counts) = (run.found.calls(), run.found.counts());
        let secs = |time: Duration| (time.as_secs_f64() * 100.0).round() / 100.0;
        let shown = |wrong: &Wrong| json!({ "at": secs(wrong.at), "kind": format!("{:?}", wrong.kind), "text": wrong.text });
        let of_call = |(what, call): (&&str, &super::found::Call)| {
            json!({ "call": what, "count": call.count, "excused_errors": call.errors,
                    "longest": secs(call.longest), "beyond_faults": secs(call.excess) })
        };
        let all: u64 = calls.values().map(|call| call.count).sum();
        let excess = calls.values().map(|call| call.excess).max().unwrap_or_default();
        let json = json!({
            "seed": options.seed, "seconds": secs(run.times.now()), "clocks_moved": clock,
            "violations": violations, "calls": all, "longest_beyond_faults": secs(excess),
            "faults": faults, "counts": counts,
            "by_call": calls.iter().map(of_call).collect::<Vec<_>>(),
            "found": wrong.iter().map(shown).collect::<Vec<_>>(),
        });
        let mut text = format!(
            "# chaos, seed {}: {}\n\n{all} calls in {:.0} s; the longest took {:.1} s beyond the \
             faults of what it needs.{}\n\n| fault | times |\n|---|---|\n",
            options.seed,
            if violations == 0 { "passed".to_owned() } else { format!("{violations} violations") },
            options.time.as_secs_f64(),
            excess.as_secs_f64(),
            if clock { "" } else { " Clocks were not moved: libfaketime is not installed." }
        );
        faults.iter().for_each(|(sort, count)| text.push_str(&format!("| {sort} | {count} |\n")));
        text.push_str("\n| call | times | excused errors | longest, s | beyond faults, s |\n");
        text.push_str("|---|---|---|---|---|\n");
        for (what, call) in &calls {
            let (longest, excess) = (call.longest.as_secs_f64(), call.excess.as_secs_f64());
            let (count, errors) = (call.count, call.errors);
            text.push_str(&format!(
                "| {what} | {count} | {errors} | {longest:.1} | {excess:.1} |\n"
            ));
        }
        text.push('\n');
        counts.iter().for_each(|(what, count)| text.push_str(&format!("- {what}: {count}\n")));
        let line = |wrong: &Wrong| {
            format!("- {:.2} s, {:?}: {}\n", secs(wrong.at), wrong.kind, wrong.text)
        };
        if !wrong.is_empty() {
            text.push_str("\n## Violations\n\n");
            text.extend(wrong.iter().map(line));
        }
        let minutes = options.time.as_secs_f64() / 60.0;
        let again = format!("cargo xtask chaos --minutes {minutes} --seed {}", options.seed);
        text.push_str(&format!("\nThe same faults again: `{again}`\n"));
        Verdict { json, text, violations }
    }

    #[must_use]
    pub fn passed(&self) -> bool {
        self.violations == 0
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Writes `chaos.json` and `chaos.md` into `dir`.
    pub fn keep(&self, dir: &std::path::Path) -> std::io::Result<()> {
        fs::create_dir_all(dir)?;
        fs::write(dir.join("chaos.json"), format!("{:#}\n", self.json))?;
        fs::write(dir.join("chaos.md"), &self.text)
    }
}
