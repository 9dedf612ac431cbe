//! The fields of a request that define its class: the argument of the policy names them, and their
//! values form the key.

use std::fmt;

use types::Nid;
use wire::Opcode;

use crate::{ID_NONE, Request};

/// Bytes of a jobid that count, as many as a request carries.
pub(crate) const JOBID_BYTES_MAX: usize = 32;

/// A field by which requests are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    Nid,
    Jobid,
    Opcode,
    Uid,
    Gid,
    Projid,
    Nodemap,
}

impl Field {
    /// Those that tell most requests apart come first: a rule is indexed by its first exact one.
    pub(crate) const ALL: [Field; 7] = [
        Field::Jobid,
        Field::Nid,
        Field::Uid,
        Field::Projid,
        Field::Gid,
        Field::Nodemap,
        Field::Opcode,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Field::Nid => "nid",
            Field::Jobid => "jobid",
            Field::Opcode => "opcode",
            Field::Uid => "uid",
            Field::Gid => "gid",
            Field::Projid => "projid",
            Field::Nodemap => "nodemap",
        }
    }

    /// Not `nodemap`: no request has one yet, so a rule of it would match nothing real.
    pub(crate) fn parse(word: &str) -> Option<Field> {
        let is_filled = |field: &Field| *field != Field::Nodemap;
        Field::ALL.into_iter().filter(is_filled).find(|field| field.name() == word)
    }

    /// What [`Field::parse`] knows, for people.
    pub(crate) const WORDS: &str = "nid, jobid, opcode, uid, gid or projid (nodemap: not yet)";
}

/// A set of fields, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldSet(u8);

impl FieldSet {
    pub(crate) const ALL: FieldSet = FieldSet(0x7f);

    /// `A[+B...]`; the empty text is the generic policy, all fields.
    ///
    /// # Errors
    /// The word that is no field.
    pub(crate) fn parse(text: &str) -> Result<FieldSet, String> {
        if text.is_empty() {
            return Ok(FieldSet::ALL);
        }
        let mut set = FieldSet(0);
        for word in text.split('+') {
            let field = Field::parse(word).ok_or_else(|| word.to_owned())?;
            if set.contains(field) {
                return Err(word.to_owned());
            }
            set.0 |= 1 << field as u8;
        }
        Ok(set)
    }

    #[inline]
    pub(crate) fn contains(self, field: Field) -> bool {
        self.0 & (1 << field as u8) != 0
    }

    pub(crate) fn includes(self, other: FieldSet) -> bool {
        other.0 & !self.0 == 0
    }
}

impl fmt::Display for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = Field::ALL;
        fields.sort_unstable();
        let names: Vec<_> =
            fields.into_iter().filter(|field| self.contains(*field)).map(Field::name).collect();
        f.write_str(&names.join("+"))
    }
}

/// A jobid as four words, padded with zeros.
pub(crate) fn jobid_words(jobid: &str) -> [u64; 4] {
    let mut bytes = [0; JOBID_BYTES_MAX];
    let len = jobid.len().min(JOBID_BYTES_MAX);
    bytes[..len].copy_from_slice(&jobid.as_bytes()[..len]);
    std::array::from_fn(|word| {
        let mut part = [0; 8];
        part.copy_from_slice(&bytes[8 * word..8 * word + 8]);
        u64::from_le_bytes(part)
    })
}

/// Values of the fields of a set, the others zero: `nid | opcode, uid | gid, projid | nodemap |
/// jobid`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key([u64; 8]);

impl Key {
    #[inline]
    pub(crate) fn of<R: Request>(fields: FieldSet, request: &R) -> Key {
        let mut key = Key::default();
        if fields.contains(Field::Nid) {
            key.0[0] = request.nid().0;
        }
        let low = |on: bool, value: u32| if on { u64::from(value) } else { 0 };
        key.0[1] = low(fields.contains(Field::Opcode), request.opcode() as u32)
            | low(fields.contains(Field::Uid), request.uid()) << 32;
        key.0[2] = low(fields.contains(Field::Gid), request.gid())
            | low(fields.contains(Field::Projid), request.projid()) << 32;
        key.0[3] = low(fields.contains(Field::Nodemap), request.nodemap());
        if fields.contains(Field::Jobid) {
            key.0[4..].copy_from_slice(&jobid_words(request.jobid()));
        }
        key
    }

    /// The same with the values of `fields` only.
    pub(crate) fn project(&self, fields: FieldSet) -> Key {
        let mut key = Key::default();
        for (field, word, mask) in [
            (Field::Nid, 0, u64::MAX),
            (Field::Opcode, 1, 0xffff_ffff),
            (Field::Uid, 1, 0xffff_ffff << 32),
            (Field::Gid, 2, 0xffff_ffff),
            (Field::Projid, 2, 0xffff_ffff << 32),
            (Field::Nodemap, 3, u64::MAX),
        ] {
            if fields.contains(field) {
                key.0[word] |= self.0[word] & mask;
            }
        }
        if fields.contains(Field::Jobid) {
            key.0[4..].copy_from_slice(&self.0[4..]);
        }
        key
    }

    /// A keyed hash, because users choose jobids and must not be able to choose collisions.
    #[inline]
    pub(crate) fn hash(&self, seed: u64) -> u64 {
        let mut hash = seed;
        for word in self.0 {
            // multiply and fold, as in wyhash
            let product = u128::from(hash ^ word)
                * u128::from(0x9e37_79b9_7f4a_7c15_u64 ^ seed.rotate_left(31) | 1);
            hash = (product as u64) ^ ((product >> 64) as u64) ^ word.rotate_left(17);
        }
        hash
    }

    pub(crate) fn nid(&self) -> Nid {
        Nid(self.0[0])
    }

    pub(crate) fn number(&self, field: Field) -> u32 {
        match field {
            Field::Opcode => self.0[1] as u32,
            Field::Uid => (self.0[1] >> 32) as u32,
            Field::Gid => self.0[2] as u32,
            Field::Projid => (self.0[2] >> 32) as u32,
            Field::Nodemap => self.0[3] as u32,
            Field::Nid | Field::Jobid => 0,
        }
    }

    pub(crate) fn jobid(&self) -> String {
        self.with_jobid(types::printable)
    }

    /// Asks `what` of the jobid, which is copied nowhere else: each pattern of each rule asks.
    pub(crate) fn with_jobid<T>(&self, what: impl FnOnce(&str) -> T) -> T {
        let mut bytes = [0; JOBID_BYTES_MAX];
        for (part, word) in bytes.chunks_exact_mut(8).zip(&self.0[4..]) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        what(&String::from_utf8_lossy(&bytes[..end])) // borrowed, unless a character was cut
    }

    /// The value of one field, as an exact index holds it.
    pub(crate) fn value(&self, field: Field) -> [u64; 4] {
        match field {
            Field::Nid => [self.0[0], 0, 0, 0],
            Field::Jobid => [self.0[4], self.0[5], self.0[6], self.0[7]],
            number => [u64::from(self.number(number)), 0, 0, 0],
        }
    }

    /// `nid=10.0.0.1@tcp jobid=dd.0`, the fields of `fields`.
    pub(crate) fn print(&self, fields: FieldSet) -> String {
        let mut all = Field::ALL;
        all.sort_unstable();
        let word = |field: Field| match field {
            Field::Nid => format!("nid={}", self.nid()),
            Field::Jobid => format!("jobid={}", self.jobid()),
            Field::Opcode => format!("opcode={}", opcode_name(self.number(field))),
            other if self.number(other) == ID_NONE => format!("{}=-1", other.name()),
            other => format!("{}={}", other.name(), self.number(other)),
        };
        all.into_iter()
            .filter(|field| fields.contains(*field))
            .map(word)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

fn opcode_name(value: u32) -> &'static str {
    u16::try_from(value).ok().and_then(Opcode::from_u16).map_or("?", Opcode::name)
}

/// Opcodes that a rule's word names: one, or the changes that Lustre sends under `mds_reint`.
pub(crate) fn opcodes(word: &str) -> Vec<u32> {
    const REINT: [Opcode; 7] = [
        Opcode::MdtCreate,
        Opcode::MdtLink,
        Opcode::MdtUnlink,
        Opcode::MdtRename,
        Opcode::MdtSetattr,
        Opcode::MdtSetxattr,
        Opcode::MdtRemovexattr,
    ];
    let named = |opcode: &&Opcode| {
        if word == "mds_reint" { REINT.contains(opcode) } else { opcode.name() == word }
    };
    Opcode::ALL.iter().filter(named).map(|opcode| *opcode as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobid_forges_no_line_of_a_table() {
        let mut key = Key::default();
        key.0[4..].copy_from_slice(&jobid_words("dd\n7 default\u{1b}[2J"));
        let fields = FieldSet::parse("jobid").expect("a field");
        assert_eq!(key.print(fields), "jobid=dd\\n7 default\\u{1b}[2J");
    }
}
