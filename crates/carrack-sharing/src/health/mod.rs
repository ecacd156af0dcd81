//! The load of computation on storage targets, measured and forecast (L11), from the site's Prometheus.
//!
//! A [`HealthFeed`] queries each target's bytes and requests per second, subtracts the transfers' own load,
//! keeps four weeks of history, and reports the present and expected load of each target. It decides nothing:
//! the grant server does. `docs/forecast.md` is its manual.
//!
//! All calls block and need a thread of their own ([`HealthThread`]). Prometheus' answers are bounded in
//! bytes, targets and time before they are used.

mod answers;
mod capacity;
mod error;
mod feed;
mod measured;
mod own_rates;
mod preset;
mod prometheus;
mod settings;
mod storage;
mod target;
mod target_name;
mod thread;

pub use capacity::TargetCapacity;
pub use error::HealthError;
pub use feed::{FeedResult, HealthFeed, histories_of_csv};
pub use preset::{ExporterPreset, PrometheusQueries};
pub use prometheus::{BadPrometheusAddress, PrometheusAddress};
pub use settings::{HealthSettings, HistorySource};
pub use storage::{KnownNames, StorageHistory, percentile_99};
pub use thread::HealthThread;

#[cfg(test)]
mod feed_tests;
#[cfg(test)]
mod test_prometheus;
