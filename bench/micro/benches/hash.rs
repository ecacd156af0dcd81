//! The checksums of objects: XXH3-128 as the engine calls it, and BLAKE3 chaining values as `carrack-journal`
//! computes them.
//!
//! *hot* hashes one buffer again and again; *cycling* takes buffers in turn that exceed the L2 cache
//! together.

mod common;

use std::hint::black_box;

use carrack_bench::{Buffers, xxh3};
use carrack_journal::{Blake3Subtree, hash_subtrees};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Bytes: a small file, a file-to-file block of `limits`, the default slot.
const SIZES: [usize; 3] = [4 << 10, 256 << 10, 1 << 20];

/// BLAKE3's chaining value depends on the object's offset in the file; every offset costs the same.
const FILE_BYTES: u64 = 1 << 40;

fn hash(criterion: &mut Criterion) {
    measure(criterion, "hash/xxh3-128", |body| {
        black_box(xxh3(black_box(body)));
    });
    measure(criterion, "hash/blake3-subtrees", |body| {
        let values: Vec<Blake3Subtree> = object_subtrees(black_box(body));
        black_box(values);
    });
}

fn object_subtrees(body: &[u8]) -> Vec<Blake3Subtree> {
    hash_subtrees(FILE_BYTES / 2, body, FILE_BYTES).expect("the offset is a multiple of a chunk").collect()
}

fn measure(criterion: &mut Criterion, name: &str, work: impl Fn(&[u8])) {
    let mut group = criterion.benchmark_group(name);
    for size_bytes in SIZES {
        group.throughput(Throughput::Bytes(size_bytes as u64));
        for (state, mut buffers) in
            [("hot", Buffers::hot(size_bytes)), ("cycling", Buffers::cycling(size_bytes))]
        {
            let id = BenchmarkId::new(state, format!("{} KiB", size_bytes >> 10));
            group.bench_function(id, |bencher| bencher.iter(|| work(buffers.turn())));
        }
    }
    group.finish();
}

criterion_group! { name = benches; config = common::config(); targets = hash }
criterion_main!(benches);
