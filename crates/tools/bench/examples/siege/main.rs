//! Bad neighbours, for the parts `flood` and `siege` of `cargo xtask bench`. Those parts measure
//! the service of other clients meanwhile.
//!
//! ```text
//! siege flood  SECONDS AT REQUESTS   as 127.0.0.66 keeps REQUESTS waiting at OST0000, which is at AT
//! siege probe  SECONDS AT            as 127.0.0.67 connects to it anew, 10 times a second
//! siege attack SECONDS AT ...        half-open connections and garbage at each AT, slow readers at the
//!                                    first, held to a twentieth of a core
//! ```
//! Each prints one JSON value when its time is over.

mod attack;
mod budget;
mod flood;
mod peer;
mod probe;

use std::io::Write;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use types::{NidAddr, Span};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, seconds, rest @ ..] = &args[..] else { bail!("siege WHAT SECONDS AT ...") };
    let span = Span::secs(seconds.parse().context("SECONDS")?);
    let at = |text: &String| text.parse::<NidAddr>().map_err(anyhow::Error::from);
    let seen: Value = match (what.as_str(), rest) {
        ("flood", [to, count]) => flood::run(at(to)?, count.parse().context("REQUESTS")?, span),
        ("probe", [to]) => probe::run(at(to)?, span),
        ("attack", [_, ..]) => attack::run(rest.iter().map(at).collect::<Result<_>>()?, span),
        _ => bail!("flood, probe or attack; see the head of its source"),
    };
    writeln!(std::io::stdout(), "{seen}")?;
    Ok(())
}
