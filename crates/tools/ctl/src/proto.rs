//! Questions and answers of a control socket.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Longest question, bytes: a parameter's value and room around it.
pub(crate) const ASK_BYTES_MAX: usize = 2 * params::PARAM_VALUE_BYTES_MAX;

/// Longest answer, bytes.
pub(crate) const REPLY_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    Who,
    Get {
        pattern: String,
        /// Also all below a match.
        recursive: bool,
    },
    Set {
        pattern: String,
        value: String,
    },
    /// Set or delete a permanent parameter (the MGS only).
    SetPermanent {
        /// Of this file system; of all that the MGS knows.
        fsname: Option<String>,
        name: String,
        /// New value; none: delete it.
        value: Option<String>,
    },
    /// Take a target out of its file system (the MGS only).
    Forget {
        /// Its name.
        target: String,
    },
    /// Pools of OSTs.
    Pools {
        /// Of this file system; empty: the mount's own, or the only one that the MGS knows.
        fsname: String,
    },
    /// Change a pool of OSTs (the MGS only).
    Pool {
        fsname: String,
        pool: String,
        change: PoolChange,
    },
    /// Names of parameters.
    List {
        pattern: String,
        /// Also all below a match.
        recursive: bool,
    },
    /// Targets served and connectors held here.
    Devices,
    Nids,
    /// Space of each target (clients only).
    Df,
    /// States of MDTs (clients only).
    Mdts,
    /// States of OSTs (clients only).
    Osts,
    /// The MGS, asked for its configuration (clients only); active: it answered.
    Mgs,
    /// FID of a path below the mount point (clients only).
    Path2fid {
        /// From the root of the file system, with a leading slash.
        path: RawPath,
    },
    /// Makes a regular file with a layout; it must not exist (clients only).
    Create {
        /// Path of its directory, from the root of the file system.
        dir: RawPath,
        name: RawPath,
        /// The asker's umask.
        umask: u32,
        /// What `lustre.lov` would be set to.
        striping: Vec<u8>,
    },
    /// Makes a directory on MDTs of the asker's choice; it must not exist (clients only).
    Mkdir {
        /// Path of its directory, from the root of the file system.
        dir: RawPath,
        name: RawPath,
        /// Permissions, to which the umask is applied.
        mode: u32,
        /// The asker's umask.
        umask: u32,
        /// What `lustre.dmv` would be set to.
        striping: Vec<u8>,
    },
    /// Begins to move a file into other objects (clients only). It is given up where nobody asks
    /// for its state any more.
    Migrate {
        /// From the root of the file system.
        path: RawPath,
        /// What `lustre.lov` would be set to.
        striping: Vec<u8>,
        /// It ends where somebody changes the file meanwhile.
        gives_way: bool,
    },
    /// How far a migration is (clients only).
    MigrationState {
        number: u64,
    },
    /// Paths of a FID (clients only).
    Fid2path {
        fid: String,
    },
    /// How the end of a mount goes (clients only): answered within a second or so.
    Leaving,
    /// Give up what is not known to be durable, and end the mount (clients only).
    GiveUp,
    /// Begins to export the records of an MDT that is served here.
    ExportMeta {
        /// Its name.
        target: String,
        /// The file, from the root of the daemon's file system.
        path: String,
    },
    /// Objects of an OST, which this server serves or can ask, in the order of their FIDs.
    ListObjects {
        /// Its name.
        target: String,
        /// The first FID that is wanted.
        from: String,
    },
    /// Objects of an OST that no file of the MDT names which is served here, a page of them. To
    /// remove them is a change.
    Unnamed {
        /// Name of the MDT.
        target: String,
        /// Name of the OST.
        ost: String,
        /// The first FID that is looked at.
        from: String,
        /// They are to be removed.
        remove: bool,
    },
    /// Looks again at a name, or at a file's counts, of an MDT that is served here, and mends what
    /// is wrong there.
    Mend {
        /// Name of the MDT.
        target: String,
        /// The file, or the directory of the name.
        fid: String,
        name: Option<Vec<u8>>,
        /// The directory of the name, where `fid` is a file: both are looked at.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dir: Option<String>,
    },
    /// How far an export is.
    ExportState {
        number: u64,
    },
}

impl Ask {
    /// Whether it changes the daemon itself or has it write a file. (Making or
    /// migrating a file in the mount is checked by the servers, as for everybody.)
    #[must_use]
    pub fn changes(&self) -> bool {
        matches!(
            self,
            Ask::Set { .. }
                | Ask::SetPermanent { .. }
                | Ask::Forget { .. }
                | Ask::Pool { .. }
                | Ask::GiveUp
                | Ask::ExportMeta { .. }
                | Ask::Mend { .. }
                | Ask::Unnamed { remove: true, .. }
        )
    }
}

/// A path or a name, as the bytes that it has: in JSON a string, or a list of bytes where it is not
/// UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Spelled", into = "Spelled")]
pub struct RawPath(pub Vec<u8>);

/// A [`RawPath`] in JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Spelled {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<Spelled> for RawPath {
    fn from(spelled: Spelled) -> RawPath {
        match spelled {
            Spelled::Text(text) => RawPath(text.into_bytes()),
            Spelled::Bytes(bytes) => RawPath(bytes),
        }
    }
}

impl From<RawPath> for Spelled {
    fn from(path: RawPath) -> Spelled {
        String::from_utf8(path.0)
            .map_or_else(|error| Spelled::Bytes(error.into_bytes()), Spelled::Text)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To [`Ask::Who`].
    Who(Who),
    /// To [`Ask::Get`].
    Values(Vec<Value>),
    /// To [`Ask::Set`]: one for each match.
    Set(Vec<Outcome>),
    /// To [`Ask::List`].
    Names(Vec<Name>),
    /// To [`Ask::Devices`].
    Devices(Vec<Device>),
    /// To [`Ask::Nids`], [`Ask::SetPermanent`] (names of file systems), [`Ask::Forget`] (its name),
    /// [`Ask::Path2fid`], [`Ask::Create`], [`Ask::Mkdir`], [`Ask::Fid2path`] and [`Ask::Mend`]
    /// (what was done, if anything).
    Lines(Vec<String>),
    /// To [`Ask::Fid2path`] where a path is not UTF-8.
    Paths(Vec<RawPath>),
    /// To [`Ask::Df`].
    Spaces(Vec<Space>),
    /// To [`Ask::Mdts`], [`Ask::Osts`] and [`Ask::Mgs`].
    Targets(Vec<Target>),
    /// To [`Ask::Pools`], and to [`Ask::Pool`] as they are then.
    Pools(Pools),
    /// To [`Ask::Leaving`] and [`Ask::GiveUp`].
    Leaving(Leaving),
    /// To [`Ask::ListObjects`]: some, or none where there are no more.
    Objects(Vec<Object>),
    /// To [`Ask::Unnamed`].
    Unnamed(Unnamed),
    /// To [`Ask::ExportMeta`] and [`Ask::ExportState`].
    Export(Export),
    /// To [`Ask::Migrate`] and [`Ask::MigrationState`].
    Migration(Migration),
}

/// What to do with a pool of OSTs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolChange {
    New,
    /// One more member, by index.
    Add(u32),
    /// One member less.
    Remove(u32),
    Destroy,
}

/// The pools of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pools {
    pub fsname: String,
    /// Indices of all its OSTs.
    pub osts: Vec<u32>,
    /// Members by name.
    pub pools: BTreeMap<String, Vec<u32>>,
}

/// How the end of a mount goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaving {
    /// For which targets it waits, and for what of each.
    Waits(Vec<String>),
    /// It has ended: what was given up, a line each.
    Ended(Vec<String>),
}

/// An object of an OST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its FID.
    pub object: String,
    /// FID of the file for which it was made.
    pub file: String,
    /// Number of the store of the file's MDT.
    pub store: u64,
}

/// Objects without a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unnamed {
    /// FIDs of each, and of the file for which it was made, and its bytes.
    pub objects: Vec<(String, String, u64)>,
    /// The last object that was looked at; none where there are no more.
    pub last: Option<String>,
}

/// How far an export is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    pub number: u64,
    /// Records read.
    pub records: u64,
    /// Records that there were at its start.
    pub records_in_all: u64,
    /// Bytes of the file.
    pub bytes: u64,
    pub is_done: bool,
    /// Why there is none; it is done then.
    pub failure: Option<Failure>,
}

/// How far a migration is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    pub number: u64,
    /// Bytes that were copied, some more than once.
    pub copied: u64,
    /// Bytes of the file.
    pub size: u64,
    pub rounds: u32,
    /// How long others had to wait for its end.
    pub pause_ms: u64,
    pub is_done: bool,
    /// Why the file is where it was; it is done then.
    pub failure: Option<Failure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Error number, positive.
    pub errno: i32,
    /// In words.
    pub text: String,
}

impl Failure {
    /// An error number in its own words.
    #[must_use]
    pub fn of(errno: types::Errno) -> Failure {
        Failure { errno: errno.raw(), text: errno.text().to_owned() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// `server` or `client`.
    pub kind: String,
    pub pid: u32,
    /// File system; empty for an MGS alone.
    pub fsname: String,
    /// Names of the targets served; of a client, none.
    pub targets: Vec<String>,
    /// Names of the OSTs that this server knows, wherever they are.
    #[serde(default)]
    pub osts: Vec<String>,
    /// Names of the MDTs that this server knows, wherever they are.
    #[serde(default)]
    pub mdts: Vec<String>,
    /// Mount point of a client.
    pub mount: Option<String>,
    /// Of a client: the number in names of its parameters.
    #[serde(default)]
    pub instance: String,
    /// Of a client: its id as servers show it.
    #[serde(default)]
    pub uuid: String,
}

/// A parameter and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    pub name: String,
    pub value: String,
    /// Whether it can be set.
    pub is_writable: bool,
}

/// What became of setting one parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Done; the value as it reads now.
    Done(Value),
    /// Refused; nothing changed.
    Refused(Failure),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Name {
    pub name: String,
    /// Has parameters below it.
    pub is_dir: bool,
    pub is_writable: bool,
}

/// A line of `lctl dl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// `UP`, `ST` (starting, recovering), `IN` (inactive).
    pub status: String,
    /// `mgs`, `mdt`, `obdfilter`, `mgc`, `mdc`, `osc`.
    pub kind: String,
    pub name: String,
    pub uuid: String,
    /// Users: sessions of a target.
    pub refs: u32,
    /// Where a connector's target is served; empty for a target.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nid: String,
}

/// A line of `lfs df`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    pub target: Target,
    /// What it told, unless it did not answer in time.
    pub space: Option<Room>,
    /// Its states, a letter each: D degraded, R read-only, N no_create, S no space, I no inodes.
    #[serde(default)]
    pub letters: String,
}

/// Space and inodes of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    pub bytes: u64,
    pub bytes_free: u64,
    /// Bytes free for users.
    pub bytes_avail: u64,
    /// Inodes or objects in all.
    pub files: u64,
    pub files_free: u64,
}

/// A target as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// `MDT` or `OST`.
    pub kind: String,
    pub index: u32,
    /// `testfs-OST0002`.
    pub name: String,
    /// State of the import.
    pub state: String,
    /// Not taken out of use.
    pub is_active: bool,
    /// Address of its node.
    pub nid: String,
}

/// One line of an answer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Ok(Reply),
    Err(Failure),
}

/// An answer as its line.
pub(crate) fn encode(answer: &Result<Reply, Failure>) -> String {
    let line = match answer.clone() {
        Ok(reply) => Line::Ok(reply),
        Err(failure) => Line::Err(failure),
    };
    let mut text = serde_json::to_string(&line).expect("plain values always encode");
    text.push('\n');
    text
}

/// The answer in a line; none where the line is not one.
pub(crate) fn decode(line: &str) -> Option<Result<Reply, Failure>> {
    Some(match serde_json::from_str(line).ok()? {
        Line::Ok(reply) => Ok(reply),
        Line::Err(failure) => Err(failure),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_cross_the_socket_unchanged() {
        let value = Value { name: "version".into(), value: "1\n2\n".into(), is_writable: false };
        for answer in [Ok(Reply::Values(vec![value])), Err(Failure::of(types::Errno::EPERM))] {
            let line = encode(&answer);
            assert_eq!(line.matches('\n').count(), 1, "one line: {line}");
            assert_eq!(decode(&line), Some(answer));
        }
        assert_eq!(decode("{}"), None);
    }

    /// Daemons of earlier versions know text.
    #[test]
    fn a_path_is_text_where_it_can_be_and_its_bytes_elsewhere() {
        let shown = |path: &[u8]| {
            let ask = Ask::Path2fid { path: RawPath(path.to_vec()) };
            let text = serde_json::to_string(&ask).expect("a question encodes");
            assert_eq!(serde_json::from_str::<Ask>(&text).expect("its own text"), ask);
            text
        };
        assert_eq!(shown("/é".as_bytes()), r#"{"path2fid":{"path":"/é"}}"#);
        assert_eq!(shown(b"/\xe9"), r#"{"path2fid":{"path":[47,233]}}"#);
        assert_eq!(shown(b""), r#"{"path2fid":{"path":""}}"#);
    }
}
