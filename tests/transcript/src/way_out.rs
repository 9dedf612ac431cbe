//! Whether an error says what to do now.

/// Words of a way out, or of its absence, behind the command that prints them.
const WAYS_OUT: &[&str] = &[
    "try 'nacre ",
    "expected ",
    " is expected",
    "not a whole number",
    "name one",
    "name a ",
    "name an ",
    "name the ",
    "name each",
    "name files",
    "name another",
    "name targets",
    "name them",
    " names another",
    " names it",
    "nacre ",
    "lfs ",
    "lctl ",
    "lst new_session",
    "export LST_SESSION",
    "use ",
    "mkdir",
    "make it",
    "mount it",
    "mount elsewhere",
    "mount with",
    "write ",
    "start it",
    "start without",
    "run it",
    "run the command",
    "runs on the machine",
    " lists ",
    "to do so",
    "1 to ",
    " has from ",
    "must ",
    "is required",
    "needs a component",
    "can't be specified with",
    "doesn't match",
    "does its MGS run",
    "without --",
    "--force",
    "another --",
    "not supported: ", // and why
];

/// Begin a line of an error, before a colon: `error: lfs df: `.
const COMMANDS: &[&str] = &["error", "nacre", "lfs", "lctl", "lst"];

/// Words of a command at most: `lfs find -ls`.
const COMMAND_WORDS_MAX: usize = 3;

/// Whether an output names a way out. The name of the command itself is none.
#[must_use]
pub fn has_way_out(output: &str) -> bool {
    let has = |line: &str| WAYS_OUT.iter().any(|word| line.contains(word));
    output.lines().map(behind_command).any(has)
}

fn behind_command(line: &str) -> &str {
    let mut rest = line;
    while let Some((first, behind)) = rest.split_once(": ") {
        let words: Vec<&str> = first.split(' ').collect();
        if !COMMANDS.contains(&words[0]) || words.len() > COMMAND_WORDS_MAX {
            break;
        }
        rest = behind;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::has_way_out;

    #[test]
    fn the_name_of_the_command_is_no_way_out() {
        for output in [
            "lfs getstripe: /nope: No such file or directory",
            "error: lfs find -ls: there is none",
            "nacre: --metrics: no such port",
            "lfs setstripe: f: mirrors are not supported",
        ] {
            assert!(!has_way_out(output), "{output}");
        }
        for output in [
            "lfs setstripe: f: stripe already set; lfs migrate moves its bytes",
            "error: lfs df: x: y\n\nFor more information, try 'nacre lfs df --help'.",
            "nacre: /x: no such directory: name one",
            "lfs setstripe: f: mirrors are not supported: each object has one copy",
        ] {
            assert!(has_way_out(output), "{output}");
        }
    }
}
