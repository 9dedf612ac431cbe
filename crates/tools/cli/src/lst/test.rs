//! `lst add_test`: the definition of a test.

use lst::command::Command as Ask;
use types::{ByteSize, Errno};
use wire::lst::{Check, Kind};

use crate::Failed;

/// Arguments of `lst add_test`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Tests:\n  ping\n  brw [read|write] [check=none|simple|full|crc|discard] [size=BYTES[K|M]] [off=BYTES]\n\nDefaults of brw: read, 4096 bytes, no check. size is at most 1M, off a multiple of 8. check=crc: the content depends on\nsession and sequence, so that swapped pages are seen too; check=discard: data are dropped unread."
)]
pub(super) struct Test {
    /// Batch that it is added to.
    #[arg(short = 'b', long, value_name = "BATCH", default_value = "batch")]
    batch: String,
    /// Requests of each loop; -1: without end.
    #[arg(short = 'l', long = "loop", value_name = "N", default_value_t = -1, allow_hyphen_values = true, value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    loops: i64,
    /// Loops for each pair of nodes.
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(lst::limits::CONCURRENCY_MAX)))]
    concurrency: u32,
    /// D:S: every D sources share S destinations.
    #[arg(short = 'd', long, value_name = "D:S", default_value = "1:1")]
    distribute: String,
    /// Group of sources.
    #[arg(short = 'f', long, value_name = "GROUP")]
    from: String,
    /// Group of destinations.
    #[arg(short = 't', long, value_name = "GROUP")]
    to: String,
    /// ping, or brw with its arguments.
    #[arg(required = true, value_name = "TEST [ARGS]")]
    test: Vec<String>,
}

impl Test {
    /// As the console wants it.
    pub(super) fn ask(self) -> Result<Ask, Failed> {
        let kind = kind(&self.test).map_err(|text| Failed::new(Errno::EINVAL.raw(), text))?;
        let loops = match self.loops {
            0 => {
                return Err(Failed::new(
                    Errno::EINVAL.raw(),
                    "--loop is a number above zero, or -1",
                ));
            }
            loops => u32::try_from(loops).ok(),
        };
        let Test { batch, concurrency, distribute, from, to, .. } = self;
        Ok(Ask::AddTest { batch, loops, concurrency, distribute, from, to, kind })
    }
}

fn kind(words: &[String]) -> Result<Kind, String> {
    let (name, rest) = words.split_first().ok_or("Missing test name")?;
    match name.as_str() {
        "ping" => {
            rest.first().map_or(Ok(Kind::Ping), |word| Err(format!("Unknown parameter: {word}")))
        }
        "brw" => brw(rest),
        other => Err(format!("Unknown test name {other}: expected ping or brw")),
    }
}

fn brw(words: &[String]) -> Result<Kind, String> {
    let (mut write, mut check, mut size, mut offset) =
        (false, Check::None, lst::limits::BRW_BYTES_DEFAULT, 0);
    for word in words {
        match word.split_once('=') {
            None if word == "read" || word == "r" => write = false,
            None if word == "write" || word == "w" => write = true,
            Some(("check", value)) => check = parse_check(value)?,
            Some(("size", value)) => size = parse_size(value)?,
            Some(("off", value)) => offset = parse_offset(value)?,
            _ => return Err(format!("Unknown parameter: {word}")),
        }
    }
    Ok(Kind::Brw { write, check, size, offset })
}

fn parse_check(text: &str) -> Result<Check, String> {
    match text {
        "none" => Ok(Check::None),
        "simple" => Ok(Check::Simple),
        "full" => Ok(Check::Full),
        "crc" => Ok(Check::Crc),
        "discard" => Ok(Check::Discard),
        _ => Err(format!("Unknown flag {text}")),
    }
}

fn parse_size(text: &str) -> Result<u32, String> {
    let units = [("", 1), ("k", 1 << 10), ("K", 1 << 10), ("m", 1 << 20), ("M", 1 << 20)];
    let bytes = ByteSize::with_units(text, &units).ok();
    let bytes = bytes.and_then(|ByteSize(bytes)| u32::try_from(bytes).ok());
    let bytes = bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("Invalid size {text}: expected 1 to 1M, with k or m behind it"))?;
    if bytes > lst::limits::BRW_BYTES_MAX {
        Err(format!(
            "Size exceed limitation: {bytes} bytes, expected at most {}",
            lst::limits::BRW_BYTES_MAX
        ))
    } else {
        Ok(bytes)
    }
}

fn parse_offset(text: &str) -> Result<u32, String> {
    let offset = text
        .parse::<u32>()
        .ok()
        .filter(|offset| offset.is_multiple_of(8) && *offset < lst::limits::BRW_BYTES_MAX);
    offset.ok_or_else(|| {
        format!("Invalid offset {text}, it should be positive value and multiple of 8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Kind, String> {
        kind(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn tests_are_understood_in_any_order_of_words() {
        assert_eq!(check("ping"), Ok(Kind::Ping));
        let default = Kind::Brw { write: false, check: Check::None, size: 4_096, offset: 0 };
        assert_eq!(check("brw"), Ok(default));
        assert_eq!(
            check("brw read check=simple size=1M"),
            Ok(Kind::Brw { write: false, check: Check::Simple, size: 1 << 20, offset: 0 })
        );
        assert_eq!(
            check("brw size=4K off=16 check=full write"),
            Ok(Kind::Brw { write: true, check: Check::Full, size: 4_096, offset: 16 })
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("pong", "Unknown test name pong"),
            ("ping x", "Unknown parameter: x"),
            ("brw copy", "Unknown parameter: copy"),
            ("brw check=some", "Unknown flag some"),
            ("brw size=0", "Invalid size 0"),
            ("brw size=1G", "Invalid size 1G"),
            ("brw size=1kb", "Invalid size 1kb"),
            ("brw size=4096M", "Invalid size 4096M"),
            ("brw size=8M", "Size exceed limitation: 8388608 bytes"),
            ("brw off=4", "Invalid offset 4, it should be positive value and multiple of 8"),
        ] {
            let said = check(text).expect_err("refused");
            assert!(said.starts_with(why), "{said}");
        }
    }
}
