//! The running sessions: their questions are read and answered, their deadlines kept, their processes waited
//! for.

use std::time::{Duration, Instant};

use carrack_transport::PeerAddressPrefix;

use super::events::DaemonEventSource;
use super::quota::{self, AdmittedSession};
use super::session::end_of_session;
use super::{DaemonMainProcess, DaemonPhase, FailedHandshake};

/// Delay until the client's next attempt: by then a daemon that is ending may have been started again.
const AFTER_RESTART: Duration = Duration::from_secs(2);

impl DaemonMainProcess {
    /// Reads a session's messages, answers them, and sends pending ones.
    pub(super) fn handle_session_messages(&mut self, number: u64) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let heard = session.read_messages().and_then(|questions| {
            session.flush()?;
            Ok(questions)
        });
        match heard {
            Ok(questions) => {
                questions.into_iter().for_each(|(held, until_s)| self.decide_admission(number, held, until_s))
            }
            // The process has ended, as SIGCHLD reports, or no longer behaves as a session.
            Err(_) => session.is_heard = false,
        }
        self.watch_session(number);
    }

    fn watch_session(&mut self, number: u64) {
        let Some(session) = self.sessions.get(&number) else { return };
        let source = DaemonEventSource::Session(number);
        let watched = if session.is_heard {
            self.events.update_watch(&session.socket, source, session.has_unsent())
        } else {
            // A process that has closed its socket and still runs can't be watched.
            let ended = self.events.unwatch(&session.socket);
            if let Some(session) = self.sessions.get_mut(&number) {
                session.schedule_kill(Instant::now());
            }
            ended
        };
        if let Err(error) = watched {
            self.log.detail(|| format!("session {number}: {error}"));
        }
    }

    fn decide_admission(&mut self, number: u64, held: AdmittedSession, token_until_s: Option<u64>) {
        let others = self.sessions.iter().filter(|(other, _)| **other != number);
        let running = others.filter_map(|(_, session)| session.held.as_ref());
        let room = match self.phase {
            DaemonPhase::Serving => quota::admit(&self.plan.config, running, &held),
            _ => Err(quota::SessionQuotaRefusal {
                message: "the daemon is about to end".to_owned(),
                hint: "run the same command again in a while",
                may_pass: true,
            }),
        };
        let limit = self.plan.config.limits.session_time_limit();
        let later = match self.phase {
            DaemonPhase::Serving if room.is_err() => self.turned_away.next_retry_delay(Instant::now()),
            _ => AFTER_RESTART,
        };
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let was_held = session.held.is_some();
        let answered = match room {
            Ok(rate) => {
                let until = end_of_session(limit, token_until_s, session.since, Instant::now());
                self.log.detail(|| format!("session {number}: {} on {}", held.identity, held.export));
                session.admit(held, rate, until)
            }
            Err(full) => session.refuse(full, later),
        };
        if session.held.is_some() && !was_held {
            self.counts.remove(PeerAddressPrefix::of(session.peer));
        }
        if let Err(error) = answered {
            self.log.warn(format!("session {number}: {error}"));
            session.kill("the daemon could not answer it");
        }
    }

    /// Waits for the processes that have ended: none stays a zombie.
    pub(super) fn reap_sessions(&mut self) {
        let ended: Vec<_> = self
            .sessions
            .iter_mut()
            .filter_map(|(&number, session)| Some((number, session.try_wait()?)))
            .collect();
        for (number, status) in ended {
            let Some(mut session) = self.sessions.remove(&number) else { continue };
            session.drain_messages();
            if session.held.is_none() {
                self.uncount_address(session.peer);
            }
            let mut reason = String::new();
            match session.entry(status, &mut reason) {
                Some(entry) => self.audit.write(&entry),
                None => {
                    let place = PeerAddressPrefix::of(session.peer);
                    self.failed.insert(number, FailedHandshake { place, since: session.since });
                    self.log.detail(|| format!("{}: no TLS session came to stand ({status})", session.peer))
                }
            }
        }
    }

    /// Ends all connections and sessions that are past their deadlines.
    pub(super) fn enforce_deadlines(&mut self) {
        let now = Instant::now();
        let patience = self.plan.config.limits.handshake_timeout();
        while let Some(overdue) = self.strangers.take_overdue(patience, now) {
            self.uncount_address(overdue.peer);
            self.log.detail(|| format!("{}: closed, it said too little for too long", overdue.peer));
        }
        for session in self.sessions.values_mut() {
            session.kill_if_due(now);
            // In the session TLS has a deadline of its own; the steps from there to the admission get the
            // same time again.
            if session.held.is_none() && now.saturating_duration_since(session.since) >= patience * 2 {
                session.kill("it was not admitted in time");
            }
            if session.until.is_some_and(|until| until <= now) {
                session.end("its time is over", now);
            }
        }
        if let DaemonPhase::Draining(until) = self.phase
            && until <= now
        {
            self.end_sessions("the daemon ended");
        }
    }

    pub(super) fn end_sessions(&mut self, reason: &'static str) {
        self.phase = DaemonPhase::Ending;
        let now = Instant::now();
        self.sessions.values_mut().for_each(|session| session.end(reason, now));
    }
}
