//! Time of a file against its stripes as an SVG: a line for each way, over logarithmic axes.

use std::fmt::Write;

use super::Sample;
use super::report::lines;

const WIDTH: f64 = 1_000.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 640.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 480.0;
/// Between two names beside the plot.
const NAME_HEIGHT: f64 = 16.0;
/// Room below the axis.
const FOOT: f64 = 50.0;
/// Least time that is shown, microseconds: a logarithm needs one.
const US_LEAST: f64 = 0.01;

/// The SVG; none without a measurement of one stripe or more.
pub(super) fn draw(samples: &[Sample]) -> Option<String> {
    let lines = lines(samples);
    let points = || lines.iter().flat_map(|line| line.1.iter().copied());
    let most = points().map(|point| point.0).fold(2.0, f64::max);
    let across = Axis { least: 1.0, most, from: LEFT, to: RIGHT };
    let along = decades(points().map(|point| point.1.max(US_LEAST)))?;
    let height = BOTTOM.max(TOP + NAME_HEIGHT * lines.len() as f64) + FOOT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, (LEFT, TOP - 16.0), "Time of a file in a listing, us, against its stripes");
    axes(&mut svg, samples, &across, &along);
    for (index, (first, points)) in lines.iter().enumerate() {
        let style = style(index, lines.len(), first);
        let points: Vec<String> =
            points.iter().map(|point| place(*point, &across, &along)).collect();
        let _ = writeln!(svg, "<polyline points=\"{}\" {style}/>", points.join(" "));
        let y = TOP + NAME_HEIGHT * index as f64;
        let (x, end) = (RIGHT + 20.0, RIGHT + 44.0);
        let _ = writeln!(svg, "<polyline points=\"{x},{y} {end},{y}\" {style}/>");
        let Sample { state, through, way, .. } = first;
        text(&mut svg, (end + 6.0, y + 4.0), &format!("{state}, {way}, {through}"));
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

/// A logarithmic axis: values from `least` to `most` lie between two places.
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let part = (value / self.least).ln() / (self.most / self.least).ln();
        self.from + (self.to - self.from) * part
    }
}

/// The axis of times: whole powers of ten around all of them.
fn decades(times: impl Iterator<Item = f64> + Clone) -> Option<Axis> {
    let least = times.clone().reduce(f64::min)?.log10().floor();
    let most = times.reduce(f64::max)?.log10().ceil().max(least + 1.0);
    Some(Axis { least: 10_f64.powf(least), most: 10_f64.powf(most), from: BOTTOM, to: TOP })
}

fn axes(svg: &mut String, samples: &[Sample], across: &Axis, along: &Axis) {
    let _ = writeln!(
        svg,
        "<path d=\"M{LEFT} {TOP} V{BOTTOM} H{RIGHT}\" fill=\"none\" stroke=\"black\"/>"
    );
    let mut stripes: Vec<u32> = samples.iter().map(|sample| sample.stripes).collect();
    stripes.sort_unstable();
    stripes.dedup();
    for count in stripes.into_iter().filter(|count| *count > 0) {
        text(svg, (across.place(f64::from(count)) - 6.0, BOTTOM + 18.0), &count.to_string());
    }
    let mut us = along.least;
    while us <= along.most * 1.01 {
        let y = along.place(us);
        let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1} H{RIGHT}\" stroke=\"#dddddd\"/>");
        text(svg, (8.0, y + 4.0), &format!("{us}"));
        us *= 10.0;
    }
}

fn place((stripes, us): (f64, f64), across: &Axis, along: &Axis) -> String {
    format!("{:.1},{:.1}", across.place(stripes), along.place(us.max(US_LEAST)))
}

/// Each line has a colour; those of files that are open are dashed.
fn style(index: usize, count: usize, first: &Sample) -> String {
    let hue = 360 * index / count.max(1);
    let dash = if first.state == "open" { " stroke-dasharray=\"5 3\"" } else { "" };
    format!("fill=\"none\" stroke=\"hsl({hue},65%,42%)\" stroke-width=\"2\"{dash}")
}

fn text(svg: &mut String, (x, y): (f64, f64), text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(state: &str, stripes: u32, us_per_file: f64) -> Sample {
        Sample {
            state: state.into(),
            through: "du -s".into(),
            way: "nacre".into(),
            stripes,
            files: 1,
            seconds: 1.0,
            us_per_file,
            rpcs_per_file: 0.0,
            requests: Vec::new(),
        }
    }

    #[test]
    fn each_way_is_a_line_with_its_name() {
        let samples = [
            sample("clean", 0, 1.0),
            sample("clean", 1, 10.0),
            sample("clean", 64, 10.0),
            sample("open", 1, 1_000.0),
            sample("open", 64, 2_000.0),
        ];
        let svg = draw(&samples).expect("there are lines");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        for name in ["clean, nacre, du -s", "open, nacre, du -s", ">64<", ">10000<"] {
            assert!(svg.contains(name), "{name}");
        }
        assert_eq!(svg.matches("<polyline").count(), 4, "two lines, and two beside their names");
        assert_eq!(svg.matches("stroke-dasharray").count(), 2);
        assert!(svg.contains("points=\"80.0,480.0 640.0,480.0\""), "the least of all is below");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(draw(&[]), None);
        assert_eq!(draw(&[sample("clean", 0, 1.0)]), None, "no stripe");
        let one = draw(&[sample("clean", 1, 0.0)]).expect("one point");
        assert!(!one.contains("NaN") && !one.contains("inf"));
    }
}
