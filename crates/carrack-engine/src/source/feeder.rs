//! From the scan to the target queues: sections become bundles and large files. Runs on the scan's threads, which
//! wait here while the queues are full; so the scan is never far ahead of the transfer.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use carrack_machine::Duty;
use carrack_model::limits::BUNDLE_ENTRIES_MAX;
use carrack_model::{Directory, Entry, EntryFailure, Event, FailureKind, Notice, Section, TargetId};
use carrack_plan::{BundleLimits, Bundler, Work};
use carrack_storage::{FileSystem, Found, Identity, Scan, ScanRoot};

use super::Source;
use super::lane::Lane;
use super::queue::Job;

/// Scans everything and returns when all of it is queued.
pub(super) fn run(source: &Source<'_>, lanes: &[Lane<'_>], destination: Option<Identity>) {
    let feeder = Feeder { source, lanes, opened: AtomicUsize::new(1), bundlers: Mutex::default() };
    let scan = Scan {
        roots: source.roots.iter().map(ScanRoot::clone).collect(),
        threads: source.settings.scan_thread_count(),
        destination,
    };
    scan.run_on(&|i, work| feeder.work_in_lane(i, work), &|found| feeder.found(found));
    feeder.finish();
}

struct Feeder<'a> {
    source: &'a Source<'a>,
    lanes: &'a [Lane<'a>],
    /// How many of the lanes are given work.
    opened: AtomicUsize,
    /// One for each target: a bundle lies on one.
    bundlers: Mutex<HashMap<TargetId, Bundler>>,
}

impl<'a> Feeder<'a> {
    /// The scan's threads are dealt out over the lanes: the first of each is its Master (N3), others sit with the readers.
    fn work_in_lane(&self, i: usize, work: &dyn Fn()) {
        let lane = &self.lanes[i % self.lanes.len()];
        let duty = match i / self.lanes.len() {
            0 => Duty::Master(0),
            further => Duty::Io(lane.io_threads + further - 1),
        };
        let _seat = lane.crew.sit(duty);
        work();
    }

    /// The lane that leads: what is found is counted and told there.
    fn first(&self) -> &'a Lane<'a> {
        &self.lanes[0]
    }

    /// The lane that gets the next piece of work: the one that has least to do. While none has too much, those that were
    /// never given any stay closed: for a small load one lane is cheaper than several (N7).
    fn lane(&self) -> &'a Lane<'a> {
        let (open, closed) = self.lanes.split_at(self.opened.load(Relaxed));
        let least = open.iter().min_by_key(|lane| lane.backlog_bytes());
        match (least, closed.first()) {
            (Some(least), Some(next)) if least.is_saturated() => {
                self.opened.fetch_max(open.len() + 1, Relaxed);
                next
            }
            (Some(least), _) => least,
            (None, _) => self.first(),
        }
    }

    fn bundlers(&self) -> MutexGuard<'_, HashMap<TargetId, Bundler>> {
        self.bundlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a target that the scan has come across.
    fn new_bundler(&self, file_system: &FileSystem) -> Bundler {
        let slot_bytes = self.source.spec.slot_bytes;
        Bundler::new(BundleLimits {
            object_bytes: file_system.own_target().object_bytes.min(slot_bytes).into(),
            slot_bytes: slot_bytes as usize,
            entries_max: BUNDLE_ENTRIES_MAX,
        })
    }

    fn found(&self, found: Found) -> ControlFlow<()> {
        let first = self.first();
        match found {
            Found::Section(section, device) => return self.section(section, device),
            Found::Failed(failure) => first.fail(failure),
            Found::Skipped { path, reason } => {
                first.counters.entries_skipped.fetch_add(1, Relaxed);
                first.report(Event::Notice(Notice::Skipped { path, reason }));
            }
        }
        ControlFlow::Continue(())
    }

    fn section(&self, section: Section, device: u64) -> ControlFlow<()> {
        self.count(&section);
        if self.source.spec.dry_run {
            self.would_copy(&section);
            return if self.first().fault.is_raised() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            };
        }
        let Some(file_system) = self.source.file_system(device, &section.directory) else {
            return self.unreadable(&section);
        };
        let mut work = Vec::new();
        self.bundlers()
            .entry(file_system.own_target().id)
            .or_insert_with(|| self.new_bundler(&file_system))
            .add(section, &mut work);
        work.into_iter().try_for_each(|work| self.queue(&file_system, work))
    }

    /// Its directory vanished between the scan's look and this one.
    fn unreadable(&self, section: &Section) -> ControlFlow<()> {
        for entry in &section.entries {
            let path = self.source.path(&section.directory, entry);
            self.first().fail_path(path, FailureKind::Missing, "its directory can't be opened any more");
        }
        ControlFlow::Continue(())
    }

    fn count(&self, section: &Section) {
        let counters = &self.first().counters;
        let entries = section.entries.len() as u64 + u64::from(section.metadata.is_some());
        counters.entries_found.fetch_add(entries, Relaxed);
        counters.bytes_found.fetch_add(section.entries.iter().map(|entry| entry.size()).sum(), Relaxed);
    }

    fn would_copy(&self, section: &Section) {
        let directory = &section.directory.sink;
        if section.metadata.is_some() && !directory.is_root() {
            let path = [directory.as_bytes(), b"/"].concat().into();
            self.first().report(Event::WouldCopy { path, size: 0 });
        }
        for entry in &section.entries {
            if let Ok(path) = directory.join(&entry.name) {
                self.first().report(Event::WouldCopy { path: path.as_bytes().into(), size: entry.size() });
            }
        }
    }

    fn queue(&self, file_system: &FileSystem, work: Work) -> ControlFlow<()> {
        let own = file_system.own_target().id;
        match work {
            Work::Bundle(bundle) => self.push(own, Job::Bundle(bundle, 0)),
            Work::Large { directory, entry } => {
                let target = match self.target_of(file_system, &directory, &entry) {
                    Ok(target) => target.unwrap_or(own),
                    Err(failure) => {
                        self.first().fail(failure);
                        return ControlFlow::Continue(());
                    }
                };
                self.push(target, Job::Open { directory, entry, attempts: 0 })
            }
        }
    }

    /// The target of a large file's first byte, where the file system places files: there it waits to be opened.
    fn target_of(
        &self,
        file_system: &FileSystem,
        directory: &Directory,
        entry: &Entry,
    ) -> Result<Option<TargetId>, EntryFailure> {
        let source = self.source;
        if !file_system.has_layouts() {
            return Ok(None);
        }
        // What can't be looked at fails where it is opened.
        let Ok(held) = source.open_directory(directory) else { return Ok(None) };
        let follows = source.follows(directory.root_index);
        let found = file_system.layout_at(held.as_fd(), entry.name_at_source(), follows, entry.size());
        if found.is_released && !source.settings.recall {
            return Err(source.released(directory, entry));
        }
        Ok(Some(found.layout.extent_at(0).target))
    }

    fn push(&self, target: TargetId, job: Job) -> ControlFlow<()> {
        let lane = self.lane();
        let entries = job.fresh_entries();
        if lane.room.take(|room| room.take(entries)).is_err() {
            return ControlFlow::Break(());
        }
        lane.learn(&[target]);
        lane.one_more_pending(job.work_bytes());
        lane.queue.release(|queue| queue.push(target, job));
        ControlFlow::Continue(())
    }

    fn finish(self) {
        let rests: Vec<_> = self
            .bundlers()
            .iter_mut()
            .filter_map(|(target, bundler)| Some((*target, bundler.finish()?)))
            .collect();
        for (target, bundle) in rests {
            if self.push(target, Job::Bundle(bundle, 0)).is_break() {
                return;
            }
        }
        for lane in self.lanes {
            lane.counters.scan_done.store(true, Release);
            lane.mail.wake();
        }
    }
}
