//! Numbers of an output that must hold, while others differ from run to run.

/// Words of lines whose numbers are the same on every machine.
const EXACT: &[&str] =
    &["lmm_stripe_count:", "lmm_stripe_size:", " records in", " records out", "nrs_tbf_rule="];

/// A job under a rule takes at least this part of requests / rate: less than all of it, because a
/// rule lets a burst of requests through at first.
const SLACK: f64 = 0.75;

/// Whether the lines that no machine may change are the same in both outputs, but for the spaces
/// that align them.
#[must_use]
pub fn same_numbers(wanted: &str, seen: &str) -> bool {
    exact(wanted) == exact(seen)
}

fn exact(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| EXACT.iter().any(|word| line.contains(word)))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// The TBF rule that the commands of a session have set, for the jobs of `dd`.
#[derive(Debug, Default)]
pub struct Rule {
    /// Requests per second. None while no rule is in force.
    rate: Option<f64>,
    checked: usize,
}

impl Rule {
    /// Follows a command that has ended. False for a `dd` that was faster than its rule allows,
    /// where each block is a request. A slow machine is never too slow.
    pub fn follow(&mut self, command: &str, output: &str) -> bool {
        if command.contains("nrs_policies=fifo") {
            self.rate = None;
        }
        if command.contains("nrs_tbf_rule=") {
            self.rate = number_behind(command, " rate=");
        }
        let count = number_behind(command, " count=");
        let (Some(rate), Some(count), Some(seconds)) = (self.rate, count, seconds(output)) else {
            return true;
        };
        self.checked += 1;
        seconds >= SLACK * count / rate
    }

    /// How many commands a rule should have held.
    #[must_use]
    pub fn checked(&self) -> usize {
        self.checked
    }
}

/// `20` of `start calm rate=20`, for ` rate=`.
fn number_behind(text: &str, word: &str) -> Option<f64> {
    let (_, rest) = text.split_once(word)?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The seconds that `dd` prints: `62914560 bytes (63 MB, 60 MiB) copied, 2.86073 s, 22.0 MB/s`.
fn seconds(output: &str) -> Option<f64> {
    let (_, rest) = output.split_once(" copied, ")?;
    rest.split_once(" s, ")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_numbers_are_the_same_on_every_machine() {
        let shown = "f\nlmm_stripe_count:  4\nlmm_stripe_offset: 2";
        assert!(same_numbers(shown, "f\nlmm_stripe_count: 4\nlmm_stripe_offset: 0"));
        assert!(!same_numbers(shown, "f\nlmm_stripe_count:  1\nlmm_stripe_offset: 2"));
        assert!(!same_numbers("600+0 records in", "599+1 records in"));
        assert!(same_numbers("629 MB copied, 1.8 s, 341 MB/s", "629 MB copied, 9 s, 69 MB/s"));
    }

    #[test]
    fn a_rule_without_effect_is_seen() {
        let set = "lctl set_param ost.OSS.ost_io.nrs_tbf_rule='start calm jobid={dd.*} rate=20'";
        let copy = "dd if=/dev/zero of=/mnt/nacre/calm bs=1M count=60 conv=fsync";
        let copied = |seconds: &str| format!("60+0 records out\n63 MB copied, {seconds} s, 9 MB/s");
        let mut rule = Rule::default();
        assert!(rule.follow(copy, &copied("0.2")), "no rule is set");
        assert!(rule.follow(set, "the rule"));
        assert!(rule.follow(copy, &copied("2.86073")));
        assert!(rule.follow(copy, &copied("11")), "a slow machine");
        assert!(!rule.follow(copy, &copied("0.71")));
        assert_eq!(rule.checked(), 3);
        assert!(rule.follow("lctl set_param -n ost.OSS.ost_io.nrs_policies=fifo", "fifo"));
        assert!(rule.follow(copy, &copied("0.2")), "no rule is in force");
        assert_eq!(rule.checked(), 3);
    }
}
