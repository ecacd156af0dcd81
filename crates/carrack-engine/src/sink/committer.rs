//! What was written and is not recorded yet (L12).
//!
//! The threads that write note here what they wrote. One thread, `carrack-commit`, takes what came together (a group), makes it
//! durable, reads it again if the user wants that, and only then records it in the journal. So a record is never ahead of the
//! data, and the threads that write wait only when two groups are full.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use carrack_journal::{Batch, Journal, Subtree};
use carrack_machine::{Attempt, Monitor};
use carrack_model::{ByteRange, Durability, FailureKind, RelPath, Verify, escape};
use carrack_storage::{
    Care, Durable, Root, SinkError, SyncFirst, keep_times, read_back, sync_data, sync_directories, sync_file,
    sync_file_system,
};

use super::group::{End, Group, Places, Written};
use super::sink_file::SinkFile;
use crate::check::xxh3;
use crate::error::SessionError;
use crate::lanes::open_files;
use crate::settings::{JournalSettings, Settings};

/// Where a transfer's records go, and what becomes durable when.
pub(super) struct Committer {
    root: Arc<Root>,
    /// The root's directory, open for reading from the start: it is told of everything that could not be written back since.
    /// Nothing if it can't be read (a drop box): then each file is synced by itself.
    held: Option<OwnedFd>,
    /// Nothing if no journal is kept: what is written is made durable all the same.
    journal: Option<Journal>,
    /// For people.
    journal_path: String,
    has_recorded: AtomicBool,
    durable: Durable,
    /// Whether everything lies on the file system of the root.
    is_one_file_system: bool,
    settings: JournalSettings,
    bounds: Bounds,
    verify: Verify,
    /// Where no journal counts.
    next_number: AtomicU64,
    filling: Monitor<Filling>,
    /// Groups that were taken: whoever fills one beyond its limit waits for that.
    taken: Monitor<u64>,
    /// Groups that are durable and recorded.
    settled: Monitor<u64>,
    /// Something could not be made durable or recorded: nothing is recorded on top of it.
    is_broken: AtomicBool,
    /// The other end is gone: no time is spent on what is not recorded yet.
    is_abandoned: AtomicBool,
}

/// What was made durable of small files.
enum Synced {
    /// All, and the names too.
    FileSystems,
    /// What is in them; their directories are left.
    Contents,
}

/// When a group is full.
struct Bounds {
    bytes: u64,
    /// Files that it keeps open: parts, to which others write too. Whole ones are few until they have their names.
    open_files: usize,
}

impl Bounds {
    fn are_reached(&self, group: &Group) -> bool {
        group.bytes >= self.bytes || group.open_count() >= self.open_files
    }

    /// Whoever adds more waits.
    fn are_far_exceeded(&self, group: &Group) -> bool {
        group.bytes >= 2 * self.bytes || group.open_count() >= 2 * self.open_files
    }
}

/// The group that is being filled.
#[derive(Default)]
struct Filling {
    /// Counts the groups before it.
    turn: u64,
    group: Group,
    /// When the first thing was noted.
    since: Option<Instant>,
    /// Somebody waits for it.
    is_wanted: bool,
}

impl Filling {
    /// Takes the group when it is time.
    fn take(&mut self, bounds: &Bounds, time: Duration) -> Attempt<(u64, Group)> {
        let due = self.since.map(|since| since + time);
        let is_due = due.is_some_and(|due| Instant::now() >= due);
        if self.is_wanted || bounds.are_reached(&self.group) || is_due {
            return Attempt::Done(self.take_now());
        }
        due.map_or(Attempt::NotYet, Attempt::Until)
    }

    fn take_now(&mut self) -> (u64, Group) {
        let turn = self.turn;
        let taken = Filling { turn: turn + 1, ..Filling::default() };
        (turn, std::mem::replace(self, taken).group)
    }
}

impl Committer {
    /// For what is written beneath `root`.
    pub(super) fn new(
        root: Arc<Root>,
        journal: Option<(Journal, String)>,
        is_one_file_system: bool,
        settings: &Settings,
    ) -> Result<Committer, SessionError> {
        let held = root.open_directory(&RelPath::root()).ok();
        let durable = match Durable::of(root.as_fd()).map_err(broken)? {
            Durable::Together if held.is_none() => Durable::OneByOne,
            durable => durable,
        };
        let (journal, journal_path) = journal.unzip();
        Ok(Committer {
            journal_path: journal_path.unwrap_or_default(),
            has_recorded: AtomicBool::new(false),
            held,
            durable,
            is_one_file_system,
            next_number: AtomicU64::new(1),
            journal,
            root,
            settings: settings.journal.clone(),
            // Those on their way are not to fill it.
            bounds: Bounds { bytes: settings.journal.group_bytes, open_files: 2 * open_files() },
            verify: settings.verify,
            filling: Monitor::new(Filling::default()),
            taken: Monitor::new(0),
            settled: Monitor::new(0),
            is_broken: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
        })
    }

    /// How a small file is placed.
    pub(super) fn care(&self) -> Care {
        let sync = match (self.durable, self.settings.durability) {
            (Durable::Never, _) | (Durable::Together, Durability::End) => SyncFirst::Never,
            (Durable::Together, Durability::Each | Durability::Group) => SyncFirst::Replacing,
            (Durable::OneByOne, _) => SyncFirst::Always,
        };
        Care { sync, readback: self.reads_back() }
    }

    /// Whether a large file's contents have to be durable before it gets its name.
    pub(super) fn syncs_before_naming(&self) -> bool {
        self.care().sync != SyncFirst::Never
    }

    /// Whether what was written is read again from the storage.
    pub(super) fn reads_back(&self) -> bool {
        self.verify == Verify::Readback
    }

    /// A number for a large file, by which the journal knows it.
    pub(super) fn next_number(&self) -> u64 {
        let own = || self.next_number.fetch_add(1, Relaxed);
        self.journal.as_ref().map_or_else(own, Journal::next_number)
    }

    /// The files and links of a bundle are in their places.
    pub(super) fn placed(&self, table: &[u8], places: Places, bytes: u64) -> Result<(), SessionError> {
        self.note(bytes, |group| group.add_bundle(table, places))
    }

    /// An object was written.
    pub(super) fn wrote(
        &self,
        file: &Arc<SinkFile>,
        range: ByteRange,
        subtrees: &[Subtree],
        body: &[u8],
    ) -> Result<(), SessionError> {
        let check = self.reads_back().then(|| xxh3(body));
        self.note(range.len, |group| group.add_object(file, range, subtrees, check))
    }

    /// A large file has its name, or will never have it.
    pub(super) fn ended(&self, file: &Arc<SinkFile>, end: End) -> Result<(), SessionError> {
        self.note(0, |group| group.add_end(file, end))
    }

    fn note(&self, bytes: u64, add: impl FnOnce(&mut Group)) -> Result<(), SessionError> {
        let (turn, wakes, is_too_much) = self.filling.with(|filling| {
            let was_full = self.bounds.are_reached(&filling.group);
            let is_first = filling.since.is_none();
            filling.since.get_or_insert_with(Instant::now);
            let group = &mut filling.group;
            group.bytes += bytes;
            add(group);
            let wakes = is_first || !was_full && self.bounds.are_reached(group);
            (filling.turn, wakes, self.bounds.are_far_exceeded(group))
        });
        if wakes {
            self.filling.release(|_| ());
        }
        match self.settings.durability {
            Durability::Each => self.settle_turn(turn),
            _ if is_too_much => self.wait_for(&self.taken, turn),
            _ => Ok(()),
        }
    }

    /// Returns when everything that was noted so far is durable and recorded.
    pub(super) fn settle(&self) -> Result<(), SessionError> {
        let turn = self.filling.with(|filling| filling.turn);
        self.settle_turn(turn)
    }

    fn settle_turn(&self, turn: u64) -> Result<(), SessionError> {
        self.filling.release(|filling| filling.is_wanted |= filling.turn == turn);
        self.wait_for(&self.settled, turn)
    }

    fn wait_for(&self, monitor: &Monitor<u64>, turn: u64) -> Result<(), SessionError> {
        monitor.take(|done| (*done > turn).then_some(())).map_err(|_| SessionError::PeerGone)
    }

    /// Settles group after group until it is closed.
    pub(super) fn run(&self) -> Result<(), SessionError> {
        while let Ok((turn, group)) =
            self.filling.take_timed(|filling| filling.take(&self.bounds, self.settings.group_time))
        {
            self.taken.release_many(usize::MAX, |taken| *taken = turn + 1);
            self.settle_group(group)?;
            self.settled.release_many(usize::MAX, |settled| *settled = turn + 1);
        }
        Ok(())
    }

    /// The other end is gone, and may come again at once: what is not recorded yet is dropped, as syncing it may take long.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Relaxed);
    }

    /// Nobody waits any more.
    pub(super) fn close(&self) {
        self.filling.close();
        self.taken.close();
        self.settled.close();
    }

    /// After all threads have ended: records what is left, also of a session that failed.
    pub(super) fn settle_rest(&self) -> Result<(), SessionError> {
        if self.is_broken.load(Relaxed) {
            return Ok(());
        }
        let (_, group) = self.filling.with(Filling::take_now);
        self.settle_group(group)
    }

    /// Everything is written, and the directories have their metadata: makes the rest durable.
    pub(super) fn finish(&self, has_directories: bool) -> Result<(), SessionError> {
        self.settle()?;
        let ends_durable = self.durable == Durable::Together
            && (has_directories || self.settings.durability == Durability::End);
        if ends_durable { self.sync_root().map_err(broken) } else { Ok(()) }
    }

    /// The transfer succeeded: its journal is not needed any more.
    pub(super) fn retire(self) -> Result<(), SessionError> {
        let Some(journal) = self.journal else { return Ok(()) };
        let remove = || journal.remove().map_err(SessionError::journal(&self.journal_path));
        match &self.held {
            // If it lies in the root, its end would be the last change of that directory.
            Some(held) => keep_times(held.as_fd(), remove),
            None => remove(),
        }
    }

    /// Whether its journal says anything.
    pub(super) fn has_recorded(&self) -> bool {
        self.has_recorded.load(Relaxed)
    }

    /// A directory had this mode, which is about to be changed: durable when this returns.
    pub(super) fn record_mode(&self, path: &RelPath, mode: u32) -> Result<(), SessionError> {
        let mut batch = Batch::new();
        batch.mode(path, mode);
        let append = |journal: &Journal| journal.append(&batch, true);
        self.journal.as_ref().map_or(Ok(()), append).map_err(SessionError::journal(&self.journal_path))
    }

    /// The modes of all of them are restored. A journal that does not take that any more makes the next session look.
    pub(super) fn record_modes_restored(&self) {
        let mut batch = Batch::new();
        batch.modes_restored();
        if let Some(journal) = &self.journal {
            let _ = journal.append(&batch, false);
        }
    }

    fn settle_group(&self, mut group: Group) -> Result<(), SessionError> {
        if group.is_empty() {
            return Ok(());
        }
        let settled = self.make_durable(&group).and_then(|()| {
            self.read_again(&mut group)?;
            self.record(group)
        });
        self.is_broken.fetch_or(settled.is_err(), Relaxed);
        settled
    }

    fn make_durable(&self, group: &Group) -> Result<(), SessionError> {
        let is_late = self.settings.durability == Durability::End && self.durable == Durable::Together;
        if self.durable == Durable::Never || is_late {
            return Ok(());
        }
        for written in group.files.values() {
            self.check_abandoned()?;
            self.sync_large(written)?;
        }
        self.check_abandoned()?;
        let small = match self.sync_small(&group.places).map_err(broken)? {
            Synced::FileSystems => None,
            Synced::Contents => Some(&group.places.directories),
        };
        self.check_abandoned()?;
        let directories = small.into_iter().flatten().chain(group.directories_of_large());
        sync_directories(&self.root, directories).map_err(broken)
    }

    fn check_abandoned(&self) -> Result<(), SessionError> {
        if self.is_abandoned.load(Relaxed) { Err(SessionError::PeerGone) } else { Ok(()) }
    }

    fn sync_large(&self, written: &Written) -> Result<(), SessionError> {
        // What has its name was synced before.
        let open = written.file.as_ref().filter(|_| written.end.is_none());
        let Some((file, growing)) = open.and_then(|file| Some((file, file.grown()?))) else { return Ok(()) };
        sync_data(growing.descriptor())
            .map_err(|error| broken_at(&self.root.full_path(file.directory(), &file.entry.name), error))
    }

    fn sync_small(&self, places: &Places) -> Result<Synced, SinkError> {
        match (self.durable, &places.few) {
            (Durable::Together, None) => self.sync_file_systems(places),
            (Durable::Together, Some(few)) => {
                let wanted = few.iter().take_while(|_| !self.is_abandoned.load(Relaxed));
                let synced: Result<Vec<()>, SinkError> =
                    wanted.map(|(directory, name)| sync_file(&self.root, directory, name)).collect();
                // What this user may not open is synced with everything else.
                synced.map(|_| Synced::Contents).or_else(|_| self.sync_file_systems(places))
            }
            // Each was synced before it got its name.
            _ => Ok(Synced::Contents),
        }
    }

    /// The file system that the root lies on.
    fn sync_root(&self) -> Result<(), SinkError> {
        self.held.as_ref().map_or(Ok(()), |held| sync_file_system(held.as_fd()))
    }

    fn sync_file_systems(&self, places: &Places) -> Result<Synced, SinkError> {
        self.sync_root()?;
        if self.is_one_file_system {
            return Ok(Synced::FileSystems);
        }
        let mut synced = vec![self.root.identity().dev];
        for path in &places.directories {
            let held = self.root.open_directory(path).map_err(SinkError::of_directory)?;
            let dev = carrack_storage::device_of(held.as_fd())?;
            if !synced.contains(&dev) {
                sync_file_system(held.as_fd())?;
                synced.push(dev);
            }
        }
        Ok(Synced::FileSystems)
    }

    /// Compares what the storage holds of large files with what was written; small ones were compared before they got their
    /// names.
    fn read_again(&self, group: &mut Group) -> Result<(), SessionError> {
        let mut buffer = Vec::new();
        for written in group.files.values_mut() {
            let Some(file) = written.file.clone() else { continue };
            let Some(growing) = file.grown() else { continue };
            for (range, check) in std::mem::take(&mut written.checks) {
                buffer.resize(range.len as usize, 0);
                let read = read_back(growing.descriptor(), &mut buffer, range.offset);
                let count = read.map_err(|error| {
                    broken_at(&self.root.full_path(file.directory(), &file.entry.name), error)
                })?;
                if xxh3(&buffer[..count]) != check {
                    written.forget(range);
                    file.note_damage(range);
                }
            }
        }
        Ok(())
    }

    fn record(&self, group: Group) -> Result<(), SessionError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let mut batch = group.bundles;
        for (number, written) in &group.files {
            written.record(*number, &mut batch);
        }
        if batch.is_empty() {
            return Ok(());
        }
        let is_synced = self.durable != Durable::Never && self.settings.durability != Durability::End;
        self.has_recorded.store(true, Relaxed);
        journal.append(&batch, is_synced).map_err(SessionError::journal(&self.journal_path))?;
        group.files.values().for_each(Written::is_recorded);
        Ok(())
    }
}

fn broken(error: SinkError) -> SessionError {
    match error.kind() {
        FailureKind::NoSpace => {
            SessionError::NoSpace { path: "the destination".into(), detail: error.to_string() }
        }
        _ => SessionError::NotDurable { path: "the destination".into(), detail: error.to_string() },
    }
}

fn broken_at(path: &[u8], error: SinkError) -> SessionError {
    let (path, detail) = (escape(path), error.to_string());
    match error.kind() {
        FailureKind::NoSpace => SessionError::NoSpace { path, detail },
        _ => SessionError::NotDurable { path, detail },
    }
}
