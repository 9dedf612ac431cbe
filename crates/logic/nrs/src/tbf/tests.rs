//! Tests of TBF: rates over partitions, rules and their scopes, overload and changed rates.

use std::collections::BTreeMap;

use types::{Errno, Nid, SplitMix64};
use wire::Opcode;

use super::*;
use crate::ID_NONE;
use crate::testing::{Left, Req, Server, ms};

fn server(partitions: u32, policy: &str, rules: &[&str]) -> Server {
    let node = Rc::new(TbfNode::default());
    let mut server = Server::new(partitions, &[node.descriptor()]);
    server.select(policy).unwrap_or_else(|error| panic!("{policy}: {error}"));
    command_all(&mut server, rules);
    server
}

fn command_all(server: &mut Server, rules: &[&str]) {
    for rule in rules {
        server.set("nrs_tbf_rule", rule).unwrap_or_else(|error| panic!("{rule}: {error}"));
    }
}

/// Requests of each job, and of each partition.
fn count(left: &[Left]) -> (BTreeMap<&str, u64>, BTreeMap<usize, u64>) {
    let (mut jobs, mut partitions) = (BTreeMap::new(), BTreeMap::new());
    for left in left {
        *jobs.entry(left.jobid.as_str()).or_default() += 1;
        *partitions.entry(left.partition).or_default() += 1;
    }
    (jobs, partitions)
}

fn backlog(server: &mut Server, jobs: &[&str], requests: u64) {
    server.refill = true;
    for partition in 0..server.heads.len() {
        for number in 0..requests {
            jobs.iter().for_each(|job| server.enqueue(partition, Req { number, ..Req::job(job) }));
        }
    }
}

fn near(seen: u64, wanted: u64) {
    let ratio = seen as f64 / wanted as f64;
    assert!((0.98..=1.02).contains(&ratio), "{seen} of {wanted}: {ratio}");
}

#[test]
fn a_class_gets_its_rate_over_all_partitions_evenly() {
    let mut server = server(4, "tbf jobid", &["start r jobid={dd.0} rate=500"]);
    backlog(&mut server, &["dd.0"], 20);
    let left = server.run(ms(10_000), u64::MAX);
    let (jobs, partitions) = count(&left);
    near(jobs["dd.0"], 5_000);
    let (least, most) = (partitions.values().min(), partitions.values().max());
    assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{partitions:?}");
}

#[test]
fn a_class_gets_its_rate_of_bytes_over_all_partitions() {
    let mut server = server(4, "tbf jobid", &["start r jobid={dd.0} bps=50MB/s"]);
    backlog(&mut server, &["dd.0"], 20);
    let left = server.run(ms(10_000), u64::MAX);
    near(left.iter().map(|left| left.bytes).sum(), 500_000_000);
}

#[test]
fn bytes_are_counted_whatever_the_size_of_requests() {
    let mut server = server(2, "tbf jobid", &["start r jobid={*} bps=50MB/s"]);
    server.refill = true;
    for (partition, bytes) in [(0, 4_096), (1, 4 << 20), (0, 65_536), (1, 100_000)] {
        (0..50).for_each(|_| server.enqueue(partition, Req { bytes, ..Req::job("dd.0") }));
    }
    let left = server.run(ms(10_000), u64::MAX);
    near(left.iter().map(|left| left.bytes).sum(), 500_000_000);
}

#[test]
fn a_request_pays_for_a_whole_transfer_at_most() {
    let mut server = server(1, "tbf jobid", &["start r jobid={*} bps=1MiB total=1"]);
    server.enqueue(0, Req { bytes: u64::from(u32::MAX), ..Req::job("liar") });
    server.enqueue(0, Req { bytes: 4_096, ..Req::job("other") });
    assert_eq!(server.run(ms(5_000), u64::MAX).len(), 2);
}

#[test]
fn mixed_classes_each_get_their_own() {
    let rules = [
        "start slow jobid={a.*} rate=50",
        "start fast jobid={b.0} rate=2000",
        "start half jobid={c} rate=0.5",
    ];
    let mut server = server(3, "tbf jobid", &rules);
    backlog(&mut server, &["a.1", "a.2", "b.0", "c", "other"], 4);
    let left = server.run(ms(10_000), 1_000);
    let (jobs, _) = count(&left);
    near(jobs["a.1"], 503);
    near(jobs["a.2"], 503);
    near(jobs["b.0"], 20_000);
    near(jobs["other"], 100_000);
    assert_eq!(jobs["c"], 3 + 4, "the burst, and one every two seconds after it");
}

#[test]
fn partitions_that_have_nothing_leave_their_share_to_the_others() {
    let mut server = server(4, "tbf jobid", &["start r jobid={dd.0} rate=500"]);
    server.refill = true;
    (0..10).for_each(|_| server.enqueue(2, Req::job("dd.0")));
    near(server.run(ms(10_000), u64::MAX).len() as u64, 5_000);
}

#[test]
fn scopes_multiply_the_rate_or_do_not() {
    let run = |rule: &str| {
        let node = Rc::new(TbfNode::default());
        let mut servers: Vec<Server> =
            (0..2).map(|_| Server::new(2, &[node.descriptor()])).collect();
        for server in &mut servers {
            server.select("tbf jobid").expect("it starts");
            server.set("nrs_tbf_rule", rule).expect(rule);
            backlog(server, &["j"], 20);
        }
        let mut total = 0;
        for now in 1..=10_000 {
            total += servers
                .iter_mut()
                .map(|server| server.run(ms(now), u64::MAX).len() as u64)
                .sum::<u64>();
        }
        drop(servers);
        assert_eq!(node.buckets.borrow().len(), 0, "no bucket of the node outlives the policies");
        total
    };
    near(run("start r jobid={j} rate=500 scope=cpt"), 20_000);
    near(run("start r jobid={j} rate=500"), 10_000);
    near(run("start r jobid={j} rate=500 scope=node"), 5_000);
}

#[test]
fn rules_of_one_name_that_disagree_fill_no_bucket_of_each_other() {
    let node = Rc::new(TbfNode::default());
    let mut servers = [10, 20].map(|rate| {
        let mut server = Server::new(1, &[node.descriptor()]);
        server.select("tbf jobid").expect("it starts");
        let rule = format!("start r jobid={{*}} rate={rate} total=1 scope=node");
        server.set("nrs_tbf_rule", &rule).expect("well formed");
        server
    });
    let mut left = 0;
    for now in 0..1_000 {
        let server = &mut servers[now as usize % 2];
        server.now = ms(now);
        server.enqueue(0, Req::job(&format!("new{now}")));
        left += server.run(ms(now + 1), u64::MAX).len();
    }
    assert!((30..=45).contains(&left), "{left}: 30 a second, and the bursts");
}

#[test]
fn what_is_released_charges_no_other_service() {
    let node = Rc::new(TbfNode::default());
    let [mut a, mut b] = [0, 1].map(|_| Server::new(1, &[node.descriptor()]));
    for server in [&mut a, &mut b] {
        server.select("tbf jobid").expect("it starts");
        command_all(server, &["start r jobid={j} rate=100 scope=node"]);
    }
    b.enqueue(0, Req::job("j"));
    assert_eq!(b.run(ms(1), u64::MAX).len(), 1);
    (0..1_000).for_each(|_| a.enqueue(0, Req::job("j")));
    a.select("fifo now").expect("always");
    assert_eq!(a.run(ms(2), u64::MAX).len(), 1_000);
    b.now = ms(1_000);
    b.enqueue(0, Req::job("j"));
    assert_eq!(b.run(ms(1_050), u64::MAX).len(), 1);
}

#[test]
fn one_bucket_for_a_whole_rule_and_groups_of_its_own() {
    let jobs = ["a", "b", "c", "d"];
    let mut total = server(2, "tbf jobid", &["start r jobid={*} rate=400 total=1"]);
    backlog(&mut total, &jobs, 5);
    let left = total.run(ms(10_000), u64::MAX);
    near(left.len() as u64, 4_000);
    count(&left).0.values().for_each(|job| near(*job, 1_000));
    // two users with two jobs each: a rate for each user
    let mut grouped = server(2, "tbf", &["start r jobid={*} class=uid rate=400"]);
    grouped.refill = true;
    for (job, uid) in jobs.iter().zip([1, 1, 2, 2]) {
        (0..5).for_each(|_| grouped.enqueue(0, Req { uid, ..Req::job(job) }));
    }
    let left = grouped.run(ms(10_000), u64::MAX);
    count(&left).0.values().for_each(|job| near(*job, 2_000));
}

#[test]
fn under_overload_no_class_starves() {
    let rules = ["start n jobid={n} rate=800", "start rt jobid={rt} rate=800 realtime=1"];
    let mut server = server(1, "tbf jobid", &rules);
    backlog(&mut server, &["n", "rt"], 10);
    // one request a millisecond for 2 x 800 asked
    let left = server.run(ms(10_000), 1);
    let (jobs, _) = count(&left);
    assert_eq!(left.len(), 10_000);
    assert!(jobs["n"] > 1_500, "{jobs:?}");
    near(jobs["rt"], 8_000);
}

#[test]
fn a_realtime_class_catches_up_a_bounded_time() {
    let mut server = server(1, "tbf jobid", &["start rt jobid={rt} rate=1000 realtime=1"]);
    backlog(&mut server, &["rt"], 10);
    server.run(ms(100), u64::MAX);
    server.now = ms(5_100);
    let after = server.run(ms(5_101), u64::MAX).len();
    assert!((995..=1_010).contains(&after), "one second of five: {after}");
    server.set("nrs_tbf_rt_lag", "100ms").expect("in range");
    assert_eq!(server.get("nrs_tbf_rt_lag"), "reg_rt_lag:100ms\n");
    server.run(ms(5_200), u64::MAX);
    server.now = ms(9_000);
    let after = server.run(ms(9_001), u64::MAX).len();
    assert!((95..=110).contains(&after), "{after}");
}

#[test]
fn a_changed_rate_counts_at_once_for_what_waits() {
    let mut server = server(2, "tbf jobid", &["start r jobid={j} rate=0.001 depth=1"]);
    (0..2).for_each(|partition| (0..600).for_each(|_| server.enqueue(partition, Req::job("j"))));
    assert_eq!(server.run(ms(1_000), u64::MAX).len(), 1);
    server.set("nrs_tbf_rule", "change r rate=500").expect("known");
    let second = server.run(ms(2_000), u64::MAX).len();
    near(second as u64, 500);
    server.set("nrs_tbf_rule", "stop r").expect("known");
    assert_eq!(server.run(ms(2_100), u64::MAX).len(), 1_199 - second, "default is 10,000 a second");
}

#[test]
fn a_request_leaves_by_its_latest_time_against_its_rate() {
    let mut server = server(1, "tbf jobid", &["start r jobid={j} rate=0.001 depth=1"]);
    (0..3).for_each(|_| server.enqueue(0, Req::job("j")));
    assert_eq!(server.run(ms(594_000), u64::MAX).len(), 1);
    assert_eq!(server.run(ms(596_000), u64::MAX).len(), 2);
    assert!(server.heads[0].take_disabled().is_empty());
}

#[test]
fn a_class_that_was_overdue_is_served_soon_after() {
    let mut server = server(1, "tbf jobid", &["start r jobid={j} rate=1 depth=1"]);
    (0..3_000).for_each(|_| server.enqueue(0, Req::job("j")));
    assert_eq!(server.run(ms(596_000), u64::MAX).len(), 3_000, "most of them against the rate");
    server.enqueue(0, Req::job("j"));
    assert_eq!(server.run(ms(640_000), u64::MAX).len(), 0, "it pays for them");
    assert_eq!(server.run(ms(660_000), u64::MAX).len(), 1, "but no longer than a minute");
}

#[test]
fn every_kind_of_field_is_matched() {
    let rules = [
        "start rn nid={10.0.0.[1,3]@tcp} rate=1",
        "start ro opcode={ost_punch mds_reint} rate=2",
        "start ru uid={500 501}&gid={7},uid={502} rate=3",
        "start rp projid={7 8}&gid={1} rate=4",
        "start rj jobid={prog*.10*} rate=5",
        "start none gid={-1}&uid={600} rate=6",
    ];
    let base = || Req { gid: 1, ..Req::job("x") };
    let nid = |text: &str| text.parse::<Nid>().expect("a NID");
    let cases = [
        (Req { nid: nid("10.0.0.3@tcp"), ..base() }, "rn"),
        (Req { nid: nid("10.0.0.2@tcp"), ..base() }, "default"),
        (Req { opcode: Opcode::OstPunch, ..base() }, "ro"),
        (Req { opcode: Opcode::MdtUnlink, ..base() }, "ro"),
        (Req { uid: 501, gid: 7, ..base() }, "ru"),
        (Req { uid: 501, gid: 8, ..base() }, "default"),
        (Req { uid: 502, ..base() }, "ru"),
        (Req { projid: 8, ..base() }, "rp"),
        (Req { projid: 0, ..base() }, "default"),
        (Req { jobid: "prog7.1000".to_owned(), ..base() }, "rj"),
        (Req { jobid: "prog.11".to_owned(), ..base() }, "default"),
        (Req { uid: 600, gid: ID_NONE, ..base() }, "none"),
        (Req { uid: 600, ..base() }, "default"),
    ];
    let mut table = Rules::new(FieldSet::ALL, Rate::rpc(9), 3);
    rules.iter().for_each(|rule| table.apply(grammar::parse(rule).expect(rule)));
    for (request, wanted) in cases {
        let key = Key::of(FieldSet::ALL, &request);
        let found = table.get(table.find(&key)).expect("a rule").name.to_string();
        assert_eq!(
            (found.as_str(), table.find_by_walking(&key).to_string().as_str()),
            (wanted, wanted),
            "{request:?}"
        );
    }
}

#[test]
fn jobid_patterns_match_any_run() {
    let matches = |pattern: &str, jobid: &str| {
        let mut rules = Rules::new(FieldSet::ALL, Rate::rpc(1), 1);
        rules.apply(grammar::parse(&format!("start r jobid={{{pattern}}}")).expect(pattern));
        rules.find(&Key::of(FieldSet::ALL, &Req::job(jobid))) != 0
    };
    for (pattern, yes, no) in [
        ("dd.*", "dd. dd.0 dd.500", "dd add.0 DD.0"),
        ("*.500", ".500 dd.500 a.b.500", "dd.5000 500"),
        ("prog*.10*", "prog.10 prog1.100 prog.1.10", "prog10 pro.10"),
        ("a*b*c", "abc aXbYc abbc abcbc", "ac acb ab"),
        ("*", "x", ""),
        ("a*a", "aa aba", "a"),
        ("**x**", "x axb", "y"),
        ("dd.0", "dd.0", "dd.00 dd."),
    ] {
        yes.split(' ')
            .for_each(|jobid| assert!(matches(pattern, jobid), "{pattern} matches {jobid}"));
        no.split(' ')
            .filter(|jobid| !jobid.is_empty())
            .for_each(|jobid| assert!(!matches(pattern, jobid), "{pattern}, {jobid}"));
    }
}

/// Random rules, changes of rank and stops: the index finds what a walk by rank finds.
#[test]
fn the_index_finds_what_a_walk_finds() {
    for seed in 0..20 {
        let mut chance = SplitMix64::new(seed);
        let mut rules = Rules::new(FieldSet::ALL, Rate::rpc(1), 1);
        for step in 0..400 {
            let expr = |chance: &mut SplitMix64| match chance.below(6) {
                0 => format!("uid={{{} {}}}", chance.below(4), chance.below(4)),
                1 => format!("gid={{{}}}", chance.below(3)),
                2 => format!("jobid={{j{}}}", chance.below(6)),
                3 => format!("jobid={{j{}*}}", chance.below(6)),
                4 => format!("nid={{10.0.0.[{}-3]@tcp}}", chance.below(4)),
                _ => "opcode={ost_read}".to_owned(),
            };
            let name = format!("r{}", chance.below(40));
            let rank = if chance.below(2) == 0 {
                format!(" rank=r{}", chance.below(40))
            } else {
                String::new()
            };
            let text = match chance.below(4) {
                0 => format!("stop {name}"),
                1 => format!("change {name} rate=2{rank}"),
                _ => {
                    let joint = if chance.below(2) == 0 { '&' } else { ',' };
                    format!(
                        "start {name} {}{joint}{} rate=1{rank}",
                        expr(&mut chance),
                        expr(&mut chance)
                    )
                }
            };
            let command = grammar::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            if rules.check(&command).is_ok() {
                rules.apply(command);
            }
            for _ in 0..4 {
                let request = Req {
                    uid: chance.below(5) as u32,
                    gid: chance.below(4) as u32,
                    nid: Nid(2 << 48 | 0x0a00_0000 | chance.below(5)),
                    opcode: if chance.below(2) == 0 { Opcode::OstRead } else { Opcode::OstWrite },
                    ..Req::job(&format!(
                        "j{}{}",
                        chance.below(7),
                        if chance.below(3) == 0 { "x" } else { "" }
                    ))
                };
                let key = Key::of(FieldSet::ALL, &request);
                let found = rules.get(rules.find(&key)).expect("a rule").name;
                assert_eq!(
                    found,
                    rules.find_by_walking(&key),
                    "seed {seed}, step {step}, {request:?}\n{}",
                    rules.print()
                );
            }
        }
    }
}

fn names(server: &mut Server) -> String {
    let text = server.get("nrs_tbf_rule");
    let lines = text.lines().filter(|line| line.contains(", ref"));
    lines.map(|line| line.split(' ').next().unwrap_or_default()).collect::<Vec<_>>().join(" ")
}

#[test]
fn ranks_are_as_commanded() {
    let mut server =
        server(1, "tbf uid", &["start a uid={1}", "start b uid={2}", "start c uid={3} rank=a"]);
    for (command, order) in [
        ("", "b c a default"),
        ("change a rank=b", "a b c default"),
        ("change a rank=a", "a b c default"),
        ("change b rank=c", "a b c default"),
        ("change c rank=b", "a c b default"),
        ("change a rank=default", "c b a default"),
        ("start d uid={4} rank=default", "c b a d default"),
        ("stop b", "c a d default"),
        ("stop b", "c a d default"),
        ("start b uid={5} rank=d", "c a b d default"),
    ] {
        command_all(
            &mut server,
            if command.is_empty() { &[] } else { std::slice::from_ref(&command) },
        );
        assert_eq!(names(&mut server), order, "{command}");
    }
    // one place again and again: ranks are dealt anew when they run out
    for number in 0..200 {
        command_all(&mut server, &[&format!("start x{number} uid={{9}} rank=d")]);
    }
    let order: String = (0..200).map(|number| format!("x{number} ")).collect();
    assert_eq!(names(&mut server), format!("c a b {order}d default"));
}

#[test]
fn rules_print_with_their_classes_per_partition() {
    let rules = ["start iozone_user uid={500} rate=100", "start x uid={7} bps=50MB/s realtime=1"];
    let mut server = server(2, "tbf uid", &rules);
    server.enqueue(0, Req::default());
    server.enqueue(0, Req { uid: 3, ..Req::default() });
    let rules = "x uid={7} 50MB/s realtime=1, ref 0\niozone_user uid={500} 100, ref";
    assert_eq!(
        server.get("nrs_tbf_rule"),
        format!(
            "regular_requests:\nCPT 0:\n{rules} 1\ndefault * 10000, ref 1\nCPT 1:\n{rules} 0\ndefault * 10000, ref 0\n"
        )
    );
    server.set("nrs_tbf_rule", "reg change default rate=7").expect("allowed");
    server.set("nrs_tbf_rule", "stop iozone_user").expect("known");
    assert!(
        server
            .get("nrs_tbf_rule")
            .contains("CPT 0:\nx uid={7} 50MB/s realtime=1, ref 0\ndefault * 7, ref 2\n")
    );
}

#[test]
fn a_regrouped_rule_counts_each_class_once() {
    let mut server = server(1, "tbf uid", &["start x uid={*} rate=3"]);
    for number in 0..3 {
        server.enqueue(0, Req { number, uid: 7, ..Req::default() });
    }
    server.set("nrs_tbf_rule", "change x scope=cpt").expect("known");
    assert!(
        server.get("nrs_tbf_rule").contains("ref 1\ndefault * 10000, ref 0\n"),
        "{}",
        server.get("nrs_tbf_rule")
    );
    server.set("nrs_tbf_rule", "change default rate=7 depth=9 scope=cpt").expect("allowed");
    server.set("nrs_tbf_rt_lag", "5").expect("in range");
    server.set("nrs_tbf_reset", "1").expect("its only value");
    assert_eq!(server.get("nrs_tbf_rule"), "regular_requests:\nCPT 0:\ndefault * 10000, ref 1\n");
    assert_eq!(server.get("nrs_tbf_rt_lag"), "reg_rt_lag:1\n");
    assert_eq!(
        server.run(ms(1), u64::MAX).len(),
        3,
        "nothing is lost, and the default's depth is back"
    );
}

/// The first command that regroups `default` while it has classes: the number of the new grouping
/// was the old one's.
#[test]
fn default_regrouped_first_of_all_counts_its_classes_once() {
    let mut server = server(1, "tbf jobid", &[]);
    server.enqueue(0, Req::job("a"));
    for (command, shown) in [
        ("change default scope=node", "default * 10000 scope=node, ref 1"),
        ("change default total=1", "default * 10000 scope=node total=1, ref 1"),
    ] {
        command_all(&mut server, &[command]);
        let rules = server.get("nrs_tbf_rule");
        assert!(rules.contains(shown), "{rules}");
    }
    assert!(server.heads[0].take_disabled().is_empty());
}

#[test]
fn a_wrong_command_changes_nothing_and_names_the_word() {
    let mut server = server(2, "tbf jobid", &["start a jobid={x} rate=5", "start b jobid={y}"]);
    let before = server.get("nrs_tbf_rule");
    for (command, errno, word) in [
        ("begin c jobid={x}", Errno::EINVAL, "begin"),
        ("", Errno::EINVAL, "''"),
        ("start a jobid={z}", Errno::EEXIST, "'a'"),
        ("start default jobid={z}", Errno::EEXIST, "default"),
        ("start c uid={5}", Errno::EINVAL, "uid"),
        ("start c jobid={x}&uid={5}", Errno::EINVAL, "uid"),
        ("start c job={x}", Errno::EINVAL, "job"),
        ("start c nodemap={5}", Errno::EINVAL, "nodemap: not yet"),
        ("start c projid={5}", Errno::EINVAL, "projid"),
        ("start c jobid={}", Errno::EINVAL, "jobid={}"),
        ("start c jobid={x", Errno::EINVAL, "jobid"),
        ("start c jobid=x", Errno::EINVAL, "jobid"),
        ("start c", Errno::EINVAL, "field"),
        ("start sixteen_chars_xx jobid={x}", Errno::EINVAL, "sixteen_chars_xx"),
        ("start c-d jobid={x}", Errno::EINVAL, "c-d"),
        ("start c jobid={x} rate=0", Errno::EINVAL, "rate=0"),
        ("start c jobid={x} rate=1000000", Errno::EINVAL, "rate=1000000"),
        ("start c jobid={x} rate=-1", Errno::EINVAL, "rate=-1"),
        ("start c jobid={x} rate=0.0001", Errno::EINVAL, "rate=0.0001"),
        ("start c jobid={x} rate=5 rate=6", Errno::EINVAL, "rate=6"),
        ("start c jobid={x} rate=5 bps=6", Errno::EINVAL, "bps=6"),
        ("start c jobid={x} bps=5XB", Errno::EINVAL, "5XB"),
        ("start c jobid={x} bps=5mb", Errno::EINVAL, "5mb"),
        ("start c jobid={x} bps=5KiBB", Errno::EINVAL, "5KiBB"),
        ("start c jobid={x} rank=nope", Errno::ENOENT, "nope"),
        ("start c jobid={x} realtime=2", Errno::EINVAL, "realtime=2"),
        ("start c jobid={x} class=uid", Errno::EINVAL, "class=uid"),
        ("start c jobid={x} speed=2", Errno::EINVAL, "speed=2"),
        ("start c jobid={x},", Errno::EINVAL, "field"),
        ("change nope rate=5", Errno::ENOENT, "nope"),
        ("change a", Errno::EINVAL, "change a"),
        ("change a rank=nope rate=9", Errno::ENOENT, "nope"),
        ("change default rank=a", Errno::EPERM, "default"),
        ("stop default", Errno::EPERM, "default"),
        ("stop a b", Errno::EINVAL, "'b'"),
        (
            "start c jobid={123456789012345678901234567890123}",
            Errno::EINVAL,
            "12345678901234567890123456789012",
        ),
    ] {
        let refusal = server.set("nrs_tbf_rule", command).expect_err(command);
        assert_eq!(refusal.errno, errno, "{command}: {refusal}");
        assert!(refusal.text.contains(word), "{command}: {refusal}");
        assert_eq!(server.get("nrs_tbf_rule"), before, "{command}");
    }
    server.set("nrs_tbf_rule", "stop nope").expect("stopping what is not there succeeds");
    let long = format!("start c jobid={{{}}}", "x ".repeat(2_100));
    assert_eq!(
        server.set("nrs_tbf_rule", &long).map_err(|refusal| refusal.errno),
        Err(Errno::EINVAL)
    );
    for argument in ["tbf job", "tbf nid+nid", "tbf nid+", "tbf sixteencharacter"] {
        assert_eq!(
            server.select(argument).map_err(|refusal| refusal.errno),
            Err(Errno::EINVAL),
            "{argument}"
        );
    }
}

/// Rules move to new heads as commands.
#[test]
fn every_rule_can_be_written_as_a_command() {
    let start = |values: usize| format!("start name_of_15_byte jobid={{{}}}", "x ".repeat(values));
    let most = (grammar::CONDS_BYTES_MAX - "jobid={}".len()).div_ceil(2);
    let pairs = "rate=123456.789 depth=1000000 realtime=1 scope=node total=1 \
                 class=nid+jobid+opcode+uid+gid+projid";
    let mut rules = Rules::new(FieldSet::ALL, Rate::rpc(1), 1);
    rules.apply(grammar::parse(&start(most)).expect("it fits"));
    for change in [pairs.to_owned(), "bps=1099511627775B".to_owned()] {
        let change = format!("change name_of_15_byte {change}");
        rules.apply(grammar::parse(&change).expect("well formed"));
        for command in rules.commands() {
            assert!(command.len() + "reg ".len() <= crate::VALUE_BYTES_MAX, "{}", command.len());
            grammar::parse(&command).expect("it says what was said");
        }
    }
    let refusal = grammar::parse(&start(most + 1)).expect_err("it would not fit");
    assert!(refusal.text.contains("bytes"), "{refusal}");
}

#[test]
fn the_documented_examples_are_understood() {
    for (command, printed) in [
        (
            "start loginnode nid={192.168.1.1@tcp} rate=100",
            "loginnode nid={192.168.1.1@tcp} 100, ref 0",
        ),
        (
            "start comp opcode={ost_write}&jobid={dd.0},nid={192.168.1.[1-128]@tcp 0@lo} rate=100",
            "comp opcode={ost_write}&jobid={dd.0},nid={192.168.1.[1-128]@tcp 0@lo} 100, ref 0",
        ),
        ("start rt jobid={dd.0} rate=100 realtime=1", "rt jobid={dd.0} 100 realtime=1, ref 0"),
        ("start c nid={10.0.0.[1,3]@tcp}", "c nid={10.0.0.[1,3]@tcp} 10000, ref 0"),
        (
            "  start  c  uid = { 5  6 } & gid={7} , gid={8}  rate=1.50 ",
            "c uid={5 6}&gid={7},gid={8} 1.5, ref 0",
        ),
        ("start c uid={1} bps=5", "c uid={1} 5MiB/s, ref 0"),
        ("start c uid={1} bps=5MB/s depth=9", "c uid={1} 5MB/s depth=9, ref 0"),
        (
            "start c uid={1} bps=1.5GiB class=uid+gid total=1 scope=node",
            "c uid={1} 1536MiB/s scope=node class=uid+gid total=1, ref 0",
        ),
    ] {
        let text = check_tbf_rule(command).unwrap_or_else(|error| panic!("{command}: {error}"));
        assert_eq!(text, format!("{printed}\ndefault * 10000, ref 0\n"));
    }
}

#[test]
fn idle_classes_are_reclaimed_oldest_first() {
    let node = Rc::new(TbfNode::default());
    node.set(TbfParam::IdleClasses, "100").expect("in range");
    let mut server = Server::new(1, &[node.descriptor()]);
    server.select("tbf jobid").expect("it starts");
    let count = |server: &mut Server| server.get("nrs_tbf_stats").matches("class:").count();
    server.set("nrs_tbf_stats", "top:1000:seen").expect("understood");
    for job in 0..100 {
        server.enqueue(0, Req::job(&format!("j{job}")));
        server.run(ms(job + 1), u64::MAX);
    }
    assert_eq!(count(&mut server), 100);
    server.enqueue(0, Req::job("j0")); // seen again: not the oldest any more
    server.run(ms(101), u64::MAX);
    server.enqueue(0, Req::job("one_more"));
    server.run(ms(102), u64::MAX);
    let stats = server.get("nrs_tbf_stats");
    assert_eq!(count(&mut server), 75);
    for (job, kept) in [
        ("j0", true),
        ("one_more", true),
        ("j99", true),
        ("j1", false),
        ("j26", false),
        ("j27", true),
    ] {
        assert_eq!(stats.contains(&format!("\"jobid={job}\"")), kept, "{job}: {stats}");
    }
    assert!(server.get("nrs_tbf_rule").contains("default * 10000, ref 75"));
}

#[test]
fn statistics_say_which_class_waited_and_why() {
    let mut server = server(
        1,
        "tbf jobid",
        &["start slow jobid={a} rate=100", "start fast jobid={b} rate=100000"],
    );
    for _ in 0..10 {
        server.enqueue(0, Req::job("a"));
        server.enqueue(0, Req::job("b"));
    }
    server.run(ms(41), u64::MAX);
    server.set("nrs_tbf_stats", "top:1:wait").expect("understood");
    let stats = server.get("nrs_tbf_stats");
    let line = "- { class: \"jobid=a\", rule: slow, queued: 3, dispatched: 7, throttled: 4, removed: 0, wait_us: 100000, last_seen_ms: 41 }";
    assert_eq!(stats, format!("regular_requests:\nCPT 0:\n{line}\n"));
    server.now = ms(1_041); // nothing came or left meanwhile
    assert!(server.get("nrs_tbf_stats").contains("last_seen_ms: 1041 }"));
    for wrong in ["top", "top:", "top:0", "top:1:speed", "all", "top:-1"] {
        assert!(server.set("nrs_tbf_stats", wrong).is_err(), "{wrong}");
    }
}

/// Requests of random classes over partitions, with rules that come and go while classes are still
/// stale, removals and changes of policy. Nothing is lost or doubled, no request overtakes its own
/// class, and no policy is found broken.
#[test]
fn nothing_is_lost_whatever_is_commanded() {
    for seed in 0..30 {
        let mut chance = SplitMix64::new(seed);
        let node = Rc::new(TbfNode::with_attach_step(1 + seed as usize % 5));
        node.set(TbfParam::IdleClasses, "8").expect("in range");
        let mut server = Server::new(3, &[node.descriptor(), crate::delay()]);
        let (mut next, mut left, mut removed) = (0_u64, Vec::new(), 0_usize);
        let mut handles = Vec::new();
        for _ in 0..3_000 {
            match chance.below(12) {
                0 => {
                    let policy = ["tbf jobid", "tbf", "tbf uid+gid", "fifo", "delay"]
                        [chance.below(5) as usize];
                    let _ = server.select(policy); // EAGAIN while it drains
                }
                1 | 2 => {
                    let name = chance.below(5);
                    let rate = 1 + chance.below(500);
                    let extra =
                        ["", " total=1", " realtime=1", " scope=node", " scope=cpt", " rank=r1"]
                            [chance.below(6) as usize];
                    let command = match chance.below(4) {
                        0 => format!("stop r{name}"),
                        1 => format!("change r{name} rate={rate}{extra}"),
                        2 => format!(
                            "start r{name} jobid={{j{}}} rate={rate}{extra}",
                            chance.below(6)
                        ),
                        _ => format!("start r{name} jobid={{*}} bps={rate}{extra}"),
                    };
                    let _ = server.set("nrs_tbf_rule", &command);
                }
                3 if !handles.is_empty() => {
                    let at = chance.below(handles.len() as u64) as usize;
                    let (partition, handle): (usize, crate::Handle) = handles.swap_remove(at);
                    let why = if chance.below(2) == 0 { Removal::Gone } else { Removal::Promoted };
                    let now = server.now;
                    removed +=
                        usize::from(server.heads[partition].remove(handle, now, why).is_some());
                }
                4..=8 => {
                    let partition = chance.below(3) as usize;
                    let job = format!("j{}", chance.below(20));
                    let request =
                        Req { number: next, bytes: chance.below(1 << 20), ..Req::job(&job) };
                    handles.push((partition, server.put(partition, request)));
                    next += 1;
                }
                _ => {
                    let end = Instant(server.now.0 + chance.below(20_000_000));
                    left.extend(server.run(end, 3));
                }
            }
        }
        server.heads.iter_mut().for_each(crate::Head::end);
        let end = Instant(server.now.0 + 10_000_000);
        left.extend(server.run(end, u64::MAX));
        let mut numbers: Vec<u64> = left.iter().map(|left| left.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), left.len(), "seed {seed}: nothing twice");
        assert_eq!(numbers.len() + removed, next as usize, "seed {seed}: nothing lost");
        for head in &mut server.heads {
            assert_eq!(head.take_disabled(), [], "seed {seed}");
            assert!(head.is_empty());
        }
        server.select("fifo").expect("always");
        assert_eq!(node.buckets.borrow().len(), 0, "seed {seed}: no bucket is left behind");
    }
}

#[test]
fn requests_of_a_class_leave_in_the_order_they_came() {
    let mut server = server(1, "tbf jobid", &["start r jobid={*} rate=200"]);
    for number in 0..500 {
        server.enqueue(0, Req { number, ..Req::job(["a", "b", "c"][number as usize % 3]) });
    }
    let left = server.run(ms(5_000), u64::MAX);
    assert_eq!(left.len(), 500);
    for job in ["a", "b", "c"] {
        assert!(left.iter().filter(|left| left.jobid == job).map(|left| left.number).is_sorted());
    }
}

#[test]
fn ten_thousand_rules_and_as_many_classes() {
    let mut rules = Rules::new(FieldSet::ALL, Rate::rpc(1), 1);
    for number in 0..10_000 {
        let text = format!("start r{number} jobid={{job.{number}}}&uid={{500}} rate=5");
        rules.apply(grammar::parse(&text).expect("well formed"));
    }
    for number in (0..10_000).step_by(7) {
        let key = Key::of(FieldSet::ALL, &Req::job(&format!("job.{number}")));
        assert_eq!(
            rules.get(rules.find(&key)).expect("a rule").name.to_string(),
            format!("r{number}")
        );
    }
}
