//! A sample of the metrics of daemons on any machine, as `--metrics` shows them. One that does not
//! answer in time is named as silent.

use status::scrape::{Series, fetch_all, series};

use crate::counters::Count;
use crate::sample::{Kind, Life, Sample};

/// Asks all of these addresses at once.
pub(crate) fn ask(addresses: &[String]) -> Sample {
    let mut sample = Sample { is_partial: true, ..Sample::default() };
    for (at, answer) in addresses.iter().zip(fetch_all(addresses)) {
        match answer {
            Ok(text) => add(&mut sample, at, &text),
            Err(_) => sample.silent.push(at.clone()),
        }
    }
    sample
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
    let is_cut =
        |series: &Series<'_>| series.name == "nacre_metrics_dropped_series" && series.count() > 0;
    if all.iter().any(is_cut) {
        sample.cut.push(at.to_owned());
    }
    sample.lives.insert(life);
}

/// Counts of targets, clients and jobs. Those of a mount are those of targets too.
fn counted(sample: &mut Sample, life: &Life, series: &Series<'_>) {
    let (none, count) = (Count::default(), series.count());
    let operations = Count { operations: count, ..none };
    let read = Count { read: count, ..none };
    let written = Count { written: count, ..none };
    let requests = Count { requests: count, ..none };
    let waited = Count { waited_us: micros(series), ..none };
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
        "nacre_job_requests_total" => (Kind::Job, requests),
        "nacre_job_wait_seconds_total" => (Kind::Job, waited),
        "nacre_client_requests_total" => (Kind::Client, requests),
        "nacre_client_wait_seconds_total" => (Kind::Client, waited),
        "nacre_client_read_bytes_total" => (Kind::Client, read),
        "nacre_client_write_bytes_total" => (Kind::Client, written),
        _ => return,
    };
    if series.label("component") == "client" {
        return;
    }
    let label = match kind {
        Kind::Client => "nid",
        Kind::Job => "jobid",
        Kind::Target => "target",
    };
    sample.count(kind, life, series.label("target"), series.label(label), count);
}

/// A number of seconds in microseconds.
fn micros(series: &Series<'_>) -> u64 {
    (series.value * 1e6).round() as u64
}

/// Requests, waits and policies of services.
fn served(sample: &mut Sample, life: &Life, series: &Series<'_>) {
    let name = series.label("service");
    match series.name {
        "nacre_request_waits_total" => sample.service(life, name).requests += series.count(),
        "nacre_request_wait_seconds_total" => {
            sample.service(life, name).waited_us += micros(series);
        }
        "nacre_nrs_queued_requests" if series.label("head") == "regular" => {
            sample.service(life, name).queued += series.count();
        }
        "nacre_nrs_started_requests_total" if series.label("head") == "regular" => {
            let policy = series.label("policy").to_owned();
            *sample.service(life, name).started.entry(policy).or_default() += series.count();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use super::*;

    const TEXT: &str = "\
        # TYPE nacre_process_info gauge\n\
        nacre_process_info{name=\"nacre\",pid=\"42\"} 1\n\
        lustre_stats_total{component=\"ost\",target=\"t-OST0000\",operation=\"sync\"} 3\n\
        lustre_stats_total{component=\"client\",target=\"t-07\",operation=\"lookup\"} 9\n\
        lustre_write_samples_total{component=\"ost\",target=\"t-OST0000\"} 4\n\
        lustre_write_bytes_total{component=\"ost\",target=\"t-OST0000\"} 4096\n\
        lustre_job_write_bytes_total{component=\"ost\",target=\"t-OST0000\",jobid=\"dd.0\"} 4096\n\
        lustre_job_stats_total{component=\"ost\",target=\"t-OST0000\",jobid=\"dd.0\",operation=\"sync\"} 3\n\
        nacre_job_requests_total{component=\"ost\",target=\"t-OST0000\",jobid=\"dd.0\"} 4\n\
        nacre_job_wait_seconds_total{component=\"ost\",target=\"t-OST0000\",jobid=\"dd.0\"} 0.00003\n\
        nacre_client_requests_total{component=\"ost\",target=\"t-OST0000\",nid=\"10.0.0.1@tcp\"} 5\n\
        nacre_client_wait_seconds_total{component=\"ost\",target=\"t-OST0000\",nid=\"10.0.0.1@tcp\"} 2\n\
        nacre_client_read_bytes_total{component=\"ost\",target=\"t-OST0000\",nid=\"10.0.0.1@tcp\"} 9\n\
        nacre_client_write_bytes_total{component=\"ost\",target=\"t-OST0000\",nid=\"10.0.0.1@tcp\"} 8\n\
        nacre_request_waits_total{service=\"ost_io\",executor=\"0\"} 5\n\
        nacre_request_waits_total{service=\"ost_io\",executor=\"1\"} 1\n\
        nacre_request_wait_seconds_total{service=\"ost_io\"} 0.00002\n\
        nacre_nrs_queued_requests{service=\"ost_io\",head=\"regular\",policy=\"tbf\"} 2\n\
        nacre_nrs_queued_requests{service=\"ost_io\",head=\"high_priority\",policy=\"fifo\"} 7\n\
        nacre_nrs_started_requests_total{service=\"ost_io\",head=\"regular\",policy=\"tbf\"} 6\n\
        nacre_nrs_started_requests_total{service=\"ost_io\",head=\"regular\",policy=\"fifo\"} 1\n\
        nacre_metrics_dropped_series 3\n";

    #[test]
    fn metrics_become_a_sample() {
        let mut sample = Sample::default();
        add(&mut sample, "oss1:9169", TEXT);
        let shown: Vec<_> = sample
            .counts
            .iter()
            .map(|(key, count)| (key.kind, key.name.as_str(), *count))
            .collect();
        let client =
            Count { operations: 0, read: 9, written: 8, requests: 5, waited_us: 2_000_000 };
        let job = Count { operations: 3, read: 0, written: 4_096, requests: 4, waited_us: 30 };
        let target = Count { operations: 7, read: 0, written: 4_096, ..Count::default() };
        let expected = [
            (Kind::Client, "10.0.0.1@tcp", client),
            (Kind::Job, "dd.0", job),
            (Kind::Target, "t-OST0000", target),
        ];
        assert_eq!(shown, expected);
        assert!(sample.counts.keys().all(|key| key.target == "t-OST0000"));
        let life = ("oss1:9169".to_owned(), 42);
        let service = &sample.services[&(life.clone(), "ost_io".to_owned())];
        assert_eq!((service.requests, service.waited_us, service.queued), (6, 20, 2));
        let started: Vec<_> = service.started.iter().collect();
        assert_eq!(started, [(&"fifo".to_owned(), &1), (&"tbf".to_owned(), &6)]);
        assert!(sample.lives.contains(&life));
        assert_eq!(sample.cut, ["oss1:9169"]);
    }

    #[test]
    fn daemons_are_asked_and_a_silent_one_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let at = format!("localhost:{port}"); // ::1 may come first, where nothing listens
        let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
        let absent = closed.local_addr().expect("its address").to_string();
        drop(closed);
        std::thread::spawn(move || {
            for scraper in listener.incoming() {
                let mut stream = scraper.expect("a scraper");
                let mut question = [0; 1_024];
                let bytes = stream.read(&mut question).unwrap_or(0);
                if question[..bytes].starts_with(b"GET /metrics ") {
                    let answer = format!("HTTP/1.1 200 OK\r\n\r\n{TEXT}");
                    let _it_may_be_gone = stream.write_all(answer.as_bytes());
                }
            }
        });
        let start = Instant::now();
        let mut sample = ask(&[at.clone(), absent.clone()]);
        // a busy machine may not answer within the time of a scrape
        while sample.silent.contains(&at) && start.elapsed() < Duration::from_secs(60) {
            sample = ask(&[at.clone(), absent.clone()]);
        }
        assert!(sample.is_partial && sample.lives.contains(&(at, 42)));
        assert_eq!(sample.silent, [absent]);
    }
}
