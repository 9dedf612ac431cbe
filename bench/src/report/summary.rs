//! The last lines of a run: how many rows met their bounds, which ones did not, and the time.

use super::markdown::{number, took};
use crate::row::{PartResult, Row};

/// Seconds of a part that is named with its time.
const LONG_S: f64 = 480.0;

pub(crate) fn of(results: &[PartResult]) -> String {
    let rows: Vec<&Row> = results.iter().flat_map(|result| &result.rows).collect();
    let ids = |is_one: fn(&Row) -> bool| -> Vec<&str> {
        rows.iter().filter(|row| is_one(row)).map(|row| row.id.as_str()).collect()
    };
    let met = ids(|row| row.is_reached() == Some(true)).len();
    let missed = ids(|row| row.is_reached() == Some(false));
    let void = ids(Row::is_void);
    let shown = rows.len() - met - missed.len() - void.len();
    let mut lines = vec![format!(
        "{} rows: {met} met their bounds, {} missed them, {} are void, {shown} are only shown.",
        rows.len(),
        missed.len(),
        void.len()
    )];
    lines.extend(missed.iter().map(|id| format!("missed: {id}")));
    lines.extend(void.iter().map(|id| format!("void: {id}")));
    lines.push(took(results));
    let long = results.iter().filter(|result| result.seconds > LONG_S);
    lines.extend(long.map(|result| format!("{}: {} s", result.part, number(result.seconds))));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Bound;
    use crate::row::tests::{result, row};

    #[test]
    fn a_summary_names_what_was_missed() {
        let with =
            |id: &str, bound, idle| Row { id: id.to_owned(), idle, ..row(&[3.0], &[], bound) };
        let most = |most| Some(Bound::AtMost(most));
        let rows = vec![
            with("a/met", most(4.0), None),
            with("a/missed", most(2.0), None),
            with("a/void", most(2.0), Some(0.1)),
            with("a/shown", None, Some(0.9)),
            with("a/met too", most(3.0), None),
        ];
        let long = PartResult { seconds: 600.0, ..result("b", Vec::new()) };
        assert_eq!(
            of(&[result("a", rows), long]),
            "5 rows: 2 met their bounds, 1 missed them, 1 are void, 1 are only shown.\n\
             missed: a/missed\n\
             void: a/void\n\
             Time of all parts: 601 s.\n\
             b: 600 s"
        );
        assert!(of(&[]).starts_with("0 rows: "));
    }
}
