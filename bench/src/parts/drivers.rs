//! Public mdtest, IOR and fio beside our own drivers, in turns on one bed. The rows of record use
//! the public ones where they are installed; these rows say how far our own are from them.

use anyhow::{Result, ensure};

use super::{data, fio, metadata, public};
use crate::bed::Bed;
use crate::row::Row;
use crate::scale::Scale;

/// Turns of both drivers, each with a run on the mount and one on ext4, and seconds of a phase at
/// most.
const TURNS: u32 = 3;
const SECONDS_MAX: u32 = 2;

/// Calls of 4 KiB, which are those of the random pattern.
const CALLS_PER_MIB: f64 = 256.0;

const COMMAND: &str = "cargo xtask bench --only drivers";

/// A part of a run for one turn. Its rows have values of the mount and of ext4.
type Driver = fn(&Bed, Scale) -> Result<Vec<Row>>;

/// A setting of which there are two drivers.
struct Subject {
    /// The part whose setting it is.
    part: &'static str,
    program: &'static str,
    own: Driver,
    public: Driver,
}

const SUBJECTS: [Subject; 3] = [
    Subject { part: "mdtest-own", program: "mdtest", own: own_mdtest, public: public_mdtest },
    Subject { part: "ior-4", program: "ior", own: own_ior, public: public_ior },
    Subject { part: "random", program: "fio", own: own_random, public: fio::by_fio },
];

impl Subject {
    fn is_installed(&self) -> bool {
        match self.program {
            "fio" => public::is_installed("fio"),
            under_mpirun => public::has(under_mpirun),
        }
    }
}

/// Whether any public driver can be run.
pub(crate) fn are_installed() -> bool {
    SUBJECTS.iter().any(Subject::is_installed)
}

pub(crate) fn beside_public(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for subject in &SUBJECTS {
        if subject.is_installed() {
            rows.extend(in_turns(bed, scale, subject)?);
        } else {
            eprintln!("{} cannot be run: its rows are left out", subject.program);
        }
    }
    Ok(rows)
}

fn in_turns(bed: &Bed, scale: Scale, subject: &Subject) -> Result<Vec<Row>> {
    let scale = Scale { pairs: 1, seconds: scale.seconds.min(SECONDS_MAX), ..scale };
    let (mut own, mut public): (Vec<Row>, Vec<Row>) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        own.extend((subject.own)(bed, scale)?);
        public.extend((subject.public)(bed, scale)?);
    }
    rows(subject.part, &own, &public)
}

/// Two rows for each phase, one of the mount and one of ext4: our driver's values beside the public
/// one's, from the rows of all turns.
fn rows(part: &str, own: &[Row], public: &[Row]) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, Row { title, unit, .. }) in own.iter().enumerate() {
        if own.iter().take(index).any(|earlier| earlier.title == *title) {
            continue;
        }
        let both = [values(own, title), values(public, title)];
        let [[own_mount, own_ext4], [public_mount, public_ext4]] = both;
        let places = [("Nacre", [own_mount, public_mount]), ("ext4", [own_ext4, public_ext4])];
        for (place, values) in places {
            let counts = values.each_ref().map(Vec::len);
            ensure!(counts[0] == counts[1], "{part}: '{title}' is not measured by both drivers");
            let id = format!("drivers/{part}/{title}-{place}");
            let title = format!("{part}: {title}, on {place}");
            rows.push(Row::of(&id, &title, unit, values, None, COMMAND));
        }
    }
    Ok(rows)
}

/// A phase's values of all turns: those of the mount, and those of ext4.
fn values(rows: &[Row], title: &str) -> [Vec<f64>; 2] {
    let each = |side: fn(&Row) -> Vec<f64>| -> Vec<f64> {
        rows.iter().filter(|row| row.title == title).flat_map(side).collect()
    };
    [each(|row| row.ours.clone()), each(|row| row.limit.clone())]
}

fn own_mdtest(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    metadata::by_own(bed, scale, &metadata::OWN)
}

fn public_mdtest(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    public::mdtest(bed, scale, &metadata::OWN)
}

fn own_ior(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    data::by_own(bed, scale, &data::FOUR)
}

fn public_ior(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    public::ior(bed, scale, &data::FOUR)
}

fn own_random(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    fio::by_own(bed, scale)?.into_iter().map(as_fio).collect()
}

/// A row of `nacre bench ior` with the title and the unit that fio's has.
fn as_fio(row: Row) -> Result<Row> {
    ensure!(row.unit == "MiB/s", "'{}' is in {}", row.title, row.unit);
    let calls = |rates: &[f64]| rates.iter().map(|rate| rate * CALLS_PER_MIB).collect::<Vec<f64>>();
    let (ours, limit) = (calls(&row.ours), calls(&row.limit));
    let title = format!("rand{}", row.title);
    Ok(Row { title, unit: "IOPS".to_owned(), ours, limit, ..row })
}

#[cfg(test)]
mod tests_of_drivers {
    use super::*;
    use crate::row::tests::row;

    fn turn(title: &str, ours: f64, limit: f64) -> Row {
        Row { title: title.to_owned(), ..row(&[ours], &[limit], None) }
    }

    #[test]
    fn turns_of_two_drivers_become_a_row_for_each_place() {
        let own = [turn("stat", 6.0, 10.0), turn("read", 1.0, 2.0), turn("stat", 4.0, 30.0)];
        let public = [turn("read", 1.0, 4.0), turn("stat", 3.0, 10.0), turn("stat", 4.0, 20.0)];
        let rows = rows("p", &own, &public).expect("both measured both");
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let (mount, ext4) = ("drivers/p/stat-Nacre", "drivers/p/stat-ext4");
        assert_eq!(ids, [mount, ext4, "drivers/p/read-Nacre", "drivers/p/read-ext4"]);
        assert_eq!((&rows[0].ours, &rows[0].limit), (&vec![6.0, 4.0], &vec![3.0, 4.0]));
        assert_eq!((&rows[1].ours, &rows[1].limit), (&vec![10.0, 30.0], &vec![10.0, 20.0]));
        assert!(super::rows("p", &own, &public[..2]).is_err(), "a turn is missing");
    }

    #[test]
    fn rates_of_our_random_calls_are_in_the_unit_of_fio() {
        let ours = Row { unit: "MiB/s".to_owned(), ..turn("read", 2.0, 4.0) };
        let row = as_fio(ours.clone()).expect("a rate");
        assert_eq!((row.title.as_str(), row.unit.as_str()), ("randread", "IOPS"));
        assert_eq!((row.ours, row.limit), (vec![512.0], vec![1024.0]));
        assert!(as_fio(Row { unit: "files/s".to_owned(), ..ours }).is_err());
    }
}
