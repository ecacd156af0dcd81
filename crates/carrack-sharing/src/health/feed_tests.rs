//! The feed against a test server that answers in the form of Prometheus.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carrack_plan::forecast::{ForecastMethod, STEP_S};
use serde_json::{Value, json};

use super::preset::ExporterPreset;
use super::settings::{HistorySource, LoadMonitorSettings};
use super::test_prometheus::TestPrometheus;
use super::{
    LoadMonitor, LoadMonitorError, LoadMonitorThread, PrometheusServerAddress, TargetCapacity,
    read_csv_histories,
};

/// A Sunday's midnight, so that days are whole.
const MIDNIGHT_S: i64 = 1_767_484_800;
const HOUR_S: i64 = 3600;

fn settings(address: PrometheusServerAddress) -> LoadMonitorSettings {
    let mut settings = LoadMonitorSettings::of_preset(address, ExporterPreset::LustreExporter);
    settings.capacity = TargetCapacity::of_all(1e9);
    settings.history = HistorySource::None;
    settings
}

fn parameter(path: &str, name: &str) -> String {
    let query = path.split_once('?').unwrap().1;
    let found = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}="))).unwrap();
    percent_encoding::percent_decode_str(found).decode_utf8().unwrap().into_owned()
}

fn success(kind: &str, result: Value) -> String {
    json!({"status": "success", "data": {"resultType": kind, "result": result}}).to_string()
}

/// Answers as a site with two OSTs, the first of which does `rate` per second of each kind at a time.
fn site(path: &str, rate: impl Fn(&str, i64) -> f64) -> String {
    let query = parameter(path, "query");
    let labels =
        |ost: &str| json!({"component": "ost", "target": format!("lfs01-{ost}"), "instance": "oss1:9169"});
    if path.starts_with("/api/v1/query?") {
        let at_s: i64 = parameter(path, "time").parse().unwrap();
        let point = |ost: &str, value: f64| json!({"metric": labels(ost), "value": [at_s as f64 + 0.5, value.to_string()]});
        return success("vector", json!([point("OST0000", rate(&query, at_s)), point("OST0001", 0.0)]));
    }
    let number = |name: &str| parameter(path, name).parse::<i64>().unwrap();
    let times = (number("start")..=number("end")).step_by(number("step") as usize);
    let points: Vec<Value> = times.map(|at_s| json!([at_s, rate(&query, at_s).to_string()])).collect();
    success("matrix", json!([{"metric": labels("OST0000"), "values": points}]))
}

fn none() -> BTreeMap<String, f64> {
    BTreeMap::new()
}

#[test]
fn load_is_what_others_do_by_what_the_target_can_bear() {
    let server = TestPrometheus::answering(|path| {
        site(path, |query, _| match query {
            "rate(lustre_read_bytes_total{component=\"ost\"}[120s])" => 300e6,
            "rate(lustre_write_bytes_total{component=\"ost\"}[120s])" => 100e6,
            "rate(lustre_read_samples_total{component=\"ost\"}[120s])" => 300.0,
            "rate(lustre_write_samples_total{component=\"ost\"}[120s])" => 100.0,
            other => panic!("{other}"),
        })
    });
    let mut feed = LoadMonitor::new(settings(server.address()), MIDNIGHT_S).unwrap();
    let step = feed.step(MIDNIGHT_S, &none());
    let loads: Vec<_> = step.loads.iter().map(|(name, load)| (&**name, load.present)).collect();
    assert_eq!((loads, step.notices.len()), (vec![("lfs01/OST0000", 0.4), ("lfs01/OST0001", 0.0)], 0));
    let own = BTreeMap::from([("lfs01/OST0000".to_owned(), 150e6), ("lfs01/OST0001".to_owned(), 150e6)]);
    let step = feed.step(MIDNIGHT_S + 15, &own);
    assert_eq!(
        (step.loads[0].1.present, step.loads[1].1.present),
        (0.25, 0.0),
        "its own bytes are taken off"
    );
}

#[test]
fn many_small_requests_are_a_load_too() {
    let server = TestPrometheus::answering(|path| {
        site(path, |query, _| if query.contains("samples") { 5_000.0 } else { 1e6 })
    });
    let mut feed = LoadMonitor::new(settings(server.address()), MIDNIGHT_S).unwrap();
    let load = feed.step(MIDNIGHT_S, &none()).loads[0].1.present;
    assert!((load - 10_000.0 * 65_536.0 / 1e9).abs() < 1e-9, "{load}");
}

/// Busy from noon to four, each day.
fn afternoons(query: &str, at_s: i64) -> f64 {
    let is_busy = (12..16).contains(&((at_s - 1).rem_euclid(86_400) / HOUR_S));
    if query.contains("read_bytes") && is_busy { 800e6 } else { 0.0 }
}

#[test]
fn the_past_is_read_and_what_it_foretells_counts_before_it_happens() {
    let server = TestPrometheus::answering(|path| site(path, afternoons));
    let past = LoadMonitorSettings { history: HistorySource::Prometheus, ..settings(server.address()) };
    let now_s = MIDNIGHT_S + 11 * HOUR_S + 3300;
    let mut feed = LoadMonitor::new(past, now_s).unwrap();
    let steps: Vec<_> = (0..8).map(|n| feed.step(now_s + 15 * n, &none())).collect();
    assert_eq!(steps.iter().map(|step| step.notices.len()).sum::<usize>(), 0, "{steps:?}");
    let found = feed.storage_history("lfs01/OST0000", now_s).unwrap();
    let days = found.history.measured_samples().count() as f64 * STEP_S as f64 / 86_400.0;
    assert!((27.9..=28.0).contains(&days) && found.history.coverage() > 0.99, "{days} days");
    assert_eq!(feed.step(now_s + 301, &none()).loads[0].1.present, 0.8, "it is noon");
    let forecast = found.history.forecast(now_s, 86_400).unwrap();
    assert_ne!(forecast.far, ForecastMethod::SameAsNow);
    let evening = now_s + 6 * HOUR_S;
    assert!(
        forecast.load_at(evening).unwrap() < 50e6 && forecast.load_at(now_s + 2 * HOUR_S).unwrap() > 700e6
    );
    // Before noon the load is only forecast.
    let mut feed = LoadMonitor::new(
        LoadMonitorSettings { history: HistorySource::Prometheus, ..settings(server.address()) },
        now_s - 300,
    )
    .unwrap();
    feed.read_all(now_s - 300).unwrap();
    feed.step(now_s - 20, &none());
    let load = feed.step(now_s + 5, &none()).loads[0].1;
    assert!(load.present == 0.0 && load.expected > 0.6, "{load:?}");
}

#[test]
fn too_long_answers_are_asked_for_in_smaller_pieces() {
    let shortest = Arc::new(Mutex::new(i64::MAX));
    let seen = Arc::clone(&shortest);
    let server = TestPrometheus::answering(move |path| {
        let span =
            parameter(path, "end").parse::<i64>().unwrap() - parameter(path, "start").parse::<i64>().unwrap();
        let mut seen = seen.lock().unwrap();
        *seen = span.min(*seen);
        if span > 7 * HOUR_S {
            " ".repeat(super::prometheus::ANSWER_BYTES_MAX + 1)
        } else {
            site(path, afternoons)
        }
    });
    let past = LoadMonitorSettings { history: HistorySource::Prometheus, ..settings(server.address()) };
    let mut feed = LoadMonitor::new(past, MIDNIGHT_S).unwrap();
    // Two days of the past are enough.
    feed.mark_only_unread(MIDNIGHT_S - 2 * 86_400, MIDNIGHT_S);
    feed.read_all(MIDNIGHT_S).unwrap();
    let found = feed.storage_history("lfs01", MIDNIGHT_S).unwrap();
    assert_eq!(found.history.measured_samples().count(), 2 * 288);
    assert_eq!(*shortest.lock().unwrap(), 6 * HOUR_S - STEP_S);
}

#[test]
fn a_server_that_is_away_is_told_of_once_and_what_it_measured_meanwhile_is_read() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let again = listener.try_clone().unwrap();
    let server = TestPrometheus::listening(listener, |path| site(path, afternoons));
    let past = LoadMonitorSettings { history: HistorySource::Prometheus, ..settings(server.address()) };
    let mut feed = LoadMonitor::new(past, MIDNIGHT_S).unwrap();
    feed.read_all(MIDNIGHT_S).unwrap();
    let begin_s = MIDNIGHT_S + 13 * HOUR_S;
    assert_eq!(feed.step(begin_s, &none()).loads.len(), 2);
    drop(server);
    let broken = TestPrometheus::listening(again.try_clone().unwrap(), |_| "<html>502</html>".to_owned());
    let told: Vec<_> = (1..9).map(|n| feed.step(begin_s + 300 * n, &none())).collect();
    assert!(told.iter().all(|step| step.loads.is_empty()));
    assert_eq!(told.iter().flat_map(|step| &step.notices).count(), 1, "{told:?}");
    drop(broken);
    let _server = TestPrometheus::listening(again, |path| site(path, afternoons));
    let back = feed.step(begin_s + 2700, &none());
    assert!(back.notices[0].contains("again"), "{back:?}");
    let gap = feed.storage_history("lfs01/OST0000", begin_s + 2700).unwrap().history;
    let gap: Vec<_> = gap.measured_samples().filter(|sample| sample.at_s >= begin_s).collect();
    assert_eq!(gap.len(), 10, "{gap:?}");
    assert!(gap.iter().all(|sample| sample.load == 800e6), "{gap:?}");
}

#[test]
fn nothing_measured_is_said_once() {
    let server = TestPrometheus::answering(|_| success("vector", json!([])));
    let mut feed = LoadMonitor::new(settings(server.address()), MIDNIGHT_S).unwrap();
    let notices: Vec<_> = (0..3).flat_map(|n| feed.step(MIDNIGHT_S + n, &none()).notices).collect();
    assert!(notices.len() == 1 && notices[0].contains("none of the metrics"), "{notices:?}");
}

#[test]
fn a_csv_is_a_history_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    std::fs::write(
        &path,
        format!("time,target,load\n{},fs/a,5\n{},fs/b,7\n", MIDNIGHT_S - 600, MIDNIGHT_S - 600),
    )
    .unwrap();
    let address: PrometheusServerAddress = "http://127.0.0.1:1".parse().unwrap();
    let past = LoadMonitorSettings { history: HistorySource::Csv(path.clone()), ..settings(address.clone()) };
    let feed = LoadMonitor::new(past, MIDNIGHT_S).unwrap();
    let found = feed.storage_history("fs", MIDNIGHT_S).unwrap();
    assert_eq!((found.targets, found.history.measured_samples().next().unwrap().load), (2, 6.0));
    assert_eq!(read_csv_histories(&path, MIDNIGHT_S).unwrap().len(), 2);
    std::fs::write(&path, "time,target\n").unwrap();
    let past = LoadMonitorSettings { history: HistorySource::Csv(path), ..settings(address) };
    assert!(matches!(LoadMonitor::new(past, MIDNIGHT_S).map(drop), Err(LoadMonitorError::Csv { .. })));
}

#[test]
fn a_thread_tells_loads_until_it_is_dropped() {
    let server = TestPrometheus::answering(|path| site(path, |_, _| 500e6));
    let mut often = settings(server.address());
    often.every_s = 1;
    let (told, hears) = channel();
    let tell = move |target: &str, load| drop(told.send((target.to_owned(), load)));
    let thread = LoadMonitorThread::start(often, Vec::new, tell, |notice| panic!("{notice}")).unwrap();
    for _ in 0..4 {
        let (target, load) = hears.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(load.present, if target == "lfs01/OST0000" { 1.0 } else { 0.0 }, "{target}");
    }
    drop(thread);
    while hears.try_recv().is_ok() {}
    assert!(hears.recv_timeout(Duration::from_millis(1500)).is_err());
}

#[test]
fn a_thread_that_cannot_measure_says_why() {
    let mut nothing = settings("http://127.0.0.1:1".parse().unwrap());
    nothing.preset = None;
    let (said, hears) = channel();
    let say = move |words| drop(said.send(words));
    let _thread = LoadMonitorThread::start(nothing, Vec::new, |_, _| panic!("no load"), say).unwrap();
    let words: String = hears.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(words.contains("not measured") && words.contains("hint: name a preset"), "{words}");
}
