//! Values of parameters that have a text of their own kind. A monitor reads them as they are
//! ([`ParamTree::typed`](crate::ParamTree::typed)), so it does not parse their text.

use std::fmt;

/// Numbers with names. Prints a line `NAME: NUMBER` for each, without an end of the last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields(pub Vec<(&'static str, u64)>);

impl Fields {
    /// The number with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(field, _)| *field == name).map(|(_, number)| *number)
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, number)) in self.0.iter().enumerate() {
            write!(f, "{}{name}: {number}", if at == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// One line for each of several things, without an end of the last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines(pub Vec<String>);

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

/// The result of a check: of a daemon's health, of a target's records. Prints its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The check has found nothing wrong.
    pub is_well: bool,
    /// The result in words, for people.
    pub text: String,
}

impl Verdict {
    /// The health of a daemon: `ill` says what is wrong, a line each. Lustre's text.
    #[must_use]
    pub fn health(ill: &str) -> Verdict {
        let ill = ill.trim();
        let is_well = ill.is_empty();
        let text = if is_well { "healthy".to_owned() } else { format!("NOT HEALTHY\n{ill}") };
        Verdict { is_well, text }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_lines_end_without_a_newline() {
        let fields = Fields(vec![("writes", 40), ("no_room", 3)]);
        assert_eq!(fields.to_string(), "writes: 40\nno_room: 3");
        assert_eq!((fields.get("no_room"), fields.get("room")), (Some(3), None));
        let lines = Lines(vec!["OST0000: lost".to_owned(), "OST0001: lost".to_owned()]);
        assert_eq!(lines.to_string(), "OST0000: lost\nOST0001: lost");
        assert_eq!(Lines(Vec::new()).to_string(), "");
    }

    #[test]
    fn a_daemon_is_healthy_while_nothing_is_wrong() {
        let well = Verdict::health(" \n");
        assert_eq!((well.is_well, well.to_string()), (true, "healthy".to_owned()));
        let ill = Verdict::health("\nMDT0000 is down\n");
        assert_eq!((ill.is_well, ill.to_string()), (false, "NOT HEALTHY\nMDT0000 is down".into()));
    }
}
