//! Command lines that are refused: the error names the thing, the reason and the way out.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error, FromArgMatches};

/// How a file system of `nacre up` ends.
const DOWN: &str = "nacre up ends with Ctrl-C or kill, and nacre umount ends a mount";

/// Words of Lustre's and other tools that Nacre does not have: tool, start of the word, reason and
/// way out.
const ABSENT: &[(&str, &str, &str)] = &[
    ("nacre", "down", DOWN),
    ("nacre", "stop", DOWN),
    ("nacre", "start", "use nacre up, nacre serve or nacre mount"),
    ("nacre", "health", "use nacre status"),
    ("lfs", "mirror", "each object has one copy, and there are no mirrors"),
    ("lfs", "quota", "there are no quotas"),
    ("lfs", "setquota", "there are no quotas"),
    ("lfs", "project", "there are no project quotas"),
    ("lfs", "hsm_", "there is no archive below a file system"),
    ("lfs", "changelog", "there are no changelogs"),
    ("lfs", "data_version", "a file has no data version; compare its times and its checksum"),
    ("lfs", "swap_layouts", "use lfs migrate"),
    ("lfs", "ladvise", "servers take no advice"),
    ("lfs", "rmfid", "use lfs fid2path, and rm"),
    ("lfs", "rm_entry", "use nacre fsck --repair, which removes names without an inode"),
    ("lfs", "flushctx", "a mount keeps no security contexts"),
    ("lfs", "pcc", "there is no persistent client cache"),
    ("lctl", "which_nid", "NIDs are addresses; use lctl ping"),
    ("lctl", "net", "servers get their address with nacre serve --listen"),
    ("lctl", "peer_list", "use lctl dl"),
    ("lctl", "interface_list", "use lctl list_nids"),
    ("lctl", "activate", "use lctl conf_param -d TARGET.osc.active"),
    ("lctl", "deactivate", "use lctl conf_param TARGET.osc.active=0"),
    ("lctl", "abort_recov", "use nacre serve --abort-recovery"),
    ("lctl", "lfsck_", "use nacre fsck"),
    ("lctl", "changelog_", "there are no changelogs"),
    ("lctl", "snapshot_", "there are no snapshots"),
    ("lctl", "barrier_", "there are no barriers"),
    ("lctl", "nodemap_", "ids are not mapped"),
    ("lctl", "llog_", "there are no configuration logs; use lctl get_param and conf_param"),
    ("lctl", "replace_nids", "servers register their address at each start"),
    ("lctl", "dk", "daemons log to files; NACRE_LOG sets the level"),
    ("lctl", "debug_", "daemons log to files; NACRE_LOG sets the level"),
    ("lctl", "mark", "daemons log to files; NACRE_LOG sets the level"),
    ("lctl", "clear", "daemons log to files; NACRE_LOG sets the level"),
];

/// Options of Lustre's tools and of find(1) that Nacre does not have: command, names without their
/// dashes, reason and way out.
const ABSENT_OPTIONS: &[(&str, &[&str], &str)] = &[
    (
        "lfs find",
        &["mmin", "amin", "cmin"],
        "-mtime, -atime and -ctime take minutes, use -mtime -5m",
    ),
    ("lfs find", &["exec", "execdir", "ok", "delete", "ls", "printf"], "use -print0 and xargs -0"),
    ("lfs find", &["o", "or", "prune", "path", "iname", "regex"], "use find(1) to choose by names"),
    ("lfs find", &["projid"], "there are no project quotas, use -user or -group"),
    ("lfs find", &["lazy"], "sizes are exact, use -size"),
    ("lfs find", &["fid"], "use lfs fid2path"),
    ("lfs find", &["attrs"], "files have no attributes of chattr(1), use -perm"),
    ("lfs find", &["newermt", "newerat", "newerct", "newerBt"], "use -newer or -mtime"),
    ("lfs getstripe", &["hex-idx"], "indices are decimal"),
    ("lfs", &["list-commands"], "use lfs --help"),
    ("lctl", &["list-commands"], "use lctl --help"),
];

/// Phrases of the parsers below, and the words that a user understands.
const PHRASES: &[(&str, &str)] = &[
    ("invalid digit found in string", "not a whole number"),
    ("cannot parse integer from empty string", "not a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("invalid socket address syntax", "expected ADDRESS:PORT, as 127.0.0.1:9464"),
];

/// The arguments as `T` declares them, or the text of the refusal for stderr. Help and version are
/// printed here, and end the process.
pub(crate) fn parse<T: FromArgMatches>(
    command: Command,
    args: &[OsString],
    typed: &[OsString],
) -> Result<T, String> {
    let mut command = with_negatives(command);
    let parsed = command.try_get_matches_from_mut(args).and_then(|matches| {
        T::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    });
    parsed.map_err(|error| {
        let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        if !error.use_stderr() || is_help {
            error.exit();
        }
        let path = path_of(&command, args);
        absent(&error, &path).unwrap_or_else(|| refusal(&error.render().to_string(), &path, typed))
    })
}

/// A negative number behind an option is its value: then the refusal says why it cannot be.
fn with_negatives(command: Command) -> Command {
    let takes_number = |arg: &clap::Arg| arg.get_action().takes_values() && !arg.is_positional();
    command
        .mut_args(|arg| {
            let takes = takes_number(&arg);
            if takes { arg.allow_negative_numbers(true) } else { arg }
        })
        .mut_subcommands(with_negatives)
}

/// The command that the words lead to: `nacre lfs df`.
fn path_of(command: &Command, args: &[OsString]) -> String {
    let (mut path, mut at) = (command.get_name().to_owned(), command);
    for word in args.iter().skip(1).filter_map(|arg| arg.to_str()) {
        if word.starts_with('-') {
            continue;
        }
        let Some(below) = at.find_subcommand(word) else { break };
        path = format!("{path} {}", below.get_name());
        at = below;
    }
    path
}

/// A line about a word of Lustre's that is not here.
fn absent(error: &Error, path: &str) -> Option<String> {
    let tool = path.strip_prefix("nacre ").unwrap_or(path);
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(option))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    {
        return absent_option(option, tool);
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let (.., why) = ABSENT.iter().find(|(of, start, _)| *of == tool && word.starts_with(start))?;
    Some(format!("error: {tool} {word}: not supported: {why}"))
}

/// `option` has dashes in front.
fn absent_option(option: &str, command: &str) -> Option<String> {
    let name = option.trim_start_matches('-');
    let is_it = |(of, names, _): &&(&str, &[&str], &str)| *of == command && names.contains(&name);
    let (.., why) = ABSENT_OPTIONS.iter().find(is_it)?;
    Some(format!("error: {command} {}: not supported: {why}", dashed(command, name)))
}

/// An option as its command writes it.
fn dashed(command: &str, name: &str) -> String {
    let is_short = command == "lfs find" || name.len() == 1;
    format!("{}{name}", if is_short { "-" } else { "--" })
}

/// The text of an error, with the whole command to type for help.
fn refusal(text: &str, path: &str, typed: &[OsString]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let is_root = line.starts_with("Usage: nacre <COMMAND>") && path != "nacre";
        let is_empty = line.is_empty() && lines.last().is_none_or(String::is_empty);
        if is_root || is_empty || line.contains("tip: to pass '") {
            continue;
        }
        lines.push(plain(line).replace("try '--help'", &format!("try '{path} --help'")));
    }
    let mut text = lines.join("\n").trim_end().to_owned();
    // `lfs find -ls`: as it was typed
    for word in typed.iter().filter_map(|word| word.to_str()) {
        if word.len() > 2 && word.starts_with('-') && !word.starts_with("--") {
            text = text.replace(&format!("'-{word}"), &format!("'{word}"));
        }
    }
    text
}

/// The words of parsers and of the system as a user would write them.
pub(crate) fn plain(text: &str) -> String {
    let mut text = text.to_owned();
    for (from, to) in PHRASES {
        text = text.replace(from, to);
    }
    if let Some((before, (low, high))) = text
        .split_once(" is not in ")
        .and_then(|(before, range)| Some((before, range.split_once("..=")?)))
    {
        text = format!("{before} is not in {low} to {high}");
    }
    while let Some(at) = text.find(" (os error ") {
        let Some(end) = text[at..].find(')') else { break };
        text.replace_range(at..=at + end, "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_errors_and_ranges_are_written_for_readers() {
        let said = plain("/x: No such file or directory (os error 2): gone (os error 5)");
        assert_eq!(said, "/x: No such file or directory: gone");
        assert_eq!(plain("0 is not in 1..=5"), "0 is not in 1 to 5");
        assert_eq!(plain("a (os error 2"), "a (os error 2");
    }

    #[test]
    fn an_option_that_is_absent_is_none_of_its_command() {
        let root = crate::args::declared();
        for (path, names, _) in ABSENT_OPTIONS {
            let below = |at: clap::Command, word| at.find_subcommand(word).expect(word).clone();
            let command = path.split(' ').fold(root.clone(), below);
            let has = |name: &str| {
                let short: Option<char> = name.parse().ok();
                command.get_arguments().any(|arg| {
                    arg.get_long() == Some(name) || (short.is_some() && arg.get_short() == short)
                })
            };
            for name in *names {
                assert!(!has(name), "{path} -{name}");
                let said = absent_option(&format!("--{name}"), path).expect("a line");
                let written = dashed(path, name);
                assert!(said.starts_with(&format!("error: {path} {written}: ")), "{said}");
            }
        }
        let said = absent_option("-lazy", "lfs find").expect("a line");
        assert!(said.starts_with("error: lfs find -lazy: not supported: "), "{said}");
        assert_eq!(absent_option("--wombat", "lfs find"), None);
        assert_eq!(absent_option("--ls", "lfs getstripe"), None);
    }

    #[test]
    fn a_word_that_is_absent_is_not_a_command() {
        let root = crate::args::declared();
        for (tool, start, _) in ABSENT {
            let below = || root.find_subcommand(tool).expect("a tool");
            let tool = if *tool == "nacre" { &root } else { below() };
            let clash = tool.get_subcommands().find(|sub| sub.get_name().starts_with(start));
            assert!(clash.is_none(), "{clash:?}");
        }
    }
}
