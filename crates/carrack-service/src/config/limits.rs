//! How much a daemon lets itself be asked for.

use std::time::Duration;

use carrack_model::limits::{IO_THREADS_MAX, POOL_BYTES_DEFAULT};
use serde::Deserialize;

use super::value::{optional_within, size, within};

/// The bounds, all of them on what strangers or clients can make the daemon do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections that have not said anything that tells what they are; beyond it the oldest is closed.
    #[serde(deserialize_with = "within::<1, 100_000, _>")]
    pub half_open: u64,
    /// Processes that have not admitted their client yet; further clients wait, as half-open connections.
    #[serde(deserialize_with = "within::<1, 4_096, _>")]
    pub handshakes: u64,
    /// Connections of one address (of IPv6, one /64) that are half-open or in their handshake. A session may make 64
    /// data connections at a time, so that twice as many leave room for two that begin at once.
    #[serde(deserialize_with = "within::<1, 100_000, _>")]
    pub per_address: u64,
    /// How long a connection may be half-open, and then how long its TLS handshake may take, in seconds.
    #[serde(deserialize_with = "within::<1, 600, _>")]
    handshake_seconds: u64,
    /// How long a session may last, in seconds; as long as it likes if it isn't said.
    #[serde(deserialize_with = "optional_within::<1, 31_536_000, _>")]
    session_seconds: Option<u64>,
    /// How long nothing may move in a session before it is ended, in seconds.
    #[serde(deserialize_with = "within::<1, 31_536_000, _>")]
    idle_seconds: u64,
    /// Sessions at the same time.
    #[serde(deserialize_with = "within::<1, 4_096, _>")]
    pub sessions: u64,
    /// Sessions of one identity at the same time.
    #[serde(deserialize_with = "within::<1, 4_096, _>")]
    pub sessions_per_identity: u64,
    /// Payload memory of a session, in bytes, beyond what the smallest number of slots takes.
    #[serde(deserialize_with = "size")]
    pub buffer: u64,
    /// I/O threads of a session.
    #[serde(deserialize_with = "within::<1, { IO_THREADS_MAX as u64 }, _>")]
    pub io_threads: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
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

impl Limits {
    /// How long a connection may be half-open, and then how long its TLS handshake may take.
    pub fn handshake(&self) -> Duration {
        Duration::from_secs(self.handshake_seconds)
    }

    /// How long nothing may move in a session.
    pub fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_seconds)
    }

    /// How long a session may last.
    pub fn session(&self) -> Option<Duration> {
        self.session_seconds.map(Duration::from_secs)
    }
}
