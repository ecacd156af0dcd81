//! The work of one thread without a network: copies in memory, hashes, reads, writes.

use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};

use anyhow::Result;
use carrack_bench::{Buffers, noise, xxh3};

use crate::kind::Local;
use crate::options::Sizes;
use crate::place::Place;
use crate::worker::Task;

/// Bytes of each of the two spans of a copy out of cache; no last-level cache holds them.
const SPAN_BYTES: u64 = 512 << 20;

/// Takes and touches the memory, and returns the task, which alone is measured.
pub fn prepare(local: Local, sizes: Sizes, place: Place) -> Task {
    let block_bytes = sizes.block_bytes as usize;
    match local {
        Local::CopyHot => copy_task(sizes, sizes.block_bytes),
        Local::CopyCold => copy_task(sizes, SPAN_BYTES.min(sizes.volume_bytes()).max(sizes.block_bytes)),
        Local::HashHot => hash_task(sizes, Buffers::hot(block_bytes)),
        Local::HashCycling => hash_task(sizes, Buffers::cycling(block_bytes)),
        Local::ReadFiles => {
            let mut block = noise(block_bytes, 0);
            Box::new(move || {
                (0..sizes.file_count)
                    .try_for_each(|index| read_file(File::open(place.source(index))?, &mut block))?;
                Ok(0)
            })
        }
        Local::WriteFiles => {
            let block = noise(block_bytes, 0);
            Box::new(move || {
                (0..sizes.file_count).try_for_each(|index| {
                    write_file(File::create_new(place.copy(index))?, &block, sizes.file_bytes)
                })?;
                Ok(0)
            })
        }
    }
}

/// Copies block after block from one span to another, and again until the volume is reached.
fn copy_task(sizes: Sizes, span_bytes: u64) -> Task {
    let (from, mut to) = (noise(span_bytes as usize, 0), vec![1; span_bytes as usize]);
    Box::new(move || {
        let mut left = sizes.volume_bytes();
        while left > 0 {
            let blocks =
                from.chunks(sizes.block_bytes as usize).zip(to.chunks_mut(sizes.block_bytes as usize));
            for (from, to) in blocks {
                let len = left.min(from.len() as u64);
                black_box(&mut to[..len as usize]).copy_from_slice(black_box(&from[..len as usize]));
                left -= len;
            }
        }
        black_box(&to);
        Ok(0)
    })
}

fn hash_task(sizes: Sizes, mut buffers: Buffers) -> Task {
    Box::new(move || {
        let (mut left, mut digest) = (sizes.volume_bytes(), 0_u128);
        while left > 0 {
            let len = left.min(sizes.block_bytes);
            digest = digest.wrapping_add(xxh3(&buffers.turn()[..len as usize]));
            left -= len;
        }
        Ok(digest)
    })
}

fn read_file(mut file: File, block: &mut [u8]) -> Result<()> {
    while file.read(block)? > 0 {
        black_box(&block);
    }
    Ok(())
}

fn write_file(mut file: File, block: &[u8], file_bytes: u64) -> Result<()> {
    let mut left = file_bytes;
    while left > 0 {
        let len = left.min(block.len() as u64);
        file.write_all(&block[..len as usize])?;
        left -= len;
    }
    Ok(())
}
