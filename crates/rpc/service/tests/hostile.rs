//! Messages that no correct client sends: they are refused, the link is closed, and other clients
//! do not notice.

use crate::common::raw::{Client, ask, check, connect};
use crate::common::{Rules, TARGET, serve, serve_with};
use env::{Env, Link};
use types::{Errno, Instance, NidAddr, Span, Transno};
use wire::body::{ConnectRep, ConnectReq};
use wire::{Opcode, ReplyFlags, Request, RequestFlags};

/// Whether the server closes the link within a second.
async fn is_closed(env: &Env, link: &mut Link) -> bool {
    env.timeout(Span::secs(1), link.rx.recv()).await.is_some_and(|frame| frame.is_none())
}

/// Each of these ends the link, and nothing is executed.
async fn is_refused(env: &Env, at: NidAddr, former: Option<ConnectRep>, requests: &[Forged]) {
    for (opcode, flags, transno) in requests {
        let mut client = Client::connect(env, at, former).await;
        let mut request = client.request(*opcode, 9, 3, *flags);
        request.header.transno = *transno;
        client.link.tx.send_message(&request).expect("open");
        assert!(is_closed(env, &mut client.link).await, "{opcode:?} {flags:?} {transno:x}");
    }
}

type Forged = (Opcode, RequestFlags, u64);

const MODIFIES: RequestFlags = RequestFlags::MODIFIES;
const REPLAY: RequestFlags = RequestFlags::REPLAY;

#[test]
fn a_replay_that_cannot_be_one_is_refused_in_normal_service() {
    check(|env, _, toy, _, at| async move {
        let forged = [
            (Opcode::MdtSetattr, REPLAY | MODIFIES, 0),
            (Opcode::MdtSetattr, REPLAY, 0),
            (Opcode::MdtSetattr, REPLAY | MODIFIES, u64::MAX),
            (Opcode::MdtSetattr, REPLAY | MODIFIES | RequestFlags::OPEN, 1),
            (Opcode::OstWrite, RequestFlags::RESENT | MODIFIES | RequestFlags::OPEN, 0),
        ];
        is_refused(&env, at, None, &forged).await;
        assert_eq!(toy.executed.get(), 0);
    });
}

#[test]
fn a_replay_that_cannot_be_one_is_refused_during_recovery() {
    check(|env, server, toy, disk, at| async move {
        let joined = Client::connect(&env, at, None).await.joined;
        toy.commit();
        let next = NidAddr { port: at.port + 1, ..at };
        let (_up, toy) = serve(server, next, disk, &Rules::default()).await;
        assert!(toy.exports.is_recovering());
        let now = Transno::first_of_epoch(2).0;
        assert_eq!(toy.exports.instance(), Instance(2));
        let forged = [
            (Opcode::MdtSetattr, REPLAY, 0),
            (Opcode::MdtSetattr, REPLAY | MODIFIES, now),
            (Opcode::MdtSetattr, REPLAY | MODIFIES, u64::MAX),
            (Opcode::MdtUnlock, REPLAY, 0),
        ];
        is_refused(&env, next, Some(joined), &forged).await;
        assert_eq!(toy.executed.get(), 0);
    });
}

/// One of a newer client, or what a hostile one makes up: it costs neither the link nor room.
#[test]
fn an_unknown_operation_is_refused_and_its_link_stays() {
    check(|env, _, toy, _, at| async move {
        let mut client = Client::connect(&env, at, None).await;
        for number in 0..10_000 {
            let mut newer = client.request(Opcode::MdtSetattr, 100 + number, 3, MODIFIES);
            newer.header.opcode = u16::MAX - (number % 7) as u16;
            let reply = ask(&mut client.link, &newer).await;
            assert_eq!(reply.errno(), Some(Errno::EOPNOTSUPP));
            assert_eq!(reply.header.opcode, newer.header.opcode);
        }
        assert_eq!(toy.executed.get(), 0);
        assert_eq!(client.change(2, 3, RequestFlags::empty()).await.errno(), None);
        let mut other = env.connect(None, at).await.expect("it listens");
        let mut newer = client.request(Opcode::MdtSetattr, 9, 3, MODIFIES);
        newer.header.opcode = u16::MAX;
        let reply = ask(&mut other, &newer).await;
        assert_eq!(reply.errno(), Some(Errno::ENOTCONN), "the session is another peer's");
        newer.header.target = u32::MAX;
        assert_eq!(ask(&mut other, &newer).await.errno(), Some(Errno::ENODEV));
    });
}

/// A target goes back to an older version, which does not know an operation to be repeated.
#[test]
fn replays_do_not_wait_for_an_unknown_one() {
    check(|env, server, toy, disk, at| async move {
        let joined = Client::connect(&env, at, None).await.joined;
        toy.commit();
        let next = NidAddr { port: at.port + 1, ..at };
        let (_up, toy) = serve(server, next, disk, &Rules::default()).await;
        let mut client = Client::connect(&env, next, Some(joined)).await;
        let first = Transno::first_of_epoch(1).0;
        for (index, opcode) in (1..).zip([u16::MAX, Opcode::MdtSetattr as u16]) {
            let (xid, flags) = (9 + u64::from(index), REPLAY | MODIFIES);
            let mut replay = client.request(Opcode::MdtSetattr, xid, 3, flags);
            replay.header.opcode = opcode;
            (replay.header.replay_index, replay.header.tag) = (index, index);
            replay.header.transno = first + u64::from(index);
            let asked = env.timeout(Span::secs(1), ask(&mut client.link, &replay)).await;
            let refused = asked.expect("it waits for no other").errno();
            assert_eq!(refused, (index == 1).then_some(Errno::EOPNOTSUPP));
        }
        assert_eq!(toy.executed.get(), 1);
    });
}

#[test]
fn a_lock_that_is_stated_again_without_a_recovery_is_refused() {
    check(|env, _, _, _, at| async move {
        let mut client = Client::connect(&env, at, None).await;
        let request = client.request(Opcode::MdtLock, 9, 3, REPLAY);
        assert_eq!(ask(&mut client.link, &request).await.errno(), Some(Errno::EPROTO));
    });
}

/// A correct client sends one if the recovery ends while it repeats what it has replayed before, on
/// a new link.
#[test]
fn a_replay_after_the_recovery_is_answered_and_changes_nothing() {
    check(|env, server, _, disk, at| async move {
        let next = NidAddr { port: at.port + 1, ..at };
        let (up, toy) = serve(server, next, disk, &Rules::default()).await;
        assert_eq!((toy.exports.instance(), toy.exports.is_recovering()), (Instance(2), false));
        let mut client = Client::connect(&env, next, None).await;
        let mut request = client.request(Opcode::MdtSetattr, 9, 3, REPLAY | MODIFIES);
        request.header.transno = Transno::first_of_epoch(1).0;
        let reply = ask(&mut client.link, &request).await;
        assert_eq!((reply.errno(), reply.header.transno), (None, request.header.transno));
        assert_eq!((toy.executed.get(), reply.bufs.len()), (0, 0), "its client has the answer");
        assert_eq!(client.change(10, 3, RequestFlags::empty()).await.errno(), None);
        assert_eq!(toy.executed.get(), 1, "the link goes on");
        drop(up);
    });
}

/// Else a session would hold as many long answers as it has tags, in no account.
#[test]
fn no_answer_is_kept_of_a_request_that_changes_nothing() {
    check(|env, _, toy, _, at| async move {
        let forged = [
            (Opcode::OstRead, MODIFIES, 0),
            (Opcode::OstRead, RequestFlags::RESENT | MODIFIES, 0),
            (Opcode::MdtSync, MODIFIES, 0),
        ];
        is_refused(&env, at, None, &forged).await;
        assert_eq!((toy.reads.get(), toy.executed.get()), (0, 0));
    });
}

#[test]
fn a_name_forges_no_line_of_the_log() {
    check(|env, _, toy, _, at| async move {
        let name = "x\nERROR forged \u{1b}[2J\u{202e}".repeat(100);
        let _client = Client::connect_as(&env, at, None, &name).await;
        let sessions = toy.exports.sessions();
        let shown = &sessions.first().expect("its session").name;
        assert!(shown.starts_with("x\\nERROR forged \\u{1b}[2J\\u{202e}x"), "{shown}");
        assert!(shown.len() < 1_000 && !shown.chars().any(char::is_control));
    });
}

#[test]
fn a_session_is_used_by_its_own_peer_alone() {
    check(|env, _, toy, _, at| async move {
        let mut client = Client::connect(&env, at, None).await;
        let mut other = env.connect(None, at).await.expect("it listens");
        let forged = [
            client.request(Opcode::MdtSetattr, 9, 3, MODIFIES),
            client.request(Opcode::MdtUnlock, 10, 3, RequestFlags::empty()),
            client.request(Opcode::Disconnect, 11, 3, RequestFlags::empty()),
        ];
        let mut unknown = Request::new(Opcode::Ping, Vec::new());
        (unknown.header.xid, unknown.header.target) = (12, TARGET.to_u32());
        for request in forged.iter().chain([&unknown]) {
            let reply = ask(&mut other, request).await;
            assert_eq!(reply.errno(), Some(Errno::ENOTCONN), "as one that never was");
            assert!(reply.has(ReplyFlags::NO_SESSION));
        }
        assert_eq!(toy.executed.get(), 0);
        assert_eq!(client.change(2, 3, RequestFlags::empty()).await.errno(), None);
    });
}

/// Who knows a client's number cannot end its session while it is there.
#[test]
fn a_client_that_is_connected_is_not_taken_over_from_another_address() {
    check(|env, server, _, _, at| async move {
        let mut client = Client::connect(&env, at, None).await;
        let mut other = server.connect(None, at).await.expect("it listens");
        let reply = ask(&mut other, &connect(Some(client.joined), "thief")).await;
        assert_eq!(reply.errno(), Some(Errno::EACCES));
        assert_eq!(client.change(2, 3, RequestFlags::empty()).await.errno(), None);
    });
}

/// It would hold what it likes of the server's memory: replays wait for others, and need no room.
#[test]
fn replays_of_one_client_are_bounded_in_bytes() {
    check(|env, server, toy, disk, at| async move {
        const BYTES: usize = 4 << 20;
        let joined = Client::connect(&env, at, None).await.joined;
        toy.commit();
        let next = NidAddr { port: at.port + 1, ..at };
        let (up, toy) = serve(server, next, disk, &Rules::default()).await;
        let mut client = Client::connect(&env, next, Some(joined)).await;
        let far = Transno::first_of_epoch(1).0 + 1_000;
        let mut sent = 0;
        for number in 0..200 {
            let mut request = client.request(Opcode::MdtSetattr, 9 + number, 3, REPLAY | MODIFIES);
            request.header.transno = far + number;
            request.bufs.push(bytes::Bytes::from(vec![0; BYTES]));
            if client.link.tx.send_message(&request).is_err() {
                break;
            }
            sent += BYTES as u64;
            client.link.tx.room().await;
        }
        assert!(is_closed(&env, &mut client.link).await, "{} MiB are held", sent >> 20);
        assert_eq!(toy.executed.get(), 0);
        drop(up);
    });
}

/// Each session has its bound, and an address may have many. A link of a client that holds little
/// is read all the same.
#[test]
fn replays_of_all_clients_of_an_address_are_bounded_in_bytes() {
    check(|env, server, toy, disk, at| async move {
        const BYTES: u64 = 1 << 20;
        const ALL: u64 = 16 << 20;
        const CLIENTS: u64 = 10;
        let mut known = Vec::new();
        for number in 100..100 + CLIENTS {
            known.push(Client::connect_number(&env, at, None, number).await.joined);
        }
        let honest = Client::connect(&server, at, None).await.joined;
        toy.commit();
        let next = NidAddr { port: at.port + 1, ..at };
        let rules = Rules::default();
        let bound = |config: &mut service::NodeConfig| config.passing_bytes_max = ALL;
        let (up, _toy) = serve_with(server.clone(), next, disk, &rules, bound).await;
        let far = Transno::first_of_epoch(1).0 + 1_000;
        let replay = |client: &Client, number: u64, len: u64| {
            let mut request = client.request(Opcode::MdtSetattr, 9 + number, 3, REPLAY | MODIFIES);
            request.header.transno = far + number;
            request.bufs.push(bytes::Bytes::from(vec![0; len as usize]));
            request
        };
        let mut held = 0;
        for (number, joined) in (100..).zip(known) {
            let client = Client::connect_number(&env, next, Some(joined), number).await;
            for number in 0.. {
                client.link.tx.send_message(&replay(&client, number, BYTES)).expect("open");
                env.sleep(Span::millis(100)).await;
                if !client.link.tx.is_open() {
                    break;
                }
                held += BYTES;
            }
        }
        assert!(held <= ALL / 2 + CLIENTS * BYTES, "{} MiB", held >> 20);
        let mut client = Client::connect(&server, next, Some(honest)).await;
        for number in 0..32 {
            client.link.tx.send_message(&replay(&client, number, 64)).expect("open");
        }
        let ping = client.request(Opcode::Ping, 99, 3, RequestFlags::empty());
        assert_eq!(ask(&mut client.link, &ping).await.errno(), None);
        drop(up);
    });
}

#[test]
fn who_says_that_it_is_a_server_is_believed_only_where_one_is_known() {
    check(|env, server, toy, _, at| async move {
        let known = server.connect(None, at).await.expect("it listens").peer;
        toy.exports.believe_servers(move |nid| nid == known);
        let says = |client: u64, is_server: u32| {
            let mut request = connect(None, "says so");
            let body = ConnectReq { client_low: client, tags: 8, is_server, ..Default::default() };
            request.bufs[0] = wire::encode_body(&body);
            request
        };
        let asked = async |env: &Env, request: Request| {
            let mut link = env.connect(None, at).await.expect("it listens");
            ask(&mut link, &request).await.errno()
        };
        assert_eq!(asked(&env, says(8, 1)).await, Some(Errno::EACCES));
        assert_eq!(asked(&env, says(8, 0)).await, None, "as a client");
        assert_eq!(asked(&server, says(9, 1)).await, None);
        env.sleep(Span::secs(1)).await;
        assert_eq!(asked(&env, says(9, 0)).await, Some(Errno::EACCES), "a server's session");
        let sessions = toy.exports.sessions();
        assert_eq!(sessions.iter().filter(|session| session.is_server).count(), 1);
    });
}
