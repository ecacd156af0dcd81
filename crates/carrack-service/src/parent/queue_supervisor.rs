//! Supervisor of the process with the queue and the meta-server: the process is started with the daemon,
//! started again if it dies, and ended with the daemon.
//!
//! A thread of the supervisor's own waits for that process, so that the daemon's loop does not.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::log::{DaemonLog, LogVerbosity};

/// The hidden command of the queue's process.
const COMMAND: &str = "serve-queue";

/// Pause before a restart: a queue that died at once would die again at once.
const PAUSE: Duration = Duration::from_secs(5);

/// The queue's process and the thread that supervises it.
#[derive(Debug)]
pub(super) struct QueueProcessSupervisor {
    shared: Arc<SupervisorShared>,
    keeper: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct SupervisorShared {
    /// The process runs as long as this pipe is open.
    state: Mutex<QueueSupervisorState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct QueueSupervisorState {
    is_ending: bool,
    stop_control: Option<ChildStdin>,
}

impl QueueProcessSupervisor {
    /// Starts the process and its supervisor.
    pub fn start(config: &Path, log: DaemonLog) -> io::Result<QueueProcessSupervisor> {
        let shared = Arc::new(SupervisorShared::default());
        let (keeping, config) = (shared.clone(), config.to_path_buf());
        let first = spawn(&config, log)?;
        let keeper = thread::Builder::new()
            .name("carrack-queue".into())
            .spawn(move || supervise(&keeping, &config, log, first))?;
        Ok(QueueProcessSupervisor { shared, keeper: Some(keeper) })
    }

    /// Tells the process to read the configuration again. A process that is being restarted reads it at its
    /// start.
    pub fn request_reload(&self) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stop_control) = &mut state.stop_control {
            // A process that has ended does not read the pipe.
            let _ = stop_control.write_all(b"\n");
        }
    }

    /// Tells the process to end, which takes it a while.
    pub fn end(&self) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_ending = true;
        state.stop_control = None;
        self.shared.ended.notify_all();
    }
}

impl Drop for QueueProcessSupervisor {
    /// Waits for the end of the process, which has ended its copies before.
    fn drop(&mut self) {
        self.end();
        if let Some(keeper) = self.keeper.take() {
            // If the supervising thread panicked, there is nothing to wait for.
            let _ = keeper.join();
        }
    }
}

fn spawn(config: &Path, log: DaemonLog) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("carrack").arg(COMMAND).arg("--config").arg(config);
    match log.0 {
        LogVerbosity::Quiet => _ = command.arg("--quiet"),
        LogVerbosity::Normal => {}
        LogVerbosity::Verbose => _ = command.arg("--verbose"),
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()
}

fn supervise(shared: &SupervisorShared, config: &Path, log: DaemonLog, first: Child) {
    let mut child = Ok(first);
    loop {
        match &mut child {
            Ok(child) => {
                let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
                // Dropping the pipe ends a process that was started too late.
                let stop_control = child.stdin.take();
                state.stop_control = if state.is_ending { None } else { stop_control };
                drop(state);
                match child.wait() {
                    Ok(status) => log.detail(|| format!("the queue's process: {status}")),
                    Err(error) => log.warn(format!("waiting for the queue's process: {error}")),
                }
            }
            Err(error) => log.warn(format!("there can't be a process for the queue: {error}")),
        }
        let state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = shared.ended.wait_timeout_while(state, PAUSE, |state| !state.is_ending);
        if waited.unwrap_or_else(PoisonError::into_inner).0.is_ending {
            return;
        }
        log.warn("the queue's process has ended, and is started again");
        child = spawn(config, log);
    }
}
