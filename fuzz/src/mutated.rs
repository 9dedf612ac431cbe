//! Mutations of valid inputs.

use bolero::{Driver, ValueGenerator};

/// Changes made to one input at most.
const CHANGES_MAX: usize = 6;
/// Bytes of an input at most.
const INPUT_BYTES_MAX: usize = 64 << 10;
/// Values at the edges of the integer types.
const EDGES: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// Takes one of its inputs and changes it: bit flips, cuts, splices, integers at an edge.
#[derive(Debug)]
pub(crate) struct Mutated {
    inputs: Vec<Vec<u8>>,
}

impl Mutated {
    pub(crate) fn new(mut inputs: Vec<Vec<u8>>) -> Mutated {
        inputs.push(Vec::new());
        Mutated { inputs }
    }

    fn change<D: Driver>(&self, driver: &mut D, input: &mut Vec<u8>) -> Option<()> {
        let at = below(driver, input.len())?;
        match below(driver, 8)? {
            0 if !input.is_empty() => input[at] ^= 1 << below(driver, 8)?,
            1 if !input.is_empty() => input[at] = driver.produce()?,
            2 => input.truncate(at),
            3 => {
                let extra = below(driver, 64)?;
                input.extend((0..extra).map(|byte| byte as u8));
            }
            4 => plant_integer(driver, input, at)?,
            5 if input.len() > 1 => {
                let end = at + below(driver, input.len() - at)?;
                input.drain(at..end);
            }
            6 => {
                let other = &self.inputs[below(driver, self.inputs.len())?];
                let from = below(driver, other.len())?;
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => input.insert(at, driver.produce()?),
        }
        Some(())
    }
}

impl ValueGenerator for Mutated {
    type Output = Vec<u8>;

    fn generate<D: Driver>(&self, driver: &mut D) -> Option<Vec<u8>> {
        let mut input = self.inputs[below(driver, self.inputs.len())?].clone();
        for _ in 0..=below(driver, CHANGES_MAX)? {
            self.change(driver, &mut input)?;
        }
        input.truncate(INPUT_BYTES_MAX);
        Some(input)
    }
}

/// A number below `bound`; zero where there is none.
fn below<D: Driver>(driver: &mut D, bound: usize) -> Option<usize> {
    (0..bound.max(1)).generate(driver)
}

/// Overwrites 1 to 8 bytes.
fn plant_integer<D: Driver>(driver: &mut D, input: &mut [u8], at: usize) -> Option<()> {
    let value = EDGES[below(driver, EDGES.len())?].to_le_bytes();
    let width = 1 << below(driver, 4)?;
    for (slot, byte) in input.iter_mut().skip(at).take(width).zip(value) {
        *slot = byte;
    }
    Some(())
}
