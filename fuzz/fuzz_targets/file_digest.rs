//! A file's digest, assembled from whatever a peer calls subtrees. Input: a mode (1 byte). Even: file size (2 bytes),
//! then ranges of 3 bytes: first chunk, chunks, how it ends; against a model that knows all subtrees. Odd: file size
//! (8 bytes), then ranges of 16 bytes of a file of any size.
#![no_main]

use carrack_fuzz::Input;
use carrack_journal::{CHUNK_BYTES, FileDigestError, FileDigestBuilder, Blake3Subtree, subtree_ranges, hash_subtrees};
use carrack_model::ByteRange;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    if input.byte() % 2 == 0 { small(&mut input) } else { huge(&mut input) }
});

fn small(input: &mut Input<'_>) {
    let Some(size) = input.take() else { return };
    let content: Vec<u8> = (0..u16::from_le_bytes(size)).map(|at| (at ^ (at >> 7)) as u8).collect();
    let size = content.len() as u64;
    let mut nodes = Vec::new();
    if size > 0 {
        all_subtrees(0, size, &mut nodes);
    }
    let mut digest = FileDigestBuilder::new(size);
    let mut added = vec![false; size.div_ceil(CHUNK_BYTES) as usize];
    while let Some([first, count, ending]) = input.take() {
        let offset = u64::from(first % 80) * CHUNK_BYTES + u64::from(ending == 255);
        let len = match ending % 4 {
            0 => size.saturating_sub(offset),
            1 => u64::from(count),
            _ => u64::from(count % 80) * CHUNK_BYTES,
        };
        let range = ByteRange::new(offset, len);
        let is_node = nodes.contains(&range);
        let value = if is_node { value_of(&content, range) } else { [ending; 32] };
        let chunks =
            (offset / CHUNK_BYTES) as usize..offset.saturating_add(len).div_ceil(CHUNK_BYTES) as usize;
        let expected = if offset + len > size {
            Err(FileDigestError::BeyondEnd(range, size))
        } else if !is_node {
            Err(FileDigestError::NotASubtree(range, size))
        } else if added[chunks.clone()].contains(&true) {
            Err(FileDigestError::Overlap(range))
        } else {
            added[chunks].fill(true);
            Ok(())
        };
        assert_eq!(digest.add(Blake3Subtree { range, value }), expected);
    }
    let expected = if added.contains(&false) {
        Err(FileDigestError::Incomplete(size))
    } else {
        Ok(*blake3::hash(&content).as_bytes())
    };
    assert_eq!(digest.finish(), expected);
}

/// Section 2.1 of the BLAKE3 paper.
fn all_subtrees(offset: u64, len: u64, found: &mut Vec<ByteRange>) {
    found.push(ByteRange::new(offset, len));
    if len > CHUNK_BYTES {
        let left_len = blake3::hazmat::left_subtree_len(len);
        all_subtrees(offset, left_len, found);
        all_subtrees(offset + left_len, len - left_len, found);
    }
}

fn value_of(content: &[u8], range: ByteRange) -> [u8; 32] {
    let piece = &content[range.offset as usize..][..range.len as usize];
    let mut found = hash_subtrees(range.offset, piece, content.len() as u64).expect("a subtree's range");
    let only = found.next().expect("a subtree");
    assert!(only.range == range && found.next().is_none(), "a subtree is one subtree");
    only.value
}

fn huge(input: &mut Input<'_>) {
    let Some(size) = input.take() else { return };
    let size = u64::from_le_bytes(size);
    let mut digest = FileDigestBuilder::new(size);
    let mut added: Vec<ByteRange> = Vec::new();
    while let (Some(offset), Some(len)) = (input.take(), input.take()) {
        let range = ByteRange::new(u64::from_le_bytes(offset), u64::from_le_bytes(len));
        if let Ok(pieces) = subtree_ranges(range, size) {
            let mut end = range.offset;
            for piece in pieces {
                assert_eq!(piece.offset, end);
                end += piece.len;
            }
            assert_eq!(Some(end), range.end());
        }
        if digest.add(Blake3Subtree { range, value: [1; 32] }).is_ok() {
            let end = range.end().expect("a range within a file");
            let overlaps = |held: &ByteRange| held.offset < end && range.offset < held.offset + held.len;
            assert!(end <= size && range.len > 0 && !added.iter().any(overlaps));
            added.push(range);
        }
    }
    let sum: u64 = added.iter().map(|range| range.len).sum();
    assert_eq!(digest.finish().is_ok(), sum == size);
}
