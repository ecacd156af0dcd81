//! The simulated machine: threads, clock, descriptors, volumes, network, and the faults that the seed chose.
//!
//! Whoever has the baton may use it. No reference to it is held while the baton is passed on.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::chance::SeedChance;
use crate::descriptors::DescriptorTable;
use crate::expectation::ExpectedTree;
use crate::faults::{CallKind, FaultPlan};
use crate::power_cut::mix;
use crate::scheduler::{self, EndProcess, SimulatedThread, TaskId, ThreadState, WaitCondition};
use crate::volumes::{NodeRef, VolumeTree, WalkRules, is_at_sink};

/// Fake time after which a run counts as endless.
pub const TIME_MAX_NS: u64 = 6 * 3600 * 1_000_000_000;

/// Calls after which a run counts as endless.
const STEPS_MAX: u64 = 3_000_000;

/// The exit code of a process that found a fault.
pub const FOUND: i32 = 3;

/// Everything that is simulated.
pub struct SimulatedWorld {
    /// The seed's number, for people.
    pub seed: u64,
    /// The chances of the schedule and of the faults.
    pub chance: SeedChance,
    /// All threads, also those that ended.
    pub tasks: Vec<SimulatedThread>,
    /// The threads that have not ended.
    pub live: Vec<TaskId>,
    /// Space for the scheduler's choice.
    pub ready: Vec<TaskId>,
    /// Nanoseconds since the begin of the simulation.
    pub now: u64,
    /// Calls of a thousand at which another thread runs.
    pub switch_permille: u64,
    /// Turns of most threads for one turn of the slow ones.
    pub skew: u64,
    /// The time that a call takes at most.
    pub call_ns: u64,
    /// Processors that the machine seems to have.
    pub cpus: usize,
    /// The calls so far.
    pub steps: u64,
    /// The fingerprint of everything that happened.
    pub digest: u64,
    /// Prints everything that happens.
    pub traces: bool,
    /// Open files and connections.
    pub descriptors: DescriptorTable,
    /// Files.
    pub volumes: VolumeTree,
    /// The faults that are still to come.
    pub faults: FaultPlan,
    /// The contents that the destination may have.
    pub expectation: ExpectedTree,
    /// The mapped memory of the ends: length and process by address.
    pub mapped: BTreeMap<usize, (usize, EndProcess)>,
    /// The most mapped memory at a time.
    pub mapped_peak: usize,
    /// Numbers from `getrandom`.
    pub random: SeedChance,
    /// The seed's choices, told when a fault is found.
    pub description: String,
    /// The part of the run, for people.
    pub stage: &'static str,
    /// A process was killed, in this session or an earlier one.
    pub has_killed: bool,
    /// The machine tells the number of its boot.
    pub has_boot_id: bool,
    /// The mask of new files.
    pub umask: u32,
    /// Bytes that may be under way on a connection.
    pub connection_bytes: usize,
    /// The time that bytes are under way.
    pub connection_delay_ns: u64,
    /// Nothing is in the page cache: reads that must not wait don't find anything.
    pub nothing_cached: bool,
    /// The process of threads that the control process starts.
    pub spawns_for: Option<EndProcess>,
}

struct WorldPlace(UnsafeCell<Option<SimulatedWorld>>);

// SAFETY: only the thread that has the baton uses it.
unsafe impl Sync for WorldPlace {}

static WORLD: WorldPlace = WorldPlace(UnsafeCell::new(None));

/// The simulated machine, for the thread that has the baton.
#[inline(never)]
pub fn world() -> &'static mut SimulatedWorld {
    // SAFETY: one thread runs at a time, and callers drop the reference before they pass the baton on.
    let world = unsafe { (*WORLD.0.get()).as_mut() };
    world.expect("set before any thread is simulated")
}

/// Sets the simulated machine.
pub fn install(world: SimulatedWorld) {
    // SAFETY: no simulated thread runs.
    unsafe { *WORLD.0.get() = Some(world) };
}

impl SimulatedWorld {
    /// A machine with empty volumes.
    pub fn new(seed: u64, traces: bool) -> SimulatedWorld {
        SimulatedWorld {
            seed,
            chance: SeedChance::new(seed),
            tasks: Vec::new(),
            live: Vec::new(),
            ready: Vec::new(),
            now: 0,
            switch_permille: 300,
            skew: 1,
            call_ns: 2_000,
            cpus: 2,
            steps: 0,
            digest: 0,
            traces,
            descriptors: DescriptorTable::default(),
            volumes: VolumeTree::new(),
            faults: FaultPlan::default(),
            expectation: ExpectedTree::default(),
            mapped: BTreeMap::new(),
            mapped_peak: 0,
            random: SeedChance::new(seed ^ 0x5eed),
            description: String::new(),
            stage: "",
            has_killed: false,
            has_boot_id: true,
            umask: 0o022,
            connection_bytes: 256 << 10,
            connection_delay_ns: 0,
            nothing_cached: false,
            spawns_for: None,
        }
    }

    /// A node of the sink's volumes has got a name: whatever has the name of a copy is the old file or the
    /// whole new one.
    pub fn named(&mut self, directory: NodeRef, name: &[u8], node: NodeRef) {
        if !is_at_sink(node.volume) || !self.expectation.watches {
            return;
        }
        let mut path = self.volumes.path(directory);
        path.push(b'/');
        path.extend_from_slice(name);
        if self.expectation.is_file(&path) {
            self.expectation.finals.insert(node, path.clone());
            self.check_whole(&path, node);
        }
    }

    /// A file was written to: if it has the name of a copy, it still is the old file or the whole new one.
    pub fn written(&mut self, node: NodeRef) {
        if is_at_sink(node.volume)
            && let Some(path) = self.expectation.finals.get(&node).cloned()
            && self
                .volumes
                .walk(node, &path, WalkRules::default())
                .is_ok_and(|walked| walked.node == Some(node))
        {
            self.check_whole(&path, node);
        }
    }

    /// Fails unless the file is the old one or the whole new one.
    pub fn check_whole(&mut self, path: &[u8], node: NodeRef) {
        let found = self.volumes.node(node).ok().cloned();
        if !found.as_ref().is_some_and(|found| self.expectation.is_old_or_new(path, &found.contents)) {
            let differs = found.map(|found| self.expectation.difference_from_new(path, &found.contents));
            let (path, differs) = (path.escape_ascii(), differs.unwrap_or_default());
            self.fail(&format!("{path} is neither the old file nor the whole new one ({differs})"));
        }
    }

    /// The calling thread's process.
    pub fn process(&self) -> EndProcess {
        self.tasks[scheduler::me()].process
    }

    /// Adds what happened to the fingerprint, and prints it if asked to.
    pub fn note(&mut self, what: &'static str, a: i64, b: i64) {
        let word = what.bytes().fold(0u64, |word, byte| word.wrapping_mul(31) ^ u64::from(byte));
        self.digest = mix(self.digest ^ word ^ mix(a as u64 ^ mix(b as u64 ^ self.now)));
        if self.traces {
            let me = scheduler::me();
            let name = self.tasks.get(me).map_or("", |task| &task.name);
            let process = self.tasks.get(me).map_or(EndProcess::Control, |task| task.process);
            let (s, us) = (self.now / 1_000_000_000, self.now / 1000 % 1_000_000);
            println!("{s}.{us:06} {process:?} {me} {name}: {what} {a} {b}");
        }
    }

    /// Prints a line of the trace.
    pub fn tell(&self, text: impl FnOnce() -> String) {
        if self.traces {
            println!("    {}", text());
        }
    }

    /// Returns true if the condition holds, and the time from which on it holds by itself.
    pub fn is_met(&self, condition: &WaitCondition) -> (bool, u64) {
        match condition {
            WaitCondition::Futex(_) | WaitCondition::Time => (false, u64::MAX),
            WaitCondition::Events(events) => {
                let mut next = u64::MAX;
                for &(fd, wanted) in events {
                    let (found, at) = self.descriptors.events(fd, wanted, self.now);
                    if found != 0 {
                        return (true, 0);
                    }
                    next = next.min(at);
                }
                (false, next)
            }
            WaitCondition::Bytes(pipe) => {
                let pipe = &self.descriptors.pipes[*pipe];
                (pipe.readable(self.now), pipe.next_arrival())
            }
            WaitCondition::Room(pipe) => {
                let pipe = &self.descriptors.pipes[*pipe];
                let leaves = pipe.readers == 0 && !pipe.is_silent;
                (pipe.writable(self.now), if leaves { pipe.readers_left_at } else { u64::MAX })
            }
            WaitCondition::FileLock(description) => (self.descriptors.can_lock(*description), u64::MAX),
            WaitCondition::End(id) => (matches!(self.tasks[*id].state, ThreadState::Ended), u64::MAX),
            WaitCondition::AllEnds => (self.live.len() == 1, u64::MAX),
        }
    }

    /// Ends a run that takes too long.
    pub fn check_time(&mut self) {
        if self.now > self.faults.time_limit {
            let report = self.report_tasks();
            self.fail(&format!("endless: {} h of simulated time\n{report}", TIME_MAX_NS / 3_600_000_000_000));
        }
    }

    /// Counts a call, takes its time, and has the process die here if the seed wants it.
    pub fn step(&mut self, call: CallKind) {
        self.steps += 1;
        self.now += 1 + self.chance.below(self.call_ns);
        if self.steps > STEPS_MAX {
            let report = self.report_tasks();
            self.fail(&format!("endless: {STEPS_MAX} calls\n{report}"));
        }
        let me = scheduler::me();
        self.tasks[me].last_call = call.name();
        self.note(call.name(), me as i64, crate::memory::left() as i64);
    }

    /// A mutex of the whole program that a killed process held: each process would have its own.
    pub fn free_abandoned_lock(&mut self) -> bool {
        let is_static = |address: usize| {
            let (from, to) = crate::static_memory();
            (from..to).contains(&address)
        };
        if !self.has_killed {
            return false;
        }
        for &id in &self.live {
            if let ThreadState::Waiting(WaitCondition::Futex(address)) = self.tasks[id].state
                && is_static(address)
            {
                // SAFETY: a futex word in this program's static memory.
                unsafe { *(address as *mut u32) = 0 };
                self.tasks[id].state = ThreadState::Ready;
                return true;
            }
        }
        false
    }

    /// The threads that have not ended, with what they wait for.
    pub fn report_tasks(&self) -> String {
        let mut text = String::new();
        for &id in &self.live {
            let SimulatedThread { name, process, state, deadline, last_call, .. } = &self.tasks[id];
            let _ = write!(text, "    {id} {process:?} {name}: {state:?}");
            let _ = deadline.map(|at| write!(text, " until {} ms", at / 1_000_000));
            let _ = writeln!(text, ", last call {last_call}");
        }
        text
    }

    /// Ends the process with a report.
    pub fn fail(&mut self, what: &str) -> ! {
        let inside = scheduler::InsideGuard::enter();
        println!("seed {}: {}: {what}", self.seed, self.stage);
        println!("  {}", self.description.replace('\n', "\n  "));
        println!("  after {} calls, {} ms; digest {:016x}", self.steps, self.now / 1_000_000, self.digest);
        use std::io::Write as _;
        let _ = std::io::stdout().flush();
        drop(inside);
        // SAFETY: ends this process at once; its output is flushed.
        unsafe { crate::raw_calls::raw_call(libc::SYS_exit_group, [FOUND.into(), 0, 0, 0, 0, 0]) };
        unreachable!("the process has ended")
    }
}

/// Kills a process: its threads never run again, its descriptors are closed.
pub fn kill(process: EndProcess) {
    let world = world();
    world.note("killed", process as i64, 0);
    for id in std::mem::take(&mut world.live) {
        if world.tasks[id].process == process {
            world.tasks[id].state = ThreadState::Killed;
        } else {
            world.live.push(id);
        }
    }
    world.faults.killed.push(process);
    world.has_killed = true;
    world.descriptors.close_all(process, world.now);
    world.mapped.retain(|_, (_, owner)| *owner != process);
}
