//! The journal: recording a bundle, opening a journal of a million files, and looking up whether a file is
//! complete.

use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsFd;

use carrack_journal::{EntryKey, Journal, JournalSubject, JournalWriterIdentity, RecordBatch};
use carrack_model::limits::BUNDLE_ENTRIES_MAX;
use carrack_model::{Metadata, RelPath, Timestamp, TransferExecutionId, TransferId};
use carrack_wire::EntryTableEncoder;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tempfile::TempDir;

/// Files of the journal that is opened.
const FILES: u64 = 1_000_000;

/// Files in one directory, and so in one section of a table.
const DIRECTORY_FILES: u64 = 64;

const ID: TransferId = TransferId([1; 16]);

/// Returns a directory on a disk if there is one: `/tmp` may be memory.
fn place() -> TempDir {
    tempfile::tempdir_in("/var/tmp").expect("a directory in /var/tmp")
}

fn session() -> JournalWriterIdentity {
    let run = TransferExecutionId([1; 16]);
    JournalWriterIdentity { run, boot: [2; 16], host: "bench".into(), pid: 1, pid_start: 1, soft: false }
}

fn create(place: &TempDir) -> Journal {
    let about = JournalSubject {
        id: ID,
        place: 0,
        sources: vec![b"source".to_vec()],
        destination: b"sink".to_vec(),
        root: b"/sink".to_vec(),
        software: "bench".into(),
        created: Timestamp::default(),
    };
    let directory = File::open(place.path()).expect("the directory");
    Journal::create(directory.as_fd(), &about, &session()).expect("a new journal")
}

fn directory(file: u64) -> RelPath {
    let path = format!("linux-6.1/drivers/net/ethernet/{}", file / DIRECTORY_FILES);
    RelPath::new(path.as_bytes()).expect("the path is a plain one")
}

fn metadata(file: u64) -> Metadata {
    let mtime = Timestamp { seconds: 1_700_000_000 + file as i64, nanoseconds: 5 };
    Metadata { mode: 0o644, mtime }
}

fn name(file: u64) -> String {
    format!("an_ordinary_name_{file}.c")
}

/// Returns the table of a bundle that begins with `file`.
fn table(file: u64) -> Vec<u8> {
    let mut table = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut table);
    for file in file..file + BUNDLE_ENTRIES_MAX as u64 {
        if file.is_multiple_of(DIRECTORY_FILES) {
            writer.begin_section(&directory(file), None);
        }
        writer.add_regular(name(file).as_bytes(), 16_384, &metadata(file), file + 1, None);
    }
    table
}

/// Measures appending without a sync, which depends on the disk.
fn append(criterion: &mut Criterion) {
    let place = place();
    let journal = create(&place);
    let table = table(0);
    let mut batch = RecordBatch::new();
    let mut group = criterion.benchmark_group("journal/a bundle of 512 files");
    group.throughput(Throughput::Elements(BUNDLE_ENTRIES_MAX as u64));
    group.bench_function("append", |bencher| {
        bencher.iter(|| {
            batch.clear();
            batch.add_small(black_box(&table));
            journal.append(&batch, false).expect("room in /var/tmp");
        });
    });
    group.finish();
}

fn resume(criterion: &mut Criterion) {
    let place = place();
    let journal = create(&place);
    for first in (0..FILES).step_by(BUNDLE_ENTRIES_MAX) {
        let mut batch = RecordBatch::new();
        batch.add_small(&table(first));
        journal.append(&batch, false).expect("room in /var/tmp");
    }
    drop(journal);
    let held = File::open(place.path()).expect("the directory");
    let open = || Journal::open(held.as_fd(), ID, &session()).expect("the journal").1;
    let mut group = criterion.benchmark_group("journal/1,000,000 files");
    group.sample_size(10);
    group.bench_function("open", |bencher| bencher.iter(open));
    let recovered = open();
    let is_done = |file: u64| {
        let name = name(file);
        let Metadata { mtime, .. } = metadata(file);
        let key = EntryKey { name: name.as_bytes(), size: 16_384, mtime, identity: file + 1, target: None };
        recovered.is_done(&directory(file), &key).expect("an index in memory")
    };
    assert!((0..FILES).all(is_done) && !is_done(u64::MAX / 2));
    let mut file = 0;
    group.bench_function("is_done", |bencher| {
        bencher.iter(|| {
            file = (file + 1) % FILES;
            is_done(black_box(file))
        });
    });
    group.finish();
}

criterion_group!(journal, append, resume);
criterion_main!(journal);
