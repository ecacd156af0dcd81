//! Encoding and decoding for every object (frame header), bundle (entry table) and ack (control message).

mod common;

use std::hint::black_box;

use carrack_model::limits::{BUNDLE_ENTRIES_MAX, SLOT_BYTES_DEFAULT};
use carrack_model::{FileId, Metadata, ObjectId, RelPath, Timestamp};
use carrack_wire::message::{ControlMessage, CountersMessage, ObjectAcksMessage, OpenFileMessage};
use carrack_wire::{EntryTableDecoder, EntryTableEncoder, FrameHeader, FrameKind};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const SLOT_BYTES: u32 = SLOT_BYTES_DEFAULT as u32;

/// IDs in one ack: a busy sink gathers some.
const ANSWERED: u64 = 16;

const METADATA: Metadata =
    Metadata { mode: 0o644, mtime: Timestamp { seconds: 1_700_000_000, nanoseconds: 5 } };

fn frame(criterion: &mut Criterion) {
    let header = FrameHeader {
        kind: FrameKind::Object,
        body_len: SLOT_BYTES,
        object: ObjectId(7),
        file: FileId(3),
        offset: 1 << 30,
        table_len: 0,
        lane: 0,
        check: [0xab; 32],
    };
    let bytes = header.encode();
    let mut group = criterion.benchmark_group("codec/frame header");
    group.throughput(Throughput::Elements(1));
    group.bench_function("encode", |bencher| bencher.iter(|| black_box(&header).encode()));
    group.bench_function("decode", |bencher| {
        bencher.iter(|| FrameHeader::decode(black_box(&bytes), SLOT_BYTES));
    });
    group.finish();
}

/// Measures a full bundle's table: 512 files in 8 directories, with and without a digest for each file.
fn table(criterion: &mut Criterion) {
    for (name, digest) in
        [("codec/table of 512 files", None), ("codec/table of 512 files with BLAKE3", Some([9; 32]))]
    {
        let mut encoded = Vec::new();
        encode_table(digest.as_ref(), &mut encoded);
        assert_eq!(count_records(&encoded), BUNDLE_ENTRIES_MAX + 8);
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(BUNDLE_ENTRIES_MAX as u64));
        group.bench_function("encode", |bencher| {
            let mut out = Vec::with_capacity(encoded.len());
            bencher.iter(|| {
                out.clear();
                encode_table(black_box(digest.as_ref()), &mut out);
            });
        });
        group.bench_function("decode", |bencher| bencher.iter(|| count_records(black_box(&encoded))));
        group.finish();
    }
}

fn encode_table(digest: Option<&[u8; 32]>, out: &mut Vec<u8>) {
    let path = RelPath::new(b"linux-6.1/drivers/net/ethernet").expect("the path is a plain one");
    let mut writer = EntryTableEncoder::new(out);
    for _ in 0..8 {
        writer.begin_section(&path, Some(&METADATA));
        for _ in 0..BUNDLE_ENTRIES_MAX / 8 {
            writer.add_regular(b"an_ordinary_name.c", 16_384, &METADATA, 1_234_567, digest);
        }
    }
}

/// Decodes all records; a bad one doesn't count.
fn count_records(table: &[u8]) -> usize {
    EntryTableDecoder::new(table).map(black_box).filter(Result::is_ok).count()
}

fn message(criterion: &mut Criterion) {
    let mut table = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut table);
    writer.begin_section(&RelPath::new(b"a/directory").expect("the path is a plain one"), None);
    writer.add_regular(b"a_large_file.bin", 1 << 40, &METADATA, 1_234_567, None);
    let answered = (1_000_000..1_000_000 + ANSWERED).collect();
    let messages = [
        (
            "OpenFile",
            ControlMessage::OpenFile(OpenFileMessage { id: 3, table, ..OpenFileMessage::default() }),
        ),
        (
            "ObjectsDone of 16",
            ControlMessage::ObjectsDone(ObjectAcksMessage {
                written: answered,
                corrupt: vec![],
                set_aside: vec![],
            }),
        ),
        ("Counters", ControlMessage::Counters(counters())),
    ];
    for (name, message) in messages {
        let mut group = criterion.benchmark_group(format!("codec/message {name}"));
        group.throughput(Throughput::Elements(1));
        let body = message.clone().to_body();
        group.bench_function("encode", |bencher| {
            bencher.iter_batched(|| message.clone(), ControlMessage::to_body, BatchSize::SmallInput);
        });
        group
            .bench_function("decode", |bencher| bencher.iter(|| ControlMessage::from_body(black_box(&body))));
        group.finish();
    }
}

/// Returns counters as in the middle of a transfer: every field has a value.
fn counters() -> CountersMessage {
    CountersMessage {
        entries_found: 100_000,
        bytes_found: 1 << 40,
        scan_done: true,
        files_done: 50_000,
        directories_done: 1_000,
        symlinks_done: 10,
        bytes_done: 1 << 39,
        entries_failed: 1,
        entries_skipped: 2,
        objects_reread: 3,
        storage_ns: 1 << 35,
        network_ns: 1 << 35,
        idle_ns: 1 << 30,
        blocked_ns: 1 << 30,
        ..CountersMessage::default()
    }
}

criterion_group! { name = benches; config = common::config(); targets = frame, table, message }
criterion_main!(benches);
