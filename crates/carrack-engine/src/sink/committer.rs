//! Group commit: data that was written and is not recorded yet (L12).
//!
//! The I/O threads note the data that they wrote. A thread `carrack-commit` takes these notes as a group,
//! makes the data durable, reads it back if the user wants that, and only then records it in the journal. So
//! a record is never ahead of the data, and an I/O thread waits only when two groups are full. Where the
//! destination has several storage targets there are several such threads, each with groups of its own: a
//! congested target holds up the files that begin there, and no others (L8). Small files are in the first
//! thread's groups: a system call for a whole file system reports an error to one of its callers only.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carrack_journal::{Blake3Subtree, Journal};
use carrack_machine::{ConditionWaitAttempt, FifoConditionLock};
use carrack_model::{ByteRange, Durability, RangeSet, RelPath, TargetId, WriteVerification};
use carrack_storage::{CommitCare, FsyncBeforeCommit, FsyncMethod};

use super::commit_group::{CommitGroup, UnsyncedSmallEntries, WrittenFileOutcome, WrittenFileRanges};
use super::recorder::JournalRecorder;
use super::sink_file::SinkFile;
use super::syncer::{FileSystemSyncer, FsyncCoverage};
use crate::error::SessionError;
use crate::lanes::open_files_max;
use crate::object_checksum::xxh3;
use crate::settings::{EndSettings, JournalSettings};

/// Threads that commit where the destination has several targets; more targets share them.
const QUEUES_MAX: usize = 8;

/// Makes groups durable, and then records them.
pub(super) struct GroupCommitter {
    syncer: FileSystemSyncer,
    recorder: JournalRecorder,
    settings: JournalSettings,
    bounds: CommitGroupLimits,
    verify: WriteVerification,
    /// One for each thread. The first one has the small files, and files of an unknown target.
    queues: Box<[CommitQueue]>,
    /// The queue of each target that has one.
    queue_of_target: Mutex<HashMap<TargetId, usize>>,
    /// Set when a sync or a journal write failed: nothing is recorded on top of a failure.
    is_broken: AtomicBool,
    /// Set when the peer is gone: no time is spent on groups that are not recorded yet.
    is_abandoned: AtomicBool,
}

/// The groups of one thread, which settles them in their order.
struct CommitQueue {
    filling: FifoConditionLock<OpenCommitGroup>,
    /// Number of groups that were taken. A thread that fills a group beyond its limit waits for this count.
    taken: FifoConditionLock<u64>,
    /// Number of groups that are durable and recorded.
    settled: FifoConditionLock<u64>,
}

/// The bounds of a group.
struct CommitGroupLimits {
    bytes: u64,
    /// Files that the group keeps open: parts, to which other sessions write too. Whole files are few until
    /// they have their names.
    open_files: usize,
}

impl CommitGroupLimits {
    fn are_reached(&self, group: &CommitGroup) -> bool {
        group.bytes >= self.bytes || group.open_count() >= self.open_files
    }

    /// Returns true at twice the bounds, at which a thread that adds more waits.
    fn are_far_exceeded(&self, group: &CommitGroup) -> bool {
        group.bytes >= 2 * self.bytes || group.open_count() >= 2 * self.open_files
    }
}

/// The open group.
#[derive(Default)]
struct OpenCommitGroup {
    /// The number of groups before it.
    turn: u64,
    group: CommitGroup,
    /// The time of the first note.
    since: Option<Instant>,
    /// True if a thread waits for it.
    is_wanted: bool,
}

impl OpenCommitGroup {
    /// Takes the group when it is due.
    fn take(
        &mut self,
        bounds: &CommitGroupLimits,
        time: Duration,
    ) -> ConditionWaitAttempt<(u64, CommitGroup)> {
        let due = self.since.map(|since| since + time);
        let is_due = due.is_some_and(|due| Instant::now() >= due);
        if self.is_wanted || bounds.are_reached(&self.group) || is_due {
            return ConditionWaitAttempt::Done(self.take_now());
        }
        due.map_or(ConditionWaitAttempt::NotYet, ConditionWaitAttempt::Until)
    }

    fn take_now(&mut self) -> (u64, CommitGroup) {
        assert!(self.group.is_empty() || self.since.is_some(), "a group has begun when something is noted");
        let turn = self.turn;
        let taken = OpenCommitGroup { turn: turn + 1, ..OpenCommitGroup::default() };
        (turn, mem::replace(self, taken).group)
    }
}

impl CommitQueue {
    fn new() -> CommitQueue {
        CommitQueue {
            filling: FifoConditionLock::new(OpenCommitGroup::default()),
            taken: FifoConditionLock::new(0),
            settled: FifoConditionLock::new(0),
        }
    }

    /// Has the group of this turn taken soon, unless it was.
    fn demand(&self, turn: u64) {
        self.filling.change_and_wake_one(|filling| {
            assert!(turn <= filling.turn, "nobody waits for a group that has not begun");
            filling.is_wanted |= filling.turn == turn;
        });
    }

    /// Returns when the group of this turn is durable and recorded.
    fn commit_and_wait(&self, turn: u64) -> Result<(), SessionError> {
        self.demand(turn);
        wait_for(&self.settled, turn)
    }

    /// Has everything that was noted so far taken soon. Returns the turn to wait for.
    fn demand_all(&self) -> u64 {
        let turn = self.filling.with(|filling| filling.turn);
        self.demand(turn);
        turn
    }
}

fn wait_for(monitor: &FifoConditionLock<u64>, turn: u64) -> Result<(), SessionError> {
    monitor.take(|done| (*done > turn).then_some(())).map_err(|_| SessionError::PeerGone)
}

/// Counts the group of this turn.
fn advance_turn(monitor: &FifoConditionLock<u64>, turn: u64) {
    monitor.change_and_wake_many(usize::MAX, |done| {
        assert!(*done == turn, "groups are taken and settled in the order of their turns");
        *done = turn + 1;
    });
}

impl GroupCommitter {
    /// Creates the group commit of files that `syncer` syncs; unless everything lies on one file system
    /// without targets, several threads commit.
    pub(super) fn new(
        syncer: FileSystemSyncer,
        journal: Option<(Journal, String)>,
        settings: &EndSettings,
    ) -> GroupCommitter {
        let queue_count = if syncer.is_one_file_system() { 1 } else { QUEUES_MAX };
        GroupCommitter {
            syncer,
            recorder: JournalRecorder::new(journal),
            settings: settings.journal.clone(),
            // The files in progress alone must not fill a group.
            bounds: CommitGroupLimits {
                bytes: settings.journal.group_bytes,
                open_files: 2 * open_files_max(),
            },
            verify: settings.verify,
            queues: (0..queue_count).map(|_| CommitQueue::new()).collect(),
            queue_of_target: Mutex::default(),
            is_broken: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
        }
    }

    /// Returns the care with which a small file is placed.
    pub(super) fn care(&self) -> CommitCare {
        let sync = match (self.syncer.fsync_method(), self.settings.durability) {
            (FsyncMethod::Never, _) | (FsyncMethod::Together, Durability::End) => FsyncBeforeCommit::Never,
            (FsyncMethod::Together, Durability::Each | Durability::Group) => FsyncBeforeCommit::Replacing,
            (FsyncMethod::OneByOne, _) => FsyncBeforeCommit::Always,
        };
        CommitCare { sync, readback: self.reads_back() }
    }

    /// Returns true if a large file's contents must be durable before it gets its name.
    pub(super) fn syncs_before_naming(&self) -> bool {
        self.care().sync != FsyncBeforeCommit::Never
    }

    /// Returns true if the sink reads back from the storage (`--verify readback`).
    pub(super) fn reads_back(&self) -> bool {
        self.verify == WriteVerification::Readback
    }

    /// Returns the number of a new large file in the journal.
    pub(super) fn next_number(&self) -> u64 {
        self.recorder.next_number()
    }

    /// Notes the files and links of a bundle that have their names.
    pub(super) fn add_bundle(
        &self,
        table: &[u8],
        places: UnsyncedSmallEntries,
        bytes: u64,
    ) -> Result<(), SessionError> {
        self.add_to_group(0, bytes, |group| group.add_bundle(table, places))
    }

    /// Notes a written object.
    pub(super) fn add_object(
        &self,
        file: &Arc<SinkFile>,
        range: ByteRange,
        subtrees: &[Blake3Subtree],
        body: &[u8],
    ) -> Result<(), SessionError> {
        let check = self.reads_back().then(|| xxh3(body));
        let queue = self.queue_of(file);
        let is_held_back = file.integrity.unconfirmed.hold(range, check);
        self.add_to_group(queue, range.len, |group| match is_held_back {
            true => group.add_unrecorded(file),
            false => group.add_object(file, range, subtrees, check),
        })
    }

    /// Notes ranges of written objects that the source has confirmed. Does not wait: room was found for their
    /// bytes when they were written.
    pub(super) fn add_confirmed(&self, file: &Arc<SinkFile>, ranges: &RangeSet) {
        let confirmed = file.integrity.unconfirmed.confirm(ranges);
        if !confirmed.is_empty() {
            self.fill_group(self.queue_of(file), 0, |group| {
                confirmed.into_iter().for_each(|(range, check)| group.add_object(file, range, &[], check));
            });
        }
    }

    /// Notes a large file that has its name, or will never get it.
    pub(super) fn add_end(&self, file: &Arc<SinkFile>, end: WrittenFileOutcome) -> Result<(), SessionError> {
        self.add_to_group(self.queue_of(file), 0, |group| group.add_end(file, end))
    }

    /// Returns the queue of a file, always the same: that of its first byte's target when it was first noted.
    fn queue_of(&self, file: &SinkFile) -> usize {
        file.commit_queue(|| match file.target_at(0) {
            Some(target) if self.queues.len() > 1 => {
                let mut queues = self.queue_of_target.lock().unwrap_or_else(PoisonError::into_inner);
                let next = 1 + queues.len() % (self.queues.len() - 1);
                *queues.entry(target).or_insert(next)
            }
            _ => 0,
        })
    }

    fn add_to_group(
        &self,
        queue: usize,
        bytes: u64,
        add: impl FnOnce(&mut CommitGroup),
    ) -> Result<(), SessionError> {
        let (turn, is_too_much) = self.fill_group(queue, bytes, add);
        let queue = &self.queues[queue];
        match self.settings.durability {
            Durability::Each => queue.commit_and_wait(turn),
            _ if is_too_much => wait_for(&queue.taken, turn),
            _ => Ok(()),
        }
    }

    /// Adds to the open group. Returns its turn, and true if a thread with more should wait until it is
    /// taken.
    fn fill_group(&self, queue: usize, bytes: u64, add: impl FnOnce(&mut CommitGroup)) -> (u64, bool) {
        let queue = &self.queues[queue];
        let (turn, wakes, is_too_much) = queue.filling.with(|filling| {
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
            queue.filling.change_and_wake_one(|_| ());
        }
        (turn, is_too_much)
    }

    /// Returns when everything that was noted so far is durable and recorded.
    pub(super) fn commit_and_wait(&self) -> Result<(), SessionError> {
        let turns: Vec<u64> = self.queues.iter().map(CommitQueue::demand_all).collect();
        self.queues.iter().zip(turns).try_for_each(|(queue, turn)| wait_for(&queue.settled, turn))
    }

    /// Returns when everything that was noted of a file is durable and recorded: a congested target that is
    /// not the file's is not waited for.
    pub(super) fn commit_file_and_wait(&self, file: &SinkFile) -> Result<(), SessionError> {
        let queue = &self.queues[self.queue_of(file)];
        wait_for(&queue.settled, queue.demand_all())
    }

    /// The number of threads that [`run`](Self::run).
    pub(super) fn thread_count(&self) -> usize {
        self.queues.len()
    }

    /// Settles group after group of the thread `number`, counted from 0, until the committer is closed.
    pub(super) fn run(&self, number: usize) -> Result<(), SessionError> {
        let queue = &self.queues[number];
        while let Ok((turn, group)) =
            queue.filling.take_timed(|filling| filling.take(&self.bounds, self.settings.group_time))
        {
            advance_turn(&queue.taken, turn);
            self.commit_group(group)?;
            advance_turn(&queue.settled, turn);
        }
        Ok(())
    }

    /// Drops the groups that are not recorded yet. The peer is gone and may connect again at once, and a sync
    /// may take long.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Relaxed);
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        for queue in &self.queues {
            queue.filling.close();
            queue.taken.close();
            queue.settled.close();
        }
    }

    /// Records the rest after all threads have ended, also of a session that failed.
    pub(super) fn commit_remaining(&self) -> Result<(), SessionError> {
        for queue in &self.queues {
            if self.is_broken.load(Relaxed) {
                return Ok(());
            }
            let (_, group) = queue.filling.with(OpenCommitGroup::take_now);
            self.commit_group(group)?;
        }
        Ok(())
    }

    /// Makes the rest durable, after all data is written and the directories have their metadata.
    pub(super) fn finish(&self, has_directories: bool) -> Result<(), SessionError> {
        self.commit_and_wait()?;
        let ends_durable = self.syncer.fsync_method() == FsyncMethod::Together
            && (has_directories || self.settings.durability == Durability::End);
        if ends_durable { self.syncer.sync_all() } else { Ok(()) }
    }

    /// Removes the journal of a transfer that succeeded.
    pub(super) fn remove_journal(self) -> Result<(), SessionError> {
        self.recorder.remove_journal(self.syncer.destination_directory())
    }

    /// Returns true if the journal has records.
    pub(super) fn has_recorded(&self) -> bool {
        self.recorder.has_recorded()
    }

    /// Records a directory's mode, which is about to be changed. The record is durable at the return.
    pub(super) fn record_mode(&self, path: &RelPath, mode: u32) -> Result<(), SessionError> {
        self.recorder.record_mode(path, mode)
    }

    /// Records that the modes of all directories are restored.
    pub(super) fn record_modes_restored(&self) {
        self.recorder.record_modes_restored();
    }

    fn commit_group(&self, mut group: CommitGroup) -> Result<(), SessionError> {
        if group.is_empty() {
            return Ok(());
        }
        let settled = self.make_durable(&group).and_then(|()| {
            self.verify_readback(&mut group)?;
            self.record(group)
        });
        self.is_broken.fetch_or(settled.is_err(), Relaxed);
        settled
    }

    fn make_durable(&self, group: &CommitGroup) -> Result<(), SessionError> {
        let durable = self.syncer.fsync_method();
        let is_late = self.settings.durability == Durability::End && durable == FsyncMethod::Together;
        let directories = group.places.directories.iter().chain(group.directories_of_large());
        self.syncer.note_directories(directories)?;
        if durable == FsyncMethod::Never || is_late {
            return Ok(());
        }
        for written in group.files.values() {
            self.check_abandoned()?;
            self.syncer.sync_large(written)?;
        }
        self.check_abandoned()?;
        let small = match self.syncer.sync_small(&group.places, || !self.is_abandoned.load(Relaxed))? {
            FsyncCoverage::FileSystems => None,
            FsyncCoverage::Contents => Some(&group.places.directories),
        };
        self.check_abandoned()?;
        self.syncer.sync_names(small.into_iter().flatten().chain(group.directories_of_large()))
    }

    fn check_abandoned(&self) -> Result<(), SessionError> {
        if self.is_abandoned.load(Relaxed) { Err(SessionError::PeerGone) } else { Ok(()) }
    }

    /// Compares the storage's contents of large files with the written ones. Small files were compared before
    /// they got their names.
    fn verify_readback(&self, group: &mut CommitGroup) -> Result<(), SessionError> {
        let mut buffer = Vec::new();
        for written in group.files.values_mut() {
            assert!(self.reads_back() || written.checks.is_empty(), "checks are kept for what is read again");
            let Some(file) = written.file.clone().filter(|file| file.uncommitted_file().is_some()) else {
                continue;
            };
            for (range, check) in mem::take(&mut written.checks) {
                buffer.resize(range.len as usize, 0);
                let count = self.syncer.read_back(&file, &mut buffer, range.offset)?;
                if xxh3(&buffer[..count]) != check {
                    written.forget(range);
                    file.integrity.note_damage(range);
                }
            }
        }
        Ok(())
    }

    fn record(&self, mut group: CommitGroup) -> Result<(), SessionError> {
        group.files.values_mut().for_each(WrittenFileRanges::forget_lost);
        if !self.recorder.keeps_journal() {
            return Ok(());
        }
        let mut batch = group.bundles;
        for (number, written) in &group.files {
            self.syncer.check_still_there(written)?;
            written.record(*number, &mut batch);
        }
        if batch.is_empty() {
            return Ok(());
        }
        let is_synced =
            self.syncer.fsync_method() != FsyncMethod::Never && self.settings.durability != Durability::End;
        let outstanding = self.syncer.begin_request();
        let appended = self.recorder.append(&batch, is_synced);
        drop(outstanding);
        appended.map_err(|error| self.syncer.journal_error(error))?;
        group.files.values().for_each(WrittenFileRanges::mark_recorded);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use carrack_plan::SingleTarget;

    use carrack_storage::RootDirectory;

    use super::super::sink_file::tests::message;
    use super::*;
    use crate::role::SessionRole;
    use crate::storage_requests::{EndStorageRequests, StorageRequests};

    #[test]
    fn a_target_whose_commits_stand_still_holds_up_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(RootDirectory::open(dir.path()).unwrap());
        let journal = JournalSettings { group_bytes: 1_000, ..JournalSettings::default() };
        let settings = EndSettings { journal, ..EndSettings::default() };
        let requests =
            EndStorageRequests::new(Arc::new(StorageRequests::new()), SessionRole::Sink, (TargetId(1), None));
        let syncer = FileSystemSyncer::new(root, false, false, requests).unwrap();
        let committer = &GroupCommitter::new(syncer, None, &settings);
        let [slow, healthy] = [1, 2].map(|number| {
            let file = SinkFile::from_announcement(&message(number, 10_000), number, None).unwrap();
            file.set_layout(Arc::new(SingleTarget { target: TargetId(number) }));
            Arc::new(file)
        });
        let write = |file: &Arc<SinkFile>, number: u64| {
            committer.add_object(file, ByteRange::new(number * 1_500, 1_500), &[], &[])
        };
        thread::scope(|scope| {
            // The thread of the slow file's queue never comes.
            let number = committer.queue_of(&healthy);
            assert_ne!(number, committer.queue_of(&slow));
            scope.spawn(move || committer.run(number));
            write(&slow, 0).unwrap();
            (0..6).for_each(|number| write(&healthy, number).unwrap());
            let waiting = scope.spawn(|| write(&slow, 1));
            thread::sleep(Duration::from_millis(50));
            assert!(!waiting.is_finished(), "two groups of the slow file are full");
            committer.close();
            assert!(waiting.join().unwrap().is_err());
        });
    }
}
