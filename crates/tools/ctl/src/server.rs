//! The server side of a control socket, on the daemon's own executor.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use env::LocalFuture;
use params::{ParamError, ParamTree};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::UCred;
use tokio::net::{UnixListener, UnixStream};
use types::{Creds, Errno, Role};

use crate::places::Places;
use crate::proto::{self, ASK_BYTES_MAX};
use crate::rundir::{self, Registered};
use crate::{Ask, Device, Failure, Name, Outcome, Reply, Value, Who};

/// An asker that says nothing for this long is hung up on, because its place is another's. A
/// command asks as soon as it is connected.
const IDLE_MAX: types::Span = types::Span::secs(2);

/// Time that an asker has to take an answer.
const TAKE_MAX: types::Span = types::Span::secs(10);

/// A question may wait for servers so long; shorter than the asker's own patience.
const ANSWER_MAX: types::Span = types::Span::secs(25);

/// What a daemon answers besides its parameters.
pub trait Answers {
    fn who(&self) -> Who;
    /// `lctl dl`.
    fn devices(&self) -> Vec<Device>;
    /// `lctl list_nids`.
    fn nids(&self) -> Vec<String>;
    /// Questions that only a client can answer; `creds` is who asks.
    fn special(&self, _ask: Ask, _creds: Creds) -> LocalFuture<'static, Result<Reply, Failure>> {
        Box::pin(async {
            Err(Failure { errno: Errno::ENOTTY.raw(), text: "this daemon is not a client".into() })
        })
    }
}

/// Listens in the run directory under `label` until the answer is dropped.
pub fn serve(
    env: &env::Env,
    label: &str,
    params: &ParamTree,
    answers: Rc<dyn Answers>,
) -> io::Result<Registered> {
    let path = rundir::socket_for(label)?;
    let listener = UnixListener::bind(&path)?;
    rundir::open_to_all(&path)?;
    let (env2, params) = (env.clone(), params.clone());
    let own = rustix::process::geteuid().as_raw();
    let places = Rc::new(RefCell::new(Places::new(own)));
    env.spawn("ctl", async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // out of descriptors: others give theirs back
                env2.sleep(types::Span::millis(100)).await;
                continue;
            };
            let Ok(peer) = stream.peer_cred() else { continue };
            if !places.borrow_mut().take(peer.uid()) {
                continue; // closed unanswered: the asker sees an end of file
            }
            let (env3, params, answers, places) =
                (env2.clone(), params.clone(), answers.clone(), places.clone());
            env2.spawn("ctl-peer", async move {
                // the asker went away: its loss
                let _ = converse(&env3, stream, peer, &params, &*answers).await;
                places.borrow_mut().give_back(peer.uid());
            });
        }
    });
    Ok(Registered::new(path))
}

async fn converse(
    env: &env::Env,
    stream: UnixStream,
    peer: UCred,
    params: &ParamTree,
    answers: &dyn Answers,
) -> io::Result<()> {
    let groups = peer.pid().map_or_else(Vec::new, groups_of);
    let creds = Creds { uid: peer.uid(), gid: peer.gid(), groups };
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    loop {
        let mut line = String::new();
        let mut bounded = (&mut read).take(ASK_BYTES_MAX as u64);
        let Some(got) = env.timeout(IDLE_MAX, bounded.read_line(&mut line)).await else {
            return Ok(());
        };
        if got? == 0 {
            return Ok(());
        }
        let answer = match serde_json::from_str::<Ask>(&line) {
            Ok(ask) => {
                let answered = env.timeout(ANSWER_MAX, answer(ask, &creds, params, answers)).await;
                answered.unwrap_or_else(|| Err(Failure::of(Errno::ETIMEDOUT)))
            }
            Err(error) => Err(Failure {
                errno: Errno::EINVAL.raw(),
                text: format!("no question of ours: {error}"),
            }),
        };
        let line_back = proto::encode(&answer);
        let Some(sent) = env.timeout(TAKE_MAX, write.write_all(line_back.as_bytes())).await else {
            return Ok(());
        };
        sent?;
        if !line.ends_with('\n') {
            return Ok(()); // over the bound: what follows is no question
        }
    }
}

/// Supplementary groups of the asker, while it waits for us.
fn groups_of(pid: i32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    Creds::groups_in(&status)
}

async fn answer(
    ask: Ask,
    creds: &Creds,
    params: &ParamTree,
    answers: &dyn Answers,
) -> Result<Reply, Failure> {
    let own = rustix::process::geteuid().as_raw();
    if ask.changes() && Role::of_user(creds.uid, own) < Role::Administrator {
        return Err(Failure::of(Errno::EPERM));
    }
    match ask {
        Ask::Who => Ok(Reply::Who(answers.who())),
        Ask::Get { pattern, recursive } => {
            let found = if recursive { params.get_below(&pattern) } else { params.get(&pattern) };
            let writable = writable_names(params, &pattern, recursive);
            let value = |param: params::Param| Value {
                is_writable: writable.contains(&param.name),
                name: param.name,
                value: param.value,
            };
            found
                .map(|found| Reply::Values(found.into_iter().map(value).collect()))
                .map_err(|error| failure(&error))
        }
        Ask::Set { pattern, value } => {
            let done = params.set(&pattern, &value).await.map_err(|error| failure(&error))?;
            Ok(Reply::Set(done.into_iter().map(outcome).collect()))
        }
        Ask::List { pattern, recursive } => {
            let found = params.list(&pattern, recursive).map_err(|error| failure(&error))?;
            let name = |name: params::ParamName| Name {
                name: name.name,
                is_dir: name.is_dir,
                is_writable: name.is_writable,
            };
            Ok(Reply::Names(found.into_iter().map(name).collect()))
        }
        Ask::Devices => Ok(Reply::Devices(answers.devices())),
        Ask::Nids => Ok(Reply::Lines(answers.nids())),
        other => answers.special(other, creds.clone()).await,
    }
}

fn writable_names(params: &ParamTree, pattern: &str, recursive: bool) -> Vec<String> {
    let names = params.list(pattern, recursive).unwrap_or_default();
    names.into_iter().filter(|name| name.is_writable).map(|name| name.name).collect()
}

fn outcome(done: Result<params::Param, ParamError>) -> Outcome {
    match done {
        Ok(param) => {
            Outcome::Done(Value { name: param.name, value: param.value, is_writable: true })
        }
        Err(error) => Outcome::Refused(failure(&error)),
    }
}

fn failure(error: &ParamError) -> Failure {
    Failure { errno: error.errno().raw(), text: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const LINES: [&str; 11] = [
        "\"who\"",
        "{\"get\":{\"pattern\":\"test.*\",\"recursive\":true}}",
        "{\"set\":{\"pattern\":\"test.number\",\"value\":\"7\"}}",
        "{\"set_permanent\":{\"fsname\":null,\"name\":\"lod.stripecount\",\"value\":\"2\"}}",
        "{\"list\":{\"pattern\":\"*\",\"recursive\":false}}",
        "{\"create\":{\"dir\":\"/\",\"name\":\"f\",\"umask\":18,\"striping\":[1,2]}}",
        "{\"fid2path\":{\"fid\":\"[0x200000401:0x1:0x0]\"}}",
        "{\"export_meta\":{\"target\":\"testfs-MDT0000\",\"path\":\"/b\"}}",
        "{\"list_objects\":{\"target\":\"testfs-OST0000\",\"from\":\"[0x1:0x2:0x3]\"}}",
        "{\"export_state\":{\"number\":1}}",
        "{\"ok\":{\"lines\":[\"a\"]}}",
    ];

    struct Nothing;

    impl Answers for Nothing {
        fn who(&self) -> Who {
            Who::default()
        }

        fn devices(&self) -> Vec<Device> {
            Vec::new()
        }

        fn nids(&self) -> Vec<String> {
            Vec::new()
        }
    }

    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("nothing here waits"),
        }
    }

    /// A line with bytes changed as `input` says: place and new byte.
    fn line(input: &[u8]) -> String {
        let which = input.first().copied().unwrap_or(0);
        let mut line = LINES[usize::from(which) % LINES.len()].as_bytes().to_vec();
        for change in input[input.len().min(1)..].chunks_exact(2) {
            let at = usize::from(change[0]) % line.len();
            line[at] = change[1];
        }
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Fuzz target: a question that decodes encodes to the same question, every answer crosses the
    /// socket, and an asker without rights changes nothing.
    #[test]
    fn questions() {
        let own = rustix::process::geteuid().as_raw();
        let stranger = Creds { uid: own + 1, gid: 1, groups: Vec::new() };
        let number = Rc::new(Cell::new(5));
        let (read, write) = (number.clone(), number.clone());
        let params = ParamTree::new();
        params.register_rw(
            "test.number",
            move || read.get().to_string(),
            move |value| params::parse_within(value, 1, 100).map(|value| write.set(value)),
        );
        let (params, number) =
            (std::panic::AssertUnwindSafe(params), std::panic::AssertUnwindSafe(number));
        let is_answered = |input: &[u8]| {
            let line = line(input);
            if let Some(reply) = proto::decode(&line) {
                assert_eq!(proto::decode(&proto::encode(&reply)), Some(reply));
            }
            let Ok(ask) = serde_json::from_str::<Ask>(&line) else { return false };
            let text = serde_json::to_string(&ask).expect("a question encodes");
            assert_eq!(serde_json::from_str::<Ask>(&text).expect("its own text"), ask);
            let changes = ask.changes();
            let answered = now(answer(ask, &stranger, &params, &Nothing));
            assert_eq!(number.get(), 5);
            assert!(!changes || answered.is_err());
            let (sent, is_ok) = (proto::encode(&answered), answered.is_ok());
            assert_eq!(sent.matches('\n').count(), 1);
            assert_eq!(proto::decode(&sent), Some(answered));
            is_ok
        };
        assert!(is_answered(&[0]) && is_answered(&[1]), "an undamaged question is answered");
        let inputs = bolero::produce::<Vec<u8>>().with().len(0..=9);
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .with_generator(inputs)
            .for_each(|input: &Vec<u8>| _ = is_answered(input));
    }
}
