//! Where the blocks of a GPFS file lie. Input: what `gpfs_fcntl` answers.
#![no_main]

use carrack_fuzz::layouts::gpfs_answer;
use carrack_layout::formats::parse_blocks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(blocks) = parse_blocks(data) else { return };
    assert!(blocks.block_bytes > 0 && blocks.blocks.len() * 12 <= data.len());
    assert_eq!(parse_blocks(&gpfs_answer(&blocks)), Ok(blocks));
});
