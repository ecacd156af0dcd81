//! The commands on a daemon without a queue, which may run for other purposes.

use carrack_register::transfer_operations::{
    TransferControlOrder, TransferOperationError, TransferOperations,
};
use carrack_register::transfer_records::{MoverRecord, TransferRecord, TransferSubmission};
use futures_util::future::{BoxFuture, FutureExt, ready};
use futures_util::stream::{BoxStream, StreamExt, once};

/// A control that carries no transfers out.
#[derive(Clone, Copy, Debug)]
pub struct RefusingTransferOperations;

fn no_queue_error() -> TransferOperationError {
    TransferOperationError::Refused {
        message: "this daemon keeps no queue".to_owned(),
        hint: "its configuration has no [queue]; `carrack cp` needs none".to_owned(),
    }
}

impl TransferOperations for RefusingTransferOperations {
    fn submit(
        &self,
        _: &str,
        _: TransferSubmission,
    ) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>> {
        ready(Err(no_queue_error())).boxed()
    }

    fn transfer(&self, _: &str) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>> {
        ready(Err(no_queue_error())).boxed()
    }

    fn transfers(
        &self,
        _: usize,
        _: Option<&str>,
    ) -> BoxFuture<'_, Result<Vec<TransferRecord>, TransferOperationError>> {
        ready(Ok(Vec::new())).boxed()
    }

    fn issue_order(
        &self,
        _: &str,
        _: &str,
        _: TransferControlOrder,
    ) -> BoxFuture<'_, Result<TransferRecord, TransferOperationError>> {
        ready(Err(no_queue_error())).boxed()
    }

    fn watch(&self, _: &str) -> BoxStream<'_, Result<TransferRecord, TransferOperationError>> {
        once(ready(Err(no_queue_error()))).boxed()
    }

    fn watch_all(&self) -> BoxStream<'_, Result<TransferRecord, TransferOperationError>> {
        once(ready(Err(no_queue_error()))).boxed()
    }

    fn movers(&self) -> BoxFuture<'_, Result<Vec<MoverRecord>, TransferOperationError>> {
        ready(Ok(Vec::new())).boxed()
    }
}
