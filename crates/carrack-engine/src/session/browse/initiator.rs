//! The initiator, which the user started: it sends the request, and checks the replies.

use std::ops::ControlFlow;
use std::time::Instant;

use carrack_machine::SlotPool;
use carrack_model::escape;
use carrack_transport::SessionControlLink;
use carrack_wire::message::{BrowseDone, BrowsedEntriesMessage, ControlMessage};

use super::message::{ENTRIES_MAX, item_from_message, request_to_message};
use super::operation::{
    BrowseItem, PATIENCE, PathOperationRequest, RemotePathOperation, RemotePathOperationCounts,
};
use crate::abort::AbortHandle;
use crate::error::SessionError;
use crate::session::handshake::{
    ANSWER_TIMEOUT, await_peer_reason, control_only_pool, greet_responder, receive_message, send_message,
};
use crate::settings::PeerChannel;

/// The slot size of a session with control messages only.
const SLOT_BYTES: u32 = carrack_model::limits::SLOT_BYTES_MIN as u32;

/// Performs an operation on a path by the process that `peer` leads to, which runs [`crate::serve`].
///
/// `found` ends it early with `Break`: then the other end is left, and a removal there stops where it is.
///
/// # Errors
/// [`SessionError::Refused`] if the other end does not allow the operation, or can't perform it; results may
/// have been passed to `found` before.
pub fn perform_remote_operation(
    peer: PeerChannel,
    browsing: &PathOperationRequest,
    found: &mut dyn FnMut(BrowseItem) -> ControlFlow<()>,
    abort: &AbortHandle,
) -> Result<RemotePathOperationCounts, SessionError> {
    let mut link = SessionControlLink::new(peer.channel, SLOT_BYTES)
        .map_err(SessionError::local("setting up the control channel"))?;
    link.interrupt_on(Some(abort.readiness_owned().map_err(SessionError::local("watching for signals"))?));
    let slots = control_only_pool()?;
    let mut hearing =
        BrowseReceiver { asked: browsing.operation, found, summary: RemotePathOperationCounts::default() };
    let asked = request_to_message(browsing, &peer.token);
    let programs = peer.programs.as_deref();
    let greeted = greet_responder(&mut link, programs, ANSWER_TIMEOUT, &mut |link| {
        send_message(link, ControlMessage::Browse(asked.clone()))
    });
    let heard = greeted.and_then(|()| hearing.receive_results(&mut link, &slots));
    match heard {
        Ok(()) => Ok(hearing.summary),
        Err(_) if abort.is_set() => Err(SessionError::Interrupted),
        Err(error) => Err(await_peer_reason(&mut link, &slots, error)),
    }
}

struct BrowseReceiver<'a> {
    asked: RemotePathOperation,
    found: &'a mut dyn FnMut(BrowseItem) -> ControlFlow<()>,
    /// The results up to now.
    summary: RemotePathOperationCounts,
}

impl BrowseReceiver<'_> {
    fn receive_results(
        &mut self,
        link: &mut SessionControlLink,
        slots: &SlotPool,
    ) -> Result<(), SessionError> {
        loop {
            let flow = match receive_message(link, slots, Instant::now() + PATIENCE)? {
                ControlMessage::Entries(entries) => self.receive_entries(entries)?,
                ControlMessage::Failure(failure) => {
                    self.summary.failed_count += 1;
                    let (path, detail) = (failure.path.into(), escape(failure.detail.as_bytes()));
                    (self.found)(BrowseItem::Failed { path, detail })
                }
                ControlMessage::Heartbeat(_) => ControlFlow::Continue(()),
                ControlMessage::BrowseDone(done) => return self.handle_done(done),
                _ => return Err(SessionError::Protocol("a message of another session".into())),
            };
            if flow.is_break() {
                return Ok(());
            }
        }
    }

    fn receive_entries(
        &mut self,
        BrowsedEntriesMessage { entries }: BrowsedEntriesMessage,
    ) -> Result<ControlFlow<()>, SessionError> {
        let most = match self.asked {
            RemotePathOperation::List => ENTRIES_MAX,
            RemotePathOperation::Stat => 1 - self.summary.done_count.min(1) as usize,
            RemotePathOperation::MakeDirectory { .. } | RemotePathOperation::Remove { .. } => 0,
        };
        if entries.len() > most {
            let count = entries.len();
            return Err(SessionError::Protocol(format!("{count} entries, where {most} were the most")));
        }
        for entry in entries {
            self.summary.done_count += 1;
            if (self.found)(item_from_message(entry, self.asked)?).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Ends the operation. The caller has counted the results that were sent.
    fn handle_done(&mut self, done: BrowseDone) -> Result<(), SessionError> {
        match self.asked {
            RemotePathOperation::List => {}
            RemotePathOperation::Stat if self.summary.done_count == 0 => {
                return Err(SessionError::Protocol("nothing about the path".into()));
            }
            RemotePathOperation::Stat => {}
            RemotePathOperation::MakeDirectory { .. } | RemotePathOperation::Remove { .. } => {
                self.summary.done_count = done.done;
                self.summary.failed_count = self.summary.failed_count.max(done.failed);
            }
        }
        Ok(())
    }
}
