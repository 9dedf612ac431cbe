//! The common loop of every target, and its bounds.

use std::path::PathBuf;
use std::time::Duration;

use bolero::TestTarget;

use crate::mutated::Mutated;

/// Environment variable with the folder that [`Target::check_seeds`] writes the seeds to:
/// libFuzzer starts from files.
const SEEDS_DIR: &str = "NACRE_FUZZ_SEEDS";

/// Work of one pass in an ordinary test run; the environment variables `BOLERO_RANDOM_ITERATIONS`
/// and `BOLERO_RANDOM_TEST_TIME_MS` replace it.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    iterations: usize,
    time: Duration,
}

/// Random bytes seldom pass a decoder's first check, so a few are enough. The kept corpus is part
/// of this pass and is checked first.
pub(crate) const RANDOM: Bound = Bound { iterations: 2_000, time: Duration::from_millis(500) };
/// Mutations of valid inputs.
pub(crate) const MUTATED: Bound = Bound { iterations: 500_000, time: Duration::from_secs(1) };

/// `check` with the bounds of one pass.
pub(crate) fn bounded<G, O>(
    check: TestTarget<G, bolero::DefaultEngine, O>,
    bound: Bound,
) -> TestTarget<G, bolero::DefaultEngine, O> {
    check.with_iterations(bound.iterations).with_test_time(bound.time)
}

/// Folder of the kept corpora, one folder per target. The name is bolero's.
pub(crate) fn kept_root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/__fuzz__"))
}

/// A decoder under test.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) seeds: fn() -> Vec<Vec<u8>>,
    pub(crate) check: fn(&[u8]) -> bool,
}

impl Target {
    /// Every seed is accepted: a target whose seeds are refused would only test the refusal.
    pub(crate) fn check_seeds(&self) {
        let seeds = (self.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", self.name);
        for (index, seed) in seeds.iter().enumerate() {
            self.write_seed(index, seed);
            assert!(
                (self.check)(seed),
                "{} refuses its seed {index}: {:?}",
                self.name,
                String::from_utf8_lossy(seed)
            );
        }
    }

    fn write_seed(&self, index: usize, seed: &[u8]) {
        let Some(dir) = std::env::var_os(SEEDS_DIR) else { return };
        let dir = PathBuf::from(dir).join(self.name);
        std::fs::create_dir_all(&dir).expect("the folder of the seeds can be made");
        std::fs::write(dir.join(format!("seed-{index:03}")), seed).expect("a seed can be written");
    }

    /// Apart from `name`, because the files of that corpus are inputs and not choices of a
    /// generator.
    pub(crate) fn mutated_name(&self) -> String {
        format!("{}/mutated", self.name)
    }

    /// Mutations of the seeds and of the kept corpus.
    pub(crate) fn mutated(&self) -> Mutated {
        let mut inputs = (self.seeds)();
        let kept = std::fs::read_dir(kept_root().join(self.name).join("corpus"));
        let mut paths: Vec<_> = kept
            .into_iter()
            .flatten()
            .map(|entry| entry.expect("a readable corpus").path())
            .collect();
        paths.sort_unstable();
        inputs.extend(paths.iter().map(|path| std::fs::read(path).expect("a readable input")));
        Mutated::new(inputs)
    }
}
