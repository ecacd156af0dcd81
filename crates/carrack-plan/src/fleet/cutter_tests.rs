use std::collections::{BTreeMap, BTreeSet};

use carrack_model::limits::SYMLINK_BYTES_MAX;
use carrack_model::{
    APPEND_ONLY, EntryKind, ExtendedAttribute, ExtraMetadata, FileFlags, HardLinkTarget, IMMUTABLE, Metadata,
    NO_DUMP, RelPath,
};
use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn directory(path: &str) -> Arc<CopiedDirectoryPaths> {
    let path = RelPath::new(path.as_bytes()).unwrap();
    Arc::new(CopiedDirectoryPaths { root_index: 0, source: path.clone(), sink: path })
}

fn entry(name: &str, kind: EntryKind) -> Entry {
    Entry {
        name: name.as_bytes().into(),
        source_name: None,
        kind,
        metadata: Metadata::default(),
        identity: 0,
        extras: None,
    }
}

fn file(name: &str, size: u64) -> Entry {
    entry(name, EntryKind::Regular { size })
}

fn further_name(name: &str, first: &str) -> Entry {
    let same_as = Some(HardLinkTarget { path: RelPath::new(first.as_bytes()).unwrap(), size: 7 });
    Entry { extras: Some(Box::new(ExtraMetadata { same_as, ..ExtraMetadata::default() })), ..file(name, 0) }
}

fn attribute(bytes: usize) -> Box<ExtraMetadata> {
    let attribute = ExtendedAttribute { name: b"user.a"[..].into(), value: vec![b'v'; bytes].into() };
    Box::new(ExtraMetadata { attributes: vec![attribute], ..ExtraMetadata::default() })
}

fn limits(chunk_bytes: u64) -> ChunkLimits {
    ChunkLimits::fixed(chunk_bytes)
}

/// Returns all chunks of a scan; groups are taken as soon as they are complete.
fn cut(limits: ChunkLimits, sections: Vec<DirectorySection>) -> (Vec<TransferWorkChunk>, CutTotals) {
    let mut cutter = FleetChunkBuilder::new(limits);
    let mut chunks = Vec::new();
    for section in sections {
        cutter.add(section);
        assert!(cutter.open_entries() <= CLASS_COUNT * limits.entries_max);
        chunks.extend(std::iter::from_fn(|| cutter.next_chunk()));
    }
    cutter.finish();
    chunks.extend(std::iter::from_fn(|| cutter.next_chunk()));
    assert_eq!(cutter.open_entries(), 0);
    (chunks, cutter.totals())
}

#[test]
fn files_of_like_size_are_together() {
    let sizes = [0, 64 << 10, (64 << 10) - 1, MIB, MIB - 1, 300 * MIB, 16 * MIB];
    let entries: Vec<Entry> = sizes.iter().map(|&size| file(&size.to_string(), size)).collect();
    let section = DirectorySection { directory: directory("d"), metadata: None, extras: None, entries };
    let (chunks, found) = cut(limits(CHUNK_BYTES_DEFAULT), vec![section]);
    let groups: Vec<Vec<u64>> = chunks
        .iter()
        .map(|chunk| match &chunk.kind {
            ChunkEntries::Files { sections } => {
                sections.iter().flat_map(|section| section.entries.iter().map(Entry::size)).collect()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let kib = 1 << 10;
    assert_eq!(
        groups,
        [vec![0, 64 * kib - 1], vec![64 * kib, MIB - 1], vec![MIB], vec![16 * MIB], vec![300 * MIB]]
    );
    assert_eq!((found.chunks, found.files, found.files_in_parts), (5, 7, 0));
}

#[test]
fn a_large_file_becomes_parts_while_they_are_taken() {
    let section = |size| DirectorySection {
        directory: directory(""),
        metadata: None,
        extras: None,
        entries: vec![file("f", size)],
    };
    let mut cutter = FleetChunkBuilder::new(limits(MIB));
    // A mebibyte at a time, this is 16 Ti chunks: they are cut on demand.
    cutter.add(section(u64::MAX));
    let first = cutter.next_chunk().unwrap();
    assert!(matches!(first.kind, ChunkEntries::Part { index: 0, count, .. } if count == 1 << 44));
    assert_eq!(cutter.ready.len(), 1);

    let (chunks, _) = cut(limits(3 * MIB / 2), vec![section(3 * MIB / 2), section(3 * MIB / 2 + 1)]);
    let lens: Vec<u64> = chunks.iter().map(|chunk| chunk.bytes).collect();
    assert_eq!(lens, [3 * MIB / 2, MIB, MIB / 2 + 1]);
    let (chunks, _) = cut(limits(1), vec![section(MIB), section(MIB + 1)]);
    assert_eq!(chunks.len(), 3);
}

#[test]
fn chunks_grow_with_what_was_found() {
    let gib = 1 << 30;
    let parts_of = |size| {
        let section = DirectorySection {
            directory: directory(""),
            metadata: None,
            extras: None,
            entries: vec![file("f", size)],
        };
        let (chunks, _) = cut(ChunkLimits::default(), vec![section]);
        (chunks.len() as u64, chunks[0].bytes)
    };
    for (size, expected) in [
        (2 * MIB, (1, 2 * MIB)),
        (3 * MIB, (3, MIB)),
        (gib, (1_024, MIB)),
        (64 * gib, (1_024, 64 * MIB)),
        (8 << 40, (8_192, gib)),
    ] {
        assert_eq!(parts_of(size), expected, "{size}");
    }

    // A thousand files of a GiB: the first are cut, the last ones travel whole.
    let entries = (0..1_100).map(|n| file(&format!("f{n}"), gib)).collect();
    let (chunks, _) = cut(
        ChunkLimits::default(),
        vec![DirectorySection { directory: directory(""), metadata: None, extras: None, entries }],
    );
    assert_eq!((chunks[0].bytes, chunks[chunks.len() - 1].bytes), (MIB, gib));
    assert!((4_000..13_000).contains(&chunks.len()), "{}", chunks.len());
    // The part of a fleet's time that the last chunk takes a mover with a 20th of its rate.
    let mut found = 0;
    for chunk in &chunks {
        found += chunk.bytes;
        assert!(chunk.bytes <= 2 * MIB || 20 * chunk.bytes <= 1_100 * gib / 20);
    }
    assert_eq!(found, 1_100 * gib);
}

#[test]
fn groups_grow_with_what_was_found() {
    let sections = |count| {
        let entries = (0..count).map(|n| file(&n.to_string(), 10_000)).collect();
        vec![DirectorySection { directory: directory("d"), metadata: None, extras: None, entries }]
    };
    let entries_of = |count| {
        let (chunks, _) = cut(ChunkLimits::default(), sections(count));
        (chunks[0].entries, chunks.iter().map(|chunk| chunk.entries).max().unwrap())
    };
    // 1 MiB of them.
    assert_eq!(entries_of(1_000), (104, 104));
    let (first, most) = entries_of(1_000_000);
    assert_eq!(first, 104);
    assert!((900..2_000).contains(&most), "{most}");
}

#[test]
fn directories_travel_by_themselves() {
    let section = |name, entries| DirectorySection {
        directory: directory(name),
        metadata: Some(Metadata { mode: 0o755, ..Metadata::default() }),
        extras: None,
        entries,
    };
    let given = vec![section("a", vec![file("f", 1)]), section("b", vec![]), section("c", vec![])];
    let (chunks, found) = cut(ChunkLimits { entries_max: 2, ..ChunkLimits::default() }, given);
    let shapes: Vec<(u64, usize, usize)> = chunks
        .iter()
        .map(|chunk| match &chunk.kind {
            ChunkEntries::Files { sections } => {
                assert!(sections.iter().all(|section| section.metadata.is_none()));
                (chunk.number, chunk.entries, sections.len())
            }
            ChunkEntries::End { sections } => {
                assert!(sections.iter().all(|section| section.metadata.is_some()));
                (chunk.number, chunk.entries, sections.len())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(shapes, [(0, 0, 2), (0, 1, 1), (1, 0, 1)]);
    assert_eq!((found.chunks, found.directories), (1, 3));
}

/// All work on a file is done before it becomes immutable, however it is cut.
#[test]
fn flags_that_keep_a_file_from_being_changed_are_told_at_the_end() {
    let flagged = |name: &str, size: u64, set: u32| {
        let flags = Some(FileFlags::new(u32::MAX, set));
        Entry {
            extras: Some(Box::new(ExtraMetadata { flags, ..ExtraMetadata::default() })),
            ..file(name, size)
        }
    };
    let entries = vec![
        flagged("small", 7, IMMUTABLE),
        flagged("large", 5 * MIB, APPEND_ONLY | NO_DUMP),
        flagged("not dumped", 7, NO_DUMP),
        flagged("plain", 7, 0),
        file("unknown", 7),
    ];
    let section = DirectorySection { directory: directory("d"), metadata: None, extras: None, entries };
    let (chunks, found) = cut(limits(MIB), vec![section]);
    assert_eq!((found.files, found.names, found.files_in_parts), (5, 0, 1));
    let told: Vec<(String, u64, u32)> = chunks
        .iter()
        .filter_map(|chunk| match &chunk.kind {
            ChunkEntries::End { sections } => Some(sections),
            _ => None,
        })
        .flatten()
        .flat_map(|section| &section.entries)
        .map(|entry| {
            let extras = entry.extras.as_deref().unwrap();
            let same_as = extras.same_as.as_ref().unwrap();
            assert_eq!((entry.size(), same_as.path.split_last().unwrap().1), (0, &*entry.name));
            (
                String::from_utf8(same_as.path.as_bytes().to_vec()).unwrap(),
                same_as.size,
                extras.flags.unwrap().active(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [("d/small".to_owned(), 7, IMMUTABLE), ("d/large".to_owned(), 5 * MIB, APPEND_ONLY | NO_DUMP)]
    );
}

#[test]
fn further_names_wait_for_the_end_with_their_directories() {
    let section = |name, metadata: Option<Metadata>, entries| DirectorySection {
        directory: directory(name),
        extras: metadata.map(|_| attribute(3)),
        metadata,
        entries,
    };
    let metadata = Some(Metadata::default());
    let given = vec![
        section("a", metadata, vec![file("first", 7), further_name("second", "a/first")]),
        section("b", metadata, vec![further_name("third", "a/first")]),
        section("a", None, vec![further_name("fourth", "a/first")]),
    ];
    let (chunks, found) = cut(ChunkLimits::default(), given.clone());
    assert_eq!((found.chunks, found.files, found.names, found.directories), (1, 1, 3, 2));
    let [files, end] = &chunks[..] else { panic!("{chunks:?}") };
    assert_eq!((files.entries, files.bytes, end.number, end.entries, end.bytes), (1, 7, 0, 3, 0));
    let ChunkEntries::End { sections } = &end.kind else { panic!("{end:?}") };
    let expected: Vec<DirectorySection> = given
        .into_iter()
        .map(|section| DirectorySection {
            entries: section.entries.into_iter().filter(is_further_name).collect(),
            ..section
        })
        .collect();
    assert_eq!(*sections, expected);
}

#[test]
fn what_is_kept_of_directories_fills_tables() {
    let given = (0..5).map(|n| DirectorySection {
        directory: directory(&n.to_string()),
        metadata: Some(Metadata::default()),
        extras: Some(attribute(50_000)),
        entries: vec![],
    });
    let limits = ChunkLimits { table_bytes_max: SLOT_BYTES_MIN, ..ChunkLimits::default() };
    let (chunks, found) = cut(limits, given.collect());
    assert_eq!((chunks.len(), found.directories), (3, 5));
}

#[test]
fn long_paths_fill_tables() {
    let sections = (0..8).map(|n| {
        let path = format!("{n}{}", format!("/{}", "p".repeat(250)).repeat(150));
        DirectorySection {
            directory: directory(&path),
            metadata: None,
            extras: None,
            entries: vec![file("f", 1)],
        }
    });
    let limits = ChunkLimits { table_bytes_max: SLOT_BYTES_MIN, ..ChunkLimits::default() };
    let (chunks, _) = cut(limits, sections.collect());
    // Each section takes 37 KB of a table's 128 KiB.
    assert_eq!(chunks.iter().map(|chunk| chunk.entries).collect::<Vec<_>>(), [3, 3, 2]);
}

#[test]
fn many_small_files_leave_only_open_groups_behind() {
    let mut cutter = FleetChunkBuilder::new(ChunkLimits::default());
    let directory = directory("d");
    let mut chunks = 0u64;
    // 256 entries a section, as the scan has them; one section repeated is enough for the count.
    let entries: Vec<Entry> = (0..256u64).map(|n| file(&format!("file-{n:03}"), n << 10)).collect();
    for _ in 0..400 {
        cutter.add(DirectorySection {
            directory: Arc::clone(&directory),
            metadata: None,
            extras: None,
            entries: entries.clone(),
        });
        while cutter.next_chunk().is_some() {
            chunks += 1;
        }
        assert!(cutter.open_entries() <= 2 * CHUNK_ENTRIES_MAX && cutter.ready.is_empty());
    }
    assert_eq!((cutter.totals().files, cutter.totals().chunks), (102_400, chunks));
}

/// Possible sections of a scan: directories of some sections, sizes around the classes' edges and beyond a
/// chunk.
fn sections() -> impl Strategy<Value = Vec<DirectorySection>> {
    let edges: Vec<u64> = SIZE_CLASSES.iter().flat_map(|&edge| [edge - 1, edge]).collect();
    let kind = prop_oneof![
        4 => (0u64..100_000).prop_map(|size| EntryKind::Regular { size }),
        2 => prop::sample::select(edges).prop_map(|size| EntryKind::Regular { size }),
        1 => (0u64..40 * MIB).prop_map(|size| EntryKind::Regular { size }),
        1 => (1usize..SYMLINK_BYTES_MAX).prop_map(|len| EntryKind::Symlink { target: vec![b't'; len].into() }),
    ];
    let kind = prop_oneof![9 => kind.prop_map(Some), 1 => Just(None)];
    let section = (0u32..6, any::<bool>(), prop::collection::vec(kind, 0..60));
    prop::collection::vec(section, 0..12).prop_map(|sections| {
        let mut name = 0u32..;
        let mut named = |kind: Option<EntryKind>| {
            let name = name.next().unwrap().to_string();
            kind.map_or_else(|| further_name(&name, "first"), |kind| entry(&name, kind))
        };
        sections
            .into_iter()
            .map(|(place, has_metadata, kinds)| DirectorySection {
                directory: directory(&format!("{place}{}", "p".repeat(40 * place as usize))),
                metadata: has_metadata.then(Metadata::default),
                extras: has_metadata.then(|| attribute(100 * place as usize)),
                entries: kinds.into_iter().map(&mut named).collect(),
            })
            .collect()
    })
}

/// Entries with their places, by their names, which are unique here.
fn by_name<'a>(
    sections: impl IntoIterator<Item = &'a DirectorySection>,
) -> BTreeMap<Vec<u8>, (RelPath, Entry)> {
    let placed = sections.into_iter().flat_map(|section| {
        let path = &section.directory.sink;
        section.entries.iter().map(move |entry| (entry.name.to_vec(), (path.clone(), entry.clone())))
    });
    let mut names = BTreeMap::new();
    for (name, entry) in placed {
        assert!(names.insert(name, entry).is_none(), "twice");
    }
    names
}

fn check_group(chunk: &TransferWorkChunk, sections: &[DirectorySection], limits: ChunkLimits) {
    let entries: Vec<&Entry> = sections.iter().flat_map(|section| &section.entries).collect();
    assert_eq!((chunk.entries, chunk.bytes), (entries.len(), entries.iter().map(|e| e.size()).sum()));
    assert!(chunk.entries <= limits.entries_max && chunk.bytes <= limits.chunk_bytes);
    let table_bytes: usize = entries.iter().map(|entry| entry_table_bytes(entry)).sum::<usize>()
        + sections.iter().map(|section| section_table_bytes(&section.directory)).sum::<usize>();
    assert!(table_bytes <= limits.table_bytes_max);
    let classes: BTreeSet<usize> = entries.iter().map(|entry| size_class(entry.size())).collect();
    assert_eq!(classes.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_file_is_in_one_chunk_or_tiled_by_its_parts(
        given in sections(),
        chunk_bytes in prop_oneof![MIB..4 * MIB, 4 * MIB..600 * MIB],
        entries_max in 1usize..80,
        is_fixed in any::<bool>(),
    ) {
        let chunk_bytes_first = if is_fixed { chunk_bytes } else { CHUNK_BYTES_FIRST };
        let limits =
            ChunkLimits { chunk_bytes, chunk_bytes_first, entries_max, table_bytes_max: SLOT_BYTES_MIN };
        let (chunks, found) = cut(limits, given.clone());
        let is_name = |(_, (_, entry)): &(Vec<u8>, (RelPath, Entry))| is_further_name(entry);
        let (names, mut all): (BTreeMap<_, _>, BTreeMap<_, _>) = by_name(&given).into_iter().partition(is_name);
        prop_assert_eq!((found.files, found.names), (all.len() as u64, names.len() as u64));
        prop_assert_eq!(found.bytes, all.values().map(|(_, entry)| entry.size()).sum::<u64>());

        let (mut grouped, mut at_end) = (Vec::new(), Vec::new());
        let mut parts: BTreeMap<LargeFileNumber, (Vec<u8>, u64, u64)> = BTreeMap::new();
        let mut number = 0;
        for chunk in &chunks {
            if let ChunkEntries::End { sections } = &chunk.kind {
                prop_assert!(sections.len() + chunk.entries <= entries_max + 1);
                at_end.extend(sections);
                continue;
            }
            prop_assert_eq!(chunk.number, number);
            number += 1;
            match &chunk.kind {
                ChunkEntries::Files { sections } => {
                    check_group(chunk, sections, limits);
                    grouped.extend(sections);
                }
                ChunkEntries::Part { file, directory, entry, range, index, count } => {
                    let (_, next_offset, next_index) =
                        parts.entry(*file).or_insert_with(|| (entry.name.to_vec(), 0, 0));
                    prop_assert_eq!((range.offset, *index), (*next_offset, *next_index));
                    prop_assert_eq!(range.offset % PART_GRAIN_BYTES, 0);
                    prop_assert!(range.len > 0 && range.len <= chunk_bytes && range.len == chunk.bytes);
                    (*next_offset, *next_index) = (range.end().unwrap(), index + 1);
                    if *next_index == *count {
                        prop_assert_eq!(*next_offset, entry.size());
                        prop_assert!(entry.size() > chunk_bytes || !is_fixed && entry.size() > 2 * MIB);
                        let given = all.remove(&*entry.name);
                        prop_assert_eq!(given, Some((directory.sink.clone(), entry.clone())));
                    } else {
                        prop_assert_eq!(range.len % PART_GRAIN_BYTES, 0);
                    }
                }
                ChunkEntries::End { .. } => unreachable!(),
            }
        }
        prop_assert_eq!(found.chunks, number);
        prop_assert_eq!(found.files_in_parts, parts.len() as u64);
        // Every file without parts is in a group, once and in its place.
        prop_assert_eq!(by_name(grouped), all);
        prop_assert_eq!(by_name(at_end.iter().copied()), names);
        let told = |sections: &[&DirectorySection]| -> Vec<(RelPath, Option<Box<ExtraMetadata>>)> {
            let with_metadata = sections.iter().filter(|section| section.metadata.is_some());
            with_metadata.map(|section| (section.directory.sink.clone(), section.extras.clone())).collect()
        };
        prop_assert_eq!(told(&at_end), told(&given.iter().collect::<Vec<_>>()));
    }
}
