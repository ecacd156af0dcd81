//! One thread of the scan: walks directories depth-first and hands on their entries.
//!
//! Its memory is bounded for every tree. A directory is read one bufferful after the other, and its files are
//! handed on in sections at once; only the names of subdirectories wait, up to [`CHILDREN_BYTES_MAX`] and one
//! bufferful of them. Levels beyond `open_levels_max` use the small buffer and keep few waiting names, and
//! those beneath them on the stack release descriptor and path. A path has at most 32,768 components, so even
//! the deepest tree with the widest levels takes less than 80 MiB. A level is popped from the stack before
//! its last subdirectory is entered.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::{self, MaybeUninit};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use carrack_model::limits::SCAN_BATCH_ENTRIES_MAX;
use carrack_model::{
    CopiedDirectoryPaths, DirectorySection, Entry, EntryFailure, EntryKind, ExtraMetadata, FailureKind,
    RelPath, check_name,
};
use rustix::fs::{FileType, RawDir, fstat};
use rustix::io::Errno;

use super::filter::{EXCLUDED, FilteredDirectory};
use super::inspect::{ScannedNameClassifier, ScannedNameResult};
use super::level::WalkLevel;
use super::lineage::{DirectoryLineage, InheritedDirectoryState};
use super::queue::{ChildDirectory, ScanTask, TaskQueue};
use super::retries::{ScanRetries, request, request_with_errno};
use super::{ScanRoot, ScanRootScope, ScannedItem, SourceScan};
use crate::extras_source::AttributeHolder;
use crate::filter_rules::DirectoryRules;
use crate::source_error::source_failure_kind_of;
use crate::status::metadata_of;
use crate::{FileIdentity, RootDirectory};

/// Bytes of the names of one `getdents` call, as in glibc.
const LISTING_BYTES: usize = 32 << 10;

/// The same in levels beyond `open_levels_max`; holds the longest name of any file system (1,024 bytes on
/// FUSE).
const LISTING_BYTES_DEEP: usize = 2 << 10;

/// Bytes of waiting subdirectory names before the walk descends: most directories are listed completely
/// first.
const CHILDREN_BYTES_MAX: usize = 32 << 10;

/// The message for a directory that is reached through a followed link while it is being walked.
const LEADS_BACK: &str = "a link leads back to a directory that it stands in";

type ScanControlFlow = ControlFlow<()>;
const ON: ScanControlFlow = ControlFlow::Continue(());

pub(super) struct ScanWalker<'a> {
    scan: &'a SourceScan,
    queue: &'a TaskQueue,
    found: &'a (dyn Fn(ScannedItem) -> ScanControlFlow + Sync),
    retries: Option<&'a dyn ScanRetries>,
    open_levels_max: usize,
    stack: Vec<WalkLevel>,
    /// The next section of the present directory.
    entries: Vec<Entry>,
    inspector: ScannedNameClassifier<'a>,
    listing: Box<[MaybeUninit<u8>]>,
}

impl<'a> ScanWalker<'a> {
    pub fn new(
        scan: &'a SourceScan,
        queue: &'a TaskQueue,
        (found, retries): (&'a (dyn Fn(ScannedItem) -> ScanControlFlow + Sync), Option<&'a dyn ScanRetries>),
        open_levels_max: usize,
    ) -> ScanWalker<'a> {
        ScanWalker {
            scan,
            queue,
            found,
            retries,
            open_levels_max,
            stack: Vec::new(),
            entries: Vec::with_capacity(SCAN_BATCH_ENTRIES_MAX),
            inspector: ScannedNameClassifier::new(scan.extras.as_deref(), retries),
            listing: vec![MaybeUninit::uninit(); LISTING_BYTES].into_boxed_slice(),
        }
    }

    /// Performs tasks until there are none.
    pub fn run(mut self) {
        while let Some((task, _lease)) = self.queue.take() {
            if self.perform(task).is_break() {
                self.queue.stop();
            }
        }
    }

    fn perform(&mut self, task: ScanTask) -> ScanControlFlow {
        match task {
            ScanTask::Root(index) => self.begin_root(index)?,
            ScanTask::Directory(child) => self.enter(&child)?,
        }
        while let Some(level) = self.stack.pop() {
            self.step(level)?;
            if self.queue.is_stopped() {
                break;
            }
        }
        ON
    }

    fn begin_root(&mut self, index: usize) -> ScanControlFlow {
        let scan = self.scan;
        let ScanRoot { root, what } = &scan.roots[index];
        let root_index = u32::try_from(index).expect("fewer sources than 2^32");
        match what {
            ScanRootScope::Tree { sink } => {
                let directory =
                    CopiedDirectoryPaths { root_index, source: RelPath::root(), sink: sink.clone() };
                if scan.filter.as_ref().is_some_and(|filter| filter.excludes_source(sink)) {
                    return self.report_skipped(&directory, b"", EXCLUDED);
                }
                let above = InheritedDirectoryState::default();
                match request(self.retries, || root.open_directory(&RelPath::root())) {
                    Ok(handle) => self.push_directory(handle, Arc::new(directory), &above),
                    Err(error) => {
                        let directory = Arc::new(directory);
                        self.begin_unlisted(
                            || root.enter_directory(&RelPath::root()),
                            directory,
                            &above,
                            &error,
                        )
                    }
                }
            }
            ScanRootScope::Name { name, sink_directory, sink_name, follow } => {
                let directory = CopiedDirectoryPaths {
                    root_index,
                    source: RelPath::root(),
                    sink: sink_directory.clone(),
                };
                self.begin_single_entry(root, directory, name, sink_name, *follow)
            }
        }
    }

    /// Hands on a root that is one file or link.
    fn begin_single_entry(
        &mut self,
        root: &RootDirectory,
        directory: CopiedDirectoryPaths,
        name: &[u8],
        sink_name: &[u8],
        follow: bool,
    ) -> ScanControlFlow {
        let (Ok(name), Ok(())) = (CString::new(name), check_name(sink_name)) else {
            return self.report_failure(&directory, name, FailureKind::BadName, "not a file name".to_owned());
        };
        let inspected = self.inspect(&directory, root.as_fd(), &name, FileType::Unknown, follow);
        let place = FilteredDirectory { at_source: &directory.source, at_sink: &directory.sink, rules: None };
        if let Some(reason) = self.rejection_reason(place, name.to_bytes(), &inspected) {
            return self.report_skipped(&directory, name.to_bytes(), reason);
        }
        match inspected {
            ScannedNameResult::Entry(mut entry, file) => {
                if *entry.name != *sink_name {
                    entry.source_name = Some(mem::replace(&mut entry.name, sink_name.into()));
                }
                self.replace_hard_link(&directory, &mut entry, file);
                let section = DirectorySection {
                    directory: Arc::new(directory),
                    metadata: None,
                    extras: None,
                    entries: vec![entry],
                };
                self.emit(ScannedItem::Section(section, root.identity().dev))
            }
            ScannedNameResult::Directory => self.report_skipped(&directory, name.to_bytes(), "a directory"),
            // Within a tree it is left out; as a source that the user named it is a failure.
            ScannedNameResult::Skipped(what) => {
                let detail = format!("{what}, which is not copied");
                self.report_failure(&directory, name.to_bytes(), FailureKind::NotAFile, detail)
            }
            other => self.report_non_entry(&directory, name.to_bytes(), other),
        }
    }

    fn enter(&mut self, child: &ChildDirectory) -> ScanControlFlow {
        let root = &self.scan.roots[child.directory.root_index as usize].root;
        let opened = request_with_errno(self.retries, || {
            root.open_child_directory(child.parent.as_fd(), &child.directory.source)
        });
        match opened {
            Ok(handle) => self.push_directory(handle, Arc::clone(&child.directory), &child.inherited),
            Err(errno) => {
                let directory = Arc::clone(&child.directory);
                self.begin_unlisted(
                    || Ok(root.enter_child_directory(child.parent.as_fd(), &child.directory.source)?),
                    directory,
                    &child.inherited,
                    &errno.into(),
                )
            }
        }
    }

    /// Begins a directory that can't be listed: the filter's names in it are inspected one by one.
    fn begin_unlisted(
        &mut self,
        open: impl FnOnce() -> io::Result<OwnedFd>,
        directory: Arc<CopiedDirectoryPaths>,
        above: &InheritedDirectoryState,
        error: &io::Error,
    ) -> ScanControlFlow {
        let filter = self.scan.filter.as_ref().filter(|_| error.kind() == io::ErrorKind::PermissionDenied);
        let names = filter.map(|filter| filter.names_in(&directory.source)).unwrap_or_default();
        let (false, Ok(handle)) = (names.is_empty(), open()) else {
            return self.report_io_failure(&directory, error);
        };
        let level_count = self.stack.len();
        self.push_directory(handle, directory, above)?;
        if self.stack.len() == level_count {
            return ON;
        }
        let Some(mut level) = self.stack.pop() else { return ON };
        level.is_listed = true;
        let handle = match level.handle(&self.scan.roots[level.directory().root_index as usize].root) {
            Ok(handle) => handle,
            Err(error) => return self.report_io_failure(level.directory(), &error),
        };
        for name in names.into_iter().filter_map(|name| CString::new(name).ok()) {
            self.visit_name(&mut level, handle.as_fd(), &name, FileType::Unknown)?;
        }
        self.emit_section(&mut level)?;
        self.stack.push(level);
        ON
    }

    /// Pushes a directory that was just opened on the stack.
    fn push_directory(
        &mut self,
        handle: OwnedFd,
        directory: Arc<CopiedDirectoryPaths>,
        above: &InheritedDirectoryState,
    ) -> ScanControlFlow {
        let stat = match request_with_errno(self.retries, || fstat(&handle)) {
            Ok(stat) => stat,
            Err(errno) => return self.report_io_failure(&directory, &errno.into()),
        };
        let identity = FileIdentity::of(&stat);
        if self.scan.destination == Some(identity) {
            let detail = "it is the destination".to_owned();
            return self.report_failure(&directory, b"", FailureKind::IntoItself, detail);
        }
        if self.is_on_excluded_file_system(&directory, identity) {
            return self.report_skipped(&directory, b"", "on another file system");
        }
        let lineage = if self.follows_links() {
            match DirectoryLineage::enter(identity, above.lineage.clone()) {
                None => {
                    return self.report_failure(
                        &directory,
                        b"",
                        FailureKind::ReadError,
                        LEADS_BACK.to_owned(),
                    );
                }
                entered => entered,
            }
        } else {
            None
        };
        let rules = match self.directory_rules(&directory, handle.as_fd(), above) {
            Ok(rules) => rules,
            Err(detail) => return self.report_failure(&directory, b"", FailureKind::ReadError, detail),
        };
        let inherited = InheritedDirectoryState { lineage, rules };
        let spot = AttributeHolder::Open(handle.as_fd());
        let extras = self.scan.extras.as_ref().and_then(|extras| extras.read(spot, stat.st_uid, stat.st_gid));
        let sealing = self.scan.record.as_ref().and_then(|record| record.start_seal(handle.as_fd()));
        let mut level = WalkLevel::new(directory, handle, identity, metadata_of(&stat), extras, inherited);
        level.sealing = sealing;
        self.stack.push(level);
        if let Some(index) = self.stack.len().checked_sub(self.open_levels_max + 1) {
            self.stack[index].release();
        }
        ON
    }

    /// Returns the filter rules for the entries of a directory, from its own files of rules and those above.
    fn directory_rules(
        &self,
        directory: &CopiedDirectoryPaths,
        handle: BorrowedFd<'_>,
        above: &InheritedDirectoryState,
    ) -> Result<Option<Arc<DirectoryRules>>, String> {
        let Some(filter) = self.scan.filter.as_ref().filter(|filter| filter.reads_directory_rules()) else {
            return Ok(None);
        };
        let own = filter.own_rules(handle, &directory.sink)?;
        filter.rules_beneath(above.rules.as_ref(), own.as_ref())
    }

    /// Returns true if a directory lies on a file system that is left out.
    fn is_on_excluded_file_system(&self, directory: &CopiedDirectoryPaths, identity: FileIdentity) -> bool {
        let root = &self.scan.roots[directory.root_index as usize].root;
        let is_on_one = self.scan.filter.as_ref().is_some_and(|filter| filter.is_on_one_file_system());
        is_on_one && identity.dev != root.identity().dev
    }

    /// Makes one step in `level`, which was the top of the stack.
    fn step(&mut self, mut level: WalkLevel) -> ScanControlFlow {
        if level.is_done() {
            self.leave(&level);
            return ON;
        }
        let root_index = level.directory().root_index as usize;
        let root = &self.scan.roots[root_index].root;
        let handle = match request(self.retries, || level.handle(root)) {
            Ok(handle) => handle,
            Err(error) => {
                self.leave(&level);
                return self.report_io_failure(level.directory(), &error);
            }
        };
        if !level.children.is_empty() {
            return self.descend(level, handle);
        }
        let flow = self.list(&mut level, handle.as_fd());
        self.stack.push(level);
        flow
    }

    /// Restores the path of the level beneath a complete one, which becomes the top.
    fn leave(&mut self, level: &WalkLevel) {
        if let Some(below) = self.stack.last_mut() {
            below.recover_place(level.directory());
        }
    }

    /// Offers the level's next subdirectory to the other threads, or enters it.
    fn descend(&mut self, mut level: WalkLevel, parent: Arc<OwnedFd>) -> ScanControlFlow {
        let first = level.first_child();
        if let Some(Err(problem)) = first {
            let name = level.children.first().unwrap_or_default();
            self.report_failure(level.directory(), name, FailureKind::BadName, problem.to_string())?;
        }
        level.children.drop_first();
        let inherited = level.inherited.clone();
        if level.is_done() {
            self.leave(&level);
        } else {
            self.stack.push(level);
        }
        let Some(Ok(directory)) = first else { return ON };
        match self.queue.offer(ChildDirectory { parent, directory, inherited }) {
            Some(child) => self.enter(&child),
            None => ON,
        }
    }

    /// Continues the level's listing, to its end unless too many subdirectories wait.
    fn list(&mut self, level: &mut WalkLevel, handle: BorrowedFd<'_>) -> ScanControlFlow {
        let (bytes, children_max) = if self.stack.len() < self.open_levels_max {
            (LISTING_BYTES, CHILDREN_BYTES_MAX)
        } else {
            (LISTING_BYTES_DEEP, 1)
        };
        let mut buffer = mem::take(&mut self.listing);
        let flow = self.list_with(level, handle, &mut buffer[..bytes], children_max);
        self.listing = buffer;
        flow?;
        self.emit_section(level)
    }

    fn list_with(
        &mut self,
        level: &mut WalkLevel,
        handle: BorrowedFd<'_>,
        buffer: &mut [MaybeUninit<u8>],
        children_max: usize,
    ) -> ScanControlFlow {
        let mut listing = RawDir::new(handle, buffer);
        while let Some(raw) = listing.next() {
            match raw {
                Ok(raw) => self.visit_name(level, handle, raw.file_name(), raw.file_type())?,
                Err(Errno::INTR) => {}
                Err(errno) => match self.list_on(&mut listing, errno.into()) {
                    Ok(Some((name, listed_type))) => self.visit_name(level, handle, &name, listed_type)?,
                    Ok(None) => break,
                    Err(error) => {
                        level.is_listed = true;
                        return self.report_io_failure(level.directory(), &error);
                    }
                },
            }
            if listing.is_buffer_empty() && level.children.byte_count() >= children_max {
                return ON;
            }
        }
        level.is_listed = true;
        if let (Some(record), Some(sealing)) = (&self.scan.record, level.sealing.take()) {
            let directory = level.directory();
            record.finish_seal(directory.root_index as usize, &directory.source, &sealing);
        }
        ON
    }

    /// Asks for the next name again, after an error. Returns `None` at the listing's end.
    fn list_on(
        &self,
        listing: &mut RawDir<'_, BorrowedFd<'_>>,
        error: io::Error,
    ) -> io::Result<Option<(CString, FileType)>> {
        let mut failed = Some(error);
        request(self.retries, || {
            failed.take().map_or(Ok(()), Err)?;
            loop {
                match listing.next().transpose() {
                    Ok(next) => return Ok(next.map(|raw| (raw.file_name().to_owned(), raw.file_type()))),
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        })
    }

    fn visit_name(
        &mut self,
        level: &mut WalkLevel,
        handle: BorrowedFd<'_>,
        name: &CStr,
        listed_type: FileType,
    ) -> ScanControlFlow {
        if matches!(name.to_bytes(), b"." | b"..") {
            return ON;
        }
        if let (Some(record), Some(sealing)) = (&self.scan.record, &mut level.sealing) {
            record.add_name(sealing, name.to_bytes());
        }
        let inspected = self.inspect(level.directory(), handle, name, listed_type, false);
        let directory = level.directory();
        let place = FilteredDirectory {
            at_source: &directory.source,
            at_sink: &directory.sink,
            rules: level.inherited.rules.as_deref(),
        };
        if let Some(reason) = self.rejection_reason(place, name.to_bytes(), &inspected) {
            return self.report_skipped(level.directory(), name.to_bytes(), reason);
        }
        if let (Some(sealing), ScannedNameResult::Entry(..) | ScannedNameResult::Directory) =
            (&mut level.sealing, &inspected)
        {
            sealing.entry_count += 1;
        }
        match inspected {
            ScannedNameResult::Entry(mut entry, file) => {
                self.replace_hard_link(level.directory(), &mut entry, file);
                self.entries.push(entry);
                if self.entries.len() < SCAN_BATCH_ENTRIES_MAX { ON } else { self.emit_section(level) }
            }
            ScannedNameResult::Directory => {
                level.children.push(name);
                ON
            }
            other => self.report_non_entry(level.directory(), name.to_bytes(), other),
        }
    }

    /// Inspects a name; follows a link if `follow` is set or all links are followed.
    fn inspect(
        &mut self,
        directory: &CopiedDirectoryPaths,
        handle: BorrowedFd<'_>,
        name: &CStr,
        listed_type: FileType,
        follow: bool,
    ) -> ScannedNameResult {
        let follow = follow || self.follows_links() && may_be_link(listed_type);
        let root = &self.scan.roots[directory.root_index as usize].root;
        if follow && root.is_confined() {
            self.inspector.inspect_within(root, directory, handle, name)
        } else {
            self.inspector.inspect(handle, name, listed_type, follow)
        }
    }

    fn follows_links(&self) -> bool {
        self.scan.filter.as_ref().is_some_and(|filter| filter.follows_links())
    }

    /// The reason why the filter rejects an entry, if it does.
    fn rejection_reason(
        &self,
        directory: FilteredDirectory<'_>,
        name: &[u8],
        inspected: &ScannedNameResult,
    ) -> Option<&'static str> {
        let filter = self.scan.filter.as_ref()?;
        match inspected {
            ScannedNameResult::Entry(entry, _) => filter.entry_rejection(directory, entry),
            ScannedNameResult::Directory => filter.name_rejection(directory, name, true),
            ScannedNameResult::Skipped(_) | ScannedNameResult::Failed(..) => {
                filter.name_rejection(directory, name, false)
            }
        }
    }

    /// Hands on the waiting entries of the level, with its metadata in the first section.
    fn emit_section(&mut self, level: &mut WalkLevel) -> ScanControlFlow {
        let (metadata, extras) = (level.metadata.take(), level.extras.take());
        if self.entries.is_empty() && metadata.is_none() {
            return ON;
        }
        let entries = self.entries.drain(..).collect();
        let directory = Arc::clone(level.directory());
        self.emit(ScannedItem::Section(
            DirectorySection { directory, metadata, extras, entries },
            level.device(),
        ))
    }

    /// Replaces a further name of a file by an entry without contents.
    fn replace_hard_link(
        &self,
        directory: &CopiedDirectoryPaths,
        entry: &mut Entry,
        file: Option<(FileIdentity, u32)>,
    ) {
        let (Some((file, names)), Some(extras)) = (file, &self.scan.extras) else { return };
        let Ok(path) = directory.sink.join(&entry.name) else { return };
        if let Some(same_as) = extras.hard_link_target(file, names, entry.size(), path) {
            entry.kind = EntryKind::Regular { size: 0 };
            entry.extras =
                Some(Box::new(ExtraMetadata { same_as: Some(same_as), ..ExtraMetadata::default() }));
        }
    }

    fn report_non_entry(
        &self,
        directory: &CopiedDirectoryPaths,
        name: &[u8],
        inspected: ScannedNameResult,
    ) -> ScanControlFlow {
        match inspected {
            ScannedNameResult::Failed(kind, detail) => self.report_failure(directory, name, kind, detail),
            ScannedNameResult::Skipped(reason) => self.report_skipped(directory, name, reason),
            ScannedNameResult::Entry(..) | ScannedNameResult::Directory => ON,
        }
    }

    fn report_skipped(&self, directory: &CopiedDirectoryPaths, name: &[u8], reason: &str) -> ScanControlFlow {
        let path = self.full_path(directory, name);
        self.emit(ScannedItem::Skipped { path, reason: reason.to_owned() })
    }

    /// Reports a directory that could not be read.
    fn report_io_failure(&self, directory: &CopiedDirectoryPaths, error: &io::Error) -> ScanControlFlow {
        self.report_failure(directory, b"", source_failure_kind_of(error), error.to_string())
    }

    fn report_failure(
        &self,
        directory: &CopiedDirectoryPaths,
        name: &[u8],
        kind: FailureKind,
        detail: String,
    ) -> ScanControlFlow {
        let path = self.full_path(directory, name);
        self.emit(ScannedItem::Failed(EntryFailure { path, kind, detail }))
    }

    /// Calls the consumer, unless the scan was stopped.
    fn emit(&self, found: ScannedItem) -> ScanControlFlow {
        if self.queue.is_stopped() { ControlFlow::Break(()) } else { (self.found)(found) }
    }

    fn full_path(&self, directory: &CopiedDirectoryPaths, name: &[u8]) -> Box<[u8]> {
        self.scan.roots[directory.root_index as usize].root.full_path(&directory.source, name)
    }
}

fn may_be_link(listed_type: FileType) -> bool {
    matches!(listed_type, FileType::Symlink | FileType::Unknown)
}
