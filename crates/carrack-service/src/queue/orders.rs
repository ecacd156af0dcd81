//! Users' requests to the queue, applied to the store.

use std::time::Instant;

use carrack_options::lifetime;
use carrack_register::transfer_operations::{TransferControlOrder, TransferOperationError};
use carrack_register::transfer_records::{TransferRecord, TransferState, TransferSubmission, now_ms};
use rustix::process::{Signal, pidfd_send_signal};
use rustix::rand::{GetRandomFlags, getrandom};

use super::copy_arguments::{arguments, refused};
use super::store::{QueueStoreError, TransferSearchResult};
use super::{LocalQueueState, OPEN_MAX, QueueShared, RunningTransfer, StopWish};

/// The user with all rights.
const ROOT: &str = "root";

impl From<QueueStoreError> for TransferOperationError {
    fn from(error: QueueStoreError) -> TransferOperationError {
        TransferOperationError::Away(error.to_string())
    }
}

impl QueueShared {
    pub(super) fn submit(
        &self,
        user: &str,
        mut submission: TransferSubmission,
    ) -> Result<TransferRecord, TransferOperationError> {
        self.check_submitter(user)?;
        submission.options = submission.options.normalized(lifetime::now_s())?;
        arguments(&submission, &self.settings.sites)?;
        if user != self.owner && user != ROOT {
            self.settings.turns.check_priority(user, submission.priority)?;
        }
        if !submission.has_possible_start(now_ms()) {
            return Err(refused("the start is more than a year ahead", "not_before_ms is in milliseconds"));
        }
        let record = TransferRecord::queued(new_id()?, user, submission, now_ms());
        let state = self.state();
        if state.is_ending {
            return Err(TransferOperationError::Away("the daemon is about to end".to_owned()));
        }
        if state.store.count_open()? >= OPEN_MAX {
            return Err(refused(
                format!("there are {OPEN_MAX} transfers in the queue"),
                "wait until some are over",
            ));
        }
        state.store.add(&record)?;
        drop(state);
        self.notify_change();
        Ok(record.with_start_wait(now_ms()))
    }

    /// Checks that this user may submit. A copy has its user's rights, which only root can give to another
    /// user.
    fn check_submitter(&self, user: &str) -> Result<(), TransferOperationError> {
        if user == self.owner {
            return Ok(());
        }
        if !self.is_root {
            let owner = &self.owner;
            return Err(TransferOperationError::Forbidden(format!(
                "this daemon is {owner}'s and copies with {owner}'s rights: nobody else may submit"
            )));
        }
        if user.starts_with("uid:") {
            return Err(TransferOperationError::Forbidden(format!(
                "there is no account of {user} on this machine"
            )));
        }
        Ok(())
    }

    pub(super) fn transfer(&self, id: &str) -> Result<TransferRecord, TransferOperationError> {
        self.state().find(id)
    }

    pub(super) fn transfers(
        &self,
        limit: usize,
        after: Option<&str>,
    ) -> Result<Vec<TransferRecord>, TransferOperationError> {
        let state = self.state();
        if let Some(id) = after
            && state.store.get(id)?.is_none()
        {
            return Err(TransferOperationError::Unknown(carrack_model::escape(id.as_bytes())));
        }
        let kept = state.store.latest(limit, after)?;
        Ok(kept.into_iter().map(|record| state.current_record(record)).collect())
    }

    pub(super) fn issue_order(
        &self,
        user: &str,
        id: &str,
        order: TransferControlOrder,
    ) -> Result<TransferRecord, TransferOperationError> {
        let mut state = self.state();
        let record = state.find(id)?;
        if user != record.user && user != ROOT {
            return Err(TransferOperationError::Forbidden(format!(
                "transfer {} is {}'s",
                record.id, record.user
            )));
        }
        let record = state.apply_order(record, order)?;
        drop(state);
        self.notify_change();
        Ok(record)
    }
}

impl LocalQueueState {
    fn find(&self, id: &str) -> Result<TransferRecord, TransferOperationError> {
        match self.store.find(id)? {
            TransferSearchResult::One(record) => Ok(self.current_record(*record)),
            TransferSearchResult::None => {
                Err(TransferOperationError::Unknown(carrack_model::escape(id.as_bytes())))
            }
            TransferSearchResult::Several => {
                Err(refused(format!("several transfers begin with {id}"), "give more of its digits"))
            }
        }
    }

    fn current_record(&self, record: TransferRecord) -> TransferRecord {
        match self.running.get(&record.id) {
            Some(running) => running.record.clone(),
            None => record.with_start_wait(now_ms()),
        }
    }

    fn apply_order(
        &mut self,
        mut record: TransferRecord,
        order: TransferControlOrder,
    ) -> Result<TransferRecord, TransferOperationError> {
        use TransferState::{Cancelled, Done, Failed, Paused, Queued, Running};
        let id = record.id.clone();
        // The reason for waiting is computed with every look at the record.
        record.waits_for.clear();
        match (order, record.state) {
            (TransferControlOrder::Cancel, Running) => {
                return self.set_stop_wish(&id, Some(StopWish::Cancel));
            }
            (TransferControlOrder::Pause, Running) => return self.set_stop_wish(&id, Some(StopWish::Pause)),
            (TransferControlOrder::Resume, Running) => return self.set_stop_wish(&id, None),
            (TransferControlOrder::Cancel, Queued | Paused) => {
                (record.state, record.ended_ms) = (Cancelled, Some(now_ms()));
                record.reason.clear();
            }
            (TransferControlOrder::Pause, Queued) => record.state = Paused,
            (TransferControlOrder::Resume, Paused) => requeue(&mut record),
            (TransferControlOrder::Resume, _) if record.has_left_something() => {
                requeue_without_stop(&mut record);
            }
            (TransferControlOrder::Cancel, Cancelled)
            | (TransferControlOrder::Pause, Paused)
            | (TransferControlOrder::Resume, Queued) => {
                return Ok(record.with_start_wait(now_ms()));
            }
            (TransferControlOrder::Resume, Done) => {
                return Err(refused(format!("transfer {id} is complete"), "there is nothing left to do"));
            }
            (_, state @ (Done | Failed | Cancelled)) => {
                let hint = match order {
                    TransferControlOrder::Resume => {
                        "submit it again: what is at the destination is not copied twice"
                    }
                    TransferControlOrder::Cancel | TransferControlOrder::Pause => {
                        "there is nothing left to end"
                    }
                };
                return Err(refused(format!("transfer {id} is over: {state}"), hint));
            }
        }
        self.store.put(&record)?;
        Ok(record.with_start_wait(now_ms()))
    }

    /// Has the process of a transfer end, and records the reason; without a wish, takes an earlier request to
    /// wait back.
    fn set_stop_wish(
        &mut self,
        id: &str,
        wish: Option<StopWish>,
    ) -> Result<TransferRecord, TransferOperationError> {
        let running =
            self.running.get_mut(id).ok_or_else(|| TransferOperationError::Unknown(id.to_owned()))?;
        let wish = match (running.wish, wish) {
            // A cancelled transfer can't be brought back.
            (Some(StopWish::Cancel), _) => Some(StopWish::Cancel),
            (Some(StopWish::Pause | StopWish::Requeue), None) => Some(StopWish::Requeue),
            (None, None) => None,
            (_, wish) => wish,
        };
        self.store.set_wish(id, wish.map(StopWish::name))?;
        running.wish = wish;
        if wish.is_some() {
            running.end();
        }
        Ok(running.record.clone())
    }
}

/// Queues an ended transfer again, without the time at which it was to stop.
fn requeue_without_stop(record: &mut TransferRecord) {
    requeue(record);
    record.submission.options = std::mem::take(&mut record.submission.options).without_stop();
}

/// Queues a transfer as if new, with its counts.
pub(super) fn requeue(record: &mut TransferRecord) {
    (record.state, record.ended_ms) = (TransferState::Queued, None);
    record.reason.clear();
}

impl RunningTransfer {
    /// Asks the process to end, once it has started. It leaves its journal, from which the next run resumes.
    pub(super) fn end(&mut self) {
        if self.told.is_some() {
            return;
        }
        if let Some(pidfd) = &self.pidfd {
            // The signal fails if the process has ended, which is the desired state.
            let _ = pidfd_send_signal(pidfd, Signal::TERM);
            self.told = Some(Instant::now());
        }
    }

    /// Kills the process.
    pub(super) fn kill(&self) {
        if let Some(pidfd) = &self.pidfd {
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
        }
    }
}

fn new_id() -> Result<String, TransferOperationError> {
    let mut bytes = [0; 8];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    filled.map_err(|errno| TransferOperationError::Away(format!("naming the transfer: {errno}")))?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}
