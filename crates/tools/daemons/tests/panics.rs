//! The effect of a panic, seen from outside: each case runs in a process of its own, which is this
//! test again.

// the fuzzer instruments all programs of a package: each links what instrumented code calls
use bolero as _;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::rc::Rc;

use nrs::{
    Broken, Descriptor, Head, HeadKind, Id, Moment, Next, Policy, Queue, Refused, Removal, Request,
    ServiceHeads, Start,
};
use types::{CptIndex, Instant, Nid};
use wire::Opcode;

/// Says which case a process is.
const CASE: &str = "NACRE_TEST_PANIC";
const SIGABRT: i32 = 6;

struct Ping;

impl Request for Ping {
    fn nid(&self) -> Nid {
        Nid::LO
    }
    fn export(&self) -> Option<u64> {
        None
    }
    fn opcode(&self) -> Opcode {
        Opcode::Ping
    }
    fn arrival(&self) -> Instant {
        Instant(0)
    }
    fn leave_by(&self) -> Instant {
        Instant(u64::MAX)
    }
}

/// Takes requests and panics when it is asked for one.
struct Wrong;

impl Policy<Ping> for Wrong {
    fn enqueue(&mut self, _queue: &mut Queue<Ping>, _id: Id, _now: Instant) -> Result<(), Refused> {
        Ok(())
    }
    fn dequeue(&mut self, _queue: &mut Queue<Ping>, _now: Instant, _force: bool) -> Next {
        panic!("a policy's own mistake")
    }
    fn remove(
        &mut self,
        _queue: &mut Queue<Ping>,
        _id: Id,
        _now: Instant,
        _why: Removal,
    ) -> Result<(), Broken> {
        Ok(())
    }
    fn log(&self, _queue: &Queue<Ping>, _id: Id) -> String {
        String::new()
    }
}

/// A head under the policy that panics goes on with FIFO.
fn serve_under_a_wrong_policy() {
    let make = |start: &Start<'_>| {
        Ok(start.partitions.iter().map(|_| Box::new(Wrong) as Box<dyn Policy<Ping>>).collect())
    };
    let wrong = Descriptor { name: "wrong", service: None, tunables: &[], make: Rc::new(make) };
    let mut head = Head::new("ost_io", HeadKind::Reg, CptIndex(0), &[wrong]);
    let moment = Moment { now: Instant(0), seed: 1 };
    ServiceHeads { reg: vec![&mut head], hp: vec![] }.select("wrong", moment).expect("it starts");
    for _ in 0..3 {
        head.enqueue(Ping, Instant(0));
    }
    for _ in 0..3 {
        let taken = head.dequeue(Instant(0)).taken().expect("nothing is lost");
        head.finished(taken.policy, Instant(0));
    }
    let disabled = head.take_disabled();
    assert_eq!(disabled.len(), 1);
    assert_eq!((disabled[0].call, disabled[0].why.as_str()), ("dequeue", "a policy's own mistake"));
}

/// Runs `test` of this file as the process of `case`.
fn process(test: &str, case: &str) -> Output {
    let this = std::env::current_exe().expect("a test has a file");
    Command::new(this)
        .args([test, "--exact", "--nocapture"])
        .env(CASE, case)
        .output()
        .expect("it starts")
}

fn case() -> Option<String> {
    std::env::var(CASE).ok()
}

#[test]
fn a_policy_that_panics_ends_only_itself() {
    if case().is_some() {
        daemons::panics::end_the_process();
        serve_under_a_wrong_policy();
        println!("the node goes on");
        return;
    }
    let output = process("a_policy_that_panics_ends_only_itself", "policy");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("the node goes on"), "{out}\n{err}");
    assert!(err.contains("a policy's own mistake"), "it is reported: {err}");
}

#[test]
fn any_other_panic_ends_the_process() {
    let name = "any_other_panic_ends_the_process";
    match case().as_deref() {
        None => {}
        Some(case) => {
            daemons::panics::end_the_process();
            serve_under_a_wrong_policy(); // what was guarded is over
            match case {
                "thread" => {
                    _ = std::thread::Builder::new()
                        .spawn(|| panic!("ours"))
                        .expect("it starts")
                        .join()
                }
                "caught" => _ = std::panic::catch_unwind(|| panic!("ours")),
                _ => {
                    let config = env_os::OsConfig::default();
                    env_os::run(config, |env| async move {
                        env.spawn("wrong", async { panic!("ours") });
                        env.sleep(types::Span::secs(60)).await;
                    });
                }
            }
            println!("half a node goes on");
            return;
        }
    }
    for case in ["thread", "caught", "task"] {
        let output = process(name, case);
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.signal(), Some(SIGABRT), "{case}: {out}\n{err}");
        assert!(!out.contains("half a node") && err.contains("ours"), "{case}: {out}\n{err}");
    }
}
