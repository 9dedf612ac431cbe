//! Permission bits to compare with: `644` matches exactly these, `-MODE` all of these, `/MODE` any
//! of these.

/// Bits of a mode that are permissions.
pub(super) const PERMISSIONS: u32 = 0o7777;

/// How the bits of a file and those asked for must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    Exact,
    All,
    Any,
}

/// What `-perm` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    matching: Match,
    bits: u32,
}

impl Mode {
    /// From octal digits, or from clauses such as `u=rw,g+s` that are carried out on no bits at
    /// all, as find(1) does.
    pub(super) fn parse(text: &str) -> Result<Mode, String> {
        let (matching, rest) = match text.as_bytes().first() {
            Some(b'-') => (Match::All, &text[1..]),
            Some(b'/') => (Match::Any, &text[1..]),
            _ => (Match::Exact, text),
        };
        let bits = if rest.starts_with(|c: char| c.is_ascii_digit()) {
            octal(rest)
        } else {
            clauses(rest)
        };
        let bits = bits.ok_or_else(|| {
            format!("'{text}' is not a mode: expected [-/]OCTAL or [-/]CLAUSES such as u=rw,g=r")
        })?;
        Ok(Mode { matching, bits })
    }

    /// Whether a file with `mode` is meant.
    pub(super) fn holds(self, mode: u32) -> bool {
        let mode = mode & PERMISSIONS;
        match self.matching {
            Match::Exact => mode == self.bits,
            Match::All => mode & self.bits == self.bits,
            Match::Any => self.bits == 0 || mode & self.bits != 0,
        }
    }
}

fn octal(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= PERMISSIONS)
}

fn clauses(text: &str) -> Option<u32> {
    text.split(',').try_fold(0, clause)
}

/// `bits` after one clause: who, `+`, `-` or `=`, what.
fn clause(bits: u32, text: &str) -> Option<u32> {
    let at = text.find(['+', '-', '='])?;
    let (who, what) = (&text[..at], &text[at + 1..]);
    let whose = if who.is_empty() {
        Some(PERMISSIONS)
    } else {
        who.chars().try_fold(0, |all, who| Some(all | class(who)?))
    }?;
    let named = whose & what.chars().try_fold(0, |all, what| Some(all | permission(what)?))?;
    Some(match text.as_bytes()[at] {
        b'+' => bits | named,
        b'-' => bits & !named,
        _ => bits & !whose | named,
    })
}

/// Bits that belong to a class of users.
fn class(letter: char) -> Option<u32> {
    Some(match letter {
        'u' => 0o4700,
        'g' => 0o2070,
        'o' => 0o1007,
        'a' => PERMISSIONS,
        _ => return None,
    })
}

/// Bits of a permission, in all classes.
fn permission(letter: char) -> Option<u32> {
    Some(match letter {
        'r' => 0o444,
        'w' => 0o222,
        'x' => 0o111,
        's' => 0o6000,
        't' => 0o1000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(mode: u32, asked: &[&str]) -> Vec<bool> {
        asked
            .iter()
            .map(|text| {
                Mode::parse(text).unwrap_or_else(|error| panic!("{error}")).holds(0o100_000 | mode)
            })
            .collect()
    }

    #[test]
    fn bits_are_met_exactly_all_or_any() {
        assert_eq!(
            holds(0o644, &["644", "0644", "-644", "-600", "/222", "-000", "/000"]),
            [true; 7]
        );
        assert_eq!(holds(0o644, &["600", "-755", "/111", "4644", "0"]), [false; 5]);
        assert_eq!(holds(0o4755, &["4755", "-4000", "/6000"]), [true; 3]);
    }

    #[test]
    fn clauses_are_carried_out_one_after_the_other() {
        assert_eq!(
            holds(0o640, &["u=rw,g=r", "u+rw,g+rw,g-w", "-g+r", "/u=w,g=w", "a=r,u+w,o="]),
            [true; 5]
        );
        assert_eq!(holds(0o640, &["u=rw", "-o=r", "/a=x"]), [false; 3]);
        assert_eq!(holds(0o7777, &["=rwxst", "-u+s", "-g+s", "-o+t"]), [true; 4]);
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for text in ["", "-", "8", "644x", "17777", "u", "u=q", "z=r", "u=r,"] {
            assert!(Mode::parse(text).is_err_and(|error| error.contains("not a mode")), "{text}");
        }
    }

    /// A text of letters of the grammar.
    fn text(input: &[u8]) -> String {
        const LETTERS: &[u8] = b"-/01234567ugoarwxst+-=,";
        input.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
    }

    /// A file with exactly the bits that were asked for is found, however they were asked for.
    fn accepts(input: &[u8]) -> bool {
        let Ok(mode) = Mode::parse(&text(input)) else { return false };
        assert_eq!(mode.bits & !PERMISSIONS, 0);
        assert!(mode.holds(0o100_000 | mode.bits));
        assert_eq!(mode.holds(!0), mode.holds(PERMISSIONS));
        true
    }

    /// Fuzz target: modes find what they say.
    #[test]
    fn modes() {
        assert!(accepts(&[8, 6, 6]), "644 is a mode");
        let inputs = bolero::produce::<Vec<u8>>().with().len(0..=24);
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .with_generator(inputs)
            .for_each(|input: &Vec<u8>| _ = accepts(input));
    }
}
