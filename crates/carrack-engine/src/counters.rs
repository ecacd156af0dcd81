//! One end's counters: found and completed work, and the time of its I/O threads by stage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use carrack_model::{LimitingStage, StageFill, TransferProgress, TransferSummary};
use carrack_wire::message;

/// A stage of an I/O thread's time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ThreadActivity {
    /// Calls to storage, and the hashing of their data.
    Storage,
    /// Sending or receiving.
    Network,
    /// Waiting for work.
    Idle,
    /// Waiting for a slot, which means for the sink.
    Blocked,
}

/// The counters of an end. All of its threads update them, and its comm thread reads them.
#[derive(Default)]
pub(crate) struct EndCounters {
    pub(crate) entries_found: AtomicU64,
    pub(crate) bytes_found: AtomicU64,
    pub(crate) scan_done: AtomicBool,
    pub(crate) files_done: AtomicU64,
    pub(crate) directories_done: AtomicU64,
    pub(crate) symlinks_done: AtomicU64,
    pub(crate) specials_done: AtomicU64,
    pub(crate) bytes_done: AtomicU64,
    pub(crate) entries_failed: AtomicU64,
    pub(crate) entries_skipped: AtomicU64,
    pub(crate) objects_reread: AtomicU64,
    pub(crate) entries_kept: AtomicU64,
    pub(crate) bytes_kept: AtomicU64,
    pub(crate) symlinks_kept: AtomicU64,
    pub(crate) specials_kept: AtomicU64,
    pub(crate) entries_deleted: AtomicU64,
    /// Bytes of objects that were read.
    pub(crate) bytes_read: AtomicU64,
    /// Bytes that arrived, which the data connections count.
    pub(crate) bytes_arrived: Arc<AtomicU64>,
    /// Threads that hold data of the network while they are in a call to storage: the network is not to blame
    /// for their pause.
    storage_busy: AtomicU32,
    /// Threads in a call to storage.
    in_storage: AtomicU32,
    stage_ns: [AtomicU64; 4],
}

impl EndCounters {
    /// Runs `work` and adds its time to a stage.
    pub(crate) fn time<R>(&self, stage: ThreadActivity, work: impl FnOnce() -> R) -> R {
        let is_storage = matches!(stage, ThreadActivity::Storage);
        let began = Instant::now();
        if is_storage {
            self.in_storage.fetch_add(1, Relaxed);
        }
        let result = work();
        if is_storage {
            self.in_storage.fetch_sub(1, Relaxed);
        }
        self.stage_ns[stage as usize].fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
        result
    }

    /// Returns true if a thread is in a call to storage.
    pub(crate) fn is_in_storage(&self) -> bool {
        self.in_storage.load(Relaxed) > 0
    }

    /// Runs `work`, which may wait for storage while it holds an object or a connection.
    pub(crate) fn run_as_storage_busy<R>(&self, work: impl FnOnce() -> R) -> R {
        self.storage_busy.fetch_add(1, Relaxed);
        let result = work();
        self.storage_busy.fetch_sub(1, Relaxed);
        result
    }

    pub(crate) fn snapshot(&self) -> message::CountersMessage {
        message::CountersMessage {
            entries_found: self.entries_found.load(Relaxed),
            bytes_found: self.bytes_found.load(Relaxed),
            scan_done: self.scan_done.load(Relaxed),
            files_done: self.files_done.load(Relaxed),
            directories_done: self.directories_done.load(Relaxed),
            symlinks_done: self.symlinks_done.load(Relaxed),
            specials_done: self.specials_done.load(Relaxed),
            bytes_done: self.bytes_done.load(Relaxed),
            entries_failed: self.entries_failed.load(Relaxed),
            entries_skipped: self.entries_skipped.load(Relaxed),
            objects_reread: self.objects_reread.load(Relaxed),
            entries_kept: self.entries_kept.load(Relaxed),
            bytes_kept: self.bytes_kept.load(Relaxed),
            symlinks_kept: self.symlinks_kept.load(Relaxed),
            specials_kept: self.specials_kept.load(Relaxed),
            entries_deleted: self.entries_deleted.load(Relaxed),
            storage_ns: self.stage_ns[ThreadActivity::Storage as usize].load(Relaxed),
            network_ns: self.stage_ns[ThreadActivity::Network as usize].load(Relaxed),
            idle_ns: self.stage_ns[ThreadActivity::Idle as usize].load(Relaxed),
            blocked_ns: self.stage_ns[ThreadActivity::Blocked as usize].load(Relaxed),
            storage_busy: self.storage_busy.load(Relaxed),
            bytes_arrived: self.bytes_arrived.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            ..message::CountersMessage::default()
        }
    }
}

/// Returns the sum of the counters of several lanes.
pub(crate) fn sum_of<'a>(lanes: impl Iterator<Item = &'a EndCounters>) -> message::CountersMessage {
    lanes.map(EndCounters::snapshot).reduce(add).unwrap_or_default()
}

fn add(one: message::CountersMessage, other: message::CountersMessage) -> message::CountersMessage {
    message::CountersMessage {
        entries_found: one.entries_found + other.entries_found,
        bytes_found: one.bytes_found + other.bytes_found,
        scan_done: one.scan_done && other.scan_done,
        files_done: one.files_done + other.files_done,
        directories_done: one.directories_done + other.directories_done,
        symlinks_done: one.symlinks_done + other.symlinks_done,
        specials_done: one.specials_done + other.specials_done,
        bytes_done: one.bytes_done + other.bytes_done,
        entries_failed: one.entries_failed + other.entries_failed,
        entries_skipped: one.entries_skipped + other.entries_skipped,
        objects_reread: one.objects_reread + other.objects_reread,
        entries_kept: one.entries_kept + other.entries_kept,
        bytes_kept: one.bytes_kept + other.bytes_kept,
        symlinks_kept: one.symlinks_kept + other.symlinks_kept,
        specials_kept: one.specials_kept + other.specials_kept,
        entries_deleted: one.entries_deleted + other.entries_deleted,
        storage_ns: one.storage_ns + other.storage_ns,
        network_ns: one.network_ns + other.network_ns,
        idle_ns: one.idle_ns + other.idle_ns,
        blocked_ns: one.blocked_ns + other.blocked_ns,
        storage_busy: one.storage_busy + other.storage_busy,
        bytes_arrived: one.bytes_arrived + other.bytes_arrived,
        bytes_read: one.bytes_read + other.bytes_read,
        // These are set for all lanes together.
        ..one
    }
}

/// Both ends' counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TransferCounters {
    pub(crate) source: message::CountersMessage,
    pub(crate) sink: message::CountersMessage,
    /// Objects that the sink has acked, as far as this end knows: counters come only twice a second.
    pub(crate) answered: u64,
}

impl TransferCounters {
    pub(crate) fn summary(&self) -> TransferSummary {
        TransferSummary {
            files_done: self.sink.files_done,
            directories_done: self.sink.directories_done,
            symlinks_done: self.sink.symlinks_done,
            specials_done: self.sink.specials_done,
            bytes_done: self.sink.bytes_done,
            entries_failed: self.entries_failed(),
            entries_skipped: self.source.entries_skipped,
            objects_reread: self.source.objects_reread,
            entries_kept: self.sink.entries_kept,
            bytes_kept: self.sink.bytes_kept,
            symlinks_kept: self.sink.symlinks_kept,
            specials_kept: self.sink.specials_kept,
            entries_deleted: self.sink.entries_deleted,
        }
    }

    /// Returns true if any data or entry was moved.
    pub(crate) fn has_moved(&self) -> bool {
        self.answered > 0 || self.sink.bytes_done > 0 || self.summary().entries_done() > 0
    }

    /// Saturating, as everywhere here: half of the numbers are a peer's.
    fn entries_failed(&self) -> u64 {
        self.source.entries_failed.saturating_add(self.sink.entries_failed)
    }

    /// Returns the present progress. The limiter is judged by the time since `before`.
    pub(crate) fn progress(&self, before: &TransferCounters) -> TransferProgress {
        TransferProgress {
            entries_found: self.source.entries_found,
            bytes_found: self.source.bytes_found,
            scan_done: self.source.scan_done,
            entries_done: self.summary().entries_done().saturating_add(self.sink.entries_kept),
            bytes_done: self.sink.bytes_done.saturating_add(self.sink.bytes_kept),
            bytes_moved: self.sink.bytes_done,
            entries_failed: self.entries_failed(),
            bytes_read: self.source.bytes_read,
            bytes_sent: self.source.bytes_sent,
            to_read: StageFill { waiting: self.source.read_waiting, room: self.source.read_room },
            to_send: StageFill { waiting: self.source.send_waiting, room: self.source.send_room },
            to_write: StageFill {
                waiting: self.sink.write_waiting.into(),
                room: self.sink.write_slots.into(),
            },
            limiter: self.limiting_stage(before),
            storage_busy: (self.source.storage_busy > 0, self.sink.storage_busy > 0),
        }
    }

    /// Returns the stage at which the source's threads spent most of their time. If that is sending, the
    /// sink's counters tell if its threads waited for the network or were busy writing, or if its full slots
    /// wait for a write.
    fn limiting_stage(&self, before: &TransferCounters) -> LimitingStage {
        let (now, then) = (&self.source, &before.source);
        let idle = now.idle_ns.saturating_sub(then.idle_ns);
        let reading = now.storage_ns.saturating_sub(then.storage_ns);
        let blocked = now.blocked_ns.saturating_sub(then.blocked_ns);
        let sending = now.network_ns.saturating_sub(then.network_ns).saturating_add(blocked);
        let writing = self.sink.storage_ns.saturating_sub(before.sink.storage_ns);
        let receiving = self.sink.network_ns.saturating_sub(before.sink.network_ns);
        match idle.max(reading).max(sending) {
            0 => LimitingStage::Unknown,
            most if most == idle && now.held_by_rate => LimitingStage::Rate,
            most if most == idle && !now.scan_done => LimitingStage::Scan,
            most if most == reading => LimitingStage::SourceStorage,
            _ if writing > receiving || self.has_full_slots() => LimitingStage::SinkStorage,
            _ => LimitingStage::Network,
        }
    }

    /// Returns true if nearly all of the sink's slots hold objects that are not written. Its threads may be
    /// idle nevertheless, as a limit holds them back.
    fn has_full_slots(&self) -> bool {
        let (waiting, slots) = (u64::from(self.sink.write_waiting), u64::from(self.sink.write_slots));
        slots > 0 && 4 * waiting >= 3 * slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(idle_ns: u64, storage_ns: u64, network_ns: u64) -> message::CountersMessage {
        message::CountersMessage { idle_ns, storage_ns, network_ns, ..Default::default() }
    }

    #[test]
    fn who_waits_for_storage_is_seen() {
        let counters = EndCounters::default();
        assert_eq!(
            counters
                .run_as_storage_busy(|| counters.run_as_storage_busy(|| counters.snapshot().storage_busy)),
            2
        );
        assert_eq!(counters.run_as_storage_busy(|| counters.snapshot().storage_busy), 1);
        assert_eq!(counters.snapshot().storage_busy, 0);
    }

    fn judge(source: message::CountersMessage, sink: message::CountersMessage) -> LimitingStage {
        TransferCounters { source, sink, answered: 0 }.limiting_stage(&TransferCounters::default())
    }

    #[test]
    fn names_what_limits() {
        assert_eq!(judge(source(0, 0, 0), source(0, 0, 0)), LimitingStage::Unknown);
        assert_eq!(judge(source(9, 1, 1), source(0, 0, 0)), LimitingStage::Scan);
        assert_eq!(judge(source(1, 9, 1), source(0, 1, 9)), LimitingStage::SourceStorage);
        let held = message::CountersMessage { held_by_rate: true, scan_done: true, ..source(9, 1, 1) };
        assert_eq!(judge(held, source(0, 1, 9)), LimitingStage::Rate);
        assert_eq!(
            judge(message::CountersMessage { idle_ns: 0, ..held }, source(0, 0, 9)),
            LimitingStage::SourceStorage
        );
        assert_eq!(judge(source(1, 2, 9), source(0, 1, 9)), LimitingStage::Network);
        assert_eq!(judge(source(1, 2, 9), source(0, 9, 1)), LimitingStage::SinkStorage);
        for (write_waiting, limiter) in [(250, LimitingStage::SinkStorage), (20, LimitingStage::Network)] {
            let slots = message::CountersMessage { write_waiting, write_slots: 256, ..source(0, 1, 9) };
            assert_eq!(judge(source(1, 2, 9), slots), limiter);
        }
    }
}
