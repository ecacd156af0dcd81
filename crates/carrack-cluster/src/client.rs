//! Users' commands to a fleet: they change the transfers' records, and managers carry them out.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use carrack_model::text_without_errno;
use carrack_options::lifetime;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};

use crate::bus::NatsBus;
use crate::error::BusError;
use crate::manager::TURN;
use crate::mover::spec_and_settings;
use crate::registry::MoverTable;
use crate::transfer_lease::is_manager_present;
use crate::transfer_operations::{TransferControlOrder, TransferOperationError, TransferOperations};
use crate::transfer_records::{
    DELETION_VERSION, MoverRecord, TransferRecord, TransferState, TransferSubmission, now_ms,
    with_protocol_notes,
};
use crate::transfers::{FindError, TransferStore};
use crate::unique_ids;

/// Interval at which a watched transfer is read.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The reason for which a paused transfer waits.
const PAUSED: &str = "it is paused: `carrack resume` has it go on";

/// A manager takes a submitted transfer well within this time.
const TAKEN_WITHIN_MS: u64 = 5_000;

/// The commands of a fleet.
#[derive(Clone)]
pub struct FleetUserClient {
    bus: NatsBus,
    transfers: TransferStore,
}

fn from_bus_error(error: BusError) -> TransferOperationError {
    if error.is_transient() {
        TransferOperationError::Away(text_without_errno(&error))
    } else {
        TransferOperationError::Refused {
            hint: error.hint().unwrap_or_default(),
            message: text_without_errno(&error),
        }
    }
}

fn from_find_error(error: FindError) -> TransferOperationError {
    match error {
        FindError::Unknown(id) => TransferOperationError::Unknown(id),
        FindError::Bus(error) => from_bus_error(error),
        error => TransferOperationError::Refused {
            message: text_without_errno(&error),
            hint: "give more of its id".into(),
        },
    }
}

/// Returns true if no manager has taken the transfer for a while, for an unknown reason.
fn is_unclaimed(record: &TransferRecord, now_ms: u64) -> bool {
    let is_free = record.state == TransferState::Queued && record.manager.is_empty();
    let since_ms = record.submitted_ms.max(record.submission.not_before_ms.unwrap_or(0));
    is_free && record.waits_for.is_empty() && now_ms > since_ms + TAKEN_WITHIN_MS
}

impl FleetUserClient {
    /// Opens the records of transfers.
    ///
    /// # Errors
    /// If NATS does not answer, or refuses.
    pub async fn new(bus: NatsBus) -> Result<FleetUserClient, BusError> {
        let transfers = TransferStore::open(&bus).await?;
        Ok(FleetUserClient { bus, transfers })
    }

    /// Adds the reasons for waiting that no record has: a transfer's start or turn has not come, or no
    /// manager is there.
    async fn with_wait_reasons(&self, records: Vec<TransferRecord>) -> Vec<TransferRecord> {
        let now_ms = now_ms();
        let mut records: Vec<_> = records.into_iter().map(|record| record.with_start_wait(now_ms)).collect();
        let mut left: Vec<_> = records.iter_mut().filter(|record| is_unclaimed(record, now_ms)).collect();
        if !left.is_empty() {
            let words = match is_manager_present(&self.bus).await {
                Ok(true) => TURN,
                _ => "no manager has taken it: `carrack manager` has to run somewhere",
            };
            left.iter_mut().for_each(|record| words.clone_into(&mut record.waits_for));
        }
        records
    }

    async fn with_wait_reason(&self, record: TransferRecord) -> TransferRecord {
        self.with_wait_reasons(vec![record.clone()]).await.pop().unwrap_or(record)
    }

    async fn accept_submission(
        &self,
        user: String,
        mut submission: TransferSubmission,
    ) -> Result<TransferRecord, TransferOperationError> {
        submission.options = submission.options.normalized(lifetime::now_s())?;
        spec_and_settings(&submission.options)?;
        if submission.priority > 9 {
            let message = format!("priority {} is none: 0 to 9 are", submission.priority);
            return Err(TransferOperationError::Refused { message, hint: String::new() });
        }
        if !submission.has_possible_start(now_ms()) {
            let message = "the start is more than a year ahead".to_owned();
            return Err(TransferOperationError::Refused {
                message,
                hint: "not_before_ms is in milliseconds".into(),
            });
        }
        // Movers create files with their own umask.
        let submission = TransferSubmission { umask: None, ..submission };
        let mut record = TransferRecord::queued(unique_ids::new_id(), &user, submission, now_ms());
        if record.deletes() {
            record.version = DELETION_VERSION;
        }
        self.transfers.create(&record).await.map_err(from_bus_error)?;
        Ok(self.with_wait_reason(record).await)
    }

    /// Submits the rest of an ended transfer: the copy goes to where the ended one has brought it, and what
    /// is there does not travel again. The ended transfer's messages and counts stay with its own ID.
    async fn submit_again(&self, ended: TransferRecord) -> Result<TransferRecord, TransferOperationError> {
        let TransferRecord { submission, leg, user, .. } = ended;
        let mut options = submission.options.without_stop();
        let typed = submission.destination.path.trim_end_matches('/');
        // The destination exists by now, and would be the directory that the copy gets its name in.
        if leg.is_some_and(|leg| leg.only.is_none() && leg.sink.trim_end_matches('/') == typed) {
            options = options.with("no-target-directory", true);
        }
        self.accept_submission(user, TransferSubmission { options, not_before_ms: None, ..submission }).await
    }

    async fn apply_control_order(
        &self,
        user: &str,
        id: &str,
        order: TransferControlOrder,
    ) -> Result<TransferRecord, TransferOperationError> {
        let record = self.transfers.find(id).await.map_err(from_find_error)?;
        if record.user != user && user != "root" {
            return Err(TransferOperationError::Forbidden(format!(
                "transfer {} is {}'s",
                record.id, record.user
            )));
        }
        if record.state.is_over() {
            let hint = match (order, record.state) {
                (TransferControlOrder::Resume, _) if record.has_left_something() => {
                    return self.submit_again(record).await;
                }
                (TransferControlOrder::Resume, TransferState::Done) => "there is nothing left to do",
                (TransferControlOrder::Resume, _) => {
                    "submit it again: what is at the destination does not travel again"
                }
                (TransferControlOrder::Cancel | TransferControlOrder::Pause, _) => "",
            };
            let message = format!("transfer {} is {} already", record.id, record.state);
            return Err(TransferOperationError::Refused { message, hint: hint.into() });
        }
        let changed = self.transfers.update(&record.id, |record| match (order, record.state) {
            (_, state) if state.is_over() => {}
            (TransferControlOrder::Cancel, _) => {
                record.state = TransferState::Cancelled;
                record.waits_for.clear();
            }
            (TransferControlOrder::Pause, _) => {
                record.state = TransferState::Paused;
                PAUSED.clone_into(&mut record.waits_for);
            }
            (TransferControlOrder::Resume, TransferState::Paused) => {
                record.waits_for.clear();
                record.state = match record.started_ms {
                    Some(_) => TransferState::Running,
                    None => TransferState::Queued,
                };
            }
            (TransferControlOrder::Resume, _) => {}
        });
        changed.await.map_err(from_find_error)
    }
}

/// Changes of all transfers.
#[derive(Default)]
struct TransferChangeStream {
    /// Revision up to which all changes were seen.
    revision: u64,
    ready: VecDeque<TransferRecord>,
    has_begun: bool,
    /// Transfers reported before the first look ended: the end of one of them is still to report.
    told: HashSet<String>,
}

impl TransferChangeStream {
    /// Transfers that were over at the start are not reported.
    fn should_report(&self, record: &TransferRecord) -> bool {
        self.has_begun || !record.state.is_over() || self.told.contains(&record.id)
    }

    async fn next(&mut self, transfers: &TransferStore) -> Result<TransferRecord, BusError> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Ok(record);
            }
            match transfers.changed_after(self.revision).await {
                Ok(Some((changed, revision))) => {
                    self.ready = changed.into_iter().filter(|record| self.should_report(record)).collect();
                    self.revision = revision;
                    if !self.has_begun {
                        self.told.extend(self.ready.iter().map(|record| record.id.clone()));
                    }
                }
                Ok(None) => {
                    (self.has_begun, self.told) = (true, HashSet::new());
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                // A server that comes back may have new streams, which count from the beginning.
                Err(error) if error.is_transient() && self.has_begun => {
                    self.revision = 0;
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl TransferOperations for FleetUserClient {
    fn submit(
        &self,
        user: &str,
        submission: TransferSubmission,
    ) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>> {
        self.accept_submission(user.to_owned(), submission).boxed()
    }

    fn transfer(&self, id: &str) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>> {
        let id = id.to_owned();
        async move {
            let found = self.transfers.find(&id).await.map_err(from_find_error)?;
            Ok(self.with_wait_reason(found).await)
        }
        .boxed()
    }

    fn transfers(
        &self,
        limit: usize,
        after: Option<&str>,
    ) -> BoxFuture<'_, Result<Vec<TransferRecord>, TransferOperationError>> {
        let after = after.map(str::to_owned);
        async move {
            let listed = self.transfers.list(limit, after.as_deref()).await.map_err(from_find_error)?;
            Ok(self.with_wait_reasons(listed).await)
        }
        .boxed()
    }

    fn issue_order(
        &self,
        user: &str,
        id: &str,
        order: TransferControlOrder,
    ) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>> {
        let (user, id) = (user.to_owned(), id.to_owned());
        async move { self.apply_control_order(&user, &id, order).await }.boxed()
    }

    fn watch(&self, id: &str) -> BoxStream<'_, Result<TransferRecord, TransferOperationError>> {
        let state = (id.to_owned(), None::<TransferRecord>, false);
        stream::unfold(state, move |(id, last, is_over)| async move {
            if is_over {
                return None;
            }
            loop {
                let found = match self.transfers.find(&id).await {
                    Ok(record) => Ok(self.with_wait_reason(record).await),
                    Err(error) => Err(from_find_error(error)),
                };
                match found {
                    Ok(record) if last.as_ref() == Some(&record) => {}
                    Ok(record) => {
                        let is_over = record.state.is_over() && record.ended_ms.is_some();
                        return Some((Ok(record.clone()), (id, Some(record), is_over)));
                    }
                    Err(TransferOperationError::Away(_)) => {}
                    Err(error) => return Some((Err(error), (id, last, true))),
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        })
        .boxed()
    }

    fn watch_all(&self) -> BoxStream<'_, Result<TransferRecord, TransferOperationError>> {
        stream::unfold(Some(TransferChangeStream::default()), move |changes| async move {
            let mut changes = changes?;
            match changes.next(&self.transfers).await {
                Ok(record) => Some((Ok(self.with_wait_reason(record).await), Some(changes))),
                Err(error) => Some((Err(from_bus_error(error)), None)),
            }
        })
        .boxed()
    }

    fn movers(&self) -> BoxFuture<'_, Result<Vec<MoverRecord>, TransferOperationError>> {
        async move { Ok(with_protocol_notes(MoverTable::list(&self.bus).await.map_err(from_bus_error)?)) }
            .boxed()
    }
}
