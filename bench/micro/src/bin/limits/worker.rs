//! One end of a measurement, as a process of its own: prepares, waits for the start, works, and reports.
//!
//! Its lines on stdout: `port NUMBER` if others connect to it, `ready`, and when the work is done an
//! [`Outcome`] as JSON; or `error WORDS` at any time. Its line on stdin: `go`. The other side is in
//! `crew.rs`.

use std::io::{self, BufRead, Write};
use std::thread;

use anyhow::{Result, anyhow, bail};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::kind::Kind;
use crate::options::Sizes;
use crate::place::Place;
use crate::{local, small, stream};

/// The instructions for a worker.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// The measurement.
    pub kind: Kind,
    /// Its end.
    pub end: End,
    /// The amounts.
    pub sizes: Sizes,
    /// The files.
    pub place: Place,
}

/// An end of a measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum End {
    /// The only end.
    Alone,
    /// Listens.
    Receiver,
    /// Connects.
    Sender {
        /// TCP port on the loopback address.
        port: u16,
    },
}

/// An end's result after its work.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// CPU seconds of all its threads, user and system, from `go` to the end.
    pub cpu_s: f64,
    /// Sum of the hashes of all blocks, in hexadecimal; 0 without hashing. Must be equal at both ends.
    pub digest: String,
}

/// The measured part of a job; returns the sum of the hashes.
pub type Task = Box<dyn FnOnce() -> Result<u128>>;

/// Runs a job. Errors go to the parent, which prints them.
pub fn run(job: &str) -> Result<()> {
    if let Err(error) = work(job) {
        say(&format!("error {error:#}").replace('\n', " "))?;
    }
    Ok(())
}

/// Sends one line to the parent.
pub fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// Runs `work` on every lane, each on a thread of its own, and adds up the hashes.
pub fn in_threads<L: Send>(lanes: Vec<L>, work: impl Fn(L) -> Result<u128> + Sync) -> Result<u128> {
    thread::scope(|scope| {
        let work = &work;
        let spawn = |lane| scope.spawn(move || work(lane));
        let handles: Vec<_> = lanes.into_iter().map(spawn).collect();
        handles.into_iter().try_fold(0_u128, |sum, handle| {
            let digest = handle.join().map_err(|_| anyhow!("a thread panicked"))??;
            Ok(sum.wrapping_add(digest))
        })
    })
}

fn work(job: &str) -> Result<()> {
    let task = prepare(serde_json::from_str(job)?)?;
    say("ready")?;
    let mut word = String::new();
    io::stdin().lock().read_line(&mut word)?;
    if word.trim() != "go" {
        bail!("the parent is gone");
    }
    let start_s = process_cpu_s();
    let digest = format!("{:032x}", task()?);
    let outcome = Outcome { cpu_s: process_cpu_s() - start_s, digest };
    say(&serde_json::to_string(&outcome)?)?;
    Ok(())
}

fn prepare(job: Job) -> Result<Task> {
    let Job { kind, end, sizes, place } = job;
    match (kind, end) {
        (Kind::Local(local), End::Alone) => Ok(local::prepare(local, sizes, place)),
        (Kind::Small(small), End::Alone) => small::prepare(small, sizes, place),
        (Kind::Transfer(transfer), End::Receiver) => stream::prepare_receiver(transfer, sizes, place),
        (Kind::Transfer(transfer), End::Sender { port }) => {
            stream::prepare_sender(transfer, sizes, place, port)
        }
        (kind, end) => bail!("{kind:?} has no {end:?}"),
    }
}

fn process_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
