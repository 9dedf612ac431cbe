//! The options of `lfs find`. They are declared to clap like all others (help, manual page,
//! completion). They are read in their order, because `!` precedes the predicate that it negates.
//! They are written like those of find(1): `-name` is `--name`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use types::{TargetId, TargetKind};

use super::Args;
use super::mode::Mode;
use super::number::Bound;
use super::predicate::{Predicate, Stamp, Test};
use crate::form::Form;

const EXAMPLES: &str = "\
All predicates must hold; `!` before one negates it. Numbers: +N more than N, -N less than N, N
equal within the unit. Options may be written as find(1) has them, with one dash.

Examples:
  lfs find /mnt/nacre -name '*.dat' -size +1G
  lfs find . -type f ! -stripe-count 1
  lfs find . --ost 2,5 -print0 | xargs -0 lfs getstripe
  lfs find . -mtime +30 -user root -maxdepth 2
  lfs find . -type f -perm /022 ! -newer /etc/passwd";

/// A predicate: name, short name, other names, word for its value, help.
type Declared = (&'static str, Option<char>, &'static [&'static str], &'static str, &'static str);

const PREDICATES: &[Declared] = &[
    ("name", Some('n'), &[], "PATTERN", "Last part of the path, a shell pattern"),
    (
        "type",
        Some('t'),
        &[],
        "TYPE",
        "b block device, c character device, d directory, f file, l symbolic link, p pipe, s socket",
    ),
    ("size", Some('s'), &[], "[+-]N[ckMGTPE]", "Bytes, or b blocks of 512, k, M, G, T, P, E"),
    ("blocks", Some('b'), &[], "[+-]N", "Blocks of 512 bytes"),
    ("links", None, &[], "[+-]N", "Hard links"),
    (
        "mtime",
        Some('M'),
        &[],
        "[+-]N[smhdwy]",
        "Days, or another unit, since the last modification",
    ),
    ("atime", Some('A'), &[], "[+-]N[smhdwy]", "The same since the last access"),
    ("ctime", Some('C'), &[], "[+-]N[smhdwy]", "The same since the last change of attributes"),
    ("newer", None, &[], "FILE", "Modified after the last modification of FILE"),
    ("anewer", None, &[], "FILE", "Accessed after the last modification of FILE"),
    ("cnewer", None, &[], "FILE", "Attributes changed after the last modification of FILE"),
    (
        "perm",
        None,
        &[],
        "[-/]MODE",
        "Permissions, octal or as u=rw,g=r: exactly these, all of -MODE, any of /MODE",
    ),
    ("uid", Some('u'), &[], "[+-]N", "Number of the owner"),
    ("user", Some('U'), &[], "NAME", "Name or number of the owner"),
    ("gid", Some('g'), &[], "[+-]N", "Number of the group"),
    ("group", Some('G'), &[], "NAME", "Name or number of the group"),
    ("stripe-count", Some('c'), &["count"], "[+-]N", "Stripes of a file; of a directory's default"),
    ("stripe-size", Some('S'), &[], "[+-]N[kMG]", "Bytes of a stripe"),
    ("stripe-index", Some('i'), &["index"], "[+-]N", "OST of the first stripe"),
    (
        "ost",
        Some('O'),
        &["obd"],
        "LIST",
        "An object on one of these OSTs: indices or names, with commas",
    ),
    ("pool", Some('p'), &[], "POOL", "Pool of the layout"),
    ("layout", Some('L'), &[], "PATTERN", "Pattern of the layout: raid0, mdt, overstriped"),
    ("component-count", None, &["comp-count"], "[+-]N", "Components; a plain layout has none"),
    ("component-start", None, &["comp-start"], "[+-]N[kMG]", "Where some component starts"),
    (
        "component-end",
        Some('E'),
        &["comp-end"],
        "[+-]N[kMG]",
        "Where some component ends; eof: the end of the file",
    ),
    (
        "component-flags",
        None,
        &["comp-flags"],
        "[^]init",
        "Some component has its objects; ^init: has none yet",
    ),
    (
        "extension-size",
        Some('z'),
        &["ext-size"],
        "[+-]N[kMG]",
        "Bytes by which some component grows at a time",
    ),
    (
        "mdt",
        Some('m'),
        &["mdt-index"],
        "LIST",
        "On one of these MDTs, a directory also with a shard: indices or names, with commas",
    ),
    ("mdt-count", Some('T'), &[], "[+-]N", "Shards of a directory; a plain one has 0"),
    (
        "mdt-hash",
        Some('H'),
        &[],
        "HASH[,HASH]",
        "Names of a directory are spread by one of these: all_char, fnv_1a_64, crush, crush2",
    ),
];

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let declare = |(name, short, aliases, value, help): &Declared| {
            let arg = Arg::new(*name)
                .long(*name)
                .visible_aliases(aliases.iter().copied())
                .value_name(*value)
                .help(*help);
            let arg =
                arg.action(ArgAction::Append).allow_hyphen_values(true).help_heading("Predicates");
            if let Some(short) = short { arg.short(*short) } else { arg }
        };
        let not = Arg::new("not")
            .long("not")
            .help("Negate the next predicate, as `!` does")
            .help_heading("Predicates");
        // An occurrence of a flag has a place in the order only if it has a value.
        let not = not.num_args(0..=1).require_equals(true).default_missing_value("").hide(true);
        let empty =
            Arg::new("empty").long("empty").help("A file without bytes, a directory without names");
        let empty = empty.action(ArgAction::SetTrue).help_heading("Predicates");
        let depth = |name: &'static str, help: &'static str| {
            Arg::new(name)
                .long(name)
                .value_name("N")
                .value_parser(clap::value_parser!(usize))
                .help(help)
        };
        let flag = |name: &'static str, help: &'static str| {
            Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
        };
        let paths = Arg::new("paths").value_name("PATH").required(true).num_args(1..);
        command
            .arg(paths.value_parser(clap::value_parser!(PathBuf)).help("Where to look"))
            .args(PREDICATES.iter().map(declare))
            .arg(empty)
            .arg(not.action(ArgAction::Append))
            .arg(depth("maxdepth", "Levels below the paths to look at").short('D'))
            .arg(depth("mindepth", "Show nothing above this level"))
            .arg(flag("print", "End each path with a newline (the default)").short('P'))
            .arg(
                flag("print0", "End each path with a NUL")
                    .short('0')
                    .conflicts_with_all(["json", "yaml"]),
            )
            .arg(flag("json", "As JSON, with attributes"))
            .arg(flag("yaml", "As YAML, with attributes").short('y').conflicts_with("json"))
            .after_help(EXAMPLES)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Args, clap::Error> {
        let paths: Vec<PathBuf> =
            matches.get_many("paths").into_iter().flatten().cloned().collect();
        let mut predicates = in_order(matches)
            .map_err(|text| clap::Error::raw(ErrorKind::ValueValidation, format!("{text}\n")))?;
        predicates.sort_by_key(Predicate::price); // stable: of one price, the first stays first
        Ok(Args {
            paths,
            predicates,
            depth_max: matches.get_one("maxdepth").copied().unwrap_or(usize::MAX),
            depth_min: matches.get_one("mindepth").copied().unwrap_or(0),
            print0: matches.get_flag("print0"),
            form: Form::of(matches.get_flag("json"), matches.get_flag("yaml")),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Args::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Predicates as they stood on the command line.
fn in_order(matches: &ArgMatches) -> Result<Vec<Predicate>, String> {
    let mut found: Vec<(usize, &str, &str)> = Vec::new();
    for (name, ..) in PREDICATES {
        let values = matches.get_many::<String>(name).into_iter().flatten();
        let places = matches.indices_of(name).into_iter().flatten();
        found.extend(places.zip(values).map(|(place, value)| (place, *name, value.as_str())));
    }
    found.extend(matches.indices_of("not").into_iter().flatten().map(|place| (place, "not", "")));
    if matches.get_flag("empty") {
        found.extend(matches.index_of("empty").map(|place| (place, "empty", "")));
    }
    found.sort_unstable();
    let mut predicates = Vec::new();
    let mut negated = false;
    for (_, name, value) in found {
        if name == "not" {
            negated = !negated;
            continue;
        }
        let test = test(name, value).map_err(|error| format!("-{name}: {error}"))?;
        predicates.push(Predicate { test, negated });
        negated = false;
    }
    if negated {
        Err("`!` must be followed by a predicate, as in ! -name x".to_owned())
    } else {
        Ok(predicates)
    }
}

fn test(name: &str, value: &str) -> Result<Test, String> {
    Ok(match name {
        "name" => Test::Name(value.to_owned()),
        "type" => Test::Type(one_letter(value)?),
        "size" => Test::Size(Bound::bytes(value)?),
        "blocks" => Test::Blocks(Bound::plain(value)?),
        "links" => Test::Links(Bound::plain(value)?),
        "mtime" => Test::Time(Stamp::Modification, Bound::secs(value)?),
        "atime" => Test::Time(Stamp::Access, Bound::secs(value)?),
        "ctime" => Test::Time(Stamp::Change, Bound::secs(value)?),
        "newer" => Test::Newer(Stamp::Modification, modified(value)?),
        "anewer" => Test::Newer(Stamp::Access, modified(value)?),
        "cnewer" => Test::Newer(Stamp::Change, modified(value)?),
        "perm" => Test::Mode(Mode::parse(value)?),
        "empty" => Test::Empty,
        "uid" => Test::Uid(Bound::plain(value)?),
        "user" => Test::Uid(account(value, "/etc/passwd", "user")?),
        "gid" => Test::Gid(Bound::plain(value)?),
        "group" => Test::Gid(account(value, "/etc/group", "group")?),
        "stripe-count" => Test::StripeCount(Bound::plain(value)?),
        "stripe-size" => Test::StripeSize(Bound::bytes(value)?),
        "stripe-index" => Test::StripeIndex(Bound::plain(value)?),
        "ost" => Test::Osts(targets(value, TargetKind::Ost)?),
        "mdt" => Test::Mdts(targets(value, TargetKind::Mdt)?),
        "mdt-count" => Test::MdtCount(Bound::plain(value)?),
        "mdt-hash" => Test::MdtHash(value.split(',').map(hash).collect::<Result<_, _>>()?),
        "pool" => Test::Pool(value.rsplit_once('.').map_or(value, |(_, pool)| pool).to_owned()),
        "component-count" => Test::Components(Bound::plain(value)?),
        "component-start" => Test::ComponentStart(Bound::bytes(value)?),
        "component-end" => Test::ComponentEnd(Bound::end(value)?),
        "component-flags" => Test::ComponentInit(is_init(value)?),
        "extension-size" => Test::ExtensionSize(Bound::bytes(value)?),
        _ => Test::Pattern(value.to_owned()),
    })
}

fn hash(value: &str) -> Result<u32, String> {
    let kind = layout::dir::hash_kind(value);
    kind.ok_or_else(|| format!("'{value}' is none of all_char, fnv_1a_64, crush, crush2"))
}

fn is_init(value: &str) -> Result<bool, String> {
    match value {
        "init" => Ok(true),
        "^init" => Ok(false),
        _ => Err(format!("'{value}' is neither init nor ^init")),
    }
}

/// When the file at `path` was modified last; of a link, the link.
fn modified(path: &str) -> Result<(i64, i64), String> {
    let stat = std::fs::symlink_metadata(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(Stamp::Modification.of(&stat))
}

fn one_letter(value: &str) -> Result<char, String> {
    let mut letters = value.chars();
    let letter =
        letters.next().filter(|letter| "bcdflps".contains(*letter) && letters.next().is_none());
    letter.ok_or_else(|| format!("'{value}' is none of b, c, d, f, l, p, s"))
}

/// A name of the account table, or a number.
fn account(value: &str, table: &str, what: &str) -> Result<Bound, String> {
    if let Ok(bound) = Bound::plain(value) {
        return Ok(bound);
    }
    let text = std::fs::read_to_string(table).map_err(|error| format!("{table}: {error}"))?;
    let id = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(value)).then(|| fields.nth(1)?.parse::<u64>().ok()).flatten()
    });
    let id = id.ok_or_else(|| format!("there is no {what} '{value}': name one, or its number"))?;
    Ok(Bound { order: std::cmp::Ordering::Equal, count: id, unit: 1 })
}

/// `0,OST0003,testfs-OST000a_UUID`, or ranges `2-5`.
fn targets(value: &str, kind: TargetKind) -> Result<Vec<u32>, String> {
    let one = |text: &str| {
        let named =
            || text.parse::<TargetId>().ok().filter(|id| id.kind == kind).map(|id| id.index);
        text.parse().ok().or_else(named)
    };
    let mut all = Vec::new();
    for part in value.split(',') {
        let range = part
            .split_once('-')
            .and_then(|(low, high)| Some((low.parse::<u32>().ok()?, high.parse::<u32>().ok()?)));
        match (range, one(part)) {
            (Some((low, high)), _) if low <= high && high <= types::TARGET_INDEX_MAX => {
                all.extend(low..=high)
            }
            (None, Some(index)) => all.push(index),
            _ => {
                return Err(format!(
                    "'{part}' is not an {0}: expected indices, names or ranges: 0,2-5",
                    kind.as_str()
                ));
            }
        }
    }
    Ok(all)
}

/// The words behind `find` as clap takes them: `-name` becomes `--name`, `!` becomes `--not`.
/// Values stay what they are.
#[must_use]
pub(crate) fn spelled(words: &[OsString]) -> Vec<OsString> {
    let command = <Args as clap::Args>::augment_args(Command::new("find"));
    let mut out = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        let arg = text.strip_prefix('-').and_then(|name| named(&command, name));
        match (text, arg) {
            ("!", _) => out.push("--not".into()),
            (_, Some(arg)) => {
                let long = text.len() > 2 && !text.starts_with("--");
                out.push(if long { OsString::from(format!("-{text}")) } else { word.clone() });
                if arg.get_action().takes_values() && arg.get_id() != "not" && !text.contains('=') {
                    out.extend(words.next().cloned());
                }
            }
            // A word that nobody knows, not a short option with its value behind it: `-c2`, `-C+3`.
            _ if text.starts_with('-')
                && text.as_bytes().get(2).is_some_and(u8::is_ascii_alphabetic) =>
            {
                let dash = if text.starts_with("--") { "" } else { "-" };
                out.push(format!("{dash}{text}").into());
            }
            _ => out.push(word.clone()),
        }
    }
    out
}

/// The option that `-NAME`, `--NAME` or `--NAME=VALUE` means, without its first dash.
fn named<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    let name = name.strip_prefix('-').unwrap_or(name);
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    command.get_arguments().find(|arg| {
        let short =
            arg.get_short().is_some_and(|short| OsStr::new(name) == OsStr::new(&short.to_string()));
        let long = arg.get_long().is_some_and(|long| long == name);
        let alias = arg.get_visible_aliases().is_some_and(|aliases| aliases.contains(&name));
        short || long || alias
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    fn check(line: &str) -> Result<Args, String> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let words = std::iter::once(OsString::from("find")).chain(spelled(&words));
        parse(words).map_err(|error| error.to_string())
    }

    /// Each predicate in a word, in the order in which they are asked.
    fn tests(line: &str) -> Vec<String> {
        let args = check(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let shown = |predicate: &Predicate| {
            format!("{}{:?}", if predicate.negated { "!" } else { "" }, predicate.test)
        };
        args.predicates.iter().map(shown).collect()
    }

    #[test]
    fn predicates_are_written_as_find_and_lfs_have_them() {
        assert_eq!(tests("a -name *.c -type f"), ["Name(\"*.c\")", "Type('f')"]);
        assert_eq!(tests("a --name=x"), ["Name(\"x\")"]);
        assert_eq!(tests("a -name -type"), ["Name(\"-type\")"], "a value stays what it is");
        assert_eq!(tests("a -O 1-3,OST000a"), ["Osts([1, 2, 3, 10])"]);
        assert_eq!(tests("a -m 0 --ost 7"), ["Osts([7])", "Mdts([0])"]);
        assert_eq!(tests("a -H crush,all_char"), ["MdtHash([3, 1])"]);
        assert!(check("a -H md5").is_err() && check("a -mdt-count x").is_err());
        assert!(tests("a -mdt-count +1")[0].starts_with("MdtCount"));
        assert!(tests("a -mtime -7 -size +1M")[0].contains("Modification"));
        assert_eq!(tests("a -user root"), tests("a -uid 0"));
        assert_eq!(tests("a -c2 -O3"), tests("a -c 2 -O 3"));
    }

    #[test]
    fn a_mark_negates_what_comes_next_whatever_is_asked_first() {
        assert_eq!(tests("a -c 2 ! -type d -name x"), tests("a ! -type d -name x -c 2"));
        assert_eq!(tests("a ! -name x"), ["!Name(\"x\")"]);
        assert_eq!(tests("a ! ! -name x"), ["Name(\"x\")"]);
        assert_eq!(tests("a --not --name x"), ["!Name(\"x\")"]);
    }

    #[test]
    fn modes_reference_files_and_emptiness() {
        assert_eq!(tests("a -perm -u+w"), tests("a --perm -200"), "a value may begin with a dash");
        assert_eq!(
            tests("a ! -empty -size 0 -type d"),
            ["Type('d')", tests("a -size 0")[0].as_str(), "!Empty"]
        );
        assert_eq!(tests("a -empty ! -name x"), ["!Name(\"x\")", "Empty"]);
        for (name, stamp) in [("newer", "Modification"), ("anewer", "Access"), ("cnewer", "Change")]
        {
            let shown = &tests(&format!("a -{name} /"))[0];
            assert!(shown.starts_with(&format!("Newer({stamp}, ")), "{shown}");
        }
    }

    #[test]
    fn paths_depths_and_forms() {
        let args = check("a b -maxdepth 2 -mindepth 1 -print0").expect("fits");
        assert_eq!(
            (args.paths.len(), args.depth_max, args.depth_min, args.print0),
            (2, 2, 1, true)
        );
        assert!(check("a --json").expect("fits").form.is_data());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, part) in [
            ("-name x", "PATH"),
            ("a -type x", "none of b, c"),
            ("a -size big", "not a number"),
            ("a -perm rwx", "not a mode"),
            ("a -newer /no/such/file", "No such file"),
            ("a -user nobody-at-all", "no user"),
            ("a -O OST", "is not an OST"),
            ("a -name x !", "followed by a predicate"),
            ("a -print0 --json", "cannot be used with"),
            ("a -nonsense", "unexpected argument"),
        ] {
            let error = check(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
