//! A session's process, as its parent sees it.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use carrack_transport::random;
use carrack_trust::Identity;
use carrack_wire::auth::ListenerNonce;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, kill_process};

use super::quota::{Full, Held};
use crate::audit::{Ending, Entry, now};
use crate::errand::{Answer, Errand, Inbox, Outbox, Report, ToParent, Work, frame, send_descriptor};

/// The subcommand that the process is started with.
pub const SUBCOMMAND: &str = "serve-session";

/// How long a process may take to end once it was told to, before it is killed.
pub const LAST_WORDS: Duration = Duration::from_secs(10);

/// A running process and what is known of it.
#[derive(Debug)]
pub struct Session {
    /// The daemon's number of it.
    pub number: u64,
    process: Child,
    /// The parent's end.
    pub socket: UnixStream,
    inbox: Inbox,
    outbox: Outbox,
    /// Where the client is.
    pub peer: SocketAddr,
    /// Since when.
    pub since: Instant,
    who: Option<Identity>,
    /// Whether TLS stood, so that what follows is somebody's.
    is_known: bool,
    work: Option<Work>,
    /// What it was admitted to.
    pub held: Option<Held>,
    handing: Option<(ListenerNonce, OwnedFd)>,
    report: Option<Report>,
    /// When it has to be over.
    pub until: Option<Instant>,
    /// Why the parent told it to end.
    ended: Option<&'static str>,
    /// When it is killed.
    kill_at: Option<Instant>,
    /// Whether the process has its end open.
    is_open: bool,
    /// Whether it is still listened to: what it says makes sense, and it takes what it is told.
    pub is_heard: bool,
}

impl Session {
    /// Starts a process for a control connection, of which nothing was read.
    ///
    /// The binary is the one that runs now, even if another has taken its place on disk: `/proc/self/exe` of the process
    /// that is about to be one.
    pub fn start(
        number: u64,
        connection: TcpStream,
        peer: SocketAddr,
        charge: &Arc<[u8]>,
        now: Instant,
    ) -> io::Result<Session> {
        let here = connection.local_addr()?;
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        let process = Command::new("/proc/self/exe")
            .arg0("carrack")
            .arg(SUBCOMMAND)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(connection)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        let mut outbox = Outbox::default();
        outbox.bytes(charge.clone());
        outbox.bytes(frame(&Errand { session: number, peer, here })?);
        Ok(Session {
            number,
            process,
            socket,
            inbox: Inbox::default(),
            outbox,
            peer,
            since: now,
            who: None,
            is_known: false,
            work: None,
            held: None,
            handing: None,
            report: None,
            until: None,
            ended: None,
            kill_at: None,
            is_open: true,
            is_heard: true,
        })
    }

    /// Sends what waits and the socket takes.
    pub fn flush(&mut self) -> io::Result<()> {
        self.outbox.flush(&self.socket)
    }

    /// Whether something waits to be sent.
    pub fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Hears what the process says, as much as fits into its inbox; questions are given back. One that goes on talking
    /// is heard again when the others had their turn.
    ///
    /// # Errors
    /// What is no message; the process can't be trusted any more then.
    pub fn hear(&mut self) -> io::Result<Vec<(Held, Option<u64>)>> {
        self.is_open = self.is_open && self.inbox.fill(&self.socket)?;
        self.is_heard &= self.is_open;
        let mut questions = Vec::new();
        while let Some(message) = self.inbox.next()? {
            questions.extend(self.take(message));
        }
        Ok(questions)
    }

    /// Hears what a process that has ended said last: no more than the socket held.
    pub fn hear_last_words(&mut self) {
        // What is no message is not in the log.
        while self.is_open && self.hear().is_ok() {}
    }

    fn take(&mut self, message: ToParent) -> Option<(Held, Option<u64>)> {
        match message {
            ToParent::Known(who) => (self.who, self.is_known) = (who, true),
            ToParent::Wanted { who, work } => {
                self.who = who.or(self.who.take());
                self.work = Some(work);
            }
            ToParent::Ask { who, work, until_s } => {
                let held =
                    Held { identity: who.name.clone(), export: work.export.clone().unwrap_or_default() };
                self.who = Some(who);
                self.work = Some(work);
                return Some((held, until_s));
            }
            ToParent::Done(report) => self.report = Some(report),
        }
        None
    }

    /// Admits it: from now on the connections that name its listener are its own.
    ///
    /// # Errors
    /// If the system lacks what it takes.
    pub fn admit(&mut self, held: Held, rate: u64, until: Option<Instant>) -> io::Result<()> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let nonce = random()?;
        self.outbox.bytes(frame(&Answer::Admitted { nonce, rate })?);
        self.outbox.descriptor(theirs);
        self.handing = Some((ListenerNonce::new(nonce), ours));
        (self.held, self.until) = (Some(held), until);
        self.flush()
    }

    /// Tells it that its client is not admitted.
    pub fn refuse(&mut self, full: Full, later: Duration) -> io::Result<()> {
        let Full { message, hint, may_pass } = full;
        let later_ms = may_pass.then_some(later.as_millis() as u64);
        self.outbox.bytes(frame(&Answer::Refused { message, hint: hint.to_owned(), later_ms })?);
        self.flush()
    }

    /// Whether its listener has this name.
    pub fn listens_as(&self, nonce: &ListenerNonce) -> bool {
        self.handing.as_ref().is_some_and(|(own, _)| own == nonce)
    }

    /// Hands a data connection on.
    pub fn hand(&self, connection: &TcpStream) -> io::Result<()> {
        match &self.handing {
            Some((_, socket)) => send_descriptor(socket, connection),
            None => Ok(()),
        }
    }

    /// Tells it to end: the client is told, temporary names are removed.
    pub fn end(&mut self, reason: &'static str, now: Instant) {
        if self.ended.is_none() {
            self.ended = Some(reason);
            self.kill_at = Some(now + LAST_WORDS);
            self.signal(Signal::TERM);
        }
    }

    /// Ends it without a word.
    pub fn kill(&mut self, reason: &'static str) {
        self.ended.get_or_insert(reason);
        self.signal(Signal::KILL);
    }

    /// Whether it is in its handshake, and was not told to end.
    pub fn is_shaking(&self) -> bool {
        self.held.is_none() && self.ended.is_none()
    }

    /// Kills it if it was told to end and has not.
    pub fn kill_if_due(&mut self, now: Instant) {
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill_at = None;
            self.signal(Signal::KILL);
        }
    }

    /// Kills it soon, if it does not end by itself now that it has closed its end.
    pub fn kill_when_mute(&mut self, now: Instant) {
        self.kill_at.get_or_insert(now + LAST_WORDS);
    }

    /// The process is not yet waited for, so that its number is no other's.
    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            // It may have ended in between; then there is nothing to do.
            let _ = kill_process(pid, signal);
        }
    }

    /// How the process ended, if it has.
    pub fn wait(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// The line of the audit log; nothing for a stranger, with whom TLS never stood.
    pub fn entry<'a>(&'a self, status: ExitStatus, reason: &'a mut String) -> Option<Entry<'a>> {
        if !self.is_known {
            return None;
        }
        let (result, report) = match &self.report {
            Some(report) => (report.ending, Some(report)),
            None => (Ending::Killed, None),
        };
        let told = report.map_or(String::new(), |report| report.reason.clone());
        *reason = match (self.ended, status.signal()) {
            (Some(ended), _) => ended.to_owned(),
            (None, Some(signal)) => format!("its process died of signal {signal}"),
            (None, None) if report.is_none() => "its process ended without a word".to_owned(),
            (None, None) => told,
        };
        Some(Entry {
            time: now(),
            session: self.number,
            from: self.peer.to_string(),
            who: self.who.as_ref(),
            work: self.work.as_ref(),
            bytes: report.map_or(0, |report| report.bytes),
            files: report.map_or(0, |report| report.files),
            failed: report.map_or(0, |report| report.failed),
            seconds: (self.since.elapsed().as_secs_f64() * 1e3).round() / 1e3,
            result: if self.ended.is_some() { Ending::Killed } else { result },
            reason,
        })
    }
}

/// The earlier of what the configuration and a token allow.
pub fn end_of_session(
    limit: Option<Duration>,
    token_until_s: Option<u64>,
    since: Instant,
    now: Instant,
) -> Option<Instant> {
    let limit = limit.map(|limit| (since + limit).saturating_duration_since(now));
    let token = token_until_s.map(|until_s| {
        let until = SystemTime::UNIX_EPOCH + Duration::from_secs(until_s.min(u32::MAX.into()));
        until.duration_since(SystemTime::now()).unwrap_or_default()
    });
    let left = limit.into_iter().chain(token).min()?;
    Some(now + left)
}
