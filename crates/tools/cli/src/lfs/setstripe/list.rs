//! Lists of OSTs. One that is listed twice gets two stripes.

use types::TARGET_INDEX_MAX;

/// OSTs of one list, at most.
const OSTS_MAX: usize = 2_000;

/// `0,2,5-7`.
pub(super) fn parse(text: &str) -> Result<Vec<u32>, String> {
    let bad = || format!("bad OST list '{text}': expected indices and ranges such as 0,2,5-7");
    let index = |part: &str| {
        part.parse::<u32>().ok().filter(|index| *index <= TARGET_INDEX_MAX).ok_or_else(bad)
    };
    let mut osts = Vec::new();
    for part in text.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high) = (index(low)?, index(high)?);
        if low > high || osts.len() + (high - low) as usize >= OSTS_MAX {
            return Err(bad());
        }
        osts.extend(low..=high);
    }
    Ok(osts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list that is accepted has OSTs within the bound, and its own numbers are a list that is
    /// equal.
    fn accepts(input: &[u8]) -> bool {
        const LETTERS: &[u8] = b"0123456789,-";
        let letter = |byte: &u8| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]);
        let text: String = input.iter().map(letter).collect();
        let Ok(osts) = parse(&text) else { return false };
        assert!((1..=OSTS_MAX).contains(&osts.len()));
        let words: Vec<_> = osts.iter().map(u32::to_string).collect();
        assert_eq!(parse(&words.join(",")), Ok(osts));
        true
    }

    /// Fuzz target: lists of OSTs mean what they say.
    #[test]
    fn ost_lists() {
        assert!(accepts(&[0, 10, 5, 11, 7]), "0,5-7 is a list");
        assert_eq!(parse("1,0-2,1"), Ok(vec![1, 0, 1, 2, 1]));
        let inputs = bolero::produce::<Vec<u8>>().with().len(0..=40);
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .with_generator(inputs)
            .for_each(|input: &Vec<u8>| _ = accepts(input));
    }
}
