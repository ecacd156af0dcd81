//! Source of a storage system's load: the options of `carrack forecast` and `carrack submit --when=best`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use carrack_plan::forecast::LoadHistory;
use carrack_sharing::health::{
    ExporterPreset, HistorySource, LoadMonitor, LoadMonitorError, LoadMonitorSettings,
    PrometheusServerAddress, StorageHistory, TargetCapacity, UnknownStorageError, percentile_99,
    read_csv_histories,
};
use clap::{Args, ValueHint};
use serde::Deserialize;

use crate::size;
use crate::user_error::UserError;
use crate::views::forecast::LoadUnit;

const HEADING: &str = "Load measurements";

/// The longest configuration that is read, in bytes, as for a daemon's.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Args)]
pub struct LoadSourceArgs {
    /// A file with columns time, target, load
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = HEADING,
          conflicts_with_all = ["prometheus", "config"])]
    csv: Option<PathBuf>,

    /// A Prometheus server, http://HOST:PORT or https://HOST:PORT
    #[arg(long, value_name = "URL", requires = "preset", help_heading = HEADING)]
    prometheus: Option<PrometheusServerAddress>,

    /// The exporter whose metrics it has: lustre_exporter, ceph, node_exporter
    #[arg(long, value_name = "NAME", requires = "prometheus", help_heading = HEADING)]
    preset: Option<ExporterPreset>,

    /// A daemon's configuration with a section [sharing.health]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = HEADING, conflicts_with = "prometheus")]
    config: Option<PathBuf>,

    /// Most load that a target can bear: bytes per second, or a number in the unit of the CSV [default: its
    /// 99th percentile]
    #[arg(long, value_name = "MOST", value_parser = parse_capacity, help_heading = HEADING)]
    capacity: Option<f64>,
}

/// Parses a number above 0, or a size.
fn parse_capacity(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        Ok(_) => Err("a number above 0 is needed".to_owned()),
        Err(_) => size::parse(text).map(|bytes| bytes as f64),
    }
}

impl LoadSourceArgs {
    /// Returns the measured load of a target or a file system, and its unit.
    ///
    /// # Errors
    /// If there are no measurements.
    pub fn storage_history(&self, name: &str, now_s: i64) -> Result<(StorageHistory, LoadUnit), UserError> {
        if let Some(path) = &self.csv {
            let histories = read_csv_histories(path, now_s).map_err(|error| monitor_user_error(&error))?;
            return Ok((self.csv_storage_history(name, &histories, now_s)?, LoadUnit::Unnamed));
        }
        let mut settings = match (&self.prometheus, self.preset, &self.config) {
            (Some(address), Some(preset), _) => LoadMonitorSettings::of_preset(address.clone(), preset),
            (_, _, Some(path)) => read_monitor_settings(path)?,
            _ => {
                let hint = "name --csv FILE, --prometheus URL with --preset NAME, or --config FILE; docs/forecast.md has more";
                return Err(UserError::new(format!("nothing is known of the load of {name}")).hint(hint));
            }
        };
        if let Some(most) = self.capacity {
            settings.capacity = TargetCapacity::of_all(most);
        }
        if settings.history == HistorySource::None {
            settings.history = HistorySource::Prometheus;
        }
        let mut feed = LoadMonitor::new(settings, now_s).map_err(|error| monitor_user_error(&error))?;
        feed.read_all(now_s).map_err(|error| monitor_user_error(&error))?;
        let storage =
            feed.storage_history(name, now_s).map_err(|names| unknown_storage_error(name, &names))?;
        Ok((storage, LoadUnit::BytesPerSecond))
    }

    fn csv_storage_history(
        &self,
        name: &str,
        histories: &BTreeMap<String, LoadHistory>,
        now_s: i64,
    ) -> Result<StorageHistory, UserError> {
        let all = histories.iter().map(|(target, history)| {
            let capacity = self.capacity.or_else(|| percentile_99(history).filter(|&most| most > 0.0));
            (target.as_str(), history, capacity)
        });
        StorageHistory::gather(name, all, now_s).map_err(|names| unknown_storage_error(name, &names))
    }
}

fn unknown_storage_error(name: &str, names: &UnknownStorageError) -> UserError {
    let trouble = UserError::new(format!("no load of {name} was measured")).escaped();
    match names.0.as_slice() {
        [] => trouble.hint("nothing was measured of any target: are queries or the file the right ones?"),
        some => trouble.hint(format!("there are {}", some.join(", "))).escaped(),
    }
}

fn monitor_user_error(error: &LoadMonitorError) -> UserError {
    UserError::explained(error, error.hint()).escaped()
}

fn file_error(path: &Path, reason: &dyn std::fmt::Display) -> UserError {
    UserError::new(format!("{}: {reason}", path.display())).escaped()
}

fn read_monitor_settings(path: &Path) -> Result<LoadMonitorSettings, UserError> {
    #[derive(Deserialize)]
    struct LoadMonitorConfigFile {
        sharing: Option<SharingConfigSection>,
    }
    #[derive(Deserialize)]
    struct SharingConfigSection {
        health: Option<LoadMonitorSettings>,
    }
    let file = File::open(path).map_err(|error| file_error(path, &error))?;
    let mut text = String::new();
    let length = file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text);
    if length.map_err(|error| file_error(path, &error))? as u64 > CONFIG_BYTES_MAX {
        return Err(file_error(path, &"too long for a configuration"));
    }
    let config: LoadMonitorConfigFile = toml::from_str(&text).map_err(|error| {
        let (message, hint) = error.message().split_once("\nhint: ").unwrap_or((error.message(), ""));
        UserError::explained(file_error(path, &message).message, Some(hint))
    })?;
    let health = config.sharing.and_then(|sharing| sharing.health);
    health.ok_or_else(|| {
        file_error(path, &"it has no section [sharing.health]").hint("docs/forecast.md has a sample")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::parse;

    fn storage(words: &[&str], name: &str) -> Result<(StorageHistory, LoadUnit), UserError> {
        parse::<LoadSourceArgs>(words).unwrap().storage_history(name, 10_000)
    }

    #[test]
    fn a_file_without_a_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        std::fs::write(&path, "time,target,load\n300,fs/a,2\n600,fs/a,4\n300,fs/b,6\n").unwrap();
        let csv = path.to_str().unwrap();
        let (found, unit) = storage(&["--csv", csv], "fs").unwrap();
        assert_eq!((found.targets, found.capacity, unit), (2, Some(5.0), LoadUnit::Unnamed));
        let (found, _) = storage(&["--csv", csv, "--capacity", "8"], "fs/a").unwrap();
        assert_eq!((found.targets, found.capacity), (1, Some(8.0)));
        let trouble = storage(&["--csv", csv], "other").unwrap_err();
        assert!(trouble.hint.unwrap().contains("fs/a, fs/b"));
    }

    #[test]
    fn what_is_missing_or_wrong_is_said() {
        assert!(storage(&[], "fs").unwrap_err().hint.unwrap().contains("--csv"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.toml");
        let config = path.to_str().unwrap();
        for (text, word) in [
            ("[queue]\ndirectory = \"/x\"\n", "no section"),
            ("[sharing.health]\nprometheus = \"x\"\n", "no address"),
            ("[sharing.health]\nprometheus = \"http://127.0.0.1:1\"\n", "nothing says what"),
            ("[sharing.health]\nprometheus = \"http://127.0.0.1:1\"\npreset = \"ceph\"\n", "127.0.0.1:1"),
        ] {
            std::fs::write(&path, text).unwrap();
            let trouble = storage(&["--config", config], "fs").unwrap_err();
            assert!(trouble.message.contains(word) && trouble.hint.is_some(), "{text}: {trouble:?}");
        }
        for words in
            [["--preset", "ceph"], ["--prometheus", "http://m"], ["--capacity", "0"], ["--capacity", "nan"]]
        {
            assert!(parse::<LoadSourceArgs>(&words).is_err(), "{words:?}");
        }
        assert_eq!((parse_capacity("2GB"), parse_capacity("0.5")), (Ok(2e9), Ok(0.5)));
    }
}
