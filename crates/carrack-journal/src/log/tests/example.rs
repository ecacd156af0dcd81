//! The example of `docs/formats/journal.md`, byte for byte.

use carrack_model::ByteRange;

use super::*;
use crate::Blake3Subtree;
use crate::log::compaction;
use crate::log::header::JournalNonce;

fn example() -> Vec<u8> {
    let ground = TestJournalDirectory::new();
    let about = JournalSubject { sources: vec![b"src".to_vec()], ..about() };
    let file = File::options().read(true).write(true).create_new(true).open(ground.file()).unwrap();
    let mut end = compaction::start_journal(file, &about, JournalNonce([7; 16])).unwrap();
    let mut batch = RecordBatch::new();
    batch.add_session(&session(9, false));
    batch.add_small(&table("d", |w| w.add_regular(b"f", 3, &metadata(), 7, None)));
    batch.add_begin(
        1,
        &table("d", |w| w.add_regular(b"g", 4_096, &metadata(), 8, None)),
        b".g.carrack-0000002a",
    );
    let subtree = Blake3Subtree { range: ByteRange::new(1_024, 1_024), value: [0xaa; 32] };
    batch.add_held_ranges(1, [ByteRange::new(1_024, 1_024)], &[subtree]);
    batch.add_done(1);
    batch.add_dropped(2);
    end.append(&batch, false).unwrap();
    ground.bytes()
}

/// The bytes of the document's blocks, from its heading `Example` on.
fn of_the_document() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/journal.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, example) = text.split_once("\n## Example\n").unwrap();
    let blocks = example.split("```").skip(1).step_by(2);
    let digits = blocks.flat_map(str::split_whitespace);
    digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect()
}

#[test]
fn the_example_of_the_format_document() {
    let shown: String =
        example().chunks(16).map(|row| format!("{row:02x?}\n").replace(['[', ']', ','], "")).collect();
    assert_eq!(of_the_document(), example(), "the document's bytes are not these:\n{shown}");
}

#[test]
fn the_example_is_read_as_it_was_written() {
    let ground = TestJournalDirectory::with(&example());
    let (_, recovered) = ground.open(&session(9, false)).unwrap();
    let directory = RelPath::new(b"d").unwrap();
    let key = |name, size, identity| EntryKey { name, size, mtime: metadata().mtime, identity, target: None };
    assert!(recovered.is_done(&directory, &key(b"f", 3, 7)).unwrap());
    assert!(recovered.is_done(&directory, &key(b"g", 4_096, 8)).unwrap());
    assert!(!recovered.is_done(&directory, &key(b"g", 4_096, 7)).unwrap());
    assert!(!recovered.is_done(&RelPath::root(), &key(b"f", 3, 7)).unwrap());
    let JournalStatistics { records, done, done_bytes, cut_bytes, .. } = recovered.statistics();
    assert_eq!((records, done, done_bytes, cut_bytes), (6, 2, 4_099, 0));
    assert!(recovered.partials().is_empty());
}
