//! Completions and manual pages, made from the declarations.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;

/// Pages of mount(8)'s and mkfs(8)'s helpers, and the subcommands that they are.
const HELPERS: [(&str, &str); 3] =
    [("mkfs.nacre", "format"), ("mount.nacre", "mount"), ("umount.nacre", "umount")];

/// Tools with pages under their own names: `nacre` has one page for each, and none below it.
const TOOLS: [&str; 3] = ["lfs", "lctl", "lst"];

const ENVIRONMENT: &str = "\
.SH ENVIRONMENT
.TP
.B NACRE_RUN
Directory of the daemons' control sockets, in place of /run/nacre.
.TP
.B NACRE_LOG
Level of the log: error, warn, info, debug or trace.
.TP
.B NACRE_ANSWER_WAIT
Seconds that a command waits for the answer of a daemon.
";

const FILES: &str = "\
.SH FILES
.TP
.I /run/nacre
Control sockets of daemons, and logs of mounts.
.TP
.I /etc/nacre/NAME.conf
Options of the systemd unit nacre@NAME, which serves /srv/nacre/NAME.
.TP
.I DATA/up.json, DATA/log
State and logs of nacre up \\-\\-data DATA.
";

/// Completes words that only a running file system knows, for a tool with the name `TOOL`.
const VALUES: &str = include_str!("values.bash");

/// Writes completions for `command`, called `name`, to stdout.
pub(crate) fn completion(
    shell: clap_complete::Shell,
    command: &mut Command,
    name: &str,
) -> Result<()> {
    std::io::stdout().write_all(&completions(shell, command, name)).context("stdout")
}

fn completions(shell: clap_complete::Shell, command: &mut Command, name: &str) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, command, name, &mut text);
    if matches!(shell, clap_complete::Shell::Bash) {
        text.extend(VALUES.replace("TOOL", name).bytes());
    }
    text
}

/// Writes a page for each of `commands` and for each of their subcommands into `dir`.
pub(crate) fn man(dir: &Path, commands: Vec<Command>) -> Result<()> {
    if !dir.is_dir() {
        fs::create_dir(dir).with_context(|| {
            format!("{}: name a directory, or a new one in a directory that exists", dir.display())
        })?;
    }
    for mut command in commands {
        command.build();
        for (name, subcommand) in HELPERS {
            if let Some(found) = command.find_subcommand(subcommand) {
                write(dir, found, name, "8", "nacre(1)")?;
            }
        }
        let name = command.get_name().to_owned();
        tree(dir, &command, &name, "nacre(1)")?;
    }
    Ok(())
}

/// The pages of a command and of those below it.
fn tree(dir: &Path, command: &Command, name: &str, above: &str) -> Result<()> {
    write(dir, command, name, "1", above)?;
    if is_tool(name) {
        return Ok(());
    }
    let below = command.get_subcommands();
    for sub in below.filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        tree(dir, sub, &format!("{name}-{}", sub.get_name()), &format!("{name}(1)"))?;
    }
    Ok(())
}

/// Whether this page of `nacre` only leads to a tool's own pages.
fn is_tool(name: &str) -> bool {
    name.strip_prefix("nacre-").is_some_and(|tool| TOOLS.contains(&tool))
}

fn write(dir: &Path, command: &Command, name: &str, section: &str, above: &str) -> Result<()> {
    let path = dir.join(format!("{name}.{section}"));
    let page = page(command, name, section, above).context("a page")?;
    fs::write(&path, page).with_context(|| path.display().to_string())
}

fn page(command: &Command, name: &str, section: &str, above: &str) -> std::io::Result<Vec<u8>> {
    let help = command.get_after_long_help().or(command.get_after_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let synopsis = command.clone().render_usage().to_string();
    let synopsis = synopsis.trim_start_matches("Usage: ");
    let source = format!("nacre {}", env!("CARGO_PKG_VERSION"));
    let named = command.clone().display_name(name.to_owned());
    let man = Man::new(named).title(name).section(section).source(source).manual("Nacre");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    write!(out, ".SH SYNOPSIS\n.nf\n{}\n.fi\n", escaped(synopsis))?;
    man.render_description_section(&mut out)?;
    let mut options = Vec::new();
    man.render_options_section(&mut options)?;
    out.extend(with_tables(&String::from_utf8_lossy(&options)).bytes());
    if command.has_subcommands() && !is_tool(name) {
        man.render_subcommands_section(&mut out)?;
    }
    out.extend(notes(&help).bytes());
    out.extend(ENVIRONMENT.bytes());
    out.extend(FILES.bytes());
    let see = TOOLS.iter().filter(|tool| name == format!("nacre-{tool}"));
    let see: Vec<String> = see.map(|tool| format!("{tool}(1)")).chain([above.to_owned()]).collect();
    write!(out, ".SH \"SEE ALSO\"\n{}\n", escaped(&see.join(", ")))?;
    Ok(out)
}

/// The text behind the options: paragraphs of prose are filled, tables and examples are not.
fn notes(help: &str) -> String {
    let (mut out, mut last) = (String::new(), "");
    for paragraph in help.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        let (heading, body) = match first.split_once(':') {
            Some(("Example" | "Examples", _)) => ("EXAMPLES", rest),
            Some(("Exit status", _)) => {
                ("EXIT STATUS", paragraph.trim_start_matches("Exit status:").trim_start())
            }
            _ => ("NOTES", paragraph),
        };
        if heading == last {
            out.push_str(".PP\n");
        } else {
            out.push_str(&format!(".SH \"{heading}\"\n"));
        }
        let is_table = body.lines().any(|line| line.starts_with("  "));
        if is_table {
            out.push_str(".nf\n");
        }
        body.lines().for_each(|line| out.push_str(&format!("{}\n", escaped(line))));
        if is_table {
            out.push_str(".fi\n");
        }
        last = heading;
    }
    out
}

/// The same, where lines that begin with spaces are a table, which is not filled.
fn with_tables(text: &str) -> String {
    let (mut out, mut is_table) = (String::new(), false);
    for line in text.lines() {
        if line.starts_with("  ") != is_table {
            is_table = !is_table;
            out.push_str(if is_table { ".nf\n" } else { ".fi\n" });
        }
        out.push_str(&format!("{line}\n"));
    }
    if is_table {
        out.push_str(".fi\n");
    }
    out
}

/// Text that roff prints as it is.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_filled_and_examples_keep_their_columns() {
        let help = "One line.\n.two\n\nExamples:\n  a -b   c\n\nExit status: 0 good;\n1 bad";
        let page = notes(help);
        let wanted = ".SH \"NOTES\"\nOne line.\n\\&.two\n.SH \"EXAMPLES\"\n.nf\n  a \\-b   c\n.fi\n\
                      .SH \"EXIT STATUS\"\n0 good;\n1 bad\n";
        assert_eq!(page, wanted);
    }

    /// Daemons that know one OST and two pools, and the words that follow a line.
    const DAEMONS: &str = r#"
        nacre() {
            case "$*" in
                "lctl list_param -F ob*") echo obdfilter/ ;;
                "lctl list_param -F obdfilter.t-OST0000.d*") echo obdfilter.t-OST0000.degraded= ;;
                "lctl list_param {mdt,obdfilter}.*") echo obdfilter.t-OST0000 ;;
                "lctl pool_list ") printf 'Pools from t:\nt.disk\nt.flash\n' ;;
                *) return 1 ;;
            esac
        }
        words() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            _nacre_values nacre "${@: -1}" "${@: -2:1}"
            echo "${COMPREPLY[*]}"
        }
        words nacre get_param ob
        words nacre get_param obdfilter.t-OST0000.d
        words nacre get_param --na
        words nacre get_param x
        words nacre get_p
        words nacre forget ''
        words nacre pool_add t.f
        words nacre setstripe -p d
    "#;

    #[test]
    fn bash_completes_values_of_a_running_file_system() {
        let names = clap::Arg::new("names").long("name-only");
        let mut command = Command::new("nacre")
            .disable_help_subcommand(true)
            .subcommand(Command::new("get_param").arg(names));
        let text = completions(clap_complete::Shell::Bash, &mut command, "nacre");
        let script = format!("{}{DAEMONS}", String::from_utf8(text).expect("text"));
        let mut bash = std::process::Command::new("bash");
        let ended = bash.args(["--norc", "--noprofile", "-c", &script]).output().expect("bash");
        let wanted = "obdfilter.\nobdfilter.t-OST0000.degraded\n--name-only\n\nget_param\n\
                      t-OST0000\nt.flash\ndisk\n";
        assert_eq!(String::from_utf8_lossy(&ended.stdout), wanted);
    }

    #[test]
    fn a_table_in_the_help_of_an_option_keeps_its_lines() {
        let page = with_tables(".TP\n-o\nOptions:\n  a   one\n  b   two\n.TP\n-f\n");
        assert_eq!(page, ".TP\n-o\nOptions:\n.nf\n  a   one\n  b   two\n.fi\n.TP\n-f\n");
        assert_eq!(with_tables("x\n  a\n"), "x\n.nf\n  a\n.fi\n");
    }

    #[test]
    fn pages_are_written_below_a_directory_that_exists() {
        let dir = std::env::temp_dir().join(format!("nacre-no-pages-{}", std::process::id()));
        assert!(man(&dir.join("man1"), Vec::new()).is_err());
        assert!(!dir.exists());
    }

    #[test]
    fn a_page_names_files() {
        let page = page(&Command::new("nacre"), "nacre", "1", "nacre(1)").expect("a page");
        let page = String::from_utf8(page).expect("text");
        let at = |heading: &str| page.find(heading).expect("a section");
        assert!(at(".SH ENVIRONMENT") < at(".SH FILES") && at(".SH FILES") < at("SEE ALSO"));
    }
}
