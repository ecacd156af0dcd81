//! The common part of the micro-benchmarks and `limits`: the engine's hash, generated contents, buffers in
//! and out of the cache.

use twox_hash::XxHash3_128;

/// Fewest buffers of [`Buffers::cycling`]: as many objects as are in flight in a steady transfer.
const CYCLE_COUNT_MIN: usize = 32;

/// Fewest bytes of [`Buffers::cycling`]: several times a core's L2 cache (0.5 to 2 MiB on today's servers).
/// The last-level cache may well hold them, as it holds a slot that was just read into.
const CYCLE_BYTES_MIN: usize = 8 << 20;

/// XXH3-128 (seed 0) by the same function that carrack-engine's `object_checksum.rs` calls for objects and bundles.
///
/// That module is private to the engine. A change of the hash there must be repeated here.
pub fn xxh3(body: &[u8]) -> u128 {
    XxHash3_128::oneshot(body)
}

/// Returns `len` incompressible bytes, the same for the same seed (SplitMix64).
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Equal buffers that are used in turn: one, which stays in the cache, or more than the L2 cache holds.
pub struct Buffers {
    buffers: Vec<Vec<u8>>,
    next_index: usize,
}

impl Buffers {
    /// Creates one buffer of `buffer_bytes`: hot.
    pub fn hot(buffer_bytes: usize) -> Buffers {
        Buffers::new(1, buffer_bytes)
    }

    /// Creates at least 32 buffers of `buffer_bytes`, and at least 8 MiB in all: out of the L2 cache when
    /// their turn comes.
    pub fn cycling(buffer_bytes: usize) -> Buffers {
        Buffers::new(CYCLE_COUNT_MIN.max(CYCLE_BYTES_MIN.div_ceil(buffer_bytes)), buffer_bytes)
    }

    fn new(count: usize, buffer_bytes: usize) -> Buffers {
        let buffers = (0..count as u64).map(|index| noise(buffer_bytes, index)).collect();
        Buffers { buffers, next_index: 0 }
    }

    /// Returns the buffer whose turn it is.
    pub fn turn(&mut self) -> &mut Vec<u8> {
        let index = self.next_index;
        self.next_index = (index + 1) % self.buffers.len();
        &mut self.buffers[index]
    }

    /// Returns the number of buffers.
    pub fn count(&self) -> usize {
        self.buffers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_format_document() {
        // XXH3-128 of "abc" with seed 0; carrack-engine's check.rs has the same example.
        assert_eq!(xxh3(b"abc"), 0x06b0_5ab6_733a_6185_78af_5f94_892f_3950);
    }

    #[test]
    fn cycling_buffers_exceed_the_cache_and_come_round() {
        let mut buffers = Buffers::cycling(4096);
        assert_eq!(
            (buffers.count(), Buffers::cycling(1 << 20).count(), Buffers::hot(7).count()),
            (2048, 32, 1)
        );
        let first = buffers.turn().clone();
        assert_ne!(*buffers.turn(), first);
        for _ in 2..buffers.count() {
            buffers.turn();
        }
        assert_eq!(*buffers.turn(), first);
    }
}
