//! What computation does to storage targets, measured and expected (L11): asked of the site's Prometheus.
//!
//! A [`HealthFeed`] asks for each target's bytes and requests per second, takes off what the transfers themselves have moved, keeps
//! four weeks of it, and says what part of each target is used now and is expected to be used soon. It decides nothing: who
//! may use a target is the grant server's matter. `docs/forecast.md` is its manual.
//!
//! Everything here blocks, and belongs on a thread of its own ([`HealthThread`]). What Prometheus says is bounded in bytes, in
//! targets and in time before it is used.

mod answers;
mod capacity;
mod error;
mod feed;
mod measured;
mod own;
mod preset;
mod prometheus;
mod settings;
mod storage;
mod target;
mod target_name;
mod thread;

pub use capacity::Capacity;
pub use error::HealthError;
pub use feed::{HealthFeed, Step, histories_of_csv};
pub use preset::{Preset, Queries};
pub use prometheus::{Address, NotAnAddress};
pub use settings::{HealthSettings, HistorySource};
pub use storage::{Names, StorageHistory, percentile_99};
pub use thread::HealthThread;

#[cfg(test)]
mod feed_tests;
#[cfg(test)]
mod pretended;
