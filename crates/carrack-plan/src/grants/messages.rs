//! What clients and the server say to each other.
//!
//! Each message tells all that its sender knows of the other's matters, so that any of them may be lost, come twice, or late.
//! Times are spans, counted from when the message was made: nobody's clock has to agree with anybody's.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A span as messages have it.
pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// The same where that is fine enough.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// All that a client has to say about all of its targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Batch {
    /// Who it is: unique among all that were ever started, one for each end of a session.
    pub client: String,
    /// The class that it is of; one that the server does not know counts as the empty one.
    pub class: String,
    /// Grows with each batch: of two the server believes the later one.
    pub number: u64,
    /// The epoch of the last answer; 0 before there was one. Grants of another epoch are taken up anew.
    pub epoch: u64,
    /// Threads that it can put to work: of targets that others want it gets about so many at a time.
    pub threads: u32,
    /// When it wants to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// Bytes that it has moved from or to all targets since it began.
    pub bytes_moved: u64,
    /// Every target that it has work for, held or not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<Ask>,
    /// Every grant that it holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<Held>,
    /// What it has moved from or to each target, as far as that was not in a batch that was answered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<Moved>,
    /// Grants that it gives back; told again until a batch that told it is answered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub returns: Vec<Held>,
    /// It ends, and so does everything that it holds and asks for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
}

/// When a client wants to be done: this makes a rate that is guaranteed to it as far as its class allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Deadline {
    /// What is to be moved until then.
    pub bytes_left: u64,
    /// From now.
    pub in_ms: u64,
}

/// What a client has moved from or to a target, under whichever grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Moved {
    /// The target.
    pub target: String,
    /// Bytes since the client began.
    pub bytes: u64,
}

/// A wish to work on a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Ask {
    /// The target's name, the same for all clients of the file system.
    pub target: String,
    /// Objects that wait for it.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// For how long it has been asked for: a server that was started anew gets the order back by it.
    pub waits_us: u64,
}

/// A grant that a client holds or gives back, and what it was used for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Held {
    /// The grant.
    pub id: u64,
    /// Its target.
    pub target: String,
    /// When it begins, as the client has understood.
    pub starts_in_us: u64,
    /// When it ends, as the client has understood.
    pub ends_in_us: u64,
    /// Objects moved under it so far.
    pub objects: u64,
    /// Bytes moved under it so far.
    pub bytes: u64,
    /// The time that the target took for them, summed over its requests.
    pub busy_us: u64,
    /// Nothing waits and nothing is in service: somebody else may have it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_idle: bool,
}

/// What the server has to say to a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Answer {
    /// The server's start; another one after each.
    pub epoch: u64,
    /// The batch that this answers.
    pub number: u64,
    /// The class that the client counts as.
    pub class: String,
    /// The server has just begun and listens to what clients hold. It has refused nothing yet: who is unmanaged stays so, and a target of
    /// which nothing was known may be started on as before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_settling: bool,
    /// Every grant that the client has on the targets it spoke of. What it holds beside these has ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
}

/// A lease of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Grant {
    /// Of all grants of an epoch, which it is.
    pub id: u64,
    /// The target.
    pub target: String,
    /// When it begins; 0 for now.
    pub starts_in_us: u64,
    /// When it ends, unless a later answer says more.
    pub ends_in_us: u64,
    /// Bytes that may be moved under it, those included that were; all if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// Requests at a time; any number if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_max: Option<u32>,
    /// Others wait for the target: it is given back as soon as it is not needed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub others_wait: bool,
}
