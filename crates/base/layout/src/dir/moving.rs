//! A directory whose names move from the shards that it had to those that it gets.
//!
//! ```text
//!  shards that names leave          shards that names go to
//!  [ d ]  a plain directory    -->  [ s0 s1 s2 s3 ]
//!  [ s0 s1 s2 s3 ]             -->  [ d ]  plain again
//! ```
//! From the moment that names begin to move, each name is made in its new shard. So a name only
//! leaves its old shard, and a name that is absent there stays absent. Old and new shards are
//! different directories, and each name has one place in each.

use types::Fid;

use super::{DirError, SHARDS_MAX, Stripes, hash, hash_name};

/// The shards that names leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Hash by which names were spread over them.
    pub hash: u32,
    /// In order; of a directory that was plain, the directory itself.
    pub shards: Vec<Fid>,
}

/// What a shard, or the directory itself, is for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The name belongs there. It may still be in the other place, if there is one.
    Home(Option<Fid>),
    /// The name does not belong there.
    Astray,
}

impl Stripes {
    /// The shard where a name belongs.
    #[must_use]
    pub fn home(&self, name: &[u8]) -> Fid {
        self.shards.get(self.shard_of(name)).copied().unwrap_or_default()
    }

    /// The shard that a name leaves, while names move.
    #[must_use]
    pub fn old_home(&self, name: &[u8]) -> Option<Fid> {
        let Leaving { hash: kind, shards } = self.leaving.as_ref()?;
        shards.get(hash(name, *kind, shards.len())).copied()
    }

    /// What `place` is for a name.
    #[must_use]
    pub fn standing(&self, place: Fid, name: &[u8]) -> Standing {
        match self.home(name) == place {
            true => Standing::Home(self.old_home(name)),
            false => Standing::Astray,
        }
    }

    /// Whether names leave this shard.
    #[must_use]
    pub fn is_left(&self, place: Fid) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.shards.contains(&place))
    }

    /// All places with names, those that names leave first. A listing in this order misses no name,
    /// because names move from the first ones to the last ones only.
    pub fn places(&self) -> impl Iterator<Item = Fid> {
        let old = self.leaving.iter().flat_map(|leaving| &leaving.shards);
        old.chain(&self.shards).copied()
    }

    /// The striping when all names have moved. Nothing if the directory `dir` is plain then.
    #[must_use]
    pub fn moved(&self, dir: Fid) -> Option<Stripes> {
        let version = self.version.wrapping_add(1);
        let stripes = Stripes { version, leaving: None, ..self.clone() };
        (self.shards != [dir]).then_some(stripes)
    }

    pub(super) fn check_leaving(&self) -> Result<(), DirError> {
        let Some(Leaving { hash, shards }) = &self.leaving else { return Ok(()) };
        if shards.is_empty() || shards.len() > SHARDS_MAX {
            return Err(DirError::Count(shards.len() as i64));
        }
        if hash_name(*hash).is_none() {
            return Err(DirError::Hash(*hash));
        }
        match shards.iter().any(|shard| self.shards.contains(shard)) {
            true => Err(DirError::Both),
            false => Ok(()),
        }
    }
}
