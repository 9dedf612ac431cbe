//! `lctl`: parameters, devices and reachability, for the daemons of this machine.

mod conf_param;
mod device;
mod param;
mod ping;
mod pool;

use clap::{Parser, Subcommand};

use crate::Failed;

pub use ping::Ping;

/// Lustre's control tool, for the Nacre daemons of this machine.
#[derive(Debug, Parser)]
#[command(
    name = "lctl",
    display_name = "lctl",
    version,
    infer_long_args = true,
    arg_required_else_help = true,
    after_help = "Exit status: 0, or the first error's number; 2 for wrong usage and for a parameter that is not there.\n\nExamples:\n  lctl get_param -n version\n  lctl get_param 'obdfilter.*.kbytesfree'\n  lctl set_param ost.OSS.ost_io.threads_max=64\n  lctl list_param -R 'mdt.*'\n  lctl dl\n  lctl ping 127.0.0.2@tcp"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show parameters.
    #[command(
        name = "get_param",
        after_help = "Examples:\n  lctl get_param -n version\n  lctl get_param 'obdfilter.*.kbytesfree'\n  lctl get_param --of 'testfs-OST*' at_max"
    )]
    GetParam(param::Get),
    /// Change parameters of the daemons of this machine.
    #[command(name = "set_param")]
    SetParam(param::Set),
    /// Set permanently, under the older names: see set_param -P.
    #[command(name = "conf_param")]
    ConfParam(conf_param::Args),
    /// List names of parameters.
    #[command(
        name = "list_param",
        after_help = "Examples:\n  lctl list_param 'mdt.*'\n  lctl list_param -R 'ost.OSS.*'"
    )]
    ListParam(param::List),
    /// List devices: targets served, connectors of mounts.
    #[command(
        name = "dl",
        visible_alias = "device_list",
        after_help = "Examples:\n  lctl dl\n  lctl dl -t"
    )]
    Dl(device::Dl),
    /// List this machine's addresses.
    #[command(name = "list_nids", after_help = "Example:\n  lctl list_nids")]
    ListNids(device::ListNids),
    /// Make a pool of OSTs.
    #[command(name = "pool_new", after_help = "Example:\n  lctl pool_new testfs.flash")]
    PoolNew(pool::Named),
    /// Add OSTs to a pool.
    #[command(name = "pool_add")]
    PoolAdd(pool::Members),
    /// Take OSTs out of a pool. Data stays where it is.
    #[command(name = "pool_remove")]
    PoolRemove(pool::Members),
    /// Remove an empty pool.
    #[command(name = "pool_destroy", after_help = "Example:\n  lctl pool_destroy testfs.flash")]
    PoolDestroy(pool::Named),
    /// List pools, or the OSTs of one.
    #[command(
        name = "pool_list",
        after_help = "Examples:\n  lctl pool_list testfs\n  lctl pool_list testfs.flash"
    )]
    PoolList(pool::Listed),
    /// Ask whether a node answers.
    #[command(
        after_help = "Examples:\n  lctl ping 127.0.0.2@tcp\n  lctl ping 127.0.0.2:1988@tcp 3     at most 3 s"
    )]
    Ping(ping::Args),
}

/// Does what the arguments say.
pub fn run(args: Args, ping: Ping) -> Result<(), Failed> {
    match args.command {
        Command::GetParam(args) => param::get(&args),
        Command::SetParam(args) => param::set(&args),
        Command::ConfParam(args) => conf_param::run(&args),
        Command::ListParam(args) => param::list(&args),
        Command::Dl(args) => device::dl(&args),
        Command::ListNids(args) => device::list_nids(&args),
        Command::PoolNew(args) => pool::make(&args),
        Command::PoolAdd(args) => pool::add(&args),
        Command::PoolRemove(args) => pool::remove(&args),
        Command::PoolDestroy(args) => pool::destroy(&args),
        Command::PoolList(args) => pool::list(&args),
        Command::Ping(args) => ping::run(&args, ping),
    }
}
