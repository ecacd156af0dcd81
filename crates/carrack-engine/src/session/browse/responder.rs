//! The responder: it asks the access policy, performs allowed operations, and sends results as fast as the
//! initiator reads.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use carrack_model::text_without_errno;
use carrack_transport::SessionControlLink;
use carrack_wire::message::{self, BrowseDone, ControlMessage, KeepaliveMessage, PathOperationMessage};

use super::message::{ENTRIES_MAX, entries_to_message, exports_to_message, request_from_message};
use super::operation::{PATIENCE, RemotePathOperation, RemotePathOperationCounts};
use super::perform::{BrowseOutput, join_path, perform, unfeasible};
use crate::error::SessionError;
use crate::session::access_policy::{AccessKind, AccessPolicy, AccessRequest, AdmittedCallerRights};
use crate::session::handshake::send_message_within;
use crate::settings::EndSettings;

/// `Failure.kind` of an entry that can't be examined.
const UNREADABLE: u32 = carrack_model::FailureKind::Unreadable as u32;

/// `Failure.kind` of an entry that can't be removed.
const WRITE_ERROR: u32 = carrack_model::FailureKind::WriteError as u32;

/// Returns the request to the access policy.
fn request_of(wanted: &PathOperationMessage, operation: RemotePathOperation) -> AccessRequest<'_> {
    AccessRequest {
        deed: access_kind(operation),
        paths: vec![&wanted.path],
        token: &wanted.token,
        protection: None,
        spec: None,
        settings: EndSettings::default(),
    }
}

/// Serves one initiator to the end. Returns the number of entries that failed. Errors have not been sent to
/// the initiator yet.
pub(in crate::session) fn serve_path_operation(
    link: &mut SessionControlLink,
    access_policy: &dyn AccessPolicy,
    wanted: &PathOperationMessage,
) -> Result<u64, SessionError> {
    let browsing = request_from_message(wanted)?;
    let mut telling =
        BrowseResponder { link, asked: &wanted.path, own: Vec::new(), patience: PATIENCE, broken: None };
    let exports = match browsing.operation {
        RemotePathOperation::List if is_top(&wanted.path) => {
            access_policy.exports(&request_of(wanted, browsing.operation))?
        }
        _ => None,
    };
    let summary = match exports {
        Some(names) => telling.send_exports(&names),
        None => telling.perform_and_send(
            access_policy.admit(request_of(wanted, browsing.operation))?,
            browsing.operation,
        )?,
    };
    if let Some(error) = telling.broken {
        return Err(error);
    }
    let RemotePathOperationCounts { done_count: done, failed_count: failed } = summary;
    let patience = telling.patience;
    send_message_within(link, ControlMessage::BrowseDone(BrowseDone { done, failed }), patience)?;
    Ok(failed)
}

fn access_kind(operation: RemotePathOperation) -> AccessKind {
    match operation {
        RemotePathOperation::List | RemotePathOperation::Stat => AccessKind::List,
        RemotePathOperation::MakeDirectory { .. } => AccessKind::MakeDirectory,
        RemotePathOperation::Remove { .. } => AccessKind::Remove,
    }
}

/// Returns true if the path is `/`, in any spelling.
fn is_top(path: &[u8]) -> bool {
    !path.is_empty() && path.iter().all(|&byte| byte == b'/')
}

struct BrowseResponder<'a> {
    link: &'a mut SessionControlLink,
    /// The path as the initiator wrote it.
    asked: &'a [u8],
    /// The same path as this end knows it.
    own: Vec<u8>,
    /// The time that the initiator may take to read a message.
    patience: Duration,
    /// The reason why no more results can be sent.
    broken: Option<SessionError>,
}

impl BrowseResponder<'_> {
    fn send_exports(&mut self, names: &[String]) -> RemotePathOperationCounts {
        // An error is kept in `broken`.
        let _ = names
            .chunks(ENTRIES_MAX)
            .try_for_each(|chunk| self.send_message(ControlMessage::Entries(exports_to_message(chunk))));
        RemotePathOperationCounts { done_count: names.len() as u64, failed_count: 0 }
    }

    fn perform_and_send(
        &mut self,
        admission: AdmittedCallerRights,
        operation: RemotePathOperation,
    ) -> Result<RemotePathOperationCounts, SessionError> {
        let path = admission.paths.first().ok_or(SessionError::Internal)?;
        self.own = path.as_os_str().as_bytes().to_vec();
        self.patience = admission.settings.idle.unwrap_or(PATIENCE);
        perform(&admission.base, operation, path, &mut |told| self.send_output(told))
            .map_err(|error| unfeasible(self.asked, &error))
    }

    fn send_output(&mut self, told: BrowseOutput) -> ControlFlow<()> {
        match told {
            BrowseOutput::Entries(entries) => {
                self.send_message(ControlMessage::Entries(entries_to_message(entries)))
            }
            BrowseOutput::Unseen { name, error } => {
                self.send_failure(join_path(self.asked, &name), UNREADABLE, text_without_errno(&error))
            }
            BrowseOutput::Left { path, error } => {
                self.send_failure(self.to_initiator_path(&path), WRITE_ERROR, text_without_errno(&error))
            }
            BrowseOutput::GoesOn => self.send_message(ControlMessage::Heartbeat(KeepaliveMessage {})),
        }
    }

    fn send_failure(&mut self, path: Box<[u8]>, kind: u32, detail: String) -> ControlFlow<()> {
        self.send_message(ControlMessage::Failure(message::FailureMessage {
            path: path.into(),
            kind,
            detail,
        }))
    }

    /// Sends a message before the next one is made: the work is as fast as the initiator reads.
    fn send_message(&mut self, message: ControlMessage) -> ControlFlow<()> {
        let said = if self.link.is_interrupted() {
            Err(SessionError::Interrupted)
        } else {
            send_message_within(self.link, message, self.patience)
        };
        match said {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.broken = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// Replaces this end's prefix of a path by the initiator's.
    fn to_initiator_path(&self, path: &[u8]) -> Box<[u8]> {
        match path.strip_prefix(without_slashes(&self.own)) {
            Some(rest) => [without_slashes(self.asked), rest].concat().into(),
            None => path.into(),
        }
    }
}

fn without_slashes(path: &[u8]) -> &[u8] {
    let slash_count = path.iter().rev().take_while(|&&byte| byte == b'/').count();
    &path[..path.len() - slash_count]
}

/// A batch of the storage fits into a message.
const _: () = assert!(carrack_model::limits::SCAN_BATCH_ENTRIES_MAX <= ENTRIES_MAX);
