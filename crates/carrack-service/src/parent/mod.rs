//! The parent: one thread, one loop around `epoll`, which never waits for anybody else.
//!
//! It owns the listening sockets, the strangers, the sessions' processes, the quotas and the audit log. A stranger costs a
//! descriptor until its first bytes are there; what is no carrack is closed without a word. A control connection gets a
//! process; a data connection is handed on to the session that it names.

mod events;
mod first_bytes;
mod half_open;
mod plan;
mod quota;
mod session;
mod signals;
mod sockets;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use crate::audit::Audit;
use crate::log::{Log, Verbosity};
use events::{Events, Source};
use first_bytes::Kind;
use half_open::{Counts, Neighbourhood, Strangers};
pub use plan::{Plan, ServeError};
use quota::Held;
use session::{Session, end_of_session};
use signals::{Signals, Wish};
use sockets::{Accepted, Reserve, Sockets, accept, raise_descriptors};

/// Connections that are accepted before others get their turn.
const ACCEPTED_AT_ONCE: usize = 64;

/// Descriptors of the daemon's own: signals, sockets, logs, what starting a process takes.
const OWN_DESCRIPTORS: u64 = 48;

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_secs(1);

/// Serves what the file says until SIGTERM.
///
/// # Errors
/// Why it could not begin.
pub fn serve(path: &Path, verbosity: Verbosity) -> Result<(), ServeError> {
    let path = std::path::absolute(path).map_err(ServeError::system("finding the configuration"))?;
    let plan = Plan::load(&path)?;
    let mut daemon = Daemon::new(path, plan, Log(verbosity))?;
    // The kernel's promise of room in a directory would keep a file system mounted.
    std::env::set_current_dir("/").map_err(ServeError::system("going to /"))?;
    daemon.begin();
    daemon.run();
    daemon.leave();
    Ok(())
}

/// How far the daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// No new sessions; running ones may go on until then.
    Draining(Instant),
    /// Running ones were told to end.
    Ending,
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
    /// Of strangers, and of sessions that are not admitted.
    counts: Counts,
    sessions: BTreeMap<u64, Session>,
    next_session: u64,
    phase: Phase,
    /// How many descriptors the process may have.
    descriptors: u64,
    /// What systemd was told last.
    status: String,
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
            phase: Phase::Serving,
            descriptors: raise_descriptors(),
            status: String::new(),
        };
        daemon.watch_listeners().map_err(ServeError::system("listening"))?;
        Ok(daemon)
    }

    fn watch_listeners(&self) -> io::Result<()> {
        let mut listeners = self.sockets.listeners().enumerate();
        listeners
            .try_for_each(|(index, listener)| self.events.watch(listener, Source::Listener(index as u64)))
    }

    /// Tells everybody that the daemon is there.
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
        notify(&[NotifyState::Ready]);
        self.tell_status();
    }

    fn leave(&mut self) {
        if let Some(path) = &self.plan.config.pid_file {
            // Who has removed it already wanted it gone.
            let _ = fs::remove_file(path);
        }
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

/// Strangers.
impl Daemon {
    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Some(listener) = self.sockets.listeners().nth(index) else { return };
            match accept(listener) {
                Accepted::Connection(stream, peer) => self.meet(stream, peer),
                Accepted::None => return,
                Accepted::NoDescriptors => {
                    // One who says nothing makes room for one who may; if there is none, nobody comes in.
                    match self.strangers.take_oldest() {
                        Some(oldest) => self.forget(oldest.peer),
                        None => self.reserve.turn_away(listener),
                    }
                    self.log.detail(|| "no descriptors left: a connection was closed".to_owned());
                }
                Accepted::Trouble(error) => {
                    self.log.warn(format!("accepting: {error}"));
                    // Memory, most likely. The connection stays in the queue; without a pause this would spin.
                    return std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    /// Strangers must not take the descriptors that sessions need, two for each, whatever the configuration says.
    fn strangers_max(&self) -> u64 {
        let limits = &self.plan.config.limits;
        let needed = OWN_DESCRIPTORS + 2 * (limits.sessions + limits.handshakes);
        limits.half_open.min(self.descriptors.saturating_sub(needed).max(self.descriptors / 4))
    }

    fn meet(&mut self, stream: TcpStream, peer: SocketAddr) {
        let place = Neighbourhood::of(peer);
        let limits = &self.plan.config.limits;
        if self.counts.of(place) as u64 >= limits.per_address {
            return self.log.detail(|| format!("{peer}: too many connections from there"));
        }
        if self.strangers.len() as u64 >= self.strangers_max()
            && let Some(oldest) = self.strangers.take_oldest()
        {
            self.forget(oldest.peer);
            self.log.detail(|| format!("{}: closed, there are too many that say nothing", oldest.peer));
        }
        self.counts.add(place);
        let number = self.strangers.add(stream, peer, Instant::now());
        let watched = match self.strangers.get_mut(number) {
            Some(stranger) => self.events.watch_changes(&stranger.stream, Source::Stranger(number)),
            None => Ok(()),
        };
        if let Err(error) = watched {
            self.log.warn(format!("{peer}: {error}"));
            self.dismiss(number);
        }
    }

    /// A stranger's descriptor is closed with it, which takes it out of `epoll` too.
    fn dismiss(&mut self, number: u64) {
        if let Some(stranger) = self.strangers.take(number) {
            self.forget(stranger.peer);
        }
    }

    /// A connection that somebody else goes on with stays in `epoll` although it is closed here (epoll(7)).
    fn unwatch(&self, stream: &TcpStream) {
        if let Err(error) = self.events.forget(stream) {
            self.log.warn(format!("epoll: {error}"));
        }
    }

    fn forget(&mut self, peer: SocketAddr) {
        self.counts.remove(Neighbourhood::of(peer));
    }

    fn look_at(&mut self, number: u64) {
        let Some(stranger) = self.strangers.get_mut(number) else { return };
        match first_bytes::look(&stranger.stream) {
            Kind::Unknown => {}
            Kind::Gone => self.dismiss(number),
            Kind::Control if self.phase == Phase::Serving => stranger.waits = true,
            Kind::Data(nonce) => {
                let Some(stranger) = self.strangers.take(number) else { return };
                self.forget(stranger.peer);
                self.unwatch(&stranger.stream);
                let session = self.sessions.values().find(|session| session.listens_as(&nonce));
                let handed = session.map(|session| session.hand(&stranger.stream));
                if !matches!(handed, Some(Ok(()))) {
                    self.log.detail(|| {
                        format!("{}: a data connection for no session that takes one", stranger.peer)
                    });
                }
            }
            Kind::Control | Kind::Foreign => {
                let peer = stranger.peer;
                self.dismiss(number);
                self.log.detail(|| format!("{peer}: closed, it did not begin as a carrack does"));
            }
        }
    }

    /// Sessions that are not admitted yet.
    fn in_handshake(&self) -> u64 {
        self.sessions.values().filter(|session| session.held.is_none()).count() as u64
    }

    /// Starts processes for those who wait, as many as may be in their handshakes.
    fn serve_waiting(&mut self) {
        while self.in_handshake() < self.plan.config.limits.handshakes {
            let Some(number) = self.strangers.first_waiting() else { return };
            let Some(stranger) = self.strangers.take(number) else { return };
            self.unwatch(&stranger.stream);
            let session = self.next_session;
            self.next_session += 1;
            let started =
                Session::start(session, stranger.stream, stranger.peer, &self.charge, Instant::now())
                    .and_then(|started| {
                        self.events.watch(&started.socket, Source::Session(session))?;
                        Ok(started)
                    });
            match started {
                Ok(started) => {
                    self.sessions.insert(session, started);
                    self.attend(session);
                }
                Err(error) => {
                    self.forget(stranger.peer);
                    self.log.warn(format!("{}: no process for a session: {error}", stranger.peer));
                }
            }
        }
    }
}

/// Sessions.
impl Daemon {
    /// Hears a session, answers it, and sends what waits for it.
    fn attend(&mut self, number: u64) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let heard = session.hear().and_then(|questions| {
            session.flush()?;
            Ok(questions)
        });
        match heard {
            Ok(questions) => {
                questions.into_iter().for_each(|(held, until_s)| self.decide(number, held, until_s))
            }
            // It has ended, which SIGCHLD tells, or is no longer what was started.
            Err(_) => session.is_open = false,
        }
        self.watch_session(number);
    }

    fn watch_session(&mut self, number: u64) {
        let Some(session) = self.sessions.get(&number) else { return };
        let source = Source::Session(number);
        let watched = match session.is_open {
            true => self.events.watch_again(&session.socket, source, session.has_unsent()),
            // A process that has closed its end and goes on is none that can be watched.
            false => {
                let ended = self.events.forget(&session.socket);
                if let Some(session) = self.sessions.get_mut(&number) {
                    session.kill_when_mute(Instant::now());
                }
                ended
            }
        };
        if let Err(error) = watched {
            self.log.detail(|| format!("session {number}: {error}"));
        }
    }

    fn decide(&mut self, number: u64, held: Held, token_until_s: Option<u64>) {
        let others = self.sessions.iter().filter(|(other, _)| **other != number);
        let running = others.filter_map(|(_, session)| session.held.as_ref());
        let room = match self.phase {
            Phase::Serving => quota::admit(&self.plan.config, running, &held),
            _ => Err(quota::Full {
                message: "the daemon is about to end".to_owned(),
                hint: "run the same command again in a while",
            }),
        };
        let limit = self.plan.config.limits.session();
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let answered = match room {
            Ok(rate) => {
                if session.held.is_none() {
                    self.counts.remove(Neighbourhood::of(session.peer));
                }
                let until = end_of_session(limit, token_until_s, session.since, Instant::now());
                self.log.detail(|| format!("session {number}: {} on {}", held.identity, held.export));
                session.admit(held, rate, until)
            }
            Err(full) => session.refuse(full.message, full.hint.to_owned()),
        };
        if let Err(error) = answered {
            self.log.warn(format!("session {number}: {error}"));
            session.kill("the daemon could not answer it");
        }
    }

    /// Waits for the processes that have ended: none stays a zombie.
    fn wait_for_sessions(&mut self) {
        let ended: Vec<_> = self
            .sessions
            .iter_mut()
            .filter_map(|(&number, session)| Some((number, session.wait()?)))
            .collect();
        for (number, status) in ended {
            let Some(mut session) = self.sessions.remove(&number) else { continue };
            // What it said last may still wait.
            let _ = session.hear();
            if session.held.is_none() {
                self.forget(session.peer);
            }
            let mut reason = String::new();
            match session.entry(status, &mut reason) {
                Some(entry) => self.audit.write(&entry),
                None => {
                    self.log.detail(|| format!("{}: no TLS session came to stand ({status})", session.peer))
                }
            }
        }
    }

    /// What is overdue is ended.
    fn keep_time(&mut self) {
        let now = Instant::now();
        let patience = self.plan.config.limits.handshake();
        while let Some(overdue) = self.strangers.take_overdue(patience, now) {
            self.forget(overdue.peer);
            self.log.detail(|| format!("{}: closed, it said too little for too long", overdue.peer));
        }
        for session in self.sessions.values_mut() {
            session.kill_if_due(now);
            // TLS has its own deadline in the session; what comes between it and the admission gets as long again.
            if session.held.is_none() && now.saturating_duration_since(session.since) >= patience * 2 {
                session.kill("it was not admitted in time");
            }
            if session.until.is_some_and(|until| until <= now) {
                session.end("its time is over", now);
            }
        }
        if let Phase::Draining(until) = self.phase
            && until <= now
        {
            self.end_sessions("the daemon ended");
        }
    }

    fn end_sessions(&mut self, reason: &'static str) {
        self.phase = Phase::Ending;
        let now = Instant::now();
        self.sessions.values_mut().for_each(|session| session.end(reason, now));
    }
}

/// Signals.
impl Daemon {
    fn heed_signals(&mut self) {
        for wish in self.signals.take() {
            match (wish, self.phase) {
                (Wish::Wait, _) => self.wait_for_sessions(),
                (Wish::Reload, Phase::Serving) => self.reload(),
                (Wish::Reload, _) => self.log.warn("not reloaded: the daemon is about to end"),
                (Wish::End, Phase::Serving) => self.drain(),
                (Wish::End, _) => self.end_sessions("the daemon was told to end at once"),
            }
        }
    }

    /// No new sessions from now on; data connections of running ones still come in.
    fn drain(&mut self) {
        let drain = self.plan.config.drain();
        self.phase = Phase::Draining(Instant::now() + drain);
        notify(&[NotifyState::Stopping]);
        self.log.note(format!(
            "ending: {} sessions may go on for {} s",
            self.sessions.len(),
            drain.as_secs()
        ));
        while let Some(number) = self.strangers.first_waiting() {
            self.dismiss(number);
        }
    }

    /// Goes over to what the file says now, if that can be served.
    fn reload(&mut self) {
        let begun = NotifyState::monotonic_usec_now().map(|now| [NotifyState::Reloading, now]);
        begun.iter().for_each(|states| notify(states));
        match self.try_reload() {
            Ok(()) => self.log.note("reloaded"),
            Err(error) => self.log.warn(format!(
                "not reloaded, the daemon goes on as it was: {error} (hint: {})",
                error.hint()
            )),
        }
        notify(&[NotifyState::Ready]);
    }

    fn try_reload(&mut self) -> Result<(), ServeError> {
        let plan = Plan::load(&self.path)?;
        let charge = plan.charge(self.log.0).map_err(ServeError::system("preparing sessions"))?;
        if !self.sockets.are_given() {
            let changed =
                self.sockets.changed_to(&plan.config.listen).map_err(ServeError::system("listening"))?;
            self.sockets.listeners().for_each(|listener| drop(self.events.forget(listener)));
            self.sockets.change(changed);
            self.watch_listeners().map_err(ServeError::system("listening"))?;
        }
        plan.notices.iter().for_each(|notice| self.log.warn(notice));
        self.audit.reopen(plan.config.audit.as_deref());
        (self.plan, self.charge) = (plan, charge);
        Ok(())
    }

    fn tell_status(&mut self) {
        let admitted = self.sessions.values().filter(|session| session.held.is_some()).count();
        let status = match self.phase {
            Phase::Serving => format!("{admitted} sessions"),
            _ => format!("ending, {admitted} sessions left"),
        };
        if status != self.status {
            notify(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }
}

/// Tells systemd, if it is there (sd_notify(3)). It lives without knowing.
fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}
