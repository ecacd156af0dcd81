//! Limits of a daemon.

use std::time::Duration;

use carrack_model::limits::{IO_THREADS_MAX, POOL_BYTES_DEFAULT};
use serde::Deserialize;

use super::value::{number_in_range, optional_number_in_range, size};

/// The limits, all of them on work that strangers or clients can cause in the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DaemonLimits {
    /// Connections whose kind is not known yet; beyond this number the oldest is closed.
    #[serde(deserialize_with = "number_in_range::<1, 100_000, _>")]
    pub half_open: u64,
    /// Processes that have not admitted their client yet; further clients wait, as half-open connections.
    #[serde(deserialize_with = "number_in_range::<1, 4_096, _>")]
    pub handshakes: u64,
    /// Connections of one address (of IPv6, one /64) that are half-open or in their handshake. A session may
    /// make 64 data connections at a time, so that twice as many leave room for two sessions that begin at
    /// once.
    #[serde(deserialize_with = "number_in_range::<1, 100_000, _>")]
    pub per_address: u64,
    /// Time that a connection may be half-open, and the time that its TLS handshake may take afterwards, in
    /// seconds.
    #[serde(deserialize_with = "number_in_range::<1, 600, _>")]
    handshake_seconds: u64,
    /// Duration of a session at most, in seconds; unlimited by default.
    #[serde(deserialize_with = "optional_number_in_range::<1, 31_536_000, _>")]
    session_seconds: Option<u64>,
    /// Time without progress after which a session is ended, in seconds.
    #[serde(deserialize_with = "number_in_range::<1, 31_536_000, _>")]
    idle_seconds: u64,
    /// Simultaneous sessions.
    #[serde(deserialize_with = "number_in_range::<1, 4_096, _>")]
    pub sessions: u64,
    /// Simultaneous sessions of one identity.
    #[serde(deserialize_with = "number_in_range::<1, 4_096, _>")]
    pub sessions_per_identity: u64,
    /// Payload memory of a session, in bytes, beyond that of the smallest number of slots.
    #[serde(deserialize_with = "size")]
    pub buffer: u64,
    /// I/O threads of a session.
    #[serde(deserialize_with = "number_in_range::<1, { IO_THREADS_MAX as u64 }, _>")]
    pub io_threads: u64,
}

impl Default for DaemonLimits {
    fn default() -> Self {
        DaemonLimits {
            half_open: 512,
            handshakes: 64,
            per_address: 128,
            handshake_seconds: 10,
            session_seconds: None,
            idle_seconds: 3_600,
            sessions: 64,
            sessions_per_identity: 8,
            buffer: POOL_BYTES_DEFAULT,
            io_threads: 64,
        }
    }
}

impl DaemonLimits {
    /// Returns the time that a connection may be half-open, and that its TLS handshake may take afterwards.
    pub fn handshake_timeout(&self) -> Duration {
        Duration::from_secs(self.handshake_seconds)
    }

    /// Returns the time without progress after which a session is ended.
    pub fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_seconds)
    }

    /// Returns the limit of a session's duration.
    pub fn session_time_limit(&self) -> Option<Duration> {
        self.session_seconds.map(Duration::from_secs)
    }
}
