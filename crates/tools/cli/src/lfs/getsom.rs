//! `lfs getsom`: the MDT's knowledge of the size of a file, without a question to writers or OSTs.

use std::path::{Path, PathBuf};

use serde::Serialize;
use types::Errno;

use crate::failure::First;
use crate::form::Form;
use crate::{Failed, lov, out};

const COMMAND: &str = "lfs getsom";

/// Name of the xattr.
const XATTR: &str = "lustre.som";

/// Arguments of `lfs getsom`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only the size, in bytes.
    #[arg(short = 's', long, conflicts_with_all = ["blocks", "flags"])]
    size: bool,
    /// Only the blocks, of 512 bytes.
    #[arg(short = 'b', long, conflicts_with = "flags")]
    blocks: bool,
    /// Only the flags: 1, the size is exact; 2, it was before the file was opened for writing.
    #[arg(short = 'f', long)]
    flags: bool,
    #[command(flatten)]
    form: Form,
    /// Files.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Som {
    file: String,
    size: u64,
    blocks: u64,
    flags: u16,
}

pub(super) fn run(args: &Args) -> Result<(), Failed> {
    let mut first = First::default();
    let mut all = Vec::new();
    for path in &args.paths {
        match of(path) {
            Ok(som) => all.push(som),
            Err(failed) => first.note(&failed),
        }
    }
    out::print(&args.form.render(&all, || all.iter().map(|som| line(args, som)).collect()));
    first.end()
}

fn of(path: &Path) -> Result<Som, Failed> {
    let shown = path.display().to_string();
    let value = lov::get(path, XATTR).map_err(|error| Failed::io(&error, COMMAND, &shown))?;
    let no_file = || {
        let text = format!("{COMMAND}: {shown}: only regular files have a size at the MDT");
        Failed::new(Errno::EINVAL.raw(), text)
    };
    decode(&shown, &value.unwrap_or_default()).ok_or_else(no_file)
}

/// As in Lustre's `trusted.som`: flags and six bytes of zeros, size, blocks.
fn decode(file: &str, value: &[u8]) -> Option<Som> {
    let word = |at: usize| Some(u64::from_le_bytes(*value.get(at..)?.first_chunk::<8>()?));
    let flags = u16::from_le_bytes(*value.first_chunk::<2>()?);
    Some(Som { file: file.to_owned(), size: word(8)?, blocks: word(16)?, flags })
}

fn line(args: &Args, som: &Som) -> String {
    let Som { file, size, blocks, flags } = som;
    match (args.size, args.blocks, args.flags) {
        (true, ..) => format!("{size}\n"),
        (_, true, _) => format!("{blocks}\n"),
        (.., true) => format!("{flags}\n"),
        _ => format!("file: {file} size: {size} blocks: {blocks} flags: {flags}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    #[test]
    fn all_or_one_part() {
        let mut value = vec![1, 0, 0, 0, 0, 0, 0, 0];
        value.extend(4_097_u64.to_le_bytes());
        value.extend(16_u64.to_le_bytes());
        let som = decode("f", &value).expect("a whole value");
        assert_eq!(decode("f", &value[..23]), None);
        let check = |options: &str| {
            let parsed = parse::<Args>(format!("x {options} f").split_whitespace());
            parsed.map(|args| line(&args, &som)).map_err(|error| error.to_string())
        };
        assert_eq!(check(""), Ok("file: f size: 4097 blocks: 16 flags: 1\n".into()));
        let parts = [check("-s"), check("-b"), check("-f")];
        assert_eq!(parts, [Ok("4097\n".into()), Ok("16\n".into()), Ok("1\n".into())]);
        assert!(check("-s -b").is_err());
    }
}
