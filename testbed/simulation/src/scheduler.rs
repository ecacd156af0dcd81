//! Lets exactly one thread run at a time, as the seed chooses, and tells the time.
//!
//! A thread that has the baton runs until it calls a function that this program has replaced. There the
//! scheduler may pass the baton on; it has to where the thread waits. When all threads wait, the clock
//! jumps to the next deadline.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::raw_calls;
use crate::world::{SimulatedWorld, world};

/// A thread's index.
pub type TaskId = usize;

/// A process of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndProcess {
    /// The simulation itself.
    Control,
    /// The source's end.
    Source,
    /// The sink's end.
    Sink,
}

/// The condition for which a thread waits.
#[derive(Clone, Debug)]
pub enum WaitCondition {
    /// A wake-up of the futex at this address.
    Futex(usize),
    /// One of these events on one of these descriptors, as for `poll`.
    Events(Vec<(i32, i16)>),
    /// Bytes from this pipe.
    Bytes(usize),
    /// Room in this pipe.
    Room(usize),
    /// The lock of this open file.
    FileLock(usize),
    /// The end of this thread.
    End(TaskId),
    /// The end of all threads of both ends.
    AllEnds,
    /// Nothing but the time.
    Time,
}

/// The state of a thread.
#[derive(Clone, Debug)]
pub enum ThreadState {
    /// It can run.
    Ready,
    /// It waits.
    Waiting(WaitCondition),
    /// It has ended.
    Ended,
    /// Its process was killed.
    Killed,
}

/// A thread.
pub struct SimulatedThread {
    /// Its name, for people.
    pub name: String,
    /// Its process.
    pub process: EndProcess,
    /// Its state.
    pub state: ThreadState,
    /// The time at which its wait ends at the latest.
    pub deadline: Option<u64>,
    /// The wait was ended by its deadline.
    timed_out: bool,
    /// 1 when the thread may run.
    baton: &'static AtomicU32,
    /// Its part of the choices, compared with others.
    weight: u64,
    /// The C library's number of the thread.
    pub pthread: u64,
    /// The last function that it called.
    pub last_call: &'static str,
}

const NOBODY: usize = usize::MAX;

thread_local! {
    static ME: Cell<TaskId> = const { Cell::new(NOBODY) };
    /// True while this program itself works for the thread: its own calls go to the kernel.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Returns the calling thread, if it is simulated and not inside of the simulation's own code.
pub fn caller() -> Option<TaskId> {
    let me = ME.with(Cell::get);
    (me != NOBODY && !INSIDE.with(Cell::get)).then_some(me)
}

/// Marks the calling thread as inside of the simulation's own code until dropped.
pub struct InsideGuard(bool);

impl InsideGuard {
    /// From now on.
    pub fn enter() -> InsideGuard {
        InsideGuard(INSIDE.with(|inside| inside.replace(true)))
    }
}

impl Drop for InsideGuard {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(self.0));
    }
}

/// Lets the simulation's own code call simulated functions, as a thread of the control process.
pub fn outside<R>(call: impl FnOnce() -> R) -> R {
    let was = INSIDE.with(|inside| inside.replace(false));
    let result = call();
    INSIDE.with(|inside| inside.set(was));
    result
}

/// The calling thread's index, inside or not.
pub fn me() -> TaskId {
    ME.with(Cell::get)
}

/// Makes the calling thread the first one, which has the baton.
pub fn begin(world: &mut SimulatedWorld) {
    world.tasks.clear();
    let id = add_task(world, EndProcess::Control);
    world.tasks[id].name = "control".into();
    ME.with(|me| me.set(id));
}

/// Ends the simulation of the calling thread.
pub fn end() {
    ME.with(|me| me.set(NOBODY));
}

/// Adds a thread, which does not run yet.
pub fn add_task(world: &mut SimulatedWorld, process: EndProcess) -> TaskId {
    let weight = if world.skew > 1 && world.chance.one_in(3) { 1 } else { world.skew };
    world.tasks.push(SimulatedThread {
        name: String::new(),
        process,
        state: ThreadState::Ready,
        deadline: None,
        timed_out: false,
        baton: Box::leak(Box::new(AtomicU32::new(0))),
        weight,
        pthread: 0,
        last_call: "",
    });
    let id = world.tasks.len() - 1;
    world.live.push(id);
    id
}

/// The new thread `id` begins: it waits for the baton.
pub fn take_seat(id: TaskId, baton: &AtomicU32) {
    ME.with(|me| me.set(id));
    raw_calls::sleep_on(baton);
}

/// The baton of a thread.
pub fn baton_of(world: &SimulatedWorld, id: TaskId) -> &'static AtomicU32 {
    world.tasks[id].baton
}

/// The calling thread ends: another one gets the baton.
pub fn leave() {
    let _inside = InsideGuard::enter();
    let me = me();
    let world = world();
    world.tasks[me].state = ThreadState::Ended;
    world.live.retain(|&id| id != me);
    world.note("end", me as i64, 0);
    let next = choose(me, true);
    let baton = crate::world::world().tasks[next].baton;
    ME.with(|me| me.set(NOBODY));
    raw_calls::wake(baton);
}

/// The baton may go to another thread here; with `must` it does, where another one can run.
pub fn maybe_switch(must: bool) {
    let world = world();
    if !must && world.chance.below(1000) >= world.switch_permille {
        return;
    }
    switch(must);
}

/// Waits for a condition, or until `deadline`. Returns true if the condition ended the wait.
pub fn wait(condition: WaitCondition, deadline: Option<u64>) -> bool {
    let task = &mut world().tasks[me()];
    task.state = ThreadState::Waiting(condition);
    task.deadline = deadline;
    task.timed_out = false;
    switch(false);
    !world().tasks[me()].timed_out
}

/// The process of the calling thread was killed: it never runs again.
pub fn stop_here() -> ! {
    switch(true);
    unreachable!("a killed thread is not chosen")
}

fn switch(must: bool) {
    let me = me();
    let next = choose(me, must);
    if next == me {
        return;
    }
    let tasks = &world().tasks;
    let (mine, others) = (tasks[me].baton, tasks[next].baton);
    std::sync::atomic::fence(Ordering::SeqCst);
    raw_calls::wake(others);
    raw_calls::sleep_on(mine);
}

/// Chooses the next thread, and makes it ready.
fn choose(me: TaskId, avoid_me: bool) -> TaskId {
    let world = world();
    loop {
        let mut next_time = u64::MAX;
        let mut ready = std::mem::take(&mut world.ready);
        ready.clear();
        for index in 0..world.live.len() {
            let id = world.live[index];
            let can_run = match &world.tasks[id].state {
                ThreadState::Ready => true,
                ThreadState::Waiting(condition) => {
                    let deadline = world.tasks[id].deadline.unwrap_or(u64::MAX);
                    let (is_met, at) = world.is_met(condition);
                    next_time = next_time.min(at).min(deadline);
                    is_met || deadline <= world.now
                }
                ThreadState::Ended | ThreadState::Killed => false,
            };
            if can_run {
                ready.push(id);
            }
        }
        if avoid_me && ready.len() > 1 {
            ready.retain(|&id| id != me);
        }
        let chosen = pick(world, &ready);
        world.ready = ready;
        if let Some(id) = chosen {
            let is_met = match &world.tasks[id].state {
                ThreadState::Waiting(condition) => world.is_met(condition).0,
                _ => true,
            };
            let was_waiting = matches!(world.tasks[id].state, ThreadState::Waiting(_));
            let task = &mut world.tasks[id];
            if was_waiting {
                task.timed_out = !is_met;
            }
            task.state = ThreadState::Ready;
            task.deadline = None;
            world.note("run", id as i64, 0);
            return id;
        }
        if world.free_abandoned_lock() {
            continue;
        }
        if next_time == u64::MAX {
            let report = world.report_tasks();
            world.fail(&format!("deadlock: all threads wait, and no deadline is left\n{report}"));
        }
        world.now = world.now.max(next_time);
        world.check_time();
    }
}

fn pick(world: &mut SimulatedWorld, ready: &[TaskId]) -> Option<TaskId> {
    match ready {
        [] => None,
        [only] => Some(*only),
        _ => {
            let total: u64 = ready.iter().map(|&id| world.tasks[id].weight).sum();
            let mut left = world.chance.below(total);
            for &id in ready {
                let weight = world.tasks[id].weight;
                if left < weight {
                    return Some(id);
                }
                left -= weight;
            }
            ready.last().copied()
        }
    }
}

/// Wakes up to `most` threads that wait for this futex, in an order by chance; returns their number.
pub fn wake_futex(address: usize, most: usize) -> usize {
    let world = world();
    let is_it = |id: &TaskId| matches!(world.tasks[*id].state, ThreadState::Waiting(WaitCondition::Futex(at)) if at == address);
    let mut waiting: Vec<TaskId> = world.live.iter().copied().filter(is_it).collect();
    let mut woken = 0;
    while woken < most && !waiting.is_empty() {
        let id = waiting.swap_remove(world.chance.below(waiting.len() as u64) as usize);
        let task = &mut world.tasks[id];
        task.state = ThreadState::Ready;
        task.deadline = None;
        task.timed_out = false;
        woken += 1;
    }
    woken
}
