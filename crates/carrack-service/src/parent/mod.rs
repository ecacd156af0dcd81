//! The daemon's parent process: one thread, one loop around `epoll`, which never waits for another process.
//!
//! It owns the listening sockets, the half-open connections, the sessions' processes, the quotas and the
//! audit log. A half-open connection costs a descriptor until its first bytes arrive. A connection of another
//! program is closed without an answer. A control connection gets a process; a data connection is passed to
//! the session that it names.

mod beside;
mod doorway;
mod events;
mod first_bytes;
mod half_open;
mod plan;
mod quota;
mod registry;
mod session;
mod signals;
mod sockets;
mod turned_away;
mod wishes;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_machine::raise_descriptors;
use carrack_transport::Neighbourhood;
use sd_notify::NotifyState;

use crate::audit::Audit;
use crate::config::LocalConfig;
use crate::log::{Log, Verbosity};
use crate::queue::{EndsWith, serve_local};
use beside::Beside;
use events::{Events, Source};
pub(crate) use first_bytes::{Kind as ConnectionKind, kind_of};
use half_open::{Counts, Strangers};
pub(crate) use plan::read as read_config;
pub use plan::{Plan, ServeError};
use session::Session;
use signals::Signals;
use sockets::{Reserve, Sockets};
use turned_away::TurnedAway;

/// Interval at which deadlines are checked.
const TICK: Duration = Duration::from_secs(1);

/// Serves the configuration of a file until SIGTERM.
///
/// # Errors
/// [`ServeError`] if the daemon can't start.
pub fn serve(path: &Path, verbosity: Verbosity) -> Result<(), ServeError> {
    let path = std::path::absolute(path).map_err(ServeError::system("finding the configuration"))?;
    if let Some(alone) = plan::local_alone(&path)? {
        return Ok(serve_local(&alone, EndsWith::Nothing, Log(verbosity), || plan::local_alone(&path))?);
    }
    let plan = Plan::load(&path)?;
    let mut daemon = Daemon::new(path, plan, Log(verbosity))?;
    // A daemon whose working directory stays where it was started keeps that file system mounted.
    std::env::set_current_dir("/").map_err(ServeError::system("going to /"))?;
    daemon.begin();
    daemon.run();
    daemon.leave();
    Ok(())
}

/// Serves the part of a configuration for this machine's users until standard input ends. The daemon starts
/// this process as its child.
///
/// # Errors
/// [`ServeError`] if the process can't start.
pub fn serve_local_of(path: &Path, verbosity: Verbosity) -> Result<(), ServeError> {
    match local_of(path)? {
        Some(local) => Ok(serve_local(&local, EndsWith::Stdin, Log(verbosity), || local_of(path))?),
        None => Ok(()),
    }
}

fn local_of(path: &Path) -> Result<Option<LocalConfig>, ServeError> {
    Ok(Plan::load(path)?.config.local())
}

/// Describes for people how the daemon would run, followed by notices for the administrator that keep nothing
/// from working.
///
/// # Errors
/// [`ServeError`] if the daemon would not start.
pub fn check(path: &Path) -> Result<(Vec<String>, Vec<String>), ServeError> {
    if let Some(alone) = plan::local_alone(path)? {
        return Ok((alone.describe(), Vec::new()));
    }
    let plan = Plan::load(path)?;
    Ok((plan.describe(), plan.notices))
}

/// The phase of the daemon's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// No new sessions; running ones may continue until this time.
    Draining(Instant),
    /// Running sessions were told to end.
    Ending,
}

/// A handshake that failed a short while ago.
struct FailedHandshake {
    place: Neighbourhood,
    since: Instant,
}

struct Daemon {
    path: PathBuf,
    plan: Plan,
    charge: Arc<[u8]>,
    log: Log,
    audit: Audit,
    events: Events,
    signals: Signals,
    sockets: Sockets,
    reserve: Reserve,
    strangers: Strangers,
    /// Counts of half-open connections, and of sessions that are not admitted yet.
    counts: Counts,
    sessions: BTreeMap<u64, Session>,
    next_session: u64,
    /// Failed handshakes of the last seconds by the numbers of their sessions, the oldest first.
    failed: BTreeMap<u64, FailedHandshake>,
    turned_away: TurnedAway,
    phase: Phase,
    /// Limit of the process's descriptors.
    descriptors: u64,
    /// The last status sent to systemd.
    status: String,
    /// The process of the queue and the meta-server, if the configuration has either.
    queue: Option<Beside>,
}

impl Daemon {
    fn new(path: PathBuf, plan: Plan, log: Log) -> Result<Daemon, ServeError> {
        let events = Events::new().map_err(ServeError::system("epoll"))?;
        let signals = Signals::catch().map_err(ServeError::system("watching for signals"))?;
        let audit = Audit::open(plan.config.audit.as_deref(), log)
            .map_err(ServeError::system("opening the audit log"))?;
        let sockets = Sockets::open(&plan.config.listen).map_err(ServeError::system("listening"))?;
        let charge = plan.charge(log.0).map_err(ServeError::system("preparing sessions"))?;
        let reserve = Reserve::new().map_err(ServeError::system("opening /dev/null"))?;
        signals
            .descriptors()
            .try_for_each(|pipe| events.watch(pipe, Source::Signal))
            .map_err(ServeError::system("watching for signals"))?;
        let daemon = Daemon {
            path,
            plan,
            charge,
            log,
            audit,
            events,
            signals,
            sockets,
            reserve,
            strangers: Strangers::default(),
            counts: Counts::default(),
            sessions: BTreeMap::new(),
            next_session: 1,
            failed: BTreeMap::new(),
            turned_away: TurnedAway::default(),
            phase: Phase::Serving,
            descriptors: raise_descriptors(),
            status: String::new(),
            queue: None,
        };
        daemon.watch_listeners().map_err(ServeError::system("listening"))?;
        Ok(daemon)
    }

    fn watch_listeners(&self) -> io::Result<()> {
        let mut listeners = self.sockets.listeners().enumerate();
        listeners
            .try_for_each(|(index, listener)| self.events.watch(listener, Source::Listener(index as u64)))
    }

    /// Announces the daemon: in the log, in the PID file and to systemd.
    fn begin(&mut self) {
        let (most, wanted) = (self.strangers_max(), self.plan.config.limits.half_open);
        if most < wanted {
            let descriptors = self.descriptors;
            self.log.warn(format!(
                "half_open is {most}, not {wanted}: there are only {descriptors} descriptors (LimitNOFILE)"
            ));
        }
        self.plan.notices.iter().for_each(|notice| self.log.warn(notice));
        for listener in self.sockets.listeners() {
            match listener.local_addr() {
                Ok(address) => self.log.note(format!("listening on {address}")),
                Err(error) => self.log.warn(format!("a listening socket has no address: {error}")),
            }
        }
        if let Some(path) = &self.plan.config.pid_file
            && let Err(error) = fs::write(path, format!("{}\n", std::process::id()))
        {
            self.log.warn(format!("{}: {error}", path.display()));
        }
        if self.plan.config.local().is_some() {
            match Beside::start(&self.path, self.log) {
                Ok(queue) => self.queue = Some(queue),
                Err(error) => self.log.warn(format!("there is no queue and nothing is shared: {error}")),
            }
        }
        notify(&[NotifyState::Ready]);
        self.tell_status();
    }

    fn leave(&mut self) {
        if let Some(path) = &self.plan.config.pid_file {
            // If the file was removed before, there is nothing left to do.
            let _ = fs::remove_file(path);
        }
        self.queue = None;
        self.log.note("ended");
    }

    fn run(&mut self) {
        while self.phase == Phase::Serving || !self.sessions.is_empty() {
            let is_idle = self.strangers.len() == 0 && self.sessions.is_empty();
            let sources = match self.events.wait((!is_idle).then_some(TICK)) {
                Ok(sources) => sources,
                Err(error) => return self.log.warn(format!("epoll: {error}")),
            };
            for source in sources {
                match source {
                    Source::Signal => self.heed_signals(),
                    Source::Listener(index) => self.accept(index as usize),
                    Source::Stranger(number) => self.look_at(number),
                    Source::Session(number) => self.attend(number),
                }
            }
            self.keep_time();
            self.serve_waiting();
            self.tell_status();
        }
    }
}

/// Notifies systemd, if it is there (sd_notify(3)); the daemon works without as well.
fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}
