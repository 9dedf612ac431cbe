//! Flags of mount(2), under their names in mount(8).

use client::{AccessTimes, Reads};
use rustix::mount::MountFlags;

/// Word, flag, whether the word sets it.
const WORDS: &[(&str, MountFlags, bool)] = &[
    ("ro", MountFlags::RDONLY, true),
    ("rw", MountFlags::RDONLY, false),
    ("nosuid", MountFlags::NOSUID, true),
    ("suid", MountFlags::NOSUID, false),
    ("nodev", MountFlags::NODEV, true),
    ("dev", MountFlags::NODEV, false),
    ("noexec", MountFlags::NOEXEC, true),
    ("exec", MountFlags::NOEXEC, false),
    ("sync", MountFlags::SYNCHRONOUS, true),
    ("async", MountFlags::SYNCHRONOUS, false),
    ("noatime", MountFlags::NOATIME, true),
    ("atime", MountFlags::NOATIME, false),
    ("nodiratime", MountFlags::NODIRATIME, true),
    ("diratime", MountFlags::NODIRATIME, false),
    ("strictatime", MountFlags::STRICTATIME, true),
    ("nostrictatime", MountFlags::STRICTATIME, false),
    ("relatime", MountFlags::RELATIME, true),
    ("norelatime", MountFlags::RELATIME, false),
];

/// Those that say how access times are kept. A remount without any of them leaves that as it is.
const ATIME: MountFlags = READS.union(MountFlags::NODIRATIME);

/// Those of which one holds.
const READS: MountFlags =
    MountFlags::NOATIME.union(MountFlags::STRICTATIME).union(MountFlags::RELATIME);

/// Does what `word` says; whether it is such a word. What is said last holds: mount(8) puts what is
/// new behind what is so.
pub(super) fn apply(flags: &mut MountFlags, word: &str) -> bool {
    let Some((_, flag, on)) = WORDS.iter().find(|(known, ..)| *known == word) else { return false };
    if *on && READS.contains(*flag) {
        flags.remove(READS);
    }
    flags.set(*flag, *on);
    true
}

/// The same for the words of access times.
pub(super) fn apply_atime(flags: &mut MountFlags, word: &str) -> bool {
    WORDS.iter().any(|(known, flag, _)| *known == word && ATIME.contains(*flag))
        && apply(flags, word)
}

/// How a mount with these flags keeps access times.
pub(super) fn access_times(flags: MountFlags) -> AccessTimes {
    let reads = if flags.contains(MountFlags::RDONLY) {
        Reads::Never
    } else if flags.contains(MountFlags::STRICTATIME) {
        Reads::Always
    } else if flags.contains(MountFlags::NOATIME) {
        Reads::Never
    } else {
        Reads::Relative
    };
    AccessTimes { reads, dirs: !flags.contains(MountFlags::NODIRATIME) }
}

/// The same of a mount that the kernel's table shows with these words.
pub(super) fn shown(words: &[String]) -> AccessTimes {
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let reads = match () {
        () if has("ro") || has("noatime") => Reads::Never,
        () if has("relatime") => Reads::Relative,
        () => Reads::Always,
    };
    AccessTimes { reads, dirs: !has("nodiratime") }
}

/// As a parameter shows it.
pub(super) fn text(access_times: AccessTimes) -> String {
    let reads = match access_times.reads {
        Reads::Never => "noatime",
        Reads::Relative => "relatime",
        Reads::Always => "strictatime",
    };
    format!("{reads}{}", if access_times.dirs { "" } else { ",nodiratime" })
}

/// From what [`text`] gives.
pub(super) fn parse(text: &str) -> Result<AccessTimes, String> {
    let mut flags = MountFlags::empty();
    if text.trim().split(',').all(|word| apply_atime(&mut flags, word)) {
        Ok(access_times(flags))
    } else {
        Err("expected noatime, relatime or strictatime, and nodiratime behind a comma".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(words: &str) -> AccessTimes {
        let mut flags = MountFlags::empty();
        assert!(words.split(',').all(|word| apply(&mut flags, word)), "{words}");
        access_times(flags)
    }

    #[test]
    fn access_times_are_kept_as_mount_8_says() {
        assert_eq!(kept("rw,relatime"), AccessTimes::default());
        assert_eq!(kept("noatime").reads, Reads::Never);
        assert_eq!(kept("noatime,strictatime").reads, Reads::Always);
        assert_eq!(kept("strictatime,noatime").reads, Reads::Never);
        assert_eq!(kept("noatime,relatime").reads, Reads::Relative);
        assert_eq!(kept("noatime,atime").reads, Reads::Relative);
        assert_eq!(kept("strictatime,nostrictatime").reads, Reads::Relative);
        assert_eq!(kept("strictatime,ro").reads, Reads::Never);
        assert_eq!(
            kept("strictatime,nodiratime"),
            AccessTimes { reads: Reads::Always, dirs: false }
        );
    }

    #[test]
    fn the_kernels_table_and_the_parameter_tell_it() {
        for (table, parameter) in [
            ("rw,nosuid,relatime,rw,user_id=0", "relatime"),
            ("rw,noatime,rw", "noatime"),
            ("rw,nodiratime,rw", "strictatime,nodiratime"),
            ("rw,relatime,ro", "noatime"),
        ] {
            let words: Vec<_> = table.split(',').map(str::to_owned).collect();
            assert_eq!(text(shown(&words)), parameter, "{table}");
            assert_eq!(parse(&format!("{parameter}\n")), Ok(shown(&words)));
        }
        assert!(parse("ro").is_err() && parse("").is_err() && parse("noatime ").is_ok());
    }

    #[test]
    fn only_words_of_access_times_are_taken_as_such() {
        let mut flags = MountFlags::empty();
        assert!(apply_atime(&mut flags, "noatime") && apply_atime(&mut flags, "relatime"));
        assert!(!apply_atime(&mut flags, "ro") && !apply_atime(&mut flags, "bogus"));
        assert_eq!(flags, MountFlags::RELATIME);
    }

    /// Access times that are accepted print as a text that means the same.
    fn accepts(input: &[u8]) -> bool {
        const WORDS: &[&str] = &[
            ",",
            ",",
            " ",
            "noatime",
            "atime",
            "relatime",
            "norelatime",
            "strictatime",
            "nostrictatime",
            "nodiratime",
            "diratime",
            "ro",
            "no",
        ];
        let word = |byte: &u8| WORDS[usize::from(*byte) % WORDS.len()];
        let Ok(times) = parse(&input.iter().map(word).collect::<String>()) else { return false };
        assert_eq!(parse(&text(times)), Ok(times));
        true
    }

    /// Fuzz target: access times mean what they print.
    #[test]
    fn access_times_text() {
        assert!(accepts(&[3, 0, 9]), "noatime,nodiratime are access times");
        let inputs = bolero::produce::<Vec<u8>>().with().len(0..=12);
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .with_generator(inputs)
            .for_each(|input: &Vec<u8>| _ = accepts(input));
    }
}
