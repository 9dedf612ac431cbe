//! The steps before an MDT accepts a connection: records checked, epoch raised, ids reserved, root
//! made.
//!
//! Safe at any crash, because everything is in one set that is committed before the first
//! connection.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;

use ldlm::grants::{Mode, TIMED, with_skew};
use osd::{MetaStore, Table, View, WriteSet};
use service::ClientRecord;
use target::StartError;
use types::{Fid, Instance, Instant, TargetKind, Timespec, Transno};
use wire::attr::S_IFDIR;
use wire::updates::Record;
use wire::{Opcode, Reply};

use crate::burnt::Burnt;
use crate::cross::Crossed;
use crate::fences::{Fences, Lapsed};
use crate::grants::Grants;
use crate::hash::HashKey;
use crate::ids::{Ids, first_sequences};
use crate::keys;
use crate::listed;
use crate::mdts::Mdts;
use crate::moves::Moves;
use crate::op;
use crate::opens::Opens;
use crate::puts::{Bringing, Making};
use crate::record::Inode;
use crate::share::Share;
use crate::som::Som;
use crate::spaces::Spaces;
use crate::state::State;
use crate::tx::new_attr;
use crate::{MdtConfig, fences, record};

/// Key and value as stored.
type Pair = (Vec<u8>, Vec<u8>);

/// What a start found.
pub(crate) struct Booted {
    pub(crate) state: State,
    pub(crate) instance: Instance,
    pub(crate) known: Vec<ClientRecord>,
    /// These may hold grants that are called back.
    pub(crate) may_hold: bool,
    /// What of that is void, or not known any more.
    pub(crate) void: Void,
    pub(crate) replies: Vec<Pair>,
    /// Sessions of earlier runs whose fences are not told.
    pub(crate) lapsed: Vec<Lapsed>,
    /// Operations of several MDTs that this one coordinates, and that are not done everywhere.
    pub(crate) crossed: Vec<Record>,
}

/// What an earlier run has said of sessions that may use grants which do not count any more.
#[derive(Default)]
pub(crate) struct Void {
    /// Sessions that it has expelled.
    pub(crate) expelled: BTreeSet<u64>,
    /// Sessions of which there is no record any more may hold something, until their leases end.
    pub(crate) is_lapsing: bool,
    /// Files of which silent sessions may hold something.
    pub(crate) listed: BTreeMap<u64, BTreeSet<Fid>>,
}

impl Void {
    /// Records of sessions that are over go with `set`.
    fn open(
        view: &dyn View,
        known: &[ClientRecord],
        instance: Instance,
        set: &mut WriteSet,
    ) -> Result<Void, StartError> {
        let mut void =
            Void { listed: listed::open(view, known, instance, set)?, ..Void::default() };
        let known: BTreeSet<u64> = known.iter().map(|known| known.session).collect();
        view.scan(Table::Meta, keys::META_EXPELLED, &mut |key, _| {
            let Some(session) = key.strip_prefix(keys::META_EXPELLED) else { return false };
            let session = session.try_into().map(u64::from_be_bytes);
            match session.ok().filter(|id| known.contains(id)) {
                Some(session) => {
                    void.expelled.insert(session);
                }
                None => set.delete(Table::Meta, key),
            }
            true
        })?;
        void.is_lapsing = view.get(Table::Meta, keys::META_LAPSING)?.is_some();
        Ok(void)
    }
}

/// Random words and time for a fresh file system.
pub(crate) struct Seed {
    pub(crate) words: [u64; 2],
    pub(crate) round_robin: u64,
    pub(crate) store: u64,
    pub(crate) now: Timespec,
    pub(crate) clock: Instant,
}

/// Brings the store up to a new epoch, durably.
pub(crate) async fn boot(
    store: &Rc<dyn MetaStore>,
    config: &MdtConfig,
    seed: &Seed,
) -> Result<Booted, StartError> {
    store.ready().await;
    let (mut booted, set) = prepare(&**store, config, seed)?;
    let begun = target::begin(&**store, TargetKind::Mdt, set).await?;
    assert_eq!(begun, booted.instance, "a start knows its own instance");
    let (files, objects) = (booted.state.files.mark(), booted.state.objects.mark());
    booted.state.files.durable(files);
    booted.state.objects.durable(objects);
    Ok(booted)
}

fn prepare(
    store: &dyn MetaStore,
    config: &MdtConfig,
    seed: &Seed,
) -> Result<(Booted, WriteSet), StartError> {
    let view = store.running()?;
    let mut set = WriteSet::new();
    let instance = target::next_instance(&*view, TargetKind::Mdt)?;
    let epoch = u32::try_from(instance.0).map_err(|_| broken("epoch"))?;
    let last_transno = Transno(target::word(&*view, keys::META_LAST_TRANSNO)?.unwrap_or(0));
    let hash_key = hash_key(&*view, seed, &mut set)?;
    let number = store_number(&*view, seed, &mut set)?;
    let (files, objects) = open_ids(&*view, config, &mut set)?;
    if config.index == 0 && view.get(Table::Inodes, &Fid::ROOT.to_key())?.is_none() {
        set.put(Table::Inodes, Fid::ROOT.to_key(), root(seed.now, config.root_owner).encode());
    }
    let (crossed, own) = Crossed::open(&*view, config.index, instance.0)?;
    let known = target::known_clients(&*view)?;
    let lapsed = fences::stored(&*view)?;
    let void = Void::open(&*view, &known, instance, &mut set)?;
    let inherited_until =
        if epoch == 1 { Instant::default() } else { seed.clock + with_skew(TIMED) };
    let may_hold = view.get(Table::Meta, keys::META_CALLS_BACK)?.is_some();
    let (lease, bugs) = (config.lease, config.grant_bugs);
    let mut grants = Grants::new(inherited_until, (lease, bugs), epoch, seed.clock);
    grants.set_mode(config.grants);
    if config.grants == Mode::Recall {
        set.put(Table::Meta, keys::META_CALLS_BACK, []);
    }
    grants.recorded(may_hold || config.grants == Mode::Recall);
    let replies = target::replies(&*view, TargetKind::Mdt, last_transno)?.kept;
    let state = State {
        first_file: files.first(),
        swapped: std::collections::BTreeSet::new(),
        is_stretched: false,
        making: Making::default(),
        bringing: Bringing::default(),
        number,
        hash_key,
        opens: Opens::new(epoch),
        files,
        objects,
        share: Share::default(),
        crossed,
        grants,
        fences: Fences::default(),
        spaces: Spaces::new(config.fsname, seed.round_robin),
        moves: Moves::open(&*view)?,
        lod: config.lod,
        dirs: config.dirs,
        marks: Rc::default(),
        mdts: Mdts::new(config.fsname, seed.round_robin),
        split: config.split,
        som: Som::new(config.som, seed.clock),
        destroy_next: last_destroy(&*view)?
            .map_or(Some(0), |last| last.checked_add(1))
            .ok_or_else(|| broken("the destroy log"))?,
        last_transno,
        closed: closed_handles(&replies),
        boot_committed: last_transno,
    };
    drop(view);
    Ok((Booted { state, instance, known, may_hold, void, replies, lapsed, crossed: own }, set))
}

fn broken(what: &str) -> StartError {
    StartError::Broken(format!("`{what}`"))
}

/// The key of the name hash: the stored one, or a fresh one.
fn hash_key(view: &dyn View, seed: &Seed, set: &mut WriteSet) -> Result<HashKey, StartError> {
    let hash_key = match view.get(Table::Meta, keys::META_HASH_KEY)? {
        Some(value) => HashKey(
            word64(&value).ok_or_else(|| broken("hash_key"))?,
            value.get(8..).and_then(word64).ok_or_else(|| broken("hash_key"))?,
        ),
        None => HashKey(seed.words[0], seed.words[1]),
    };
    set.put(
        Table::Meta,
        keys::META_HASH_KEY,
        [hash_key.0.to_le_bytes(), hash_key.1.to_le_bytes()].concat(),
    );
    Ok(hash_key)
}

/// The number of this store: the stored one, or a fresh one.
fn store_number(view: &dyn View, seed: &Seed, set: &mut WriteSet) -> Result<u64, StartError> {
    let number = match target::word(view, keys::META_STORE)? {
        Some(0) => return Err(broken("store")),
        Some(number) => number,
        None => seed.store.max(1),
    };
    set.put(Table::Meta, keys::META_STORE, number.to_le_bytes());
    Ok(number)
}

/// Ids of files and of objects for this run. Those that the last run may have lost are burnt.
fn open_ids(
    view: &dyn View,
    config: &MdtConfig,
    set: &mut WriteSet,
) -> Result<(Ids, Ids), StartError> {
    let meta = |key: &[u8]| view.get(Table::Meta, key);
    let (first_file, first_object) = first_sequences(config.index);
    let reuse = config.bugs.reuse_id_range();
    let given_files = meta(keys::META_FILE_IDS)?;
    let files =
        Ids::open(given_files.as_deref(), first_file, reuse).ok_or_else(|| broken("file_ids"))?;
    let given = meta(keys::META_OBJECT_IDS)?;
    let objects =
        Ids::open(given.as_deref(), first_object, reuse).ok_or_else(|| broken("object_ids"))?;
    let mut burn = |key: &[u8], given: Option<&[u8]>, next: Fid| {
        let Some(given) = given else { return Ok(()) };
        let mut burnt = match meta(key)? {
            Some(value) => Burnt::decode(&value).ok_or_else(|| broken("burnt ids"))?,
            None => Burnt::default(),
        };
        burnt.add(given, next);
        set.put(Table::Meta, key, burnt.encode());
        Ok::<_, StartError>(())
    };
    burn(keys::META_BURNT_OBJECTS, given.as_deref(), objects.first())?;
    if config.has_data {
        burn(keys::META_BURNT_FILES, given_files.as_deref(), files.first())?;
    }
    set.put(Table::Meta, keys::META_FILE_IDS, files.encode());
    set.put(Table::Meta, keys::META_OBJECT_IDS, objects.encode());
    Ok((files, objects))
}

fn root(now: Timespec, (uid, gid): (u32, u32)) -> Inode {
    let mut attr = new_attr(Fid::ROOT, S_IFDIR | 0o755, uid, gid, now);
    (attr.nlink, attr.blocks) = (2, 8);
    Inode {
        attr,
        flags: 0,
        parent: Fid::ROOT,
        mtime_set: now,
        stripes: layout::StripeSet::default(),
        depth: 0,
        symlink: Vec::new(),
    }
}

fn last_destroy(view: &dyn View) -> Result<Option<u64>, StartError> {
    let mut last = None;
    let mut broken = false;
    view.scan(Table::Destroys, &[0], &mut |key, value| {
        last = key.try_into().ok().map(u64::from_be_bytes);
        broken = last.is_none() || record::DestroyRecord::decode(value).is_none();
        !broken
    })?;
    if broken { Err(StartError::Broken("the destroy log".to_owned())) } else { Ok(last) }
}

/// Handles that stored replies say are closed.
fn closed_handles(replies: &[Pair]) -> BTreeSet<u64> {
    let replies =
        replies.iter().filter_map(|(_, value)| Reply::decode(&Bytes::copy_from_slice(value)).ok());
    let done = replies.filter(|reply| reply.header.status == 0);
    let handles = done.flat_map(|reply| {
        let row = Opcode::from_u16(reply.header.opcode).and_then(op::row);
        row.and_then(|row| row.closed).map_or_else(Vec::new, |closed| closed(&reply))
    });
    handles.filter(|handle| *handle != 0).collect()
}

fn word64(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use wire::body::AttrRep;
    use wire::stats::{self, StatRecord};
    use wire::{Request, encode_body};

    use super::*;

    #[test]
    fn stored_replies_name_the_handles_that_they_closed() {
        let stored = |opcode, bufs| {
            let reply = Reply::ok(&Request::new(opcode, Vec::new()).header, bufs);
            (Vec::new(), reply.to_frame().into_payload().to_vec())
        };
        let rep = |handle| AttrRep { handle, ..AttrRep::default() };
        let mut records = Vec::new();
        for (errno, handle) in [(0, 5), (9, 0), (0, 6)] {
            let record = StatRecord { errno, rep: rep(handle), ..StatRecord::default() };
            stats::push(&mut records, &record);
        }
        let replies = [
            stored(Opcode::MdtOpen, vec![encode_body(&rep(3))]),
            stored(Opcode::MdtClose, vec![encode_body(&rep(4))]),
            stored(Opcode::MdtCloses, vec![Bytes::new(), records.into()]),
        ];
        assert_eq!(closed_handles(&replies), BTreeSet::from([4, 5, 6]));
    }
}
