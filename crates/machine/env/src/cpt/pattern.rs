//! `cpu_pattern`: the CPUs of each partition, as an administrator writes them.
//!
//! | text | meaning |
//! |---|---|
//! | empty | the number of partitions decides, CPUs are shared out evenly |
//! | `0[0-3] 1[4,5,7]` | partition number and its CPUs; also strides, `0[0-14/2]` |
//! | `N 0[0,1] 1[2,3]` | the numbers in brackets are NUMA nodes |
//! | `N` | one partition per NUMA node |
//! | `X[0-1]`, `N X[0]` | the layout without it, less these CPUs |
//! | `C[0-1]`, `N C[0-1]` | the layout without it, less the first two CPUs of each partition |
//!
//! Pure: text in, a value out. Errors name the token that is wrong. Lustre: `libcfs/lib-cpu.c`.

use super::CPTS_MAX;

/// Largest CPU, node or partition number that is understood.
const NUMBER_MAX: u32 = 65_535;

/// A pattern as written, not yet held against a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuPattern {
    /// `N`: by NUMA nodes.
    pub by_node: bool,
    /// Partitions by number; empty where the layout is left to the machine.
    pub partitions: Vec<Vec<u32>>,
    /// `X`: CPUs by number that no partition has.
    pub without: Vec<u32>,
    /// `C`: CPUs by position in each partition that it does not have.
    pub without_each: Vec<u32>,
}

/// A pattern that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternFault {
    /// Not what may stand there.
    #[error("cpu_pattern: '{0}' is not understood: expected NUMBER[LIST], N, X[LIST] or C[LIST]")]
    Token(String),
    /// A list of numbers is wrong.
    #[error("'{token}' is not a list of numbers: expected e.g. [0-3] or [0,2,8-14/2]: {why}")]
    List {
        /// As written.
        token: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A partition twice, or a gap before it.
    #[error(
        "cpu_pattern: '{0}': partitions are numbered from 0 without gaps, each once, at most {CPTS_MAX}"
    )]
    Numbering(String),
    /// Brackets and exclusions do not go together.
    #[error(
        "cpu_pattern: '{0}': CPUs are excluded from a layout that the machine decides, not from one in brackets"
    )]
    Mixed(String),
}

impl std::str::FromStr for CpuPattern {
    type Err = PatternFault;

    fn from_str(text: &str) -> Result<CpuPattern, PatternFault> {
        let mut pattern = CpuPattern::default();
        let mut numbered: Vec<(u32, Vec<u32>, &str)> = Vec::new();
        for (index, token) in tokens(text).into_iter().enumerate() {
            let (head, list) = match token.find('[') {
                Some(at) => (token[..at].trim(), Some(&token[at..])),
                None => (token, None),
            };
            match (head, list) {
                ("N", None) if index == 0 => pattern.by_node = true,
                ("X", Some(list)) if pattern.without.is_empty() => {
                    pattern.without = parse_list(list, NUMBER_MAX)?
                }
                ("C", Some(list)) if pattern.without_each.is_empty() => {
                    pattern.without_each = parse_list(list, NUMBER_MAX)?
                }
                (_, Some(list)) => {
                    let number = head.parse().map_err(|_| PatternFault::Token(shown(token)))?;
                    numbered.push((number, parse_list(list, NUMBER_MAX)?, token));
                }
                _ => return Err(PatternFault::Token(shown(token))),
            }
        }
        if let Some((_, _, token)) = numbered.first()
            && !(pattern.without.is_empty() && pattern.without_each.is_empty())
        {
            return Err(PatternFault::Mixed(shown(token)));
        }
        numbered.sort_by_key(|(number, _, _)| *number);
        for (index, (number, list, token)) in numbered.into_iter().enumerate() {
            if number as usize != index || number >= CPTS_MAX {
                return Err(PatternFault::Numbering(shown(token)));
            }
            pattern.partitions.push(list);
        }
        Ok(pattern)
    }
}

/// Split at blanks outside brackets, and behind each bracket.
fn tokens(text: &str) -> Vec<&str> {
    let (mut out, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '[' => inside = true,
            ']' => {
                out.push(&text[start..=at]);
                (start, inside) = (at + 1, false);
            }
            c if c.is_whitespace() && !inside && !text[at..].trim_start().starts_with('[') => {
                out.push(&text[start..at]);
                start = at;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out.into_iter().map(str::trim).filter(|token| !token.is_empty()).collect()
}

/// `[0,2,8-14/2]`: ascending, each number once, none above `max`. Errors show the item that is
/// wrong.
pub fn parse_list(text: &str, max: u32) -> Result<Vec<u32>, PatternFault> {
    let fault = |token: &str, why| PatternFault::List { token: shown(token), why };
    let inner = text.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inner = inner.ok_or_else(|| fault(text, "brackets are missing"))?;
    let mut all = Vec::new();
    for item in inner.split(',').map(str::trim) {
        let number =
            |text: &str| text.trim().parse::<u32>().map_err(|_| fault(item, "not a number"));
        let (range, stride) = match item.split_once('/') {
            Some((range, stride)) => (range, number(stride)?),
            None => (item, 1),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(range)?, number(range)?),
        };
        if stride == 0 {
            return Err(fault(item, "the stride is zero"));
        }
        if first > last {
            return Err(fault(item, "it ends before it starts"));
        }
        if last > max {
            return Err(fault(item, "the number is too large"));
        }
        all.extend((first..=last).step_by(stride as usize));
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    if all.len() != count {
        return Err(fault(text, "a number is listed twice"));
    }
    Ok(all)
}

fn shown(token: &str) -> String {
    token.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let read = |text: &str| text.parse::<CpuPattern>().expect(text);
        assert_eq!(read(""), CpuPattern::default());
        assert_eq!(read("0[0-3] 1[4,5,7]").partitions, [vec![0, 1, 2, 3], vec![4, 5, 7]]);
        assert_eq!(read(" 1 [4, 5] 0[0-6/2]").partitions, [vec![0, 2, 4, 6], vec![4, 5]]);
        assert_eq!(read("0[0]1[1]").partitions, [vec![0], vec![1]]);
        let nodes = read("N 0[0,1] 1[2,3]");
        assert!(nodes.by_node);
        assert_eq!(nodes.partitions, [vec![0, 1], vec![2, 3]]);
        assert_eq!(read("N"), CpuPattern { by_node: true, ..CpuPattern::default() });
        assert_eq!(read("X[0-1]").without, [0, 1]);
        assert_eq!(
            read("N X[0]"),
            CpuPattern { by_node: true, without: vec![0], ..CpuPattern::default() }
        );
        assert_eq!(
            read("N C[0-1]"),
            CpuPattern { by_node: true, without_each: vec![0, 1], ..CpuPattern::default() }
        );
        assert_eq!(
            read("C[0] X[3]"),
            CpuPattern { without: vec![3], without_each: vec![0], ..CpuPattern::default() }
        );
    }

    #[test]
    fn a_wrong_token_is_named() {
        for (text, token) in [
            ("0[0-3] x", "'x'"),
            ("0[0-3] 1", "'1'"),
            ("0[0-3] N", "'N'"),
            ("M 0[1]", "'M'"),
            ("0[]", "''"),
            ("0[1-]", "'1-'"),
            ("0[3-1]", "'3-1'"),
            ("0[0-8/0]", "'0-8/0'"),
            ("0[1,1]", "'[1,1]'"),
            ("0[70000]", "'70000'"),
            ("0[0", "'[0'"),
            ("1[0]", "'1[0]'"),
            ("0[0] 0[1]", "'0[1]'"),
            ("0[0] 2[1]", "'2[1]'"),
            ("a[0]", "'a[0]'"),
            ("0[1] X[0]", "'0[1]'"),
            ("X[0] X[1]", "'X[1]'"),
        ] {
            let error = text
                .parse::<CpuPattern>()
                .err()
                .unwrap_or_else(|| panic!("{text} is refused"))
                .to_string();
            assert!(error.contains(token), "{text}: {error}");
        }
    }

    /// A pattern that is accepted numbers its partitions without gaps, and each of its lists rises.
    fn accepts(input: &[u8]) -> bool {
        const WORDS: &[&str] = &[
            "0", "1", "2", "9", "65535", "[", "]", "-", ",", "/", " ", " ", "N", "X", "C", "[0-3]",
        ];
        let word = |byte: &u8| WORDS[usize::from(*byte) % WORDS.len()];
        let text: String = input.iter().map(word).collect();
        let Ok(pattern) = text.parse::<CpuPattern>() else { return false };
        assert!(pattern.partitions.len() <= CPTS_MAX as usize, "{text}");
        let lists = pattern.partitions.iter();
        for list in lists.chain([&pattern.without, &pattern.without_each]) {
            assert!(list.windows(2).all(|pair| pair[0] < pair[1]), "{text}");
            assert!(list.iter().all(|number| *number <= NUMBER_MAX), "{text}");
        }
        true
    }

    /// Fuzz target: patterns are within their bounds.
    #[test]
    fn patterns() {
        assert!(accepts(&[0, 15]), "0[0-3] is a pattern");
        let inputs = bolero::produce::<Vec<u8>>().with().len(0..=24);
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .with_generator(inputs)
            .for_each(|input: &Vec<u8>| _ = accepts(input));
    }
}
