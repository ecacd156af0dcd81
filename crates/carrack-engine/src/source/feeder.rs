//! From the scan to the target queues: sections become bundles and large files. Runs on the scan's threads, which
//! wait here while the queues are full; so the scan is never far ahead of the transfer.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use carrack_model::limits::BUNDLE_ENTRIES_MAX;
use carrack_model::{Directory, Event, Notice, Section, TargetId};
use carrack_plan::{BundleLimits, Bundler, Work};
use carrack_storage::{Found, Identity, Scan, ScanRoot, StorageTarget};

use super::Source;
use super::queue::{Job, Room, take_one};

/// Scans everything and returns when all of it is queued.
pub(super) fn run(source: &Source<'_>, destination: Option<Identity>) {
    let feeder = Feeder::new(source);
    let scan = Scan {
        roots: source.roots.iter().map(ScanRoot::clone).collect(),
        threads: source.settings.scan_thread_count(),
        destination,
    };
    scan.run(&|found| feeder.found(found));
    feeder.finish();
}

struct Feeder<'a> {
    source: &'a Source<'a>,
    /// One for each target: a bundle lies on one.
    bundlers: Mutex<HashMap<TargetId, Bundler>>,
}

impl<'a> Feeder<'a> {
    fn new(source: &'a Source<'a>) -> Feeder<'a> {
        Feeder { source, bundlers: Mutex::default() }
    }

    fn bundlers(&self) -> MutexGuard<'_, HashMap<TargetId, Bundler>> {
        self.bundlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_bundler(&self, target: TargetId) -> Bundler {
        let slot_bytes = self.source.spec.slot_bytes;
        Bundler::new(BundleLimits {
            object_bytes: self.source.targets.object_bytes(target, slot_bytes),
            slot_bytes: slot_bytes as usize,
            entries_max: BUNDLE_ENTRIES_MAX,
        })
    }

    fn found(&self, found: Found) -> ControlFlow<()> {
        let source = self.source;
        match found {
            Found::Section(section, target) => return self.section(section, target),
            Found::Failed(failure) => source.fail(failure),
            Found::Skipped { path, reason } => {
                source.counters.entries_skipped.fetch_add(1, Relaxed);
                source.report(Event::Notice(Notice::Skipped { path, reason }));
            }
        }
        ControlFlow::Continue(())
    }

    fn section(&self, section: Section, target: TargetId) -> ControlFlow<()> {
        self.count(&section);
        if self.source.spec.dry_run {
            self.would_copy(&section);
            return if self.source.fault.is_raised() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            };
        }
        self.learn(target, &section.directory);
        let mut work = Vec::new();
        self.bundlers().entry(target).or_insert_with(|| self.new_bundler(target)).add(section, &mut work);
        work.into_iter().try_for_each(|work| self.queue(target, work))
    }

    /// Looks at a target when the scan first comes across it.
    fn learn(&self, id: TargetId, directory: &Directory) {
        let source = self.source;
        if source.targets.get(id).is_some() {
            return;
        }
        // A directory that can't be opened (any more) fails where its files are read.
        let Ok(held) = source.open_directory(directory) else { return };
        let Ok(target) = StorageTarget::of(held.as_fd()) else { return };
        source.targets.add(target);
        source.queue.with(|queue| queue.add_target(&target));
    }

    fn count(&self, section: &Section) {
        let counters = &self.source.counters;
        let entries = section.entries.len() as u64 + u64::from(section.metadata.is_some());
        counters.entries_found.fetch_add(entries, Relaxed);
        counters.bytes_found.fetch_add(section.entries.iter().map(|entry| entry.size()).sum(), Relaxed);
    }

    fn would_copy(&self, section: &Section) {
        let directory = &section.directory.sink;
        if section.metadata.is_some() && !directory.is_root() {
            let path = [directory.as_bytes(), b"/"].concat().into();
            self.source.report(Event::WouldCopy { path, size: 0 });
        }
        for entry in &section.entries {
            if let Ok(path) = directory.join(&entry.name) {
                self.source.report(Event::WouldCopy { path: path.as_bytes().into(), size: entry.size() });
            }
        }
    }

    fn queue(&self, target: TargetId, work: Work) -> ControlFlow<()> {
        let source = self.source;
        let job = match work {
            Work::Bundle(bundle) => Job::Bundle(bundle, 0),
            Work::Large { directory, entry } => {
                if source.permits.take(take_one).is_err() {
                    return ControlFlow::Break(());
                }
                Job::Open { directory, entry, attempts: 0 }
            }
        };
        if source.room.take(Room::take).is_err() {
            return ControlFlow::Break(());
        }
        source.pending.fetch_add(1, AcqRel);
        source.queue.release(|queue| queue.push(target, job));
        ControlFlow::Continue(())
    }

    fn finish(self) {
        let rests: Vec<_> = self
            .bundlers()
            .iter_mut()
            .filter_map(|(target, bundler)| Some((*target, bundler.finish()?)))
            .collect();
        for (target, bundle) in rests {
            if self.queue(target, Work::Bundle(bundle)).is_break() {
                return;
            }
        }
        self.source.counters.scan_done.store(true, Release);
        self.source.mail.wake();
    }
}
