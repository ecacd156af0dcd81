//! The application of a placement (M2, M4, N2, N3): binds the threads and pools of one end.
//!
//! An [`EndThreadBindings`] belongs to one source or one sink. Each thread binds itself at its start
//! ([`LaneCrew::bind_current_thread`]) and is released at its end; [`LaneCrew::create_pool`] creates each
//! lane's pool. If the kernel refuses a seat, the thread gets all CPUs of its lane, or else remains unbound;
//! [`EndThreadBindings::notes`] reports the result for each lane. Threads and pools can be moved during a
//! transfer ([`EndThreadBindings::move_lane`], [`EndThreadBindings::move_thread`]), as the watch does (M5).
//!
//! A crew whose placement binds nothing makes no system call and stores no thread.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::binding::{cpus_of, set_thread_affinity, this_thread};
use crate::id_set::CpuSet;
use crate::placement::{EndThreadPlacement, LanePlacement, PlacementScheme, ThreadSeat};
use crate::pool::{PoolError, SlotPool, WeakPool};
use crate::region::PoolBacking;

/// Role of a thread in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ThreadDuty {
    /// Scan thread, counted from 0; all of them share one seat (the paper's Master).
    Master(usize),
    /// Comm thread.
    Comm,
    /// I/O thread, counted from 0.
    Io(usize),
}

impl fmt::Display for ThreadDuty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThreadDuty::Master(i) => write!(f, "scan thread {i}"),
            ThreadDuty::Comm => write!(f, "comm thread"),
            ThreadDuty::Io(i) => write!(f, "I/O thread {i}"),
        }
    }
}

/// Result of binding a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BindingLevel {
    /// Bound to its seat.
    Seat,
    /// Bound to all CPUs of its lane's seats.
    Lane,
    /// Not bound.
    Unbound,
}

/// A thread with a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeatedThread {
    /// Thread ID.
    pub tid: i32,
    /// Its lane.
    pub lane: usize,
    /// Role of the thread.
    pub duty: ThreadDuty,
    /// CPUs that it is bound to; empty if it is not bound.
    pub cpus: CpuSet,
}

/// Result of a move.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadMoveResult {
    /// The worst result of the moved threads.
    pub step: BindingLevel,
    /// New backing of each of the lane's pools; empty if only threads moved.
    pub backings: Vec<PoolBacking>,
}

impl fmt::Display for ThreadMoveResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.step {
            BindingLevel::Seat => "threads in their seats",
            BindingLevel::Lane => "not all threads in their seats, but all in the lane",
            BindingLevel::Unbound => "not all threads in the lane",
        })?;
        self.backings.iter().try_for_each(|backing| write!(f, "; buffer {backing}"))
    }
}

/// Reasons why a move failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThreadMoveError {
    /// The placement has fewer lanes.
    #[error("there is no lane {0}")]
    NoSuchLane(usize),
    /// The thread has ended, or never had a seat.
    #[error("thread {0} has no seat")]
    NoSuchThread(i32),
}

/// The threads and pools of one end. Clones share them.
#[derive(Clone)]
pub struct EndThreadBindings {
    shared: Arc<EndThreadBindingsState>,
}

struct EndThreadBindingsState {
    scheme: PlacementScheme,
    reasons: Vec<String>,
    /// CPUs of threads without a seat; `None` if no seat is bound to CPUs.
    home: Option<CpuSet>,
    /// Reason why a planned binding is not possible.
    trouble: Option<String>,
    lanes: Vec<Mutex<LaneBindingState>>,
}

struct LaneBindingState {
    place: LanePlacement,
    threads: Vec<BoundThread>,
    pools: Vec<WeakPool>,
    taken: ThreadBindingCounts,
}

struct BoundThread {
    tid: i32,
    duty: ThreadDuty,
    cpus: CpuSet,
}

/// Number of threads that got their seats, and number of lower results, moves included, with the first
/// reason.
#[derive(Default)]
struct ThreadBindingCounts {
    seat: usize,
    lane: Option<(usize, String)>,
    unbound: Option<(usize, String)>,
}

impl EndThreadBindings {
    /// A crew for a placement. An unbound thread gets the CPUs that the calling thread has now: call it
    /// before this thread takes a seat, and inside the core zone if there is one.
    pub fn new(placement: EndThreadPlacement) -> EndThreadBindings {
        let is_bound = placement.lanes.iter().flat_map(seats).any(|seat| !seat.cpus.is_empty());
        let home = is_bound.then(|| cpus_of(this_thread())).transpose();
        let trouble = home.as_ref().err().map(|e| format!("no thread is bound: sched_getaffinity: {e}"));
        let EndThreadPlacement { scheme, lanes, reasons } = placement;
        let lanes = lanes.into_iter().map(|place| Mutex::new(LaneBindingState::new(place))).collect();
        EndThreadBindings {
            shared: Arc::new(EndThreadBindingsState {
                scheme,
                reasons,
                home: home.ok().flatten(),
                trouble,
                lanes,
            }),
        }
    }

    /// One lane without any binding.
    pub fn unbound() -> EndThreadBindings {
        EndThreadBindings::new(EndThreadPlacement {
            scheme: PlacementScheme::Off,
            lanes: vec![unbound_placement()],
            reasons: Vec::new(),
        })
    }

    /// Number of lanes.
    pub fn lane_count(&self) -> usize {
        self.shared.lanes.len()
    }

    /// The part of one lane, for its threads. A lane outside of the placement is not bound.
    pub fn lane(&self, lane: usize) -> LaneCrew {
        LaneCrew { crew: self.clone(), lane }
    }

    /// The current placement, moves included.
    pub fn placement(&self) -> EndThreadPlacement {
        let lanes = (0..self.lane_count()).filter_map(|i| self.lock(i)).map(|lane| lane.place.clone());
        let lanes = lanes.collect();
        EndThreadPlacement { scheme: self.shared.scheme, lanes, reasons: self.shared.reasons.clone() }
    }

    /// The threads with a seat; empty if nothing is bound to CPUs.
    pub fn threads(&self) -> Vec<SeatedThread> {
        let mut places = Vec::new();
        for lane in 0..self.lane_count() {
            let Some(guard) = self.lock(lane) else { continue };
            for BoundThread { tid, duty, cpus } in &guard.threads {
                places.push(SeatedThread { tid: *tid, lane, duty: *duty, cpus: cpus.clone() });
            }
        }
        places
    }

    /// The results for each lane: affinity, memory, huge pages and locking, for people.
    pub fn notes(&self) -> Vec<String> {
        let lanes = (0..self.lane_count()).filter_map(|i| Some((i, self.lock(i)?)));
        self.shared.trouble.iter().cloned().chain(lanes.flat_map(|(i, lane)| lane.notes(i))).collect()
    }

    /// Moves a lane's threads, and the memory of its pools, to the seats and nodes of `to` during their work.
    /// NIC and disks don't change.
    pub fn move_lane(&self, lane: usize, to: &LanePlacement) -> Result<ThreadMoveResult, ThreadMoveError> {
        let (step, pools) = {
            let mut guard = self.lock(lane).ok_or(ThreadMoveError::NoSuchLane(lane))?;
            guard.change_placement(to, self.shared.home.as_ref())
        };
        let backings = pools.iter().map(|pool| pool.rebind(&to.memory)).collect();
        Ok(ThreadMoveResult { step, backings })
    }

    /// Moves one thread to another seat, and assigns the seat to its role.
    pub fn move_thread(&self, tid: i32, to: &ThreadSeat) -> Result<BindingLevel, ThreadMoveError> {
        let mut lane = (0..self.lane_count())
            .filter_map(|i| self.lock(i))
            .find(|lane| lane.threads.iter().any(|thread| thread.tid == tid))
            .ok_or(ThreadMoveError::NoSuchThread(tid))?;
        lane.move_thread(tid, to, self.shared.home.as_ref()).ok_or(ThreadMoveError::NoSuchThread(tid))
    }

    /// Changes to a lane are independent of each other: after a panic its state is still valid.
    fn lock(&self, lane: usize) -> Option<MutexGuard<'_, LaneBindingState>> {
        Some(self.shared.lanes.get(lane)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One lane of a crew. Clones share it.
#[derive(Clone)]
pub struct LaneCrew {
    crew: EndThreadBindings,
    lane: usize,
}

impl LaneCrew {
    /// Binds the calling thread to its seat until the returned value is dropped on the same thread. Each
    /// thread of the lane calls it at its start.
    pub fn bind_current_thread(&self, duty: ThreadDuty) -> ThreadBindingGuard {
        let seated = self.crew.shared.home.as_ref().and_then(|home| {
            let mut lane = self.crew.lock(self.lane)?;
            let tid = this_thread();
            let before = cpus_of(tid).ok();
            lane.bind_thread(tid, duty, home);
            Some(ThreadSeatRelease { lane: self.clone(), tid, before })
        });
        ThreadBindingGuard { place: seated, by_one_thread: PhantomData }
    }

    /// A pool on the lane's nodes, which moves with the lane.
    pub fn create_pool(&self, pool_bytes: u64, slot_bytes: usize) -> Result<SlotPool, PoolError> {
        let Some(mut lane) = self.crew.lock(self.lane) else { return SlotPool::new(pool_bytes, slot_bytes) };
        let pool = SlotPool::on_nodes(&lane.place.memory, pool_bytes, slot_bytes)?;
        lane.pools.retain(|pool| pool.upgrade().is_some());
        lane.pools.push(pool.downgrade());
        Ok(pool)
    }

    /// The lane's current placement; unbound if it is not in the placement.
    pub fn placement(&self) -> LanePlacement {
        self.crew.lock(self.lane).map_or_else(unbound_placement, |lane| lane.place.clone())
    }
}

/// A bound thread. Dropping it restores the thread's previous CPUs.
#[must_use = "the seat is given back as this is dropped"]
pub struct ThreadBindingGuard {
    place: Option<ThreadSeatRelease>,
    by_one_thread: PhantomData<*const ()>,
}

struct ThreadSeatRelease {
    lane: LaneCrew,
    tid: i32,
    before: Option<CpuSet>,
}

impl Drop for ThreadBindingGuard {
    fn drop(&mut self) {
        let Some(ThreadSeatRelease { lane, tid, before }) = self.place.take() else { return };
        if let Some(mut lane) = lane.crew.lock(lane.lane) {
            lane.threads.retain(|thread| thread.tid != tid);
        }
        if let Some(before) = before {
            // This fails only if a cpuset has shrunk meanwhile: then the thread stays bound.
            let _ = set_thread_affinity(tid, &before);
        }
    }
}

impl LaneBindingState {
    fn new(place: LanePlacement) -> LaneBindingState {
        LaneBindingState {
            place,
            threads: Vec::new(),
            pools: Vec::new(),
            taken: ThreadBindingCounts::default(),
        }
    }

    fn bind_thread(&mut self, tid: i32, duty: ThreadDuty, home: &CpuSet) {
        let (step, cpus) = self.bind_or_fall_back(tid, &seat_of(&self.place, duty), home);
        self.taken.seat += usize::from(step == BindingLevel::Seat);
        self.threads.push(BoundThread { tid, duty, cpus });
    }

    fn change_placement(
        &mut self,
        to: &LanePlacement,
        home: Option<&CpuSet>,
    ) -> (BindingLevel, Vec<SlotPool>) {
        let LanePlacement { socket, memory, master, comm, io, nic: _, disks: _ } = to.clone();
        self.place = LanePlacement { socket, memory, master, comm, io, ..self.place.clone() };
        let threads: Vec<(i32, ThreadDuty)> =
            self.threads.iter().map(|thread| (thread.tid, thread.duty)).collect();
        let steps = threads.into_iter().filter_map(|(tid, duty)| {
            let seat = seat_of(&self.place, duty);
            self.move_thread(tid, &seat, home)
        });
        let step = steps.max().unwrap_or(BindingLevel::Seat);
        self.pools.retain(|pool| pool.upgrade().is_some());
        (step, self.pools.iter().filter_map(WeakPool::upgrade).collect())
    }

    fn move_thread(&mut self, tid: i32, to: &ThreadSeat, home: Option<&CpuSet>) -> Option<BindingLevel> {
        let position = self.threads.iter().position(|thread| thread.tid == tid)?;
        let duty = self.threads[position].duty;
        if let Some(seat) = seat_of_mut(&mut self.place, duty) {
            *seat = to.clone();
        }
        let (step, cpus) = self.bind_or_fall_back(tid, to, home?);
        self.threads[position].cpus = cpus;
        Some(step)
    }

    /// Binds a thread to its seat, or else to its lane's CPUs, or else not at all; returns the result and the
    /// CPUs.
    fn bind_or_fall_back(&mut self, tid: i32, seat: &ThreadSeat, home: &CpuSet) -> (BindingLevel, CpuSet) {
        let Err(error) = apply_seat_affinity(tid, seat, home) else {
            return (BindingLevel::Seat, seat.cpus.clone());
        };
        let refused = format!("CPU {} refused: {error}", seat.cpus);
        let lane_cpus = self.place.cpus();
        if set_thread_affinity(tid, &lane_cpus).is_ok() {
            count_fallback(&mut self.taken.lane, refused);
            return (BindingLevel::Lane, lane_cpus);
        }
        let _ = set_thread_affinity(tid, home);
        count_fallback(&mut self.taken.unbound, refused);
        (BindingLevel::Unbound, CpuSet::new())
    }

    fn notes(&self, i: usize) -> Vec<String> {
        let mut notes = Vec::new();
        let (cpus, taken) = (self.place.cpus(), &self.taken);
        if taken.seat > 0 {
            notes.push(format!("lane {i}: {} on planned CPUs ({cpus})", thread_count_text(taken.seat)));
        }
        if let Some((times, why)) = &taken.lane {
            notes.push(format!(
                "lane {i}: {} on any CPU of the lane ({cpus}): {why}",
                thread_count_text(*times)
            ));
        }
        if let Some((times, why)) = &taken.unbound {
            notes.push(format!("lane {i}: {} where the kernel likes: {why}", thread_count_text(*times)));
        }
        for backing in self.pools.iter().filter_map(WeakPool::upgrade).map(|pool| pool.backing()) {
            if !backing.nodes.is_empty() {
                notes.push(format!("lane {i}: buffer of {} MiB {backing}", backing.bytes.div_ceil(1 << 20)));
            }
            notes.extend(backing.notes.iter().map(|note| format!("lane {i}: {note}")));
        }
        notes
    }
}

fn apply_seat_affinity(tid: i32, seat: &ThreadSeat, home: &CpuSet) -> io::Result<()> {
    // A new thread inherits the CPUs of its creator: an unbound thread must be reset.
    set_thread_affinity(tid, if seat.cpus.is_empty() { home } else { &seat.cpus })
}

fn count_fallback(step: &mut Option<(usize, String)>, why: String) {
    step.get_or_insert((0, why)).0 += 1;
}

fn thread_count_text(count: usize) -> String {
    if count == 1 { "1 thread".to_string() } else { format!("{count} threads") }
}

fn unbound_placement() -> LanePlacement {
    LanePlacement {
        socket: 0,
        memory: Default::default(),
        master: ThreadSeat::default(),
        comm: ThreadSeat::default(),
        io: Vec::new(),
        nic: None,
        disks: Vec::new(),
    }
}

/// The seat of a role; further threads share the seats from the first one on.
pub(crate) fn seat_of(place: &LanePlacement, duty: ThreadDuty) -> ThreadSeat {
    match duty {
        ThreadDuty::Master(_) => place.master.clone(),
        ThreadDuty::Comm => place.comm.clone(),
        ThreadDuty::Io(i) => {
            i.checked_rem(place.io.len()).map_or_else(ThreadSeat::default, |i| place.io[i].clone())
        }
    }
}

fn seat_of_mut(place: &mut LanePlacement, duty: ThreadDuty) -> Option<&mut ThreadSeat> {
    match duty {
        ThreadDuty::Master(_) => Some(&mut place.master),
        ThreadDuty::Comm => Some(&mut place.comm),
        ThreadDuty::Io(i) => i.checked_rem(place.io.len()).map(|i| &mut place.io[i]),
    }
}

fn seats(place: &LanePlacement) -> impl Iterator<Item = &ThreadSeat> {
    [&place.master, &place.comm].into_iter().chain(&place.io)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id_set::NodeSet;
    use std::thread;

    fn on(cpus: &[u32]) -> ThreadSeat {
        ThreadSeat { cpus: cpus.iter().copied().collect(), ..ThreadSeat::default() }
    }

    fn lane(master: ThreadSeat, comm: ThreadSeat, io: Vec<ThreadSeat>) -> LanePlacement {
        LanePlacement { memory: NodeSet::from_iter([0]), master, comm, io, ..unbound_placement() }
    }

    fn crew(lane: LanePlacement) -> EndThreadBindings {
        EndThreadBindings::new(EndThreadPlacement {
            scheme: PlacementScheme::Mts,
            lanes: vec![lane],
            reasons: Vec::new(),
        })
    }

    fn allowed() -> Vec<u32> {
        cpus_of(this_thread()).unwrap().iter().collect()
    }

    /// Binds a new thread and returns its CPUs while it is bound, and afterwards.
    fn cpus_seated(crew: &EndThreadBindings, duty: ThreadDuty) -> (Vec<u32>, Vec<u32>) {
        let lane = crew.lane(0);
        thread::spawn(move || {
            let seated = lane.bind_current_thread(duty);
            let meanwhile = allowed();
            drop(seated);
            (meanwhile, allowed())
        })
        .join()
        .unwrap()
    }

    #[test]
    fn each_duty_has_its_seat_while_it_sits() {
        let all = allowed();
        let (first, last) = (all[0], all[all.len() - 1]);
        let crew = crew(lane(on(&[first]), on(&[last]), vec![on(&[first]), on(&[last])]));
        for (duty, cpu) in [
            (ThreadDuty::Master(3), first),
            (ThreadDuty::Comm, last),
            (ThreadDuty::Io(0), first),
            (ThreadDuty::Io(3), last),
        ] {
            assert_eq!(cpus_seated(&crew, duty), (vec![cpu], all.clone()), "{duty}");
        }
        assert_eq!(crew.threads(), []);
        assert!(crew.notes()[0].contains("4 threads on planned CPUs"), "{:?}", crew.notes());
    }

    #[test]
    fn a_seat_that_does_not_exist_falls_back_to_the_lane_and_then_to_nowhere() {
        let all = allowed();
        let crew_with_one = crew(lane(on(&[all[0]]), on(&[9_999]), vec![]));
        assert_eq!(cpus_seated(&crew_with_one, ThreadDuty::Comm).0, [all[0]]);
        assert!(crew_with_one.notes()[0].contains("any CPU of the lane"), "{:?}", crew_with_one.notes());
        let crew_without = crew(lane(on(&[9_998]), on(&[9_999]), vec![]));
        assert_eq!(cpus_seated(&crew_without, ThreadDuty::Comm).0, all);
        let note = &crew_without.notes()[0];
        assert!(note.contains("where the kernel likes: CPU 9999 refused: Invalid argument"), "{note}");
    }

    #[test]
    fn a_thread_without_a_seat_does_not_inherit_its_makers() {
        let all = allowed();
        let crew = crew(lane(ThreadSeat::default(), on(&[all[0]]), vec![]));
        let inner = crew.clone();
        let made = thread::spawn(move || {
            let _seated = inner.lane(0).bind_current_thread(ThreadDuty::Comm);
            (allowed(), cpus_seated(&inner, ThreadDuty::Master(0)).0)
        });
        assert_eq!(made.join().unwrap(), (vec![all[0]], all));
    }

    #[test]
    fn an_unbound_crew_remembers_nobody() {
        let crew = EndThreadBindings::unbound();
        let _seated = crew.lane(0).bind_current_thread(ThreadDuty::Comm);
        assert_eq!((crew.threads(), crew.lane_count()), (vec![], 1));
        let pool = crew.lane(0).create_pool(8192, 4096).unwrap();
        assert_eq!(pool.backing().bound, crate::MemoryBinding::Unbound);
        assert_eq!(crew.lane(7).placement(), unbound_placement(), "a lane that was not planned");
        let told = crew.notes();
        assert!(told.iter().all(|note| note.contains("locked")), "only what is wrong: {told:?}");
    }

    #[test]
    fn a_lane_moves_with_its_threads_and_its_pool() {
        let all = allowed();
        let (first, last) = (all[0], all[all.len() - 1]);
        let crew = crew(lane(on(&[first]), on(&[first]), vec![on(&[first])]));
        let pool = crew.lane(0).create_pool(64 << 10, 4096).unwrap();
        let seated = crew.lane(0).bind_current_thread(ThreadDuty::Io(0));
        assert_eq!(crew.threads()[0].cpus, on(&[first]).cpus);

        let to = LanePlacement {
            socket: 1,
            nic: Some("eth9".to_string()),
            ..lane(on(&[last]), on(&[last]), vec![on(&[last])])
        };
        let moved = crew.move_lane(0, &to).unwrap();
        assert_eq!((moved.step, moved.backings.len()), (BindingLevel::Seat, 1));
        assert_eq!(moved.backings[0], pool.backing());
        assert_eq!((allowed(), crew.threads()[0].cpus.clone()), (vec![last], on(&[last]).cpus));
        assert_eq!((crew.placement().lanes[0].socket, &crew.placement().lanes[0].nic), (1, &None));
        assert_eq!(crew.move_lane(1, &to), Err(ThreadMoveError::NoSuchLane(1)));

        let tid = crew.threads()[0].tid;
        assert_eq!(crew.move_thread(tid, &on(&[first])), Ok(BindingLevel::Seat));
        assert_eq!((allowed(), crew.placement().lanes[0].io[0].clone()), (vec![first], on(&[first])));
        drop(seated);
        assert_eq!(
            (allowed(), crew.move_thread(tid, &on(&[first]))),
            (all, Err(ThreadMoveError::NoSuchThread(tid)))
        );
    }
}
