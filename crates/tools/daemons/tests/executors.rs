//! Two executors of one process: each a node on a thread of its own, with targets of its own.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::rc::Rc;
use std::thread::JoinHandle;

use daemons::format;
use daemons::machine::MachineOptions;
use daemons::server::{Among, Awaited, Server, ServerOptions, Trust};
use metrics::SCRAPES_WAITING_MAX;
use tokio::sync::{mpsc, oneshot};
use types::{NidAddr, Span, TargetId};

/// For everything that must come.
const PATIENCE: Span = Span::secs(60);

fn options(dirs: Vec<PathBuf>, at: [NidAddr; 2], index: usize) -> ServerOptions {
    let machine = MachineOptions { executors: 2, ..MachineOptions::default() };
    ServerOptions {
        dirs,
        listen: at[index],
        mgs: vec![at[0]],
        abort_recovery: false,
        trust: Trust::Whole,
        dead_clients: Vec::new(),
        no_permanent: false,
        machine: machine.on_this_machine().expect("any machine"),
        metrics: (index == 0).then(metrics_at),
        commit_interval: Span::secs(1),
        devices: Vec::new(),
        awaited: Awaited { mdts: 2, osts: 2 },
        among: Among { index, others: vec![at[1 - index]] },
    }
}

fn metrics_at() -> SocketAddr {
    "127.0.63.1:9172".parse().expect("an address")
}

async fn registered(env: &env::Env, options: &ServerOptions) -> Rc<Server> {
    let server = Server::start(env, options).await.expect("it starts");
    env.timeout(PATIENCE, server.registered()).await.expect("it knows all targets");
    server
}

/// The second node on its thread. It answers scrapes and serves until it is told to stop.
fn other(
    options: ServerOptions,
    scrapes: mpsc::Receiver<metrics::Scrape>,
    stop: oneshot::Receiver<()>,
) -> JoinHandle<Vec<String>> {
    let config = env_os::OsConfig::default();
    let main = move |env: env::Env| async move {
        let server = registered(&env, &options).await;
        server.answer_scrapes(scrapes);
        stop.await.expect("it is told to stop");
        server.stop().await;
        server.names()
    };
    env_os::spawn_thread("executor-1", config, main).expect("a thread")
}

/// What Prometheus gets, asked from a thread because the executors answer.
fn scrape() -> String {
    let mut stream = TcpStream::connect(metrics_at()).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

#[test]
fn nodes_on_two_threads_find_each_other_and_one_answers_prometheus() {
    let dir = std::env::temp_dir().join(format!("nacre-executors-{}", std::process::id()));
    let targets = [TargetId::MGT, TargetId::mdt(0), TargetId::ost(0)];
    let others = [TargetId::mdt(1), TargetId::ost(1)];
    let at = ["127.0.63.1:4988@tcp", "127.0.63.2:4988@tcp"].map(|at| at.parse().expect("a NID"));
    for (name, targets) in [("one", &targets[..]), ("two", &others[..])] {
        format::run(&format::Options {
            fsname: "testfs".parse().expect("a name"),
            targets: targets.to_vec(),
            mgs: vec![at[0]],
            reformat: false,
            dir: dir.join(name),
        })
        .expect("formats");
    }
    let (ask, scrapes) = mpsc::channel(SCRAPES_WAITING_MAX);
    let (stop, stopped) = oneshot::channel();
    let thread = other(options(vec![dir.join("two")], at, 1), scrapes, stopped);
    let first = options(vec![dir.join("one")], at, 0);
    env_os::run(env_os::OsConfig::default(), |env| async move {
        let server = registered(&env, &first).await;
        server.serve_metrics(vec![ask]).await;
        let (text, shown) = oneshot::channel();
        let asker = std::thread::spawn(move || {
            let text_of_all = loop {
                let text = scrape();
                if text.contains("executor=\"1\"") {
                    break text; // the second node has all targets too, and answers
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            };
            text.send(text_of_all).expect("it is waited for");
        });
        let text = env.timeout(PATIENCE, shown).await.expect("in time").expect("an answer");
        asker.join().expect("no panic");
        for (target, index) in [("MDT0000", 0), ("OST0000", 0), ("MDT0001", 1), ("OST0001", 1)] {
            let labels = format!("target=\"testfs-{target}\",executor=\"{index}\"}}");
            assert!(text.contains(&labels), "{labels}\n{text}");
        }
        assert_eq!(text.matches("# TYPE nacre_build_info gauge\n").count(), 1, "{text}");
        // links to the other node cross threads in memory
        assert!(text.contains("nacre_lnet_peers{executor=\"1\"} 0\n"), "{text}");
        stop.send(()).expect("the other node serves");
        server.stop().await;
    });
    let mut names = thread.join().expect("no panic");
    names.sort();
    assert_eq!(names, ["testfs-MDT0001", "testfs-OST0001"]);
    fs::remove_dir_all(&dir).expect("cleaned up");
}
