//! CRC-32C, the checksum of frames and records (RFC 3720, appendix B.4; Castagnoli's polynomial
//! 0x1EDC6F41, reflected), by carry-less multiplication where the processor has it.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `data`.
#[must_use]
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// The checksum of what has the checksum `sum`, followed by `data`.
#[must_use]
pub fn crc32c_append(sum: u32, data: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!sum));
    digest.update(data);
    digest.finalize() as u32 // the upper half is zero
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn published_examples() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        // RFC 3720, appendix B.4
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&rising), 0x46DD_794E);
        assert_eq!(crc32c(b""), 0);
    }

    /// One bit at a time.
    fn slow(data: &[u8]) -> u32 {
        !data.iter().fold(!0, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
                (sum >> 1) ^ if sum & 1 == 1 { 0x82F6_3B78 } else { 0 }
            })
        })
    }

    proptest! {
        #[test]
        fn it_is_the_slow_one(data in proptest::collection::vec(any::<u8>(), 0..5_000), cut: usize) {
            prop_assert_eq!(crc32c(&data), slow(&data));
            let (head, tail) = data.split_at(cut % (data.len() + 1));
            prop_assert_eq!(crc32c_append(crc32c(head), tail), slow(&data));
        }
    }
}
