//! The queue's interface to its users.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use carrack_register::transfer_operations::{
    TransferControlOrder, TransferOperationError, TransferOperations,
};
use carrack_register::transfer_records::{MoverRecord, TransferRecord, TransferSubmission};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};

use super::{LocalQueue, QueueShared};

/// Pause between two looks at a watched transfer.
const WATCH_PAUSE: Duration = Duration::from_millis(250);

/// Upper bound of watched transfers, the latest: those that are not over are among them.
const WATCHED_MAX: usize = 1_000;

impl LocalQueue {
    /// Runs a request on a blocking thread: SQLite waits for the disk, and the threads of the API must not.
    fn run_blocking<T: Send + 'static>(
        &self,
        asking: impl FnOnce(&QueueShared) -> Result<T, TransferOperationError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, TransferOperationError>> {
        let inner: Arc<QueueShared> = self.0.clone();
        Box::pin(async move {
            let asked = tokio::task::spawn_blocking(move || asking(&inner)).await;
            asked.unwrap_or_else(|error| Err(TransferOperationError::Away(format!("the queue: {error}"))))
        })
    }
}

impl TransferOperations for LocalQueue {
    fn submit(
        &self,
        user: &str,
        submission: TransferSubmission,
    ) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>> {
        let user = user.to_owned();
        self.run_blocking(move |inner| inner.submit(&user, submission))
    }

    fn transfer(&self, id: &str) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>> {
        let id = id.to_owned();
        self.run_blocking(move |inner| inner.transfer(&id))
    }

    fn transfers(
        &self,
        limit: usize,
        after: Option<&str>,
    ) -> BoxFuture<'_, Result<Vec<TransferRecord>, TransferOperationError>> {
        let after = after.map(str::to_owned);
        self.run_blocking(move |inner| inner.transfers(limit, after.as_deref()))
    }

    fn issue_order(
        &self,
        user: &str,
        id: &str,
        order: TransferControlOrder,
    ) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>> {
        let (user, id) = (user.to_owned(), id.to_owned());
        self.run_blocking(move |inner| inner.issue_order(&user, &id, order))
    }

    fn watch(&self, id: &str) -> BoxStream<'_, Result<TransferRecord, TransferOperationError>> {
        let watching = QueuedTransferWatch {
            queue: self.clone(),
            id: id.to_owned(),
            changes: self.0.changes.subscribe(),
            last: None,
        };
        stream::unfold(Some(watching), |watching| async move {
            let (said, watching) = watching?.next().await?;
            Some((said, watching))
        })
        .boxed()
    }

    fn watch_all(&self) -> BoxStream<'_, Result<TransferRecord, TransferOperationError>> {
        let watching = QueueWatchAll {
            queue: self.clone(),
            changes: self.0.changes.subscribe(),
            last: None,
            ready: VecDeque::new(),
        };
        stream::unfold(Some(watching), |watching| async move {
            let mut watching = watching?;
            match watching.next().await? {
                Ok(record) => Some((Ok(record), Some(watching))),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }

    fn movers(&self) -> BoxFuture<'_, Result<Vec<MoverRecord>, TransferOperationError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// A watcher of one transfer until it is over.
struct QueuedTransferWatch {
    queue: LocalQueue,
    id: String,
    changes: tokio::sync::watch::Receiver<u64>,
    last: Option<TransferRecord>,
}

/// A watcher of all transfers.
struct QueueWatchAll {
    queue: LocalQueue,
    changes: tokio::sync::watch::Receiver<u64>,
    /// The records as last reported.
    last: Option<HashMap<String, TransferRecord>>,
    ready: VecDeque<TransferRecord>,
}

impl QueueWatchAll {
    async fn next(&mut self) -> Option<WatchResult> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(Ok(record));
            }
            if self.last.is_some() {
                self.changes.changed().await.ok()?;
                tokio::time::sleep(WATCH_PAUSE).await;
            }
            self.changes.mark_unchanged();
            match self.queue.transfers(WATCHED_MAX, None).await {
                Ok(records) => self.collect_changes(records),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Collects the changed records, the oldest first, as they were submitted.
    fn collect_changes(&mut self, records: Vec<TransferRecord>) {
        let changed = records.iter().rev().filter(|record| match &self.last {
            Some(last) => last.get(&record.id) != Some(*record),
            None => !record.state.is_over(),
        });
        self.ready = changed.cloned().collect();
        self.last = Some(records.into_iter().map(|record| (record.id.clone(), record)).collect());
    }
}

type WatchResult = Result<TransferRecord, TransferOperationError>;

impl QueuedTransferWatch {
    /// Returns the next change, and the watcher for the changes after it.
    async fn next(mut self) -> Option<(WatchResult, Option<QueuedTransferWatch>)> {
        if self.last.as_ref().is_some_and(|last| last.state.is_over()) {
            return None;
        }
        loop {
            if self.last.is_some() {
                self.changes.changed().await.ok()?;
                tokio::time::sleep(WATCH_PAUSE).await;
            }
            self.changes.mark_unchanged();
            match self.queue.transfer(&self.id).await {
                Ok(record) if self.last.as_ref() == Some(&record) => {}
                Ok(record) => {
                    // A prefix of one transfer's ID may later be a prefix of another ID too.
                    self.id.clone_from(&record.id);
                    self.last = Some(record.clone());
                    return Some((Ok(record), Some(self)));
                }
                Err(error) => return Some((Err(error), None)),
            }
        }
    }
}
