//! Cutting: a large file into objects, small files into bundles. Pure computation, which runs on the thread
//! that takes the work.

mod common;

use std::hint::black_box;
use std::sync::Arc;

use carrack_model::limits::{BUNDLE_ENTRIES_MAX, SLOT_BYTES_DEFAULT};
use carrack_model::{
    CopiedDirectoryPaths, DirectorySection, Entry, EntryKind, FileId, Metadata, RelPath, TargetId,
};
use carrack_plan::{
    BundleLimits, BundleOrLargeFile, Bundler, FileCursor, Layout, SingleTarget, StripedLayout,
};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const FILE_BYTES: u64 = 1 << 40;
const OBJECT_BYTES: u64 = SLOT_BYTES_DEFAULT as u64;

/// A stripe of four objects on each of eight targets, as a large file on a parallel file system has them.
const STRIPE_BYTES: u64 = 4 * OBJECT_BYTES;
const STRIPE_TARGETS: u64 = 8;

/// 100,000 small entries, 100 in each directory.
const DIRECTORIES: usize = 1_000;
const ENTRIES_PER_DIRECTORY: usize = 100;

/// Largest size of the files: sizes are spread evenly from 0 to this; their mean is 16 KiB, as in the Linux
/// source tree.
const SMALL_BYTES_MAX: usize = 32 << 10;

fn cut(criterion: &mut Criterion) {
    let single: Arc<dyn Layout> = Arc::new(SingleTarget { target: TargetId(1) });
    let targets = (0..STRIPE_TARGETS).map(TargetId).collect();
    let striped: Arc<dyn Layout> =
        Arc::new(StripedLayout::new(targets, STRIPE_BYTES).expect("there are targets and a stripe size"));
    let mut group = criterion.benchmark_group("cut/1 TiB file into objects of 1 MiB");
    group.throughput(Throughput::Elements(FILE_BYTES / OBJECT_BYTES));
    for (name, layout) in [("single target", single), ("8 targets, stripes of 4 MiB", striped)] {
        group.bench_function(name, |bencher| bencher.iter(|| cut_all(&layout)));
    }
    group.finish();
}

/// Takes every object as the read queue does: first the target of the next object, then the object.
fn cut_all(layout: &Arc<dyn Layout>) -> u64 {
    let mut cursor = FileCursor::new(FileId(1), FILE_BYTES, Arc::clone(layout), OBJECT_BYTES);
    let mut sum_bytes = 0;
    while let Some(target) = cursor.peek_target() {
        black_box(target);
        sum_bytes += cursor.next().map_or(0, |object| object.range.len);
    }
    assert_eq!(sum_bytes, FILE_BYTES);
    sum_bytes
}

fn bundle(criterion: &mut Criterion) {
    let sections: Vec<DirectorySection> = (0..DIRECTORIES).map(section).collect();
    let mut group = criterion.benchmark_group("cut/100,000 small entries into bundles");
    group.throughput(Throughput::Elements((DIRECTORIES * ENTRIES_PER_DIRECTORY) as u64));
    group.bench_function("bundler", |bencher| {
        bencher.iter_batched(|| sections.clone(), bundle_all, BatchSize::LargeInput);
    });
    group.finish();
}

fn section(number: usize) -> DirectorySection {
    let path = RelPath::new(format!("tree/part{}/directory{number}", number % 10).as_bytes())
        .expect("the path is a plain one");
    let entries = (0..ENTRIES_PER_DIRECTORY).map(|index| entry(number * ENTRIES_PER_DIRECTORY + index));
    DirectorySection {
        directory: Arc::new(CopiedDirectoryPaths { root_index: 0, source: path.clone(), sink: path }),
        metadata: Some(Metadata { mode: 0o755, ..Metadata::default() }),
        extras: None,
        entries: entries.collect(),
    }
}

fn entry(number: usize) -> Entry {
    // Knuth's multiplier scatters the sizes.
    let size = (number.wrapping_mul(2_654_435_761) % (SMALL_BYTES_MAX + 1)) as u64;
    Entry {
        name: format!("file{number}.c").into_bytes().into(),
        source_name: None,
        kind: EntryKind::Regular { size },
        metadata: Metadata { mode: 0o644, ..Metadata::default() },
        identity: number as u64,
        extras: None,
    }
}

/// Returns the bundles, so that freeing them is not measured.
fn bundle_all(sections: Vec<DirectorySection>) -> Vec<BundleOrLargeFile> {
    let mut bundler = Bundler::new(BundleLimits {
        object_bytes: OBJECT_BYTES,
        slot_bytes: SLOT_BYTES_DEFAULT,
        entries_max: BUNDLE_ENTRIES_MAX,
    });
    let mut work = Vec::new();
    sections.into_iter().for_each(|section| bundler.add(section, &mut work));
    work.extend(bundler.finish().map(BundleOrLargeFile::Bundle));
    work
}

criterion_group! { name = benches; config = common::config(); targets = cut, bundle }
criterion_main!(benches);
