//! The decoders, each with valid inputs to start from and a check that says whether an input was
//! accepted.

use bytes::Bytes;
use wire::{CrcMode, Frame, FrameKind, Opcode, Reply, Request};

pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) corpus: fn() -> Vec<Vec<u8>>,
    pub(crate) check: fn(&[u8]) -> bool,
}

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "frame", corpus: frames, check: frame },
    Target { name: "hello", corpus: hellos, check: hello },
    Target { name: "request", corpus: requests, check: request },
    Target { name: "reply", corpus: replies, check: reply },
    Target { name: "config", corpus: configs, check: config },
    Target { name: "lst_control", corpus: lst_controls, check: lst_control },
    Target { name: "lst_told", corpus: lst_tolds, check: lst_told },
    Target { name: "dirents", corpus: pages, check: dirents },
    Target { name: "lov", corpus: lovs, check: lov },
    Target { name: "layout", corpus: layouts, check: layout_record },
    Target { name: "names", corpus: names, check: name },
    Target { name: "nid_list", corpus: nid_lists, check: nid_list },
    Target { name: "records", corpus: records, check: record },
    Target { name: "superblock", corpus: superblocks, check: superblock },
    Target { name: "parameters", corpus: parameters, check: parameter },
    Target { name: "tbf_rule", corpus: crate::scheduler::rules, check: crate::scheduler::rule },
    Target {
        name: "nrs_commands",
        corpus: crate::scheduler::commands,
        check: crate::scheduler::command,
    },
    Target { name: "fuse", corpus: kernel_requests, check: kernel_request },
];

const LST_SESSION: wire::lst::SessionId = wire::lst::SessionId { console: 1, stamp: 2 };

fn lst_controls() -> Vec<Vec<u8>> {
    use wire::lst::{Ask, At, Check, Control, Kind, TestSpec};
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
    asks.map(|ask| wire::config::encode(&Control { session: LST_SESSION, ask }).to_vec()).to_vec()
}

/// A node takes any control message, in a session that has a test.
fn lst_control(input: &[u8]) -> bool {
    let Some(control) = wire::config::decode::<wire::lst::Control>(input) else { return false };
    assert_eq!(wire::config::decode(&wire::config::encode(&control)), Some(control.clone()));
    let mut member = lst::Member::new();
    for before in
        lst_controls().into_iter().take(3).filter_map(|bytes| wire::config::decode(&bytes))
    {
        member.handle(before, types::Instant(1));
    }
    let (told, _) = member.handle(control, types::Instant(2));
    assert_eq!(wire::config::decode(&wire::config::encode(&told)), Some(told));
    true
}

fn lst_tolds() -> Vec<Vec<u8>> {
    use wire::lst::{Done, Net, Stat, Told};
    let done = Done { count: 3, bytes: 4_096, latency: vec![(1, 2), (9, 1)] };
    let net = Net { send_count: 1, recv_count: 2, send_bytes: 3, recv_bytes: 4 };
    let stat =
        Stat { now_ns: 5, net, done: [done.clone(), done, Done::default()], ..Stat::default() };
    let busy = Told::Busy { name: "rw".to_owned(), session: LST_SESSION };
    let all = [Told::Done, busy, Told::Refused(22), Told::Running(8), Told::Stat(Box::new(stat))];
    all.map(|told| wire::config::encode(&told).to_vec()).to_vec()
}

/// A console takes any answer, and prints what it says of an interval.
fn lst_told(input: &[u8]) -> bool {
    let Some(told) = wire::config::decode::<wire::lst::Told>(input) else { return false };
    assert_eq!(wire::config::decode(&wire::config::encode(&told)), Some(told.clone()));
    if let wire::lst::Told::Stat(stat) = told {
        let nodes: Vec<_> =
            lst::Interval::between(&wire::lst::Stat::default(), &stat).into_iter().collect();
        let _ = lst::render_net("fuzz", &nodes, lst::RateOptions::default());
        let _ = lst::render_rpc("fuzz", &nodes);
    }
    true
}

fn frames() -> Vec<Vec<u8>> {
    let kinds = [
        FrameKind::Request,
        FrameKind::Reply,
        FrameKind::BulkPull,
        FrameKind::BulkData,
        FrameKind::Heartbeat,
    ];
    kinds
        .map(|kind| {
            Frame::new(kind, 7, Bytes::from_static(b"payload")).encode(CrcMode::All).to_vec()
        })
        .to_vec()
}

fn frame(input: &[u8]) -> bool {
    let Ok(frame) = Frame::decode(&Bytes::copy_from_slice(input)) else { return false };
    let again = Frame::decode(&frame.encode(CrcMode::All));
    assert_eq!(again.as_ref(), Ok(&frame), "a frame that was decoded encodes to itself");
    true
}

fn hellos() -> Vec<Vec<u8>> {
    let hello = wire::Hello {
        version: wire::VERSION,
        version_min: wire::VERSION_MIN,
        channel: 0,
        auth_len: 0,
        compat: 0,
        ro_compat: 0,
        incompat: 0,
        nonce: 1,
        nid: 2,
        credits: 8,
        reserved: 0,
    };
    vec![hello.to_frame().into_payload().to_vec()]
}

fn hello(input: &[u8]) -> bool {
    wire::Hello::from_frame(&Frame::new(FrameKind::Hello, 0, Bytes::copy_from_slice(input))).is_ok()
}

fn requests() -> Vec<Vec<u8>> {
    let request = |opcode: &Opcode| {
        let bufs = vec![
            Bytes::from(vec![1; 64]),
            Bytes::from_static(b"name"),
            Bytes::from_static(b"other name"),
        ];
        let mut request = Request::new(*opcode, bufs);
        request.groups = vec![4, 24, 27];
        request.header.xid = 77;
        request.to_frame().into_payload().to_vec()
    };
    Opcode::ALL.iter().map(request).collect()
}

fn request(input: &[u8]) -> bool {
    let Ok(request) = Request::decode(&Bytes::copy_from_slice(input)) else { return false };
    decode_every_body(&request);
    let again =
        Request::decode(&request.to_frame().into_payload()).expect("our own encoding decodes");
    assert_eq!((again.groups, again.bufs), (request.groups, request.bufs));
    true
}

/// Bodies are zero-extended or cut, so that any bytes decode; reading them all must do no harm.
fn decode_every_body(request: &Request) {
    let _: wire::body::ConnectReq = request.body();
    let _: wire::body::CreateReq = request.body();
    let _: wire::body::SetattrReq = request.body();
    let _: wire::body::OstIoReq = request.body();
    let _: wire::body::OstFallocateReq = request.body();
    let _: wire::body::OstSeekReq = request.body();
    let _: wire::body::LockReq = request.body();
    for index in 0..=wire::BUFS_MAX {
        let _ = (request.buf(index), request.replay_buf(index));
    }
}

fn replies() -> Vec<Vec<u8>> {
    let request = Request::new(Opcode::MdtLookup, Vec::new());
    let reply =
        Reply::ok(&request.header, vec![Bytes::from(vec![3; 152]), Bytes::from_static(b"layout")]);
    vec![
        reply.to_frame().into_payload().to_vec(),
        Reply::error(&request.header, types::Errno::ENOENT).to_frame().into_payload().to_vec(),
    ]
}

fn reply(input: &[u8]) -> bool {
    let Ok(reply) = Reply::decode(&Bytes::copy_from_slice(input)) else { return false };
    let again = Reply::decode(&reply.to_frame().into_payload()).expect("our own encoding decodes");
    assert_eq!(again.bufs, reply.bufs);
    assert_eq!(again.errno(), reply.errno());
    true
}

fn configs() -> Vec<Vec<u8>> {
    let target = wire::config::TargetInfo { id: 0x2_0001, nid: 5, port: 988, instance: 3 };
    let config = wire::config::FsConfig {
        fsname: "testfs".to_owned(),
        version: 4,
        targets: vec![target.clone(), target],
        params: vec![("lod.stripecount".to_owned(), "2".to_owned())],
        uuids: vec![7, u128::MAX],
    };
    vec![wire::config::encode(&config).to_vec()]
}

fn config(input: &[u8]) -> bool {
    let Some(config) = wire::config::FsConfig::decode(input) else { return false };
    assert_eq!(wire::config::FsConfig::decode(&wire::config::encode(&config)), Some(config));
    true
}

fn pages() -> Vec<Vec<u8>> {
    let mut page = Vec::new();
    for name in ["a", "some name", "x".repeat(255).as_str()] {
        wire::dirent::push(&mut page, 7, &wire::Attr::default(), true, name.as_bytes());
    }
    vec![page]
}

fn dirents(input: &[u8]) -> bool {
    let Some(entries) = wire::dirent::decode(input) else { return false };
    entries.iter().all(|entry| !entry.name.is_empty() && entry.name.len() <= types::NAME_BYTES_MAX)
}

fn lovs() -> Vec<Vec<u8>> {
    let mut v1 = 0x0BD1_0BD0_u32.to_le_bytes().to_vec();
    v1.extend_from_slice(&1_u32.to_le_bytes());
    v1.extend_from_slice(&[0; 16]);
    v1.extend_from_slice(&(1_u32 << 20).to_le_bytes());
    v1.extend_from_slice(&2_u16.to_le_bytes());
    v1.extend_from_slice(&0xffff_u16.to_le_bytes());
    let mut v3 = v1.clone();
    v3[..4].copy_from_slice(&0x0BD3_0BD0_u32.to_le_bytes());
    v3.extend_from_slice(b"flash\0\0\0\0\0\0\0\0\0\0\0");
    let mut specific = v3.clone();
    specific[..4].copy_from_slice(&0x0BD5_0BD0_u32.to_le_bytes());
    specific.extend_from_slice(&[0; 48]);
    vec![v1, v3, specific]
}

fn lov(input: &[u8]) -> bool {
    let Ok(template) = layout::lov::decode(input) else { return false };
    let again = layout::lov::decode(&layout::lov::encode_dir(&template));
    assert!(again.is_ok(), "a template that was accepted encodes to an acceptable one");
    true
}

fn layouts() -> Vec<Vec<u8>> {
    let template =
        layout::Template { stripe_count: 2, osts: vec![1, 3], ..layout::Template::default() };
    let file = layout::Layout {
        stripe_size: 1 << 20,
        stripe_count: 2,
        pattern: layout::Raid0,
        generation: 0,
        base: types::Fid::new(0x2_0000_0401, 9),
        osts: vec![1, 3],
        pool: [0; 16],
    };
    vec![template.encode(), file.encode()]
}

fn layout_record(input: &[u8]) -> bool {
    let file = layout::Layout::decode(input);
    let template = layout::Template::decode(input);
    if let Ok(file) = &file {
        assert_eq!(layout::Layout::decode(&file.encode()).as_ref(), Ok(file));
    }
    file.is_ok() || template.is_ok()
}

fn names() -> Vec<Vec<u8>> {
    [
        "[0x200000401:0x1:0x0]",
        "10.0.0.1:988@tcp",
        "testfs-OST0002_UUID",
        "172.18.1.128@o2ib3",
        "0@lo",
        "MGS",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn name(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let fid = text.parse::<types::Fid>();
    let nid = text.parse::<types::NidAddr>();
    let target = text.parse::<types::TargetId>();
    if let Ok(fid) = &fid {
        assert_eq!(fid.to_string().parse().as_ref(), Ok(fid));
    }
    if let Ok(nid) = &nid {
        assert_eq!(nid.to_string().parse().as_ref(), Ok(nid));
    }
    fid.is_ok() || nid.is_ok() || target.is_ok()
}

fn nid_lists() -> Vec<Vec<u8>> {
    [
        "192.168.1.[1-253/2]@o2ib 192.168.*.[0-9,20]@tcp 0@lo",
        "10.1.0.0/16@tcp1 *@o2ib",
        "*",
        "10.0.0.[8,10,12-16]@tcp",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// What is listed matches, and a list prints as one that is equal.
fn nid_list(input: &[u8]) -> bool {
    let Ok(list) = String::from_utf8_lossy(input).parse::<types::NidList>() else { return false };
    assert_eq!(list.to_string().parse().as_ref(), Ok(&list));
    if let Ok(nids) = list.nids() {
        assert!(nids.iter().take(64).all(|nid| list.contains(*nid)));
    }
    true
}

/// Inode, directory entry, destroy, object and tombstone records begin with type, version and
/// length.
fn records() -> Vec<Vec<u8>> {
    let sized = |kind: u8, len: u16| {
        let mut record = vec![kind, 1];
        record.extend_from_slice(&len.to_le_bytes());
        record.resize(usize::from(len), 7);
        record
    };
    (0..12).flat_map(|kind| [16, 48, 64, 128, 160, 200].map(|len| sized(kind, len))).collect()
}

fn record(input: &[u8]) -> bool {
    let client = service::ClientRecord::decode(
        input.get(..16).unwrap_or_default(),
        input.get(16..).unwrap_or_default(),
    );
    mdt::decode_any(input) | ost::decode_any(input) | client.is_some()
}

fn superblocks() -> Vec<Vec<u8>> {
    let fsname = "testfs".parse().expect("a name");
    let mgs = vec!["127.0.0.2@tcp".parse().expect("a NID"); 2];
    let target = types::TargetId::ost(3);
    vec![
        osd_disk::superblock::Superblock::new(fsname, target, 5, mgs, types::Timespec::new(1, 2))
            .encode(),
    ]
}

fn superblock(input: &[u8]) -> bool {
    let mut sealed = input.to_vec();
    // a checksum that matches lets the mutations reach the fields behind it
    if let (Some(length), true) = (input.get(10..12), input.len() >= 16) {
        let length = usize::from(u16::from_le_bytes([length[0], length[1]])).min(sealed.len());
        sealed[12..16].fill(0);
        let crc = crc32c::crc32c(&sealed[..length]).to_le_bytes();
        sealed[12..16].copy_from_slice(&crc);
    }
    osd_disk::superblock::Superblock::decode(input).is_ok()
        | osd_disk::superblock::Superblock::decode(&sealed).is_ok()
}

fn parameters() -> Vec<Vec<u8>> {
    ["ost.OSS.*.nrs_policies=fifo", "{a,b}.c?[0-9]=17", "*.*=x", "test.number=12", "test/number=-1"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

/// A refused write changes nothing.
fn parameter(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let (pattern, value) = text.split_once('=').unwrap_or((text, ""));
    let tree = params::ParamTree::new();
    let number = std::rc::Rc::new(std::cell::Cell::new(5_u32));
    let (read, write) = (number.clone(), number.clone());
    tree.register("ost.OSS.ost_io.nrs_policies", || "fifo".to_owned());
    tree.register_rw(
        "test.number",
        move || read.get().to_string(),
        move |value| {
            write.set(params::parse_within(value, 1_u32, 100)?);
            Ok(())
        },
    );
    let accepted = tree.set_now(pattern, value).is_ok_and(|all| all.iter().any(Result::is_ok));
    assert!(accepted || number.get() == 5, "a refused value was stored");
    assert!((1..=100).contains(&number.get()), "a value out of range was stored");
    let _ = (tree.get(pattern), tree.get_below(pattern), tree.list(pattern, true));
    accepted
}

/// Headers of the kernel's requests with a little of everything behind them.
fn kernel_requests() -> Vec<Vec<u8>> {
    let request = |opcode: u32| {
        let mut bytes = vec![0; 40 + 104];
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        bytes[4..8].copy_from_slice(&opcode.to_le_bytes());
        bytes[8] = 1;
        bytes[16] = 1;
        bytes[100..105].copy_from_slice(b"name\0");
        bytes
    };
    (1..60).map(request).collect()
}

fn kernel_request(input: &[u8]) -> bool {
    fusedev::decode(&Bytes::copy_from_slice(input)).is_ok()
}
