//! What users do with transfers, whoever carries them out: the fleet, or one machine's queue.

use carrack_options::Trouble;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use crate::records::{MoverRecord, Submission, TransferRecord};

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is no such transfer.
    #[error("there is no transfer {0}")]
    Unknown(String),
    /// What was asked for can't be; with what to do instead.
    #[error("{message}")]
    Refused {
        /// What is wrong.
        message: String,
        /// What to do; empty if nothing is known.
        hint: String,
    },
    /// The one who asks may not.
    #[error("{0}")]
    Forbidden(String),
    /// Whoever keeps the transfers can't be reached; the same may work later.
    #[error("{0}")]
    Away(String),
}

impl From<Trouble> for ControlError {
    fn from(trouble: Trouble) -> ControlError {
        ControlError::Refused { message: trouble.message, hint: trouble.hint.unwrap_or_default() }
    }
}

/// An order about a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// End it. What is complete at the destination stays.
    Cancel,
    /// Have it wait: nothing of it is moved until it is resumed.
    Pause,
    /// Go on with it, or try again what failed.
    Resume,
}

/// The verbs. `user` is who asks, as whoever calls has found out.
pub trait Control: Send + Sync {
    /// Takes a transfer over; returns its record, queued. It is kept durably when this returns.
    fn submit(
        &self,
        user: &str,
        submission: Submission,
    ) -> BoxFuture<'_, Result<TransferRecord, ControlError>>;

    /// One transfer, over or not. `id` may be a prefix that only one has.
    fn transfer(&self, id: &str) -> BoxFuture<'_, Result<TransferRecord, ControlError>>;

    /// The latest that were submitted, the latest first, `limit` at most; with `after`, a whole id, those that were submitted before that
    /// one: so whoever reads page by page is told of each once.
    fn transfers(
        &self,
        limit: usize,
        after: Option<&str>,
    ) -> BoxFuture<'_, Result<Vec<TransferRecord>, ControlError>>;

    /// Gives an order. Done when it is kept; the record that is returned may not show its effect yet.
    fn order(
        &self,
        user: &str,
        id: &str,
        order: Order,
    ) -> BoxFuture<'_, Result<TransferRecord, ControlError>>;

    /// The transfer as it is now and whenever it changes, a few times a second at most; ends after one that is over.
    fn watch(&self, id: &str) -> BoxStream<'_, Result<TransferRecord, ControlError>>;

    /// All transfers that are not over, as they are now, and each one whenever it changes or is new, a few times a second at most;
    /// one that is over is told of once more. Ends after an error only; what was told may be told again.
    fn watch_all(&self) -> BoxStream<'_, Result<TransferRecord, ControlError>>;

    /// The movers that are there; none where there is no fleet.
    fn movers(&self) -> BoxFuture<'_, Result<Vec<MoverRecord>, ControlError>>;
}
