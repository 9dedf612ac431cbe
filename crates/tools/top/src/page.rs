//! The pages: text of rates, and its place on the terminal.

use ratatui::Frame;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::rates::{Named, Order, Rates, Row, ServiceRow, Slow, sorted};

/// Rows of each table on the start page.
const START_ROWS: usize = 4;

/// Below the menu where rates are of metrics.
const FROM_METRICS: &str =
    "from metrics: busiest clients and jobs, no client names, most used policy";

/// First column of a table, and its rate.
type Head = (&'static str, &'static str);

const CLIENTS: Head = ("CLIENT", "REQS/S");
const JOBS: Head = ("JOB", "REQS/S");
const TARGETS: Head = ("TARGET", "OPS/S");

/// What the screen shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Page {
    #[default]
    Start,
    Clients,
    Jobs,
    Targets,
    Services,
}

impl Page {
    const ALL: [(Page, &str); 5] = [
        (Page::Start, "start"),
        (Page::Clients, "clients"),
        (Page::Jobs, "jobs"),
        (Page::Targets, "targets"),
        (Page::Services, "services"),
    ];

    /// The page of key `1` to `5`.
    pub(crate) fn of_key(key: char) -> Option<Page> {
        let number = key.to_digit(10)?.checked_sub(1)?;
        Page::ALL.get(usize::try_from(number).ok()?).map(|(page, _)| *page)
    }

    /// The next one, in a circle.
    pub(crate) fn next(self) -> Page {
        let mut pages = Page::ALL.iter().map(|(page, _)| *page).cycle();
        let _this = pages.find(|page| *page == self);
        pages.next().unwrap_or_default()
    }
}

/// The chosen page, and the order of its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) page: Page,
    pub(crate) order: Order,
}

/// A line and whether it is a head.
type Shown = (String, bool);

/// Draws a page; rows that do not fit are cut off.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &View, rates: &Rates) {
    let line = |(text, is_head): Shown| {
        let style = if is_head { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
        Line::styled(text, style)
    };
    let lines: Vec<Line<'_>> = lines(view, rates).into_iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines), frame.area());
}

fn lines(view: &View, rates: &Rates) -> Vec<Shown> {
    let mut out = vec![(menu(view), true)];
    if rates.seconds == 0.0 {
        out.push((String::new(), false));
        out.push(("the first rates come with the second sample".into(), false));
        return out;
    }
    if !rates.silent.is_empty() {
        out.push((format!("no answer from {}", rates.silent.join(", ")), false));
    }
    out.extend(limits(rates).into_iter().map(|limit| (limit, false)));
    let order = view.order;
    match view.page {
        Page::Start => {
            out.extend(answer(rates));
            out.extend(table(CLIENTS, &rates.clients, order, START_ROWS));
            out.extend(table(JOBS, &rates.jobs, order, START_ROWS));
            out.extend(table(TARGETS, &rates.targets, order, START_ROWS));
            out.extend(services(&rates.services, START_ROWS));
        }
        Page::Clients => out.extend(table(CLIENTS, &rates.clients, order, usize::MAX)),
        Page::Jobs => out.extend(table(JOBS, &rates.jobs, order, usize::MAX)),
        Page::Targets => out.extend(table(TARGETS, &rates.targets, order, usize::MAX)),
        Page::Services => out.extend(services(&rates.services, usize::MAX)),
    }
    out
}

/// The parts of the whole that metrics do not have.
fn limits(rates: &Rates) -> Vec<String> {
    let mut limits = Vec::new();
    if rates.is_partial {
        limits.push(FROM_METRICS.to_owned());
    }
    if !rates.cut.is_empty() {
        limits.push(format!("series are left out at {}: jobs may be absent", rates.cut.join(", ")));
    }
    limits
}

fn menu(view: &View) -> String {
    let page = |(number, (page, name)): (usize, &(Page, &str))| {
        let number = number + 1;
        if *page == view.page { format!("[{number} {name}]") } else { format!(" {number} {name} ") }
    };
    let pages: Vec<String> = Page::ALL.iter().enumerate().map(page).collect();
    let order = |(key, order): &(char, Order)| {
        if *order == view.order { format!("[{key}]") } else { format!(" {key} ") }
    };
    let orders: Vec<String> = Order::ALL.iter().map(order).collect();
    format!("{} {} order  q: quit", pages.concat(), orders.concat())
}

/// Which service is slow, which jobs and clients load it, and which jobs and clients wait longest.
fn answer(rates: &Rates) -> Vec<Shown> {
    let late = named(&rates.late, time).map(|late| (format!("longest waits of {late}"), false));
    let mut out = match &rates.slow {
        Some(slow) => slowness(slow),
        None if late.is_some() => vec![("no service is slow".into(), true)],
        None => vec![("nothing is slow: requests wait for less than 1 ms".into(), true)],
    };
    out.extend(late);
    out
}

fn slowness(Slow { service, load }: &Slow) -> Vec<Shown> {
    let ServiceRow { name, daemon, policy, wait_us, .. } = service;
    let first = format!(
        "slow: {name} of {daemon}: a request waits {} in the queue, policy {policy}",
        time(*wait_us)
    );
    let load = named(load, |share| format!("{share:.0} %"));
    let load = load.unwrap_or_else(|| "no client or job that is counted".to_owned());
    vec![(first, true), (format!("loaded by {load}"), false)]
}

/// `jobs: NAME (NUMBER), ...; clients: ...`, or none where there are none.
fn named(named: &Named, number: impl Fn(f64) -> String) -> Option<String> {
    let all = [("jobs", &named.jobs), ("clients", &named.clients)];
    let of = |(kind, some): (&str, &Vec<(String, f64)>)| {
        let some: Vec<String> =
            some.iter().map(|(name, value)| format!("{name} ({})", number(*value))).collect();
        (!some.is_empty()).then(|| format!("{kind}: {}", some.join(", ")))
    };
    let parts: Vec<String> = all.into_iter().filter_map(of).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// A head and the first rows, behind an empty line.
fn table((head, rate): Head, rows: &[Row], order: Order, count: usize) -> Vec<Shown> {
    let line = |name: &str, [rate, read, written, wait]: [&str; 4], detail: &str| {
        let text = format!("{name:<24} {rate:>9} {read:>9} {written:>9} {wait:>9}  {detail}");
        text.trim_end().to_owned()
    };
    let head = line(head, [rate, "READ/S", "WRITE/S", "WAIT"], "NAME");
    let row = |row: &Row| {
        let wait = row.wait_us.map_or_else(|| "-".to_owned(), time);
        let rates = [number(row.operations), bytes(row.read), bytes(row.written), wait];
        (line(&row.name, rates.each_ref().map(String::as_str), &row.detail), false)
    };
    let mut out = vec![(String::new(), false), (head, true)];
    out.extend(sorted(rows, order).into_iter().take(count).map(row));
    out
}

fn services(rows: &[ServiceRow], count: usize) -> Vec<Shown> {
    let head = format!(
        "{:<13} {:<24} {:>9} {:>9} {:>7}  POLICY",
        "SERVICE", "SERVER", "REQS/S", "WAIT", "QUEUED"
    );
    let row = |row: &ServiceRow| {
        let (requests, wait) = (number(row.requests), time(row.wait_us));
        let ServiceRow { name, daemon, queued, policy, .. } = row;
        let text = format!("{name:<13} {daemon:<24} {requests:>9} {wait:>9} {queued:>7}  {policy}");
        (text, false)
    };
    let mut out = vec![(String::new(), false), (head, true)];
    out.extend(rows.iter().take(count).map(row));
    out
}

fn time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.1} s", us / 1e6),
        us if us >= 1e3 => format!("{:.1} ms", us / 1e3),
        us => format!("{us:.0} us"),
    }
}

fn number(value: f64) -> String {
    scaled(value, 1_000.0, &["", "k", "M", "G"])
}

fn bytes(value: f64) -> String {
    scaled(value, 1_024.0, &["", "K", "M", "G", "T"])
}

fn scaled(mut value: f64, unit: f64, suffixes: &[&str]) -> String {
    let mut suffixes = suffixes.iter().copied();
    let mut suffix = suffixes.next().unwrap_or_default();
    for next in suffixes {
        if value < unit {
            break;
        }
        value /= unit;
        suffix = next;
    }
    if value < 10.0 { format!("{value:.1}{suffix}") } else { format!("{value:.0}{suffix}") }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn row(name: &str, detail: &str, operations: f64, written: f64) -> Row {
        let (name, detail) = (name.into(), detail.into());
        Row { name, detail, operations, read: 0.0, written, wait_us: Some(2_500.0) }
    }

    fn example() -> Rates {
        let service = ServiceRow {
            name: "ost_io".into(),
            daemon: "testfs-OST0000".into(),
            policy: "tbf nid".into(),
            requests: 1_520.0,
            wait_us: 12_300.0,
            waiting: 18.7,
            queued: 34,
        };
        let load = Named {
            jobs: vec![("dd.0".into(), 81.6), ("cp.0".into(), 18.4)],
            clients: vec![("10.0.0.1@tcp".into(), 100.0)],
        };
        let slow = Slow { service: service.clone(), load };
        let late = Named { jobs: vec![("cp.0".into(), 30_100.0)], clients: Vec::new() };
        Rates {
            seconds: 2.0,
            clients: vec![row("10.0.0.1@tcp", "node1:/mnt", 1_520.0, 200_000_000.0)],
            jobs: vec![
                Row { wait_us: None, ..row("cp.0", "", 280.0, 5e8) },
                row("dd.0", "", 1_240.0, 0.0),
            ],
            targets: vec![row("testfs-OST0000", "", 1_520.0, 200_000_000.0)],
            services: vec![service],
            slow: Some(slow),
            late,
            silent: Vec::new(),
            is_partial: false,
            cut: Vec::new(),
        }
    }

    /// The lines of a terminal of this size.
    fn shown(view: View, rates: &Rates, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("no terminal");
        terminal.draw(|frame| draw(frame, &view, rates)).expect("no terminal");
        let text = terminal.backend().to_string();
        text.lines().map(|line| line.trim_matches('"').trim_end().to_owned()).collect()
    }

    #[test]
    fn the_start_page_says_what_is_slow_and_what_makes_it_slow() {
        let expected = [
            "[1 start] 2 clients  3 jobs  4 targets  5 services  [o] b  w  order  q: quit",
            "slow: ost_io of testfs-OST0000: a request waits 12.3 ms in the queue, policy tbf nid",
            "loaded by jobs: dd.0 (82 %), cp.0 (18 %); clients: 10.0.0.1@tcp (100 %)",
            "longest waits of jobs: cp.0 (30.1 ms)",
            "",
            "CLIENT                      REQS/S    READ/S   WRITE/S      WAIT  NAME",
            "10.0.0.1@tcp                  1.5k       0.0      191M    2.5 ms  node1:/mnt",
            "",
            "JOB                         REQS/S    READ/S   WRITE/S      WAIT  NAME",
            "dd.0                          1.2k       0.0       0.0    2.5 ms",
            "cp.0                           280       0.0      477M         -",
            "",
            "TARGET                       OPS/S    READ/S   WRITE/S      WAIT  NAME",
            "testfs-OST0000                1.5k       0.0      191M    2.5 ms",
            "",
            "SERVICE       SERVER                      REQS/S      WAIT  QUEUED  POLICY",
            "ost_io        testfs-OST0000                1.5k   12.3 ms      34  tbf nid",
        ];
        assert_eq!(shown(View::default(), &example(), 90, 17), expected);
    }

    #[test]
    fn a_page_has_one_table_in_the_order_that_was_asked_for() {
        let view = View { page: Page::Jobs, order: Order::Bytes };
        let rates = Rates { silent: vec!["testfs-OST0001".into()], ..example() };
        let expected = [
            " 1 start  2 clients [3 jobs] 4 targets  5 services   o [b] w  order  q: quit",
            "no answer from testfs-OST0001",
            "",
            "JOB                         REQS/S    READ/S   WRITE/S      WAIT  NAME",
            "cp.0                           280       0.0      477M         -",
        ];
        assert_eq!(shown(view, &rates, 80, 5), expected, "what does not fit is cut off");
    }

    #[test]
    fn rates_of_metrics_say_which_parts_are_absent() {
        let view = View { page: Page::Clients, ..View::default() };
        let rates = Rates { is_partial: true, cut: vec!["oss1:9169".into()], ..example() };
        let lines = shown(view, &rates, 80, 3);
        assert_eq!(lines[1], FROM_METRICS);
        assert_eq!(lines[2], "series are left out at oss1:9169: jobs may be absent");
    }

    #[test]
    fn nothing_is_said_before_the_second_sample_or_where_nothing_is_slow() {
        let text = |rates: &Rates| shown(View::default(), rates, 60, 3).join("\n");
        assert!(text(&Rates::default()).contains("second sample"));
        let fast = Rates { slow: None, ..example() };
        assert!(text(&fast).ends_with("no service is slow\nlongest waits of jobs: cp.0 (30.1 ms)"));
        let calm = Rates { late: Named::default(), ..fast };
        assert!(text(&calm).contains("nothing is slow"));
    }

    #[test]
    fn a_service_without_counts_of_jobs_says_so() {
        let slow = Slow { load: Named::default(), ..example().slow.expect("slow") };
        assert_eq!(slowness(&slow)[1].0, "loaded by no client or job that is counted");
        let load = Named { clients: vec![("n1".into(), 100.0)], ..Named::default() };
        assert_eq!(slowness(&Slow { load, ..slow })[1].0, "loaded by clients: n1 (100 %)");
    }

    #[test]
    fn pages_follow_one_another_in_a_circle() {
        assert_eq!(Page::of_key('1'), Some(Page::Start));
        assert_eq!(["0", "6", "x"].map(|key| key.chars().next().and_then(Page::of_key)), [None; 3]);
        assert_eq!((Page::Start.next(), Page::Services.next()), (Page::Clients, Page::Start));
    }
}
