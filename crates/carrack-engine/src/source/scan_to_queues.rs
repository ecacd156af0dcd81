//! From the scan to the read queues: sections become bundles and large files. Runs on the scan's threads,
//! which wait for room in the queues. So the scan is never far ahead of the transfer.

use std::fmt::Display;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use carrack_layout::MountedFileSystem;
use carrack_machine::ThreadDuty;
use carrack_model::limits::BUNDLE_ENTRIES_MAX;
use carrack_model::{
    CopiedDirectoryPaths, DirectorySection, Entry, EntryFailure, EntryKind, ExtraMetadata, FailureKind,
    MetadataFidelity, PartialCopyRange, RangeSet, StripeChoice, TargetId, TransferEvent, UserNotice,
    text_without_errno,
};
use carrack_plan::{Bundle, BundleLimits, BundleOrLargeFile};
use carrack_storage::{ExtraMetadataReader, FileIdentity, ScanFilter, ScanRoot, ScannedItem, SourceScan};
use carrack_wire::{EntryTableDecoder, EntryTableRecord};

use super::chunks::{FilePart, SessionChunks, SourceChunkMembership};
use super::context::SourceContext;
use super::lane::SourceLane;
use super::large_file::UnopenedFile;
use super::merged_sources;
use super::offers::{AnsweredSection, OfferedSectionOrigin, SourceOfferTable};
use super::pre_deletion::PreDeletionProgress;
use super::small_file_targets::SmallFileTargetSampler;
use super::target_bundlers::TargetBundlers;
use super::work::{BundleReadWork, ReadWork};
use crate::chunks::{ChunkOfEntries, ChunkWorkKind};
use crate::error::SessionError;
use crate::event_delivery::unsupported_metadata_notice;
use crate::wire_layout::stripes_to_message;

/// Scans all sources, or takes chunks to the last one. Returns when all work is queued.
pub(super) fn run(lanes: &[SourceLane<'_>], destination: Option<FileIdentity>) {
    let source = lanes[0].source;
    let feeder = ScanQueueFiller {
        source,
        lanes,
        opened: AtomicUsize::new(1),
        bundlers: Mutex::default(),
        small_files: SmallFileTargetSampler::new(source.settings.scan_thread_count()),
        are_merged: merged_sources::are_merged(&source.tree.roots),
    };
    let fidelity = MetadataFidelity { kept: source.kept, ..source.settings.fidelity.clone() };
    let extras = ExtraMetadataReader::new(fidelity, source.spec.slot_bytes as usize).map(Arc::new);
    let filter = match ScanFilter::new(&source.settings.selection) {
        Ok(filter) => filter.map(Arc::new),
        Err(error) => return feeder.first().raise(SessionError::refused(text_without_errno(&error), "")),
    };
    let mut scan = SourceScan {
        roots: source.tree.roots.iter().map(ScanRoot::clone).collect(),
        threads: source.settings.scan_thread_count(),
        destination,
        extras: extras.clone(),
        filter,
        record: source.deletion.evidence.as_ref().map(|evidence| Arc::clone(&evidence.record)),
    };
    if let Some(notice) =
        unsupported_metadata_notice(source.settings.fidelity.kept, source.kept, "destination")
    {
        feeder.first().report(TransferEvent::Notice(notice));
    }
    if let Some(clearing) = &source.deletion.clearing {
        if !feeder.run_pre_deletion(&scan, clearing) {
            return;
        }
        // The sink has removed the entries.
        scan.record = None;
    }
    match &source.offers {
        None => feeder.scan_or_take_chunks(&scan),
        Some(offers) => thread::scope(|scope| {
            let first = feeder.first();
            first.fault.spawn(scope, first, "carrack-offer", || {
                let _seat =
                    first.crew.bind_current_thread(ThreadDuty::Io(first.read_queue.threads_at_start()));
                feeder.take_answers(offers);
            });
            feeder.scan_or_take_chunks(&scan);
            offers.end(&|message| first.send_message(message));
        }),
    }
    extras.iter().flat_map(|extras| extras.losses().take()).for_each(|loss| {
        feeder.first().report(TransferEvent::Notice(UserNotice::Loss(loss)));
    });
    feeder.finish();
}

struct ScanQueueFiller<'a> {
    source: &'a SourceContext<'a>,
    lanes: &'a [SourceLane<'a>],
    /// The number of lanes that get work.
    opened: AtomicUsize,
    bundlers: Mutex<TargetBundlers>,
    small_files: SmallFileTargetSampler,
    /// True if several sources become one directory at the sink.
    are_merged: bool,
}

impl<'a> ScanQueueFiller<'a> {
    /// Scans, or takes chunks, to the end.
    fn scan_or_take_chunks(&self, scan: &SourceScan) {
        match &self.source.chunks {
            Some(chunks) => self.work_in_lane(0, &|| self.take_chunks(chunks)),
            None => scan.run_on(&|i, work| self.work_in_lane(i, work), Some(self.first()), &|found| {
                self.handle_item(found)
            }),
        }
    }

    /// Assigns the scan's threads to lanes. The first thread of each lane runs with its master (N3), the
    /// others with the readers.
    fn work_in_lane(&self, i: usize, work: &dyn Fn()) {
        let lane = &self.lanes[i % self.lanes.len()];
        let duty = match i / self.lanes.len() {
            0 => ThreadDuty::Master(0),
            further => ThreadDuty::Io(lane.read_queue.threads_at_start() + further - 1),
        };
        let _seat = lane.crew.bind_current_thread(duty);
        work();
    }

    /// Scans for read errors, and lets the sink remove entries. Returns false if the session ends.
    fn run_pre_deletion(&self, scan: &SourceScan, clearing: &PreDeletionProgress) -> bool {
        // Attributes are not needed here, and their losses would be reported twice.
        let scan = SourceScan {
            roots: scan.roots.iter().map(ScanRoot::clone).collect(),
            extras: None,
            filter: scan.filter.clone(),
            record: scan.record.clone(),
            ..*scan
        };
        let first = self.first();
        scan.run_on(&|i, work| self.work_in_lane(i, work), Some(first), &|found| {
            clearing.count_item(&found);
            if first.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        clearing.end_first_scan();
        first.mail.wake();
        clearing.wait()
    }

    /// Returns the first lane, which counts and reports for all lanes.
    fn first(&self) -> &'a SourceLane<'a> {
        &self.lanes[0]
    }

    /// Returns the lane for the next piece of work: the lane with the smallest backlog. A lane that has had
    /// no work stays closed until all open lanes are saturated, as one lane is cheaper than several for a
    /// small load (N7).
    fn next_lane(&self) -> &'a SourceLane<'a> {
        let (open, closed) = self.lanes.split_at(self.opened.load(Relaxed));
        let least = open.iter().min_by_key(|lane| lane.backlog.bytes());
        match (least, closed.first()) {
            (Some(least), Some(next)) if least.is_saturated() => {
                self.opened.fetch_max(open.len() + 1, Relaxed);
                next
            }
            (Some(least), _) => least,
            (None, _) => self.first(),
        }
    }

    fn bundlers(&self) -> MutexGuard<'_, TargetBundlers> {
        self.bundlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bundle_limits(&self, file_system: &MountedFileSystem) -> BundleLimits {
        let slot_bytes = self.source.spec.slot_bytes;
        BundleLimits {
            object_bytes: file_system.own_target().object_bytes.min(slot_bytes).into(),
            slot_bytes: slot_bytes as usize,
            entries_max: BUNDLE_ENTRIES_MAX,
        }
    }

    /// Returns true if a lane may soon have no work.
    fn is_hungry(&self) -> bool {
        !self.lanes.iter().take(self.opened.load(Relaxed)).all(SourceLane::is_saturated)
    }

    /// Splits a section by the targets of its small files (L1, L2). The first part has the directory, all
    /// large files, and the small ones whose target is not known: they lie on the file system as a whole.
    fn split_by_target(
        &self,
        file_system: &MountedFileSystem,
        mut section: DirectorySection,
    ) -> Vec<(TargetId, DirectorySection)> {
        let own = file_system.own_target().id;
        let small = self.bundle_limits(file_system).object_bytes;
        if !file_system.has_layouts() {
            return vec![(own, section)];
        }
        // Opened for the first file that is asked for. Entries that can't be examined fail when they are
        // read.
        let mut held = None;
        let mut elsewhere: Vec<(TargetId, Vec<Entry>)> = Vec::new();
        let directory = Arc::clone(&section.directory);
        let striping = section.extras.as_deref().and_then(ExtraMetadata::striping_only);
        let entries = std::mem::take(&mut section.entries);
        for entry in entries {
            let asks =
                has_small_contents(&entry, small) && self.small_files.should_ask(|| self.avoids_target());
            let found = if asks {
                self.small_file_target(file_system, &directory, &mut held, &entry)
            } else {
                Ok(None)
            };
            match found {
                Ok(Some(target)) if target != own => {
                    match elsewhere.iter_mut().find(|(known, _)| *known == target) {
                        Some((_, entries)) => entries.push(entry),
                        None => elsewhere.push((target, vec![entry])),
                    }
                }
                Ok(_) => section.entries.push(entry),
                Err(failure) => self.first().fail(failure),
            }
        }
        let mut parts = Vec::with_capacity(elsewhere.len() + 1);
        let has_directory = section.metadata.is_some() || section.extras.is_some();
        if has_directory || !section.entries.is_empty() || elsewhere.is_empty() {
            parts.push((own, section));
        }
        parts.extend(elsewhere.into_iter().map(|(target, entries)| {
            let directory = Arc::clone(&directory);
            (target, DirectorySection { directory, metadata: None, extras: striping.clone(), entries })
        }));
        parts
    }

    /// Returns the target of a small file; `None` if its file system does not tell. `held` is the directory,
    /// once it was opened.
    fn small_file_target(
        &self,
        file_system: &MountedFileSystem,
        directory: &CopiedDirectoryPaths,
        held: &mut Option<OwnedFd>,
        entry: &Entry,
    ) -> Result<Option<TargetId>, EntryFailure> {
        let began = Instant::now();
        let held = match held {
            Some(held) => held,
            None => match self.source.tree.open_directory(directory) {
                Ok(opened) => held.insert(opened),
                Err(_) => return Ok(None),
            },
        };
        let target = self.target_in(file_system, directory, held, entry)?;
        self.small_files.record(target.unwrap_or(file_system.own_target().id), began.elapsed());
        Ok(target)
    }

    /// Returns true if the policy of a lane avoids a target now.
    fn avoids_target(&self) -> bool {
        let file_systems = &self.source.tree.file_systems;
        let reports = self.lanes.iter().flat_map(|lane| lane.read_queue.target_reports(file_systems));
        reports.into_iter().any(|report| report.is_avoided)
    }

    fn handle_item(&self, found: ScannedItem) -> ControlFlow<()> {
        let first = self.first();
        match found {
            ScannedItem::Section(section, device) => return self.handle_section(section, device),
            ScannedItem::Failed(failure) => first.fail(failure),
            ScannedItem::Skipped { path, reason } => {
                first.counters.entries_skipped.fetch_add(1, Relaxed);
                first.report(TransferEvent::Notice(UserNotice::Skipped { path, reason }));
            }
        }
        ControlFlow::Continue(())
    }

    fn handle_section(&self, mut section: DirectorySection, device: u64) -> ControlFlow<()> {
        if self.are_merged && !self.first().remove_taken_places(&mut section) {
            return ControlFlow::Continue(());
        }
        if let Some(part) = self.source.spec.part {
            self.narrow(&mut section, part);
        }
        self.count(&section);
        self.add_striping(&mut section);
        let origin = OfferedSectionOrigin::from_scan(device);
        match &self.source.offers {
            Some(offers) => self.offer(offers, section, &origin),
            None => self.queue_wanted(section, &origin),
        }
    }

    /// Adds the striping of a directory's new files to its metadata, if the sink preserves that.
    fn add_striping(&self, section: &mut DirectorySection) {
        if self.source.spec.stripe != StripeChoice::Preserve || section.metadata.is_none() {
            return;
        }
        if let Some(geometry) = self.source.tree.default_striping(&section.directory) {
            let striping = stripes_to_message(&geometry).to_bytes();
            section.extras.get_or_insert_default().striping = Some(striping.into());
        }
    }

    /// Cuts the files of a partial transfer to their range. A file that ends before the range has changed
    /// since the user named it.
    fn narrow(&self, section: &mut DirectorySection, part: PartialCopyRange) {
        let DirectorySection { directory, entries, .. } = section;
        entries.retain_mut(|entry| match entry.kind {
            EntryKind::Regular { size } if part.range_in(size).is_some() => {
                entry.kind = EntryKind::Regular { size: part.end_in(size) };
                true
            }
            _ => {
                let path = self.source.tree.path(directory, entry);
                self.first().fail_path(path, FailureKind::Changed, "it has no such part any more");
                false
            }
        });
    }

    /// Offers a section to the sink.
    fn offer(
        &self,
        offers: &SourceOfferTable,
        section: DirectorySection,
        origin: &OfferedSectionOrigin,
    ) -> ControlFlow<()> {
        let by_contents = self.source.compares_contents();
        let digests = if by_contents { self.source.tree.digests(&section) } else { Vec::new() };
        offers.offer(section, digests, origin, &|message| self.first().send_message(message))
    }

    /// Queues chunk after chunk (Y3).
    fn take_chunks(&self, chunks: &SessionChunks) {
        while let Some((chunk, token)) = chunks.next(self.lanes) {
            match self.queue_chunk(chunks, &chunk, token) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return,
                Err(error) => return self.first().raise(error),
            }
        }
    }

    fn queue_chunk(
        &self,
        chunks: &SessionChunks,
        chunk: &ChunkOfEntries,
        token: SourceChunkMembership,
    ) -> Result<ControlFlow<()>, SessionError> {
        let part = FilePart::of(chunk.work);
        let found = sections_of(chunk)?;
        // A sync skips each part of a file that is sent in parts, and then its end.
        let is_compared = self.source.spec.sync.is_some() && chunk.work != ChunkWorkKind::Discard;
        let is_offered = chunk.is_repeated || is_compared || matches!(part, Some(FilePart::Range(_)));
        let bytes = match part {
            Some(part) => part.range().len,
            None => found.iter().flat_map(|section| &section.entries).map(Entry::size).sum(),
        };
        let asked = (is_offered && self.source.offers.is_some()).then(|| chunks.add_offered_bytes(bytes));
        let mut sections = Vec::new();
        for mut section in found {
            self.count_chunk(&section, part);
            self.add_striping(&mut section);
            match chunks.device_of(&section.directory, || self.source.tree.device_of(&section.directory)) {
                Some(device) => {
                    sections.push((
                        section,
                        OfferedSectionOrigin {
                            device,
                            chunk: Some(token.clone()),
                            part,
                            _asked: asked.clone(),
                        },
                    ));
                }
                None => drop(self.fail_section(&section)),
            }
        }
        Ok(match self.source.offers.as_ref().filter(|_| is_offered) {
            Some(offers) => {
                let offered = sections
                    .into_iter()
                    .try_for_each(|(section, origin)| self.offer(offers, section, &origin));
                offers.flush(&|message| self.first().send_message(message));
                offered
            }
            None => self.queue_chunk_entries(sections),
        })
    }

    fn count_chunk(&self, section: &DirectorySection, part: Option<FilePart>) {
        let counters = &self.first().counters;
        match part {
            None => self.count(section),
            // The file counts once, when it is finished.
            Some(FilePart::Range(range)) => drop(counters.bytes_found.fetch_add(range.len, Relaxed)),
            Some(FilePart::Finish) => {
                counters.entries_found.fetch_add(section.entries.len() as u64, Relaxed);
            }
            Some(FilePart::Discard) => {}
        }
    }

    /// Queues the wanted entries of a chunk. A bundle never spans two chunks, so that each chunk has its own
    /// end.
    fn queue_chunk_entries(
        &self,
        sections: Vec<(DirectorySection, OfferedSectionOrigin)>,
    ) -> ControlFlow<()> {
        let mut bundlers = TargetBundlers::default();
        let mut last = None;
        for (section, origin) in sections {
            let Some(file_system) = self.source.tree.file_system(origin.device, &section.directory) else {
                self.fail_section(&section)?;
                continue;
            };
            if origin.part.is_some() {
                let directory = section.directory;
                for entry in section.entries {
                    self.queue_large(&file_system, Arc::clone(&directory), entry, None, &origin)?;
                }
                continue;
            }
            let limits = self.bundle_limits(&file_system);
            for (target, section) in self.split_by_target(&file_system, section) {
                let work = bundlers.add(target, section, limits, self.is_hungry());
                work.into_iter()
                    .try_for_each(|(target, work)| self.queue(&file_system, target, work, &origin))?;
            }
            last = Some(origin);
        }
        let Some(origin) = last else { return ControlFlow::Continue(()) };
        let rests = bundlers.finish();
        rests
            .into_iter()
            .try_for_each(|(target, bundle)| self.queue_bundle(target, bundle, origin.chunk.clone()))
    }

    /// Queues the sink's choices until all offers have replies.
    fn take_answers(&self, offers: &SourceOfferTable) {
        while let Some(answered) = offers.next() {
            let AnsweredSection { section, origin, begun } = answered;
            if self.queue_begun_files(&section.directory, &origin, begun).is_break()
                || self.queue_wanted(section, &origin).is_break()
            {
                return;
            }
        }
    }

    /// Queues files of which the sink holds ranges.
    fn queue_begun_files(
        &self,
        directory: &Arc<CopiedDirectoryPaths>,
        origin: &OfferedSectionOrigin,
        begun: Vec<(Entry, RangeSet)>,
    ) -> ControlFlow<()> {
        if begun.is_empty() {
            return ControlFlow::Continue(());
        }
        let Some(file_system) = self.source.tree.file_system(origin.device, directory) else {
            let entries = begun.into_iter().map(|(entry, _)| entry).collect();
            return self.fail_section(&DirectorySection {
                directory: Arc::clone(directory),
                metadata: None,
                extras: None,
                entries,
            });
        };
        begun.into_iter().try_for_each(|(entry, held)| {
            let held = Some(Arc::new(held));
            self.queue_large(&file_system, Arc::clone(directory), entry, held, origin)
        })
    }

    fn queue_wanted(&self, section: DirectorySection, origin: &OfferedSectionOrigin) -> ControlFlow<()> {
        if self.source.spec.dry_run {
            self.report_would_copy(&section);
            let is_over = self.first().fault.is_raised();
            return if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        }
        if origin.chunk.is_some() {
            return self.queue_chunk_entries(vec![(section, origin.clone())]);
        }
        let Some(file_system) = self.source.tree.file_system(origin.device, &section.directory) else {
            return self.fail_section(&section);
        };
        if self.source.spec.part.is_some() {
            let DirectorySection { directory, entries, .. } = section;
            return entries.into_iter().try_for_each(|entry| {
                self.queue_large(&file_system, Arc::clone(&directory), entry, None, origin)
            });
        }
        let limits = self.bundle_limits(&file_system);
        self.split_by_target(&file_system, section).into_iter().try_for_each(|(target, section)| {
            let work = self.bundlers().add(target, section, limits, self.is_hungry());
            work.into_iter().try_for_each(|(target, work)| self.queue(&file_system, target, work, origin))
        })
    }

    /// Fails the entries of a directory that vanished after its scan.
    fn fail_section(&self, section: &DirectorySection) -> ControlFlow<()> {
        for entry in &section.entries {
            let path = self.source.tree.path(&section.directory, entry);
            self.first().fail_path(path, FailureKind::Missing, "its directory can't be opened any more");
        }
        ControlFlow::Continue(())
    }

    fn count(&self, section: &DirectorySection) {
        let counters = &self.first().counters;
        let entries = section.entries.len() as u64 + u64::from(section.metadata.is_some());
        counters.entries_found.fetch_add(entries, Relaxed);
        let bytes = section.entries.iter().map(|entry| self.source.wanted_bytes(entry)).sum();
        counters.bytes_found.fetch_add(bytes, Relaxed);
        self.source.counts.count_section(section);
    }

    fn report_would_copy(&self, section: &DirectorySection) {
        let directory = &section.directory.sink;
        if section.metadata.is_some() && !directory.is_root() {
            let path = [directory.as_bytes(), b"/"].concat().into();
            self.first().report(TransferEvent::WouldCopy { path, size: 0 });
        }
        for entry in &section.entries {
            if let Ok(path) = directory.join(&entry.name) {
                let size = self.source.wanted_bytes(entry);
                self.first().report(TransferEvent::WouldCopy { path: path.as_bytes().into(), size });
            }
        }
    }

    fn queue(
        &self,
        file_system: &MountedFileSystem,
        target: TargetId,
        work: BundleOrLargeFile,
        origin: &OfferedSectionOrigin,
    ) -> ControlFlow<()> {
        match work {
            BundleOrLargeFile::Bundle(bundle) => self.queue_bundle(target, bundle, origin.chunk.clone()),
            BundleOrLargeFile::Large { directory, entry } => {
                self.queue_large(file_system, directory, entry, None, origin)
            }
        }
    }

    fn queue_bundle(
        &self,
        target: TargetId,
        bundle: Bundle,
        chunk: Option<SourceChunkMembership>,
    ) -> ControlFlow<()> {
        self.push(target, ReadWork::Bundle(BundleReadWork { bundle, attempts: 0, is_rest: false, chunk }))
    }

    fn queue_large(
        &self,
        file_system: &MountedFileSystem,
        directory: Arc<CopiedDirectoryPaths>,
        entry: Entry,
        held: Option<Arc<RangeSet>>,
        origin: &OfferedSectionOrigin,
    ) -> ControlFlow<()> {
        match self.target_of(file_system, &directory, &entry) {
            Ok(target) => {
                let target = target.unwrap_or(file_system.own_target().id);
                let (part, chunk) = (origin.part, origin.chunk.clone());
                self.push(
                    target,
                    ReadWork::Open(UnopenedFile { directory, entry, attempts: 0, held, part, chunk }),
                )
            }
            Err(failure) => {
                self.first().fail(failure);
                ControlFlow::Continue(())
            }
        }
    }

    /// Returns the target of a large file's first byte, where the file system has layouts. The file waits
    /// there to be opened.
    fn target_of(
        &self,
        file_system: &MountedFileSystem,
        directory: &CopiedDirectoryPaths,
        entry: &Entry,
    ) -> Result<Option<TargetId>, EntryFailure> {
        let source = self.source;
        if !file_system.has_layouts() {
            return Ok(None);
        }
        // Entries that can't be examined fail when they are opened.
        let Ok(held) = source.tree.open_directory(directory) else { return Ok(None) };
        self.target_in(file_system, directory, &held, entry)
    }

    /// As [`target_of`](Self::target_of), for an entry of an open directory.
    fn target_in(
        &self,
        file_system: &MountedFileSystem,
        directory: &CopiedDirectoryPaths,
        held: &OwnedFd,
        entry: &Entry,
    ) -> Result<Option<TargetId>, EntryFailure> {
        let source = self.source;
        let Some(found) = source.tree.layout_of(file_system, directory, held, entry) else { return Ok(None) };
        if let Some(failure) = source.tree.absent_data_of(&found, directory, entry, source.settings.recall) {
            return Err(failure);
        }
        Ok(Some(found.layout.extent_at(0).target))
    }

    fn push(&self, target: TargetId, work: ReadWork) -> ControlFlow<()> {
        let lane = self.next_lane();
        let entries = work.fresh_entries();
        if lane.read_queue.await_room(entries).is_err() {
            return ControlFlow::Break(());
        }
        lane.read_queue.add_targets(&[target], &self.source.tree.file_systems);
        lane.backlog.add_item(work.work_bytes());
        lane.read_queue.push(target, work);
        ControlFlow::Continue(())
    }

    fn finish(self) {
        let rests = self.bundlers().finish();
        let queued =
            rests.into_iter().try_for_each(|(target, bundle)| self.queue_bundle(target, bundle, None));
        if queued.is_break() {
            return;
        }
        for lane in self.lanes {
            lane.counters.scan_done.store(true, Release);
            lane.mail.wake();
        }
    }
}

/// Returns true for a file with contents below `object_bytes`, and not for a further name of another file.
fn has_small_contents(entry: &Entry, object_bytes: u64) -> bool {
    let is_further_name = entry.extras.as_deref().is_some_and(|extras| extras.same_as.is_some());
    matches!(entry.kind, EntryKind::Regular { size } if (1..object_bytes).contains(&size)) && !is_further_name
}

/// Decodes the sections of a chunk, beneath the first root.
fn sections_of(chunk: &ChunkOfEntries) -> Result<Vec<DirectorySection>, SessionError> {
    let mut sections: Vec<DirectorySection> = Vec::new();
    for record in EntryTableDecoder::new(&chunk.table) {
        match record.map_err(bad_chunk)? {
            EntryTableRecord::Section { path, metadata, extras } => {
                let directory = CopiedDirectoryPaths { root_index: 0, source: path.clone(), sink: path };
                sections.push(DirectorySection {
                    directory: Arc::new(directory),
                    metadata,
                    extras,
                    entries: Vec::new(),
                });
            }
            EntryTableRecord::Entry(entry) => {
                let section = sections.last_mut().ok_or_else(|| bad_chunk("an entry in no directory"))?;
                let mut entry = entry.to_entry();
                entry.source_name = chunk.source_name.as_deref().map(Into::into);
                section.entries.push(entry);
            }
        }
    }
    Ok(sections)
}

fn bad_chunk(what: impl Display) -> SessionError {
    SessionError::refused(format!("a chunk can't be read: {what}"), "")
}
