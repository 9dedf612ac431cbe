//! `lctl get_param`, `set_param`, `list_param`: asks every daemon of this machine and merges the
//! answers into one list.

pub(super) mod permanent;

use ctl::ask::AskError;
use ctl::everywhere::{self, Daemon};
use ctl::{Ask, Failure, Name, Outcome, Reply, Value};
use types::{Errno, FsName};

use crate::Failed;
use crate::failure::First;
use crate::form::Form;

/// Arguments of `lctl get_param`.
#[derive(Debug, clap::Args)]
pub(super) struct Get {
    /// Values only.
    #[arg(short = 'n', long = "no-name", conflicts_with = "name_only")]
    value_only: bool,
    /// Names only.
    #[arg(short = 'N', long = "name-only")]
    name_only: bool,
    /// With -N: mark parameters that can be set with `=`.
    #[arg(short = 'F', long = "classify")]
    classify: bool,
    /// Also everything below the matches.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Only of daemons with such a name: 'testfs-OST*', 'client-*'.
    #[arg(long = "of", value_name = "DAEMON")]
    of: Option<String>,
    #[command(flatten)]
    form: Form,
    /// Dotted names with shell globs: 'ost.OSS.*.threads_max'.
    #[arg(required = true, value_name = "PARAM")]
    patterns: Vec<String>,
}

/// The scheduler's parameters, for the long help and the manual page.
const SCHEDULER: &str = "\
Scheduler of a service ($S is ost.OSS.ost_io, mds.MDS.mdt, ...; `lctl list_param -R 'ost.OSS.*'`
lists all):
  $S.nrs_policies=NAME [reg|hp] [ARG]   start a policy: fifo, crrn, crre, orr, trr, tbf, delay
  $S.nrs_crrn_quantum, nrs_crre_quantum requests of a client in a row, 1 to 65535 [8]
  $S.nrs_crrn_unit, nrs_crre_unit       rpc or kib: requests or KiB of data in a quantum [rpc]
  $S.nrs_crrn_place, nrs_crre_place     keep or lustre: the turn of a client that asks again [keep]
  $S.nrs_orr_quantum, nrs_trr_quantum   requests of an object, of an OST, 1 to 65535 [256]
  $S.nrs_orr_offset_type (and trr)      physical or logical [physical]
  $S.nrs_orr_supported (and trr)        reads, writes or reads_and_writes [reads]
  $S.nrs_orr_sweep (and trr)            restart or cscan [restart]
  $S.nrs_orr_objects_max                idle objects that are remembered [65536]
  $S.nrs_tbf_rule=start|change|stop ... limits, below
  $S.nrs_tbf_rt_lag                     seconds that realtime=1 catches up, 0 to 600 [1]
  $S.nrs_delay_min, nrs_delay_max       seconds, 0 to 65535 [5, 300]; 250ms is understood
  $S.nrs_delay_pct                      percent of the requests that are delayed [100]
  $S.nrs_POLICY_reset=1                 all parameters of the policy as after its start
  $S.nrs_head_scope=service|target|cpt  queues of the whole service; of each target, with slots of
                                        its own; of each CPT [service]
  $S.nrs_log=on|off                     a line in the log for each request that starts [off]
  $S.nrs_stats, nrs_tbf_stats           requests queued, throttled, forced, by policy and class
  tbf_rate, tbf_depth                   of classes without a rule: requests/s, burst [10000, 3]
Without a prefix a value is for both heads; reg_quantum:16 hp_quantum:8 sets them apart. A policy's
parameters exist while it runs (else: No such device). Stopping it forgets them.

Limits (`nrs_policies=tbf`, or `tbf FIELD+FIELD`: requests with equal FIELDs are one class):
  start NAME CONDITIONS [rate=N | bps=N[k|M|G]B/s] [rank=NEXT] [realtime=1] [depth=N]
        [scope=cpt|service|node] [class=FIELD+FIELD] [total=1]
  change NAME [rate=N] [rank=NEXT] ...
  stop NAME
  CONDITIONS: FIELD={VALUES}, joined by & (and) and , (or).
  FIELD: nid, jobid, opcode, uid, gid, projid.

Examples:
  lctl set_param ost.OSS.*.nrs_policies=crrn
  lctl set_param ost.OSS.ost_io.nrs_policies='tbf jobid'
  lctl set_param ost.OSS.ost_io.nrs_tbf_rule='start slow jobid={dd.* *.500} rate=100'
  lctl set_param ost.OSS.ost_io.nrs_tbf_rule='start bulk nid={10.0.0.[1-128]@tcp} bps=50MB/s'
  lctl set_param ost.OSS.ost_io.nrs_policies=fifo";

/// Arguments of `lctl set_param`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = SCHEDULER)]
pub(super) struct Set {
    /// Do not print the names.
    #[arg(short = 'n', long = "no-name")]
    value_only: bool,
    /// Permanently and everywhere. The command runs on the MGS's node, and the MGS keeps the value.
    /// All nodes take it over within seconds, and at each start.
    #[arg(short = 'P', long = "permanent")]
    permanent: bool,
    /// With -P: delete; nodes keep the value until they start again.
    #[arg(short = 'd', long = "delete", requires = "permanent")]
    delete: bool,
    /// With -P: of this file system only, not of all that the MGS knows.
    #[arg(long = "fsname", value_name = "NAME", requires = "permanent")]
    fsname: Option<FsName>,
    /// Only at daemons with such a name: 'testfs-OST*', 'client-*'.
    #[arg(long = "of", value_name = "DAEMON", conflicts_with = "permanent")]
    of: Option<String>,
    /// NAME=VALUE, or NAME followed by VALUE; with -d names.
    #[arg(required = true, value_name = "PARAM=VALUE")]
    settings: Vec<String>,
}

/// Arguments of `lctl list_param`.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Mark levels with `/`, and parameters that can be set with `=`.
    #[arg(short = 'F', long = "classify")]
    classify: bool,
    /// Also everything below the matches.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Only of daemons with such a name: 'testfs-OST*', 'client-*'.
    #[arg(long = "of", value_name = "DAEMON")]
    of: Option<String>,
    #[command(flatten)]
    form: Form,
    /// Dotted names with shell globs.
    #[arg(required = true, value_name = "PARAM")]
    patterns: Vec<String>,
}

pub(super) fn get(args: &Get) -> Result<(), Failed> {
    if args.name_only && !args.form.is_data() {
        let (classify, recursive) = (args.classify, args.recursive);
        let (form, of, patterns) = (args.form, args.of.clone(), args.patterns.clone());
        return list(&List { classify, recursive, of, form, patterns });
    }
    let mut first = First::default();
    let mut all = Vec::new();
    for pattern in &args.patterns {
        let question = Ask::Get { pattern: pattern.clone(), recursive: args.recursive };
        let asked = Asked { command: "get_param", question, pattern, of: args.of.as_deref() };
        let found = asked.everywhere(&mut first, |reply| match reply {
            Reply::Values(values) => values,
            _ => Vec::new(),
        });
        if args.form.is_data() {
            all.extend(found);
        } else {
            crate::out::print(&text(args.value_only, &found));
        }
    }
    if args.form.is_data() {
        args.form.print(&as_object(&all), String::new);
    }
    first.end()
}

/// What one or several daemons have answered alike.
#[derive(Clone, Debug, PartialEq)]
struct Found<T> {
    of: Vec<String>,
    what: T,
}

impl<T> Found<T> {
    fn daemons(&self) -> String {
        self.of.join(",")
    }
}

/// Adds an answer of these daemons. One that others have given is there once, with all of them.
fn add<T: PartialEq>(found: &mut Vec<Found<T>>, of: Vec<String>, what: T) {
    match found.iter_mut().find(|one| one.what == what) {
        Some(one) => one.of.extend(of),
        None => found.push(Found { of, what }),
    }
}

/// Matches of all daemons, and why daemons have none. That one daemon has no match is no failure.
fn merged<T: PartialEq>(
    answers: Vec<(Daemon, Result<Reply, AskError>)>,
    of: impl Fn(Reply) -> Vec<T>,
) -> (Vec<Found<T>>, Vec<Found<Failure>>) {
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for (daemon, answer) in answers {
        match answer {
            Ok(reply) => {
                for what in of(reply) {
                    add(&mut found, vec![daemon.name.clone()], what);
                }
            }
            Err(AskError::Refused(failure)) if failure.errno == Errno::ENOENT.raw() => {}
            Err(error) => {
                let what = Failure { errno: error.errno(), text: error.to_string() };
                add(&mut failures, vec![daemon.to_string()], what);
            }
        }
    }
    (found, failures)
}

/// Whether another daemon has another value of that name.
fn differs(found: &[Found<Value>], name: &str) -> bool {
    found.iter().filter(|one| one.what.name == name).count() > 1
}

/// Where daemons of this machine differ, the line says whose each value is.
fn text(value_only: bool, found: &[Found<Value>]) -> String {
    let mut out = String::new();
    for one in found {
        if differs(found, &one.what.name) && !value_only {
            out.push_str(&format!("{}: ", one.daemons()));
        }
        out.push_str(&render(&one.what.name, &one.what.value, value_only));
    }
    out
}

/// Names as keys, values as strings; daemons as keys below a name where they differ.
fn as_object(found: &[Found<Value>]) -> serde_json::Value {
    let mut object = serde_json::Map::new();
    for one in found {
        let Value { name, value, .. } = &one.what;
        if !differs(found, name) {
            object.insert(name.clone(), value.clone().into());
            continue;
        }
        let several = object.entry(name.clone()).or_insert_with(|| serde_json::Map::new().into());
        if let Some(several) = several.as_object_mut() {
            several.extend(one.of.iter().map(|of| (of.clone(), value.clone().into())));
        }
    }
    object.into()
}

/// `name=value`; a value of several lines starts on the next line.
fn render(name: &str, value: &str, value_only: bool) -> String {
    let body = value.strip_suffix('\n').unwrap_or(value);
    match (value_only, body.contains('\n')) {
        (true, _) => format!("{body}\n"),
        (false, false) => format!("{name}={body}\n"),
        (false, true) => format!("{name}=\n{body}\n"),
    }
}

pub(super) fn set(args: &Set) -> Result<(), Failed> {
    if args.permanent {
        return permanent::set(args);
    }
    let settings = pairs(&args.settings)?;
    let mut first = First::default();
    for (pattern, value) in settings {
        let question = Ask::Set { pattern: pattern.clone(), value: value.clone() };
        let of = args.of.as_deref();
        let asked = Asked { command: "set_param", question, pattern: &pattern, of };
        let outcomes = asked.everywhere(&mut first, |reply| match reply {
            Reply::Set(outcomes) => outcomes,
            _ => Vec::new(),
        });
        let (done, refused) = settled(outcomes, &value);
        crate::out::print(&text(args.value_only, &done));
        for one in &refused {
            let text = format!("error: set_param: {}: {}", one.daemons(), one.what.text);
            first.note(&Failed::new(one.what.errno, text));
        }
        if refused.iter().any(|one| one.what.errno == Errno::EACCES.raw()) {
            ctl::say!("hint: {}", settable(&pattern, &value));
        }
    }
    first.end()
}

/// The way out where a parameter is read-only, once for all that match.
fn settable(pattern: &str, value: &str) -> String {
    if pattern.starts_with("osc") && pattern.ends_with("active") {
        return format!("lctl conf_param TARGET.osc.active={value} sets it, on the MGS's machine");
    }
    "lctl list_param -F marks with = the parameters that can be set".to_owned()
}

/// What was set, as it reads now, and what was refused. Of a table, what was `typed` says enough.
fn settled(outcomes: Vec<Found<Outcome>>, typed: &str) -> (Vec<Found<Value>>, Vec<Found<Failure>>) {
    let (mut done, mut refused) = (Vec::<Found<Value>>::new(), Vec::new());
    for Found { of, what } in outcomes {
        let mut now = match what {
            Outcome::Done(now) => now,
            Outcome::Refused(what) => {
                refused.push(Found { of, what });
                continue;
            }
        };
        if now.value.trim_end().contains('\n') {
            typed.clone_into(&mut now.value);
        }
        add(&mut done, of, now);
    }
    (done, refused)
}

/// `a=1 b=2`, or the old form `a 1`.
fn pairs(settings: &[String]) -> Result<Vec<(String, String)>, Failed> {
    let mut pairs = Vec::new();
    let mut words = settings.iter();
    while let Some(word) = words.next() {
        let pair = match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => {
                let missing = || {
                    Failed::of(
                        Errno::EINVAL,
                        "error: set_param",
                        &format!("'{word}' has no value: write NAME=VALUE"),
                    )
                };
                (word.clone(), words.next().ok_or_else(missing)?.clone())
            }
        };
        pairs.push(pair);
    }
    Ok(pairs)
}

pub(super) fn list(args: &List) -> Result<(), Failed> {
    let mut first = First::default();
    let mut all = Vec::new();
    for pattern in &args.patterns {
        let question = Ask::List { pattern: pattern.clone(), recursive: args.recursive };
        let asked = Asked { command: "list_param", question, pattern, of: args.of.as_deref() };
        let found = asked.everywhere(&mut first, |reply| match reply {
            Reply::Names(names) => names,
            _ => Vec::new(),
        });
        let mut names: Vec<Name> = found.into_iter().map(|one| one.what).collect();
        names.sort();
        names.dedup_by(|a, b| a.name == b.name);
        if args.form.is_data() {
            all.extend(names);
        } else {
            crate::out::print(&names.iter().map(|name| listed(args, name)).collect::<String>());
        }
    }
    if args.form.is_data() {
        args.form.print(&all, String::new);
    }
    first.end()
}

fn listed(args: &List, name: &Name) -> String {
    let mark = match (args.classify, name.is_dir, name.is_writable) {
        (true, true, _) => "/",
        (true, false, true) => "=",
        _ => "",
    };
    format!("{}{mark}\n", name.name)
}

/// A question to the daemons of this machine.
struct Asked<'a> {
    command: &'static str,
    question: Ask,
    pattern: &'a str,
    /// Only those with such a name.
    of: Option<&'a str>,
}

impl Asked<'_> {
    /// Matches on all daemons. That one daemon has no match is no error as long as another has.
    /// What several answer alike (their version, say) is told once, and so is a failure of several.
    /// A daemon that does not answer is named, and the others' answers are there.
    fn everywhere<T: PartialEq>(
        &self,
        first: &mut First,
        of: impl Fn(Reply) -> Vec<T>,
    ) -> Vec<Found<T>> {
        let wanted = |name: &str| self.is_wanted(name);
        let (found, failures) = merged(everywhere::ask_some(&self.question, &wanted), of);
        for one in &failures {
            let text = format!("error: {}: {}: {}", self.command, one.daemons(), one.what.text);
            first.note(&Failed::new(one.what.errno, text));
        }
        if found.is_empty() && failures.is_empty() {
            let text = self.no_match(&everywhere::daemons());
            first.note(&Failed::new(Errno::ENOENT.raw(), text));
        }
        found
    }

    /// Why none of these daemons has a match.
    fn no_match(&self, daemons: &[Daemon]) -> String {
        let (command, errno) = (self.command, Errno::ENOENT);
        let is_named = daemons.iter().any(|daemon| self.is_wanted(&daemon.name));
        if let Some(of) = self.of.filter(|_| !daemons.is_empty() && !is_named) {
            return format!(
                "error: {command}: no daemon here has the name '{of}': {errno} (nacre status \
                 --json lists them)"
            );
        }
        let path = self.pattern.replace('.', "/");
        let way_out = if daemons.is_empty() {
            "no daemon of Nacre runs on this machine: nacre up starts some"
        } else {
            "lctl list_param -R '*' lists all"
        };
        format!("error: {command}: param_path '{path}': {errno} ({way_out})")
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.of.is_none_or(|of| params::glob::matches(of.as_bytes(), name.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_value_of_several_lines_starts_on_its_own() {
        assert_eq!(render("version", "0.1.0", false), "version=0.1.0\n");
        assert_eq!(render("a.b", "x\ny\n", false), "a.b=\nx\ny\n");
        assert_eq!(render("a.b", "x\ny\n", true), "x\ny\n");
        assert_eq!(render("a.b", "", false), "a.b=\n");
    }

    fn found(of: &[&str], name: &str, value: &str) -> Found<Value> {
        let what = Value { name: name.into(), value: value.into(), is_writable: false };
        Found { of: of.iter().map(|name| (*name).to_owned()).collect(), what }
    }

    #[test]
    fn where_daemons_differ_each_value_says_whose_it_is() {
        let found = [
            found(&["mdt", "ost"], "a", "1"),
            found(&["up"], "b", "x"),
            found(&["client-x"], "a", "2"),
        ];
        assert_eq!(
            as_object(&found).to_string(),
            r#"{"a":{"client-x":"2","mdt":"1","ost":"1"},"b":"x"}"#
        );
        assert_eq!(text(false, &found), "mdt,ost: a=1\nb=x\nclient-x: a=2\n");
        assert_eq!(text(true, &found), "1\nx\n2\n");
    }

    #[test]
    fn a_setting_says_whose_each_value_is_now_where_daemons_differ() {
        let done = |of: &str, value: &str| {
            let Found { of, what } = found(&[of], "a", value);
            Found { of, what: Outcome::Done(what) }
        };
        let what = Outcome::Refused(Failure::of(Errno::EINVAL));
        let refused = Found { of: vec!["client-x".to_owned()], what };
        let outcomes = vec![done("mdt", "16"), done("ost", "8"), done("up", "x\ny\n"), refused];
        let (done, refused) = settled(outcomes, "16");
        assert_eq!(text(false, &done), "mdt,up: a=16\nost: a=8\n");
        let of: Vec<String> = refused.iter().map(Found::daemons).collect();
        assert_eq!(of, ["client-x"]);
        assert_eq!(text(false, &done[1..]), "a=8\n", "one value alone");
    }

    /// As each daemon does where a user sets a parameter.
    #[test]
    fn a_failure_of_several_daemons_is_there_once_and_names_them() {
        let daemon = |socket: &str| Daemon::of(socket.into());
        let refused = |errno| Err(AskError::Refused(Failure::of(errno)));
        let answers = vec![
            (daemon("1-server-MGS.sock"), refused(Errno::EPERM)),
            (daemon("2-server-mdt.sock"), Err(AskError::Silent(Duration::from_secs(2)))),
            (daemon("3-server-ost.sock"), Ok(Reply::Lines(vec!["x".to_owned()]))),
            (daemon("4-client-a.sock"), refused(Errno::EPERM)),
            (daemon("5-client-b.sock"), refused(Errno::ENOENT)),
        ];
        let (found, failures) = merged(answers, |reply| match reply {
            Reply::Lines(lines) => lines,
            _ => Vec::new(),
        });
        assert_eq!(found, [Found { of: vec!["ost".to_owned()], what: "x".to_owned() }]);
        let shown: Vec<(String, i32)> =
            failures.iter().map(|one| (one.daemons(), one.what.errno)).collect();
        let expected = [
            ("MGS (process 1),client-a (process 4)", Errno::EPERM),
            ("mdt (process 2)", Errno::ETIMEDOUT),
        ];
        assert_eq!(shown, expected.map(|(of, errno)| (of.to_owned(), errno.raw())));
    }

    #[test]
    fn a_name_that_no_daemon_has_is_the_reason() {
        let daemons = [Daemon::of("1-server-testfs-OST0000.sock".into())];
        let said = |of: Option<&str>, daemons: &[Daemon]| {
            let asked = Asked { command: "get_param", question: Ask::Nids, pattern: "a.b", of };
            asked.no_match(daemons)
        };
        let unknown = "error: get_param: no daemon here has the name 'nowhere': ";
        assert!(said(Some("nowhere"), &daemons).starts_with(unknown));
        let no_parameter = "error: get_param: param_path 'a/b': ";
        for of in [None, Some("testfs-OST*")] {
            assert!(said(of, &daemons).starts_with(no_parameter));
        }
        assert!(said(Some("nowhere"), &[]).contains("nacre up starts some"));
    }

    #[test]
    fn a_target_is_taken_out_of_use_at_the_mgs() {
        for pattern in ["osc.*.active", "osc/testfs-OST0000*/active"] {
            assert!(settable(pattern, "0").contains("conf_param TARGET.osc.active=0"));
        }
        assert!(settable("version", "1").contains("list_param -F"));
    }

    #[test]
    fn settings_come_in_both_forms() {
        let words = ["a.b=1", "c", "2", "d=e=f"].map(str::to_owned);
        let expected = [("a.b", "1"), ("c", "2"), ("d", "e=f")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(pairs(&words), Ok(expected.to_vec()));
        assert!(pairs(&["a".to_owned()]).is_err());
    }
}
