//! Sessions: the agreement of their ends, in three ways: an initiator connects to a responder over a control
//! channel, both ends are in this process, or this process controls two far ends. The work after that is done
//! by [`crate::source`] and [`crate::sink`].
//!
//! An initiator that only lists, creates or removes entries sends another request ([`browse`]).
//!
//! Hello (the request) → Welcome (the state of the other end) → Place (the place of the tree; sent with the
//! Welcome if the source is at the other end) → data connections → objects.
//!
//! | file | contents |
//! | --- | --- |
//! | [`initiator`], [`responder`] | both ends agree over the control channel |
//! | [`local`] | both ends agree within this process |
//! | [`prepared`] | an end whose storage was examined |
//! | [`session_setup`] | the step from an agreement to lanes |
//! | [`established`] | the session, from which every end starts |
//! | [`third_party`] | two far ends agree through this process, which is neither |

mod access_policy;
mod browse;
mod data_connections;
mod destination;
mod destination_place;
mod entry_kind_codes;
mod established;
mod fabric;
mod handshake;
mod initiator;
mod journal_access;
mod lane_links;
mod local;
mod object_size;
mod outcome;
mod prepared;
mod responder;
mod session_setup;
mod sources;
mod third_party;
pub(crate) mod verify;
mod wait_heartbeats;
mod writable_names;

use carrack_storage::clear_umask;
use carrack_transport::ControlChannel;

use crate::abort::AbortHandle;
use crate::event_delivery::TransferObserver;
use crate::role::SessionRole;
use crate::settings::{PeerChannel, ThirdPartyEndChannels, TransferRequest};
pub use access_policy::{
    AccessKind, AccessPolicy, AccessRequest, AdmittedCallerRights, ProcessOwnerAccessPolicy, check_protection,
};
pub use browse::{
    BrowseItem, PathOperationRequest, RemotePathOperation, RemotePathOperationCounts,
    perform_local_operation, perform_remote_operation,
};
use established::EstablishedSession;
pub use fabric::beats_tcp;
pub use journal_access::shared_journal_directory;
pub use outcome::{FurthestSessionPoint, TransferOutcome};
use responder::ServedInitiatorOutcome;

/// Copies within this host: both ends are in this process.
pub fn copy_local(
    transfer: &TransferRequest,
    observer: &dyn TransferObserver,
    abort: &AbortHandle,
) -> TransferOutcome {
    clear_umask();
    TransferOutcome::of(local::establish(transfer, observer, abort).and_then(EstablishedSession::run))
}

/// Copies to or from the process that `peer` leads to, which runs [`serve`].
pub fn copy_with_peer(
    transfer: &TransferRequest,
    role: SessionRole,
    peer: PeerChannel,
    observer: &dyn TransferObserver,
    abort: &AbortHandle,
) -> TransferOutcome {
    clear_umask();
    TransferOutcome::of(
        initiator::establish(transfer, role, peer, observer, abort).and_then(EstablishedSession::run),
    )
}

/// Copies from one far end to another; both run [`serve`].
pub fn copy_between(
    transfer: &TransferRequest,
    ends: ThirdPartyEndChannels,
    observer: &dyn TransferObserver,
    abort: &AbortHandle,
) -> TransferOutcome {
    TransferOutcome::of(third_party::run(transfer, ends, observer, abort))
}

/// Serves one session on a channel, such as standard input and output under ssh, as far as `house` allows.
pub fn serve(
    channel: ControlChannel,
    access_policy: &dyn AccessPolicy,
    abort: &AbortHandle,
) -> TransferOutcome {
    TransferOutcome::of(responder::serve_initiator(channel, access_policy, abort).and_then(|answer| {
        match answer {
            ServedInitiatorOutcome::Session(session) => session.run(),
            ServedInitiatorOutcome::Over(ended) => Ok(*ended),
        }
    }))
}
