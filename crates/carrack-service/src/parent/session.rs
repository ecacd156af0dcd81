//! A session's process, seen from its parent.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use carrack_transport::random;
use carrack_trust::ProvedIdentity;
use carrack_wire::auth::ListenerNonce;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, kill_process};

use super::quota::{AdmittedSession, SessionQuotaRefusal};
use crate::audit::{AuditEntry, AuditedOutcome, now};
use crate::session_messages::{
    AuditedWork, SessionAdmissionAnswer, SessionConnectionFacts, SessionInbox, SessionProcessMessage,
    SessionReport, UnreadSessionFrames, frame, send_descriptor,
};

/// The subcommand of the process.
pub const SUBCOMMAND: &str = "serve-session";

/// Time that a process may take to end after it was told to, before it is killed.
pub const LAST_WORDS: Duration = Duration::from_secs(10);

/// A running process and the parent's knowledge about it.
#[derive(Debug)]
pub struct ChildSession {
    /// The daemon's number for the session.
    pub number: u64,
    process: Child,
    /// The parent's end of the socket pair.
    pub socket: UnixStream,
    inbox: SessionInbox,
    outbox: UnreadSessionFrames,
    /// The client's address.
    pub peer: SocketAddr,
    /// Time of its start.
    pub since: Instant,
    who: Option<ProvedIdentity>,
    /// True once TLS is established: from then on the audit log gets an entry.
    is_known: bool,
    work: Option<AuditedWork>,
    /// The admission, if it has one.
    pub held: Option<AdmittedSession>,
    handing: Option<(ListenerNonce, OwnedFd)>,
    report: Option<SessionReport>,
    /// Time by which the session must have ended.
    pub until: Option<Instant>,
    /// The reason with which the parent told it to end.
    ended: Option<&'static str>,
    /// Time at which it is killed.
    kill_at: Option<Instant>,
    /// True while the process's end of the socket is open.
    is_open: bool,
    /// True while its messages are read: they are valid, and it accepts the answers.
    pub is_heard: bool,
}

impl ChildSession {
    /// Starts a process for a control connection, of which nothing was read.
    ///
    /// The binary is the running one, even if another has taken its place on disk: `/proc/self/exe` of the
    /// process that is about to execute it.
    pub fn start(
        number: u64,
        connection: TcpStream,
        peer: SocketAddr,
        charge: &Arc<[u8]>,
        now: Instant,
    ) -> io::Result<ChildSession> {
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
        let mut outbox = UnreadSessionFrames::default();
        outbox.push_bytes(charge.clone());
        outbox.push_bytes(frame(&SessionConnectionFacts { session: number, peer, here })?);
        Ok(ChildSession {
            number,
            process,
            socket,
            inbox: SessionInbox::default(),
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

    /// Sends pending messages as far as the socket takes them.
    pub fn flush(&mut self) -> io::Result<()> {
        self.outbox.flush(&self.socket)
    }

    /// Returns true if messages wait to be sent.
    pub fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Reads the messages of the process, as many as fit into its inbox, and returns its questions. A process
    /// that sends more is read again after the others had their turn.
    ///
    /// # Errors
    /// If the bytes are no valid message; the process can't be trusted any more then.
    pub fn read_messages(&mut self) -> io::Result<Vec<(AdmittedSession, Option<u64>)>> {
        self.is_open = self.is_open && self.inbox.fill(&self.socket)?;
        self.is_heard &= self.is_open;
        let mut questions = Vec::new();
        while let Some(message) = self.inbox.next()? {
            questions.extend(self.handle_message(message));
        }
        Ok(questions)
    }

    /// Reads the last messages of a process that has ended: no more than the socket held.
    pub fn drain_messages(&mut self) {
        // Invalid messages don't get into the log.
        while self.is_open && self.read_messages().is_ok() {}
    }

    fn handle_message(&mut self, message: SessionProcessMessage) -> Option<(AdmittedSession, Option<u64>)> {
        match message {
            SessionProcessMessage::Known(who) => (self.who, self.is_known) = (who, true),
            SessionProcessMessage::Wanted { who, work } => {
                self.who = who.or(self.who.take());
                self.work = Some(work);
            }
            SessionProcessMessage::Ask { who, work, until_s } => {
                let held = AdmittedSession {
                    identity: who.name.clone(),
                    export: work.export.clone().unwrap_or_default(),
                };
                self.who = Some(who);
                self.work = Some(work);
                return Some((held, until_s));
            }
            SessionProcessMessage::Done(report) => self.report = Some(report),
        }
        None
    }

    /// Admits the session: from now on it gets the connections that name its listener.
    ///
    /// # Errors
    /// If the system has no resources left for it.
    pub fn admit(&mut self, held: AdmittedSession, rate: u64, until: Option<Instant>) -> io::Result<()> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let nonce = random()?;
        self.outbox.push_bytes(frame(&SessionAdmissionAnswer::Admitted { nonce, rate })?);
        self.outbox.push_descriptor(theirs);
        self.handing = Some((ListenerNonce::new(nonce), ours));
        (self.held, self.until) = (Some(held), until);
        self.flush()
    }

    /// Tells the process that its client is not admitted.
    pub fn refuse(&mut self, full: SessionQuotaRefusal, later: Duration) -> io::Result<()> {
        let SessionQuotaRefusal { message, hint, may_pass } = full;
        let later_ms = may_pass.then_some(later.as_millis() as u64);
        self.outbox.push_bytes(frame(&SessionAdmissionAnswer::Refused {
            message,
            hint: hint.to_owned(),
            later_ms,
        })?);
        self.flush()
    }

    /// Returns true if its listener has this nonce.
    pub fn listens_as(&self, nonce: &ListenerNonce) -> bool {
        self.handing.as_ref().is_some_and(|(own, _)| own == nonce)
    }

    /// Passes a data connection to the session.
    pub fn pass_connection(&self, connection: &TcpStream) -> io::Result<()> {
        match &self.handing {
            Some((_, socket)) => send_descriptor(socket, connection),
            None => Ok(()),
        }
    }

    /// Tells the session to end: it informs its client and removes temporary names.
    pub fn end(&mut self, reason: &'static str, now: Instant) {
        if self.ended.is_none() {
            self.ended = Some(reason);
            self.kill_at = Some(now + LAST_WORDS);
            self.signal(Signal::TERM);
        }
    }

    /// Kills the session at once.
    pub fn kill(&mut self, reason: &'static str) {
        self.ended.get_or_insert(reason);
        self.signal(Signal::KILL);
    }

    /// Returns true if it is in its handshake and was not told to end.
    pub fn is_in_handshake(&self) -> bool {
        self.held.is_none() && self.ended.is_none()
    }

    /// Kills it if it was told to end and has not done so in time.
    pub fn kill_if_due(&mut self, now: Instant) {
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill_at = None;
            self.signal(Signal::KILL);
        }
    }

    /// Kills it after [`LAST_WORDS`] if it has not ended until then, as it has closed its end of the socket.
    pub fn schedule_kill(&mut self, now: Instant) {
        self.kill_at.get_or_insert(now + LAST_WORDS);
    }

    /// Sends a signal. The process has not been waited for, so its PID belongs to no other process.
    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            // It may have ended meanwhile, and there is nothing to do then.
            let _ = kill_process(pid, signal);
        }
    }

    /// Returns the exit status of the process, if it has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Returns the line of the audit log; none for a connection on which TLS was never established.
    pub fn entry<'a>(&'a self, status: ExitStatus, reason: &'a mut String) -> Option<AuditEntry<'a>> {
        if !self.is_known {
            return None;
        }
        let (result, report) = match &self.report {
            Some(report) => (report.ending, Some(report)),
            None => (AuditedOutcome::Killed, None),
        };
        let told = report.map_or(String::new(), |report| report.reason.clone());
        *reason = match (self.ended, status.signal()) {
            (Some(ended), _) => ended.to_owned(),
            (None, Some(signal)) => format!("its process died of signal {signal}"),
            (None, None) if report.is_none() => "its process ended without a word".to_owned(),
            (None, None) => told,
        };
        Some(AuditEntry {
            time: now(),
            session: self.number,
            from: self.peer.to_string(),
            who: self.who.as_ref(),
            work: self.work.as_ref(),
            bytes: report.map_or(0, |report| report.bytes),
            files: report.map_or(0, |report| report.files),
            failed: report.map_or(0, |report| report.failed),
            seconds: (self.since.elapsed().as_secs_f64() * 1e3).round() / 1e3,
            result: if self.ended.is_some() { AuditedOutcome::Killed } else { result },
            reason,
        })
    }
}

/// Returns the earlier end of the limit in the configuration and the expiry of the token.
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
