//! Commands over partitions: a policy's states, the errors of each command, and the texts.

use crate::common::{Mood, Req, Service, Strings, puppet};
use nrs::{HeadKind, Moment, PolicyState, Selected, print_policies};
use types::{Errno, Instant, Span};

const NOW: Moment = Moment { now: Instant(1_000_000_000), seed: 7 };

fn service() -> (Service<Req>, Strings) {
    let ((one, mood), (two, _)) = (puppet("puppet"), puppet("other"));
    let mut policies = vec![one, two];
    policies.extend(nrs::policies());
    (Service::new(2, &policies), mood)
}

fn select(service: &mut Service<Req>, value: &str) -> Result<bool, Errno> {
    match service.all().select(value, NOW) {
        Ok(Selected::Done) => Ok(true),
        Ok(Selected::Draining(restart)) => Err(service.all().give_up(restart).errno),
        Err(refusal) => Err(refusal.errno),
    }
}

fn state(
    service: &Service<Req>,
    kind: HeadKind,
    partition: usize,
    name: &str,
) -> (PolicyState, String) {
    let head = if kind == HeadKind::Reg { &service.reg[partition] } else { &service.hp[partition] };
    let listed = head.list().into_iter().find(|policy| policy.name == name).expect("registered");
    (listed.state, listed.arg)
}

#[test]
fn a_refused_start_changes_nothing() {
    let (mut service, _) = service();
    for (value, errno) in [
        ("nosuch", Errno::ENOENT),
        ("puppet no", Errno::EINVAL),
        ("puppet sixteen_chars_xx", Errno::EINVAL),
        ("crrn jobid", Errno::EINVAL),
        ("fifo jobid", Errno::EINVAL),
        ("", Errno::EINVAL),
    ] {
        assert_eq!(select(&mut service, value), Err(errno), "{value}");
    }
    assert_eq!(select(&mut service, "puppet fifteen_chars_x"), Ok(true));
    assert_eq!(select(&mut service, "puppet no"), Err(Errno::EINVAL), "it runs on");
    for partition in 0..2 {
        assert_eq!(
            state(&service, HeadKind::Reg, partition, "puppet"),
            (PolicyState::Started, "fifteen_chars_x".to_owned())
        );
    }
    service.hp.clear();
    assert_eq!(select(&mut service, "puppet hp"), Err(Errno::ENODEV));
}

#[test]
fn one_partition_that_cannot_keeps_all_as_they_are() {
    let (mut service, mood) = service();
    *mood.borrow_mut() = Mood::Holds(Instant(u64::MAX));
    select(&mut service, "puppet reg").expect("starts");
    service.reg[1].enqueue(Req::new(1, 1).at(NOW.now), NOW.now);
    select(&mut service, "other reg").expect("starts");
    assert_eq!(state(&service, HeadKind::Reg, 0, "puppet").0, PolicyState::Stopped);
    assert_eq!(state(&service, HeadKind::Reg, 1, "puppet").0, PolicyState::Stopping);
    assert_eq!(select(&mut service, "puppet"), Err(Errno::EAGAIN));
    for (kind, partition) in [(HeadKind::Reg, 0), (HeadKind::Hp, 0), (HeadKind::Hp, 1)] {
        assert_eq!(state(&service, kind, partition, "puppet").0, PolicyState::Stopped);
    }
    assert_eq!(
        state(&service, HeadKind::Reg, 0, "other").0,
        PolicyState::Started,
        "the primary stays"
    );
}

#[test]
fn only_the_same_start_again_keeps_tunables() {
    let (mut service, _) = service();
    assert_eq!(select(&mut service, "crrn"), Ok(true));
    service.all().set("nrs_crrn_quantum", "reg_quantum:32 hp_quantum:16", NOW).expect("in range");
    assert_eq!(select(&mut service, "crrn"), Ok(true));
    assert_eq!(
        service.all().get("nrs_crrn_quantum", NOW.now).as_deref(),
        Ok("reg_quantum:32\nhp_quantum:16\n")
    );
    assert_eq!(select(&mut service, "fifo"), Ok(true));
    assert_eq!(select(&mut service, "crrn"), Ok(true));
    assert_eq!(
        service.all().get("nrs_crrn_quantum", NOW.now).as_deref(),
        Ok("reg_quantum:8\nhp_quantum:8\n")
    );
    service.all().set("nrs_crrn_quantum", "9", NOW).expect("in range");
    service.all().set("nrs_crrn_reset", "hp_reset:1", NOW).expect("its only value");
    assert_eq!(
        service.all().get("nrs_crrn_quantum", NOW.now).as_deref(),
        Ok("reg_quantum:9\nhp_quantum:8\n")
    );
}

#[test]
fn no_start_comes_between_a_drain_and_its_restart() {
    let (mut service, _) = service();
    select(&mut service, "puppet reg a").expect("starts");
    service.reg[1].enqueue(Req::new(1, 1), NOW.now);
    let Ok(Selected::Draining(restart)) = service.all().select("puppet reg b", NOW) else {
        panic!("it holds a request")
    };
    assert_eq!(select(&mut service, "other reg"), Err(Errno::EAGAIN));
    assert_eq!(select(&mut service, "other hp"), Ok(true), "another head");
    assert_eq!(state(&service, HeadKind::Reg, 0, "puppet").0, PolicyState::Stopped);
    let Ok(Selected::Draining(restart)) = service.all().resume(restart, NOW) else {
        panic!("not drained")
    };
    let taken = service.reg[1].dequeue(NOW.now).taken().expect("it");
    let Ok(Selected::Draining(restart)) = service.all().resume(restart, NOW) else {
        panic!("being handled")
    };
    service.reg[1].finished(taken.policy, NOW.now);
    assert!(matches!(service.all().resume(restart, NOW), Ok(Selected::Done)));
    assert_eq!(state(&service, HeadKind::Reg, 1, "puppet"), (PolicyState::Started, "b".to_owned()));
    assert_eq!(select(&mut service, "puppet reg c"), Ok(true), "nothing to wait for");

    service.reg[0].enqueue(Req::new(2, 1), NOW.now);
    let Ok(Selected::Draining(restart)) = service.all().select("puppet reg d", NOW) else {
        panic!("it holds a request")
    };
    assert_eq!(service.all().give_up(restart).errno, Errno::EBUSY);
    assert_eq!(select(&mut service, "other reg"), Ok(true), "nobody waits any more");

    select(&mut service, "puppet hp a").expect("starts");
    service.hp[0].enqueue(Req::new(3, 1), NOW.now);
    let Ok(Selected::Draining(restart)) = service.all().select("puppet hp b", NOW) else {
        panic!("it holds a request")
    };
    assert_eq!(select(&mut service, "fifo"), Ok(true), "always");
    assert_eq!(
        service.all().resume(restart, NOW).err().map(|refusal| refusal.errno),
        Some(Errno::EAGAIN)
    );
}

#[test]
fn tunables_follow_the_state_of_their_policy() {
    let (mut service, mood) = service();
    let errno = |answer: Result<(), nrs::Refusal>| answer.map_err(|refusal| refusal.errno);
    assert_eq!(errno(service.all().set("nrs_nosuch", "1", NOW)), Err(Errno::ENOENT));
    assert_eq!(errno(service.all().set("nrs_crrn_quantum", "1", NOW)), Err(Errno::ENODEV));
    assert_eq!(
        service.all().get("nrs_crrn_quantum", NOW.now).map_err(|refusal| refusal.errno),
        Err(Errno::ENODEV)
    );
    select(&mut service, "crrn reg").expect("starts");
    assert_eq!(
        errno(service.all().set("nrs_crrn_quantum", "64", NOW)),
        Ok(()),
        "it runs on one head"
    );
    assert_eq!(service.all().get("nrs_crrn_quantum", NOW.now).as_deref(), Ok("reg_quantum:64\n"));
    assert_eq!(
        errno(service.all().set("nrs_crrn_quantum", "hp_quantum:1", NOW)),
        Err(Errno::ENODEV)
    );
    for value in ["0", "65536", "x", "", "reg_quantum:1 hp_quantum:0"] {
        assert!(errno(service.all().set("nrs_crrn_quantum", value, NOW)).is_err(), "{value}");
    }
    assert_eq!(
        service.all().get("nrs_crrn_quantum", NOW.now).as_deref(),
        Ok("reg_quantum:64\n"),
        "all or nothing"
    );
    assert_eq!(errno(service.all().set("nrs_crrn_unit", "kib", NOW)), Ok(()));
    assert_eq!(errno(service.all().set("nrs_crrn_unit", "mib", NOW)), Err(Errno::EINVAL));

    *mood.borrow_mut() = Mood::Holds(Instant(u64::MAX));
    select(&mut service, "puppet").expect("starts");
    service.reg[0].enqueue(Req::new(1, 1).at(NOW.now), NOW.now);
    select(&mut service, "fifo").expect("always");
    assert_eq!(
        errno(service.all().set("nrs_puppet_size", "2", NOW)),
        Err(Errno::EAGAIN),
        "it drains"
    );
}

#[test]
fn the_defaults_and_words_of_orr_and_trr() {
    let (mut service, _) = service();
    for name in ["orr", "trr"] {
        select(&mut service, &format!("{name} reg")).expect("starts");
        let mut all = service.all();
        let mut get =
            |what: &str| all.get(&format!("nrs_{name}_{what}"), NOW.now).expect("it runs");
        assert_eq!(get("quantum"), "reg_quantum:256\n");
        assert_eq!(get("offset_type"), "reg_offset_type:physical\n");
        assert_eq!(get("supported"), "reg_supported:reads\n");
        assert_eq!(get("sweep"), "reg_sweep:restart\n");
        for (what, value) in [
            ("offset_type", "logical"),
            ("supported", "writes"),
            ("supported", "reg_supported:reads_and_writes"),
            ("sweep", "cscan"),
            ("quantum", "1"),
        ] {
            let mut all = service.all();
            all.set(&format!("nrs_{name}_{what}"), value, NOW).expect("a good value");
            let word = value.split(':').next_back().expect("a word");
            assert_eq!(
                all.get(&format!("nrs_{name}_{what}"), NOW.now),
                Ok(format!("reg_{what}:{word}\n"))
            );
        }
        let refusal = service
            .all()
            .set(&format!("nrs_{name}_supported"), "both", NOW)
            .expect_err("no such word");
        assert_eq!(refusal.text, "supported 'both': expected reads, writes, reads_and_writes");
        let mut all = service.all();
        let refusal =
            all.set(&format!("nrs_{name}_reset"), "reg_reset:2", NOW).expect_err("out of range");
        assert_eq!(refusal.errno, Errno::EINVAL);
        all.set(&format!("nrs_{name}_reset"), "1", NOW).expect("its only value");
        for (what, value) in [
            ("offset_type", "physical"),
            ("supported", "reads"),
            ("sweep", "restart"),
            ("quantum", "256"),
        ] {
            assert_eq!(
                all.get(&format!("nrs_{name}_{what}"), NOW.now),
                Ok(format!("reg_{what}:{value}\n"))
            );
        }
    }
    let metadata: nrs::Head<Req> =
        nrs::Head::new("mdt", HeadKind::Reg, types::CptIndex(0), &nrs::policies());
    let mut mdt = Service { reg: vec![metadata], hp: Vec::new() };
    assert_eq!(select(&mut mdt, "orr"), Err(Errno::ENOENT), "only ost_io has it");
    assert_eq!(select(&mut mdt, "crre"), Ok(true));
}

#[test]
fn rules_are_printed_per_head_and_partition() {
    let (mut service, _) = service();
    select(&mut service, "puppet").expect("starts");
    service.all().set("nrs_puppet_rule", "hp 4", NOW).expect("in range");
    assert_eq!(
        service.all().get("nrs_puppet_rule", NOW.now).as_deref(),
        Ok(
            "regular_requests:\nCPT 0:\nrule 1\nCPT 1:\nrule 1\nhigh_priority_requests:\nCPT 0:\nrule 4\nCPT 1:\nrule 4\n"
        )
    );
}

#[test]
fn the_list_of_policies_is_printed_as_lustre_prints_it() {
    let (one, _) = puppet("puppet");
    let mut service: Service<Req> = Service::new(2, &[one]);
    select(&mut service, "puppet reg jobid").expect("starts");
    for number in 0..3 {
        service.reg[(number % 2) as usize].enqueue(Req::new(number, 1), NOW.now);
    }
    let _ = service.reg[1].dequeue(NOW.now).taken().expect("one");
    let all = service.all();
    let (reg, hp) = all.list();
    let block = |name: &str, state: &str, fallback: &str, queued: u32, active: u32| {
        format!(
            "  - name: {name}\n    state: {state}\n    fallback: {fallback}\n    queued: {queued}\n    active: {active}\n\n"
        )
    };
    let expected = format!(
        "\nregular_requests:\n{}{}high_priority_requests:\n{}{}",
        block("fifo", "started", "yes", 0, 0),
        block("puppet jobid", "started", "no", 2, 1),
        block("fifo", "started", "yes", 0, 0),
        block("puppet", "stopped", "no", 0, 0),
    );
    assert_eq!(print_policies(&reg, hp.as_deref()), expected);
    assert!(!print_policies(&reg, None).contains("high_priority"));
}

#[test]
fn the_request_log_names_group_round_and_batch() {
    let (mut service, _) = service();
    for (policy, line) in [
        ("crrn", "NRS start crrn request from 12345-0.0.0.9@tcp, round 0, seq: 2"),
        ("crre", "NRS start crre request from 12345-0.0.0.9@tcp, round 0, seq: 2"),
        (
            "orr",
            "NRS start orr request for object with ID [0x200000400:0x9:0x0] from OST with index 1, with round 0",
        ),
        ("trr", "NRS start trr request from OST with index 1, with round 0"),
    ] {
        select(&mut service, policy).expect("starts");
        let head = &mut service.reg[0];
        head.set_log(true);
        head.enqueue(Req::new(1, 9), NOW.now);
        let taken = head.dequeue(NOW.now).taken().expect("one");
        head.finished(taken.policy, NOW.now);
        assert_eq!(taken.log.as_deref(), Some(line));
    }
}

#[test]
fn an_idle_group_is_forgotten_and_orr_keeps_no_more_than_it_may() {
    let (mut service, _) = service();
    select(&mut service, "orr").expect("starts");
    service.all().set("nrs_orr_objects_max", "10", NOW).expect("in range");
    let head = &mut service.reg[0];
    for object in 1..=100 {
        head.enqueue(Req::new(object, object), NOW.now);
        let taken = head.dequeue(NOW.now).taken().expect("one");
        head.finished(taken.policy, NOW.now);
    }
    let objects = |head: &mut nrs::Head<Req>| head.policy_stats("orr").expect("it runs");
    assert!(objects(head).starts_with("  objects: 11\n"), "{}", objects(head));
    let later = Instant(NOW.now.0 + 601_000_000_000);
    for number in 0..20 {
        head.enqueue(Req::new(number, 7), later);
    }
    assert!(objects(head).starts_with("  objects: 1\n"), "{}", objects(head));
}

#[test]
fn statistics_show_what_a_policy_tells_of_itself_in_each_partition() {
    let (mut service, _) = service();
    select(&mut service, "tbf reg nid").expect("starts");
    for client in 1..=3 {
        service.reg[1].enqueue(Req::new(client, client), NOW.now);
    }
    let stats = service.all().stats().to_string();
    let (regular, hp) = stats.split_once("high_priority_requests:\n").expect("both heads");
    let (_, tbf) = regular.split_once("name: tbf, queued: 3, active: 0").expect(regular);
    let mut lines = tbf.lines().skip(1).map(str::trim);
    let none = "CPT 0: { classes: 0, classes_idle: 0, classes_stale: 0, attached: 0, rules: 1 }";
    let some = "CPT 1: { classes: 3, classes_idle: 0, classes_stale: 0, attached: 3, rules: 1 }";
    assert_eq!((lines.next(), lines.next()), (Some(none), Some(some)));
    assert!(!hp.contains("classes"), "{hp}");
}

#[test]
fn who_passes_an_open_head_is_counted_like_one_that_was_queued() {
    let (mut service, _) = service();
    let (passed, queued) = (0, 1);
    assert!(service.reg[passed].is_open());
    let policy = service.reg[passed].pass(Span::ZERO);
    service.reg[queued].enqueue(Req::new(1, 1).at(NOW.now), NOW.now);
    assert!(!service.reg[queued].is_open(), "somebody waits");
    let taken = service.reg[queued].dequeue(NOW.now).taken().expect("FIFO holds nothing back");
    let counters = |service: &Service<Req>, at: usize| service.reg[at].list()[0].counters;
    assert_eq!(counters(&service, passed), counters(&service, queued));
    service.reg[passed].finished(policy, NOW.now);
    service.reg[queued].finished(taken.policy, NOW.now);
    assert_eq!(counters(&service, passed), counters(&service, queued));
    select(&mut service, "crrn").expect("starts");
    assert!(service.reg.iter().all(|head| !head.is_open()), "a policy decides");
}

#[test]
fn an_administrator_releases_what_a_wrong_rule_holds_back() {
    let mut service = Service::new(2, &nrs::policies());
    assert_eq!(select(&mut service, "tbf nid"), Ok(true));
    service.all().set("nrs_tbf_rule", "change default rate=0.001", NOW).expect("typed");
    let now = NOW.now;
    for number in 0..100 {
        service.reg[0].enqueue(Req::new(number, 1).at(now), now);
    }
    let leave = |service: &mut Service<Req>| {
        std::iter::from_fn(|| {
            let taken = service.reg[0].dequeue(now).taken()?;
            service.reg[0].finished(taken.policy, now);
            Some(taken.request.number)
        })
        .collect::<Vec<_>>()
    };
    let burst = leave(&mut service).len() as u64;
    assert_eq!(select(&mut service, "fifo"), Ok(true));
    assert_eq!(leave(&mut service), [], "a limit is a limit");
    assert_eq!(select(&mut service, "tbf nid"), Err(Errno::EAGAIN), "it still drains");
    service.reg[0].enqueue(Req::new(1_000, 1).at(now), now);
    assert_eq!(leave(&mut service), [1_000]);
    assert_eq!(select(&mut service, "fifo now"), Ok(true));
    assert_eq!(leave(&mut service), (burst..100).collect::<Vec<_>>());
    assert_eq!(select(&mut service, "tbf nid"), Ok(true));
    service.all().set("nrs_tbf_rule", "change default rate=0.001", NOW).expect("typed");
    for number in 0..9 {
        service.reg[0].enqueue(Req::new(number, 1).at(now), now);
    }
    assert!(leave(&mut service).len() < 9, "it was said of what waited then");
}
