//! The check of an object's body: computed after the read, compared before the write.
//!
//! | checksum | object | bundle |
//! | --- | --- | --- |
//! | none | zeros | zeros |
//! | xxh3 | XXH3-128 of the body | XXH3-128 of the body |
//! | blake3 | chaining value of its subtree; BLAKE3 of several | BLAKE3 of the table with the files' BLAKE3 |

use carrack_journal::{Blake3Subtree, FileDigestError, hash_subtrees};
use carrack_model::{ByteRange, ObjectChecksumAlgorithm};
use twox_hash::XxHash3_128;

/// Returns the check of a bundle's body, which ends with `table_len` bytes of table.
pub(crate) fn bundle_check(checksum: ObjectChecksumAlgorithm, body: &[u8], table_len: usize) -> [u8; 32] {
    match checksum {
        ObjectChecksumAlgorithm::None => [0; 32],
        ObjectChecksumAlgorithm::Xxh3 => xxh3(body),
        ObjectChecksumAlgorithm::Blake3 => *blake3::hash(&body[body.len() - table_len..]).as_bytes(),
    }
}

/// The check of an object, and with BLAKE3 the subtrees from which it was computed.
pub(crate) struct ObjectChecksumValue {
    /// The value in the frame's header.
    pub(crate) value: [u8; 32],
    /// With BLAKE3, for the file's digest.
    pub(crate) subtrees: Vec<Blake3Subtree>,
}

/// Returns the check of `body`, which is `range` of a file of `file_size` bytes. The size is `None` for a
/// partial transfer, which has no file digest.
pub(crate) fn object_check(
    checksum: ObjectChecksumAlgorithm,
    range: ByteRange,
    body: &[u8],
    file_size: Option<u64>,
) -> Result<ObjectChecksumValue, FileDigestError> {
    let value = match (checksum, file_size) {
        (ObjectChecksumAlgorithm::None, _) => [0; 32],
        (ObjectChecksumAlgorithm::Xxh3, _) => xxh3(body),
        (ObjectChecksumAlgorithm::Blake3, None) => *blake3::hash(body).as_bytes(),
        (ObjectChecksumAlgorithm::Blake3, Some(file_size)) => {
            let subtrees: Vec<Blake3Subtree> = hash_subtrees(range.offset, body, file_size)?.collect();
            return Ok(ObjectChecksumValue { value: combine(&subtrees), subtrees });
        }
    };
    Ok(ObjectChecksumValue { value, subtrees: Vec::new() })
}

fn combine(subtrees: &[Blake3Subtree]) -> [u8; 32] {
    match subtrees {
        [only] => only.value,
        several => {
            let mut hasher = blake3::Hasher::new();
            several.iter().for_each(|subtree| {
                hasher.update(&subtree.value);
            });
            *hasher.finalize().as_bytes()
        }
    }
}

/// Returns XXH3-128, followed by zeros.
pub(crate) fn xxh3(body: &[u8]) -> [u8; 32] {
    let mut value = [0; 32];
    value[..16].copy_from_slice(&XxHash3_128::oneshot(body).to_le_bytes());
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flipped_bit_is_noticed() {
        for checksum in [ObjectChecksumAlgorithm::Xxh3, ObjectChecksumAlgorithm::Blake3] {
            let mut body = vec![7; 300_032];
            let before = checks(checksum, &body);
            body[123_456] ^= 4;
            let after = checks(checksum, &body);
            assert!(before[0] != after[0] && before[1] != after[1]);
        }
    }

    /// The checks of a whole file, and of a part of another one.
    fn checks(checksum: ObjectChecksumAlgorithm, body: &[u8]) -> [[u8; 32]; 2] {
        let len = body.len() as u64;
        [(0, Some(len)), (7, None)].map(|(offset, file_size)| {
            object_check(checksum, ByteRange::new(offset, len), body, file_size).unwrap().value
        })
    }

    #[test]
    fn the_checks_of_the_format_document() {
        // XXH3-128 of "abc" with seed 0, low half first: 0x06b05ab6733a618578af5f94892f3950.
        let check = bundle_check(ObjectChecksumAlgorithm::Xxh3, b"abc", 0);
        assert_eq!(check[..16], 0x06b0_5ab6_733a_6185_78af_5f94_892f_3950_u128.to_le_bytes());
        assert_eq!(check[16..], [0; 16]);
    }

    #[test]
    fn a_bundle_is_checked_with_its_table() {
        let body = [1, 2, 3, 4, 5];
        for checksum in [ObjectChecksumAlgorithm::Xxh3, ObjectChecksumAlgorithm::Blake3] {
            assert_ne!(bundle_check(checksum, &body, 2), bundle_check(checksum, &[1, 2, 3, 4, 6], 2));
        }
        assert_eq!(bundle_check(ObjectChecksumAlgorithm::None, &body, 2), [0; 32]);
    }
}
