//! The feed: measures targets, keeps their histories, forecasts, and reports the part of each target that
//! others use.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use carrack_plan::forecast::{LoadHistory, STEP_S, TargetLoadSample, parse_csv};
use carrack_plan::grants::TargetComputeLoad;

use super::answers::MetricSeries;
use super::load_error::LoadMonitorError;
use super::load_measurements::{LoadQuantity, TargetLoadMeasurements, TargetRates};
use super::name_template::{NAME_BYTES_MAX, TargetNameFromLabels};
use super::preset::PrometheusQueries;
use super::prometheus::PrometheusQueryClient;
use super::settings::{HistorySource, LoadMonitorSettings};
use super::storage_history::{StorageHistory, UnknownStorageError};
use super::target_load::TargetLoadHistory;

/// The most targets: 512 MiB of histories. Further targets are ignored.
const TARGETS_MAX: usize = 4096;

/// The past that is read at the start: the length of a history.
const PAST_S: i64 = 28 * DAY_S;

const DAY_S: i64 = 86_400;

/// The past is read in pieces of a day, and of less if answers get too long, down to this.
const PIECE_LEAST_S: i64 = 3600;

/// Pieces in one step: a measurement must not wait for a month of the past.
const PIECES_IN_STEP: usize = 4;

/// Forecasts in one step: each takes up to 80 ms. With a step each 15 s that is 160 targets in the five
/// minutes of a slot; with more targets, forecasts are older.
const FORETOLD_IN_STEP: usize = 8;

/// The shortest gap that is filled when Prometheus answers again.
const GAP_LEAST_S: i64 = 2 * STEP_S;

/// The longest CSV, in bytes: four weeks of 64 targets.
const CSV_BYTES_MAX: u64 = 64 << 20;

/// The longest file of CAs, in bytes.
const CA_BYTES_MAX: u64 = 1 << 20;

/// The result of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MonitorReport {
    /// The load of each target that was measured and whose capacity is known.
    pub loads: Vec<(String, TargetComputeLoad)>,
    /// Notices for people, each when a condition begins or ends.
    pub notices: Vec<String>,
}

/// An unread part of the past, in Unix seconds and whole slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnqueriedInterval {
    start_s: i64,
    end_s: i64,
}

/// Measures targets by Prometheus (L11). It blocks, so it needs a thread of its own, not an async task.
pub struct LoadMonitor {
    settings: LoadMonitorSettings,
    prometheus: PrometheusQueryClient,
    queries: Vec<(LoadQuantity, String)>,
    names: TargetNameFromLabels,
    targets: BTreeMap<String, TargetLoadHistory>,
    /// The newest part last.
    unread: Vec<UnqueriedInterval>,
    /// The time of the last measurement; `None` before the first.
    measured_s: Option<i64>,
    trouble: ReportedConditions,
}

/// The conditions that were reported and continue.
#[derive(Debug, Default)]
struct ReportedConditions {
    is_away: bool,
    knows_nothing: bool,
    has_no_past: bool,
    is_full: bool,
    told_full: bool,
}

impl LoadMonitor {
    /// Prepares a feed. Reads a CSV history, but sends no query yet.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn new(settings: LoadMonitorSettings, now_s: i64) -> Result<LoadMonitor, LoadMonitorError> {
        let cas = match &settings.ca {
            Some(path) => Some(read(path, CA_BYTES_MAX)?.into_bytes()),
            None => None,
        };
        let mut feed = LoadMonitor {
            prometheus: PrometheusQueryClient::new(settings.prometheus.clone(), cas)?,
            queries: queries_by_quantity(settings.queries()?),
            names: settings.target_name()?,
            targets: BTreeMap::new(),
            unread: Vec::new(),
            measured_s: None,
            trouble: ReportedConditions::default(),
            settings,
        };
        match feed.settings.history.clone() {
            HistorySource::Prometheus => feed.mark_unread(now_s - PAST_S, now_s),
            HistorySource::None => {}
            HistorySource::Csv(path) => feed.read_csv(&path, now_s)?,
        }
        Ok(feed)
    }

    /// Seconds between two steps.
    pub fn every_s(&self) -> u64 {
        self.settings.every_s
    }

    /// Seconds of the window over which measurements are means.
    pub fn window_s(&self) -> u64 {
        self.settings.window_s
    }

    /// Measures once. `own` has the bytes per second that transfers moved at each target, as a mean over the
    /// settings' window; they are subtracted. If Prometheus does not answer, the step has no loads, and grant
    /// servers soon treat the last loads as unknown.
    pub fn step(&mut self, now_s: i64, own: &BTreeMap<String, f64>) -> MonitorReport {
        let mut step = MonitorReport::default();
        let window_s = self.settings.window_s;
        let measured = match self.run_queries(window_s, |prometheus, query| prometheus.query_at(query, now_s))
        {
            Ok(measured) => measured,
            Err(error) => {
                if !std::mem::replace(&mut self.trouble.is_away, true) {
                    step.notices.push(format!(
                        "{error}: computation's load is not known, and transfers go on without it"
                    ));
                }
                return step;
            }
        };
        self.handle_recovery(now_s, &mut step);
        for ((name, _), measured) in measured.0 {
            let others =
                self.pressure(measured.without_own_transfers(own.get(&name).copied().unwrap_or(0.0)));
            let all = self.pressure(measured);
            let Some(target) = self.target(&name) else { continue };
            target.add_measurement(now_s, others, all, now_s);
            step.loads.extend(target.load(others, now_s).map(|load| (name, load)));
        }
        let past = (0..PIECES_IN_STEP).try_for_each(|_| self.read_past(now_s));
        let had_past = !std::mem::replace(&mut self.trouble.has_no_past, past.is_err());
        step.notices
            .extend(past.err().filter(|_| had_past).map(|error| format!("the past can't be read: {error}")));
        self.update_forecasts(now_s);
        self.add_limit_notices(&mut step);
        step
    }

    /// Reads all of the unread past, and finds each target's capacity.
    ///
    /// # Errors
    /// The reason why Prometheus does not give it.
    pub fn read_all(&mut self, now_s: i64) -> Result<(), LoadMonitorError> {
        while !self.unread.is_empty() {
            self.read_past(now_s)?;
        }
        self.targets.values_mut().for_each(TargetLoadHistory::find_capacity);
        Ok(())
    }

    /// The history of a target, or of all targets of a file system.
    ///
    /// # Errors
    /// Some existing names, if no target has this name.
    pub fn storage_history(&self, name: &str, now_s: i64) -> Result<StorageHistory, UnknownStorageError> {
        let all = self.targets.iter();
        let all = all.map(|(name, target)| (name.as_str(), target.history(), target.capacity()));
        StorageHistory::gather(name, all, now_s)
    }

    /// Sends all queries with `send`.
    fn run_queries(
        &self,
        window_s: u64,
        mut send: impl FnMut(&PrometheusQueryClient, &str) -> Result<Vec<MetricSeries>, LoadMonitorError>,
    ) -> Result<TargetLoadMeasurements, LoadMonitorError> {
        let mut measured = TargetLoadMeasurements::default();
        for (quantity, query) in &self.queries {
            let query = query.replace("$window", &format!("{window_s}s"));
            measured.add(*quantity, &send(&self.prometheus, &query)?, &self.names);
        }
        Ok(measured)
    }

    fn pressure(&self, measured: TargetRates) -> f64 {
        measured.pressure(self.settings.request_bytes as f64)
    }

    /// The target of this name, added if there is room.
    fn target(&mut self, name: &str) -> Option<&mut TargetLoadHistory> {
        if !self.targets.contains_key(name) {
            if self.targets.len() >= TARGETS_MAX {
                self.trouble.is_full = true;
                return None;
            }
            let capacity = self.settings.capacity.capacity_of(name);
            self.targets.insert(name.to_owned(), TargetLoadHistory::new(capacity));
        }
        self.targets.get_mut(name)
    }

    /// Handles an answer after a failure: marks the gap as unread.
    fn handle_recovery(&mut self, now_s: i64, step: &mut MonitorReport) {
        if std::mem::take(&mut self.trouble.is_away) {
            step.notices.push(format!("Prometheus at {} answers again", self.settings.prometheus));
        }
        let last_s = self.measured_s.replace(now_s).unwrap_or(now_s);
        let keeps_past = self.settings.history == HistorySource::Prometheus;
        if keeps_past && now_s - last_s >= GAP_LEAST_S {
            self.mark_unread(last_s + STEP_S, now_s);
        }
    }

    /// Marks the whole slots of a part of the past as unread, a part for each day.
    fn mark_unread(&mut self, start_s: i64, end_s: i64) {
        let start_s = start_s.div_euclid(STEP_S) * STEP_S;
        let end_s = end_s.div_euclid(STEP_S) * STEP_S;
        let days = (start_s..end_s).step_by(DAY_S as usize);
        self.unread.extend(
            days.map(|day_s| UnqueriedInterval { start_s: day_s, end_s: (day_s + DAY_S).min(end_s) }),
        );
    }

    /// Reads the newest unread piece of the past.
    fn read_past(&mut self, now_s: i64) -> Result<(), LoadMonitorError> {
        let Some(UnqueriedInterval { start_s, end_s }) = self.unread.last().copied() else { return Ok(()) };
        // Prometheus gives the rate of a slot at the slot's end.
        let asked = self.run_queries(STEP_S.unsigned_abs(), |prometheus, query| {
            prometheus.query_range(query, start_s + STEP_S, end_s, STEP_S)
        });
        let measured = match asked {
            Err(LoadMonitorError::TooLong { .. }) if end_s - start_s > PIECE_LEAST_S => {
                let middle_s = start_s + (end_s - start_s) / 2 / STEP_S * STEP_S;
                self.unread.pop();
                self.unread.push(UnqueriedInterval { start_s, end_s: middle_s });
                self.unread.push(UnqueriedInterval { start_s: middle_s, end_s });
                return Ok(());
            }
            measured => measured?,
        };
        self.unread.pop();
        for ((name, at_s), measured) in measured.0 {
            let pressure = self.pressure(measured);
            if let Some(target) = self.target(&name) {
                target.add_measurement(at_s - STEP_S, pressure, pressure, now_s);
            }
        }
        Ok(())
    }

    fn read_csv(&mut self, path: &Path, now_s: i64) -> Result<(), LoadMonitorError> {
        for (name, history) in read_csv_histories(path, now_s)? {
            let Some(target) = self.target(&name) else { continue };
            for TargetLoadSample { at_s, load } in history.measured_samples() {
                target.add_measurement(at_s, load, load, now_s);
            }
        }
        Ok(())
    }

    /// Forecasts the targets with the oldest forecasts, once in each slot.
    fn update_forecasts(&mut self, now_s: i64) {
        let slot = now_s.div_euclid(STEP_S);
        let mut due: Vec<&mut TargetLoadHistory> =
            self.targets.values_mut().filter(|target| target.forecast_slot() != Some(slot)).collect();
        due.sort_by_key(|target| target.forecast_slot());
        due.into_iter().take(FORETOLD_IN_STEP).for_each(|target| target.update_forecast(now_s));
    }

    fn add_limit_notices(&mut self, step: &mut MonitorReport) {
        let knows_nothing = self.targets.is_empty();
        if knows_nothing && !self.trouble.knows_nothing {
            let address = &self.settings.prometheus;
            step.notices
                .push(format!("Prometheus at {address} has none of the metrics that it is asked for"));
        }
        self.trouble.knows_nothing = knows_nothing;
        if self.trouble.is_full && !std::mem::replace(&mut self.trouble.told_full, true) {
            step.notices.push(format!("there are more than {TARGETS_MAX} targets: the rest is not measured"));
        }
    }
}

/// The configured queries.
fn queries_by_quantity(queries: PrometheusQueries) -> Vec<(LoadQuantity, String)> {
    let PrometheusQueries { read_bytes, write_bytes, reads, writes, .. } = queries;
    let bytes = [read_bytes, write_bytes].into_iter().flatten().map(|query| (LoadQuantity::Bytes, query));
    let requests = [reads, writes].into_iter().flatten().map(|query| (LoadQuantity::Requests, query));
    bytes.chain(requests).collect()
}

/// Reads a file of at most `most` bytes.
fn read(path: &Path, most: u64) -> Result<String, LoadMonitorError> {
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    let mut text = String::new();
    let length = file.take(most + 1).read_to_string(&mut text).map_err(|error| unreadable(path, error))?;
    if length as u64 > most { Err(unreadable(path, format!("longer than {most} bytes"))) } else { Ok(text) }
}

fn unreadable(path: &Path, reason: impl ToString) -> LoadMonitorError {
    LoadMonitorError::File { path: path.to_path_buf(), reason: reason.to_string() }
}

/// The histories of a CSV file (its form is in `carrack_plan::forecast`), without capacities.
///
/// # Errors
/// If it can't be read.
pub fn read_csv_histories(
    path: &Path,
    now_s: i64,
) -> Result<BTreeMap<String, LoadHistory>, LoadMonitorError> {
    let text = read(path, CSV_BYTES_MAX)?;
    let samples =
        parse_csv(&text).map_err(|error| LoadMonitorError::Csv { path: path.to_path_buf(), error })?;
    let mut histories: BTreeMap<String, LoadHistory> = BTreeMap::new();
    for sample in samples.into_iter().filter(|sample| sample.target.len() <= NAME_BYTES_MAX) {
        if histories.len() < TARGETS_MAX || histories.contains_key(sample.target) {
            histories.entry(sample.target.to_owned()).or_default().add(sample.sample, now_s);
        }
    }
    Ok(histories)
}

#[cfg(test)]
impl LoadMonitor {
    /// Replaces the unread parts of the past by this part.
    pub(super) fn mark_only_unread(&mut self, start_s: i64, end_s: i64) {
        self.unread.clear();
        self.mark_unread(start_s, end_s);
    }
}
