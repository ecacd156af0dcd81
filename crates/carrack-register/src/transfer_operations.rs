//! The operations of users on transfers, in a fleet or in the queue of one machine.

use carrack_options::UserError;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use crate::transfer_records::{MoverRecord, TransferRecord, TransferSubmission};

/// The reason why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferOperationError {
    /// There is no such transfer.
    #[error("there is no transfer {0}")]
    Unknown(String),
    /// The request is invalid. Carries advice.
    #[error("{message}")]
    Refused {
        /// The problem.
        message: String,
        /// Advice; may be empty.
        hint: String,
    },
    /// The user lacks the permission.
    #[error("{0}")]
    Forbidden(String),
    /// The register can't be reached. The same may succeed later.
    #[error("{0}")]
    Away(String),
}

impl From<UserError> for TransferOperationError {
    fn from(trouble: UserError) -> TransferOperationError {
        TransferOperationError::Refused { message: trouble.message, hint: trouble.hint.unwrap_or_default() }
    }
}

/// An order about a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferControlOrder {
    /// Ends the transfer. Complete files at the destination stay.
    Cancel,
    /// Pauses the transfer: nothing is moved until it is resumed.
    Pause,
    /// Resumes the transfer, or retries its failures.
    Resume,
}

/// The operations. `user` is the authenticated user who asks.
pub trait TransferOperations: Send + Sync {
    /// Takes a transfer over and returns its queued record. The record is durable when this returns.
    fn submit(
        &self,
        user: &str,
        submission: TransferSubmission,
    ) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>>;

    /// A transfer, finished or not. `id` may be a unique prefix.
    fn transfer(&self, id: &str) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>>;

    /// The latest submitted transfers, the latest first, `limit` at most. With `after`, a whole ID, the
    /// transfers submitted before it: so a reader of pages sees each transfer once.
    fn transfers(
        &self,
        limit: usize,
        after: Option<&str>,
    ) -> BoxFuture<'_, Result<Vec<TransferRecord>, TransferOperationError>>;

    /// Gives an order. The order is durable when this returns; the returned record may not show its effect
    /// yet.
    fn issue_order(
        &self,
        user: &str,
        id: &str,
        order: TransferControlOrder,
    ) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>>;

    /// The transfer now and after each change, a few times a second at most. Ends after a record of the
    /// finished transfer.
    fn watch(&self, id: &str) -> BoxStream<'_, Result<TransferRecord, TransferOperationError>>;

    /// All unfinished transfers now, and each new or changed transfer, a few times a second at most. A
    /// finished transfer is sent once more. Ends only after an error; records may be repeated.
    fn watch_all(&self) -> BoxStream<'_, Result<TransferRecord, TransferOperationError>>;

    /// The registered movers; none without a fleet.
    fn movers(&self) -> BoxFuture<'_, Result<Vec<MoverRecord>, TransferOperationError>>;
}
