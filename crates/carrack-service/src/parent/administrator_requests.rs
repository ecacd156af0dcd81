//! Requests of the administrator and of systemd, which arrive as signals: a reload or an end; and the status
//! for systemd.

use std::time::Instant;

use sd_notify::NotifyState;

use super::loaded_config::{ServeError, ServePlan};
use super::signals::SignalRequest;
use super::{DaemonMainProcess, DaemonPhase, notify};

impl DaemonMainProcess {
    pub(super) fn handle_signals(&mut self) {
        for wish in self.signals.take_requests() {
            match (wish, self.phase) {
                (SignalRequest::Wait, _) => self.reap_sessions(),
                (SignalRequest::Reload, DaemonPhase::Serving) => self.reload(),
                (SignalRequest::Reload, _) => self.log.warn("not reloaded: the daemon is about to end"),
                (SignalRequest::End, DaemonPhase::Serving) => self.drain(),
                (SignalRequest::End, _) => self.end_sessions("the daemon was told to end at once"),
            }
        }
    }

    /// Admits no new sessions from now on; data connections of running ones are still accepted.
    fn drain(&mut self) {
        let drain = self.plan.config.drain();
        self.phase = DaemonPhase::Draining(Instant::now() + drain);
        notify(&[NotifyState::Stopping]);
        if let Some(queue) = &self.queue {
            queue.end();
        }
        self.log.info(format!(
            "ending: {} sessions may go on for {} s",
            self.sessions.len(),
            drain.as_secs()
        ));
        let waiting: Vec<u64> = self.strangers.waiting_connections().map(|(number, _)| number).collect();
        waiting.into_iter().for_each(|number| self.close_half_open(number));
    }

    /// Changes to the present configuration file, if it can be served.
    fn reload(&mut self) {
        let begun = NotifyState::monotonic_usec_now().map(|now| [NotifyState::Reloading, now]);
        begun.iter().for_each(|states| notify(states));
        match self.try_reload() {
            Ok(()) => self.log.info("reloaded"),
            Err(error) => self.log.warn(format!(
                "not reloaded, the daemon goes on as it was: {error} (hint: {})",
                error.hint()
            )),
        }
        notify(&[NotifyState::Ready]);
    }

    fn try_reload(&mut self) -> Result<(), ServeError> {
        let plan = ServePlan::load(&self.path)?;
        let charge = plan.setup_message(self.log.0).map_err(ServeError::system("preparing sessions"))?;
        if !self.sockets.are_from_systemd() {
            let changed =
                self.sockets.open_missing(&plan.config.listen).map_err(ServeError::system("listening"))?;
            self.sockets.listeners().for_each(|listener| drop(self.events.unwatch(listener)));
            self.sockets.apply_change(changed);
            self.watch_listeners().map_err(ServeError::system("listening"))?;
        }
        plan.notices.iter().for_each(|notice| self.log.warn(notice));
        self.audit.reopen(plan.config.audit.as_deref());
        (self.plan, self.charge) = (plan, charge);
        if let Some(queue) = &self.queue {
            queue.request_reload();
        }
        Ok(())
    }

    pub(super) fn notify_status(&mut self) {
        let admitted = self.sessions.values().filter(|session| session.held.is_some()).count();
        let status = match self.phase {
            DaemonPhase::Serving => format!("{admitted} sessions"),
            _ => format!("ending, {admitted} sessions left"),
        };
        if status != self.status {
            notify(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }
}
