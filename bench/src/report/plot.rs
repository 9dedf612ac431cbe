//! Plots of ratios (one bar per row: the median, its range as a line, its bound as a mark), small
//! charts of values, and lines over logarithmic axes.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::markdown::number;
use crate::row::{Bound, Row, Spread};

const WIDTH: u32 = 900;
const ROW_HEIGHT: u32 = 26;
const HEAD_HEIGHT: u32 = 70;
const LINES_HEIGHT: u32 = 520;
/// Room for the names of rows.
const NAME_WIDTH: u32 = 330;
const BAR: RGBColor = RGBColor(64, 120, 160);
const MARK: RGBColor = RGBColor(200, 60, 40);
/// Bars of what Nacre is compared with.
const OTHER: RGBColor = RGBColor(170, 170, 170);
const CHART_WIDTH: u32 = 460;
const CHART_NAME_WIDTH: u32 = 120;
const NAME_LEFT: i32 = 12;
/// Room for the value behind the longest bar, as a part of it.
const VALUE_ROOM: f64 = 1.3;

/// A reader with a dark theme sees black as light, and white as dark: a rule precedes attributes.
const DARK: &str = "<style>@media (prefers-color-scheme: dark) { \
    [fill=\"#FFFFFF\"] { fill: #0D1117 } \
    [fill=\"#000000\"] { fill: #E6EDF3 } \
    [stroke=\"#000000\"] { stroke: #E6EDF3 } }</style>";

/// One bar of a small chart.
pub(super) struct Bar<'a> {
    pub(super) name: &'a str,
    pub(super) value: f64,
    pub(super) is_ours: bool,
}

/// An SVG of a few values.
pub(super) fn bars(title: &str, unit: &str, bars: &[Bar<'_>]) -> Result<String> {
    let mut svg = String::new();
    draw_bars(&mut svg, title, unit, bars).map_err(|error| anyhow!("{error}"))?;
    Ok(in_both_themes(&svg))
}

fn draw_bars(
    svg: &mut String,
    title: &str,
    unit: &str,
    bars: &[Bar<'_>],
) -> Result<(), Box<dyn std::error::Error>> {
    let count = bars.len();
    let height = HEAD_HEIGHT + ROW_HEIGHT * u32::try_from(count)?;
    let area = SVGBackend::with_string(svg, (CHART_WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let most = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .y_label_area_size(CHART_NAME_WIDTH)
        .build_cartesian_2d(0.0..most * VALUE_ROOM, 0.0..count as f64)?;
    chart.configure_mesh().disable_mesh().disable_axes().draw()?;
    for (index, bar) in bars.iter().enumerate() {
        let low = (count - 1 - index) as f64; // the first bar is on top
        let color = if bar.is_ours { BAR } else { OTHER };
        let text = format!(" {} {unit}", number(bar.value));
        chart.draw_series([Rectangle::new(
            [(0.0, low + 0.15), (bar.value, low + 0.85)],
            color.filled(),
        )])?;
        let (end, top) = chart.backend_coord(&(bar.value, low + 0.72));
        area.draw(&Text::new(text, (end, top), ("sans-serif", 13)))?;
        area.draw(&Text::new(bar.name, (NAME_LEFT, top), ("sans-serif", 13)))?;
    }
    area.present()?;
    Ok(())
}

/// An SVG of the rows that have a ratio.
pub(super) fn ratios(title: &str, rows: &[&Row]) -> Result<String> {
    let shown: Vec<(&Row, Spread)> =
        rows.iter().filter_map(|row| Some((*row, row.ratio()?))).collect();
    let mut svg = String::new();
    draw(&mut svg, title, &shown).map_err(|error| anyhow!("{error}"))?;
    Ok(in_both_themes(&svg))
}

fn draw(
    svg: &mut String,
    title: &str,
    rows: &[(&Row, Spread)],
) -> Result<(), Box<dyn std::error::Error>> {
    let count = rows.len();
    let height = HEAD_HEIGHT + ROW_HEIGHT * u32::try_from(count)?;
    let area = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let bounds = rows.iter().filter_map(|(row, _)| bound(row));
    let top = rows.iter().map(|(_, ratio)| ratio.max).chain(bounds).fold(0.1, f64::max) * 1.05;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(NAME_WIDTH)
        .build_cartesian_2d(0.0..top, 0.0..count as f64)?;
    let name = |y: &f64| {
        // the first row is on top
        let index = count.checked_sub(1 + *y as usize);
        index.and_then(|index| rows.get(index)).map_or(String::new(), |(row, ratio)| {
            format!("{}  {}", row.id.replace('/', ": "), number(ratio.median))
        })
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(count)
        .y_label_offset(-(i32::try_from(ROW_HEIGHT)? / 2))
        .y_label_formatter(&name)
        .draw()?;
    for (index, (row, ratio)) in rows.iter().enumerate() {
        let low = (count - 1 - index) as f64;
        let middle = low + 0.5;
        chart.draw_series([
            Rectangle::new([(0.0, low + 0.2), (ratio.median, low + 0.8)], BAR.filled()),
            Rectangle::new(
                [(ratio.min, middle - 0.02), (ratio.max, middle + 0.02)],
                BLACK.filled(),
            ),
        ])?;
        if let Some(least) = bound(row) {
            let mark = vec![(least, low + 0.1), (least, low + 0.9)];
            chart.draw_series([PathElement::new(mark, MARK.stroke_width(2))])?;
        }
    }
    area.present()?;
    Ok(())
}

/// An SVG of lines over logarithmic axes; x begins at 1.
pub(super) fn lines(
    title: &str,
    axes: (&str, &str),
    lines: &[(String, Vec<(f64, f64)>)],
) -> Result<String> {
    let mut svg = String::new();
    draw_lines(&mut svg, title, axes, lines).map_err(|error| anyhow!("{error}"))?;
    Ok(in_both_themes(&svg))
}

fn draw_lines(
    svg: &mut String,
    title: &str,
    (across, along): (&str, &str),
    lines: &[(String, Vec<(f64, f64)>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, (WIDTH, LINES_HEIGHT)).into_drawing_area();
    area.fill(&WHITE)?;
    let points = || lines.iter().flat_map(|line| &line.1).filter(|point| point.0 >= 1.0);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(2.0, f64::max);
    let least = points().map(|point| point.1).fold(f64::MAX, f64::min).max(0.01);
    let right = most(|point| point.0);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(8)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(
            (1.0..right).log_scale(),
            (least / 2.0..2.0 * most(|point| point.1)).log_scale(),
        )?;
    chart.configure_mesh().x_desc(across).y_desc(along).draw()?;
    for (number, (name, line)) in lines.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        let shown = line.iter().copied().filter(|point| point.0 >= 1.0);
        chart
            .draw_series(LineSeries::new(shown, color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    area.present()?;
    Ok(())
}

/// The picture with the style behind its opening tag.
fn in_both_themes(svg: &str) -> String {
    let at = svg.find('>').map_or(0, |end| end + 1);
    let (head, body) = svg.split_at(at);
    format!("{head}\n{DARK}{body}")
}

fn bound(row: &Row) -> Option<f64> {
    match row.bound {
        Some(Bound::Ratio(least)) => Some(least),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::row;

    #[test]
    fn every_row_is_in_the_picture() {
        let rows = [row(&[1.0, 2.0], &[4.0, 4.0], Some(Bound::Ratio(0.2))), row(&[3.0], &[], None)];
        let svg = ratios("Title", &rows.iter().collect::<Vec<_>>()).expect("it is drawn");
        assert!(svg.starts_with("<svg") && svg.contains("Title"));
        assert!(svg.contains("mdtest-own: create"));
        assert_eq!(svg.matches("#C83C28").count(), 1, "one bound");
    }

    #[test]
    fn a_chart_shows_names_and_values() {
        let bar = |name, value, is_ours| Bar { name, value, is_ours };
        let all = [bar("Nacre", 8_500.0, true), bar("ext4", 70_000.0, false)];
        let svg = bars("Title", "files/s", &all).expect("it is drawn");
        for text in ["Title", "Nacre", "ext4", "8,500 files/s", "70,000 files/s"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!((svg.matches("#4078A0").count(), svg.matches("#AAAAAA").count()), (1, 1));
        assert!(bars("None", "s", &[bar("a", 0.0, true)]).is_ok(), "nothing to show");
    }

    #[test]
    fn a_chart_has_colors_for_a_dark_theme() {
        let all = [Bar { name: "Nacre", value: 1.0, is_ours: true }];
        let svg = bars("Title", "s", &all).expect("it is drawn");
        let (head, body) = svg.split_once(DARK).expect("a style");
        assert!(head.starts_with("<svg") && head.trim_end().ends_with('>'), "{head}");
        assert_eq!(head.matches('<').count(), 1, "{head}");
        for color in ["fill=\"#FFFFFF\"", "fill=\"#000000\""] {
            assert!(body.contains(color), "{color} is what the style replaces");
        }
    }

    #[test]
    fn every_line_has_its_name() {
        let line = |name: &str, us| (name.to_owned(), vec![(0.0, 3.0), (1.0, us), (32.0, us)]);
        let all = [line("clean: old", 900.0), line("clean: new", 5.0)];
        let svg = lines("Title", ("stripes", "us"), &all).expect("it is drawn");
        for text in ["Title", "stripes", "clean: old", "clean: new"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
