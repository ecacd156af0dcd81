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
//! | [`initiator`], [`responder`] | both ends agree over the control channel: an [`agreement::Agreement`] |
//! | [`local`] | both ends agree within this process |
//! | [`prepared`] | an end whose storage was examined |
//! | [`agreement`] | the step from an agreement to lanes |
//! | [`established`] | the session, from which every end starts |
//! | [`third_party`] | two far ends agree through this process, which is neither |

mod agreement;
mod browse;
mod confine;
mod connect;
mod destination;
mod established;
mod fabric;
mod handshake;
mod house;
mod initiator;
mod journal_access;
mod kinds;
mod lanes;
mod local;
mod outcome;
mod place;
mod prepared;
mod responder;
mod sources;
mod third_party;
pub(crate) mod verify;
mod wait;

use carrack_storage::clear_umask;
use carrack_transport::Channel;

use crate::abort::Abort;
use crate::report::Observer;
use crate::role::Role;
use crate::settings::{FarEnds, Peer, Transfer};
pub use browse::{BrowseSummary, Browsing, Found, Operation, browse, browse_here};
use established::EstablishedSession;
pub use fabric::beats_tcp;
pub use house::{Admission, Deed, House, OwnHouse, Request, check_protection};
pub use journal_access::shared_journals;
pub use outcome::{Advance, Outcome};
use responder::Answer;

/// Copies within this host: both ends are in this process.
pub fn copy_local(transfer: &Transfer, observer: &dyn Observer, abort: &Abort) -> Outcome {
    clear_umask();
    Outcome::of(local::establish(transfer, observer, abort).and_then(EstablishedSession::run))
}

/// Copies to or from the process that `peer` leads to, which runs [`serve`].
pub fn copy_with_peer(
    transfer: &Transfer,
    role: Role,
    peer: Peer,
    observer: &dyn Observer,
    abort: &Abort,
) -> Outcome {
    clear_umask();
    Outcome::of(initiator::establish(transfer, role, peer, observer, abort).and_then(EstablishedSession::run))
}

/// Copies from one far end to another; both run [`serve`].
pub fn copy_between(transfer: &Transfer, ends: FarEnds, observer: &dyn Observer, abort: &Abort) -> Outcome {
    Outcome::of(third_party::run(transfer, ends, observer, abort))
}

/// Serves one session on a channel, such as standard input and output under ssh, as far as `house` allows.
pub fn serve(channel: Channel, house: &dyn House, abort: &Abort) -> Outcome {
    Outcome::of(responder::answer(channel, house, abort).and_then(|answer| match answer {
        Answer::Session(session) => session.run(),
        Answer::Over(ended) => Ok(*ended),
    }))
}
