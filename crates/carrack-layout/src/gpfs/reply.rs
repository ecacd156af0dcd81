//! The request and reply of `gpfs_fcntl` for the disks of a file's blocks.
//!
//! Pure: bytes in (in the host's byte order), values out. After `gpfs_fcntl.h`: a header
//! (`gpfsFcntlHeader_t`), then one item (`gpfsGetDataBlkDiskIdx_t`).

use thiserror::Error;

/// Largest argument (`GPFS_MAX_FCNTL_LENGTH`).
pub const ARGUMENT_BYTES: usize = 65_536;

/// `GPFS_FCNTL_CURRENT_VERSION`.
const VERSION: i32 = 1;

/// `GPFS_FCNTL_GET_DATABLKLOC`.
const GET_DATABLKLOC: i32 = 3_006;

/// Offset of the item, behind the header.
const ITEM_OFFSET: usize = 16;

/// Offset of `FilemapIn`, behind the item's length and type.
const IN_OFFSET: usize = ITEM_OFFSET + 8;

/// Offset of `FilemapOut`, behind three numbers of eight bytes and two of four.
const OUT_OFFSET: usize = IN_OFFSET + 32;

/// Offset of the blocks, behind four numbers.
const BLOCKS_OFFSET: usize = OUT_OFFSET + 16;

/// Bound of the copies of a block in GPFS.
const REPLICAS_MAX: usize = 4;

/// The disks of some of a file's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpfsBlocks {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// The offset in the file of each block, and the disk of its first copy; none for a hole.
    pub blocks: Vec<(u64, Option<u32>)>,
}

/// The reason why a reply is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GpfsReplyError {
    /// The reply is shorter than announced.
    #[error("the answer is cut off")]
    CutOff,
    /// GPFS refused the request, with the offset of the refused item.
    #[error("refused at offset {0}")]
    Refused(i32),
    /// Blocks of zero bytes, or a negative count.
    #[error("a number that can't be")]
    BadNumber,
}

/// The argument that queries all blocks from `start` on, as far as they fit.
pub fn block_request(start: u64, length: u64) -> Vec<u8> {
    let mut argument = vec![0; ARGUMENT_BYTES];
    put(&mut argument, 0, &(ARGUMENT_BYTES as i32).to_ne_bytes());
    put(&mut argument, 4, &VERSION.to_ne_bytes());
    put(&mut argument, ITEM_OFFSET, &((ARGUMENT_BYTES - ITEM_OFFSET) as i32).to_ne_bytes());
    put(&mut argument, ITEM_OFFSET + 4, &GET_DATABLKLOC.to_ne_bytes());
    put(&mut argument, IN_OFFSET, &signed(start));
    put(&mut argument, IN_OFFSET + 16, &signed(length));
    put(&mut argument, IN_OFFSET + 24, &1i32.to_ne_bytes());
    argument
}

fn put(argument: &mut [u8], offset: usize, bytes: &[u8]) {
    argument[offset..offset + bytes.len()].copy_from_slice(bytes);
}

fn signed(number: u64) -> [u8; 8] {
    i64::try_from(number).unwrap_or(i64::MAX).to_ne_bytes()
}

/// Parses the reply to [`block_request`].
///
/// # Errors
/// [`GpfsReplyError`].
pub fn parse_blocks(argument: &[u8]) -> Result<GpfsBlocks, GpfsReplyError> {
    match i32_at(argument, 8)? {
        0 => {}
        offset => return Err(GpfsReplyError::Refused(offset)),
    }
    let (replicas, blocks) = (count_at(argument, OUT_OFFSET)?, count_at(argument, OUT_OFFSET + 4)?);
    let low = i32_at(argument, OUT_OFFSET + 8)? as u32;
    let high = i32_at(argument, OUT_OFFSET + 12)? as u32;
    let block_bytes = u64::from(high) << 32 | u64::from(low);
    if block_bytes == 0 || !(1..=REPLICAS_MAX).contains(&replicas) {
        return Err(GpfsReplyError::BadNumber);
    }
    let record_bytes = 8 + 4 * replicas;
    let end = blocks.checked_mul(record_bytes).and_then(|bytes| bytes.checked_add(BLOCKS_OFFSET));
    let end = end.ok_or(GpfsReplyError::CutOff)?;
    let records = argument.get(BLOCKS_OFFSET..end).ok_or(GpfsReplyError::CutOff)?;
    let blocks = records.chunks_exact(record_bytes).map(parse_block).collect::<Result<_, _>>()?;
    Ok(GpfsBlocks { block_bytes, blocks })
}

fn parse_block(record: &[u8]) -> Result<(u64, Option<u32>), GpfsReplyError> {
    let offset = record.first_chunk().ok_or(GpfsReplyError::CutOff)?;
    let offset = u64::try_from(i64::from_ne_bytes(*offset)).map_err(|_| GpfsReplyError::BadNumber)?;
    Ok((offset, u32::try_from(i32_at(record, 8)?).ok()))
}

fn count_at(bytes: &[u8], offset: usize) -> Result<usize, GpfsReplyError> {
    usize::try_from(i32_at(bytes, offset)?).map_err(|_| GpfsReplyError::BadNumber)
}

fn i32_at(bytes: &[u8], offset: usize) -> Result<i32, GpfsReplyError> {
    let number = bytes.get(offset..).and_then(|rest| rest.first_chunk()).ok_or(GpfsReplyError::CutOff)?;
    Ok(i32::from_ne_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A reply with two copies of each block.
    fn answer(block_bytes: u64, blocks: &[(i64, i32)]) -> Vec<u8> {
        let mut argument = block_request(0, 1 << 40);
        argument.truncate(OUT_OFFSET);
        argument.extend(2i32.to_ne_bytes());
        argument.extend((blocks.len() as i32).to_ne_bytes());
        argument.extend((block_bytes as u32).to_ne_bytes());
        argument.extend(((block_bytes >> 32) as u32).to_ne_bytes());
        for (offset, disk) in blocks {
            argument.extend(offset.to_ne_bytes());
            argument.extend(disk.to_ne_bytes());
            argument.extend((disk + 100).to_ne_bytes());
        }
        argument
    }

    #[test]
    fn the_request_has_the_items_of_the_header() {
        let request = block_request(8 << 20, 1 << 30);
        let numbers: Vec<i32> = (0..14).map(|n| i32_at(&request, 4 * n).unwrap()).collect();
        let expected = [65_536, 1, 0, 0, 65_520, 3_006, 8 << 20, 0, 0, 0, 1 << 30, 0, 1, 0];
        #[cfg(target_endian = "little")]
        assert_eq!(numbers, expected);
        assert_eq!((numbers.len(), request.len()), (expected.len(), ARGUMENT_BYTES));
    }

    #[test]
    fn blocks_lie_on_their_first_copys_disk() {
        let blocks = parse_blocks(&answer(1 << 33, &[(0, 4), (1 << 33, -1)])).unwrap();
        assert_eq!(blocks, GpfsBlocks { block_bytes: 1 << 33, blocks: vec![(0, Some(4)), (1 << 33, None)] });
    }

    #[test]
    fn lies_are_refused() {
        let good = answer(1 << 22, &[(0, 4)]);
        assert!((0..good.len()).all(|len| parse_blocks(&good[..len]) == Err(GpfsReplyError::CutOff)));
        assert_eq!(parse_blocks(&answer(0, &[])), Err(GpfsReplyError::BadNumber));
        assert_eq!(parse_blocks(&answer(1, &[(-1, 0)])), Err(GpfsReplyError::BadNumber));
        let mut refused = good;
        refused[8..12].copy_from_slice(&16i32.to_ne_bytes());
        assert_eq!(parse_blocks(&refused), Err(GpfsReplyError::Refused(16)));
    }

    proptest! {
        #[test]
        fn anything_is_an_answer_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), count: u8) {
            if bytes.len() >= BLOCKS_OFFSET {
                bytes[8..12].fill(0);
                bytes[OUT_OFFSET..OUT_OFFSET + 8].copy_from_slice(&[1i32, i32::from(count % 20)].map(i32::to_ne_bytes).concat());
            }
            if let Ok(blocks) = parse_blocks(&bytes) {
                prop_assert!(blocks.blocks.len() * 12 <= bytes.len());
            }
        }
    }
}
