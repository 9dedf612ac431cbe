//! A running OST holds 50,000 throttled requests of 1,000 sessions, each over TCP connections of
//! its own, and other clients are not affected. The million requests of 20,000 sessions are
//! simulated: `service/tests/crowd.rs`.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use env::{Env, Link};
use env_os::OsConfig;
use mounted::load::Load;
use mounted::{PATIENCE, Scratch, Up, count, figure, full, posix};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use types::{Fid, Nid, NidAddr, Span, TargetId};
use wire::body::{Claim, ConnectRep, ConnectReq, OstIoReq};
use wire::{Opcode, Reply, ReplyFlags, Request, encode_body};

/// `127.0.0.150` and those behind it, which the rule names.
const ADDRESSES: u8 = 10;
const FIRST: u8 = 150;
const RULE: &str = "start crowd nid={127.0.0.[150-159]@tcp} rate=1 total=1";
/// Another one, which it does not name.
const NEWCOMER: u8 = 160;
const SESSIONS: u64 = 1_000;
const EACH: u64 = 50;
const ALL: u64 = SESSIONS * EACH;
/// Descriptors of a server that has so many clients: three each, and a quarter is kept free.
const DESCRIPTORS: u64 = 16_384;
const TARGET: TargetId = TargetId { kind: types::TargetKind::Ost, index: 0 };
/// What the crowd may cost the server, MiB: three connections and 50 requests a session.
const MEMORY_MIB_MAX: f64 = 256.0;

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    answered: AtomicU64,
    busy: AtomicU64,
    /// Sessions that could not be had, or ended.
    lost: AtomicU64,
    is_over: AtomicBool,
}

/// Clients without endpoints, which keep to no bound, on a thread of their own.
struct Crowd {
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

impl Crowd {
    fn start(at: NidAddr) -> Crowd {
        let counts = Arc::<Counts>::default();
        let own = Arc::clone(&counts);
        let main = move |env: Env| async move {
            for number in 0..ADDRESSES {
                env.spawn("address", address(FIRST + number, at, Arc::clone(&own)));
            }
            while !own.is_over.load(Ordering::Relaxed) {
                env.sleep(Span::millis(20)).await;
            }
        };
        let thread = env_os::spawn_thread("crowd", OsConfig::default(), main).expect("a thread");
        Crowd { counts, thread: Some(thread) }
    }

    fn sent(&self) -> u64 {
        self.counts.sent.load(Ordering::Relaxed)
    }

    fn answered(&self) -> u64 {
        self.counts.answered.load(Ordering::Relaxed)
    }

    /// Waits until all its requests are sent, queued, answered.
    fn wait(&self, what: &str, mut is_there: impl FnMut() -> bool) {
        wait(what, || {
            let lost = self.counts.lost.load(Ordering::Relaxed);
            assert_eq!(lost, 0, "sessions are lost before {what}");
            is_there()
        });
    }

    /// How often it was told that there is no room.
    fn busy(&self) -> u64 {
        self.counts.busy.load(Ordering::Relaxed)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.counts.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || std::thread::panicking());
    }
}

/// The sessions of an address come one after the other, each as a node of its own, and stay.
async fn address(last: u8, at: NidAddr, counts: Arc<Counts>) {
    for _ in 0..SESSIONS / u64::from(ADDRESSES) {
        let env = env_os::another(OsConfig::default());
        let (seq, counts) = (env.random(), Arc::clone(&counts));
        let met = meet(&env, last, at).await;
        env.spawn("member", async move {
            if let Some((link, joined)) = met {
                member(link, joined, seq, &counts).await;
            }
            counts.lost.fetch_add(1, Ordering::Relaxed);
        });
    }
}

/// A fresh client's session, on a link of its own.
async fn meet(env: &Env, last: u8, at: NidAddr) -> Option<(Link, ConnectRep)> {
    let from = Nid::tcp(Ipv4Addr::new(127, 0, 0, last));
    let mut link = env.connect(Some(from), at).await.ok()?;
    let body = ConnectReq {
        client_low: env.random(),
        client_high: env.random(),
        tags: 8,
        ..ConnectReq::default()
    };
    let mut request = Request::new(Opcode::Connect, vec![encode_body(&body)]);
    (request.header.xid, request.header.target) = (1, TARGET.to_u32());
    link.tx.send(request.to_frame()).ok()?;
    let reply = Reply::take(link.rx.recv().await?.into_payload()).ok()?;
    reply.errno().is_none().then(|| (link, reply.body()))
}

/// Asks for 50 reads at once and takes the answers, as long as there is a link.
async fn member(mut link: Link, joined: ConnectRep, seq: u64, counts: &Counts) {
    for number in 1..=EACH {
        let object = Fid::new(seq, u32::try_from(number).expect("50")).into(); // there is none
        let claim = Claim { session: 1 << 32, store: 0x6666, capability: [0; 2] };
        let body = OstIoReq { object, parent: object, length: 4_096, claim, ..Default::default() };
        let mut request = Request::new(Opcode::OstRead, vec![encode_body(&body)]);
        let header = &mut request.header;
        (header.xid, header.target, header.deadline_ms) = (1 + number, TARGET.to_u32(), 60_000);
        (header.session, header.instance) = (joined.session, joined.instance);
        header.epoch = joined.epoch;
        if link.tx.send(request.to_frame()).is_err() {
            return;
        }
        counts.sent.fetch_add(1, Ordering::Relaxed);
    }
    while let Some(frame) = link.rx.recv().await {
        let Ok(reply) = Reply::take(frame.into_payload()) else { return };
        if reply.has(ReplyFlags::BUSY) {
            counts.busy.fetch_add(1, Ordering::Relaxed);
        } else if !reply.has(ReplyFlags::EARLY) {
            counts.answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How long a fresh client takes to connect.
fn newcomer(at: NidAddr) -> Duration {
    env_os::run(OsConfig::default(), |env| async move {
        let start = env.now();
        let _joined = meet(&env, NEWCOMER, at).await.expect("a session");
        Duration::from_nanos((env.now() - start).0)
    })
}

/// Requests that the OST's policy holds, as the OST counts them.
fn queued(up: &Up) -> u64 {
    let stats = up.param("ost.OSS.ost_io.nrs_stats");
    let tbf = stats.lines().find_map(|line| line.split_once("name: tbf, queued: ")).expect("TBF");
    tbf.1.split(',').next().and_then(|count| count.parse().ok()).expect("a number")
}

/// What they occupy, as the OST counts it.
fn held(up: &Up) -> u64 {
    let text = up.tool(&["lctl", "get_param", "-n", "--of", "testfs-OST0000", "req_bytes"]);
    text.trim().parse().expect("a number")
}

/// Anonymous memory of the OST, MiB.
fn memory(up: &Up) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", up.server("OST0000")));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux");
    let kib = line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number");
    kib / 1_024.0
}

fn wait(what: &str, mut is_there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What others get within a window.
struct Others {
    rate: f64,
    slowest: Duration,
    df: Duration,
}

fn others(up: &Up, window: Duration) -> Others {
    let load = Load::start(up.mount(), 2, 4 << 10);
    load.see_progress();
    let _before = load.slowest();
    let (before, start, mut df) = (load.done(), Instant::now(), Duration::ZERO);
    while start.elapsed() < window {
        let asked = Instant::now();
        posix::statvfs(up.mount()).expect("an answer");
        df = df.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    let rate = (load.done() - before) as f64 / start.elapsed().as_secs_f64();
    let slowest = load.slowest();
    load.finish();
    Others { rate, slowest, df }
}

fn raise_descriptors() {
    let Rlimit { maximum, current } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < DESCRIPTORS) {
        let limit = Rlimit { current: Some(DESCRIPTORS), maximum };
        setrlimit(Resource::Nofile, limit).expect("16,384 descriptors may be had");
    }
}

#[test]
fn a_thousand_throttled_sessions_over_tcp_hold_up_nobody_else() {
    raise_descriptors();
    let mut up = Up::with(Scratch::new("crowd"), None, &["--osts", "1"]);
    let import = up.param("osc.*-OST0000-*.import");
    let at =
        import.lines().find_map(|line| line.split_once("current_connection:")).expect("an OST");
    let at: NidAddr = at.1.trim().parse().expect("an address");
    up.set("ost.OSS.ost_io.nrs_policies", "tbf nid");
    up.set("ost.OSS.ost_io.nrs_tbf_rule", RULE);
    let window = Duration::from_secs(count(3, 10) as u64);
    let before = others(&up, window);
    let memory_before = memory(&up);

    let (crowd, start) = (Crowd::start(at), Instant::now());
    crowd.wait("all have asked", || crowd.sent() == ALL);
    crowd.wait("all are queued", || queued(&up) + crowd.answered() == ALL);
    println!("{SESSIONS} sessions with {EACH} requests each after {:.1?}", start.elapsed());
    let during = others(&up, window);
    let connect = (0..10).map(|_| newcomer(at)).max().expect("ten");
    let (waiting, bytes, more) = (queued(&up), held(&up), memory(&up) - memory_before);
    // one a second has left meanwhile, and the burst
    let left = start.elapsed().as_secs() + 4;
    assert!(waiting + left >= ALL, "{waiting} wait, {left} may have left");
    assert!(bytes >= waiting * 1_024, "{bytes} bytes for {waiting} requests");

    let start = Instant::now();
    up.set("ost.OSS.ost_io.nrs_tbf_rule", "stop crowd");
    crowd.wait("all are answered", || crowd.answered() == ALL);
    let drained = start.elapsed();
    crowd.wait("their places are free", || queued(&up) == 0 && held(&up) == 0);
    assert_eq!(crowd.busy(), 0, "there was room for all");

    drop(crowd);

    println!("{waiting} requests wait: {bytes} bytes counted; then answered in {drained:.1?}");
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    figure("crowd/memory", "anonymous memory that the OST took for them", "MiB", more);
    figure("crowd/rate-before", "4 KiB reads and writes of others, before", "calls/s", before.rate);
    figure("crowd/rate", "4 KiB reads and writes of others, beside them", "calls/s", during.rate);
    figure("crowd/slowest-before", "slowest of these, before", "ms", ms(before.slowest));
    figure("crowd/slowest", "slowest of these, beside them", "ms", ms(during.slowest));
    figure("crowd/df", "slowest statfs beside them", "ms", ms(during.df));
    figure("crowd/connect", "slowest of ten connects beside them", "ms", ms(connect));
    assert!(more < MEMORY_MIB_MAX, "{more:.1} MiB");
    // others may use the machine
    let least = if full() { 0.9 } else { 0.5 };
    assert!(during.rate >= before.rate * least, "{:.0} of {:.0}/s", during.rate, before.rate);
    let most = Duration::from_millis(if full() { 100 } else { 2_000 });
    let slowest = during.slowest.max(during.df).max(connect);
    assert!(slowest < most, "{slowest:?}");
    up.stop();
}
