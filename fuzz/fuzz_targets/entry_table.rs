//! The entry table, and a bundle's walk through it. Input: bytes of content (2 bytes, little-endian), then a bundle's
//! body: the content and behind it the table.
#![no_main]

use carrack_fuzz::{Input, is_within};
use carrack_model::{EntryKind, RelPath, check_name};
use carrack_wire::{EntryTableItem, EntryTableDecoder, EntryTableRecord, EntryTableEncoder, decode_section};
use libfuzzer_sys::fuzz_target;

/// Bytes of the fixed part of a record.
const RECORD_BYTES: usize = 32;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let Some(content_len) = input.take() else { return };
    let content_len = usize::from(u16::from_le_bytes(content_len)).min(input.0.len());
    let (content, table) = input.0.split_at(content_len);

    let records = walk(table);
    unpack(content, &records);
    write_again(&records);
    whole_section(table, &records);
});

/// All records up to the first that is refused.
fn walk(table: &[u8]) -> Vec<EntryTableRecord<'_>> {
    let mut reader = EntryTableDecoder::new(table);
    let mut records = Vec::new();
    while let Some(record) = reader.next() {
        let Ok(record) = record else {
            assert!(reader.next().is_none(), "nothing can be found behind a record that is refused");
            break;
        };
        match &record {
            EntryTableRecord::Section { path, .. } => {
                assert_eq!(RelPath::new(path.as_bytes()).as_ref(), Ok(path));
                path.components().for_each(|name| assert_eq!(check_name(name), Ok(())));
            }
            EntryTableRecord::Entry(entry) => check_entry(entry, table),
        }
        records.push(record);
    }
    assert!(
        matches!(records.first(), None | Some(EntryTableRecord::Section { .. })),
        "an entry without a directory"
    );
    assert!(records.len() <= table.len() / RECORD_BYTES);
    records
}

fn check_entry(entry: &EntryTableItem<'_>, table: &[u8]) {
    assert_eq!(check_name(entry.name), Ok(()));
    assert!(is_within(entry.name, table));
    assert!(entry.metadata.mode <= 0o7777 && entry.metadata.mtime.nanoseconds < 1_000_000_000);
    if let Some(target) = entry.symlink_target {
        assert!(is_within(target, table) && !target.is_empty() && !target.contains(&0));
        assert_eq!(entry.size, 0);
    }
    assert!(entry.special.is_none() || entry.size == 0 && entry.symlink_target.is_none());
    assert!(entry.digest.is_none_or(|digest| is_within(digest, table)));
}

/// Gives every file its part of the contents, as the sink does.
fn unpack(content: &[u8], records: &[EntryTableRecord<'_>]) {
    let mut rest = content;
    for record in records {
        let EntryTableRecord::Entry(entry) = record else { continue };
        let Some((own, after)) =
            usize::try_from(entry.size).ok().and_then(|size| rest.split_at_checked(size))
        else {
            return;
        };
        assert!(is_within(own, content));
        rest = after;
    }
}

/// What was read is the same when it is written and read again.
fn write_again(records: &[EntryTableRecord<'_>]) {
    let mut table = Vec::new();
    for record in records {
        match record {
            EntryTableRecord::Section { path, metadata, extras } => {
                let mut writer = EntryTableEncoder::new(&mut table).with_extras(extras.as_deref());
                writer.begin_section(path, metadata.as_ref());
            }
            EntryTableRecord::Entry(entry) => EntryTableEncoder::new(&mut table).add_item(entry),
        }
    }
    let again: Result<Vec<_>, _> = EntryTableDecoder::new(&table).collect();
    let again = again.expect("a table of this writer");
    assert_eq!(again.len(), records.len());
    for pair in again.iter().zip(records) {
        match pair {
            // A digest beside what has no contents is skipped: it means nothing.
            (EntryTableRecord::Entry(again), EntryTableRecord::Entry(e)) if !e.is_regular() => {
                assert_eq!(*again, EntryTableItem { digest: None, ..e.clone() });
            }
            (again, record) => assert_eq!(again, record),
        }
    }
}

/// A table of one section, as an open-file message carries it.
fn whole_section(table: &[u8], records: &[EntryTableRecord<'_>]) {
    let Ok(section) = decode_section(table) else { return };
    let [EntryTableRecord::Section { path, metadata, extras }, entries @ ..] = records else {
        panic!("no section")
    };
    assert_eq!((&section.directory.sink, &section.metadata, &section.extras), (path, metadata, extras));
    assert_eq!(section.entries.len(), entries.len());
    for (owned, record) in section.entries.iter().zip(entries) {
        let EntryTableRecord::Entry(entry) = record else { panic!("two sections") };
        assert_eq!((&*owned.name, owned.metadata, owned.size()), (entry.name, entry.metadata, entry.size));
        assert_eq!((owned.identity, &owned.extras), (entry.identity, &entry.extras));
        match &owned.kind {
            EntryKind::Symlink { target } => assert_eq!(Some(&**target), entry.symlink_target),
            EntryKind::Special(special) => assert_eq!(Some(*special), entry.special),
            EntryKind::Regular { .. } => assert!(entry.is_regular()),
        }
    }
}
