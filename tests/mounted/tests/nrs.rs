//! The request scheduler of a running OST: the checks of Lustre's own tests for each policy, hot
//! swaps, rates.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mounted::load::Load;
use mounted::{Scratch, Up, count, figure, full};

const IO: &str = "ost.OSS.ost_io";

/// Each write is a request from now on.
fn keep_nothing(up: &Up) {
    up.set("llite.*.writeback", "0");
}

fn up(name: &str) -> Up {
    let args = ["--osts", "1", "--cpu-npartitions", "4", "--cpu-virtual"];
    let up = Up::with(Scratch::new(name), None, &args);
    keep_nothing(&up);
    up
}

fn at(param: &str) -> String {
    format!("{IO}.{param}")
}

fn set(up: &Up, param: &str, value: &str) {
    up.set(&at(param), value);
}

fn get(up: &Up, param: &str) -> String {
    up.param(&at(param)).trim().to_owned()
}

/// Names of the policies that run on the regular head, FIFO apart.
fn running(up: &Up) -> Vec<String> {
    let text = up.param(&at("nrs_policies"));
    let regular = text.split("high_priority_requests").next().expect("a part");
    let mut lines = regular.lines().map(str::trim);
    let mut names = Vec::new();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("- name: ") else { continue };
        if name != "fifo" && lines.next() == Some("state: started") {
            names.push(name.to_owned());
        }
    }
    names
}

#[test]
fn every_policy_goes_on_and_off_under_writes_and_reads() {
    let mut up = up("policies");
    let load = Load::start(up.mount(), 6, 64 << 10);
    for policy in [
        "crrn",
        "crre",
        "orr",
        "trr",
        "tbf",
        "tbf nid",
        "tbf jobid",
        "tbf opcode",
        "tbf nid+opcode",
        "tbf uid+gid",
    ] {
        set(&up, "nrs_policies", policy);
        assert_eq!(running(&up), [policy], "{policy}");
        load.see_progress();
        if policy == "crrn" || policy == "crre" {
            for quantum in ["1", "64"] {
                set(&up, &format!("nrs_{policy}_quantum"), quantum);
                let shown = get(&up, &format!("nrs_{policy}_quantum"));
                assert!(shown.contains(&format!("reg_quantum:{quantum}")), "{shown}");
                load.see_progress();
            }
        }
        if policy == "orr" || policy == "trr" {
            for supported in ["reads", "writes", "reads_and_writes"] {
                for offset_type in ["physical", "logical"] {
                    set(&up, &format!("nrs_{policy}_supported"), supported);
                    set(&up, &format!("nrs_{policy}_offset_type"), offset_type);
                    assert!(
                        get(&up, &format!("nrs_{policy}_supported"))
                            .contains(&format!("reg_supported:{supported}"))
                    );
                    load.see_progress();
                }
            }
        }
    }
    set(&up, "nrs_policies", "fifo");
    assert!(running(&up).is_empty());
    load.see_progress();
    load.finish();
    up.stop();
}

#[test]
fn wrong_values_are_refused_by_name_and_change_nothing() {
    let mut up = up("refusals");
    let refused = |param: &str, value: &str, wanted: &str| {
        let error = up.try_set(&[(&at(param), value)]).expect_err(value);
        assert!(error.contains(wanted), "{param}={value}: no '{wanted}' in {error}");
    };
    refused("nrs_policies", "nosuch", "nosuch");
    refused("nrs_policies", "tbf nosuch", "nosuch");
    refused("nrs_crrn_quantum", "8", "No such device");
    set(&up, "nrs_policies", "fifo hp");
    let no_hp = |param: &str, value: &str| {
        let error = up.try_set(&[(param, value)]).expect_err(value);
        assert!(error.contains("No such device"), "{param}={value}: {error}");
    };
    no_hp("ost.OSS.ost_create.nrs_policies", "crrn hp");
    up.set("ost.OSS.ost_create.nrs_policies", "crrn");
    no_hp("ost.OSS.ost_create.nrs_crrn_quantum", "hp_quantum:8");
    assert_eq!(up.param("ost.OSS.ost_create.nrs_crrn_quantum").trim(), "reg_quantum:8");
    up.set("ost.OSS.*.nrs_policies", "fifo");
    for (policy, wanted) in [
        ("", "expected NAME"),
        ("crrn 8", "no argument"),
        ("tbf nid nid", "'nid' is too much"),
        ("tbf jobid+opcode+uid", "longer than 15"),
        ("tbf nid+nid", "'nid'"),
    ] {
        refused("nrs_policies", policy, wanted);
    }
    let error = up.try_set(&[("mds.MDS.mdt.nrs_policies", "orr")]).expect_err("for ost_io alone");
    assert!(error.contains("no policy 'orr'"), "{error}");
    set(&up, "nrs_policies", "crrn");
    for (value, wanted) in [
        ("0", "'0'"),
        ("65536", "'65536'"),
        ("-1", "'-1'"),
        ("many", "'many'"),
        ("reg_quantum:0", "'0'"),
        ("reg_depth:8", "reg_depth"),
    ] {
        refused("nrs_crrn_quantum", value, wanted);
    }
    assert_eq!(get(&up, "nrs_crrn_quantum").lines().next(), Some("reg_quantum:8"));
    set(&up, "nrs_crrn_quantum", "reg_quantum:32 hp_quantum:4");
    assert_eq!(get(&up, "nrs_crrn_quantum"), "reg_quantum:32\nhp_quantum:4");
    set(&up, "nrs_policies", "tbf nid");
    for (rule, wanted) in [
        ("start a jobid={dd.0} rate=10", "jobid"),
        ("start a nid={1.2.3.4@tcp} rate=0", "rate"),
        ("start a nid={1.2.3.4@tcp} rate=1000000", "rate"),
        ("start a-b nid={1.2.3.4@tcp}", "a-b"),
        ("start abcdefghijklmnop nid={1.2.3.4@tcp}", "abcdefghijklmnop"),
        ("start a nid={1.2.3.4@tcp} rank=nosuch", "nosuch"),
        ("change nosuch rate=1", "nosuch"),
        ("stop default", "default"),
    ] {
        refused("nrs_tbf_rule", rule, wanted);
    }
    set(&up, "nrs_tbf_rule", "stop nosuch");
    let rules = get(&up, "nrs_tbf_rule");
    assert!(rules.contains("regular_requests:\nCPT 0:\ndefault * 10000, ref"), "{rules}");
    set(&up, "nrs_policies", "tbf nid");
    set(&up, "nrs_tbf_rule", "change default rate=77");
    set(&up, "nrs_policies", "tbf nid");
    assert!(
        get(&up, "nrs_tbf_rule").contains("default * 77, ref"),
        "started as it runs: its rules stay"
    );
    set(&up, "nrs_policies", "fifo");
    set(&up, "nrs_policies", "tbf nid");
    assert!(get(&up, "nrs_tbf_rule").contains("default * 10000, ref"), "a stop forgets them");
    up.stop();
}

#[test]
fn rules_stand_by_rank_and_show_as_in_lustre() {
    let mut up = up("ranks");
    set(&up, "nrs_policies", "tbf");
    assert_eq!(get(&up, "nrs_head_scope"), "service");
    let rule = |text: &str| set(&up, "nrs_tbf_rule", text);
    rule("reg start a uid={500} rate=100");
    rule("reg start b jobid={dd.* *.500} rate=200");
    rule("reg start c opcode={ost_write}&gid={7},nid={192.168.1.[1-128]@tcp 0@lo} rate=300 rank=a");
    let order = || {
        let text = get(&up, "nrs_tbf_rule");
        let regular = text.split("high_priority_requests:").next().expect("a part");
        let rules = regular.split("CPT 0:\n").nth(1).expect("the heads of the service");
        rules
            .lines()
            .map(|line| line.split(' ').next().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(order(), ["b", "c", "a", "default"]);
    rule("reg change a rank=b");
    assert_eq!(order(), ["a", "b", "c", "default"]);
    rule("reg change a rank=b");
    assert_eq!(order(), ["a", "b", "c", "default"], "before its neighbour it stands already");
    rule("reg change c rank=b");
    assert_eq!(order(), ["a", "c", "b", "default"]);
    let own = up.try_set(&[(&at("nrs_tbf_rule"), "reg change b rank=b")]);
    assert_eq!(order(), ["a", "c", "b", "default"], "relative to itself: {own:?}");
    let text = get(&up, "nrs_tbf_rule");
    assert!(text.contains("a uid={500} 100, ref 0"), "{text}");
    assert!(
        text.contains("c opcode={ost_write}&gid={7},nid={192.168.1.[1-128]@tcp 0@lo} 300, ref 0"),
        "{text}"
    );
    rule("reg stop a");
    assert_eq!(order(), ["c", "b", "default"]);
    up.stop();
}

#[test]
fn a_policy_and_its_tunables_start_in_one_command() {
    let mut up = up("together");
    let (policies, rule) = (at("nrs_policies"), at("nrs_tbf_rule"));
    up.try_set(&[(&policies, "tbf uid"), (&rule, "start me uid={0} rate=7")]).expect("both");
    assert!(get(&up, "nrs_tbf_rule").contains("me uid={0} 7, ref"));
    let (least, most) = (at("nrs_delay_min"), at("nrs_delay_max"));
    up.try_set(&[(&policies, "delay"), (&least, "1"), (&most, "2")]).expect("all three");
    let start = Instant::now();
    fs::write(up.at("late"), "x").expect("written");
    let took = start.elapsed();
    assert!(
        took >= Duration::from_secs(1) && took < Duration::from_secs(20),
        "a write under delay took {took:?}"
    );
    assert!(up.try_set(&[(&least, "9")]).is_err(), "the least delay is not above the greatest");
    set(&up, "nrs_delay_pct", "0");
    up.try_set(&[(&most, "60"), (&least, "60")]).expect("both");
    let start = Instant::now();
    fs::write(up.at("prompt"), "x").expect("written");
    assert!(start.elapsed() < Duration::from_secs(30), "nothing is delayed at 0 percent");
    set(&up, "nrs_policies", "fifo");
    up.stop();
}

#[test]
fn types_and_rules_change_in_parallel_under_load() {
    let mut up = up("parallel");
    let load = Load::start(up.mount(), 4, 16 << 10);
    set(&up, "nrs_policies", "tbf jobid");
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let up = &up;
            scope.spawn(move || {
                for round in 0..count(6, 50) {
                    set(
                        up,
                        "nrs_tbf_rule",
                        &format!("start w{worker}r{round} jobid={{dd.{worker}}} rate=1000"),
                    );
                    set(up, "nrs_tbf_rule", &format!("change w{worker}r{round} rate=2000"));
                    set(up, "nrs_tbf_rule", &format!("stop w{worker}r{round}"));
                }
            });
        }
    });
    assert_eq!(get(&up, "nrs_tbf_rule").matches(" rate").count(), 0);
    for round in 0..count(3, 20) {
        for field in ["nid", "jobid", "opcode", "uid", "nid+jobid"] {
            set(&up, "nrs_policies", &format!("tbf {field}"));
            assert_eq!(running(&up), [format!("tbf {field}")], "round {round}");
            load.see_progress();
        }
    }
    load.finish();
    up.stop();
}

#[test]
fn hot_swaps_through_all_policies_lose_nothing_and_stall_nobody() {
    let mut up = up("swaps");
    let load = Load::start(up.mount(), 8, 16 << 10);
    load.see_progress();
    let (mut swaps, swaps_wanted) = (0, count(100, 1_000));
    let mut slowest = Duration::ZERO;
    let _ = load.slowest();
    let (before, start) = (load.done(), Instant::now());
    for policy in
        ["crrn", "crre", "orr", "trr", "tbf nid", "tbf jobid+opcode", "fifo"].iter().cycle()
    {
        set(&up, "nrs_policies", policy);
        slowest = slowest.max(load.slowest());
        swaps += 1;
        if swaps == swaps_wanted {
            break;
        }
    }
    let (rate, seconds) = (
        (load.done() - before) as f64 / start.elapsed().as_secs_f64(),
        start.elapsed().as_secs_f64(),
    );
    load.see_progress();
    load.finish();
    println!("{swaps} swaps in {seconds:.1} s under {rate:.0} operations/s");
    let slowest_ms = slowest.as_secs_f64() * 1e3;
    figure("nrs/swaps-slowest", "slowest operation during swaps of the policy", "ms", slowest_ms);
    // others may use the machine
    let bound = if full() { Duration::from_millis(100) } else { Duration::from_secs(2) };
    assert!(slowest < bound, "an operation took {slowest:?}");
    up.stop();
}

/// Writers on mounts of four NIDs, which four CPTs serve.
struct Writers {
    load: Vec<Load>,
}

impl Writers {
    fn start(mounts: &[PathBuf], block: usize) -> Writers {
        let load = mounts.iter().enumerate().map(|(at, mount)| {
            let dir = mount.join(format!("w{at}"));
            fs::create_dir_all(&dir).expect("a directory");
            Load::start(&dir, 4, block)
        });
        Writers { load: load.collect() }
    }
}

/// Writes that the OST has taken and their bytes.
fn written(up: &Up) -> (f64, f64) {
    let text = up.param(&at("stats"));
    let line = text
        .lines()
        .find(|line| line.starts_with("write_bytes"))
        .unwrap_or_else(|| panic!("no writes in:\n{text}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |word: usize| words[word].parse::<f64>().expect("a number");
    (number(1), number(6))
}

/// Requests and bytes per second over the window.
fn rates(up: &Up, window: Duration) -> (f64, f64) {
    let (before, start) = (written(up), Instant::now());
    std::thread::sleep(window);
    let (after, seconds) = (written(up), start.elapsed().as_secs_f64());
    ((after.0 - before.0) / seconds, (after.1 - before.1) / seconds)
}

#[test]
fn a_class_gets_its_rate_over_four_partitions() {
    let mut up = up("rates");
    let mounts: Vec<_> = (0..6).map(|client| up.second_mount(100 + client)).collect();
    keep_nothing(&up);
    let window = Duration::from_secs(count(4, 10) as u64);
    set(&up, "nrs_policies", "tbf opcode");
    let slack = if full() { 0.02 } else { 0.08 };
    for (rule, block, wanted) in [("rate=500", 4 << 10, 500.0), ("bps=50MB/s", 1 << 20, 50e6)] {
        set(&up, "nrs_tbf_rule", &format!("start w opcode={{ost_write}} {rule}"));
        let writers = Writers::start(&mounts, block);
        std::thread::sleep(Duration::from_secs(1));
        let (requests, bytes) = rates(&up, window);
        let seen = if wanted > 1e6 { bytes } else { requests };
        println!("{rule}: {requests:.1} writes/s, {:.2} MB/s", bytes / 1e6);
        let title = format!("a class with {rule} over four partitions, of its rate");
        figure(&format!("nrs/rate {rule}"), &title, "times", seen / wanted);
        assert!(
            (seen / wanted - 1.0).abs() < slack,
            "{rule}: {seen:.0} where {wanted:.0} is the rate"
        );
        set(&up, "nrs_tbf_rule", "stop w");
        writers.load.into_iter().for_each(Load::finish);
    }
    let by_cpt = get(&up, "requests_by_cpt");
    assert!(by_cpt.split(' ').all(|count| count != "0"), "not all partitions served: {by_cpt}");
    up.stop();
}

#[test]
fn rules_of_every_kind_limit_whom_they_name() {
    let mut up = up("kinds");
    let mount = up.second_mount(100);
    keep_nothing(&up);
    let file = File::create(mount.join("f")).expect("a file");
    let window = Duration::from_secs(count(1, 5) as u64);
    for (policy, conds) in [
        ("tbf nid", "nid={127.0.0.100@tcp}"),
        ("tbf uid", "uid={0}"),
        ("tbf gid", "gid={0}"),
        ("tbf opcode", "opcode={ost_write}"),
        ("tbf nid+opcode", "nid={127.0.0.100@tcp}&opcode={ost_write}"),
        ("tbf", "opcode={ost_read}&uid={0},nid={127.0.0.[100-101]@tcp}"),
    ] {
        set(&up, "nrs_policies", policy);
        set(&up, "nrs_tbf_rule", &format!("start slow {conds} rate=50"));
        let (mut done, start) = (0_u32, Instant::now());
        while start.elapsed() < window {
            file.write_all_at(&[7; 4096], 0).expect("written");
            done += 1;
        }
        let rate = f64::from(done - 3) / start.elapsed().as_secs_f64();
        assert!(rate < 55.0 && rate > 25.0, "{policy} {conds}: {rate:.1} writes/s under 50/s");
        set(&up, "nrs_policies", "fifo");
    }
    up.stop();
}

#[test]
fn statistics_tell_what_was_queued_throttled_and_logged() {
    let mut up = up("statistics");
    set(&up, "nrs_policies", "tbf uid");
    // slower than a busy machine writes
    set(&up, "nrs_tbf_rule", "start slow uid={0} rate=10 depth=1");
    set(&up, "req_buffer_history_max", "100");
    set(&up, "nrs_log", "on");
    fs::write(up.at("f"), vec![1; 1 << 20]).expect("written");
    let file = File::options().write(true).open(up.at("f")).expect("open");
    (0..20).for_each(|block| file.write_all_at(&[2; 4096], block * 4096).expect("written"));
    let stats = get(&up, "nrs_tbf_stats");
    assert!(stats.contains("rule: slow") && !stats.contains("throttled: 0,"), "{stats}");
    let history = get(&up, "req_history");
    assert!(history.lines().filter(|line| line.ends_with("ost_write")).count() >= 20, "{history}");
    let timeouts = get(&up, "timeouts");
    assert!(timeouts.starts_with("service : cur ") && timeouts.lines().count() == 4, "{timeouts}");
    let stats = get(&up, "stats");
    for name in [
        "req_waittime",
        "req_qdepth",
        "req_active",
        "req_timeout",
        "reqbuf_avail",
        "write_bytes",
        "ost_write",
    ] {
        assert!(
            stats.lines().any(|line| line.split(' ').next() == Some(name)),
            "no {name} in:\n{stats}"
        );
    }
    set(&up, "nrs_policies", "crrn");
    file.write_all_at(&[3; 4096], 0).expect("written");
    let log = fs::read_to_string(up.data().join("log/testfs-OST0000.log")).expect("the OST's log");
    assert!(
        log.contains("NRS start crrn request from 12345-127.0.") && log.contains(", round "),
        "{log}"
    );
    for scope in ["cpt", "target", "service"] {
        set(&up, "nrs_head_scope", scope);
        assert_eq!(get(&up, "nrs_head_scope"), scope);
        assert_eq!(running(&up), ["crrn"], "the policy goes on in the new heads");
        file.write_all_at(&[4; 4096], 0).expect("written");
    }
    set(&up, "stats", "clear");
    assert!(!get(&up, "stats").contains("write_bytes"), "cleared");
    up.stop();
}
