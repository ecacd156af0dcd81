//! The messages between clients and the server.
//!
//! Each message has the full state of its sender, so that any message may be lost, repeated or late. Times
//! are spans, counted from the creation of the message: clocks need not agree.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Returns a span in microseconds, as messages have it.
pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// The same in milliseconds, where that is fine enough.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A client's report on all of its targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Batch))]
#[serde(default)]
pub struct GrantClientReport {
    /// Name of the client: unique among all that were ever started, one for each end of a session.
    pub client: String,
    /// The session of the client, unique among sessions; empty for a client of its own. The ends of a session
    /// share their grants.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// Class of the client; a class that the server does not know counts as the empty one.
    pub class: String,
    /// Grows with each batch: of two the server believes the later one.
    pub number: u64,
    /// The epoch of the last answer; 0 before the first. Grants of another epoch are adopted.
    pub epoch: u64,
    /// Threads of the client: of contended targets it gets about this many at a time.
    pub threads: u32,
    /// Deadline of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<TransferDeadlineDemand>,
    /// Bytes moved from or to all targets since the client began.
    pub bytes_moved: u64,
    /// Every target with waiting work, held or not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<GrantRequest>,
    /// Every grant that the client holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<GrantUseReport>,
    /// Bytes moved from or to each target, as far as no answered batch had them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<MovedBytes>,
    /// Grants that the client gives back; repeated until a batch with them is answered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub returns: Vec<GrantUseReport>,
    /// The client ends, with all of its grants and wishes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
}

/// A client's deadline, which becomes a guaranteed rate as far as its class allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Deadline))]
pub struct TransferDeadlineDemand {
    /// Bytes to move until then.
    pub bytes_left: u64,
    /// Time from now.
    pub in_ms: u64,
}

/// Bytes that a client has moved from or to a target, under any grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Moved))]
pub struct MovedBytes {
    /// The target.
    pub target: String,
    /// Bytes since the client began.
    pub bytes: u64,
}

/// A wish to work on a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Ask))]
#[serde(default)]
pub struct GrantRequest {
    /// The target's name, the same for all clients of the file system.
    pub target: String,
    /// Objects that wait for it.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time since the first wish: a restarted server recovers the order from it.
    pub waits_us: u64,
}

/// A grant that a client holds or gives back, and its use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Held))]
#[serde(default)]
pub struct GrantUseReport {
    /// The grant.
    pub id: u64,
    /// Its target.
    pub target: String,
    /// Time to its begin, as the client knows it.
    pub starts_in_us: u64,
    /// Time to its end, as the client knows it.
    pub ends_in_us: u64,
    /// Objects moved under it so far.
    pub objects: u64,
    /// Bytes moved under it so far.
    pub bytes: u64,
    /// The time that the target took for them, summed over its requests.
    pub busy_us: u64,
    /// True if no work waits and none is in service: another client may have it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_idle: bool,
}

/// The server's answer to a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Answer))]
#[serde(default)]
pub struct GrantReply {
    /// Number of the server's start, different for each start.
    pub epoch: u64,
    /// Number of the answered batch.
    pub number: u64,
    /// The class that the client counts as.
    pub class: String,
    /// True while a restarted server listens to the clients' grants. It has refused nothing yet: an unmanaged
    /// client stays so, and an unknown target may be started as before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_settling: bool,
    /// Every grant of the client on the targets of its batch. Its other grants have ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<TargetGrant>,
}

/// A lease of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Grant))]
#[serde(default)]
pub struct TargetGrant {
    /// Number of the grant, unique in its epoch.
    pub id: u64,
    /// The target.
    pub target: String,
    /// Time to its begin; 0 for now.
    pub starts_in_us: u64,
    /// Time to its end, unless a later answer extends it.
    pub ends_in_us: u64,
    /// Upper bound of bytes moved under it, with those moved so far; `None` for no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// Upper bound of requests in flight; `None` for no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_max: Option<u32>,
    /// True if others wait for the target: the grant is given back as soon as it is not needed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub others_wait: bool,
}
