//! Over real loopback sockets: what a good peer gets, and what a bad one cannot do.

use std::io;

use bytes::Bytes;
use env::{Env, Link, LinkRx, LinkTx, Listener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use types::{Nid, NidAddr, Span};
use wire::{CrcMode, FRAME_HEADER_BYTES, FRAME_MAGIC, Frame, FrameHeader, FrameKind, Hello};

use super::handshake::{BULK_TO_ACCEPTOR, BULK_TO_CONNECTOR, CONTROL};
use super::sockets::socket_addr;
use crate::limits::SILENT_TURNS_MAX;
use crate::rng::Rng;
use crate::{OsConfig, run};

/// For everything that must come, also on a busy machine.
const PATIENCE: Span = Span::secs(60);

fn quick() -> OsConfig {
    OsConfig { handshake: PATIENCE, heartbeat: Span::millis(20), ..OsConfig::default() }
}

/// Runs a test twice: sockets on the executor's thread, and on threads of the LND.
fn both<F: Future<Output = ()>>(config: OsConfig, test: impl Fn(Env) -> F) {
    with_threads([0, 2], config, test);
}

/// Runs a test once with each of these numbers of threads of the LND.
fn with_threads<F: Future<Output = ()>>(
    numbers: [u32; 2],
    config: OsConfig,
    test: impl Fn(Env) -> F,
) {
    for lnd_threads in numbers {
        let lnet = crate::Lnet::default();
        run(OsConfig { lnd_threads, lnet: lnet.clone(), ..config.clone() }, &test);
        let busy: Vec<_> = lnet
            .peer_levels()
            .into_iter()
            .filter(|(_, _, level, _)| level.now != level.max)
            .collect();
        assert_eq!(busy, [], "every credit has come back, with {lnd_threads} threads");
    }
}

fn at(text: &str) -> NidAddr {
    text.parse().expect("a NID")
}

async fn listen(env: &Env) -> Listener {
    env.listen(at("127.0.0.1:0@tcp")).await.expect("a loopback port")
}

async fn pair(env: &Env) -> (Link, Link) {
    let mut listener = listen(env).await;
    let near = env.connect(None, listener.addr()).await.expect("it listens");
    (near, listener.accept().await.expect("a link"))
}

fn request(id: u64, len: usize) -> Frame {
    Frame::new(FrameKind::Request, id, Bytes::from(vec![id as u8; len]))
}

fn hello(channel: u16, nonce: u64) -> Hello {
    let nid = at("127.0.0.1@tcp").nid.0;
    let (version, version_min) = (wire::VERSION, wire::VERSION_MIN);
    Hello {
        version,
        version_min,
        channel,
        auth_len: 0,
        compat: 0,
        ro_compat: 0,
        incompat: 0,
        nonce,
        nid,
        credits: 8,
        refusal: 0,
    }
}

/// A connection of a hand-made peer.
async fn raw(to: NidAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(socket_addr(to)).await.expect("it listens");
    stream.write_all(bytes).await.expect("a fresh socket takes it");
    stream
}

async fn raw_hello(to: NidAddr, hello: Hello) -> TcpStream {
    raw(to, &hello.to_frame().encode(CrcMode::All)).await
}

/// The acceptor's HELLO, or nothing where it closed instead.
async fn answer(stream: &mut TcpStream) -> Option<Hello> {
    let mut bytes = vec![0; FRAME_HEADER_BYTES + size_of::<Hello>()];
    stream.read_exact(&mut bytes).await.ok()?;
    Hello::from_frame(&Frame::decode(&Bytes::from(bytes)).expect("a frame")).ok()
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    !matches!(stream.read(&mut [0; 256]).await, Ok(1..))
}

/// A hand-made connector with all three connections: control, bulk to the acceptor, bulk from it.
async fn raw_link(listener: &mut Listener, nonce: u64) -> ([TcpStream; 3], Link) {
    let to = listener.addr();
    let mut streams = Vec::new();
    for channel in [CONTROL, BULK_TO_ACCEPTOR, BULK_TO_CONNECTOR] {
        let mut stream = raw_hello(to, hello(channel, nonce)).await;
        assert_eq!(
            answer(&mut stream).await.map(|hello| (hello.nonce, hello.channel)),
            Some((nonce, channel))
        );
        streams.push(stream);
    }
    (streams.try_into().expect("three"), listener.accept().await.expect("a whole pair"))
}

/// That the listener still serves others.
async fn serves(env: &Env, listener: &mut Listener) {
    let near = env.connect(None, listener.addr()).await.expect("it listens");
    let mut far = listener.accept().await.expect("a link");
    near.tx.send(request(5, 50)).expect("up");
    assert_eq!(far.rx.recv().await, Some(request(5, 50)));
}

#[test]
fn ten_thousand_messages_arrive_in_order_and_come_back() {
    both(quick(), |env| async move {
        let (near, far) = pair(&env).await;
        let echo = env.spawn("echo", echo(far.rx, far.tx));
        let (tx, mut rx) = (near.tx, near.rx);
        env.spawn("sender", async move {
            for id in 0..10_000 {
                tx.room().await;
                tx.send(request(id, id as usize % 700)).expect("up");
            }
        });
        for id in 0..10_000 {
            assert_eq!(rx.recv().await, Some(request(id, id as usize % 700)));
        }
        echo.abort();
    });
}

async fn echo(mut rx: LinkRx, tx: LinkTx) {
    while let Some(frame) = rx.recv().await {
        tx.send(frame).expect("up");
    }
}

#[test]
fn large_messages_and_bulk_cross_both_ways() {
    both(quick(), |env| async move {
        let (mut near, mut far) = pair(&env).await;
        let data = Bytes::from((0..4 << 20).map(|at| (at % 251) as u8).collect::<Vec<_>>());
        for (id, len) in [(1, 0), (2, 1), (3, 4_096), (4, 70_000), (5, 1 << 20), (6, 4 << 20)] {
            let (there, back) = (far.tx.expect_bulk(id, len), near.tx.expect_bulk(id, len));
            let frame = |kind| Frame {
                kind,
                id,
                parts: vec![data.slice(..len / 3), data.slice(len / 3..len)].into(),
            };
            for link in [&near, &far] {
                link.tx.send(frame(FrameKind::BulkData)).expect("up");
                link.tx.send(frame(FrameKind::Request)).expect("up");
            }
            assert_eq!(there.await, Some(data.slice(..len)));
            assert_eq!(back.await, Some(data.slice(..len)));
            assert_eq!(near.rx.recv().await.map(Frame::into_payload), Some(data.slice(..len)));
            assert_eq!(far.rx.recv().await.map(Frame::into_payload), Some(data.slice(..len)));
        }
    });
}

#[test]
fn bulk_data_in_a_row_is_told_apart() {
    both(quick(), |env| async move {
        let (near, far) = pair(&env).await;
        let sizes = [0, 4_096, 1, 16_384, 16_385, 100, 300_000, 4_096, 65_536, 7];
        for (turn, poison) in [None, Some(0xa5), None].into_iter().enumerate() {
            env.poison_bulk(poison);
            let mut tickets = Vec::new();
            for number in 0..600 {
                let (id, len) =
                    (1_000 * (turn as u64 + 1) + number, sizes[number as usize % sizes.len()]);
                let data =
                    Bytes::from((0..len).map(|at| (at as u64 + id) as u8).collect::<Vec<_>>());
                if number % 7 != 3 {
                    tickets.push((far.tx.expect_bulk(id, len), data.clone()));
                }
                near.tx.send(Frame::new(FrameKind::BulkData, id, data)).expect("up");
            }
            for (ticket, data) in tickets {
                assert_eq!(ticket.await, Some(data));
            }
        }
    });
}

#[test]
fn a_peer_is_the_address_that_it_comes_from() {
    both(quick(), |env| async move {
        let mut listener = env.listen(at("127.0.0.2:0@tcp3")).await.expect("a loopback port");
        let own: Nid = "127.0.0.11@tcp3".parse().expect("a NID");
        let near = env.connect(Some(own), listener.addr()).await.expect("it listens");
        let far = listener.accept().await.expect("a link");
        assert_eq!((near.peer, far.peer), (listener.addr().nid, own));
        let error = env
            .connect("127.0.0.11@tcp".parse().ok(), listener.addr())
            .await
            .err()
            .expect("another network");
        assert!(error.to_string().contains("another network"), "{error}");
    });
}

#[test]
fn a_liar_about_its_address_is_refused() {
    both(quick(), |env| async move {
        let mut listener = listen(&env).await;
        let liar = Hello { nid: at("10.0.0.1@tcp").nid.0, ..hello(CONTROL, 1) };
        assert!(answer(&mut raw_hello(listener.addr(), liar).await).await.is_none());
        let local = Hello { nid: Nid::LO.0, ..hello(CONTROL, 2) };
        assert!(answer(&mut raw_hello(listener.addr(), local).await).await.is_some());
        serves(&env, &mut listener).await;
    });
}

#[test]
fn another_version_is_told_ours_and_closed() {
    both(quick(), |env| async move {
        let mut listener = listen(&env).await;
        let newer = Hello {
            version: wire::VERSION + 1,
            version_min: wire::VERSION + 1,
            ..hello(CONTROL, 1)
        };
        let mut stream = raw_hello(listener.addr(), newer).await;
        assert_eq!(answer(&mut stream).await.map(|hello| hello.version), Some(wire::VERSION));
        assert!(is_closed(&mut stream).await);
        let needy = Hello { incompat: 1, ..hello(CONTROL, 2) };
        let mut stream = raw_hello(listener.addr(), needy).await;
        answer(&mut stream).await;
        assert!(is_closed(&mut stream).await);
        serves(&env, &mut listener).await;
    });
}

#[test]
fn a_connector_refuses_an_acceptor_of_another_version() {
    both(quick(), |env| async move {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let to = NidAddr {
            nid: at("127.0.0.1@tcp").nid,
            port: socket.local_addr().expect("bound").port(),
        };
        env.spawn("old", async move {
            let (mut stream, _) = socket.accept().await.expect("a connector");
            answer(&mut stream).await.expect("its HELLO");
            let old = Hello { version: 0, ..hello(CONTROL, 0) };
            stream.write_all(&old.to_frame().encode(CrcMode::All)).await.expect("it reads");
        });
        let error = env.connect(None, to).await.err().expect("refused");
        assert!(error.to_string().contains("another version"), "{error}");
    });
}

#[test]
fn what_is_no_hello_is_closed() {
    both(quick(), |env| async move {
        let mut listener = listen(&env).await;
        let to = listener.addr();
        let good = hello(CONTROL, 1).to_frame().encode(CrcMode::All);
        let changed = |at: usize, bytes: &[u8]| {
            let mut bad = good.to_vec();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            bad
        };
        let request = request(1, 64).encode(CrcMode::All).to_vec();
        let bads = [
            ("magic", changed(0, b"HTTP")),
            ("checksum", changed(40, &[0xff])),
            ("oversize", changed(8, &u32::MAX.to_le_bytes())),
            ("oversize for a HELLO", changed(8, &5_000_u32.to_le_bytes())),
            ("a request", request),
            ("channel", hello(3, 1).to_frame().encode(CrcMode::All).to_vec()),
        ];
        for (what, bytes) in bads {
            let mut stream = raw(to, &bytes).await;
            answer(&mut stream).await;
            assert!(is_closed(&mut stream).await, "{what}");
        }
        serves(&env, &mut listener).await;
    });
}

/// Closed at once it would come again at once.
#[test]
fn a_mute_connection_is_left_alone_for_some_turns_of_the_handshakes_time_and_no_longer() {
    const TURN: Span = Span::millis(50);
    both(OsConfig { handshake: TURN, ..quick() }, |env| async move {
        let listener = listen(&env).await;
        let before = env.now();
        let mut mute = raw(listener.addr(), b"").await;
        assert!(is_closed(&mut mute).await);
        let least = Span(TURN.0 * u64::from(SILENT_TURNS_MAX));
        let lasted = env.now() - before;
        assert!(lasted >= least && lasted < Span(100 * least.0), "{lasted:?}");
    });
}

#[test]
fn bulk_connections_must_carry_the_nonce_of_a_pair() {
    both(quick(), |env| async move {
        let mut listener = listen(&env).await;
        let to = listener.addr();
        let mut control = raw_hello(to, hello(CONTROL, 77)).await;
        assert!(answer(&mut control).await.is_some());
        assert!(answer(&mut raw_hello(to, hello(BULK_TO_ACCEPTOR, 78)).await).await.is_none());
        assert!(
            answer(&mut raw_hello(to, hello(CONTROL, 77)).await).await.is_none(),
            "a nonce is used once"
        );
        serves(&env, &mut listener).await;
    });
}

#[test]
fn half_a_pair_lasts_for_the_handshakes_time_at_most() {
    both(OsConfig { handshake: Span::secs(1), ..quick() }, |env| async move {
        let mut listener = listen(&env).await;
        let mut control = raw_hello(listener.addr(), hello(CONTROL, 77)).await;
        assert!(answer(&mut control).await.is_some());
        assert!(is_closed(&mut control).await);
        // a busy machine may need longer than that for a whole pair
        let whole = async { while env.connect(None, listener.addr()).await.is_err() {} };
        env.timeout(PATIENCE, whole).await.expect("others are served");
        listener.accept().await.expect("a link");
    });
}

#[test]
fn losing_any_connection_closes_the_link() {
    // a heartbeat is more than the end that is looked for
    both(OsConfig { heartbeat: PATIENCE, ..quick() }, |env| async move {
        let mut listener = listen(&env).await;
        for lost in 0..3 {
            let (streams, mut link) = raw_link(&mut listener, 100 + lost).await;
            let ticket = link.tx.expect_bulk(1, 10);
            let mut streams: Vec<_> = streams.into_iter().collect();
            drop(streams.remove(lost as usize));
            assert_eq!(link.rx.recv().await, None);
            assert_eq!(ticket.await, None);
            assert!(link.tx.send(request(1, 1)).is_err());
            link.tx.room().await;
            for stream in &mut streams {
                assert!(is_closed(stream).await);
            }
        }
    });
}

#[test]
fn the_end_is_seen_on_both_sides_behind_what_was_sent() {
    both(quick(), |env| async move {
        let (mut near, mut far) = pair(&env).await;
        near.tx.send(request(1, 100)).expect("up");
        near.tx.close();
        assert_eq!(near.rx.recv().await, None);
        assert_eq!(far.rx.recv().await, Some(request(1, 100)));
        assert_eq!(far.rx.recv().await, None);
        let (near, mut far) = pair(&env).await;
        drop(near.rx);
        assert_eq!(far.rx.recv().await, None);
    });
}

#[test]
fn unexpected_or_too_much_bulk_is_dropped_and_the_link_lives() {
    both(quick(), |env| async move {
        let (near, mut far) = pair(&env).await;
        let bulk = |id, len| Frame::new(FrameKind::BulkData, id, Bytes::from(vec![1; len]));
        let (small, gone) = (far.tx.expect_bulk(2, 100), far.tx.expect_bulk(3, 1 << 20));
        drop(gone);
        for (id, len) in [(1, 3 << 20), (2, 101), (3, 1 << 20), (2, 100)] {
            near.tx.send(bulk(id, len)).expect("up");
        }
        assert_eq!(small.await.map(|data| data.len()), Some(100));
        near.tx.send(request(1, 1)).expect("up");
        assert!(far.rx.recv().await.is_some());
    });
}

#[test]
fn a_bad_frame_closes_its_own_link_only() {
    both(quick(), |env| async move {
        let mut listener = listen(&env).await;
        let mut flipped = request(1, 64).encode(CrcMode::All).to_vec();
        flipped[50] ^= 1;
        let mut oversize = FRAME_MAGIC.to_le_bytes().to_vec();
        oversize.extend([FrameKind::Request as u8, 0, 0, 0, 255, 255, 255, 127]);
        oversize.resize(FRAME_HEADER_BYTES, 0);
        let bulk = Frame::new(FrameKind::BulkData, 1, Bytes::new()).encode(CrcMode::All).to_vec();
        let request = request(1, 1).encode(CrcMode::All).to_vec();
        let cases = [(0, flipped), (0, oversize), (0, bulk), (1, request), (2, vec![0])];
        for (nonce, (channel, bytes)) in cases.into_iter().enumerate() {
            let (mut streams, mut link) = raw_link(&mut listener, nonce as u64).await;
            let channel: usize = channel;
            streams[channel].write_all(&bytes).await.expect("the socket takes it");
            assert_eq!(link.rx.recv().await, None, "case {nonce}");
        }
        serves(&env, &mut listener).await;
    });
}

#[test]
fn random_bytes_harm_nobody_else() {
    both(quick(), |env| async move {
        let mut listener = listen(&env).await;
        let rng = Rng::from_os();
        let bytes = |count: u64| (0..count).map(|_| rng.next() as u8).collect::<Vec<_>>();
        for round in 0..100 {
            let noise = bytes(round * 13);
            let _closed = raw(listener.addr(), &noise).await;
        }
        for round in 0..60 {
            let (mut streams, mut link) = raw_link(&mut listener, 1_000 + round).await;
            let mut frame = request(round, 40).encode(CrcMode::All).to_vec();
            let hit = bytes(2);
            frame[usize::from(hit[0]) % FRAME_HEADER_BYTES] ^= hit[1].max(1);
            frame.extend(bytes(200));
            streams[round as usize % 3].write_all(&frame).await.expect("the socket takes it");
            drop(streams);
            while link.rx.recv().await.is_some() {}
        }
        serves(&env, &mut listener).await;
    });
}

#[test]
fn a_dead_port_fails_fast_and_a_mute_one_in_time() {
    let _alone = forks::none();
    both(quick(), |env| async move {
        // no other test draws a port there
        let listener = env.listen(at("127.0.0.31:0@tcp")).await.expect("a loopback port");
        let dead = listener.addr();
        drop(listener);
        drop(env.listen(dead).await.expect("free at once"));
        let before = env.now();
        let error = env.connect(None, dead).await.err().expect("nobody listens");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(env.now() - before < Span(PATIENCE.0 / 2), "no waiting for the handshake");
        let mute = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = mute.local_addr().expect("bound").port();
        let to = NidAddr { nid: at("127.0.0.1@tcp").nid, port };
        let hasty = crate::another(OsConfig { handshake: Span::millis(50), ..quick() });
        let error = hasty.connect(None, to).await.err().expect("nobody answers");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    });
}

#[test]
fn plaintext_stays_on_loopback_unless_told_otherwise() {
    both(quick(), |env| async move {
        let error = env.listen(at("0.0.0.0:0@tcp")).await.err().expect("refused");
        assert!(error.to_string().contains("--insecure"), "{error}");
        let error = env.connect(None, at("10.255.255.1@tcp")).await.err().expect("refused");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let error = env.connect(None, at("127.0.0.1@o2ib")).await.err().expect("no driver");
        assert!(error.to_string().contains("no driver"), "{error}");
    });
    both(OsConfig { insecure: true, ..quick() }, |env| async move {
        let mut listener = env.listen(at("0.0.0.0:0@tcp")).await.expect("allowed");
        let to = NidAddr { nid: at("127.0.0.9@tcp").nid, port: listener.addr().port };
        env.connect(None, to).await.expect("it listens on every address");
        listener.accept().await.expect("a link");
    });
}

/// Both ends of a link are on one thread. A busy machine may stall one of two threads for longer
/// than this timeout, and then its end is silent.
#[test]
fn idle_links_hear_heartbeats_and_silent_ones_end() {
    let config = OsConfig { peer_timeout: Span::millis(150), ..quick() };
    with_threads([0, 1], config, |env| async move {
        let (mut near, mut far) = pair(&env).await;
        let both = async { tokio::join!(near.rx.recv(), far.rx.recv()) };
        assert_eq!(env.timeout(Span::millis(500), both).await, None, "both heard each other");
        let mut listener = listen(&env).await;
        let before = env.now();
        let (_mute, mut link) = raw_link(&mut listener, 9).await;
        assert_eq!(link.rx.recv().await, None);
        assert!(env.now() - before >= Span::millis(100));
    });
}

#[test]
fn room_waits_while_the_peer_takes_nothing() {
    let config = OsConfig { queue_bytes_max: 1 << 20, heartbeat: Span::secs(5), ..quick() };
    both(config, |env| async move {
        let mut listener = listen(&env).await;
        let (mut streams, link) = raw_link(&mut listener, 9).await;
        let mut sent = 0;
        // a thread of the LND that is late still makes room until the kernel's buffers are full
        while env.timeout(Span::secs(2), link.tx.room()).await.is_some() {
            link.tx.send(request(1, 100_000)).expect("up");
            sent += FRAME_HEADER_BYTES + 100_000;
        }
        assert!(sent > 1 << 20 && !link.tx.has_room());
        assert!((1 << 20..=sent as u64).contains(&link.tx.queued_bytes()));
        let mut got = vec![0; sent];
        streams[0].read_exact(&mut got).await.expect("all of it");
        link.tx.room().await;
        assert!(link.tx.has_room());
        let header = FrameHeader::decode(&got).expect("a frame");
        header.check(&got[FRAME_HEADER_BYTES..][..header.length]).expect("intact");
        link.tx.send(request(1, 100_000)).expect("up");
        link.tx.close();
        assert_eq!(link.tx.queued_bytes(), 0, "nothing leaves a closed link");
    });
}

#[test]
fn few_credits_only_slow_a_link_down() {
    for (credits, peer_credits) in [(1, 1), (3, 8), (64, 2)] {
        let lnet = crate::Lnet::new(crate::LnetSettings {
            credits,
            peer_credits,
            ..crate::LnetSettings::default()
        });
        for lnd_threads in [0, 2] {
            run(OsConfig { lnd_threads, lnet: lnet.clone(), ..quick() }, |env| async move {
                let mut listener = listen(&env).await;
                let mut links = Vec::new();
                for _ in 0..2 {
                    let near = env.connect(None, listener.addr()).await.expect("it listens");
                    links.push((near, listener.accept().await.expect("a link")));
                }
                let mut tickets = Vec::new();
                for (near, far) in &mut links {
                    for id in 0..500 {
                        near.tx.send(request(id, 100)).expect("up");
                        tickets.push(far.tx.expect_bulk(id, 5_000));
                        near.tx
                            .send(Frame::new(FrameKind::BulkData, id, Bytes::from(vec![1; 5_000])))
                            .expect("up");
                    }
                }
                for (_, far) in &mut links {
                    for id in 0..500 {
                        assert_eq!(far.rx.recv().await.map(|frame| frame.id), Some(id));
                    }
                }
                for ticket in tickets {
                    assert_eq!(ticket.await.map(|data| data.len()), Some(5_000));
                }
            });
        }
        let levels: Vec<_> =
            lnet.peer_levels().into_iter().map(|(_, _, level, bytes)| (level, bytes)).collect();
        assert!(
            levels
                .iter()
                .all(|(level, bytes)| level.now == level.max && level.min < 0 && *bytes == 0),
            "{levels:?}"
        );
    }
}

#[test]
fn who_takes_all_links_that_it_can_get_leaves_some_for_others() {
    const MAX: usize = 80;
    let lnet =
        crate::Lnet::new(crate::LnetSettings { links_max: MAX, ..crate::LnetSettings::default() });
    run(OsConfig { lnet, ..quick() }, |env| async move {
        let mut listener = listen(&env).await;
        let to = listener.addr();
        let mut links = Vec::new();
        for nonce in 0..MAX as u64 {
            let mut stream = raw_hello(to, hello(CONTROL, 1_000 + nonce)).await;
            if answer(&mut stream).await.is_none() {
                break;
            }
            drop(stream);
            links.push(raw_link(&mut listener, nonce).await);
        }
        assert_eq!(links.len(), MAX * 3 / 8, "three quarters less what others are left");
        let other = at("127.0.0.2@tcp").nid;
        let mut near = env.connect(Some(other), to).await.expect("it has a place");
        let far = listener.accept().await.expect("a link");
        far.tx.send(request(5, 50)).expect("up");
        assert_eq!(near.rx.recv().await, Some(request(5, 50)));
        links.truncate(MAX / 4);
        let has_place = async {
            let mut nonce = 10_000;
            while answer(&mut raw_hello(to, hello(CONTROL, nonce)).await).await.is_none() {
                nonce += 1;
            }
        };
        env.timeout(PATIENCE, has_place).await.expect("their end is seen");
        links.push(raw_link(&mut listener, 77_777).await);
    });
}

#[test]
fn who_takes_nothing_is_given_up_soon_where_others_wait_for_credits() {
    let lnet = crate::Lnet::new(crate::LnetSettings {
        credits: 4,
        peer_credits: 4,
        ..crate::LnetSettings::default()
    });
    let config = OsConfig { lnet, stuck_timeout: Span::millis(200), ..quick() };
    run(config, |env| async move {
        let mut listener = listen(&env).await;
        let (_streams, stuck) = raw_link(&mut listener, 7).await;
        (0..500).for_each(|id| stuck.tx.send(request(id, 60_000)).expect("up"));
        env.sleep(Span::secs(1)).await;
        assert!(stuck.tx.is_open(), "nobody waits for its credits");
        let other = at("127.0.0.2@tcp").nid;
        let mut near = env.connect(Some(other), listener.addr()).await.expect("it listens");
        let far = listener.accept().await.expect("a link");
        far.tx.send(request(1, 100)).expect("up");
        let told = env.timeout(Span::secs(60), near.rx.recv()).await;
        assert_eq!(told, Some(Some(request(1, 100))));
        assert!(!stuck.tx.is_open());
    });
}
