//! The processes of one measurement, as their parent sees them. The other side is in `worker.rs`.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};

use crate::kind::Kind;
use crate::options::Sizes;
use crate::place::Place;
use crate::worker::{End, Job, Outcome};

/// Processes that are prepared and wait for the start.
pub struct Crew {
    workers: Vec<Worker>,
}

impl Crew {
    /// Starts one process for each end, connects them, and waits until all are ready.
    pub fn start(kind: Kind, sizes: &Sizes, place: &Place) -> Result<Crew> {
        let start = |end| Worker::start(&Job { kind, end, sizes: *sizes, place: place.clone() });
        let mut workers = match kind {
            Kind::Local(_) | Kind::Small(_) => vec![start(End::Alone)?],
            Kind::Transfer(_) => {
                let mut receiver = start(End::Receiver)?;
                let port = receiver.line()?.strip_prefix("port ").and_then(|port| port.parse().ok());
                let port = port.ok_or_else(|| anyhow!("the receiver did not say its port"))?;
                vec![start(End::Sender { port })?, receiver]
            }
        };
        for worker in &mut workers {
            if worker.line()? != "ready" {
                bail!("a worker did not get ready");
            }
        }
        Ok(Crew { workers })
    }

    /// Starts the measurement.
    pub fn go(&mut self) -> Result<()> {
        self.workers.iter_mut().try_for_each(Worker::go)
    }

    /// Waits until all have done their work, and returns their outcomes.
    pub fn outcomes(&mut self) -> Result<Vec<Outcome>> {
        self.workers.iter_mut().map(|worker| Ok(serde_json::from_str(&worker.line()?)?)).collect()
    }
}

/// A process, which is killed on drop.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(job: &Job) -> Result<Worker> {
        let program = env::current_exe().context("finding this program")?;
        let mut child = Command::new(program)
            .args(["worker", &serde_json::to_string(job)?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a worker")?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (input, output) = input.zip(output).ok_or_else(|| anyhow!("a worker without pipes"))?;
        Ok(Worker { child, input, output: BufReader::new(output) })
    }

    fn go(&mut self) -> Result<()> {
        self.input.write_all(b"go\n").context("a worker is gone")
    }

    /// Reads the process's next line; an error if the line reports one.
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("a worker ended early");
        }
        let line = line.trim_end();
        match line.strip_prefix("error ") {
            Some(words) => bail!("{words}"),
            None => Ok(line.to_owned()),
        }
    }
}

impl Drop for Worker {
    /// Kills the process without asking it: it may be waiting for a partner that failed.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
