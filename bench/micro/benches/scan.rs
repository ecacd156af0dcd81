//! The parallel scan over a generated tree in memory: the cost of listing and stat without waiting for a
//! disk.

mod common;

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use carrack_model::RelPath;
use carrack_storage::{RootDirectory, ScanRoot, ScanRootScope, ScannedItem, SourceScan};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tempfile::TempDir;

/// The directory for a tree in memory on Linux.
const TMPFS: &str = "/dev/shm";

/// The tree: 20,000 empty files, 100 in each directory.
const DIRECTORIES: usize = 200;
const FILES_PER_DIRECTORY: usize = 100;

fn scan(criterion: &mut Criterion) {
    let tree = make_tree().expect("there is room for 20,000 empty files");
    let root = Arc::new(RootDirectory::open(tree.path()).expect("the tree is there"));
    let mut group = criterion.benchmark_group("scan/20,000 files");
    group.throughput(Throughput::Elements((DIRECTORIES * FILES_PER_DIRECTORY) as u64));
    for threads in [1, 2] {
        let what = ScanRootScope::Tree { sink: RelPath::new(b"").expect("the root's path is empty") };
        let scan = SourceScan {
            roots: vec![ScanRoot { root: Arc::clone(&root), what }],
            threads,
            destination: None,
            extras: None,
            filter: None,
            record: None,
        };
        assert_eq!(count_entries(&scan), DIRECTORIES * FILES_PER_DIRECTORY);
        group.bench_function(BenchmarkId::new("threads", threads), |bencher| {
            bencher.iter(|| count_entries(&scan));
        });
    }
    group.finish();
}

fn make_tree() -> io::Result<TempDir> {
    let builder = tempfile::Builder::new().prefix("carrack-bench.").to_owned();
    let tree = if Path::new(TMPFS).is_dir() { builder.tempdir_in(TMPFS)? } else { builder.tempdir()? };
    for directory in 0..DIRECTORIES {
        let directory = tree.path().join(format!("directory{directory:03}"));
        fs::create_dir(&directory)?;
        for file in 0..FILES_PER_DIRECTORY {
            File::create(directory.join(format!("file{file:02}.txt")))?;
        }
    }
    Ok(tree)
}

/// Returns the number of entries that the scan finds, without failures.
fn count_entries(scan: &SourceScan) -> usize {
    let count = AtomicUsize::new(0);
    scan.run(&|found| {
        if let ScannedItem::Section(section, _) = &found {
            count.fetch_add(section.entries.len(), Ordering::Relaxed);
        }
        ControlFlow::Continue(())
    });
    count.into_inner()
}

criterion_group! { name = benches; config = common::config(); targets = scan }
criterion_main!(benches);
