use std::time::Duration;

use carrack_plan::tuner::{KnobCurvePoint, PerKnob, StageRates};

use super::*;

const NOW_S: i64 = 1_800_000_000;
const DAY_S: u64 = 86_400;

fn store() -> (tempfile::TempDir, TunerStore) {
    let home = tempfile::tempdir().unwrap();
    let store = TunerStore::in_directory(home.path().join("state/carrack/tuner"));
    (home, store)
}

fn workload(source: &str, sink: &str, size: MeanSizeClass) -> TunerWorkload {
    TunerWorkload { source: source.into(), sink: sink.into(), size }
}

fn record(at_s: u64) -> SessionTuningResult {
    let point = KnobCurvePoint {
        value: 16,
        rates: StageRates { read: 2e8, sent: 1.5e8, written: 1.0 / 3.0 },
        variance: 1e12,
        loss: 0.01,
        samples: 7,
        at: Duration::from_millis(1250),
        is_current: true,
    };
    let values = PerKnob { readers: 16, streams: 2, writers: 8 };
    let curves = PerKnob { readers: vec![point], ..PerKnob::default() };
    SessionTuningResult {
        at_s,
        values,
        is_settled: true,
        bytes_per_s: 150_000_000,
        session: Duration::from_secs(9),
        curves,
        uses_bbr: true,
    }
}

fn known(source: &str, sink: &str, size: MeanSizeClass) -> TunerWorkloadRecord {
    TunerWorkloadRecord::new(workload(source, sink, size), record(NOW_S as u64))
}

#[test]
fn what_is_kept_is_recalled() {
    let (_home, store) = store();
    assert_eq!(store.list().unwrap(), []);
    let one = known("a", "b", MeanSizeClass::Large);
    assert_eq!(store.load_fresh(&one.workload, NOW_S), None);
    store.save(&one).unwrap();
    assert_eq!(store.load_fresh(&one.workload, NOW_S), Some(one.record.clone()));
    let later = TunerWorkloadRecord {
        record: SessionTuningResult { bytes_per_s: 7, ..one.record.clone() },
        ..one.clone()
    };
    store.save(&later).unwrap();
    assert_eq!(store.list().unwrap(), std::slice::from_ref(&later));
    store.forget(&one.workload).unwrap();
    assert_eq!((store.list().unwrap().len(), store.forget(&one.workload).is_err()), (0, true));
}

#[test]
fn workloads_are_told_apart_whatever_their_sites_are_called() {
    let (home, store) = store();
    let long = "x".repeat(5000);
    let sites = ["", ".", "..", "a", "ab", "b", "a/b", "../../x", "[::1]:99", "ü\u{1b}\n\0", &long];
    let mut all = Vec::new();
    for source in sites {
        for sink in sites {
            all.push(known(source, sink, MeanSizeClass::Small));
        }
    }
    all.push(known("a", "b", MeanSizeClass::Mixed));
    for (number, one) in all.iter_mut().enumerate() {
        one.record.bytes_per_s = number as u64;
        store.save(one).unwrap();
    }
    for one in &all {
        assert_eq!(store.load_fresh(&one.workload, NOW_S).as_ref(), Some(&one.record), "{:?}", one.workload);
    }
    all.sort_by(|one, other| one.workload.cmp(&other.workload));
    assert_eq!(store.list().unwrap(), all);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn what_is_too_old_says_nothing() {
    let (_home, store) = store();
    let one = known("a", "b", MeanSizeClass::Large);
    store.save(&one).unwrap();
    for (now_s, is_fresh) in [
        (NOW_S + 30 * DAY_S as i64, true),
        (NOW_S + 30 * DAY_S as i64 + 1, false),
        (NOW_S - 30 * DAY_S as i64 - 1, false),
        (-1, false),
    ] {
        assert_eq!(store.load_fresh(&one.workload, now_s).is_some(), is_fresh, "{now_s}");
    }
    assert_eq!(store.list().unwrap().len(), 1, "it is there to be forgotten");
}

#[test]
fn other_versions_and_other_files_count_as_none() {
    let (_home, store) = store();
    let one = known("a", "b", MeanSizeClass::Large);
    store.save(&one).unwrap();
    let path = store.path(&one.workload);
    let text = fs::read_to_string(&path).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["version"], &value["workload"]["size"]), (&1.into(), &"large".into()));
    // Fields that a later version adds do not invalidate the record.
    let more = text.replacen('{', "{\"note\": 1,", 1);
    fs::write(&path, more).unwrap();
    assert_eq!(store.load_fresh(&one.workload, NOW_S).as_ref(), Some(&one.record));
    let long = format!("{text}{}", " ".repeat(FILE_BYTES_MAX as usize));
    let strange = [text.replace("\"version\": 1", "\"version\": 2"), text[..text.len() / 2].to_owned(), long];
    for strange in strange.iter().chain([&String::new(), &"{}".to_owned(), &"[]".to_owned()]) {
        fs::write(&path, strange).unwrap();
        assert_eq!(store.load_fresh(&one.workload, NOW_S), None, "{strange:.200}");
        assert_eq!(store.list().unwrap(), []);
    }
    fs::write(store.directory.join("other.json"), &text).unwrap();
    fs::write(store.directory.join("notes.txt"), &text).unwrap();
    assert_eq!(store.list().unwrap(), []);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(store.load_fresh(&one.workload, NOW_S), None);
}

fn set_age(path: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * DAY_S);
    fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
}

#[test]
fn the_newest_stay() {
    let (_home, store) = store();
    fs::create_dir_all(&store.directory).unwrap();
    for number in 0..FILES_MAX + 3 {
        let path = store.directory.join(format!("{number}.json"));
        fs::write(&path, "{").unwrap();
        set_age(&path, 1 + number as u64);
    }
    let (left_over, notes) = (store.directory.join(".x.json.1"), store.directory.join("notes.txt"));
    for path in [&left_over, &notes] {
        fs::write(path, "").unwrap();
        set_age(path, 5000);
    }
    let one = known("a", "b", MeanSizeClass::Large);
    store.save(&one).unwrap();
    let files = store.files().unwrap();
    assert_eq!(files.len(), FILES_MAX);
    assert!(files.contains(&store.path(&one.workload)) && !files.contains(&left_over) && notes.exists());
    for (number, is_there) in [(0, true), (FILES_MAX - 2, true), (FILES_MAX - 1, false)] {
        assert_eq!(files.contains(&store.directory.join(format!("{number}.json"))), is_there, "{number}");
    }
}

#[test]
fn what_is_too_long_is_not_kept() {
    let (_home, store) = store();
    let mut one = known("a", "b", MeanSizeClass::Large);
    one.record.curves.readers = vec![one.record.curves.readers[0]; 10_000];
    assert!(store.save(&one).is_err());
    assert_eq!(store.list().unwrap(), []);
    // A curve with a point for each possible number of threads fits.
    let curve = vec![one.record.curves.readers[0]; 256];
    one.record.curves = PerKnob::from_fn(|_| curve.clone());
    store.save(&one).unwrap();
    let bytes = fs::metadata(store.path(&one.workload)).unwrap().len();
    assert!(bytes < FILE_BYTES_MAX / 2, "{bytes}");
}

#[test]
fn sessions_between_the_same_sites_share_a_history() {
    let (_home, store) = store();
    let [first, second, back] = [("a", "b"), ("a", "b"), ("b", "a")].map(|(source, sink)| {
        store.clone().history(TransferEndNames { source: source.into(), sink: sink.into() }).0
    });
    let record = record(now_s() as u64);
    first.keep(MeanSizeClass::Large, &record);
    assert_eq!(second.recall(MeanSizeClass::Large), Some(record));
    assert_eq!(second.recall(MeanSizeClass::Small), None);
    assert_eq!(back.recall(MeanSizeClass::Large), None);
}

#[test]
fn where_nothing_can_be_written_nothing_happens() {
    let nowhere = TunerStore::in_directory("/dev/null/state/tuner".into());
    let one = known("a", "b", MeanSizeClass::Large);
    assert!(nowhere.save(&one).is_err() && nowhere.list().is_err());
    let history = nowhere.history(TransferEndNames { source: "a".into(), sink: "b".into() });
    history.0.keep(MeanSizeClass::Large, &one.record);
    assert_eq!(history.0.recall(MeanSizeClass::Large), None);
}
