//! Writing and reading tables, and the refusal of malformed ones.

use super::*;
use carrack_model::{DeviceNumber, ExtendedAttribute, UserOrGroup};
use proptest::prelude::*;

fn metadata() -> Metadata {
    Metadata { mode: 0o644, mtime: Timestamp { seconds: 1_700_000_000, nanoseconds: 5 } }
}

fn example() -> Vec<u8> {
    let mut table = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut table);
    writer.begin_section(&RelPath::new(b"a/b").unwrap(), Some(&Metadata { mode: 0o755, ..metadata() }));
    writer.add_regular(b"f", 3, &metadata(), 7, None);
    writer.add_symlink(b"l", b"f", &metadata(), 0);
    table
}

#[test]
fn the_example_of_the_format_document() {
    let mtime = b"\x05\0\0\0\x00\xf1\x53\x65\0\0\0\0";
    let expected = [
        &b"\x23\0\0\0\x01\x01\x03\x00\xed\x01\0\0"[..],
        mtime,
        b"\0\0\0\0\0\0\0\0a/b",
        b"\x2d\0\0\0\x02\x00\x01\x00\xa4\x01\0\0",
        mtime,
        b"\x03\0\0\0\0\0\0\0f\x09\x08\0\0\x07\0\0\0\0\0\0\0",
        b"\x26\0\0\0\x03\x00\x01\x00\xa4\x01\0\0",
        mtime,
        b"\0\0\0\0\0\0\0\0l\x01\x01\0\0f",
    ]
    .concat();
    assert_eq!(example(), expected);
}

#[test]
fn reads_what_it_wrote() {
    let table = example();
    let records: Vec<_> = EntryTableDecoder::new(&table).map(Result::unwrap).collect();
    assert!(matches!(&records[0], EntryTableRecord::Section { path, metadata: Some(m), .. }
        if path.as_bytes() == b"a/b" && m.mode == 0o755));
    assert!(
        matches!(&records[1], EntryTableRecord::Entry(e) if e.name == b"f" && e.size == 3 && e.identity == 7)
    );
    assert!(matches!(&records[2], EntryTableRecord::Entry(e) if e.symlink_target == Some(b"f")));
    let section = decode_section(&table).unwrap();
    assert_eq!(section.entries.len(), 2);
}

#[test]
fn owners_and_attributes_stand_with_their_entry() {
    let account = |number, name: &[u8]| Some(UserOrGroup { number, name: name.into() });
    let attribute = ExtendedAttribute { name: b"user.a"[..].into(), value: b"v"[..].into() };
    let extras = ExtraMetadata {
        user: account(1, b"u"),
        group: account(2, b""),
        attributes: vec![attribute],
        ..ExtraMetadata::default()
    };
    let mut table = Vec::new();
    let root = RelPath::root();
    EntryTableEncoder::new(&mut table).with_extras(Some(&extras)).begin_section(&root, Some(&metadata()));
    EntryTableEncoder::new(&mut table).with_extras(Some(&extras)).add_symlink(b"l", b"t", &metadata(), 3);
    EntryTableEncoder::new(&mut table).add_regular(b"f", 0, &metadata(), 0, None);
    let records: Vec<_> = EntryTableDecoder::new(&table).map(Result::unwrap).collect();
    let found: Vec<_> = records
        .iter()
        .map(|record| match record {
            EntryTableRecord::Section { extras, .. } => extras.as_deref(),
            EntryTableRecord::Entry(entry) => entry.extras.as_deref(),
        })
        .collect();
    assert_eq!(found, [Some(&extras), Some(&extras), None]);
    let EntryTableRecord::Entry(link) = &records[1] else { panic!() };
    let mut again = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut again);
    writer.begin_section(&root, None);
    writer.add_item(link);
    assert_eq!(EntryTableDecoder::new(&again).nth(1), Some(Ok(EntryTableRecord::Entry(link.clone()))));
}

#[test]
fn special_files_say_what_they_are() {
    let number = DeviceNumber { major: 8, minor: 17 };
    for special in [
        SpecialFile::CharacterDevice(number),
        SpecialFile::BlockDevice(number),
        SpecialFile::Fifo,
        SpecialFile::Socket,
    ] {
        let mut table = Vec::new();
        let mut writer = EntryTableEncoder::new(&mut table);
        writer.begin_section(&RelPath::root(), None);
        writer.add_special(b"s", &special, &metadata(), 7);
        let Some(Ok(EntryTableRecord::Entry(entry))) = EntryTableDecoder::new(&table).nth(1) else {
            panic!()
        };
        assert_eq!((entry.special, entry.size, entry.is_regular()), (Some(special), 0, false));
        assert_eq!(entry.to_entry().kind, EntryKind::Special(special));
        let mut again = Vec::new();
        let mut writer = EntryTableEncoder::new(&mut again);
        writer.begin_section(&RelPath::root(), None);
        writer.add_item(&entry);
        assert_eq!(again, table);
    }
}

#[test]
fn refuses_special_files_that_are_none() {
    let fifo = SpecialFile::Fifo.to_bytes();
    for (kind, size, extras) in [
        (KIND_SPECIAL, 0, &[][..]),
        (KIND_SPECIAL, 1, &[(EXTRA_SPECIAL, &fifo[..])]),
        (KIND_SPECIAL, 0, &[(EXTRA_SPECIAL, &fifo[..8])]),
        (KIND_SPECIAL, 0, &[(EXTRA_SPECIAL, b"x\0\0\0\0\0\0\0\0")]),
        (KIND_SPECIAL, 0, &[(EXTRA_SPECIAL, &fifo), (EXTRA_SYMLINK_TARGET, b"t")]),
        (KIND_REGULAR, 0, &[(EXTRA_SPECIAL, &fifo)]),
        (KIND_SYMLINK, 0, &[(EXTRA_SPECIAL, &fifo), (EXTRA_SYMLINK_TARGET, b"t")]),
    ] {
        let mut table = Vec::new();
        let mut writer = EntryTableEncoder::new(&mut table);
        writer.begin_section(&RelPath::root(), None);
        writer.add_record(kind, 0, b"s", &metadata(), size, extras);
        assert_eq!(
            EntryTableDecoder::new(&table).nth(1),
            Some(Err(EntryTableDecodeError::BadValue)),
            "{kind} {extras:?}"
        );
    }
}

#[test]
fn refuses_names_that_could_leave_the_destination() {
    for name in [&b".."[..], b".", b"", b"a/b", b"a\0"] {
        let mut table = Vec::new();
        let mut writer = EntryTableEncoder::new(&mut table);
        writer.begin_section(&RelPath::root(), None);
        writer.add_regular(name, 0, &metadata(), 0, None);
        let last = EntryTableDecoder::new(&table).last().unwrap();
        assert!(matches!(last, Err(EntryTableDecodeError::BadName(_))), "{name:?}");
    }
}

#[test]
fn refuses_entries_without_a_directory_and_links_without_target() {
    let mut table = Vec::new();
    EntryTableEncoder::new(&mut table).add_regular(b"f", 0, &metadata(), 0, None);
    assert_eq!(EntryTableDecoder::new(&table).next(), Some(Err(EntryTableDecodeError::NoSection)));
    let mut table = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut table);
    writer.begin_section(&RelPath::root(), None);
    writer.add_record(KIND_SYMLINK, 0, b"l", &metadata(), 0, &[]);
    writer.add_record(KIND_REGULAR, 0, b"f", &metadata(), 0, &[(200, b"?")]);
    assert_eq!(EntryTableDecoder::new(&table).nth(1), Some(Err(EntryTableDecodeError::BadValue)));
}

#[test]
fn skips_attributes_it_does_not_know_unless_critical() {
    for (tag, fine) in [(50, true), (200, false)] {
        let mut table = Vec::new();
        EntryTableEncoder::new(&mut table).add_record(KIND_SECTION, 0, b"d", &metadata(), 0, &[(tag, b"x")]);
        assert_eq!(EntryTableDecoder::new(&table).all(|r| r.is_ok()), fine);
        let mut table = Vec::new();
        let mut writer = EntryTableEncoder::new(&mut table);
        writer.begin_section(&RelPath::root(), None);
        writer.add_record(KIND_REGULAR, 0, b"f", &metadata(), 0, &[(tag, b"xyz")]);
        assert_eq!(EntryTableDecoder::new(&table).all(|r| r.is_ok()), fine);
    }
}

/// One file of 100 bytes with these holes.
fn with_holes(holes: &[(u64, u64)]) -> Vec<u8> {
    let mut set = RangeSet::new();
    holes.iter().for_each(|&(offset, len)| assert!(set.insert(ByteRange::new(offset, len))));
    let mut table = Vec::new();
    EntryTableEncoder::new(&mut table).begin_section(&RelPath::root(), None);
    let without = table.len();
    EntryTableEncoder::new(&mut table).add_regular(b"f", 100, &metadata(), 0, None);
    let plain = table.len() - without;
    table.truncate(without);
    EntryTableEncoder::new(&mut table).with_holes(&set).add_regular(b"f", 100, &metadata(), 0, None);
    assert_eq!(table.len(), without + plain + holes_table_bytes(&set));
    table
}

#[test]
fn holes_are_told_with_a_file_and_copied_from_table_to_table() {
    for holes in [&[][..], &[(0, 100)], &[(0, 1), (2, 3), (90, 10)]] {
        let table = with_holes(holes);
        let EntryTableRecord::Entry(entry) = EntryTableDecoder::new(&table).nth(1).unwrap().unwrap() else {
            panic!()
        };
        let found: Vec<_> = entry.holes.iter().map(|hole| (hole.offset, hole.len)).collect();
        assert_eq!(found, holes);
        let mut again = Vec::new();
        EntryTableEncoder::new(&mut again).begin_section(&RelPath::root(), None);
        EntryTableEncoder::new(&mut again).add_item(&entry);
        assert_eq!(again, table);
    }
}

#[test]
fn holes_that_are_none_are_refused() {
    let good = with_holes(&[(10, 10), (50, 50)]);
    let start = good.len() - 16;
    let put = |numbers: [u32; 4]| {
        let mut table = good.clone();
        table.truncate(start);
        numbers.iter().for_each(|number| table.extend_from_slice(&number.to_le_bytes()));
        EntryTableDecoder::new(&table).nth(1).unwrap().map(drop)
    };
    assert_eq!(put([10, 10, 50, 50]), Ok(()));
    for numbers in [
        [10, 10, 50, 51],
        [10, 10, 20, 10],
        [10, 10, 15, 10],
        [50, 10, 10, 10],
        [10, 0, 50, 50],
        [10, 10, 50, u32::MAX],
        [0, 10, 0, 10],
    ] {
        assert_eq!(put(numbers), Err(EntryTableDecodeError::BadValue), "{numbers:?}");
    }
}

proptest! {
    #[test]
    fn a_cut_table_never_panics_nor_reads_beyond(cut in 0usize..120, flip in 0usize..120, to: u8) {
        let mut table = example();
        if flip < table.len() { table[flip] = to; }
        table.truncate(cut);
        let count = EntryTableDecoder::new(&table).count();
        prop_assert!(count <= 4);
    }

    #[test]
    fn names_and_numbers_survive(name in "[^/\0]{1,60}", size: u64, seconds: i64, ns in 0u32..1_000_000_000,
                                 mode in 0u32..=0o7777, identity: u64,
                                 digest: Option<[u8; 32]>) {
        prop_assume!(check_name(name.as_bytes()).is_ok());
        let metadata = Metadata { mode, mtime: Timestamp { seconds, nanoseconds: ns } };
        let mut table = Vec::new();
        let mut writer = EntryTableEncoder::new(&mut table);
        writer.begin_section(&RelPath::root(), None);
        writer.add_regular(name.as_bytes(), size, &metadata, identity, digest.as_ref());
        let read = EntryTableDecoder::new(&table).nth(1);
        let expected = EntryTableItem {
            name: name.as_bytes(), metadata, size, symlink_target: None, special: None, digest: digest.as_ref(), identity,
            extras: None, holes: RangeSet::new(),
        };
        prop_assert_eq!(read, Some(Ok(EntryTableRecord::Entry(expected))));
    }
}
