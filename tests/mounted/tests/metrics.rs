//! CPU partitions, the rotor and the metrics of real processes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use mounted::{Scratch, Up};

const PORT: u16 = 9169;

fn scrape(at: Ipv4Addr) -> String {
    let mut stream =
        TcpStream::connect(SocketAddr::from((at, PORT))).expect("the endpoint listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: nacre\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers and closes");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer
}

/// The value of the one series whose name and labels start so.
fn value(text: &str, series: &str) -> f64 {
    let line = text
        .lines()
        .find(|line| line.starts_with(series))
        .unwrap_or_else(|| panic!("{series} is not in\n{text}"));
    line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// Requests of the MDT's main service that each partition has handled.
fn requests_by_cpt(mdt: Ipv4Addr) -> Vec<f64> {
    let text = scrape(mdt);
    (0..CPTS)
        .map(|cpt| {
            value(&text, &format!("nacre_cpt_requests_total{{service=\"mdt\",cpt=\"{cpt}\"}}"))
        })
        .collect()
}

/// Names of metrics in the alert rules and the board.
fn documented() -> BTreeSet<&'static str> {
    let texts = [
        include_str!("../../../docs/monitoring/alerts.yml"),
        include_str!("../../../docs/monitoring/grafana.json"),
    ];
    let words = texts.into_iter().flat_map(|text| {
        text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
    });
    words.filter(|word| word.starts_with("nacre_") || word.starts_with("lustre_")).collect()
}

const CPTS: usize = 4;
const FILES: usize = 40;
const FILE_BYTES: usize = 10_000;

fn make_files(up: &Up, name: &str) {
    for index in 0..FILES {
        let mut file = File::create(up.at(&format!("{name}{index}"))).expect("created");
        file.write_all(&vec![7; FILE_BYTES]).expect("written");
        file.sync_all().expect("durable");
    }
}

/// By how much each partition's count grows meanwhile.
fn growth(mdt: Ipv4Addr, work: impl FnOnce()) -> Vec<f64> {
    let before = requests_by_cpt(mdt);
    work();
    requests_by_cpt(mdt).iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
fn every_daemon_is_scraped() {
    let (port, cpts) = (PORT.to_string(), CPTS.to_string());
    let args = [
        "--metrics",
        &port,
        "--cpu-npartitions",
        &cpts,
        "--cpu-virtual",
        "--osts",
        "2",
        "--lnd-threads",
        "1",
    ];
    let mut up = Up::with(Scratch::new("metrics"), None, &args);
    let address = up.address(); // 127.0.N.2[:port]@tcp:/testfs
    let net: u8 = address.split('.').nth(2).and_then(|net| net.parse().ok()).expect("127.0.N.2");
    let own = |host| Ipv4Addr::new(127, 0, net, host);
    let (client, mdt, osts) = (own(1), own(3), [own(10), own(11)]);

    // One client has one link for requests, so without the rotor one partition does all of its
    // work.
    let off = growth(mdt, || make_files(&up, "off"));
    assert!(off.iter().filter(|count| **count >= FILES as f64).count() == 1, "{off:?}");
    up.set("portal_rotor", "ON");
    assert!(up.tool(&["lctl", "get_param", "-n", "portal_rotor"]).contains("rotor: ON"));
    let on = growth(mdt, || make_files(&up, "on"));
    assert!(
        on.iter().all(|count| *count >= (FILES / CPTS) as f64),
        "opens and closes go round: {on:?}, without: {off:?}"
    );

    let text = scrape(mdt);
    for operation in ["open", "mknod", "close", "sync"] {
        let series = format!(
            "lustre_stats_total{{component=\"mdt\",target=\"testfs-MDT0000\",operation=\"{operation}\"}}"
        );
        assert!(value(&text, &series) >= 1.0, "{series}\n{text}");
    }
    assert!(
        value(&text, "lustre_exports_total{component=\"mdt\",target=\"testfs-MDT0000\"}") >= 1.0
    );
    let mut written = 0.0;
    for (index, at) in osts.into_iter().enumerate() {
        let (text, target) =
            (scrape(at), format!("{{component=\"ost\",target=\"testfs-OST000{index}\""));
        assert_eq!(value(&text, "lustre_health_check{"), 1.0);
        assert!(value(&text, &format!("lustre_available_kibibytes{target}")) > 0.0);
        assert!(value(&text, "lustre_receive_count_total{") > 0.0);
        written += value(&text, &format!("lustre_write_bytes_total{target}"));
    }
    assert_eq!(written, (2 * FILES * FILE_BYTES) as f64, "each byte is written once");
    let text = scrape(client);
    assert!(value(&text, "lustre_send_count_total{") > 0.0);
    assert!(value(&text, "lustre_write_bytes_total{component=\"client\"") > 0.0);

    let table = up.tool(&["lctl", "get_param", "-n", "cpu_partition_table"]);
    assert!(table.contains("3\t: "), "{table}");
    up.set("portal_rotor", "OFF");
    assert!(up.tool(&["lctl", "get_param", "-n", "portal_rotor"]).contains("rotor: OFF"));
    assert!(up.tool(&["lctl", "get_param", "-n", "peers"]).contains("@tcp"));

    // Bytes of jobs, and bytes that the first mount's kernel does not cache.
    let other = up.second_mount(202);
    up.set("jobid_var", "procname_uid");
    make_files(&up, "labelled");
    assert_eq!(fs::read(other.join("labelled0")).expect("read").len(), FILE_BYTES);
    let daemons = [client, own(2), mdt, osts[0], osts[1]];
    let scraped: String = daemons.map(scrape).concat();
    let missing: Vec<&str> = documented()
        .into_iter()
        .filter(|name| !scraped.contains(&format!("# TYPE {name} ")))
        .collect();
    assert!(missing.is_empty(), "no daemon has {missing:?}");
    up.stop();
}
