//! The load of computation on storage targets, measured and forecast (L11), from the site's Prometheus.
//!
//! A [`LoadMonitor`] queries each target's bytes and requests per second, subtracts the transfers' own load,
//! keeps four weeks of history, and reports the present and expected load of each target. It decides nothing:
//! the grant server does. `docs/forecast.md` is its manual.
//!
//! All calls block and need a thread of their own ([`LoadMonitorThread`]). Prometheus' answers are bounded in
//! bytes, targets and time before they are used.

mod answers;
mod capacity;
mod load_error;
mod load_measurements;
mod load_monitor;
mod name_template;
mod preset;
mod prometheus;
mod settings;
mod storage_history;
mod target_load;
mod thread;
mod transfer_rates;

pub use capacity::TargetCapacity;
pub use load_error::LoadMonitorError;
pub use load_monitor::{LoadMonitor, MonitorReport, read_csv_histories};
pub use preset::{ExporterPreset, PrometheusQueries};
pub use prometheus::{BadPrometheusServerAddress, PrometheusServerAddress};
pub use settings::{HistorySource, LoadMonitorSettings};
pub use storage_history::{StorageHistory, UnknownStorageError, percentile_99};
pub use thread::LoadMonitorThread;

#[cfg(test)]
mod feed_tests;
#[cfg(test)]
mod test_prometheus;
