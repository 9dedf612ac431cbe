//! `lst`: the network's self-test, like Lustre's tool of that name.
//!
//! Arguments are parsed here. A session's console, which is a process of its own, executes them
//! (`nacre lst-console`). `stat` polls the console's counters and prints the changes between two
//! polls.

mod session;
mod stat;
mod test;

use std::io::ErrorKind;

use clap::{Parser, Subcommand};
use ctl::ask;
use lst::NodeState;
use lst::command::{Answer, Command as Ask, NewSession};
use types::{Errno, Nid, Span};

use crate::Failed;

/// Measures and checks the network between nodes, with no storage behind them.
#[derive(Debug, Parser)]
#[command(
    name = "lst",
    display_name = "lst",
    version,
    infer_long_args = true,
    arg_required_else_help = true,
    after_help = "LST_SESSION names the session: a number above zero. Nodes are servers, mounts and `nacre lst-node`.\n\nExit status: 0, or an error number; 2 for wrong usage.\n\nExamples:\n  export LST_SESSION=$$\n  lst new_session rw\n  lst add_group servers 10.0.0.[8,10,12-16]@tcp\n  lst add_group readers 10.0.1.[1-253/2]@tcp\n  lst add_batch bulk_rw\n  lst add_test --batch bulk_rw --concurrency 8 --from readers --to servers brw read check=simple size=1M\n  lst run bulk_rw\n  lst stat --rpc servers & sleep 30; kill $!\n  lst end_session"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
enum Command {
    /// Make a session.
    #[command(after_help = "Example:\n  LST_SESSION=$$ lst new_session --timeout 600 read_write")]
    NewSession {
        /// Seconds without a command after which the session ends; 0: never.
        #[arg(short = 't', long, value_name = "SEC", default_value_t = lst::limits::SESSION_TIMEOUT_SECS_DEFAULT)]
        timeout: u32,
        /// End an older session of this LST_SESSION, and take nodes out of other sessions.
        #[arg(short = 'f', long)]
        force: bool,
        /// Port of the nodes.
        #[arg(long, value_name = "PORT", default_value_t = types::PORT_DEFAULT)]
        port: u16,
        /// Own address to be used.
        #[arg(long, value_name = "NID", value_parser = ctl::names::nid)]
        nid: Option<Nid>,
        /// Its name [default: USER@HOST].
        name: Option<String>,
    },
    /// End the session: all nodes leave it.
    #[command(after_help = "Example:\n  lst end_session")]
    EndSession,
    /// Show the session.
    #[command(after_help = "Example:\n  lst show_session")]
    ShowSession,
    /// Add nodes under the name of a group.
    #[command(after_help = "Example:\n  lst add_group servers 10.0.0.[8,10,12-16]@tcp")]
    AddGroup {
        /// Name of the group.
        name: String,
        /// NIDs: 10.0.0.[8,10,12-16]@tcp.
        #[arg(required = true, value_parser = ctl::names::with_addresses)]
        nids: Vec<String>,
    },
    /// Delete a group.
    #[command(after_help = "Example:\n  lst del_group readers")]
    DelGroup {
        /// Name of the group.
        name: String,
    },
    /// Change a group.
    #[command(
        after_help = "Examples:\n  lst update_group --clean down readers     without nodes that do not answer\n  lst update_group --refresh readers"
    )]
    UpdateGroup {
        /// Take out nodes in this state: busy, down, unknown.
        #[arg(short = 'c', long, value_name = "STATE", value_parser = state)]
        clean: Vec<NodeState>,
        /// Ask nodes that are not active to join again.
        #[arg(short = 'f', long)]
        refresh: bool,
        /// Take out these nodes.
        #[arg(short = 'r', long, value_name = "NIDS", value_parser = ctl::names::with_addresses)]
        remove: Option<String>,
        /// Name of the group.
        name: String,
    },
    /// List groups, or the nodes of some.
    #[command(after_help = "Examples:\n  lst list_group\n  lst list_group --down readers")]
    ListGroup {
        /// Active nodes.
        #[arg(short = 'a', long)]
        active: bool,
        /// Nodes in other sessions.
        #[arg(short = 'b', long)]
        busy: bool,
        /// Nodes that do not answer.
        #[arg(short = 'd', long)]
        down: bool,
        /// Nodes that never answered.
        #[arg(short = 'u', long)]
        unknown: bool,
        /// All nodes.
        #[arg(short = 'l', long)]
        all: bool,
        /// Names of groups.
        groups: Vec<String>,
    },
    /// Add a batch; one called `batch` is there already.
    #[command(after_help = "Example:\n  lst add_batch bulk")]
    AddBatch {
        /// Its name.
        name: String,
    },
    /// List batches, or the tests of one.
    #[command(after_help = "Examples:\n  lst list_batch\n  lst list_batch --test 1 --all bulk")]
    ListBatch {
        /// Only this test, from 1.
        #[arg(short = 't', long, value_name = "N")]
        test: Option<u32>,
        /// Its source nodes.
        #[arg(short = 'a', long)]
        all: bool,
        /// Its destination nodes.
        #[arg(short = 's', long)]
        server: bool,
        /// Name of the batch.
        name: Option<String>,
    },
    /// Add a test to a batch.
    #[command(
        after_help = "Examples:\n  lst add_test --batch bulk --concurrency 8 --from readers --to servers brw read check=simple size=1M\n  lst add_test --from readers --to servers --distribute 1:2 ping"
    )]
    AddTest(test::Test),
    /// Run a batch.
    #[command(after_help = "Example:\n  lst run bulk")]
    Run {
        /// Seconds that a node has to answer.
        #[arg(short = 't', long, value_name = "SEC", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
        timeout: u32,
        /// Name of the batch.
        #[arg(default_value = "batch")]
        batch: String,
    },
    /// Stop a batch and wait for its end.
    #[command(after_help = "Example:\n  lst stop bulk")]
    Stop {
        /// Do not wait for requests that are under way.
        #[arg(short = 'f', long)]
        force: bool,
        /// Name of the batch.
        #[arg(default_value = "batch")]
        batch: String,
    },
    /// Ask whether a batch runs.
    #[command(after_help = "Examples:\n  lst query bulk\n  lst query --server --all bulk")]
    Query {
        /// Only this test, from 1.
        #[arg(short = 't', long, value_name = "N", default_value_t = 0)]
        test: u32,
        /// At its destinations.
        #[arg(short = 's', long)]
        server: bool,
        /// Node by node.
        #[arg(short = 'a', long)]
        all: bool,
        /// Seconds that a node has to answer.
        #[arg(short = 'o', long, value_name = "SEC", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
        timeout: u32,
        /// Name of the batch.
        #[arg(default_value = "batch")]
        batch: String,
    },
    /// Print rates, every few seconds until it is killed.
    #[command(
        after_help = "Examples:\n  lst stat --rpc servers\n  lst stat --bw --count 3 --delay 10 readers servers"
    )]
    Stat(stat::Stat),
    /// Show nodes that counted errors.
    #[command(after_help = "Example:\n  lst show_error readers servers")]
    ShowError {
        /// Errors of tests only.
        #[arg(short = 's', long)]
        session: bool,
        /// Groups or NIDs.
        #[arg(required = true)]
        of: Vec<String>,
    },
    /// Ask whether nodes are alive in the session; all of them where none are named.
    #[command(after_help = "Examples:\n  lst ping --session\n  lst ping --group readers")]
    Ping {
        /// All nodes of the session.
        #[arg(short = 's', long)]
        session: bool,
        /// Nodes of a group.
        #[arg(short = 'g', long, value_name = "GROUP", conflicts_with = "session")]
        group: Option<String>,
        /// Nodes of a batch.
        #[arg(short = 'b', long, value_name = "BATCH", conflicts_with_all = ["session", "group"])]
        batch: Option<String>,
        /// These nodes.
        #[arg(short = 'n', long, value_name = "NIDS", conflicts_with_all = ["session", "group", "batch"], value_parser = ctl::names::with_addresses)]
        nodes: Option<String>,
    },
}

fn state(text: &str) -> Result<NodeState, String> {
    match text {
        "busy" => Ok(NodeState::Busy),
        "down" => Ok(NodeState::Down),
        "unknown" => Ok(NodeState::Unknown),
        _ => Err("a state is busy, down or unknown".to_owned()),
    }
}

/// Does what the arguments say.
pub fn run(args: Args) -> Result<(), Failed> {
    let key = key()?;
    let asked = match args.command {
        Command::NewSession { timeout, force, port, nid, name } => {
            let name = name.unwrap_or_else(user_at_host);
            let timeout = Span::secs(u64::from(timeout));
            return session::begin(&NewSession { key, name, timeout, force, port, nid });
        }
        Command::Stat(args) => return stat::run(key, &args),
        Command::AddTest(args) => args.ask()?,
        Command::EndSession => Ask::EndSession,
        Command::ShowSession => Ask::ShowSession,
        Command::AddGroup { name, nids } => Ask::AddGroup { name, nids },
        Command::DelGroup { name } => Ask::DelGroup { name },
        Command::UpdateGroup { clean, refresh, remove, name } => {
            Ask::UpdateGroup { name, clean, refresh, remove }
        }
        Command::ListGroup { active, busy, down, unknown, all, groups } => {
            let wanted = [
                (active, NodeState::Active),
                (busy, NodeState::Busy),
                (down, NodeState::Down),
                (unknown, NodeState::Unknown),
            ];
            let states = wanted
                .into_iter()
                .filter(|(wanted, _)| *wanted || all)
                .map(|(_, state)| state)
                .collect();
            Ask::ListGroup { groups, states }
        }
        Command::AddBatch { name } => Ask::AddBatch { name },
        Command::ListBatch { test, all, server, name } => {
            Ask::ListBatch { name, test, all, server }
        }
        Command::Run { batch, timeout } => Ask::Run { batch, timeout_secs: timeout },
        Command::Stop { force, batch } => Ask::Stop { batch, force },
        Command::Query { test, server, all, batch, timeout } => {
            Ask::Query { batch, test, server, all, timeout_secs: timeout }
        }
        Command::ShowError { session, of } => Ask::ShowError { of, session },
        Command::Ping { group, batch, nodes, .. } => Ask::Ping { group, batch, nodes },
    };
    told(&put(key, &asked)?)
}

/// The session's key.
fn key() -> Result<u32, Failed> {
    let text = std::env::var("LST_SESSION").unwrap_or_default();
    let key = text.trim().parse().ok().filter(|key| *key != 0);
    key.ok_or_else(|| {
        Failed::new(
            Errno::EINVAL.raw(),
            "Can't find env LST_SESSION or value is not valid: export LST_SESSION=$$",
        )
    })
}

fn user_at_host() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let user =
        std::env::var("USER").unwrap_or_else(|_| rustix::process::getuid().as_raw().to_string());
    format!("{user}@{host}").chars().take(lst::limits::NAME_CHARS_MAX).collect()
}

/// Asks the session's console.
fn put(key: u32, asked: &Ask) -> Result<Answer, Failed> {
    ask::console(key, asked).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => {
            Failed::new(Errno::ENOENT.raw(), "No session exists: lst new_session makes one")
        }
        _ => Failed::io(&error, "lst", "the session's console does not answer"),
    })
}

/// Prints an answer.
fn told(answer: &Answer) -> Result<(), Failed> {
    crate::out::print(&answer.out);
    if answer.status != 0 {
        return Err(Failed::new(answer.status, answer.err.trim_end()));
    }
    ctl::say::text(&answer.err);
    Ok(())
}
