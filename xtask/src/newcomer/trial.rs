//! A trial of the README as a new user would make it: the commands of "Try it" run in their order,
//! as they are written. Each ends well, and what it promises is checked. Then Prometheus scrapes
//! the daemons with the configuration of `docs/monitoring`, and a graph of a metric is drawn.
//!
//! The script is `bash`, because the system has nothing else. It has a network of its own, so an
//! address of the README is free.

use std::fs;

use anyhow::{Context, Result, bail, ensure};

use super::Root;
use crate::run;

/// The place of the script.
pub(super) const SCRIPT: &str = "/trial.sh";

/// Commands of the README's text that install what its session needs.
const INSTALLATION: &[&str] =
    &["cargo xtask package", "apt-get install ./target/package/nacre_*.deb"];

/// Packages of the script: `ip` starts its network, and the README reads a metric with `curl`.
pub(super) const PACKAGES: &str = "curl iproute2 prometheus";

/// musl's compiler: the package is static if the host's toolchain has that target.
pub(super) const TO_PACK: &str = "musl-tools";

/// Files for Prometheus, and their place in the new system.
const MONITORING: &str = "docs/monitoring";
const MONITORING_INSIDE: &str = "/monitoring";
const MONITORING_FILES: &[&str] = &["prometheus.yml", "alerts.yml"];

/// A promise about one command of the session.
struct Step {
    name: &'static str,
    /// A part of the command.
    command: &'static str,
    /// True in `bash` when the command has ended. `$out` has what it printed, `$took` its seconds.
    holds: &'static str,
}

/// In the order of the README.
const STEPS: &[Step] = &[
    Step {
        name: "a file system is started and mounted",
        command: "nacre up ",
        holds: "up=$! log=$out; await 'grep -q @tcp:/ $log && mountpoint -q /mnt/nacre'",
    },
    Step {
        name: "a program writes while a server is killed",
        command: "kill -9 ",
        holds: "[ $(stat -c %s /mnt/nacre/wide) = 629145600 ] && await 'grep -q \"is back\" $log'",
    },
    Step {
        name: "a file is striped over four OSTs",
        command: "lfs getstripe ",
        holds: "grep -q 'lmm_stripe_count: *4' $out",
    },
    Step {
        name: "a rule of the scheduler holds a program back",
        command: "of=/mnt/nacre/calm ",
        holds: "[ $(stat -c %s /mnt/nacre/calm) = 62914560 ] && [ $took -ge 2 ]",
    },
    Step {
        name: "a second client reads and writes the same files",
        command: "nacre mount ",
        holds: "mountpoint -q /mnt/second && cmp /mnt/nacre/calm /mnt/second/calm \
                && echo second > /mnt/second/hello && grep -q second /mnt/nacre/hello",
    },
    Step {
        name: "the state of all targets is shown",
        command: "nacre status",
        holds: "grep -q testfs-OST0002 $out",
    },
    Step {
        name: "an exporter answers with a metric",
        command: "curl ",
        holds: "grep -Eq '^nacre_nrs_started_requests_total.*ost_io.* [1-9]' $out",
    },
    Step {
        name: "the second client is unmounted",
        command: "nacre umount ",
        holds: "! mountpoint -q /mnt/second",
    },
];

/// Defines what the script needs. The check of a step may wait for a program in the background.
const BEGIN: &str = r#"set -u
export no_proxy='*'
ip link set lo up
mkdir /trial && cd /trial
count=0 began=$(date +%s)
await() {
    for _ in $(seq 150); do
        if eval "$1"; then return; fi
        sleep 0.2
    done
    return 1
}
run() {
    count=$((count + 1)) out=/trial/$count
    echo "+ $2"
    SECONDS=0
    eval "$2" > $out 2>&1
    status=$? took=$SECONDS
    if [ $status = 0 ] && eval "$3"; then
        echo "trial: $1: yes, after $took s"
    else
        echo "trial: $1: no (status $status)"
        cat $out
        exit 1
    fi
}
"#;

/// Scrapes often while files are written, and draws the points that Prometheus gives for its graph.
const GRAPH: &str = r##"graph() {
    cp /monitoring/*.yml . && sed -i 's/: 15s/: 1s/' prometheus.yml || return
    prometheus --config.file=prometheus.yml --storage.tsdb.path=/trial/tsdb &
    local prometheus=$!
    for _ in $(seq 24); do
        dd if=/dev/zero of=/mnt/nacre/load bs=1M count=4 conv=fsync status=none || return
        sleep 0.5
    done
    promtool query range --start=$(($(date +%s) - 10)) --step=1s http://127.0.0.1:9090 \
        'sum(rate(nacre_nrs_started_requests_total{service="ost_io"}[5s]))' > points || return
    kill $prometheus && wait $prometheus
    awk '/ @\[/ { value[++n] = $1; if ($1 > most) most = $1 }
         END { for (i = 1; i <= n; i++) {
             bar = ""
             for (w = 0; w < 50 * value[i]; w += most) bar = bar "#"
             printf "graph: %7.1f requests/s %s\n", value[i], bar
         } }' points
}
run 'a metric is drawn in a graph' graph '[ $(grep -c "^graph: .*#" $out) -ge 5 ]'
grep '^graph: ' $out
"##;

/// Ends the file system, and reports the time of the whole.
const END: &str = r#"run 'the file system ends' 'kill $up && wait $up' '! mountpoint -q /mnt/nacre'
echo "trial: all of it took $(($(date +%s) - began)) s"
"#;

/// The command that runs the script.
pub(super) fn command() -> String {
    format!("unshare --net bash {SCRIPT}")
}

/// Puts the script, and what it needs of this tree, into the new system.
pub(super) fn put(root: &Root, script: &str) -> Result<()> {
    fs::write(root.at(SCRIPT), script)?;
    let inside = root.at(MONITORING_INSIDE);
    fs::create_dir(&inside)?;
    for file in MONITORING_FILES {
        let from = run::root().join(MONITORING).join(file);
        fs::copy(&from, inside.join(file)).with_context(|| from.display().to_string())?;
    }
    Ok(())
}

/// Commands that install the package, from the text of the README.
pub(super) fn installation(readme: &str) -> Result<&'static [&'static str]> {
    let text = readme.replace('\n', " ");
    for command in INSTALLATION {
        let shown = format!("`{command}`");
        ensure!(text.contains(&shown), "the README's text does not show {shown}");
    }
    Ok(INSTALLATION)
}

/// The script of the session.
pub(super) fn script(readme: &str) -> Result<String> {
    let mut script = BEGIN.to_owned();
    let mut steps = STEPS.iter().peekable();
    for command in session(readme)? {
        let step = steps.next_if(|step| command.contains(step.command));
        let (name, holds) = step.map_or(("it succeeds", "true"), |step| (step.name, step.holds));
        script += &format!("run {} {} {}\n", quoted(name), quoted(command), quoted(holds));
    }
    if let Some(step) = steps.next() {
        let Step { name, command, .. } = step;
        bail!("the README's session shows no '{command}' in its place, so not that {name}");
    }
    Ok(script + GRAPH + END)
}

/// The commands of "Try it": behind `$ ` in a block `console`, and the lines of a block `sh`
/// without their remarks.
fn session(readme: &str) -> Result<Vec<&str>> {
    let section = readme.split("\n## ").find(|part| part.starts_with("Try it\n"));
    let section = section.context("the README has a section 'Try it'")?;
    let (mut found, mut kind) = (Vec::new(), None);
    for line in section.lines() {
        match (line.strip_prefix("```"), kind) {
            (Some(word), None) => kind = Some(word),
            (Some(_), Some(_)) => kind = None,
            (None, Some("console")) => found.extend(line.strip_prefix("$ ")),
            (None, Some("sh")) => {
                let command = line.split("   #").next().unwrap_or_default().trim();
                found.extend(Some(command).filter(|command| !command.is_empty()));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// One word of `bash`.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::{STEPS, installation, quoted, script, session};
    use crate::run::root;

    fn readme() -> String {
        fs::read_to_string(root().join("README.md")).expect("the README")
    }

    #[test]
    fn the_readme_shows_all_that_a_new_user_tries() {
        let text = readme();
        assert_eq!(installation(&text).expect("it is shown").len(), 2);
        let script = script(&text).expect("every step has its command");
        for step in STEPS {
            assert!(script.contains(&quoted(step.name)), "{}", step.name);
        }
        assert!(installation("# Nacre").is_err());
        assert!(super::script("# Nacre\n\n## Try it\n\n```sh\nnacre status\n```\n").is_err());
    }

    #[test]
    fn the_session_is_read_without_outputs_and_remarks() {
        let text = "# A\n\n```\nfirst\n```\n\n## Try it\n\n```console\n$ a 'b' &\nseen\n$ c\n```\n\n\
                    ```sh\nd   # e\n\nf # g\n```\n\n## More\n\n```sh\nh\n```\n";
        assert_eq!(session(text).expect("it is there"), ["a 'b' &", "c", "d", "f # g"]);
        assert!(session("# A\n").is_err());
        assert_eq!(quoted("a 'b'"), r"'a '\''b'\'''");
    }

    #[test]
    fn the_script_is_understood_by_bash() {
        let script = script(&readme()).expect("every step has its command");
        let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().expect("bash");
        let mut input = bash.stdin.take().expect("piped");
        input.write_all(script.as_bytes()).expect("bash reads");
        drop(input);
        assert!(bash.wait().expect("bash ends").success());
    }
}
