//! Turns: the choice of the next transfer, its process, and the effect of the process's end.

use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use carrack_model::text_without_errno;
use carrack_register::transfer_records::{TransferRecord, TransferState, now_ms};
use rustix::process::Signal;

use super::child::{CopyUser, RunningCopy};
use super::copy_arguments::arguments;
use super::copy_events::{CopyOutcome, CopyOutputParser, set_stopped_state};
use super::orders::requeue;
use super::store::QueueStoreError;
use super::{LocalQueue, QueueShared, RunningTransfer, StopWish, process_identity};

/// Time that a process may take to end after it was told to: it makes its data durable.
const END_PATIENCE: Duration = Duration::from_secs(30);

/// Interval at which a copy's counts are stored: a crash of the daemon loses the counts of these seconds.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// Interval of checks for overdue processes, and pause before a failed store is tried again.
const TICK: Duration = Duration::from_secs(1);

/// Interval at which the history is cleaned.
const FORGET_EVERY: Duration = Duration::from_secs(3600);

impl LocalQueue {
    /// Starts the thread that gives turns.
    ///
    /// # Errors
    /// The system's error, if it can't start a thread.
    pub fn start(&self) -> std::io::Result<()> {
        let inner = self.0.clone();
        thread::Builder::new()
            .name("carrack-queue".into())
            .spawn(move || inner.schedule_transfers())
            .map(drop)
    }

    /// Ends the running transfers, which then wait for the next daemon. Returns once none runs, or after half
    /// a minute.
    pub fn end(&self) {
        let mut state = self.0.state();
        state.is_ending = true;
        for running in state.running.values_mut() {
            running.wish.get_or_insert(StopWish::Requeue);
            running.end();
        }
        self.0.turn.notify_all();
        let deadline = Instant::now() + END_PATIENCE;
        while !state.running.is_empty() && Instant::now() < deadline {
            state = self
                .0
                .turn
                .wait_timeout(state, TICK)
                .map_or_else(|poison| poison.into_inner().0, |got| got.0);
        }
        state.running.values().for_each(RunningTransfer::kill);
    }
}

impl QueueShared {
    /// Recovers from a crash of the last daemon: ends the processes that it left, and queues their transfers
    /// where they were.
    pub(super) fn recover(&self) -> Result<(), QueueStoreError> {
        let state = self.state();
        let left = state.store.interrupted_transfers()?;
        let names: Vec<&str> = left.iter().filter_map(|left| left.process.as_deref()).collect();
        names.iter().for_each(|name| _ = process_identity::signal(name, Signal::TERM));
        let deadline = Instant::now() + END_PATIENCE;
        while names.iter().any(|name| process_identity::is_running(name)) {
            if Instant::now() > deadline {
                names.iter().for_each(|name| _ = process_identity::signal(name, Signal::KILL));
            }
            thread::sleep(Duration::from_millis(20));
        }
        for mut left in left {
            let wish = left.wish.as_deref().and_then(StopWish::from_name).unwrap_or(StopWish::Requeue);
            apply_stop_wish(&mut left.record, wish);
            state.store.put(&left.record)?;
        }
        Ok(())
    }

    fn schedule_transfers(self: Arc<Self>) {
        let mut forgotten = None;
        loop {
            let mut state = self.state();
            if state.is_ending {
                return;
            }
            if forgotten.is_none_or(|then: Instant| then.elapsed() >= FORGET_EVERY) {
                forgotten = Some(Instant::now());
                let history_ms = u64::try_from(self.settings.history.as_millis()).unwrap_or(u64::MAX);
                if let Err(error) = state.store.forget_before(now_ms().saturating_sub(history_ms)) {
                    self.log.warn(format!("forgetting what is over: {error}"));
                }
            }
            for running in state.running.values() {
                if running.told.is_some_and(|told| told.elapsed() > END_PATIENCE) {
                    running.kill();
                }
            }
            let next = if state.running.len() < self.settings.max_running {
                self.begin_next(&mut state)
            } else {
                Ok(None)
            };
            match next {
                Ok(Some(record)) => {
                    drop(state);
                    self.clone().spawn(record);
                    self.notify_change();
                    continue;
                }
                Ok(None) => {}
                Err(error) => self.log.warn(error),
            }
            // Submissions, orders and ends wake this thread; the timeout is for the other checks.
            drop(self.turn.wait_timeout(state, TICK));
        }
    }

    fn begin_next(
        &self,
        state: &mut super::LocalQueueState,
    ) -> Result<Option<TransferRecord>, QueueStoreError> {
        let now_ms = now_ms();
        let super::LocalQueueState { store, ranks, running, .. } = state;
        let waits = store.due_transfers(now_ms)?;
        let users: Vec<&str> = running.values().map(|running| &*running.record.user).collect();
        let Some(next) = self.settings.turns.next(ranks, now_ms, &users, &waits) else { return Ok(None) };
        let Some(mut record) = store.get(next)? else { return Ok(None) };
        record.state = TransferState::Running;
        record.started_ms.get_or_insert(now_ms);
        store.put(&record)?;
        let began = Instant::now();
        let turn = RunningTransfer {
            record: record.clone(),
            pidfd: None,
            wish: None,
            told: None,
            began,
            saved: began,
        };
        running.insert(record.id.clone(), turn);
        Ok(Some(record))
    }

    fn spawn(self: Arc<Self>, record: TransferRecord) {
        let (inner, id) = (self.clone(), record.id.clone());
        let spawned = thread::Builder::new().name("carrack-copy".into()).spawn(move || {
            let end = inner
                .carry_out(&record)
                .unwrap_or_else(|error| CopyOutcome::Failed(text_without_errno(&error)));
            inner.record_end(&record.id, end);
        });
        if let Err(error) = spawned {
            self.record_end(&id, CopyOutcome::Failed(format!("there can't be a thread: {error}")));
        }
    }

    /// Carries out one run of a transfer, from its process's start to its end.
    fn carry_out(
        &self,
        record: &TransferRecord,
    ) -> Result<CopyOutcome, Box<dyn std::error::Error + Send + Sync>> {
        let mut words = arguments(&record.submission, &self.settings.sites)?;
        if let Some(socket) = &self.settings.sharing {
            words.insert(1, format!("--sharing={}", socket.display()));
        }
        let whose = CopyUser {
            user: (record.user != self.owner).then_some(&*record.user),
            umask: record.submission.umask,
        };
        let copy =
            RunningCopy::start(&words, whose, &self.settings.directory.join(format!("{}.said", record.id)))?;
        let mut listener = CopyOutputParser::new(&mut record.clone());
        {
            let mut state = self.state();
            let noted = process_identity::identity_of_pid(copy.pid())
                .map(|name| state.store.set_process(&record.id, &name));
            if let Some(Err(error)) = noted {
                // The kernel ends it with this process, so the next queue needs no record.
                self.log.warn(error);
            }
            let is_ending = state.is_ending;
            if let Some(running) = state.running.get_mut(&record.id) {
                listener = CopyOutputParser::new(&mut running.record);
                running.pidfd = Some(copy.pidfd()?);
                if is_ending {
                    running.wish.get_or_insert(StopWish::Requeue);
                }
                if running.wish.is_some() {
                    running.end();
                }
            }
        }
        let (code, said) =
            copy.read_output(|line| self.process_output_line(&record.id, &mut listener, line))?;
        Ok(listener.outcome(code, &said))
    }

    fn process_output_line(&self, id: &str, listener: &mut CopyOutputParser, line: &str) {
        let mut state = self.state();
        let super::LocalQueueState { store, running, .. } = &mut *state;
        let Some(running) = running.get_mut(id) else { return };
        if !listener.apply_line(line, &mut running.record) {
            return;
        }
        if running.saved.elapsed() >= SAVE_EVERY {
            running.saved = Instant::now();
            if let Err(error) = store.put(&running.record) {
                self.log.warn(error);
            }
        }
        drop(state);
        self.changes.send_modify(|number| *number += 1);
    }

    /// Records the end of a process.
    fn record_end(&self, id: &str, end: CopyOutcome) {
        let mut state = self.state();
        if end == CopyOutcome::Interrupted
            && !state.is_ending
            && state.running.get(id).is_some_and(|r| r.wish.is_none())
        {
            // An end of all processes of a service or a machine may signal the copies first.
            let waited = self.turn.wait_timeout_while(state, TICK, |state| !state.is_ending);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let is_ending = state.is_ending;
        let Some(running) = state.running.get(id) else { return };
        let (mut record, wish) =
            (running.record.clone(), running.wish.or(is_ending.then_some(StopWish::Requeue)));
        match (end, wish) {
            (CopyOutcome::Reached, _) => {
                set_stopped_state(&mut record, TransferState::Done, String::new(), now_ms())
            }
            (CopyOutcome::Interrupted, Some(wish)) => apply_stop_wish(&mut record, wish),
            (CopyOutcome::Interrupted, None) => {
                let reason = "something else than its user has ended its process";
                set_stopped_state(&mut record, TransferState::Failed, reason.to_owned(), now_ms());
            }
            // A cancelled copy that failed while it was ending counts as cancelled all the same.
            (CopyOutcome::Failed(_), Some(StopWish::Cancel)) => {
                apply_stop_wish(&mut record, StopWish::Cancel)
            }
            (CopyOutcome::Failed(reason), _) => {
                set_stopped_state(&mut record, TransferState::Failed, reason, now_ms())
            }
        }
        let what = format!("transfer {id} of {}: {}", record.user, record.state);
        if let Err(error) = state.store.put(&record) {
            // For the store it still runs: the next daemon will resume it.
            self.log.warn(format!("{what}, which can't be kept: {error}"));
        }
        let used_s = running.began.elapsed().as_secs_f64();
        state.running.remove(id);
        state.ranks.record_use(self.settings.turns.account_of(&record.user), used_s, now_ms());
        drop(state);
        self.log.info(what);
        self.notify_change();
    }
}

/// Sets the requested state after the process has ended.
fn apply_stop_wish(record: &mut TransferRecord, wish: StopWish) {
    let state = match wish {
        StopWish::Cancel => TransferState::Cancelled,
        StopWish::Pause => TransferState::Paused,
        StopWish::Requeue => TransferState::Queued,
    };
    set_stopped_state(record, state, String::new(), now_ms());
    if wish == StopWish::Requeue {
        requeue(record);
    }
}
