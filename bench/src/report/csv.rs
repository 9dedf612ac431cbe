//! Results as comma-separated values, one row per figure.

use crate::row::{Bound, PartResult, Row, Spread};

const HEAD: &str = "part,id,unit,median,min,max,limit_median,limit_min,limit_max,ratio_median,\
                    ratio_min,ratio_max,bound,reached";

/// All parts.
pub(crate) fn whole(results: &[PartResult]) -> String {
    let mut text = format!("{HEAD}\n");
    for result in results {
        for row in &result.rows {
            text.push_str(&line(&result.part, row));
        }
    }
    text
}

fn line(part: &str, row: &Row) -> String {
    let mut cells = vec![quoted(part), quoted(&row.id), quoted(&row.unit)];
    for spread in [Spread::of(&row.ours), Spread::of(&row.limit), row.ratio()] {
        let values = spread.map(|Spread { median, min, max }| [median, min, max]);
        cells.extend(values.map_or([const { String::new() }; 3], |values| values.map(short)));
    }
    cells.push(row.bound.map_or_else(String::new, bound));
    cells.push(row.is_reached().map_or_else(String::new, |is| is.to_string()));
    format!("{}\n", cells.join(","))
}

fn bound(bound: Bound) -> String {
    match bound {
        Bound::Ratio(least) => format!("ratio >= {least}"),
        Bound::RatioAtMost(most) => format!("ratio <= {most}"),
        Bound::AtLeast(least) => format!(">= {least}"),
        Bound::AtMost(most) => format!("<= {most}"),
    }
}

/// Six digits that count.
fn short(value: f64) -> String {
    let digits = 5 - value.abs().max(f64::MIN_POSITIVE).log10().floor() as i32;
    let text = format!("{value:.*}", digits.clamp(0, 12) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::{result, row};

    #[test]
    fn a_figure_is_a_line() {
        let rows = vec![
            row(&[1.0, 2.0, 3.0], &[10.0, 10.0, 10.0], Some(Bound::Ratio(0.4))),
            Row { id: "a, b".to_owned(), ..row(&[1234.5678], &[], None) },
        ];
        let text = whole(&[result("mdtest-own", rows)]);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "mdtest-own,mdtest-own/create,files/s,2,1,3,10,10,10,0.2,0.1,0.3,ratio >= 0.4,false",
                "mdtest-own,\"a, b\",files/s,1234.57,1234.57,1234.57,,,,,,,,",
            ]
        );
        let head = text.lines().next().expect("a head");
        assert_eq!(head.split(',').count(), 14);
        let shown = [0.0, 0.5, 1e7, 0.000_012_345_67].map(short);
        assert_eq!(shown, ["0", "0.5", "10000000", "0.0000123457"]);
    }
}
