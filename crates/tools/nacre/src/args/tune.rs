//! Options of `nacre tune`.

use std::path::PathBuf;

use clap::Args;
use ctl::names::nid_addr;
use types::NidAddr;

/// Options of `nacre tune`.
#[derive(Debug, Args)]
#[command(after_help = "\
Replaces the addresses of the MGS with which targets were formatted (Lustre: tunefs.lustre
--erase-params --mgsnode). The targets must be stopped. They register at the new address when they
start. An MGS has none: mounts and servers name its address.

Examples:
  nacre tune --mgsnode 10.20.0.9@tcp /srv/nacre/ost0
  nacre tune --mgsnode 10.20.0.1@tcp,10.20.0.9@tcp /srv/nacre/mdt0 /srv/nacre/ost0

Exit status: 0 all are changed, durably; 1 failure, reported on stderr; 2 wrong usage.")]
pub(super) struct Tune {
    /// Where the MGS is: alternatives separated by commas; may be repeated.
    #[arg(long, required = true, value_name = "NID")]
    #[arg(value_delimiter = ',', value_parser = nid_addr)]
    mgsnode: Vec<NidAddr>,
    /// Targets, or directories of targets.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

impl Tune {
    pub(super) fn options(self) -> daemons::tune::Options {
        let Tune { mgsnode: mgs, dirs } = self;
        daemons::tune::Options { mgs, dirs }
    }
}
