//! Administrators' settings for the request scheduler: rules, policies, tunables.

use nrs::{Dequeued, Head, HeadKind, Moment, Request, ServiceHeads};
use types::{CptIndex, Instant, Nid, Span};
use wire::Opcode;

pub(crate) fn rules() -> Vec<Vec<u8>> {
    [
        "start loginnode nid={192.168.1.1@tcp} rate=100",
        "start comp opcode={ost_write}&jobid={dd.0},nid={192.168.1.[1-128]@tcp 0@lo} rate=100",
        "start rt jobid={*.500 prog*.10*} rate=0.5 realtime=1 depth=9",
        "start b uid={500 -1}&gid={*} bps=5MB/s scope=node class=nid+jobid total=1 rank=default",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// A rule that is accepted prints as a rule that is accepted and prints the same again.
pub(crate) fn rule(input: &[u8]) -> bool {
    let Ok(printed) = nrs::check_tbf_rule(&String::from_utf8_lossy(input)) else { return false };
    let Some((line, _)) =
        printed.split_once('\n').filter(|(line, _)| !line.starts_with("default "))
    else {
        return true;
    };
    let (words, _) = line.rsplit_once(", ref ").expect("a rule's line ends with its classes");
    // the rate follows the conditions, without its name
    let (conds, pairs) = words.rsplit_once("} ").expect("conditions end with a brace");
    let key = if pairs.split(' ').next().is_some_and(|rate| rate.ends_with("/s")) {
        "bps"
    } else {
        "rate"
    };
    let again = nrs::check_tbf_rule(&format!("start {conds}}} {key}={pairs}"))
        .expect("what was printed is understood");
    assert_eq!(again, printed);
    true
}

pub(crate) fn commands() -> Vec<Vec<u8>> {
    [
        "nrs_policies=tbf jobid\nnrs_tbf_rule=start r jobid={a} rate=5\nnrs_tbf_rule=reg change r rate=7\nnrs_policies=fifo",
        "nrs_policies=delay reg\nnrs_delay_max=reg_delay_max:9\nnrs_delay_min=250ms\nnrs_delay_pct=reg_delay_pct:5 hp_delay_pct:6",
        "nrs_policies=tbf hp nid+opcode\nnrs_tbf_rule=hp start x opcode={ost_read}\nnrs_tbf_rt_lag=3\nnrs_tbf_stats=top:20:wait",
        "nrs_policies=tbf\nnrs_tbf_rule=stop default\nnrs_policies=tbf uid\nnrs_policies=delay",
        "nrs_policies=crrn\nnrs_crrn_quantum=reg_quantum:4 hp_quantum:9\nnrs_crrn_unit=kib\nnrs_policies=crre reg\nnrs_crre_unit=rpc",
        "nrs_policies=orr\nnrs_orr_supported=reg_supported:writes\nnrs_orr_offset_type=logical\nnrs_orr_sweep=cscan\nnrs_orr_objects_max=5",
        "nrs_policies=trr hp\nnrs_trr_quantum=hp_quantum:7\nnrs_trr_supported=reads_and_writes\nnrs_trr_offset_type=physical\nnrs_trr_reset=1",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

struct Queued(Instant);

impl Request for Queued {
    fn nid(&self) -> Nid {
        Nid::LO
    }
    fn export(&self) -> Option<u64> {
        Some(1)
    }
    fn opcode(&self) -> Opcode {
        Opcode::OstRead
    }
    fn arrival(&self) -> Instant {
        self.0
    }
    fn leave_by(&self) -> Instant {
        self.0 + Span::secs(595)
    }
}

/// A refused command changes nothing; no command loses a request or breaks a policy.
pub(crate) fn command(input: &[u8]) -> bool {
    const READ: [&str; 15] = [
        "nrs_tbf_rule",
        "nrs_tbf_rt_lag",
        "nrs_tbf_stats",
        "nrs_delay_min",
        "nrs_delay_max",
        "nrs_delay_pct",
        "nrs_crrn_quantum",
        "nrs_crrn_unit",
        "nrs_crre_quantum",
        "nrs_crre_unit",
        "nrs_orr_quantum",
        "nrs_orr_supported",
        "nrs_orr_objects_max",
        "nrs_trr_offset_type",
        "nrs_trr_sweep",
    ];
    let policies = nrs::policies();
    let head = |kind, cpt| Head::new("ost_io", kind, CptIndex(cpt), &policies);
    let mut heads = [HeadKind::Reg, HeadKind::Hp].map(|kind| [head(kind, 0), head(kind, 1)]);
    let mut now = Instant(0);
    let (mut accepted, mut queued) = (false, 0);
    for (seed, line) in String::from_utf8_lossy(input).lines().take(32).enumerate() {
        now = now + Span::millis(20);
        for head in heads.iter_mut().flatten() {
            head.enqueue(Queued(now), now);
            queued += 1;
        }
        let (parameter, value) = line.split_once('=').unwrap_or((line, ""));
        let [reg, hp] = &mut heads;
        let mut all = ServiceHeads { reg: reg.iter_mut().collect(), hp: hp.iter_mut().collect() };
        let moment = Moment { now, seed: seed as u64 };
        let state = |all: &mut ServiceHeads<'_, Queued>| {
            (all.list(), READ.map(|parameter| all.get(parameter, now)))
        };
        let before = state(&mut all);
        let done = if parameter == "nrs_policies" {
            all.select(value, moment).map(|selected| match selected {
                nrs::Selected::Done => {}
                nrs::Selected::Draining(restart) => drop(all.give_up(restart)),
            })
        } else {
            all.set(parameter, value, moment)
        };
        match done {
            Ok(()) => accepted = true,
            Err(_) => assert_eq!(state(&mut all), before, "a refused command changed something"),
        }
    }
    for head in heads.iter_mut().flatten() {
        assert!(head.take_disabled().is_empty(), "a policy broke");
        head.end();
        while let Dequeued::Taken(taken) = head.dequeue(now) {
            head.finished(taken.policy, now);
            queued -= 1;
        }
        assert!(head.take_disabled().is_empty(), "a policy broke at the end");
    }
    assert_eq!(queued, 0, "every request leaves");
    accepted
}
