//! Guarantees for every run, for all samples.

use proptest::prelude::*;

use super::*;

fn any_range() -> impl Strategy<Value = KnobRange> {
    (0..40u32, 0..80u32, 0..80u32).prop_map(|(least, most, start)| KnobRange::new(least, most, start))
}

fn any_sample() -> impl Strategy<Value = SessionSample> {
    let fill = || (0..100u64, 1..100u64).prop_map(|(waiting, capacity)| QueueFill { waiting, capacity });
    let flow = (0..2_000u64, 0..400_000_000u64, 0..100_000u64, 0..1_000u64);
    let state = (0.0..1.0f64, 0..5u64, prop::bool::weighted(0.1), fill(), prop::option::of(fill()));
    (flow, state).prop_map(|((ms, bytes, sent, retransmitted), (cpu, work, is_held, outbox, sink_queue))| {
        SessionSample {
            at: Duration::from_millis(ms),
            bytes,
            objects: bytes >> 20,
            sent,
            retransmitted,
            cpu,
            work,
            is_held,
            outbox,
            sink_queue,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn values_stay_in_their_ranges_and_one_knob_turns_at_a_time(
        ranges in (any_range(), any_range(), any_range()),
        round_trip_ms in 0..400u64,
        samples in prop::collection::vec(any_sample(), 0..600),
    ) {
        let ranges = PerKnob { readers: ranges.0, streams: ranges.1, writers: ranges.2 };
        let mut tuner = SessionTuner::new(TunerSetup { ranges, round_trip: Duration::from_millis(round_trip_ms) });
        let mut now = SessionSample::default();
        for sample in samples {
            let before = TunerKnob::ALL.map(|knob| tuner.value(knob));
            now = SessionSample {
                at: now.at + sample.at,
                bytes: now.bytes + sample.bytes,
                objects: now.objects + sample.objects,
                sent: now.sent + sample.sent,
                retransmitted: now.retransmitted + sample.retransmitted,
                ..sample
            };
            let decision = tuner.observe(&now);
            for (knob, before) in TunerKnob::ALL.into_iter().zip(before) {
                let value = tuner.value(knob);
                prop_assert!(value >= ranges[knob].least && value <= ranges[knob].most);
                let turned = decision.filter(|decision| decision.knob == knob);
                prop_assert_eq!((before, value), turned.map_or((before, before), |it| (it.from, it.to)));
            }
        }
    }
}

/// Reports a second to a session's tuner, in four samples.
fn tell(
    tuner: &mut SessionTuner,
    now: &mut SessionSample,
    rate: u64,
    change: impl Fn(&mut SessionSample),
) -> Vec<TunerDecision> {
    let mut step = || {
        let (bytes, objects) = (now.bytes + rate / 4, now.objects + 100);
        *now = SessionSample { at: now.at + SAMPLE, bytes, objects, ..*now };
        change(now);
        tuner.observe(now)
    };
    (0..4).filter_map(|_| step()).collect()
}

fn setup() -> TunerSetup {
    TunerSetup { ranges: PerKnob::from_fn(|_| KnobRange::new(1, 32, 4)), round_trip: Duration::ZERO }
}

#[test]
fn without_work_or_while_held_back_nothing_is_decided() {
    for (work, is_held) in [(0, false), (9, true)] {
        let (mut tuner, mut now) = (SessionTuner::new(setup()), SessionSample::default());
        for second in 0..60 {
            let decisions = tell(&mut tuner, &mut now, 1_000_000 * (second % 7), |sample| {
                (sample.work, sample.is_held) = (work, is_held);
            });
            assert_eq!(decisions, []);
        }
        assert_eq!(TunerKnob::ALL.map(|knob| tuner.value(knob)), [4, 4, 4]);
    }
}

#[test]
fn a_slow_scan_is_no_slow_start() {
    // No work for ten seconds; then windows that grow.
    let (mut tuner, mut now) = (SessionTuner::new(setup()), SessionSample::default());
    (0..10).for_each(|_| drop(tell(&mut tuner, &mut now, 0, |_| ())));
    let grown = tell(&mut tuner, &mut now, 1_000_000, |sample| sample.work = 9);
    assert_eq!(grown, []);
    let decisions: Vec<TunerDecision> =
        (0..20).flat_map(|_| tell(&mut tuner, &mut now, 100_000_000, |_| ())).collect();
    assert!(decisions.iter().all(|it| it.cause == TunerSearchCause::Start), "{decisions:?}");
}

#[test]
fn a_stall_is_no_reason_to_try_anything() {
    let (mut tuner, mut now) =
        (SessionTuner::new(setup()), SessionSample { work: 9, ..SessionSample::default() });
    (0..60).for_each(|_| drop(tell(&mut tuner, &mut now, 100_000_000, |_| ())));
    assert!(tuner.is_settled());
    for _ in 0..60 {
        assert_eq!(tell(&mut tuner, &mut now, 0, |_| ()), []);
    }
}

#[test]
fn a_decision_is_a_line_for_people() {
    let condition =
        SimulatedKnobThroughput::new("", TunerKnob::Readers, KnobRange::new(1, 8, 4), |n| 5.0 + n.min(8.0));
    let session = tuned(&condition, 0.0, 0, 30.0);
    let lines: Vec<String> = session.decisions.iter().take(2).map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "at the start: reading is the bottleneck; trying 8 readers",
            "reading is the bottleneck; 4 → 8 readers brought 44 %: kept; trying 6 readers",
        ]
    );
}

#[test]
fn a_later_session_begins_where_this_one_ended() {
    let condition =
        SimulatedKnobThroughput::new("", TunerKnob::Readers, KnobRange::new(1, 64, 4), |n| n.min(20.0));
    let first = tuned(&condition, 0.02, 0, 40.0);
    let record = first.controller.tuning_result(1_700_000_000);
    let text = serde_json::to_string(&record).expect("a record is numbers");
    let record: SessionTuningResult = serde_json::from_str(&text).expect("what was written");
    assert!(record.curves.readers.iter().any(|point| point.value == 16 && point.bytes_per_s() > 14.0 * UNIT));
    assert!((19..=32).contains(&record.values.readers) && record.is_settled, "{:?}", record.values);
    assert!(record.level_from(TunerKnob::Readers).is_some_and(|value| (19..=32).contains(&value)));

    let mut later = SimulatedSession::new(SessionTuner::from_history(condition.setup(), &record), 0.02, 1);
    condition.run(&mut later, 20.0);
    assert!(later.mean(0.0, 20.0) > 0.95 * condition.best(), "{}", later.mean(0.0, 20.0));

    // Under another curve the history does not count.
    let other =
        SimulatedKnobThroughput::new("", TunerKnob::Readers, KnobRange::new(1, 64, 4), |n| 0.5 * n.min(60.0));
    let mut later = SimulatedSession::new(SessionTuner::from_history(other.setup(), &record), 0.02, 1);
    other.run(&mut later, 60.0);
    assert!(later.mean(20.0, 60.0) > 0.95 * other.best(), "{}", later.mean(20.0, 60.0));
}

#[test]
fn size_classes() {
    let class = |bytes, files| MeanSizeClass::of(bytes, files);
    assert_eq!((class(0, 0), class(100 << 20, 1_000)), (MeanSizeClass::Small, MeanSizeClass::Small));
    assert_eq!((class(1 << 30, 100), class(1 << 40, 100)), (MeanSizeClass::Mixed, MeanSizeClass::Large));
}

#[test]
fn a_sink_that_tells_nothing_is_tuned_after_the_streams() {
    // The outbox is full; only writers help.
    let (mut tuner, mut now) =
        (SessionTuner::new(setup()), SessionSample { work: 9, ..SessionSample::default() });
    for _ in 0..40 {
        let rate = 50_000_000 * u64::from(tuner.value(TunerKnob::Writers).min(8));
        tell(&mut tuner, &mut now, rate, |sample| sample.outbox = QueueFill { waiting: 64, capacity: 64 });
    }
    assert!((6..=10).contains(&tuner.value(TunerKnob::Writers)), "{}", tuner.value(TunerKnob::Writers));
}
