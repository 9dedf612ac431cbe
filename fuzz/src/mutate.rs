//! Inputs near valid ones.

use types::SplitMix64;

/// Inputs kept at most; beyond that a random one is replaced.
const CORPUS_MAX: usize = 256;
/// Bytes of an input at most.
const INPUT_BYTES_MAX: usize = 64 << 10;

pub(crate) struct Mutator {
    chance: SplitMix64,
    corpus: Vec<Vec<u8>>,
}

impl Mutator {
    pub(crate) fn new(seed: u64, mut corpus: Vec<Vec<u8>>) -> Mutator {
        corpus.push(Vec::new());
        Mutator { chance: SplitMix64::new(seed), corpus }
    }

    fn random(&mut self) -> u64 {
        self.chance.bits()
    }

    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.random() % bound as u64) as usize }
    }

    pub(crate) fn next_input(&mut self) -> Vec<u8> {
        let pick = self.below(self.corpus.len());
        let mut input = self.corpus[pick].clone();
        for _ in 0..=self.below(6) {
            self.mutate(&mut input);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    /// Remembers an input that a decoder accepted.
    pub(crate) fn keep(&mut self, input: Vec<u8>) {
        if !self.random().is_multiple_of(64) {
            return;
        }
        if self.corpus.len() < CORPUS_MAX {
            self.corpus.push(input);
        } else {
            let slot = self.below(CORPUS_MAX);
            self.corpus[slot] = input;
        }
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len().max(1));
        match self.below(8) {
            0 if !input.is_empty() => input[at] ^= 1 << self.below(8),
            1 if !input.is_empty() => input[at] = self.random() as u8,
            2 => input.truncate(at),
            3 => {
                let extra = self.below(64);
                input.extend((0..extra).map(|byte| byte as u8));
            }
            4 => self.plant_integer(input, at),
            5 if input.len() > 1 => {
                let end = at + self.below(input.len() - at);
                input.drain(at..end);
            }
            6 => {
                let pick = self.below(self.corpus.len());
                let other = self.corpus[pick].clone();
                let from = self.below(other.len().max(1)).min(other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let byte = self.random() as u8;
                input.insert(at.min(input.len()), byte);
            }
        }
    }

    /// Overwrites 1 to 8 bytes with a value at the edge of its type.
    fn plant_integer(&mut self, input: &mut [u8], at: usize) {
        const EDGES: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];
        let value = EDGES[self.below(EDGES.len())].to_le_bytes();
        let width = 1 << self.below(4);
        for (slot, byte) in input.iter_mut().skip(at).take(width).zip(value) {
            *slot = byte;
        }
    }
}
