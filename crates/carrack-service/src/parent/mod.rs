//! The daemon's parent process: one thread, one loop around `epoll`, which never waits for another process.
//!
//! It owns the listening sockets, the half-open connections, the sessions' processes, the quotas and the
//! audit log. A half-open connection costs a descriptor until its first bytes arrive. A connection of another
//! program is closed without an answer. A control connection gets a process; a data connection is passed to
//! the session that it names.

mod administrator_requests;
mod doorway;
mod events;
mod first_bytes;
mod half_open;
mod loaded_config;
mod queue_supervisor;
mod quota;
mod registry;
mod retry_advice;
mod session;
mod signals;
mod sockets;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_machine::raise_descriptor_limit;
use carrack_transport::PeerAddressPrefix;
use sd_notify::NotifyState;

use crate::audit::AuditLog;
use crate::config::LocalServicesConfig;
use crate::log::{DaemonLog, LogVerbosity};
use crate::queue::{QueueProcessStopTrigger, serve_local};
use events::{DaemonEventSource, EventPoll};
pub(crate) use first_bytes::{ConnectionKind, kind_of};
use half_open::{AddressCounts, HalfOpenConnections};
pub(crate) use loaded_config::read as read_config;
pub use loaded_config::{ServeError, ServePlan};
use queue_supervisor::QueueProcessSupervisor;
use retry_advice::OverloadRetryDelays;
use session::ChildSession;
use signals::SignalPipes;
use sockets::{ListenSockets, ReserveDescriptor};

/// Interval at which deadlines are checked.
const TICK: Duration = Duration::from_secs(1);

/// Serves the configuration of a file until SIGTERM.
///
/// # Errors
/// [`ServeError`] if the daemon can't start.
pub fn serve(path: &Path, verbosity: LogVerbosity) -> Result<(), ServeError> {
    let path = std::path::absolute(path).map_err(ServeError::system("finding the configuration"))?;
    if let Some(alone) = loaded_config::read_local_only_config(&path)? {
        return Ok(serve_local(&alone, QueueProcessStopTrigger::Nothing, DaemonLog(verbosity), || {
            loaded_config::read_local_only_config(&path)
        })?);
    }
    let plan = ServePlan::load(&path)?;
    let mut daemon = DaemonMainProcess::new(path, plan, DaemonLog(verbosity))?;
    // A daemon whose working directory stays where it was started keeps that file system mounted.
    std::env::set_current_dir("/").map_err(ServeError::system("going to /"))?;
    daemon.announce();
    daemon.run();
    daemon.shut_down();
    Ok(())
}

/// Serves the part of a configuration for this machine's users until standard input ends. The daemon starts
/// this process as its child.
///
/// # Errors
/// [`ServeError`] if the process can't start.
pub fn serve_local_config_file(path: &Path, verbosity: LogVerbosity) -> Result<(), ServeError> {
    match load_local_config(path)? {
        Some(local) => Ok(serve_local(&local, QueueProcessStopTrigger::Stdin, DaemonLog(verbosity), || {
            load_local_config(path)
        })?),
        None => Ok(()),
    }
}

fn load_local_config(path: &Path) -> Result<Option<LocalServicesConfig>, ServeError> {
    Ok(ServePlan::load(path)?.config.local())
}

/// Describes for people how the daemon would run, followed by notices for the administrator that keep nothing
/// from working.
///
/// # Errors
/// [`ServeError`] if the daemon would not start.
pub fn check_config(path: &Path) -> Result<(Vec<String>, Vec<String>), ServeError> {
    if let Some(alone) = loaded_config::read_local_only_config(path)? {
        return Ok((alone.describe(), Vec::new()));
    }
    let plan = ServePlan::load(path)?;
    Ok((plan.describe(), plan.notices))
}

/// The phase of the daemon's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DaemonPhase {
    Serving,
    /// No new sessions; running ones may continue until this time.
    Draining(Instant),
    /// Running sessions were told to end.
    Ending,
}

/// A handshake that failed a short while ago.
struct FailedHandshake {
    place: PeerAddressPrefix,
    since: Instant,
}

struct DaemonMainProcess {
    path: PathBuf,
    plan: ServePlan,
    charge: Arc<[u8]>,
    log: DaemonLog,
    audit: AuditLog,
    events: EventPoll,
    signals: SignalPipes,
    sockets: ListenSockets,
    reserve: ReserveDescriptor,
    strangers: HalfOpenConnections,
    /// Counts of half-open connections, and of sessions that are not admitted yet.
    counts: AddressCounts,
    sessions: BTreeMap<u64, ChildSession>,
    next_session: u64,
    /// Failed handshakes of the last seconds by the numbers of their sessions, the oldest first.
    failed: BTreeMap<u64, FailedHandshake>,
    turned_away: OverloadRetryDelays,
    phase: DaemonPhase,
    /// Limit of the process's descriptors.
    descriptors: u64,
    /// The last status sent to systemd.
    status: String,
    /// The process of the queue and the meta-server, if the configuration has either.
    queue: Option<QueueProcessSupervisor>,
}

impl DaemonMainProcess {
    fn new(path: PathBuf, plan: ServePlan, log: DaemonLog) -> Result<DaemonMainProcess, ServeError> {
        let events = EventPoll::new().map_err(ServeError::system("epoll"))?;
        let signals = SignalPipes::catch().map_err(ServeError::system("watching for signals"))?;
        let audit = AuditLog::open(plan.config.audit.as_deref(), log)
            .map_err(ServeError::system("opening the audit log"))?;
        let sockets = ListenSockets::open(&plan.config.listen).map_err(ServeError::system("listening"))?;
        let charge = plan.setup_message(log.0).map_err(ServeError::system("preparing sessions"))?;
        let reserve = ReserveDescriptor::new().map_err(ServeError::system("opening /dev/null"))?;
        signals
            .descriptors()
            .try_for_each(|pipe| events.watch(pipe, DaemonEventSource::Signal))
            .map_err(ServeError::system("watching for signals"))?;
        let daemon = DaemonMainProcess {
            path,
            plan,
            charge,
            log,
            audit,
            events,
            signals,
            sockets,
            reserve,
            strangers: HalfOpenConnections::default(),
            counts: AddressCounts::default(),
            sessions: BTreeMap::new(),
            next_session: 1,
            failed: BTreeMap::new(),
            turned_away: OverloadRetryDelays::default(),
            phase: DaemonPhase::Serving,
            descriptors: raise_descriptor_limit(),
            status: String::new(),
            queue: None,
        };
        daemon.watch_listeners().map_err(ServeError::system("listening"))?;
        Ok(daemon)
    }

    fn watch_listeners(&self) -> io::Result<()> {
        let mut listeners = self.sockets.listeners().enumerate();
        listeners.try_for_each(|(index, listener)| {
            self.events.watch(listener, DaemonEventSource::Listener(index as u64))
        })
    }

    /// Announces the daemon: in the log, in the PID file and to systemd.
    fn announce(&mut self) {
        let (most, wanted) = (self.half_open_max(), self.plan.config.limits.half_open);
        if most < wanted {
            let descriptors = self.descriptors;
            self.log.warn(format!(
                "half_open is {most}, not {wanted}: there are only {descriptors} descriptors (LimitNOFILE)"
            ));
        }
        self.plan.notices.iter().for_each(|notice| self.log.warn(notice));
        for listener in self.sockets.listeners() {
            match listener.local_addr() {
                Ok(address) => self.log.info(format!("listening on {address}")),
                Err(error) => self.log.warn(format!("a listening socket has no address: {error}")),
            }
        }
        if let Some(path) = &self.plan.config.pid_file
            && let Err(error) = fs::write(path, format!("{}\n", std::process::id()))
        {
            self.log.warn(format!("{}: {error}", path.display()));
        }
        if self.plan.config.local().is_some() {
            match QueueProcessSupervisor::start(&self.path, self.log) {
                Ok(queue) => self.queue = Some(queue),
                Err(error) => self.log.warn(format!("there is no queue and nothing is shared: {error}")),
            }
        }
        notify(&[NotifyState::Ready]);
        self.notify_status();
    }

    fn shut_down(&mut self) {
        if let Some(path) = &self.plan.config.pid_file {
            // If the file was removed before, there is nothing left to do.
            let _ = fs::remove_file(path);
        }
        self.queue = None;
        self.log.info("ended");
    }

    fn run(&mut self) {
        while self.phase == DaemonPhase::Serving || !self.sessions.is_empty() {
            let is_idle = self.strangers.len() == 0 && self.sessions.is_empty();
            let sources = match self.events.wait((!is_idle).then_some(TICK)) {
                Ok(sources) => sources,
                Err(error) => return self.log.warn(format!("epoll: {error}")),
            };
            for source in sources {
                match source {
                    DaemonEventSource::Signal => self.handle_signals(),
                    DaemonEventSource::Listener(index) => self.accept(index as usize),
                    DaemonEventSource::Stranger(number) => self.handle_half_open(number),
                    DaemonEventSource::Session(number) => self.handle_session_messages(number),
                }
            }
            self.enforce_deadlines();
            self.serve_waiting();
            self.notify_status();
        }
    }
}

/// Notifies systemd, if it is there (sd_notify(3)); the daemon works without as well.
fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}
