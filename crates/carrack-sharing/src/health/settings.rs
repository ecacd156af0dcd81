//! `[sharing.health]`: the settings of the feed. Pure.

use std::path::PathBuf;

use bytesize::ByteSize;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::capacity::TargetCapacity;
use super::load_error::LoadMonitorError;
use super::name_template::TargetNameFromLabels;
use super::preset::{ExporterPreset, PrometheusQueries};
use super::prometheus::PrometheusServerAddress;

/// Seconds between two measurements. A grant server treats a load as unknown after 5 min, so several may fail
/// before that.
const EVERY_S: u64 = 15;

/// The window of the rates: it contains two samples even if servers are scraped once a minute.
const WINDOW_S: u64 = 120;

/// The default cost of a request to a target, as a transfer of this size: between a disk, where a seek takes
/// the time of a MiB, and flash, where it takes the time of some KiB.
const REQUEST_BYTES: u64 = 64 << 10;

/// The settings of load measurement.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadMonitorSettings {
    /// The Prometheus server.
    pub prometheus: PrometheusServerAddress,
    /// A file of the trusted CAs of an https:// address, PEM; by default the system's.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// The exporter whose metrics the server has. The queries below take precedence.
    #[serde(default)]
    pub preset: Option<ExporterPreset>,
    /// PromQL: bytes read per second.
    #[serde(default)]
    pub read_bytes: Option<String>,
    /// PromQL: bytes written per second.
    #[serde(default)]
    pub write_bytes: Option<String>,
    /// PromQL: requests per second that read.
    #[serde(default)]
    pub reads: Option<String>,
    /// PromQL: requests per second that write.
    #[serde(default)]
    pub writes: Option<String>,
    /// The template of target names from labels, such as `{instance:host}/{device}`.
    #[serde(default)]
    pub target_name: Option<String>,
    /// Seconds between two measurements.
    #[serde(default = "every_s", deserialize_with = "every")]
    pub every_s: u64,
    /// Seconds of the window of rates: `$window` in queries.
    #[serde(default = "window_s", deserialize_with = "window")]
    pub window_s: u64,
    /// The capacity of targets.
    #[serde(default)]
    pub capacity: TargetCapacity,
    /// Requests of fewer bytes count as if they had this size.
    #[serde(default = "request_bytes", deserialize_with = "size")]
    pub request_bytes: u64,
    /// The source of the past at the start.
    #[serde(default)]
    pub history: HistorySource,
}

/// The source of the past.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum HistorySource {
    /// Prometheus: up to four weeks, as far as it keeps them.
    #[default]
    Prometheus,
    /// None: the history begins with the first measurement.
    None,
    /// A CSV file, in bytes per second.
    Csv(PathBuf),
}

impl From<String> for HistorySource {
    fn from(text: String) -> HistorySource {
        match text.as_str() {
            "prometheus" => HistorySource::Prometheus,
            "none" => HistorySource::None,
            _ => HistorySource::Csv(text.into()),
        }
    }
}

impl LoadMonitorSettings {
    /// The settings of a preset at a server, the others by default.
    pub fn of_preset(prometheus: PrometheusServerAddress, preset: ExporterPreset) -> LoadMonitorSettings {
        LoadMonitorSettings {
            prometheus,
            ca: None,
            preset: Some(preset),
            read_bytes: None,
            write_bytes: None,
            reads: None,
            writes: None,
            target_name: None,
            every_s: EVERY_S,
            window_s: WINDOW_S,
            capacity: TargetCapacity::default(),
            request_bytes: REQUEST_BYTES,
            history: HistorySource::default(),
        }
    }

    /// The queries: the preset's, unless configured.
    ///
    /// # Errors
    /// [`LoadMonitorError::NoQuery`] if no query measures bytes, or no template names targets.
    pub fn queries(&self) -> Result<PrometheusQueries, LoadMonitorError> {
        let preset = self.preset.map(ExporterPreset::queries).unwrap_or_default();
        let queries = PrometheusQueries {
            read_bytes: query_of(&self.read_bytes, preset.read_bytes),
            write_bytes: query_of(&self.write_bytes, preset.write_bytes),
            reads: query_of(&self.reads, preset.reads),
            writes: query_of(&self.writes, preset.writes),
            target_name: self.target_name.clone().unwrap_or(preset.target_name),
        };
        let asks = queries.read_bytes.is_some() || queries.write_bytes.is_some();
        if asks && !queries.target_name.is_empty() { Ok(queries) } else { Err(LoadMonitorError::NoQuery) }
    }

    pub(super) fn target_name(&self) -> Result<TargetNameFromLabels, LoadMonitorError> {
        TargetNameFromLabels::parse(&self.queries()?.target_name).map_err(LoadMonitorError::System)
    }
}

/// The configured query, or else the preset's. An empty one means none.
fn query_of(configured: &Option<String>, preset: Option<String>) -> Option<String> {
    configured.clone().or(preset).filter(|query| !query.trim().is_empty())
}

fn every_s() -> u64 {
    EVERY_S
}

fn window_s() -> u64 {
    WINDOW_S
}

fn request_bytes() -> u64 {
    REQUEST_BYTES
}

fn every<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserialize_in_range(deserializer, 1, 120)
}

fn window<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserialize_in_range(deserializer, 1, 3600)
}

fn deserialize_in_range<'de, D: Deserializer<'de>>(
    deserializer: D,
    least: u64,
    most: u64,
) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        number if (least..=most).contains(&number) => Ok(number),
        number => {
            Err(D::Error::custom(format!("{number} is out of range\nhint: it may be {least} to {most}")))
        }
    }
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.trim().parse::<ByteSize>() {
        Ok(ByteSize(bytes)) => Ok(bytes),
        Err(_) => Err(D::Error::custom(format!(
            "{text:?} is no amount of bytes\nhint: write a number and a unit, such as \"64KiB\""
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_before_the_preset() {
        let settings: LoadMonitorSettings = toml::from_str(
            "prometheus = \"http://m:9090\"\npreset = \"node_exporter\"\nwrites = \"\"\n\
             read_bytes = \"sum by (x) (r)\"\ntarget_name = \"{x}\"\nhistory = \"/a.csv\"\nrequest_bytes = \"0\"\n",
        )
        .unwrap();
        let queries = settings.queries().unwrap();
        assert_eq!((queries.read_bytes.as_deref(), queries.writes), (Some("sum by (x) (r)"), None));
        assert!(queries.reads.unwrap().starts_with("rate(node_disk_reads_completed_total"));
        assert_eq!((&*queries.target_name, settings.every_s, settings.request_bytes), ("{x}", 15, 0));
        assert_eq!(settings.history, HistorySource::Csv("/a.csv".into()));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, word) in [
            ("", "prometheus"),
            ("prometheus = \"m:9090\"", "no address"),
            ("prometheus = \"http://m\"\npreset = \"zfs\"", "zfs"),
            ("prometheus = \"http://m\"\nreed = \"x\"", "reed"),
            ("prometheus = \"http://m\"\nevery_s = 0", "1 to 120"),
            ("prometheus = \"http://m\"\nrequest_bytes = \"x\"", "hint: "),
        ] {
            let error = toml::from_str::<LoadMonitorSettings>(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
        let settings: LoadMonitorSettings = toml::from_str("prometheus = \"http://m\"").unwrap();
        assert!(matches!(settings.queries(), Err(LoadMonitorError::NoQuery)));
    }
}
