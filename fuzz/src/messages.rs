//! Frames, messages and their bodies.

use bytes::Bytes;
use wire::{CrcMode, Frame, FrameKind, Opcode, Reply, Request, RequestFlags, encode_body, grants};
use wire::{body, updates};

pub(crate) fn frames() -> Vec<Vec<u8>> {
    let frame = |kind, payload: &'static [u8], crc| {
        Frame::new(kind, 7, Bytes::from_static(payload)).encode(crc).to_vec()
    };
    vec![
        frame(FrameKind::Request, b"payload", CrcMode::All),
        frame(FrameKind::Reply, b"payload", CrcMode::All),
        frame(FrameKind::BulkPull, b"", CrcMode::All),
        frame(FrameKind::BulkData, b"data", CrcMode::All),
        frame(FrameKind::BulkData, b"data", CrcMode::NoBulk),
        frame(FrameKind::Heartbeat, b"", CrcMode::All),
    ]
}

pub(crate) fn frame(input: &[u8]) -> bool {
    let Ok(frame) = Frame::decode(&Bytes::copy_from_slice(input)) else { return false };
    let again = Frame::decode(&frame.encode(CrcMode::All));
    assert_eq!(again.as_ref(), Ok(&frame), "a frame that was decoded encodes to itself");
    true
}

pub(crate) fn hellos() -> Vec<Vec<u8>> {
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
        refusal: 0,
    };
    let payload = |hello: wire::Hello| hello.to_frame().into_payload().to_vec();
    vec![payload(hello), payload(wire::Hello { channel: 2, compat: 1 << 40, ..hello })]
}

/// Only our version, known channels and no unknown incompatible feature are accepted.
pub(crate) fn hello(input: &[u8]) -> bool {
    let frame = Frame::new(FrameKind::Hello, 0, Bytes::copy_from_slice(input));
    let Ok(hello) = wire::Hello::from_frame(&frame) else { return false };
    assert!(hello.version >= wire::VERSION_MIN && hello.version_min <= wire::VERSION);
    assert!(hello.channel <= 2 && hello.incompat == 0);
    let bare = wire::Hello { auth_len: 0, ..hello }; // a frame is made without authentication
    assert_eq!(wire::Hello::from_frame(&bare.to_frame()), Ok(bare));
    true
}

/// What MDTs ask each other.
fn between_mdts(opcode: Opcode) -> Vec<u8> {
    let id = updates::OpId { mdt: 1, number: 5 << 32 | 7 };
    let dir = types::Fid::new(0x2_0000_0401, 9);
    let at = updates::Place { dir, name: b"name".to_vec() };
    match opcode {
        Opcode::MdtPrepare => {
            let key = updates::Key::Name(at);
            updates::encode(&updates::Prepare {
                id,
                wants: vec![updates::Want { key, changes: true }],
            })
        }
        Opcode::MdtUpdateOf => updates::encode(&id),
        Opcode::MdtMove => updates::encode(&updates::Move { dir, name: at.name }),
        Opcode::MdtUpdates => updates::encode(&(1_u32, Some(id), 5_u64)),
        Opcode::MdtUpdatesDone => updates::encode(&updates::Done {
            mdt: 1,
            below: 9,
            released: vec![8],
            ..Default::default()
        }),
        _ => {
            let enter = updates::Update::Enter { at, child: types::Fid::ROOT, file_type: 0o40_000 };
            let parts = vec![updates::Part { mdt: 0, updates: vec![enter] }];
            updates::encode(&updates::Record { id, time: (7, 8), parts, reply: Default::default() })
        }
    }
}

/// Any bytes decode to a record that has the same bytes, or to none.
pub(crate) fn records(input: &[u8]) -> bool {
    let Some(record) = updates::decode::<updates::Record>(input) else { return false };
    let again = updates::decode(&updates::encode(&record));
    assert_eq!(again, Some(record), "a record goes there and back");
    true
}

pub(crate) fn record_seeds() -> Vec<Vec<u8>> {
    vec![between_mdts(Opcode::MdtUpdate)]
}

/// Body and further buffers of a valid request of each operation.
fn bodies(opcode: Opcode) -> Vec<Bytes> {
    let fid = types::Fid::new(0x2_0000_0401, 9).into();
    let root = types::Fid::ROOT.into();
    let object = types::Fid::new(0x2_4000_0401, 7).into();
    let text = Bytes::from_static;
    let range = body::ObjectRange { base: object, first: 0, count: 2 };
    match opcode {
        Opcode::Connect => {
            let body = body::ConnectReq { client_low: 5, tags: 8, ..Default::default() };
            vec![encode_body(&body), text(b"node1:/mnt")]
        }
        Opcode::Cancel => {
            vec![encode_body(&body::CancelReq { xid: 76, tag: 1, ..Default::default() })]
        }
        Opcode::CallRecall
        | Opcode::CallComplete
        | Opcode::CallGlimpse
        | Opcode::MdtShed
        | Opcode::MdtRestate => {
            let bits = body::GrantBits::UPDATE | body::GrantBits::OPEN;
            let word = body::GrantWord { fid, number: 7, bits, ..Default::default() };
            grants::encode(&[word, word], body::GrantsFlags::LAST)
        }
        Opcode::MdtAck => {
            let ack = body::GrantAck { fid, number: 7, readers: 2, ..Default::default() };
            grants::encode(&[ack], body::GrantsFlags::empty())
        }
        Opcode::MdtGetattr
        | Opcode::MdtReadlink
        | Opcode::MdtListxattr
        | Opcode::MdtFid2path
        | Opcode::MdtSync => vec![encode_body(&body::FidReq { fid, ..Default::default() })],
        Opcode::MdtGetattrs => {
            let body = body::GetattrsReq {
                count: 1,
                flags: body::GetattrsFlags::LAYOUTS,
                ..Default::default()
            };
            vec![encode_body(&body), encode_body::<body::WireFid>(&fid)]
        }
        Opcode::MdtGetxattr | Opcode::MdtRemovexattr => {
            vec![encode_body(&body::FidReq { fid, ..Default::default() }), text(b"user.a")]
        }
        Opcode::MdtLookup => {
            let body = body::LookupReq { parent: root, ..Default::default() };
            vec![encode_body(&body), text(b"name")]
        }
        Opcode::MdtCreate => {
            let flags = body::CreateFlags::DATA;
            let body =
                body::CreateReq { parent: root, mode: 0o100_644, flags, ..Default::default() };
            let bytes = text(b"all bytes of the file");
            vec![encode_body(&body), text(b"name"), Bytes::new(), Bytes::new(), bytes]
        }
        Opcode::MdtOpen => {
            vec![encode_body(&body::OpenReq { fid, open_flags: 2, ..Default::default() })]
        }
        Opcode::MdtLayout => {
            let body = body::LayoutReq { fid, handle: 3, behind: 9, refused: 2, look: 0 };
            vec![encode_body(&body)]
        }
        Opcode::MdtPrepare
        | Opcode::MdtUpdate
        | Opcode::MdtUpdates
        | Opcode::MdtUpdatesDone
        | Opcode::MdtUpdateOf
        | Opcode::MdtMove => vec![Bytes::new(), between_mdts(opcode).into()],
        Opcode::MdtClose => {
            let flags = body::CloseFlags::SIZE | body::CloseFlags::WROTE;
            let body = body::CloseReq { fid, handle: 3, flags, size: 9, ..Default::default() };
            vec![encode_body(&body)]
        }
        Opcode::MdtCloses => {
            let close = |handle| body::CloseReq { fid, handle, ..Default::default() };
            let body = body::ClosesReq { count: 2, ..Default::default() };
            let closes = [close(3), close(4)].map(|close| encode_body(&close)).concat();
            vec![encode_body(&body), closes.into()]
        }
        Opcode::MdtLink => {
            let body = body::LinkReq { fid, parent: root, ..Default::default() };
            vec![encode_body(&body), text(b"name")]
        }
        Opcode::MdtUnlink => {
            let body = body::UnlinkReq { parent: root, ..Default::default() };
            vec![encode_body(&body), text(b"name")]
        }
        Opcode::MdtRename => {
            let body = body::RenameReq { parent: root, new_parent: root, ..Default::default() };
            vec![encode_body(&body), text(b"old"), text(b"new")]
        }
        Opcode::MdtSetattr => {
            let attr = wire::Attr { mode: 0o600, ..Default::default() }
                .with_fid(types::Fid::new(0x2_0000_0401, 9));
            let valid = body::SetattrFlags::MODE;
            vec![encode_body(&body::SetattrReq { attr, valid, ..Default::default() })]
        }
        Opcode::MdtReaddir => {
            let body = body::ReaddirReq { fid: root, bytes_max: 4_096, ..Default::default() };
            vec![encode_body(&body)]
        }
        Opcode::MdtSetxattr => {
            let body = body::SetxattrReq { fid, flags: 1, ..Default::default() };
            vec![encode_body(&body), text(b"user.a"), text(b"value")]
        }
        Opcode::MdtLock | Opcode::MdtUnlock => {
            let kind = body::lock::POSIX;
            let body = body::LockReq { fid, kind, end: 9, owner: 4, ..Default::default() };
            vec![encode_body(&body)]
        }
        Opcode::OstRead | Opcode::OstWrite => {
            let body = body::OstIoReq { object, parent: fid, length: 4, ..Default::default() };
            vec![encode_body(&body), text(b"data")]
        }
        Opcode::OstPunch => {
            let body = body::OstPunchReq { object, parent: fid, size: 3, ..Default::default() };
            vec![encode_body(&body)]
        }
        Opcode::OstGlimpse | Opcode::OstDestroy | Opcode::OstSync => {
            let body = body::OstBatchReq { count: 1, ..Default::default() };
            vec![encode_body(&body), encode_body(&range)]
        }
        Opcode::OstFallocate => {
            let body = body::OstFallocateReq { object, length: 9, ..Default::default() };
            vec![encode_body(&body)]
        }
        Opcode::OstFence => {
            let body =
                body::OstFenceReq { store: 1, client_low: 2, session: 3, ..Default::default() };
            vec![encode_body(&body)]
        }
        Opcode::OstList => {
            vec![encode_body(&body::OstListReq { count: 3, ..Default::default() })]
        }
        Opcode::OstRaise => {
            let body = body::OstRaiseReq { parent: fid, layout_version: 3, ..Default::default() };
            vec![encode_body(&body), encode_body(&range)]
        }
        Opcode::OstReserve => {
            vec![encode_body(&body::OstReserveReq { total: 1 << 20, ..Default::default() })]
        }
        Opcode::OstSeek => vec![encode_body(&body::OstSeekReq { object, ..Default::default() })],
        Opcode::MgsRegister => {
            let target = wire::config::TargetInfo { id: 3, nid: 5, port: 988, instance: 3 };
            let fsname = "testfs".to_owned();
            vec![wire::config::encode(&wire::config::Register { fsname, target, uuid: 7 })]
        }
        Opcode::MgsConfig => vec![text(b"testfs")],
        Opcode::MgsSetParam => vec![text(b"testfs"), text(b"lod.stripecount"), text(b"2")],
        Opcode::LstPing => vec![encode_body(&body::LstPing { session: 1, ..Default::default() })],
        Opcode::LstBrw => {
            vec![encode_body(&body::LstBrwReq { length: 4_096, ..Default::default() })]
        }
        Opcode::LstControl => {
            crate::selftest::controls().into_iter().take(1).map(Bytes::from).collect()
        }
        Opcode::Disconnect
        | Opcode::Ping
        | Opcode::ReplayDone
        | Opcode::MdtStatfs
        | Opcode::OstStatfs => Vec::new(),
    }
}

pub(crate) fn requests() -> Vec<Vec<u8>> {
    let plain = |opcode: &Opcode| {
        let mut request = Request::new(*opcode, bodies(*opcode));
        request.groups = vec![4, 24, 27];
        request.header.xid = 77;
        request
    };
    let replayed = |opcode| {
        let mut request = plain(&opcode);
        request.header.flags = RequestFlags::REPLAY;
        request.header.transno = 9;
        request.header.replay_bufs = 1;
        request.bufs.push(encode_body(&body::AttrRep::default()));
        request
    };
    let all = Opcode::ALL.iter().map(plain);
    let replays = [Opcode::MdtCreate, Opcode::MdtUnlink, Opcode::OstWrite].map(replayed);
    all.chain(replays).map(|request| request.to_frame().into_payload().to_vec()).collect()
}

pub(crate) fn request(input: &[u8]) -> bool {
    let Ok(request) = Request::decode(&Bytes::copy_from_slice(input)) else { return false };
    decode_every_body(&request);
    let again =
        Request::decode(&request.to_frame().into_payload()).expect("our own encoding decodes");
    assert_eq!((&again.groups, &again.bufs), (&request.groups, &request.bufs));
    let mut expected = request.header;
    expected.header_len = wire::REQUEST_HEADER_BYTES as u16;
    expected.buf_lens[request.bufs.len()..].fill(0);
    assert_eq!(again.header, expected);
    true
}

/// Bodies are zero-extended or cut, so that any bytes decode; reading them all must do no harm.
fn decode_every_body(request: &Request) {
    let _: body::ConnectReq = request.body();
    let _: body::CreateReq = request.body();
    let _: body::SetattrReq = request.body();
    let _: body::OstIoReq = request.body();
    let _: body::OstFallocateReq = request.body();
    let _: body::OstSeekReq = request.body();
    let _: body::OstListReq = request.body();
    let _: body::LockReq = request.body();
    if let Ok(callback) = grants::Callback::decode(request) {
        let again = Request::new(callback.opcode(), callback.to_bufs());
        assert_eq!(grants::Callback::decode(&again).as_ref(), Ok(&callback));
    }
    if let Some(closes) = body::closes(request) {
        assert!((1..=body::CLOSES_MAX).contains(&closes.len()));
    }
    if let Some(opens) = body::stated_opens(request) {
        assert_eq!(body::encode_opens(&opens), request.buf(2));
    }
    if let Ok((acks, flags)) = grants::decode::<body::GrantAck>(&request.bufs) {
        assert!(acks.len() <= grants::VECTOR_MAX);
        assert_eq!(grants::decode(&grants::encode(&acks, flags)), Ok((acks, flags)));
    }
    for index in 0..=wire::BUFS_MAX {
        let _ = (request.buf(index), request.replay_buf(index));
    }
}

pub(crate) fn replies() -> Vec<Vec<u8>> {
    let request = Request::new(Opcode::MdtLookup, Vec::new());
    let attr = encode_body(&body::AttrRep { handle: 4, ..Default::default() });
    let reply = Reply::ok(&request.header, vec![attr, Bytes::from_static(b"layout")]);
    let mut early = Reply::ok(&request.header, Vec::new());
    early.header.flags = wire::ReplyFlags::EARLY;
    early.header.lease_ms = 5_000;
    let error = Reply::error(&request.header, types::Errno::ENOENT);
    [reply, early, error].map(|reply| reply.to_frame().into_payload().to_vec()).to_vec()
}

pub(crate) fn reply(input: &[u8]) -> bool {
    let Ok(reply) = Reply::decode(&Bytes::copy_from_slice(input)) else { return false };
    let again = Reply::decode(&reply.to_frame().into_payload()).expect("our own encoding decodes");
    assert_eq!(again.bufs, reply.bufs);
    assert_eq!(again.errno(), reply.errno());
    let mut expected = reply.header;
    expected.header_len = wire::REPLY_HEADER_BYTES as u16;
    expected.buf_lens[reply.bufs.len()..].fill(0);
    assert_eq!(again.header, expected);
    true
}

pub(crate) fn configs() -> Vec<Vec<u8>> {
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

pub(crate) fn config(input: &[u8]) -> bool {
    let Some(config) = wire::config::FsConfig::decode(input) else { return false };
    assert_eq!(wire::config::FsConfig::decode(&wire::config::encode(&config)), Some(config));
    true
}

pub(crate) fn pages() -> Vec<Vec<u8>> {
    let names = ["a", "12345678", "some name", &"x".repeat(types::NAME_BYTES_MAX)];
    let page = |names: &[&str]| {
        let mut page = Vec::new();
        for (cookie, name) in (7..).zip(names) {
            let attr = wire::Attr { mode: 0o100_644, ..Default::default() };
            let entry = wire::dirent::Dirent {
                cookie,
                attr,
                has_attr: cookie % 2 == 0,
                leased: cookie % 3 == 0,
                name: name.as_bytes().to_vec(),
            };
            wire::dirent::push(&mut page, &entry);
        }
        page
    };
    vec![page(&names), page(&names[..1]), page(&names[2..])]
}

/// Names have 1 to 255 bytes, and entries encode to a page with the same entries.
pub(crate) fn dirents(input: &[u8]) -> bool {
    let Some(entries) = wire::dirent::decode(input) else { return false };
    let mut page = Vec::new();
    for entry in &entries {
        assert!((1..=types::NAME_BYTES_MAX).contains(&entry.name.len()));
        wire::dirent::push(&mut page, entry);
    }
    assert_eq!(page.len(), input.len());
    assert_eq!(wire::dirent::decode(&page), Some(entries));
    true
}
