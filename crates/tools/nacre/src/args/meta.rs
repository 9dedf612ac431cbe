//! Options of the commands for the records of an MDT and the objects that they name.

use std::path::PathBuf;

use clap::Args;
use ctl::names::nid_addr;
use types::NidAddr;

/// Options of `nacre export-meta`.
#[derive(Debug, Args)]
#[command(after_help = "\
The MDT is served meanwhile, by `nacre serve` or `nacre up` on this machine. The file
is the image of one moment, which is durable when the command ends. It is written beside as
FILE.part and takes the name FILE when it is whole, so that an export that fails leaves the last
one. It holds all names, attributes and layouts, and no data of files. Keep it on another disk,
and make one as often as work may be lost. Root and the server's own user may export. `nacre
import-meta` makes an MDT of it.

Examples:
  nacre export-meta testfs-MDT0000 -o /backup/testfs-MDT0000.export

Exit status: 0 FILE is whole and durable; 1 failure, reported on stderr.")]
pub(super) struct ExportMeta {
    /// Name of the MDT, as `lctl dl` shows it.
    #[arg(value_name = "MDTNAME")]
    pub(super) target: String,
    /// Where to; the server writes it, readable by its user only.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(super) output: PathBuf,
}

/// Options of `nacre import-meta`.
#[derive(Debug, Args)]
#[command(after_help = "\
Makes an MDT whose disk is lost again, as it was when FILE was exported. DIR is cleared, gets
all records and becomes the target that it was, under the same name. Its instance is higher and
its ids begin behind all that was given out, by the clock and behind what OSTs have. All clients
are evicted, and work since the export is lost. Start the MDT with `nacre serve` or
`nacre up` afterwards. FILE is checked whole before anything is touched.

Objects are compared with names: those of the OSTs that are served on this machine, and those in
lists that `nacre list-objects` made on others. Each difference is a line on stdout, with
words separated by a space:
  unnamed OST OBJECT FILE          an object without a name, and the file that it was made for
  missing OST OBJECT FILE PATH     a name without an object: reads there return EIO

Examples:
  nacre import-meta /backup/testfs-MDT0000.export nacre-data/testfs-MDT0000
  ssh oss1 nacre list-objects testfs-OST0000 > ost0
  nacre import-meta /backup/testfs-MDT0000.export /srv/mdt0 --objects ost0

Exit status: 0 the MDT can be served, with differences or without; 1 failure, reported on stderr:
DIR is as it was, or no target. If only the comparison fails, stderr says that the MDT is complete.")]
pub(super) struct ImportMeta {
    /// An export, made by `nacre export-meta`.
    pub(super) file: PathBuf,
    /// The MDT's directory; made if it is not there.
    pub(super) dir: PathBuf,
    /// A list of objects, made by `nacre list-objects`; may be repeated.
    #[arg(long, value_name = "LIST")]
    pub(super) objects: Vec<PathBuf>,
    /// Where the MGS is, if not where it was when FILE was exported.
    #[arg(long, value_name = "NID", value_delimiter = ',', value_parser = nid_addr)]
    pub(super) mgsnode: Vec<NidAddr>,
    /// Destroy the target that is in DIR.
    #[arg(long)]
    pub(super) reformat: bool,
}

/// Options of `nacre check-meta`.
#[derive(Debug, Args)]
#[command(after_help = "\
Compares the names of an MDT that is stopped with the objects of the OSTs that are served on
this machine. The lists that `nacre list-objects` made on others are compared too. Files that were
open or changing when the MDT stopped may differ. Each difference is a line on stdout, with
words separated by a space:
  unnamed OST OBJECT FILE          an object without a name, and the file that it was made for
  missing OST OBJECT FILE PATH     a name without an object: reads there return EIO
Bytes of PATH outside of printable ASCII are written as \\xNN. `nacre fsck` checks these and
all other rules, with the stores or copies of all targets.

Examples:
  nacre check-meta nacre-data/testfs-MDT0000
  nacre check-meta /srv/mdt0 --objects ost0 --objects ost1 | grep ^missing

Exit status: 0 no difference; 3 differences; 1 failure, reported on stderr.")]
pub(super) struct CheckMeta {
    /// The MDT's directory.
    pub(super) dir: PathBuf,
    /// A list of objects, made by `nacre list-objects`; may be repeated.
    #[arg(long, value_name = "LIST")]
    pub(super) objects: Vec<PathBuf>,
}

/// Options of `nacre list-objects`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints a line for each object, `NAME OBJECT FILE STORE`: the OST, the object, the file that it
was made for and the number of that file's MDT store. The last line is `NAME end COUNT`: without
it a list is cut short, and refused by `import-meta` and `check-meta`. Lists of several OSTs may
follow one another in a file.

Examples:
  nacre list-objects testfs-OST0000 > ost0

The OST is served on this machine, or a server on this machine asks it.

Exit status: 0 the list is whole; 1 failure, reported on stderr.")]
pub(super) struct ListObjects {
    /// Name of the OST, as `lctl dl` shows it.
    #[arg(value_name = "OSTNAME")]
    pub(super) target: String,
}

/// Options of `nacre unnamed`.
#[derive(Debug, Args)]
#[command(after_help = "\
Runs on the machine of the MDT, which asks all OSTs for their objects. Prints a line for each object
that no file names, `unnamed OST OBJECT FILE BYTES`: FILE is the file that it was made for. With
--remove the line begins with `removed`: the object goes as those of removed files do, when that is
durable. Nothing is printed while the MDT is in recovery. An object is left out if the MDT has not
given its id yet, as with an older copy. Objects of another MDT's store are left alone.

Examples:
  nacre unnamed testfs-MDT0000
  nacre unnamed testfs-MDT0000 --remove

Exit status: 0 there is none, or they go; 3 there are some; 1 failure, reported on stderr.")]
pub(super) struct Unnamed {
    /// Name of the MDT, as `lctl dl` shows it.
    #[arg(value_name = "MDTNAME")]
    pub(super) target: String,
    /// Remove them, for good.
    #[arg(long)]
    pub(super) remove: bool,
}

impl ImportMeta {
    pub(super) fn options(self) -> daemons::import_meta::Options {
        daemons::import_meta::Options {
            file: self.file,
            dir: self.dir,
            mgs: self.mgsnode,
            objects: self.objects,
            reformat: self.reformat,
        }
    }
}

/// Options of `nacre fsck`.
#[derive(Debug, Args)]
#[command(after_help = "\
Checks names, inodes, layouts and objects of all MDTs and OSTs against each other, and prints a line
for each breach of a rule: its state (found, repaired, left), the rule, the target, what is wrong,
and how it is repaired. Nothing is changed without --repair. It reads all records into memory, about
1 KiB for each file.

A stopped file system is read from its stores. One whose targets are all served on this machine is
read from copies, twice: only a breach that both looks find counts.
Targets on several machines are checked by copies (--copies): a directory with FILE.export of each
MDT (`nacre export-meta`) and FILE.objects of OSTs (`nacre list-objects`, made before the exports).
Make the copies twice and name both directories: a breach counts if both show it.
--repair needs a stopped file system. Unmount its clients first, because files that they bring back
may collide with repairs. With --live, targets that are served are repaired, too. Each MDT looks
again and mends names and counts for which it needs no other MDT. The rest is reported.

Files without a name, and objects with bytes but without a file, get a name in .nacre/lost+found of
the root. Bytes of an object that is lost are reported; reading them stays an error.

Examples:
  nacre fsck                                     the file system of `nacre up` in ./nacre-data
  nacre fsck --data /srv/nacre --repair
  nacre fsck --data /srv/nacre --repair --live   while it is served
  nacre fsck /srv/mdt0 /srv/ost0 /srv/ost1 --json
  nacre fsck --copies /tmp/look1 --copies /tmp/look2

Exit status, as of fsck(8): 0 nothing is wrong; 1 all that was wrong is repaired; 4 something is
wrong; 8 it could not be checked, reported on stderr; 16 wrong usage.")]
pub(super) struct Fsck {
    /// Directories of all targets of the file system; default: those of --data.
    #[arg(value_name = "DIR", conflicts_with = "data")]
    pub(super) dirs: Vec<PathBuf>,
    /// The data directory of `nacre up`.
    #[arg(long, value_name = "DIR", default_value = "nacre-data")]
    pub(super) data: PathBuf,
    /// A directory with copies of all targets; may be repeated for a later look.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["dirs", "data", "repair"])]
    pub(super) copies: Vec<PathBuf>,
    /// Repair what can be repaired.
    #[arg(long)]
    pub(super) repair: bool,
    /// Repair targets that are served, too, as far as each MDT can do so alone.
    #[arg(long, requires = "repair", conflicts_with = "zero_lost")]
    pub(super) live: bool,
    /// Give up the bytes of lost objects: they read as zeros afterwards.
    #[arg(long, requires = "repair")]
    pub(super) zero_lost: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

impl Fsck {
    pub(super) fn options(self) -> daemons::fsck::Options {
        let Fsck { dirs, data, copies, repair, live, zero_lost: give_up_bytes, json } = self;
        daemons::fsck::Options { data, dirs, copies, repair, live, give_up_bytes, json }
    }
}
