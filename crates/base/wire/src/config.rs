//! Rare control messages, encoded with postcard: the MGS's knowledge of a file system.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use types::{FsName, TargetId, TargetKind};

/// Bytes of a configuration at most.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;

/// Bits of a version that count changes; the generation is above them.
const COUNT_BITS: u32 = 32;

/// The version of a generation below all that it counts.
#[must_use]
pub fn first_version(generation: u32) -> u64 {
    u64::from(generation) << COUNT_BITS
}

/// One target and where it is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// [`types::TargetId::to_u32`].
    pub id: u32,
    /// NID of its node.
    pub nid: u64,
    /// Port of its node.
    pub port: u16,
    /// Its instance when it registered.
    pub instance: u64,
}

/// Everything that a client or server needs to find its peers. Buffer 1 of the reply to MgsConfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsConfig {
    /// Name of the file system.
    pub fsname: String,
    /// Rises with each change: a generation ([`first_version`]), and a count below it.
    pub version: u64,
    /// All targets that ever registered, MDTs first, by index.
    pub targets: Vec<TargetInfo>,
    /// What `set_param -P` keeps: names or patterns, and values.
    pub params: Vec<(String, String)>,
    /// Identities of the targets' storages ([`Register::uuid`]), in the order of `targets`; none
    /// from an older MGS.
    pub uuids: Vec<u128>,
}

/// As it was before `uuids`.
#[derive(Deserialize)]
struct FsConfigWithoutUuids {
    fsname: String,
    version: u64,
    targets: Vec<TargetInfo>,
    params: Vec<(String, String)>,
}

impl FsConfig {
    /// From a buffer, of this or the earlier form.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<FsConfig> {
        decode(bytes).or_else(|| {
            let FsConfigWithoutUuids { fsname, version, targets, params } = decode(bytes)?;
            Some(FsConfig { fsname, version, targets, params, uuids: Vec::new() })
        })
    }

    /// Rises when the MGS begins anew: with an older copy of its records, or without any.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.version >> COUNT_BITS
    }

    /// Identity of a target's storage ([`types::TargetId::to_u32`]), zero where it is not known.
    #[must_use]
    pub fn uuid_of(&self, id: u32) -> u128 {
        let at = self.targets.iter().position(|target| target.id == id);
        at.and_then(|at| self.uuids.get(at)).copied().unwrap_or(0)
    }

    /// Whether a target is out of use: `testfs-OST0002.osc.active=0` is set, or of an MDT that was
    /// forgotten `testfs-MDT0001.mdc.active=0`.
    #[must_use]
    pub fn is_inactive(&self, id: TargetId, fsname: FsName) -> bool {
        let name = active_param(id, fsname);
        self.params.iter().any(|(param, value)| *param == name && value == "0")
    }

    /// OSTs that are out of use, known or not.
    #[must_use]
    pub fn inactive_osts(&self, fsname: FsName) -> Vec<TargetId> {
        let off = self.inactive(fsname, ".osc.active");
        off.into_iter().filter(|id| id.is_ost()).collect()
    }

    /// MDTs that were forgotten.
    #[must_use]
    pub fn inactive_mdts(&self, fsname: FsName) -> Vec<TargetId> {
        let off = self.inactive(fsname, ".mdc.active");
        off.into_iter().filter(|id| id.kind == TargetKind::Mdt).collect()
    }

    /// Indexes of MDTs that were forgotten and have not registered since.
    #[must_use]
    pub fn forgotten_mdts(&self, fsname: FsName) -> BTreeSet<u32> {
        let mut off = self.inactive_mdts(fsname);
        off.retain(|id| self.targets.iter().all(|target| target.id != id.to_u32()));
        off.into_iter().map(|id| id.index).collect()
    }

    fn inactive(&self, fsname: FsName, parameter: &str) -> Vec<TargetId> {
        let off = |(param, value): &(String, String)| {
            let name = param.strip_suffix(parameter).filter(|_| value == "0")?;
            let id = name.strip_prefix(fsname.as_str())?.strip_prefix('-')?;
            id.parse::<TargetId>().ok()
        };
        self.params.iter().filter_map(off).collect()
    }

    /// Pools of OSTs and their members, by index.
    #[must_use]
    pub fn pools(&self) -> BTreeMap<String, Vec<u32>> {
        let prefix = pool_param(&self.fsname, "");
        let pool = |(param, value): &(String, String)| {
            let name = param.strip_prefix(&prefix)?;
            Some((name.to_owned(), decode_pool(value)?))
        };
        self.params.iter().filter_map(pool).collect()
    }

    /// A target that `other` has on another storage: then it speaks of another file system.
    #[must_use]
    pub fn contradicted_by(&self, other: &FsConfig) -> Option<u32> {
        let differs = |id: &u32| {
            let (ours, theirs) = (self.uuid_of(*id), other.uuid_of(*id));
            ours != 0 && theirs != 0 && ours != theirs
        };
        self.targets.iter().map(|target| target.id).find(differs)
    }
}

/// Name of the permanent parameter that takes a target out of use.
#[must_use]
pub fn active_param(id: TargetId, fsname: FsName) -> String {
    let kind = if id.kind == TargetKind::Mdt { "mdc" } else { "osc" };
    format!("{}.{kind}.active", id.name(fsname))
}

/// Name of the permanent parameter that keeps a pool.
#[must_use]
pub fn pool_param(fsname: &str, pool: &str) -> String {
    format!("{fsname}.pool.{pool}")
}

/// Its value: indices and ranges, `osts=0,2-5`; `osts=` of an empty pool. `osts` rise.
#[must_use]
pub fn encode_pool(osts: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for ost in osts {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*ost) => *last = *ost,
            _ => ranges.push((*ost, *ost)),
        }
    }
    let shown = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    format!("osts={}", ranges.iter().map(shown).collect::<Vec<_>>().join(","))
}

/// The members, from its value, in order.
fn decode_pool(value: &str) -> Option<Vec<u32>> {
    let index =
        |text: &str| text.parse::<u32>().ok().filter(|index| *index <= types::TARGET_INDEX_MAX);
    let mut osts = Vec::new();
    for range in value.strip_prefix("osts=")?.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        osts.extend(index(first)?..=index(last)?);
    }
    osts.sort_unstable();
    osts.dedup();
    Some(osts)
}

/// Body of MgsRegister (buffer 0).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// Name of the file system.
    pub fsname: String,
    /// Which target, and where it listens.
    pub target: TargetInfo,
    /// Identity of the target's storage: the same index from another storage is refused.
    pub uuid: u128,
}

/// As the bytes of a message's buffer (postcard).
#[must_use]
pub fn encode<T: Serialize>(value: &T) -> Bytes {
    Bytes::from(postcard::to_stdvec(value).expect("plain values always encode"))
}

/// From the bytes of a message's buffer; none if they are malformed.
#[must_use]
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Option<T> {
    if bytes.len() > CONFIG_BYTES_MAX { None } else { postcard::from_bytes(bytes).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(id: u32) -> TargetInfo {
        TargetInfo { id, nid: 7, port: 988, instance: 1 }
    }

    fn config(targets: &[(u32, u128)]) -> FsConfig {
        let (infos, uuids) = targets.iter().map(|(id, uuid)| (info(*id), *uuid)).unzip();
        FsConfig { fsname: "testfs".to_owned(), version: 3, targets: infos, params: vec![], uuids }
    }

    #[test]
    fn a_configuration_without_identities_is_still_understood() {
        let old = ("testfs", 3_u64, vec![info(1)], vec![("a", "b")]);
        let read = FsConfig::decode(&postcard::to_stdvec(&old).expect("plain values"))
            .expect("the earlier form");
        assert_eq!((read.version, read.uuid_of(1), read.params.len()), (3, 0, 1));
        let new = config(&[(1, 5), (2, 6)]);
        assert_eq!(FsConfig::decode(&encode(&new)), Some(new.clone()));
        assert_eq!((new.uuid_of(2), new.uuid_of(9)), (6, 0));
        assert_eq!(FsConfig::decode(b"\xff\xff"), None);
    }

    #[test]
    fn a_generation_is_above_all_versions_before_it() {
        let of = |version| FsConfig { version, ..FsConfig::default() };
        assert_eq!((of(0).generation(), of(u64::from(u32::MAX)).generation()), (0, 0));
        assert_eq!(of(first_version(1)).generation(), 1);
        assert_eq!(of(first_version(u32::MAX) + 9).generation(), u64::from(u32::MAX));
        assert!(first_version(1) > u64::from(u32::MAX));
    }

    #[test]
    fn pools_are_permanent_parameters_of_their_own_form() {
        let mut known = config(&[]);
        let param = |pool: &str, value: &str| (pool_param("testfs", pool), value.to_owned());
        known.params = vec![
            param("flash", "osts=2,0,2"),
            param("all", &encode_pool(&[0, 1, 2, 7, 9, 10])),
            param("none-yet", &encode_pool(&[])),
            param("bad", "osts=x"),
            param("worse", "0,1"),
            ("other.pool.x".to_owned(), encode_pool(&[1])),
        ];
        assert_eq!(known.params[1].1, "osts=0-2,7,9-10");
        let pools = [("flash", vec![0, 2]), ("all", vec![0, 1, 2, 7, 9, 10]), ("none-yet", vec![])];
        let pools = pools.map(|(name, osts)| (name.to_owned(), osts));
        assert_eq!(known.pools(), BTreeMap::from(pools));
    }

    #[test]
    fn a_forgotten_mdt_is_out_of_use_and_not_registered() {
        let (mdt, fsname) = (TargetId::mdt, "testfs".parse().expect("a name"));
        let mut known = config(&[(mdt(0).to_u32(), 5), (mdt(2).to_u32(), 6)]);
        let off = |id| (active_param(id, fsname), "0".to_owned());
        known.params = vec![off(mdt(1)), off(mdt(2)), off(TargetId::ost(3))];
        assert_eq!(known.inactive_mdts(fsname), [mdt(1), mdt(2)]);
        assert_eq!(known.forgotten_mdts(fsname), BTreeSet::from([1]));
    }

    #[test]
    fn another_storage_under_a_known_name_is_another_file_system() {
        let known = config(&[(1, 5), (2, 6)]);
        assert_eq!(known.contradicted_by(&config(&[(1, 5), (2, 6), (3, 7)])), None);
        assert_eq!(known.contradicted_by(&config(&[(2, 8)])), Some(2));
        assert_eq!(
            known.contradicted_by(&FsConfig { uuids: vec![], ..config(&[(2, 8)]) }),
            None,
            "an older MGS does not say"
        );
    }
}
