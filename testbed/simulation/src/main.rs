//! Whole transfers of the engine, source and sink in one process, each from one seed, with faults.
//!
//! The program defines functions of the C library (`symbols`), which the linker takes in place of the
//! library's. Exactly one thread runs at a time, chosen by the seed (`scheduler`); the clock is simulated,
//! and so are files (`volumes`), connections (`streams`) and descriptors. `session_run` has a seed's run
//! and what it asserts, docs/design/testing-faults.md the rest.

mod calls;
mod chance;
mod descriptors;
mod expectation;
mod faults;
mod memory;
mod raw_calls;
mod scenario;
mod scheduler;
mod session_run;
mod streams;
mod symbols;
mod volumes;
mod world;

// The storage double's file system and power cuts.
#[path = "../../storage-double/src/change.rs"]
#[allow(dead_code)]
mod change;
#[path = "../../storage-double/src/image.rs"]
#[allow(dead_code)]
mod image;
#[path = "../../storage-double/src/pages.rs"]
#[allow(dead_code)]
mod pages;
#[path = "../../storage-double/src/power_cut.rs"]
#[allow(dead_code)]
mod power_cut;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use power_cut::mix;
use session_run::RunOutline;

const USAGE: &str =
    "usage: carrack-simulation [--seeds FROM..TO | --seed N] [--jobs N] [--trace] [--repeat] [--first]

  --seeds FROM..TO   the seeds to run, or a number: 0..NUMBER (0..1000)
  --seed N           one seed
  --jobs N           processes (as many as there are processors)
  --trace            prints everything that happens
  --repeat           runs each seed twice and compares
  --first            ends at the first seed that finds something";

/// Seconds after which a seed's process is ended, should it hang.
const SEED_S_MAX: u32 = 120;

/// Failures after which no further seeds are begun.
const FAILURES_MAX: u64 = 20;

/// The counters that all processes share.
struct SharedCounters {
    next: AtomicU64,
    first_failed: AtomicU64,
    failed: AtomicU64,
    done: AtomicU64,
    steps: AtomicU64,
    /// Sum of the seeds' fingerprints: the same in any order.
    digest: AtomicU64,
    /// Of the seed that a worker runs.
    last: [AtomicU64; 64],
}

struct RunOptions {
    from: u64,
    to: u64,
    jobs: usize,
    traces: bool,
    repeats: bool,
    ends_at_first: bool,
}

/// The addresses of this program's own variables.
pub fn static_memory() -> (usize, usize) {
    unsafe extern "C" {
        static __data_start: u8;
        static _end: u8;
    }
    // Only the addresses are taken; the linker defines both.
    (&raw const __data_start as usize, &raw const _end as usize)
}

fn options() -> Result<RunOptions, String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options =
        RunOptions { from: 0, to: 1000, jobs: cpus, traces: false, repeats: false, ends_at_first: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("not a number: {text}"));
        match word.as_str() {
            "--seeds" => {
                let text = value()?;
                let (from, to) = text.split_once("..").unwrap_or(("0", &text));
                (options.from, options.to) = (number(from)?, number(to)?);
            }
            "--seed" => {
                options.from = number(&value()?)?;
                (options.to, options.jobs) = (options.from + 1, 1);
            }
            "--jobs" => options.jobs = number(&value()?)?.clamp(1, 64) as usize,
            "--trace" => options.traces = true,
            "--repeat" => options.repeats = true,
            "--first" => options.ends_at_first = true,
            "--help" | "-h" => {
                println!("{USAGE}");
                std::process::exit(0);
            }
            _ => return Err(format!("no such option: {word}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    symbols::threads::prepare();
    let shared = shared();
    shared.next.store(options.from, SeqCst);
    shared.first_failed.store(u64::MAX, SeqCst);
    let began = Instant::now();
    let workers: Vec<i32> = (0..options.jobs).map(|index| fork(|| work(&options, shared, index))).collect();
    for worker in workers {
        wait_for(worker);
    }
    report(&options, shared, began)
}

fn report(options: &RunOptions, shared: &SharedCounters, began: Instant) -> ExitCode {
    let (done, failed) = (shared.done.load(SeqCst), shared.failed.load(SeqCst));
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{done} of seeds {}..{} in {seconds:.1} s: {:.0} a second, {} calls each; digest {:016x}",
        options.from,
        options.to,
        done as f64 / seconds,
        shared.steps.load(SeqCst) / done.max(1),
        shared.digest.load(SeqCst),
    );
    if failed == 0 {
        return ExitCode::SUCCESS;
    }
    let first = shared.first_failed.load(SeqCst);
    println!(
        "{failed} found something, the first one is {first}: testbed/simulation/run --seed {first} --trace"
    );
    ExitCode::FAILURE
}

/// A worker's part of the seeds.
fn work(options: &RunOptions, shared: &SharedCounters, index: usize) {
    pin(index);
    loop {
        let seed = shared.next.fetch_add(1, SeqCst);
        let is_over = shared.failed.load(SeqCst) >= FAILURES_MAX
            || (options.ends_at_first && shared.first_failed.load(SeqCst) < seed);
        if seed >= options.to || is_over {
            return;
        }
        let mut is_good = run_apart(options, shared, index, seed);
        let digest = shared.last[index].load(SeqCst);
        if options.repeats && is_good {
            is_good = run_apart(options, shared, index, seed);
            let again = shared.last[index].load(SeqCst);
            if is_good && again != digest {
                println!("seed {seed} is not the same twice: {digest:016x}, {again:016x}");
                is_good = false;
            }
        }
        shared.done.fetch_add(1, SeqCst);
        shared.digest.fetch_add(mix(seed ^ digest), SeqCst);
        if !is_good {
            shared.failed.fetch_add(1, SeqCst);
            shared.first_failed.fetch_min(seed, SeqCst);
        }
    }
}

/// Runs a seed in a process of its own; returns true if nothing was found.
fn run_apart(options: &RunOptions, shared: &SharedCounters, index: usize, seed: u64) -> bool {
    let child = fork(|| {
        // SAFETY: a timer of this process.
        unsafe { libc::alarm(SEED_S_MAX) };
        report_panics();
        let RunOutline { digest, steps } = session_run::run(seed, options.traces);
        shared.last[index].store(digest, SeqCst);
        shared.steps.fetch_add(steps, SeqCst);
    });
    match wait_for(child) {
        0 => true,
        status => {
            if libc::WIFSIGNALED(status) {
                println!("seed {seed}: ended by signal {}", libc::WTERMSIG(status));
            }
            false
        }
    }
}

/// A panic of the engine is a fault that was found.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let _inside = scheduler::InsideGuard::enter();
        let trace = std::backtrace::Backtrace::force_capture();
        let frames = trace.to_string();
        let frames: Vec<&str> = frames.lines().filter(|line| line.contains("carrack")).take(24).collect();
        world::world().fail(&format!("{panic}\n{}", frames.join("\n")));
    }));
}

/// Memory that all processes share.
fn shared() -> &'static SharedCounters {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    let length = std::mem::size_of::<SharedCounters>();
    // SAFETY: a new mapping, zeroed, as all its counters may be.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED, "a page of memory");
        &*at.cast::<SharedCounters>()
    }
}

/// Runs `work` in another process, which ends then; returns its number.
fn fork(work: impl FnOnce()) -> i32 {
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        0 => {
            work();
            use std::io::Write as _;
            let _ = std::io::stdout().flush();
            // SAFETY: ends this process and all its threads.
            unsafe { raw_calls::raw_call(libc::SYS_exit_group, [0; 6]) };
            unreachable!("the process has ended")
        }
        child => {
            assert!(child > 0, "another process");
            child
        }
    }
}

fn wait_for(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the child is this process's.
    unsafe { libc::waitpid(child, &mut status, 0) };
    status
}

/// Threads that take turns do so fastest on one processor.
fn pin(index: usize) {
    // SAFETY: sets of processors of this process.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, std::mem::size_of_val(&all), (&raw mut all).cast());
        let cpus: Vec<usize> =
            (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &all)).collect();
        if let Some(&cpu) = cpus.get(index % cpus.len().max(1)) {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            libc::sched_setaffinity(0, std::mem::size_of_val(&one), (&raw const one).cast());
        }
    }
}
