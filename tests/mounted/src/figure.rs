//! A test's measured values, for the tables of `bench/README.md`.

use std::fs::OpenOptions;
use std::io::Write;

use serde::{Deserialize, Serialize};

/// One measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Stable name, `test/figure`.
    pub id: String,
    pub title: String,
    pub unit: String,
    pub value: f64,
}

/// Prints a value, and appends it as a line of JSON to the file that `NACRE_FIGURES` names.
pub fn figure(id: &str, title: &str, unit: &str, value: f64) {
    println!("{title}: {value:.3} {unit}");
    let Some(path) = std::env::var_os("NACRE_FIGURES") else { return };
    let (id, title, unit) = (id.to_owned(), title.to_owned(), unit.to_owned());
    let line = serde_json::to_string(&Figure { id, title, unit, value }).expect("plain values");
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| writeln!(file, "{line}")).expect("the file of the figures");
}
