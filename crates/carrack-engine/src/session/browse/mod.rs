//! Sessions that copy nothing: listing, creating and removing directories and files.
//!
//! A session has one path, one thread at either end, and no data connections. Results are sent in batches as
//! they are found, so that neither end holds the list of a directory, and the responder is as fast as the
//! initiator reads.

mod initiator;
mod message;
mod operation;
mod perform;
mod responder;

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use carrack_model::text_without_errno;
use carrack_storage::PathBase;

pub use initiator::perform_remote_operation;
pub use operation::{BrowseItem, PathOperationRequest, RemotePathOperation, RemotePathOperationCounts};
use perform::{BrowseOutput, join_path, perform, unfeasible};
pub(super) use responder::serve_path_operation;

use crate::abort::AbortHandle;
use crate::error::SessionError;

/// Performs on this host the operation that [`perform_remote_operation`] requests of another, with the user's
/// own view of the files. `found` ends it early with `Break`.
///
/// # Errors
/// [`SessionError::Refused`] with the system's message.
pub fn perform_local_operation(
    browsing: &PathOperationRequest,
    found: &mut dyn FnMut(BrowseItem) -> ControlFlow<()>,
    abort: &AbortHandle,
) -> Result<RemotePathOperationCounts, SessionError> {
    let path = browsing.path.as_os_str().as_bytes();
    let summary = perform(&PathBase::Anywhere, browsing.operation, &browsing.path, &mut |told| match told {
        _ if abort.is_set() => ControlFlow::Break(()),
        BrowseOutput::Entries(entries) => {
            entries.into_iter().try_for_each(|entry| found(BrowseItem::Entry(entry)))
        }
        BrowseOutput::Unseen { name, error } => {
            found(BrowseItem::Failed { path: join_path(path, &name), detail: text_without_errno(&error) })
        }
        BrowseOutput::Left { path, error } => {
            found(BrowseItem::Failed { path, detail: text_without_errno(&error) })
        }
        BrowseOutput::GoesOn => ControlFlow::Continue(()),
    });
    match summary {
        _ if abort.is_set() => Err(SessionError::Interrupted),
        summary => summary.map_err(|error| unfeasible(path, &error)),
    }
}
