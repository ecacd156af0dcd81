//! Objects that can't leave go to flash, so that reading goes on (L9), and come back when the sink takes them.
//!
//! Readers know nothing of it. When slots run out and less leaves than usual ([`SpillGate`]), one thread takes the youngest of
//! the objects that wait in the outbox, writes it to the log and frees its slot; another one brings them back, the oldest
//! first, in a few slots of its own, and puts them before all others. What can't be read back is read at its source again.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use carrack_machine::{Attempt, Closed, Monitor, SlotPool, SpillLog, SpillRecord};
use carrack_plan::{SpillGate, SpillVerdict, SpillWindow};
use carrack_transport::{Outgoing, Payload};
use carrack_wire::FrameHeader;
use twox_hash::XxHash3_128;

use super::flow::Place;
use super::lane::Lane;
use super::reader;
use crate::error::SessionError;
use crate::spill_settings::SpillDirectory;

/// How often it is looked who waits.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Looks that make a window.
const LOOKS: u32 = 4;

/// Slots for what comes back: enough that the disk reads while streams send.
const STAGING_SLOTS: usize = 8;

/// Objects that stay ready for each stream, whatever comes.
const KEPT_FOR_EACH_STREAM: usize = 2;

/// Bytes of the tables of bundles on flash, at most: their entries stay in memory, some four times as long.
const TABLE_BYTES_MAX: u64 = 16 << 20;

/// One lane's log in one directory.
pub(super) struct Spill {
    directory: PathBuf,
    log: Arc<SpillLog>,
    staging: SlotPool,
    shelf: Monitor<Shelf>,
    /// Rung when somebody finds no free slot, and when something is ready that could go to flash.
    bell: Monitor<bool>,
    budget: u64,
    is_open: AtomicBool,
    table_bytes: AtomicU64,
    written_bytes: AtomicU64,
    held_max: AtomicU64,
}

/// Objects on flash by where at the sink they go, the oldest first.
#[derive(Default)]
struct Shelf {
    by_place: HashMap<Option<Place>, VecDeque<Held>>,
    count: usize,
    next_turn: u64,
    /// Objects that may come back: as many as the sink has answered since the first one was put here, so that what is ready
    /// stays little, and slots are for reading.
    may_return: usize,
}

struct Held {
    /// The order in which they came.
    turn: u64,
    header: FrameHeader,
    record: SpillRecord,
    /// Flash may forget, and the object's own check is not always made.
    sum: u128,
}

impl Spill {
    /// In this directory, which shall not be written more than `budget` bytes.
    pub(super) fn new(at: &SpillDirectory, budget: u64, slot_bytes: usize) -> Result<Spill, SessionError> {
        let log = SpillLog::create(&at.directory, at.bytes, slot_bytes)?;
        let staging = SlotPool::new((STAGING_SLOTS * slot_bytes) as u64, slot_bytes)?;
        Ok(Spill {
            directory: at.directory.clone(),
            log,
            staging,
            shelf: Monitor::new(Shelf::default()),
            bell: Monitor::new(false),
            budget,
            is_open: AtomicBool::new(false),
            table_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            held_max: AtomicU64::new(0),
        })
    }

    /// Slots of its own, which may be ready beside those of the lane.
    pub(super) fn slot_count(&self) -> usize {
        self.staging.slot_count()
    }

    /// A reader finds no free slot.
    pub(super) fn ring(&self) {
        self.bell.release(|is_rung| *is_rung = true);
    }

    /// Something is ready to be sent.
    pub(super) fn something_is_ready(&self) {
        if self.is_open.load(Relaxed) {
            self.ring();
        }
    }

    /// The sink has answered so many objects: as many may come back.
    pub(super) fn answered(&self, count: usize) {
        self.shelf.release(|shelf| shelf.may_return = (shelf.may_return + count).min(STAGING_SLOTS));
    }

    /// What was written, for people; nothing if nothing was.
    pub(super) fn summary(&self) -> Option<String> {
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

    pub(super) fn close(&self) {
        self.bell.close();
        self.shelf.close();
        self.staging.close();
    }

    /// The thread that writes: until the session ends, or the flash fails.
    pub(super) fn write_out(&self, lane: &Lane<'_>) {
        let mut gate = SpillGate::new(self.budget);
        let mut told = gate.verdict();
        let mut watch = Watch::new(lane);
        while self.await_look(&watch).is_ok() {
            if let Some(window) = watch.look(lane, self.log.free_count() < self.log.record_count()) {
                gate.look(window);
            }
            // Also that it is worn out, which turns out in between.
            if gate.verdict() != told {
                told = gate.verdict();
                self.open(lane, told == SpillVerdict::Spill);
                self.tell(lane, told);
            }
            while gate.verdict() == SpillVerdict::Spill && !watch.is_due() {
                match self.write_one(lane, &mut gate) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        self.open(lane, false);
                        let directory = self.directory.display();
                        lane.source.camp.tell(format!("spill in {directory}: {error}: going on without it"));
                        return;
                    }
                }
            }
        }
    }

    /// What is read goes here from now on, whether the sink has room for it or not; or it does not any more.
    fn open(&self, lane: &Lane<'_>, is_open: bool) {
        self.is_open.store(is_open, Relaxed);
        lane.queue.release_many(lane.io_threads, |queue| queue.lift_flow(is_open));
    }

    fn tell(&self, lane: &Lane<'_>, verdict: SpillVerdict) {
        let why = match verdict {
            SpillVerdict::Unneeded => "objects leave again as usual",
            SpillVerdict::Spill => "less leaves than usual and slots are full: reading on into it",
            SpillVerdict::Pointless => {
                "less leaves than usual, but more than the way takes is read anyway: left alone"
            }
            SpillVerdict::TooSlow => "it writes slower than the source reads: not used any more",
            SpillVerdict::WornOut => "as much was written as may be: not used any more",
        };
        lane.source.camp.tell(format!("spill in {}: {why}", self.directory.display()));
    }

    fn await_look(&self, watch: &Watch) -> Result<(), Closed> {
        self.bell.take_timed(|is_rung| match std::mem::take(is_rung) || watch.is_due() {
            true => Attempt::Done(()),
            false => Attempt::Until(watch.due),
        })
    }

    /// Writes the youngest object that waits, but for a few that keep streams busy; whether there may be more to do.
    fn write_one(&self, lane: &Lane<'_>, gate: &mut SpillGate) -> std::io::Result<bool> {
        let Some(record) = self.log.take() else { return Ok(false) };
        let kept = KEPT_FOR_EACH_STREAM * lane.outbox.endpoint_count.max(1);
        let room = TABLE_BYTES_MAX.saturating_sub(self.table_bytes.load(Relaxed));
        let Some((header, slot)) = lane.outbox.take_last(kept, |header| u64::from(header.table_len) <= room)
        else {
            return Ok(false);
        };
        let len = header.body_len as usize;
        let began = Instant::now();
        let is_paid = gate.spend(len as u64);
        let written = if is_paid { record.write(slot.bytes(), len) } else { Ok(()) };
        if !is_paid || written.is_err() {
            lane.outbox.put_last(header, slot);
            return written.map(|()| false);
        }
        gate.wrote(len as u64, began.elapsed());
        let sum = XxHash3_128::oneshot(&slot.bytes()[..len]);
        drop(slot);
        self.table_bytes.fetch_add(header.table_len.into(), Relaxed);
        self.written_bytes.fetch_add(len as u64, Relaxed);
        let place = lane.place_of(header.object);
        let count = self.shelf.release(|shelf| shelf.put(place, header, record, sum));
        self.held_max.fetch_max(count as u64 * self.staging.slot_bytes() as u64, Relaxed);
        // On its way it is not any more: others may be.
        lane.arrived(place);
        Ok(true)
    }

    /// The thread that brings back, until the session ends.
    pub(super) fn bring_back(&self, lane: &Lane<'_>) {
        // The slot first: what is chosen then counts as on its way.
        while let Ok(mut slot) = self.staging.lease()
            && let Ok(held) = self.shelf.take(|shelf| shelf.take_oldest(lane))
        {
            let Held { header, record, sum, .. } = held;
            let len = header.body_len as usize;
            let read = record.read(slot.bytes_mut(), len);
            self.table_bytes.fetch_sub(header.table_len.into(), Relaxed);
            if read.is_err() || XxHash3_128::oneshot(&slot.bytes()[..len]) != sum {
                let directory = self.directory.display();
                lane.source.camp.tell(format!("spill in {directory}: an object was lost, and is read again"));
                lane.withdraw(header.object);
                continue;
            }
            drop(record);
            let outgoing = Outgoing { header, payload: Payload::Slot(slot) };
            let departure = lane.outbox.bring_first(outgoing, || lane.mail.wake());
            if let Err(error) = reader::drive(lane, departure) {
                lane.raise(error);
                return;
            }
        }
    }
}

impl Shelf {
    /// Puts an object behind the others that go there; returns how many there are in all.
    fn put(&mut self, place: Option<Place>, header: FrameHeader, record: SpillRecord, sum: u128) -> usize {
        let held = Held { turn: self.next_turn, header, record, sum };
        if self.count == 0 {
            self.may_return = 0;
        }
        self.by_place.entry(place).or_default().push_back(held);
        self.next_turn += 1;
        self.count += 1;
        self.count
    }

    /// The oldest one that may come back and has room where it goes; it is on its way from now on.
    fn take_oldest(&mut self, lane: &Lane<'_>) -> Option<Held> {
        if self.may_return == 0 {
            return None;
        }
        let has_room = |place: &Option<Place>| {
            place.is_none_or(|place| lane.queue.with(|queue| queue.has_room_at_sink(place)))
        };
        let waiting = self.by_place.iter().filter(|(place, _)| has_room(place));
        let first = |(place, held): (&Option<Place>, &VecDeque<Held>)| Some((held.front()?.turn, *place));
        let (_, place) = waiting.filter_map(first).min_by_key(|(turn, _)| *turn)?;
        let held = self.by_place.get_mut(&place)?;
        let oldest = held.pop_front()?;
        if held.is_empty() {
            self.by_place.remove(&place);
        }
        self.count -= 1;
        self.may_return -= 1;
        place.into_iter().for_each(|place| lane.queue.with(|queue| queue.departs(place)));
        Some(oldest)
    }
}

/// What of the lane is looked at, every [`LOOK_EVERY`].
struct Watch {
    due: Instant,
    began: Instant,
    looks: u32,
    held_back: f64,
    read_bytes: u64,
    left_bytes: u64,
}

impl Watch {
    fn new(lane: &Lane<'_>) -> Watch {
        let now = Instant::now();
        let (read_bytes, left_bytes) = (lane.read_bytes(), lane.outbox.left_bytes());
        Watch { due: now + LOOK_EVERY, began: now, looks: 0, held_back: 0.0, read_bytes, left_bytes }
    }

    fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// A window, if one is over.
    fn look(&mut self, lane: &Lane<'_>, is_holding: bool) -> Option<SpillWindow> {
        let now = Instant::now();
        if now < self.due {
            return None;
        }
        self.due = now + LOOK_EVERY;
        self.looks += 1;
        let (unoccupied, is_parking) =
            (lane.queue.waiter_count(), lane.queue.with(|queue| queue.is_parking()));
        // Who finds nothing to do because the sink has no room for it is held back, too.
        let parked = if is_parking { unoccupied } else { 0 };
        let waiting = lane.pool.waiter_count() + lane.outbox.waiter_count() + parked;
        let busy = lane.readers.open_to().saturating_sub(unoccupied - parked);
        self.held_back += waiting.min(busy) as f64 / busy.max(1) as f64;
        if self.looks < LOOKS {
            return None;
        }
        let (read_bytes, left_bytes) = (lane.read_bytes(), lane.outbox.left_bytes());
        let window = SpillWindow {
            span: now - self.began,
            read_bytes: read_bytes - self.read_bytes,
            left_bytes: left_bytes - self.left_bytes,
            held_back: self.held_back / f64::from(self.looks),
            is_holding,
        };
        *self = Watch { due: self.due, began: now, looks: 0, held_back: 0.0, read_bytes, left_bytes };
        Some(window)
    }
}
