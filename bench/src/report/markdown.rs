//! Results as Markdown tables. A cell holds one value, or a median with its range.

use crate::machine::Machine;
use crate::plan;
use crate::row::{Bound, PartResult, Row, Spread};

/// All parts, each with its commands.
pub(crate) fn whole(machine: &Machine, results: &[PartResult]) -> String {
    let mut text = format!("{}\n\n{}\n", machine.line(), took(results));
    for result in results {
        let about = plan::find(&result.part).map_or("", |part| part.about);
        text.push_str(&format!("\n### {}: {about}\n\n", result.part));
        if result.machine.commit != machine.commit {
            text.push_str(&format!("Commit {}.\n\n", result.machine.commit));
        }
        text.push_str(&table(&result.rows));
        let mut commands: Vec<&str> = result.rows.iter().map(|row| row.command.as_str()).collect();
        commands.dedup();
        text.push_str(&format!("\n```\n{}\n```\n", commands.join("\n")));
    }
    text
}

/// Which parts are of another commit than `machine`; empty if none is.
pub(super) fn of_others(machine: &Machine, results: &[PartResult]) -> String {
    let mut by_commit: Vec<(&str, Vec<&str>)> = Vec::new();
    for result in results.iter().filter(|result| result.machine.commit != machine.commit) {
        let (of, part) = (result.machine.commit.as_str(), result.part.as_str());
        match by_commit.iter_mut().find(|(commit, _)| *commit == of) {
            Some((_, parts)) => parts.push(part),
            None => by_commit.push((of, vec![part])),
        }
    }
    let sentence = |(commit, parts): &(&str, Vec<&str>)| match parts.as_slice() {
        [firsts @ .., last] if !firsts.is_empty() => {
            format!("Parts {} and {last} are of {commit}.", firsts.join(", "))
        }
        _ => format!("Part {} is of {commit}.", parts.concat()),
    };
    by_commit.iter().map(sentence).collect::<Vec<_>>().join(" ")
}

/// How long the parts took together: `--quick` is to end within 10 minutes, and a whole run within
/// two hours.
pub(super) fn took(results: &[PartResult]) -> String {
    let seconds = results.iter().fold(0.0, |sum, result| sum + result.seconds);
    format!("Time of all parts: {} s.", number(seconds.round()))
}

/// Rows of one part.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| case | unit | Nacre (range) | limit (range) | ratio (range) | bound | CPU |\n|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let cpu = row.cpu.as_ref().map(|cpu| format!("{} {}", number(cpu.value), cpu.unit));
        let idle = row.idle.map(|idle| format!("{:.0} % idle", idle * 100.0));
        let cpu: Vec<String> = cpu.into_iter().chain(idle).collect();
        let cells = [
            row.title.clone(),
            row.unit.clone(),
            spread(Spread::of(&row.ours)),
            spread(Spread::of(&row.limit)),
            spread(row.ratio()),
            bound(row),
            cpu.join(", "),
        ];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

fn spread(spread: Option<Spread>) -> String {
    match spread {
        None => String::new(),
        Some(Spread { median, min, max }) if min == max => number(median),
        Some(Spread { median, min, max }) => {
            format!("{} ({} .. {})", number(median), number(min), number(max))
        }
    }
}

fn bound(row: &Row) -> String {
    let missed = match row.is_reached() {
        _ if row.is_void() => ", **void**",
        Some(false) => ", **missed**",
        _ => "",
    };
    match row.bound {
        None => missed.trim_start_matches(", ").to_owned(),
        Some(Bound::Ratio(least)) => format!("ratio {least}{missed}"),
        Some(Bound::RatioAtMost(most)) => format!("ratio at most {most}{missed}"),
        Some(Bound::AtLeast(least)) => format!("at least {least}{missed}"),
        Some(Bound::AtMost(most)) => format!("at most {most}{missed}"),
    }
}

/// Three digits that count, and thousands apart.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        _ if size >= 100.0 || value == 0.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), ""), |parts| parts);
    let digits = whole.trim_start_matches('-');
    let mut apart = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            apart.push(',');
        }
        apart.push(digit);
    }
    let sign = if whole.starts_with('-') { "-" } else { "" };
    if fraction.is_empty() { format!("{sign}{apart}") } else { format!("{sign}{apart}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::{result, row};

    #[test]
    fn the_time_of_all_parts_is_their_sum() {
        let results = [("a", 700.4), ("b", 500.4)]
            .map(|(name, seconds)| PartResult { seconds, ..result(name, Vec::new()) });
        assert_eq!(took(&results), "Time of all parts: 1,201 s.");
        assert_eq!(took(&[]), "Time of all parts: 0 s.");
        assert!(whole(&results[0].machine, &results).contains("\n\nTime of all parts: 1,201 s.\n"));
    }

    #[test]
    fn a_part_of_another_commit_says_so() {
        let [one, mut other] = ["a", "b"].map(|name| result(name, Vec::new()));
        let machine = one.machine.clone();
        assert_eq!(of_others(&machine, &[one.clone(), other.clone()]), "");
        other.machine.commit = "1234abcd".to_owned();
        assert!(other.machine.is_like(&machine));
        let results = [one, other];
        assert_eq!(of_others(&machine, &results), "Part b is of 1234abcd.");
        let more =
            ["c", "d"].map(|part| PartResult { part: part.to_owned(), ..results[1].clone() });
        let mut last = result("e", Vec::new());
        last.machine.commit = "5678".to_owned();
        let all = [results.to_vec(), more.to_vec(), vec![last]].concat();
        let said = "Parts b, c and d are of 1234abcd. Part e is of 5678.";
        assert_eq!(of_others(&machine, &all), said);
        assert!(whole(&machine, &results).contains("### b: \n\nCommit 1234abcd.\n\n| case"));
        let larger = Machine { cpus: machine.cpus + 1, ..machine.clone() };
        assert!(!larger.is_like(&machine));
    }

    #[test]
    fn numbers_show_three_digits() {
        let shown: Vec<String> =
            [1_234_567.0, 100.0, 12.34, 1.234, 0.1234, 0.0, -1500.4].map(number).into();
        assert_eq!(shown, ["1,234,567", "100", "12.3", "1.23", "0.123", "0", "-1,500"]);
    }

    #[test]
    fn a_row_shows_what_it_missed() {
        let text = table(&[row(&[1.0, 2.0, 3.0], &[10.0, 10.0, 10.0], Some(Bound::Ratio(0.4)))]);
        let last = text.lines().last().expect("a row");
        assert_eq!(
            last,
            "| create | files/s | 2.00 (1.00 .. 3.00) | 10.0 | 0.200 (0.100 .. 0.300) | ratio 0.4, **missed** |  |"
        );
    }

    #[test]
    fn a_row_of_a_busy_machine_is_void() {
        let shown = |bound, idle| {
            let row = Row { idle: Some(idle), ..row(&[1.0], &[1.0], bound) };
            table(&[row]).lines().last().expect("a row").to_owned()
        };
        let text = shown(Some(Bound::Ratio(1.5)), 0.25);
        assert!(text.ends_with("| ratio 1.5, **void** | 25 % idle |"), "{text}");
        let text = shown(Some(Bound::Ratio(1.5)), 0.5);
        assert!(text.ends_with("| ratio 1.5, **missed** | 50 % idle |"), "{text}");
        assert!(shown(None, 0.25).ends_with("| **void** | 25 % idle |"));
    }
}
