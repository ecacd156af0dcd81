//! Objects that wait are moved to flash (L9) and back: at the source objects for which the sink has no room,
//! at the sink objects that its storage does not take yet.
//!
//! | module | contents |
//! | --- | --- |
//! | this module | a lane's log, and the two threads that write it and read it back |
//! | [`spilling_lane`] | the spill's interface to a lane |
//! | [`shelf`] | the objects on flash |
//! | [`window_sampler`] | the measurements that decide on the use of flash |
//!
//! The threads that read, receive or write do not know the spill. When slots run out and throughput falls
//! ([`SpillGate`]), one thread takes the youngest waiting objects, writes them to the log and frees their
//! slots; the other reads them back, the oldest first, into a few slots of the spill. An end implements
//! [`LaneWaitingObjects`].

mod shelf;
mod spilling_lane;
mod window_sampler;

use std::hash::Hash;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use bytesize::ByteSize;
use carrack_machine::{
    ConditionWaitAttempt, FifoConditionLock, FifoMonitorClosed, NodeSet, Slot, SlotPool, SpillDataFile,
    SysFiles, assign_to_lanes, node_of_directory,
};
use carrack_model::limits::SPILLED_OBJECTS_MAX;
use carrack_plan::{SpillGate, SpillVerdict};
use twox_hash::XxHash3_128;

use crate::error::SessionError;
use crate::spill_settings::{SpillDirectory, SpillSettings};
use shelf::{SpilledObject, SpilledObjectIndex};
pub(crate) use spilling_lane::{LaneByteFlow, LaneWaitingObjects, STAGING_SLOTS};
use window_sampler::SpillWindowSampler;

/// Bytes of the tables of bundles on flash, at most: their entries stay in the source's memory, about four
/// times as large.
const TABLE_BYTES_MAX: u64 = 16 << 20;

/// One lane's log in one directory.
pub(crate) struct LaneSpill<P> {
    directory: PathBuf,
    log: Arc<SpillDataFile>,
    staging: SlotPool,
    shelf: FifoConditionLock<SpilledObjectIndex<P>>,
    /// Set when a thread finds no free slot, and when an object waits that could go to flash.
    bell: FifoConditionLock<bool>,
    budget: u64,
    is_open: AtomicBool,
    table_bytes: AtomicU64,
    written_bytes: AtomicU64,
    held_max: AtomicU64,
}

/// Creates each lane's logs. The directories are dealt out, to lanes with slots at the disk's node if there
/// are any. If there are fewer directories than lanes, they are split into parts. `tell` reports a directory
/// that can't be used.
pub(crate) fn spills<P: Copy + Eq + Hash>(
    directories: &[SpillDirectory],
    settings: &SpillSettings,
    slot_bytes: usize,
    lanes: &[NodeSet],
    tell: impl Fn(String),
) -> Result<Vec<Vec<LaneSpill<P>>>, SessionError> {
    let mut dealt: Vec<Vec<LaneSpill<P>>> = lanes.iter().map(|_| Vec::new()).collect();
    let directories = &parts(directories, lanes.len());
    let budget = settings.budget.map_or(u64::MAX, |budget| budget / directories.len().max(1) as u64);
    let files = SysFiles::of_this_machine();
    let nodes: Vec<Option<u32>> =
        directories.iter().map(|at| node_of_directory(&files, &at.directory)).collect();
    let most = (SPILLED_OBJECTS_MAX / directories.len().max(1) * slot_bytes) as u64;
    for (at, lane) in directories.iter().zip(assign_to_lanes(&nodes, lanes)) {
        let at = SpillDirectory { bytes: at.bytes.min(most), ..at.clone() };
        match LaneSpill::new(&at, budget, slot_bytes) {
            Ok(spill) => dealt[lane].push(spill),
            Err(error) if settings.may_lack => tell(format!("spill: {error}: not used")),
            Err(error) => return Err(error),
        }
    }
    Ok(dealt)
}

/// Splits each directory into equal parts, so that every lane gets one.
fn parts(directories: &[SpillDirectory], lanes: usize) -> Vec<SpillDirectory> {
    let count = lanes.div_ceil(directories.len().max(1)).max(1);
    let parts = directories.iter().flat_map(|at| {
        let part = SpillDirectory { bytes: at.bytes / count as u64, ..at.clone() };
        std::iter::repeat_n(part, count)
    });
    parts.collect()
}

impl<P: Copy + Eq + Hash> LaneSpill<P> {
    /// Creates a log in this directory, to which at most `budget` bytes are written.
    fn new(at: &SpillDirectory, budget: u64, slot_bytes: usize) -> Result<LaneSpill<P>, SessionError> {
        let log = SpillDataFile::create(&at.directory, at.bytes, slot_bytes)?;
        let staging = SlotPool::new((STAGING_SLOTS * slot_bytes) as u64, slot_bytes)?;
        Ok(LaneSpill {
            directory: at.directory.clone(),
            log,
            staging,
            shelf: FifoConditionLock::new(SpilledObjectIndex::default()),
            bell: FifoConditionLock::new(false),
            budget,
            is_open: AtomicBool::new(false),
            table_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            held_max: AtomicU64::new(0),
        })
    }

    /// Slots of the spill, in addition to the lane's.
    pub(crate) fn slot_count(&self) -> usize {
        self.staging.slot_count()
    }

    /// Returns true if the object in this slot was read back from flash.
    pub(crate) fn has_brought_back(&self, slot: &Slot) -> bool {
        ptr::addr_eq(slot.pool().memory(), self.staging.memory())
    }

    /// Wakes the writing thread, as a thread found no free slot.
    pub(crate) fn wake_writer(&self) {
        self.bell.change_and_wake_one(|is_rung| *is_rung = true);
    }

    /// Wakes the writing thread if flash is in use, as an object waits.
    pub(crate) fn notify_waiting_object(&self) {
        if self.is_open.load(Relaxed) {
            self.wake_writer();
        }
    }

    /// Notes that `count` objects have left the queue: as many may be read back.
    pub(crate) fn allow_read_back(&self, count: usize) {
        self.shelf.change_and_wake_one(|shelf| shelf.allow_return(count));
    }

    /// Returns a report of the written bytes, or `None` if there are none.
    pub(crate) fn summary(&self) -> Option<String> {
        let (written, most) = (self.written_bytes.load(Relaxed), self.held_max.load(Relaxed));
        (written > 0).then(|| {
            let directory = self.directory.display();
            format!(
                "spill in {directory}: {} written, {} at most at a time",
                ByteSize(written),
                ByteSize(most)
            )
        })
    }

    pub(crate) fn close(&self) {
        self.bell.close();
        self.shelf.close();
        self.staging.close();
    }

    /// Runs the writing thread until the session ends, or the flash fails.
    pub(crate) fn run_writer(&self, side: &impl LaneWaitingObjects<Place = P>) {
        let mut gate = SpillGate::new(self.budget);
        let mut told = gate.verdict();
        let mut watch = SpillWindowSampler::new(side.byte_flow());
        while self.await_sample(&watch).is_ok() {
            if let Some(window) = watch.sample(side, self.log.free_count() < self.log.record_count()) {
                gate.update_verdict(window);
            }
            // The verdict may also change here because the write budget is used up.
            if gate.verdict() != told {
                told = gate.verdict();
                self.open(side, told == SpillVerdict::Spill);
                self.report_text(side, side.verdict_text(told));
            }
            while gate.verdict() == SpillVerdict::Spill && !watch.is_due() {
                match self.write_one(side, &mut gate) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        self.open(side, false);
                        self.report_text(side, &format!("{error}: going on without it"));
                        return;
                    }
                }
            }
        }
    }

    fn open(&self, side: &impl LaneWaitingObjects<Place = P>, is_open: bool) {
        self.is_open.store(is_open, Relaxed);
        side.set_spilling(is_open);
    }

    fn report_text(&self, side: &impl LaneWaitingObjects<Place = P>, text: &str) {
        side.report_text(format!("spill in {}: {text}", self.directory.display()));
    }

    fn await_sample(&self, watch: &SpillWindowSampler) -> Result<(), FifoMonitorClosed> {
        self.bell.take_timed(|is_rung| {
            let is_due = std::mem::take(is_rung) || watch.is_due();
            if is_due { ConditionWaitAttempt::Done(()) } else { ConditionWaitAttempt::Until(watch.due()) }
        })
    }

    /// Writes the youngest waiting object. Returns true if there may be more to do.
    fn write_one(
        &self,
        side: &impl LaneWaitingObjects<Place = P>,
        gate: &mut SpillGate,
    ) -> std::io::Result<bool> {
        let Some(record) = self.log.try_reserve() else { return Ok(false) };
        self.shelf.with(SpilledObjectIndex::prepare_for_object);
        let room = TABLE_BYTES_MAX.saturating_sub(self.table_bytes.load(Relaxed));
        let youngest = side.take_youngest(&|header| u64::from(header.table_len) <= room);
        let Some((place, header, slot)) = youngest else { return Ok(false) };
        let len = header.body_len as usize;
        assert!(len <= slot.bytes().len(), "an object lies in its slot");
        let began = Instant::now();
        let is_paid = gate.spend(len as u64);
        let written = if is_paid { record.write(slot.bytes(), len) } else { Ok(()) };
        if !is_paid || written.is_err() {
            side.put_back(place, header, slot);
            return written.map(|()| false);
        }
        gate.record_write(len as u64, began.elapsed());
        let sum = XxHash3_128::oneshot(&slot.bytes()[..len]);
        drop(slot);
        self.table_bytes.fetch_add(header.table_len.into(), Relaxed);
        self.written_bytes.fetch_add(len as u64, Relaxed);
        // Before another thread may read it back.
        side.set_aside(place, header.object);
        let bytes =
            self.shelf.change_and_wake_one(|shelf| shelf.put(SpilledObject { place, header, record, sum }));
        self.held_max.fetch_max(bytes, Relaxed);
        Ok(true)
    }

    /// Runs the reading thread until the session ends.
    pub(crate) fn run_reader(&self, side: &impl LaneWaitingObjects<Place = P>) {
        // The slot is leased first: an object counts as in flight once it is chosen.
        while let Ok(mut slot) = self.staging.lease()
            && let Ok(held) = self.shelf.take(|shelf| shelf.take_oldest(side))
        {
            let SpilledObject { place, header, record, sum } = held;
            let len = header.body_len as usize;
            let read = record.read(slot.bytes_mut(), len);
            let table_bytes = self.table_bytes.fetch_sub(header.table_len.into(), Relaxed);
            assert!(table_bytes >= header.table_len.into(), "each table on flash is counted");
            if read.is_err() || XxHash3_128::oneshot(&slot.bytes()[..len]) != sum {
                self.report_text(side, "an object was lost, and is read again");
                side.handle_lost_object(header.object);
                self.allow_read_back(1);
                continue;
            }
            drop(record);
            if let Err(error) = side.requeue_first(place, header, slot) {
                side.raise(error);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(directories: &[SpillDirectory], lanes: usize) -> Vec<u64> {
        parts(directories, lanes).iter().map(|part| part.bytes).collect()
    }

    #[test]
    fn every_lane_has_a_part_of_what_there_is() {
        let [one, two] =
            [("/a", 12), ("/b", 6)].map(|(name, bytes)| SpillDirectory { directory: name.into(), bytes });
        assert_eq!(bytes(&[], 2), [0; 0]);
        assert_eq!(bytes(std::slice::from_ref(&one), 1), [12]);
        assert_eq!(bytes(std::slice::from_ref(&one), 3), [4, 4, 4]);
        assert_eq!(bytes(&[one.clone(), two.clone()], 2), [12, 6]);
        assert_eq!(bytes(&[one, two], 3), [6, 6, 3, 3]);
    }
}
