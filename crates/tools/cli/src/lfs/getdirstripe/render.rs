//! Stripings of directories as Lustre prints them.

use std::fmt::Write as _;

use layout::dir::{
    Asked, BY_SPACE, HASH_FIXED, HASH_KIND, HASH_MOVING, HASH_OVERSTRIPED, HASH_SPLIT, MAGIC_ASKED,
    MAGIC_STRIPES, Stripes, UNLIMITED, hash_name,
};
use types::Fid;

use super::Args;

/// Which fields were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub(super) struct Fields {
    /// Number of shards; 0 of a plain directory.
    #[arg(short = 'c', visible_short_alias = 'T', long = "mdt-count", visible_alias = "count")]
    count: bool,
    /// Index of the directory's MDT.
    #[arg(short = 'i', visible_short_alias = 'm', long = "mdt-index", visible_alias = "index")]
    index: bool,
    /// How names are spread.
    #[arg(short = 'H', visible_short_alias = 't', long = "mdt-hash", visible_alias = "hash-type")]
    hash: bool,
    /// FID of the directory.
    #[arg(short = 'F', long)]
    fid: bool,
    /// Levels to which a default is handed on; -1 without limit.
    #[arg(short = 'X', long)]
    max_inherit: bool,
    /// Levels that go to MDTs in turn; -1 without limit.
    #[arg(long)]
    max_inherit_rr: bool,
}

/// Flags of a hash, as commands print them.
const FLAGS: [(u32, &str); 6] = [
    (HASH_OVERSTRIPED, "overstriped"),
    (HASH_MOVING, "migrating"),
    (HASH_SPLIT, "split"),
    (0x4000_0000, "bad_type"),
    (0x2000_0000, "lost_lmv"),
    (HASH_FIXED, "fixed"),
];

/// What is to be shown of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    path: String,
    fid: Fid,
    count: i32,
    offset: i32,
    hash: u32,
    /// Levels, of a default.
    inherit: Option<(u8, u8)>,
    shards: Vec<Fid>,
}

impl Shown {
    /// A directory; a plain one has no stripes.
    pub(super) fn of(path: String, fid: Fid, stripes: Option<Stripes>) -> Shown {
        let master = stripes.as_ref().map_or(fid.mdt_index(), |stripes| stripes.master);
        let moving = |found: &Stripes| if found.leaving.is_some() { HASH_MOVING } else { 0 };
        let (hash, shards) =
            stripes.map_or((0, Vec::new()), |found| (found.hash | moving(&found), found.shards));
        Shown {
            path,
            fid,
            count: i32::try_from(shards.len()).unwrap_or(i32::MAX),
            offset: i32::try_from(master).unwrap_or(BY_SPACE),
            hash,
            inherit: None,
            shards,
        }
    }

    /// The default of a directory.
    pub(super) fn default_of(path: String, fid: Fid, default: Option<Asked>) -> Shown {
        let none = Asked { count: 0, hash: 0, ..Asked::default() };
        let asked = default.unwrap_or(none);
        Shown {
            path,
            fid,
            count: asked.count.cast_signed(),
            offset: asked.index,
            hash: asked.hash,
            inherit: Some((asked.max_inherit, asked.max_inherit_rr)),
            shards: Vec::new(),
        }
    }

    /// Whether the directory, or a shard of it, is on an MDT.
    pub(super) fn is_on(&self, mdt: u32) -> bool {
        let master = u32::try_from(self.offset).is_ok_and(|master| master == mdt);
        master || self.shards.iter().any(|shard| shard.mdt_index() == mdt)
    }

    /// The values of the fields, each with its name.
    fn values(&self, fields: &Fields, verbose: bool) -> Vec<(&'static str, String)> {
        let magic = if self.inherit.is_some() { MAGIC_ASKED } else { MAGIC_STRIPES };
        let (inherit, inherit_rr) = self.inherit.unwrap_or_default();
        let is_default = self.inherit.is_some();
        let fid = self.fid.to_string();
        let all = [
            (fields.fid || verbose, "lmv_fid:", fid.trim_matches(['[', ']']).to_owned()),
            (verbose, "lmv_magic:", format!("{magic:#x}")),
            (fields.count, "lmv_stripe_count:", self.count.to_string()),
            (fields.index, "lmv_stripe_offset:", self.offset.to_string()),
            (fields.hash, "lmv_hash_type:", hash(self.hash)),
            (fields.max_inherit && is_default, "lmv_max_inherit:", levels(inherit)),
            (fields.max_inherit_rr && is_default, "lmv_max_inherit_rr:", levels(inherit_rr)),
        ];
        all.into_iter().filter(|(asked, ..)| *asked).map(|(_, name, value)| (name, value)).collect()
    }

    fn objects(&self, yaml: bool) -> String {
        let mut out = String::new();
        if yaml {
            out.push_str("lmv_objects:\n");
            let plain = [self.fid];
            let objects = if self.shards.is_empty() { &plain[..] } else { &self.shards };
            for fid in objects {
                let (mdt, fid) = (fid.mdt_index(), fid.to_string());
                let fid = fid.trim_matches(['[', ']']);
                let _ = write!(out, "      - l_mdt_idx: {mdt}\n        l_fid:     {fid}\n");
            }
        } else if !self.shards.is_empty() {
            out.push_str("mdtidx\t\t FID[seq:oid:ver]\n");
            for fid in &self.shards {
                let _ = writeln!(out, "{:>6}\t\t {fid}\t\t", fid.mdt_index());
            }
        }
        out
    }
}

fn hash(hash: u32) -> String {
    let name = match hash & HASH_KIND {
        0 => "none".to_owned(),
        kind => hash_name(kind).map_or_else(|| format!("{kind:#x}"), str::to_owned),
    };
    let known = FLAGS.iter().fold(HASH_KIND, |known, (flag, _)| known | flag);
    let flags = FLAGS.iter().filter(|(flag, _)| hash & flag != 0);
    let mut out = flags.fold(name, |out, (_, flag)| out + "," + flag);
    if hash & !known != 0 {
        let _ = write!(out, ",unknown_{:04x}", hash & !known);
    }
    out
}

fn levels(levels: u8) -> String {
    if levels == UNLIMITED { "-1".to_owned() } else { levels.to_string() }
}

/// As the arguments say.
pub(super) fn text(args: &Args, shown: &Shown) -> String {
    let mut out = String::new();
    if args.recursive {
        let prefix = if args.default { "(Default)" } else { "" };
        let _ = writeln!(out, "{prefix}{}", shown.path);
    }
    let is_whole = args.fields == Fields::default();
    let whole = Fields { fid: false, ..ALL };
    let fields = if is_whole { &whole } else { &args.fields };
    let values = shown.values(fields, args.verbose);
    let word = |(name, value): &(&str, String)| match (args.yaml, values.len()) {
        (false, 1) => value.clone(),
        (false, _) => format!("{name} {value}"),
        (true, _) => format!("{name:<18} {value}"),
    };
    let words: Vec<String> = values.iter().map(word).collect();
    out.push_str(&words.join(if args.yaml { "\n" } else { " " }));
    out.push('\n');
    if is_whole && !args.default {
        out.push_str(&shown.objects(args.yaml));
    }
    out
}

const ALL: Fields = Fields {
    count: true,
    index: true,
    hash: true,
    fid: true,
    max_inherit: true,
    max_inherit_rr: true,
};

#[cfg(test)]
mod tests {
    use layout::dir::{HASH_CRUSH2, HASH_FNV_1A_64, Leaving};

    use super::*;
    use crate::testing::parse;

    fn shown(line: &str, shown: &Shown) -> String {
        let args: Args = parse(format!("getdirstripe {line} d").split_whitespace()).expect("fits");
        text(&args, shown)
    }

    fn striped() -> Shown {
        let shards = [(0x2_0000_0402, 3), (0x2_0002_0403, 2), (0x2_0004_0401, 2)];
        let shards = shards.map(|(seq, oid)| Fid::new(seq, oid)).to_vec();
        let stripes =
            Stripes { hash: HASH_FNV_1A_64, version: 1, master: 0, shards, leaving: None };
        Shown::of("/m/d".into(), Fid::new(0x2_0000_0402, 2), Some(stripes))
    }

    #[test]
    fn a_striped_directory_shows_its_shards() {
        let expected = "\
lmv_stripe_count: 3 lmv_stripe_offset: 0 lmv_hash_type: fnv_1a_64
mdtidx\t\t FID[seq:oid:ver]
     0\t\t [0x200000402:0x3:0x0]\t\t
     1\t\t [0x200020403:0x2:0x0]\t\t
     2\t\t [0x200040401:0x2:0x0]\t\t
";
        assert_eq!(shown("", &striped()), expected);
        assert_eq!(shown("-r", &striped()), format!("/m/d\n{expected}"));
        assert!(striped().is_on(2) && !striped().is_on(3));
    }

    #[test]
    fn names_that_move_are_shown() {
        let leaving = Some(Leaving { hash: HASH_CRUSH2, shards: vec![Fid::new(0x2_0000_0402, 2)] });
        let (hash, shards) = (HASH_CRUSH2 | HASH_FIXED, vec![Fid::new(0x2_0000_0402, 3)]);
        let stripes = Stripes { hash, version: 1, master: 0, shards, leaving };
        let moving = Shown::of("d".into(), Fid::new(0x2_0000_0402, 2), Some(stripes));
        assert_eq!(shown("-H", &moving), "crush2,migrating,fixed\n");
    }

    #[test]
    fn a_plain_directory_has_one_line() {
        let plain = Shown::of("/m/d".into(), Fid::new(0x2_0004_0400, 7), None);
        let expected = "lmv_stripe_count: 0 lmv_stripe_offset: 2 lmv_hash_type: none\n";
        assert_eq!(shown("", &plain), expected);
        assert_eq!(shown("-F", &plain), "0x200040400:0x7:0x0\n");
        assert!(plain.is_on(2) && !plain.is_on(0));
    }

    #[test]
    fn fields_stand_alone_or_with_their_names() {
        let lines = [
            ("-c", "3\n"),
            ("-i", "0\n"),
            ("-m", "0\n"),
            ("-H", "fnv_1a_64\n"),
            ("-c -H", "lmv_stripe_count: 3 lmv_hash_type: fnv_1a_64\n"),
            ("-X", "\n"),
        ];
        for (line, expected) in lines {
            assert_eq!(shown(line, &striped()), expected, "{line}");
        }
    }

    #[test]
    fn a_default_shows_how_far_it_goes() {
        let asked = Asked { count: 2, max_inherit: 3, ..Asked::default() };
        let of = |asked| Shown::default_of("d".into(), Fid::ROOT, asked);
        let expected = "lmv_stripe_count: 2 lmv_stripe_offset: -1 lmv_hash_type: crush2 \
            lmv_max_inherit: 3 lmv_max_inherit_rr: 0\n";
        assert_eq!(shown("-D", &of(Some(asked.clone()))), expected);
        let all = Asked { count: u32::MAX, max_inherit_rr: UNLIMITED, ..asked };
        assert_eq!(shown("-D --max-inherit-rr", &of(Some(all.clone()))), "-1\n");
        assert_eq!(shown("-D -c", &of(Some(all))), "-1\n");
        let none = "lmv_stripe_count: 0 lmv_stripe_offset: -1 lmv_hash_type: none \
            lmv_max_inherit: -1 lmv_max_inherit_rr: 0\n";
        assert_eq!(shown("-D", &of(None)), none);
        assert_eq!(shown("-D -r", &of(None)), format!("(Default)d\n{none}"));
    }

    #[test]
    fn yaml_has_a_line_for_each_value() {
        let plain = Shown::of("d".into(), Fid::new(0x2_0004_0400, 7), None);
        let expected = "\
lmv_stripe_count:  0
lmv_stripe_offset: 2
lmv_hash_type:     none
lmv_objects:
      - l_mdt_idx: 2
        l_fid:     0x200040400:0x7:0x0
";
        assert_eq!(shown("-y", &plain), expected);
        assert!(shown("-y", &striped()).ends_with("l_fid:     0x200040401:0x2:0x0\n"));
        assert!(shown("-yv", &striped()).starts_with("lmv_fid:           0x200000402:0x2:0x0\n"));
    }

    #[test]
    fn hashes_are_named_with_their_flags() {
        assert_eq!(hash(HASH_CRUSH2 | HASH_FIXED | HASH_OVERSTRIPED), "crush2,overstriped,fixed");
        assert_eq!(hash(9 | 0x0010_0000), "0x9,unknown_100000");
        assert_eq!(hash(0), "none");
    }
}
