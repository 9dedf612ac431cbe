//! Messages of the network's self-test.

use wire::config::{decode, encode};
use wire::lst::{Control, Told};

const SESSION: wire::lst::SessionId = wire::lst::SessionId { console: 1, stamp: 2 };

pub(crate) fn controls() -> Vec<Vec<u8>> {
    use wire::lst::{Ask, At, Check, Kind, TestSpec};
    let kind = Kind::Brw { write: true, check: Check::Crc, size: 4_096, offset: 8 };
    let spec = TestSpec { kind, loops: Some(9), concurrency: 8 };
    let with = vec![At { nid: 3, port: 988 }; 3];
    let batch = || "bulk_rw".to_owned();
    let asks = [
        Ask::Join { name: "rw".to_owned(), force: true },
        Ask::Leave,
        Ask::AddTest { batch: batch(), test: 1, spec, with },
        Ask::Run { batch: batch() },
        Ask::Stop { batch: batch(), force: false },
        Ask::Query { batch: batch(), test: 1 },
        Ask::Stat,
    ];
    asks.map(|ask| encode(&Control { session: SESSION, ask }).to_vec()).to_vec()
}

/// A node in a session that has a test handles any message that decodes.
pub(crate) fn control(input: &[u8]) -> bool {
    let Some(control) = decode::<Control>(input) else { return false };
    assert_eq!(decode(&encode(&control)), Some(control.clone()));
    let mut member = lst::Member::new();
    for before in controls().into_iter().take(3).filter_map(|bytes| decode(&bytes)) {
        member.handle(before, types::Instant(1));
    }
    let (told, _) = member.handle(control, types::Instant(2));
    assert_eq!(decode(&encode(&told)), Some(told));
    true
}

pub(crate) fn tolds() -> Vec<Vec<u8>> {
    use wire::lst::{Done, Net, Stat};
    let done = Done { count: 3, bytes: 4_096, latency: vec![(1, 2), (9, 1)] };
    let net = Net { send_count: 1, recv_count: 2, send_bytes: 3, recv_bytes: 4 };
    let stat =
        Stat { now_ns: 5, net, done: [done.clone(), done, Done::default()], ..Stat::default() };
    let busy = Told::Busy { name: "rw".to_owned(), session: SESSION };
    let all = [Told::Done, busy, Told::Refused(22), Told::Running(8), Told::Stat(Box::new(stat))];
    all.map(|told| encode(&told).to_vec()).to_vec()
}

/// A console prints any answer that decodes.
pub(crate) fn told(input: &[u8]) -> bool {
    let Some(told) = decode::<Told>(input) else { return false };
    assert_eq!(decode(&encode(&told)), Some(told.clone()));
    if let Told::Stat(stat) = told {
        let nodes: Vec<_> =
            lst::Interval::between(&wire::lst::Stat::default(), &stat).into_iter().collect();
        let _ = lst::render_net("fuzz", &nodes, lst::RateOptions::default());
        let _ = lst::render_rpc("fuzz", &nodes);
    }
    true
}
