//! A sample of the metrics of daemons on any machine, as `--metrics` shows them. One that does not
//! answer in time is named as silent.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::counters::Count;
use crate::sample::{Kind, Life, Sample};

/// Time of each step of a scrape: to connect, and to receive a part of the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of an answer at most: that of 4,096 series is well below 1 MiB for each executor.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Asks all of these addresses at once.
pub(crate) fn ask(addresses: &[String]) -> Sample {
    let answers: Vec<io::Result<String>> = std::thread::scope(|scope| {
        let asked: Vec<_> = addresses.iter().map(|at| scope.spawn(move || fetch(at))).collect();
        asked.into_iter().map(|answer| answer.join().expect("a scrape does not panic")).collect()
    });
    let mut sample = Sample::default();
    for (at, answer) in addresses.iter().zip(answers) {
        match answer {
            Ok(text) => add(&mut sample, at, &text),
            Err(_) => sample.silent.push(at.clone()),
        }
    }
    sample
}

/// Tries all addresses of a host, as `::1` and `127.0.0.1` of localhost.
fn connect(at: &str) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "no address");
    for addr in at.to_socket_addrs()? {
        match TcpStream::connect_timeout(&addr, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// `GET /metrics`.
fn fetch(at: &str) -> io::Result<String> {
    let mut stream = connect(at)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let question = format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "no metrics")),
    }
}

/// A series: its name, labels and value.
#[derive(Debug, PartialEq)]
struct Series<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

impl Series<'_> {
    fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(label, _)| *label == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Counters are whole numbers.
    fn count(&self) -> u64 {
        self.value as u64
    }
}

/// A line of the exposition format. None for a comment, and for what is not understood.
fn series(line: &str) -> Option<Series<'_>> {
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, quoted) = rest.split_once("=\"")?;
            let (value, behind) = unquoted(quoted)?;
            labels.push((label, value));
            rest = behind.strip_prefix(',').unwrap_or(behind);
        }
        rest = rest.strip_prefix('}')?;
    }
    Some(Series { name, labels, value: rest.trim().parse().ok()? })
}

/// The value up to its quotation mark, and the text behind it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut letters) = (String::new(), text.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return text.get(at + 1..).map(|rest| (value, rest)),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

/// Adds the daemon behind `at`. A process that was started again is another life.
fn add(sample: &mut Sample, at: &str, text: &str) {
    let all: Vec<Series<'_>> = text.lines().filter_map(series).collect();
    let pid = all.iter().find(|series| series.name == "nacre_process_info");
    let pid = pid.and_then(|series| series.label("pid").parse().ok()).unwrap_or(0);
    let life = (at.to_owned(), pid);
    for series in &all {
        counted(sample, &life, series);
        served(sample, &life, series);
    }
    policies(sample, &life, &all);
    sample.lives.insert(life);
}

/// Operations and bytes of targets and jobs. Those of a mount are those of targets too.
fn counted(sample: &mut Sample, life: &Life, series: &Series<'_>) {
    let count = series.count();
    let operations = Count { operations: count, ..Count::default() };
    let read = Count { read: count, ..Count::default() };
    let written = Count { written: count, ..Count::default() };
    let (kind, count) = match series.name {
        "lustre_stats_total" | "lustre_read_samples_total" | "lustre_write_samples_total" => {
            (Kind::Target, operations)
        }
        "lustre_read_bytes_total" => (Kind::Target, read),
        "lustre_write_bytes_total" => (Kind::Target, written),
        "lustre_job_stats_total"
        | "lustre_job_read_samples_total"
        | "lustre_job_write_samples_total" => (Kind::Job, operations),
        "lustre_job_read_bytes_total" => (Kind::Job, read),
        "lustre_job_write_bytes_total" => (Kind::Job, written),
        _ => return,
    };
    if series.label("component") == "client" {
        return;
    }
    let name = if kind == Kind::Job { series.label("jobid") } else { series.label("target") };
    sample.count(kind, life, name, count);
}

/// Requests and waits of services.
fn served(sample: &mut Sample, life: &Life, series: &Series<'_>) {
    let name = series.label("service");
    match series.name {
        "nacre_request_waits_total" => sample.service(life, name).requests += series.count(),
        "nacre_request_wait_seconds_total" => {
            sample.service(life, name).waited_us += (series.value * 1e6).round() as u64;
        }
        "nacre_nrs_queued_requests" if series.label("head") == "regular" => {
            sample.service(life, name).queued += series.count();
        }
        _ => {}
    }
}

/// Metrics do not say which policy is in force. The one that has started most requests is shown.
fn policies(sample: &mut Sample, life: &Life, all: &[Series<'_>]) {
    let is_started = |series: &&Series<'_>| {
        series.name == "nacre_nrs_started_requests_total" && series.label("head") == "regular"
    };
    let mut started: Vec<&Series<'_>> = all.iter().filter(is_started).collect();
    started.sort_by_key(|series| series.count());
    for series in started {
        let policy = series.label("policy").to_owned();
        sample.service(life, series.label("service")).policy = policy;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn series_have_labels_and_values() {
        let parsed = series("a{x=\"1\",y=\"a\\\"b\\\\c\\nd\"} 2.5").expect("a series");
        assert_eq!((parsed.name, parsed.value, parsed.label("x")), ("a", 2.5, "1"));
        assert_eq!((parsed.label("y"), parsed.label("z")), ("a\"b\\c\nd", ""));
        assert_eq!(series("up 1").map(|series| series.value), Some(1.0));
        for odd in ["", "# HELP a b", "a", "a{x} 1", "a{x=\"1} 1", "a{x=\"1\" 1", "a{} x"] {
            assert_eq!(series(odd), None, "{odd}");
        }
    }

    const TEXT: &str = "\
        # TYPE nacre_process_info gauge\n\
        nacre_process_info{name=\"nacre\",pid=\"42\"} 1\n\
        lustre_stats_total{component=\"ost\",target=\"t-OST0000\",operation=\"sync\"} 3\n\
        lustre_stats_total{component=\"client\",target=\"t-07\",operation=\"lookup\"} 9\n\
        lustre_write_samples_total{component=\"ost\",target=\"t-OST0000\"} 4\n\
        lustre_write_bytes_total{component=\"ost\",target=\"t-OST0000\"} 4096\n\
        lustre_job_write_bytes_total{component=\"ost\",target=\"t-OST0000\",jobid=\"dd.0\"} 4096\n\
        lustre_job_stats_total{component=\"ost\",target=\"t-OST0000\",jobid=\"dd.0\",operation=\"sync\"} 3\n\
        nacre_request_waits_total{service=\"ost_io\",executor=\"0\"} 5\n\
        nacre_request_waits_total{service=\"ost_io\",executor=\"1\"} 1\n\
        nacre_request_wait_seconds_total{service=\"ost_io\"} 0.00002\n\
        nacre_nrs_queued_requests{service=\"ost_io\",head=\"regular\",policy=\"tbf\"} 2\n\
        nacre_nrs_queued_requests{service=\"ost_io\",head=\"high_priority\",policy=\"fifo\"} 7\n\
        nacre_nrs_started_requests_total{service=\"ost_io\",head=\"regular\",policy=\"tbf\"} 6\n\
        nacre_nrs_started_requests_total{service=\"ost_io\",head=\"regular\",policy=\"fifo\"} 1\n";

    #[test]
    fn metrics_become_a_sample() {
        let mut sample = Sample::default();
        add(&mut sample, "oss1:9169", TEXT);
        let shown: Vec<_> = sample
            .counts
            .iter()
            .map(|(key, count)| (key.kind, key.name.as_str(), *count))
            .collect();
        let job = Count { operations: 3, read: 0, written: 4_096 };
        let target = Count { operations: 7, ..job };
        assert_eq!(shown, [(Kind::Job, "dd.0", job), (Kind::Target, "t-OST0000", target)]);
        let life = ("oss1:9169".to_owned(), 42);
        let service = &sample.services[&(life.clone(), "ost_io".to_owned())];
        assert_eq!((service.requests, service.waited_us, service.queued), (6, 20, 2));
        assert_eq!(service.policy, "tbf");
        assert!(sample.lives.contains(&life));
    }

    #[test]
    fn daemons_are_asked_and_a_silent_one_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let at = format!("localhost:{port}"); // ::1 may come first, where nothing listens
        let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
        let absent = closed.local_addr().expect("its address").to_string();
        drop(closed);
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a scraper");
            let mut question = [0; 1_024];
            let bytes = stream.read(&mut question).expect("a question");
            assert!(question[..bytes].starts_with(b"GET /metrics "));
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("it reads");
            stream.write_all(TEXT.as_bytes()).expect("it reads");
        });
        let sample = ask(&[at.clone(), absent.clone()]);
        server.join().expect("no panic");
        assert!(sample.lives.contains(&(at, 42)));
        assert_eq!(sample.silent, [absent]);
    }
}
