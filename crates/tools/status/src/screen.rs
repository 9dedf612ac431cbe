//! A [`Status`] for people, on one screen.

use std::fmt::Write as _;

use crate::model::{Mount, Service, Status, Target, Verdict};
use crate::read::Session;

/// Clients that are named; the others are a number.
const CLIENTS_NAMED: usize = 4;

/// The whole screen.
pub(crate) fn screen(status: &Status) -> String {
    let mut out = headline(status);
    status.troubles.iter().for_each(|trouble| line(&mut out, &format!("  {trouble}")));
    section(&mut out, &targets(&status.targets));
    section(&mut out, &services(&status.services));
    section(&mut out, &mounts(&status.mounts));
    if let Some(clients) = clients(&status.clients) {
        out.push('\n');
        line(&mut out, &clients);
    }
    out
}

fn headline(status: &Status) -> String {
    match (status.verdict, status.troubles.len()) {
        (Verdict::Well, _) => "all well\n".into(),
        (Verdict::Nothing, _) => {
            "nothing runs here: no daemon of Nacre, and no mount (`nacre up --help`)\n".into()
        }
        (Verdict::Degraded, 1) => "degraded: 1 trouble\n".into(),
        (Verdict::Degraded, count) => format!("degraded: {count} troubles\n"),
    }
}

fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "{}", text.trim_end());
}

/// A table behind an empty line; its first row is the head.
fn section(out: &mut String, rows: &[Vec<String>]) {
    if rows.len() < 2 {
        return;
    }
    out.push('\n');
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let wide = |(cell, width): (&String, &usize)| format!("{cell:<0$}", *width);
        let cells: Vec<String> = row.iter().zip(&widths).map(wide).collect();
        line(out, &cells.join("  "));
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn targets(targets: &[Target]) -> Vec<Vec<String>> {
    let mut rows =
        vec![row(["TARGET", "ROLE", "STATE", "FREE", "OF", "OBJECTS FREE", "SESSIONS", "AT"])];
    for target in targets {
        let (free, total, files) = match target.space {
            Some(space) => (size(space.kib_free), size(space.kib_total), count(space.files_free)),
            None => ("-".into(), "-".into(), "-".into()),
        };
        let sessions = target.sessions.map_or_else(|| "-".into(), |sessions| sessions.to_string());
        let state = format!("{} {}", target.state, target.letters);
        rows.push(row([
            &target.name,
            target.role,
            state.trim_end(),
            &free,
            &total,
            &files,
            &sessions,
            &target.at,
        ]));
    }
    rows
}

fn services(services: &[Service]) -> Vec<Vec<String>> {
    let mut rows = vec![row(["SERVICE", "POLICY", "HIGH PRIORITY", "QUEUED", "ACTIVE", "SERVERS"])];
    for service in services {
        rows.push(row([
            &service.name,
            &service.regular,
            service.high_priority.as_deref().unwrap_or("-"),
            &service.queued.to_string(),
            &service.active.to_string(),
            &listed(&service.servers),
        ]));
    }
    rows
}

/// One or two names; else how many.
fn listed(names: &[String]) -> String {
    if names.len() > 2 { format!("{} servers", names.len()) } else { names.join(", ") }
}

fn mounts(mounts: &[Mount]) -> Vec<Vec<String>> {
    let mut rows = vec![row(["MOUNT", "OF", "DAEMON", "LOST", "WAITS FOR"])];
    for mount in mounts {
        let waits =
            if mount.waiting_on.is_empty() { "-".into() } else { mount.waiting_on.join(", ") };
        rows.push(row([
            &mount.dir,
            &mount.fsname,
            mount.daemon.as_deref().unwrap_or("none"),
            &mount.lost.to_string(),
            &waits,
        ]));
    }
    rows
}

fn clients(clients: &[Session]) -> Option<String> {
    if clients.is_empty() {
        return None;
    }
    let named: Vec<String> = clients
        .iter()
        .take(CLIENTS_NAMED)
        .map(|client| format!("{} at {}", client.name, client.nid))
        .collect();
    let more = clients.len() - named.len();
    let rest = if more > 0 { format!(", {more} more") } else { String::new() };
    let noun = if clients.len() == 1 { "client" } else { "clients" };
    Some(format!("{} {noun}: {}{rest}", clients.len(), named.join(", ")))
}

/// KiB in a unit of two to four digits.
fn size(kib: u64) -> String {
    scaled(kib, 1_024, &["K", "M", "G", "T", "P", "E"])
}

/// A number in a unit of two to four digits.
fn count(number: u64) -> String {
    scaled(number, 1_000, &["", "k", "M", "G", "T"])
}

fn scaled(value: u64, unit: u64, suffixes: &[&str]) -> String {
    let (mut scaled, mut at) = (value as f64, 0);
    while scaled >= unit as f64 && at + 1 < suffixes.len() {
        scaled /= unit as f64;
        at += 1;
    }
    let suffix = suffixes.get(at).copied().unwrap_or_default();
    if at == 0 { format!("{value}{suffix}") } else { format!("{scaled:.1}{suffix}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Space;

    fn target(name: &str, state: &str, space: Option<Space>) -> Target {
        Target {
            name: name.into(),
            role: "OST",
            state: state.into(),
            letters: if space.is_some() { "DN".into() } else { String::new() },
            daemon: space.map(|_| name.to_owned()),
            at: "/srv/a".into(),
            space,
            sessions: space.map(|_| 2),
            recovery: None,
        }
    }

    fn example() -> Status {
        let space = Space {
            kib_total: 100 << 20,
            kib_free: 60 << 20,
            files_total: 2_000_000,
            files_free: 1_500_000,
        };
        let service = |servers: &[&str]| Service {
            name: "ost_io".into(),
            regular: "tbf nid".into(),
            high_priority: Some("fifo".into()),
            queued: 7,
            active: 2,
            servers: servers.iter().map(|name| (*name).to_owned()).collect(),
        };
        let client = |name: &str| Session {
            id: String::new(),
            name: name.into(),
            nid: "10.0.0.1@tcp".into(),
        };
        Status {
            verdict: Verdict::Degraded,
            troubles: vec!["t-OST0001 is away".into()],
            daemons: Vec::new(),
            targets: vec![
                target("t-OST0000", "up", Some(space)),
                target("t-OST0001", "disconn", None),
            ],
            services: vec![service(&["a", "b"]), service(&["a", "b", "c"])],
            clients: ["n1:/m", "n2:/m", "n3:/m", "n4:/m", "n5:/m"].map(client).to_vec(),
            mounts: vec![Mount {
                dir: "/m".into(),
                fsname: "t".into(),
                daemon: None,
                waiting_on: vec!["OST0001 (reconnecting for 3 s)".into()],
                lost: 0,
            }],
        }
    }

    #[test]
    fn the_screen_has_everything_in_columns() {
        let expected = "\
degraded: 1 trouble
  t-OST0001 is away

TARGET     ROLE  STATE    FREE   OF      OBJECTS FREE  SESSIONS  AT
t-OST0000  OST   up DN    60.0G  100.0G  1.5M          2         /srv/a
t-OST0001  OST   disconn  -      -       -             -         /srv/a

SERVICE  POLICY   HIGH PRIORITY  QUEUED  ACTIVE  SERVERS
ost_io   tbf nid  fifo           7       2       a, b
ost_io   tbf nid  fifo           7       2       3 servers

MOUNT  OF  DAEMON  LOST  WAITS FOR
/m     t   none    0     OST0001 (reconnecting for 3 s)

5 clients: n1:/m at 10.0.0.1@tcp, n2:/m at 10.0.0.1@tcp, n3:/m at 10.0.0.1@tcp, n4:/m at 10.0.0.1@tcp, 1 more
";
        assert_eq!(screen(&example()), expected);
    }

    #[test]
    fn empty_parts_are_left_out() {
        let status = Status {
            verdict: Verdict::Well,
            troubles: Vec::new(),
            targets: Vec::new(),
            services: Vec::new(),
            clients: Vec::new(),
            mounts: Vec::new(),
            ..example()
        };
        assert_eq!(screen(&status), "all well\n");
        let nothing = Status { verdict: Verdict::Nothing, ..status };
        assert!(screen(&nothing).starts_with("nothing runs here"));
    }

    #[test]
    fn one_client_is_in_the_singular() {
        let mut status = example();
        status.clients.truncate(1);
        assert!(screen(&status).ends_with("\n1 client: n1:/m at 10.0.0.1@tcp\n"));
    }

    #[test]
    fn numbers_have_a_unit() {
        assert_eq!([size(1_023), size(1_024), size(5 << 30)], ["1023K", "1.0M", "5.0T"]);
        assert_eq!([count(999), count(1_000), count(25_000_000)], ["999", "1.0k", "25.0M"]);
    }
}
