//! Gathers small files into bundles: the virtual large file (M7).
//!
//! Owns the bundle that is being filled, and decides which files travel in bundles and which as objects of
//! their own. Must not read a file or encode a table; it knows only their sizes. One thread, one bundler for
//! each target, because a bundle is an object and lies on one target.

use std::mem;
use std::sync::Arc;

use carrack_model::limits::SLOT_BYTES_MIN;
use carrack_model::{CopiedDirectoryPaths, DirectorySection, Entry, EntryKind, ExtraMetadata, Metadata};

/// Fixed part of a section in a bundle's table: flags, lengths and counts, and the directory's metadata.
const SECTION_FIXED_BYTES: usize = 32;

/// Fixed part of an entry: kind, lengths, size and metadata (32 bytes), and its identity (12).
const ENTRY_FIXED_BYTES: usize = 44;

/// Fixed part of a link's target.
const SYMLINK_FIXED_BYTES: usize = 4;

/// Bytes of a device, pipe or socket.
const SPECIAL_BYTES: usize = 13;

/// Bytes before an extra's value.
const EXTRA_HEAD_BYTES: usize = 4;

/// Bytes of a regular file's result besides its entry: its digest.
const REGULAR_RESULT_BYTES: usize = 36;

/// Bytes kept free in each bundle: reading one byte more than a file's size shows that it grew.
const SPARE_BYTES: u64 = 1;

/// The sizes of a [`Bundler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleLimits {
    /// Files of at least this many bytes are large and travel alone; a bundle closes when its content reaches
    /// it.
    pub object_bytes: u64,
    /// Bytes of a slot, which a bundle's table and content share; at least [`SLOT_BYTES_MIN`].
    pub slot_bytes: usize,
    /// Upper bound of a bundle's entries, and of its sections.
    pub entries_max: usize,
}

/// An object made of many small files, links and directories of one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle {
    /// The entries, in the order in which they were found.
    pub sections: Vec<DirectorySection>,
    /// Sum of the files' sizes.
    pub content_bytes: u64,
    /// Upper bound of the encoded entry table.
    pub table_bytes: usize,
    /// Entries in all sections; 0 where only directories are named.
    pub entry_count: usize,
}

impl Bundle {
    /// Splits off the entries from this index on, counted over all sections, as another bundle.
    ///
    /// # Panics
    /// If the bundle has fewer entries.
    pub fn split_off(&mut self, at: usize) -> Bundle {
        let (mut index, mut left) = (0, at);
        while left > self.sections[index].entries.len() {
            left -= self.sections[index].entries.len();
            index += 1;
        }
        let behind = self.sections.split_off(index + 1);
        let cut = &mut self.sections[index];
        let entries = cut.entries.split_off(left);
        let directory = Arc::clone(&cut.directory);
        let extras = cut.extras.as_deref().and_then(ExtraMetadata::striping_only);
        let first = DirectorySection { directory, metadata: None, extras, entries };
        let has_first = !first.entries.is_empty();
        let rest = Bundle::of(has_first.then_some(first).into_iter().chain(behind).collect());
        *self = Bundle::of(mem::take(&mut self.sections));
        rest
    }

    fn of(sections: Vec<DirectorySection>) -> Bundle {
        Bundle {
            content_bytes: sections.iter().flat_map(|section| &section.entries).map(Entry::size).sum(),
            table_bytes: sections.iter().map(table_bytes_of).sum(),
            entry_count: sections.iter().map(|section| section.entries.len()).sum(),
            sections,
        }
    }
}

fn table_bytes_of(section: &DirectorySection) -> usize {
    let entries: usize = section.entries.iter().map(entry_table_bytes).sum();
    section_table_bytes(&section.directory) + extras_table_bytes(section.extras.as_deref()) + entries
}

/// A unit of reading, as it comes out of a [`Bundler`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundleOrLargeFile {
    /// Small files, links and directories, as one object.
    Bundle(Bundle),
    /// A file that travels alone; it is not empty.
    Large {
        /// Directory of the file.
        directory: Arc<CopiedDirectoryPaths>,
        /// The file.
        entry: Entry,
    },
}

/// Upper bound in bytes of a section's header in a bundle's table.
pub fn section_table_bytes(directory: &CopiedDirectoryPaths) -> usize {
    SECTION_FIXED_BYTES + directory.sink.as_bytes().len()
}

/// Bytes of an owner and attributes in a bundle's table.
pub fn extras_table_bytes(extras: Option<&ExtraMetadata>) -> usize {
    extras.map_or(0, |extras| extras.tag_bytes(EXTRA_HEAD_BYTES))
}

/// Upper bound in bytes of an entry in a bundle's table.
pub fn entry_table_bytes(entry: &Entry) -> usize {
    let kind_bytes = match &entry.kind {
        EntryKind::Regular { .. } => REGULAR_RESULT_BYTES,
        EntryKind::Symlink { target } => SYMLINK_FIXED_BYTES + target.len(),
        EntryKind::Special(_) => SPECIAL_BYTES,
    };
    ENTRY_FIXED_BYTES + entry.name.len() + kind_bytes + extras_table_bytes(entry.extras.as_deref())
}

/// Turns the scan's sections into bundles and large files (M7).
///
/// Every entry comes out once, and those of a bundle in the order of the scan. A directory's metadata comes
/// out once, with the first piece of its section, even if all its entries are large. A section may be split
/// over bundles. The bundler holds one unfinished bundle, whose size its limits bound.
#[derive(Debug)]
pub struct Bundler {
    limits: BundleLimits,
    bundle: Bundle,
    /// True if the bundle's last section is that of the section which is being added.
    is_open: bool,
    /// The extras of each part of the section which is being added: the sink needs a directory's striping
    /// before it creates files there.
    repeated: Option<Box<ExtraMetadata>>,
}

impl Bundler {
    /// An empty bundler.
    ///
    /// # Panics
    /// If the slots are smaller than [`SLOT_BYTES_MIN`], so that not every entry fits into one, or another
    /// limit is 0.
    pub fn new(limits: BundleLimits) -> Bundler {
        assert!(limits.slot_bytes >= SLOT_BYTES_MIN, "slots of {} bytes are too small", limits.slot_bytes);
        assert!(limits.object_bytes > 0 && limits.entries_max > 0, "{limits:?} leaves no room");
        Bundler { limits, bundle: Bundle::default(), is_open: false, repeated: None }
    }

    /// Adds a section of the scan and appends the completed work to `out`: full bundles, and every large
    /// file.
    ///
    /// # Panics
    /// If an entry that must travel in a bundle (a link, an empty file) breaks [`Entry`]'s bounds so
    /// far that a slot can't hold it.
    pub fn add(&mut self, section: DirectorySection, out: &mut Vec<BundleOrLargeFile>) {
        let DirectorySection { directory, metadata, extras, entries } = section;
        self.is_open = false;
        self.repeated = extras.as_deref().and_then(ExtraMetadata::striping_only);
        if metadata.is_some() || entries.is_empty() {
            self.open(&directory, metadata, extras, out);
        }
        for entry in entries {
            if self.is_large(&directory, &entry) {
                out.push(BundleOrLargeFile::Large { directory: Arc::clone(&directory), entry });
            } else {
                self.add_entry(&directory, entry, out);
            }
        }
    }

    /// Bytes of the files in the unfinished bundle.
    pub fn held_bytes(&self) -> u64 {
        self.bundle.content_bytes
    }

    /// Entries of the unfinished bundle, and directories without entries.
    pub fn held_entries(&self) -> usize {
        self.bundle.entry_count.max(self.bundle.sections.len())
    }

    /// Returns the last bundle, unless it is empty, and leaves the bundler empty.
    pub fn finish(&mut self) -> Option<Bundle> {
        self.is_open = false;
        (!self.bundle.sections.is_empty()).then(|| mem::take(&mut self.bundle))
    }

    /// A file is large if the limit says so, or if a slot can't hold it and its table together.
    fn is_large(&self, directory: &CopiedDirectoryPaths, entry: &Entry) -> bool {
        let size = entry.size();
        let table_bytes = self.header_bytes(directory) + entry_table_bytes(entry);
        size >= self.limits.object_bytes || size > 0 && !self.fits(table_bytes, size)
    }

    fn add_entry(
        &mut self,
        directory: &Arc<CopiedDirectoryPaths>,
        entry: Entry,
        out: &mut Vec<BundleOrLargeFile>,
    ) {
        let table_bytes = entry_table_bytes(&entry);
        let header_bytes = if self.is_open { 0 } else { self.header_bytes(directory) };
        if !self.has_room(header_bytes + table_bytes, entry.size()) {
            self.close(out);
        }
        if !self.is_open {
            self.open(directory, None, self.repeated.clone(), out);
        }
        self.push(entry, table_bytes);
        let is_full = self.bundle.content_bytes >= self.limits.object_bytes
            || self.bundle.entry_count >= self.limits.entries_max;
        if is_full {
            self.close(out);
        }
    }

    /// Bytes of the header of a further part of a section.
    fn header_bytes(&self, directory: &CopiedDirectoryPaths) -> usize {
        section_table_bytes(directory) + extras_table_bytes(self.repeated.as_deref())
    }

    /// Starts a section, in a new bundle if the present bundle has no room for it.
    fn open(
        &mut self,
        directory: &Arc<CopiedDirectoryPaths>,
        metadata: Option<Metadata>,
        extras: Option<Box<ExtraMetadata>>,
        out: &mut Vec<BundleOrLargeFile>,
    ) {
        let table_bytes = section_table_bytes(directory) + extras_table_bytes(extras.as_deref());
        let has_sections = self.bundle.sections.len() < self.limits.entries_max;
        if !has_sections || !self.has_room(table_bytes, 0) {
            self.close(out);
        }
        self.bundle.table_bytes += table_bytes;
        self.bundle.sections.push(DirectorySection {
            directory: Arc::clone(directory),
            metadata,
            extras,
            entries: Vec::new(),
        });
        self.is_open = true;
    }

    fn push(&mut self, entry: Entry, table_bytes: usize) {
        let bundle = &mut self.bundle;
        bundle.table_bytes += table_bytes;
        bundle.content_bytes += entry.size();
        bundle.entry_count += 1;
        let section = bundle.sections.last_mut().expect("place() opens a section before it pushes");
        section.entries.push(entry);
        let (table_bytes, content_bytes) = (bundle.table_bytes, bundle.content_bytes);
        assert!(
            self.fits(table_bytes, content_bytes),
            "an entry of {table_bytes} bytes does not fit into a slot"
        );
    }

    fn close(&mut self, out: &mut Vec<BundleOrLargeFile>) {
        out.extend(self.finish().map(BundleOrLargeFile::Bundle));
    }

    fn has_room(&self, table_bytes: usize, content_bytes: u64) -> bool {
        self.fits(
            self.bundle.table_bytes + table_bytes,
            self.bundle.content_bytes.saturating_add(content_bytes),
        )
    }

    fn fits(&self, table_bytes: usize, content_bytes: u64) -> bool {
        content_bytes.saturating_add(table_bytes as u64).saturating_add(SPARE_BYTES)
            <= self.limits.slot_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::RelPath;
    use carrack_model::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX, SYMLINK_BYTES_MAX};
    use proptest::prelude::*;

    use super::*;

    const LIMITS: BundleLimits =
        BundleLimits { object_bytes: 64 << 10, slot_bytes: SLOT_BYTES_MIN, entries_max: 512 };

    fn directory(path: &[u8]) -> Arc<CopiedDirectoryPaths> {
        let path = RelPath::new(path).unwrap();
        Arc::new(CopiedDirectoryPaths { root_index: 0, source: path.clone(), sink: path })
    }

    fn entry(name: &[u8], kind: EntryKind) -> Entry {
        Entry {
            name: name.into(),
            source_name: None,
            kind,
            metadata: Metadata::default(),
            identity: 0,
            extras: None,
        }
    }

    fn file(name: &[u8], size: u64) -> Entry {
        entry(name, EntryKind::Regular { size })
    }

    fn section(path: &[u8], metadata: Option<Metadata>, entries: Vec<Entry>) -> DirectorySection {
        DirectorySection { directory: directory(path), metadata, extras: None, entries }
    }

    fn bundle_all(limits: BundleLimits, sections: Vec<DirectorySection>) -> Vec<BundleOrLargeFile> {
        let mut bundler = Bundler::new(limits);
        let mut out = Vec::new();
        sections.into_iter().for_each(|section| bundler.add(section, &mut out));
        out.extend(bundler.finish().map(BundleOrLargeFile::Bundle));
        assert_eq!(bundler.finish(), None);
        out
    }

    fn bundles(work: &[BundleOrLargeFile]) -> Vec<&Bundle> {
        work.iter()
            .filter_map(|work| match work {
                BundleOrLargeFile::Bundle(bundle) => Some(bundle),
                BundleOrLargeFile::Large { .. } => None,
            })
            .collect()
    }

    #[test]
    fn metadata_survives_where_all_files_are_large() {
        let given = section(b"d", Some(Metadata::default()), vec![file(b"a", 64 << 10), file(b"b", 1 << 40)]);
        let work = bundle_all(LIMITS, vec![given.clone()]);
        assert_eq!(work.len(), 3);
        let header = DirectorySection { entries: vec![], ..given };
        let expected = Bundle {
            sections: vec![header],
            content_bytes: 0,
            table_bytes: SECTION_FIXED_BYTES + 1,
            entry_count: 0,
        };
        assert_eq!(bundles(&work), [&expected]);
    }

    #[test]
    fn a_section_without_metadata_whose_files_are_all_large_makes_no_bundle() {
        let work = bundle_all(LIMITS, vec![section(b"d", None, vec![file(b"a", 64 << 10)])]);
        assert!(matches!(work[..], [BundleOrLargeFile::Large { .. }]));
    }

    #[test]
    fn a_bundle_closes_when_its_content_is_an_objects() {
        let files = (0..5u8).map(|n| file(&[b'a' + n], 40 << 10)).collect();
        let work = bundle_all(LIMITS, vec![section(b"d", None, files)]);
        let counts: Vec<usize> = bundles(&work).iter().map(|bundle| bundle.entry_count).collect();
        assert_eq!(counts, [2, 2, 1]);
    }

    #[test]
    fn a_small_file_that_does_not_fit_beside_its_table_is_large() {
        let limits = BundleLimits { object_bytes: SLOT_BYTES_MIN as u64, ..LIMITS };
        let room = SLOT_BYTES_MIN as u64 - (SECTION_FIXED_BYTES as u64 + 1) - (40 + 1 + 40) - 1;
        let work =
            bundle_all(limits, vec![section(b"d", None, vec![file(b"a", room), file(b"b", room + 1)])]);
        assert!(
            matches!(&work[..], [BundleOrLargeFile::Large { entry, .. }, BundleOrLargeFile::Bundle(bundle)]
            if &*entry.name == b"b" && bundle.entry_count == 1)
        );
    }

    #[test]
    fn a_section_starts_only_where_an_entry_of_it_fits() {
        let limits = BundleLimits { object_bytes: SLOT_BYTES_MIN as u64, ..LIMITS };
        for (free_bytes, bundle_count) in [(33 + 81, 1), (33 + 80, 2), (81, 2), (33, 2), (0, 2)] {
            let filling = SLOT_BYTES_MIN as u64 - 1 - (33 + 81) - free_bytes;
            let first = section(b"d", None, vec![file(b"a", filling)]);
            let work = bundle_all(limits, vec![first, section(b"e", None, vec![file(b"b", 0)])]);
            assert_eq!(work.len(), bundle_count, "{free_bytes} bytes free");
            assert!(
                bundles(&work).iter().all(|bundle| bundle.sections.iter().all(|s| !s.entries.is_empty()))
            );
        }
    }

    #[test]
    fn the_longest_names_fit_into_the_smallest_slot() {
        let path = vec![vec![b'p'; NAME_BYTES_MAX]; PATH_BYTES_MAX / (NAME_BYTES_MAX + 1)].join(&b'/');
        let link = entry(
            &[b'n'; NAME_BYTES_MAX],
            EntryKind::Symlink { target: vec![b't'; SYMLINK_BYTES_MAX].into() },
        );
        let limits = BundleLimits { object_bytes: 1, ..LIMITS };
        let work = bundle_all(
            limits,
            vec![section(&path, Some(Metadata::default()), vec![link, file(b"empty", 0)])],
        );
        assert_eq!(bundles(&work).iter().map(|bundle| bundle.entry_count).sum::<usize>(), 2);
    }

    #[test]
    fn empty_directories_close_bundles_too() {
        let limits = BundleLimits { entries_max: 2, ..LIMITS };
        fn empty(name: &[u8]) -> DirectorySection {
            section(name, Some(Metadata::default()), vec![])
        }
        let work = bundle_all(limits, vec![empty(b"a"), empty(b"b"), empty(b"c")]);
        let counts: Vec<usize> = bundles(&work).iter().map(|bundle| bundle.sections.len()).collect();
        assert_eq!(counts, [2, 1]);
    }

    /// Possible sections of a scan: directories of some sections each, the first with or without metadata,
    /// names that tell the place of each entry.
    fn sections() -> impl Strategy<Value = Vec<DirectorySection>> {
        let kind = prop_oneof![
            4 => (0u64..2_000).prop_map(|size| EntryKind::Regular { size }),
            2 => (0u64..200_000).prop_map(|size| EntryKind::Regular { size }),
            1 => (1usize..SYMLINK_BYTES_MAX).prop_map(|len| EntryKind::Symlink { target: vec![b't'; len].into() }),
            1 => Just(EntryKind::Special(carrack_model::SpecialFile::Fifo)),
        ];
        let batches = prop::collection::vec(prop::collection::vec(kind, 0..40), 1..4);
        let tree = prop::collection::vec((any::<bool>(), 0usize..NAME_BYTES_MAX - 8, batches), 0..8);
        tree.prop_map(|directories| {
            let named = (0u32..).zip(directories);
            named
                .flat_map(|(n, (has_metadata, pad, batches))| batches_of(n, has_metadata, pad, batches))
                .collect()
        })
    }

    fn batches_of(
        n: u32,
        has_metadata: bool,
        pad: usize,
        batches: Vec<Vec<EntryKind>>,
    ) -> Vec<DirectorySection> {
        let directory = directory(format!("{n}{}", "p".repeat(pad)).as_bytes());
        let metadata = has_metadata.then_some(Metadata { mode: n, ..Metadata::default() });
        let mut names = (0u32..).map(|name| name.to_string());
        (0..)
            .zip(batches)
            .map(|(batch, kinds): (u32, _)| DirectorySection {
                directory: Arc::clone(&directory),
                metadata: metadata.filter(|_| batch == 0),
                extras: None,
                entries: kinds
                    .into_iter()
                    .zip(names.by_ref())
                    .map(|(kind, name)| entry(name.as_bytes(), kind))
                    .collect(),
            })
            .collect()
    }

    type TestPathEntry = (RelPath, Entry);

    fn entries_of<'a>(sections: impl IntoIterator<Item = &'a DirectorySection>) -> Vec<TestPathEntry> {
        let mut placed = Vec::new();
        for section in sections {
            let path = &section.directory.sink;
            placed.extend(section.entries.iter().map(|entry| (path.clone(), entry.clone())));
        }
        placed
    }

    fn metadata_of<'a>(sections: impl IntoIterator<Item = &'a DirectorySection>) -> Vec<(RelPath, Metadata)> {
        sections
            .into_iter()
            .filter_map(|section| Some((section.directory.sink.clone(), section.metadata?)))
            .collect()
    }

    fn check_bounds(bundle: &Bundle, limits: BundleLimits) {
        let table_bytes: usize = bundle
            .sections
            .iter()
            .map(|section| {
                let entries: usize = section.entries.iter().map(entry_table_bytes).sum();
                section_table_bytes(&section.directory) + entries
            })
            .sum();
        let entries = entries_of(&bundle.sections);
        assert_eq!(bundle.table_bytes, table_bytes);
        assert_eq!(bundle.entry_count, entries.len());
        assert_eq!(bundle.content_bytes, entries.iter().map(|(_, entry)| entry.size()).sum::<u64>());
        assert!(table_bytes as u64 + bundle.content_bytes < limits.slot_bytes as u64);
        assert!(entries.iter().all(|(_, entry)| entry.size() < limits.object_bytes));
        assert!(entries.len() <= limits.entries_max);
        assert!(!bundle.sections.is_empty() && bundle.sections.len() <= limits.entries_max);
        let before_last = bundle.content_bytes - entries.last().map_or(0, |(_, entry)| entry.size());
        assert!(before_last < limits.object_bytes, "should have closed earlier");
    }

    /// A closed bundle could not have taken the first entry of the next bundle.
    fn check_full(bundle: &Bundle, next: &Bundle, limits: BundleLimits) {
        let first = &next.sections[0];
        let (entry_bytes, size) =
            first.entries.first().map_or((0, 0), |entry| (entry_table_bytes(entry), entry.size()));
        let table_bytes = bundle.table_bytes + section_table_bytes(&first.directory) + entry_bytes;
        assert!(
            bundle.content_bytes >= limits.object_bytes
                || bundle.entry_count == limits.entries_max
                || bundle.sections.len() == limits.entries_max
                || table_bytes as u64 + bundle.content_bytes + size >= limits.slot_bytes as u64
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn nothing_is_lost_or_named_twice_and_bounds_hold(
            given in sections(),
            object_bytes in prop_oneof![Just(1u64), 1_000u64..(SLOT_BYTES_MIN as u64), Just(u64::MAX)],
            entries_max in 1usize..60,
        ) {
            let limits = BundleLimits { object_bytes, entries_max, ..LIMITS };
            let work = bundle_all(limits, given.clone());
            let bundles = bundles(&work);
            let sections: Vec<&DirectorySection> = bundles.iter().flat_map(|bundle| &bundle.sections).collect();
            bundles.iter().for_each(|bundle| check_bounds(bundle, limits));
            bundles.windows(2).for_each(|pair| check_full(pair[0], pair[1], limits));
            prop_assert_eq!(metadata_of(sections.clone()), metadata_of(&given));
            let large: Vec<TestPathEntry> = work.iter().filter_map(|work| match work {
                BundleOrLargeFile::Large { directory, entry } => Some((directory.sink.clone(), entry.clone())),
                BundleOrLargeFile::Bundle(_) => None,
            }).collect();
            let mut sizes = large.iter().map(|(_, entry)| entry.size());
            prop_assert!(sizes.all(|size| size >= object_bytes || size + 400 > SLOT_BYTES_MIN as u64));
            let (large_given, small_given): (Vec<_>, Vec<_>) =
                entries_of(&given).into_iter().partition(|placed| large.contains(placed));
            prop_assert_eq!(large, large_given);
            prop_assert_eq!(entries_of(sections), small_given);
        }

        #[test]
        fn a_cut_bundle_is_two(given in sections(), at in 0usize..usize::MAX) {
            let limits = BundleLimits { object_bytes: u64::MAX, entries_max: 60, ..LIMITS };
            for whole in bundles(&bundle_all(limits, given)) {
                if whole.entry_count == 0 {
                    continue;
                }
                let mut first = whole.clone();
                let rest = first.split_off(at % whole.entry_count);
                prop_assert_eq!(first.entry_count, at % whole.entry_count);
                let sections: Vec<&DirectorySection> = first.sections.iter().chain(&rest.sections).collect();
                prop_assert_eq!(entries_of(sections.clone()), entries_of(&whole.sections));
                prop_assert_eq!(metadata_of(sections), metadata_of(&whole.sections));
                prop_assert_eq!(first.content_bytes + rest.content_bytes, whole.content_bytes);
                prop_assert_eq!(first.entry_count + rest.entry_count, whole.entry_count);
                check_bounds(&first, limits);
                check_bounds(&rest, limits);
                // The section that is cut is named twice.
                let header_bytes =
                    rest.sections.first().map_or(0, |section| section_table_bytes(&section.directory));
                let table_bytes = first.table_bytes + rest.table_bytes;
                prop_assert!((whole.table_bytes..=whole.table_bytes + header_bytes).contains(&table_bytes));
            }
        }
    }
}
