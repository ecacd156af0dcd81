//! The controller: the next trial, its result, and the time of the next look.
//!
//! Owns the present settings and the curves. Knows no clock: the samples bring their times.

use std::time::Duration;

use super::curve::{KnobCurve, KnobCurvePoint, SampleNoise};
use super::decision::{KnobMovePurpose, KnobTrialResult, TrialOutcome, TunerDecision, TunerSearchCause};
use super::episode::{KnobAttempt, KnobTrialPhase, SearchEpisode};
use super::knob::{PerKnob, TunerKnob, TunerSetup};
use super::meter::{RateMeter, RateReading};
use super::past_results::SessionTuningResult;
use super::sample::{Bottleneck, SessionSample, StageGauges};
use super::search::{CurveSearch, SearchReach};
use super::throughput_level::KeptSettingsThroughput;
use super::verdict::{SAMPLES_MIN, TrialComparison};

/// Time until the effect of a knob shows, besides the path's part: a thread's first object must come through.
const SETTLE: Duration = Duration::from_millis(400);

/// A stream doubles its window each round trip: from ten segments to 4 MiB in nine, and the first answer
/// takes one.
const SETTLE_ROUND_TRIPS: u32 = 10;

/// Upper bound for any path.
const SETTLE_MAX: Duration = Duration::from_secs(3);

/// Step of a look to each side, in deviations of a sample, as a part of the value; and the limits of the
/// step.
const STEP_NOISE: f64 = 4.0;
const STEP_MIN: f64 = 0.125;
const STEP_MAX: f64 = 0.25;

/// A move that has changed the throughput by this part has changed the curves of the other knobs, too.
const OTHER_CURVES: f64 = 0.03;

/// A look that finds this elasticity (a doubled value brings 74 %) has found another curve.
const ELASTICITY_OTHER: f64 = 0.8;

/// Upper bound of trials until it settles: a full climb of one knob from 1 to 256 takes 8, closing in on a
/// value 5 more.
const TRIALS_MAX: u32 = 24;

/// The first look after settling, and the longest time between two: a look costs the gain of an eighth of the
/// knob for two seconds, or 0.4 % of the throughput then.
const LOOK_FIRST: Duration = Duration::from_secs(15);
const LOOK_MAX: Duration = Duration::from_secs(60);

/// Time after which a new bottleneck counts.
const BOTTLENECK_LASTS: Duration = Duration::from_secs(2);

/// The first wait after a moved bottleneck has brought no gain; it doubles each time.
const BOTTLENECK_AGAIN: Duration = Duration::from_secs(5);

/// A throughput that differs from the history's by more than this part invalidates the history.
const HISTORY_HOLDS: f64 = 0.25;

/// Finds the settings of one session and follows them. See the [module](super) and `docs/design/tuner.md`.
#[derive(Clone, Debug)]
pub struct SessionTuner {
    setup: TunerSetup,
    /// The best known settings.
    kept: PerKnob<u32>,
    /// The settings in force: another value of one knob while it is tried.
    present: PerKnob<u32>,
    /// Knobs that were raised without a gain of their own, with the values before: that has moved the
    /// bottleneck.
    credit: Vec<(TunerKnob, u32)>,
    curves: PerKnob<KnobCurve>,
    level: KeptSettingsThroughput,
    noise: SampleNoise,
    meter: RateMeter,
    stages: StageGauges,
    /// The limiting stage at the kept settings.
    bottleneck: Bottleneck,
    aim: KnobTrialPhase,
    episode: SearchEpisode,
    /// True if the last sample had work and nothing held it back.
    is_moving: bool,
    /// Time from which the present settings show their effect, and the samples since.
    steady_from: Duration,
    samples: u32,
    look_after: Duration,
    bottleneck_after: Duration,
    /// Throughput of an earlier session with these settings, until it is compared.
    expected: Option<f64>,
}

impl SessionTuner {
    /// Creates a tuner with the ranges' start values.
    pub fn new(setup: TunerSetup) -> SessionTuner {
        let start = PerKnob::from_fn(|knob| setup.ranges[knob].start);
        SessionTuner {
            setup,
            kept: start,
            present: start,
            credit: Vec::new(),
            curves: PerKnob::default(),
            level: KeptSettingsThroughput::default(),
            noise: SampleNoise::default(),
            meter: RateMeter::default(),
            stages: StageGauges::default(),
            bottleneck: Bottleneck::Reading,
            aim: KnobTrialPhase::Measure,
            episode: SearchEpisode::new(TunerSearchCause::Start, SearchReach::Wide),
            is_moving: false,
            steady_from: Duration::ZERO,
            samples: 0,
            look_after: LOOK_FIRST,
            bottleneck_after: Duration::ZERO,
            expected: None,
        }
    }

    /// Creates a tuner with the settings of an earlier session of the same
    /// [`TunerWorkload`](super::TunerWorkload), as far as the ranges allow them. It tries only neighbouring
    /// values, unless the throughput differs now.
    pub fn from_history(setup: TunerSetup, record: &SessionTuningResult) -> SessionTuner {
        let start = PerKnob::from_fn(|knob| setup.ranges[knob].clamp(record.values[knob]));
        let reach = if record.is_settled { SearchReach::Near(STEP_MAX) } else { SearchReach::Wide };
        SessionTuner {
            kept: start,
            present: start,
            episode: SearchEpisode::new(TunerSearchCause::Start, reach),
            expected: Some(record.bytes_per_s as f64),
            ..SessionTuner::new(setup)
        }
    }

    /// Returns true if some knob has more than one value.
    pub fn has_choice(&self) -> bool {
        let ranges = &self.setup.ranges;
        ![ranges.readers, ranges.streams, ranges.writers].iter().all(|range| range.is_fixed())
    }

    /// Returns the value that a knob should have now.
    pub fn value(&self, knob: TunerKnob) -> u32 {
        self.present[knob]
    }

    /// Returns the limiting stage.
    pub fn bottleneck(&self) -> Bottleneck {
        self.bottleneck
    }

    /// Returns true if no value is being tried.
    pub fn is_settled(&self) -> bool {
        matches!(self.aim, KnobTrialPhase::Settled { .. })
    }

    /// Sets the path's round trip.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.setup.round_trip = round_trip;
    }

    /// Returns the tuner's knowledge, to be shown and kept; `at_s` is now in Unix seconds.
    pub fn tuning_result(&self, at_s: u64) -> SessionTuningResult {
        SessionTuningResult {
            at_s,
            values: self.kept,
            is_settled: self.is_settled(),
            session: self.meter.interval_end(),
            bytes_per_s: self.known_rate() as u64,
            curves: PerKnob::from_fn(|knob| self.curves[knob].all().copied().collect()),
            uses_bbr: false,
        }
    }

    /// Returns the throughput of the present settings in bytes per second, or the earlier one after a new
    /// start.
    fn known_rate(&self) -> f64 {
        let mean = self.level.mean();
        if mean != 0.0 {
            return mean;
        }
        let value = self.kept[TunerKnob::Readers];
        let before = self.curves[TunerKnob::Readers].all().find(|point| point.value == value);
        before.map_or(0.0, KnobCurvePoint::bytes_per_s)
    }

    /// Takes a sample, about every 250 ms. Returns a decision, if one is made.
    pub fn observe(&mut self, sample: &SessionSample) -> Option<TunerDecision> {
        let reading = self.meter.read(sample, self.present[TunerKnob::Readers].into());
        if sample.work == 0 || sample.is_held {
            self.is_moving = false;
        }
        let reading = reading?;
        if !std::mem::replace(&mut self.is_moving, true) {
            // Idle streams begin with small windows.
            self.steady_from = self.steady_from.max(sample.at + settling_time(self.setup.round_trip));
        }
        self.stages.learn(sample);
        if reading.since < self.steady_from {
            return None;
        }
        self.samples += 1;
        self.learn(sample.at, &reading);
        if !matches!(self.aim, KnobTrialPhase::Try(_))
            && let Some((from, to)) = self.level.learn(reading.rates, &self.noise)
        {
            self.start_over(TunerSearchCause::Moved { from, to });
            return None;
        }
        match self.aim {
            KnobTrialPhase::Measure if self.samples < SAMPLES_MIN => None,
            KnobTrialPhase::Measure => Some(self.begin_trials(sample.at)),
            KnobTrialPhase::Try(attempt) => self.evaluate_attempt(sample.at, attempt),
            KnobTrialPhase::Settled { .. } => self.restart_if_changed(sample.at),
        }
    }

    /// Adds a reading to the curves: to all of them at the kept settings, otherwise to that of the tried
    /// knob.
    fn learn(&mut self, at: Duration, reading: &RateReading) {
        let tried = if let KnobTrialPhase::Try(attempt) = self.aim { Some(attempt.knob) } else { None };
        let known = tried.unwrap_or(TunerKnob::Readers);
        if let Some(point) = self.curves[known].get(self.present[known]).filter(|point| point.samples > 1) {
            self.noise.learn(reading.rates.written, point.rates.written);
        }
        for knob in TunerKnob::ALL.into_iter().filter(|knob| tried.is_none_or(|tried| tried == *knob)) {
            self.curves[knob].add(self.present[knob], at, reading);
        }
    }

    /// Forgets everything and begins anew.
    fn start_over(&mut self, cause: TunerSearchCause) {
        TunerKnob::ALL.into_iter().for_each(|knob| self.curves[knob].keep_only(None));
        self.level.forget();
        self.credit.clear();
        self.look_after = LOOK_FIRST;
        self.bottleneck_after = Duration::ZERO;
        self.begin(cause, SearchReach::Wide);
    }

    fn begin(&mut self, cause: TunerSearchCause, reach: SearchReach) {
        self.episode = SearchEpisode::new(cause, reach);
        self.aim = KnobTrialPhase::Measure;
        self.samples = 0;
    }

    /// Begins with trials: the kept settings are known well enough.
    fn begin_trials(&mut self, at: Duration) -> TunerDecision {
        self.bottleneck = self.stages.bottleneck();
        let level = self.level.mean();
        let expected = self.expected.take();
        if expected.is_some_and(|expected| (level / expected.max(1.0) - 1.0).abs() > HISTORY_HOLDS) {
            self.episode.reach = SearchReach::Wide;
        }
        self.start_next_trial(at, None)
    }

    /// Begins with trials if there is a reason, when settled.
    fn restart_if_changed(&mut self, at: Duration) -> Option<TunerDecision> {
        let KnobTrialPhase::Settled { look_at, bottleneck_at, is_other_since } = &mut self.aim else {
            return None;
        };
        let look_at = *look_at;
        let bottleneck = self.stages.bottleneck();
        if bottleneck == self.bottleneck {
            *is_other_since = None;
        } else if at.saturating_sub(*is_other_since.get_or_insert(at)) >= BOTTLENECK_LASTS
            && at >= *bottleneck_at
        {
            self.bottleneck = bottleneck;
            bottleneck.knobs().iter().for_each(|knob| self.invalidate_other_points(*knob));
            self.begin(TunerSearchCause::Bottleneck, SearchReach::Wide);
            return Some(self.start_next_trial(at, None));
        }
        if at < look_at && !self.level.has_drifted(&self.noise) {
            return None;
        }
        for knob in TunerKnob::ALL {
            if self.setup.ranges[knob].doubles {
                // A look at half the value costs up to half of the throughput each time: the earlier result
                // there must suffice.
                self.curves[knob].forget_above(self.kept[knob]);
            } else {
                self.invalidate_other_points(knob);
            }
        }
        // A step just large enough to see a difference in this noise.
        let step = (STEP_NOISE * self.noise.deviation()).clamp(STEP_MIN, STEP_MAX);
        self.begin(TunerSearchCause::Look, SearchReach::Near(step));
        Some(self.start_next_trial(at, None))
    }

    /// Invalidates all points of this knob's curve except that of the kept value.
    fn invalidate_other_points(&mut self, knob: TunerKnob) {
        let here = self.curves[knob].get(self.kept[knob]).copied();
        self.curves[knob].keep_only(here);
    }

    /// Starts the next trial from the kept settings, or a rest.
    fn start_next_trial(&mut self, at: Duration, trial: Option<KnobTrialResult>) -> TunerDecision {
        let mut knobs = self.bottleneck.knobs().iter();
        match knobs.find_map(|knob| self.next(*knob)).or_else(|| self.next_release()) {
            Some(attempt) => self.attempt(at, attempt, trial),
            None => self.settle_or_revert(at, trial),
        }
    }

    fn next(&self, knob: TunerKnob) -> Option<KnobAttempt> {
        let search = CurveSearch {
            curve: &self.curves[knob],
            range: self.setup.ranges[knob],
            reach: self.episode.reach,
            fewer_first: self.stages.is_cpu_full(),
        };
        let may_try = self.episode.trials < TRIALS_MAX && !self.is_kept_provisionally(knob);
        let value = search.next(self.kept[knob]).filter(|_| may_try)?;
        Some(KnobAttempt { knob, value, is_release: false })
    }

    /// Returns a smaller value of a knob that is not the bottleneck, for a look: of the knob with the largest
    /// excess over its start.
    fn next_release(&mut self) -> Option<KnobAttempt> {
        if self.episode.cause != TunerSearchCause::Look
            || std::mem::replace(&mut self.episode.has_released, true)
        {
            return None;
        }
        let knob = TunerKnob::ALL
            .into_iter()
            .filter(|knob| !self.bottleneck.knobs().contains(knob) && self.excess(*knob) > 1.0)
            .max_by(|one, other| self.excess(*one).total_cmp(&self.excess(*other)))?;
        let less = self.kept[knob] - (self.kept[knob] / 4).max(1);
        let range = self.setup.ranges[knob];
        let value = range.clamp(less).max(range.start);
        Some(KnobAttempt { knob, value, is_release: true })
    }

    fn excess(&self, knob: TunerKnob) -> f64 {
        f64::from(self.kept[knob]) / f64::from(self.setup.ranges[knob].start)
    }

    fn attempt(
        &mut self,
        at: Duration,
        attempt: KnobAttempt,
        trial: Option<KnobTrialResult>,
    ) -> TunerDecision {
        self.episode.trials += 1;
        self.aim = KnobTrialPhase::Try(attempt);
        let action = if attempt.is_release { KnobMovePurpose::Release } else { KnobMovePurpose::Try };
        self.turn(at, attempt.knob, attempt.value, action, trial)
    }

    /// Decides on the tried value, once its effect is known, and starts the next step.
    fn evaluate_attempt(&mut self, at: Duration, attempt: KnobAttempt) -> Option<TunerDecision> {
        let KnobAttempt { knob, value, is_release } = attempt;
        let curve = &self.curves[knob];
        let (home, there) = (*curve.get(self.kept[knob])?, *curve.get(value)?);
        let comparison = TrialComparison {
            knob,
            home: &home,
            there: &there,
            noise: &self.noise,
            reach: self.episode.reach,
            samples: self.samples,
            has_moved: self.stages.bottleneck() != self.bottleneck,
            can_follow: self
                .stages
                .bottleneck()
                .knobs()
                .iter()
                .any(|other| *other != knob && self.can_raise(*other)),
        };
        let outcome = if is_release { comparison.sufficiency() } else { comparison.outcome() }?;
        let gain = comparison.gain();
        let trial = Some(KnobTrialResult { knob, from: home.value, to: value, gain, outcome });
        match outcome {
            TrialOutcome::Kept => self.accept_value(knob, &there, gain),
            TrialOutcome::Relieved => self.keep_provisionally(knob, value),
            TrialOutcome::Rejected => return Some(self.reject(at, attempt, trial)),
        }
        Some(self.start_next_trial(at, trial))
    }

    fn accept_value(&mut self, knob: TunerKnob, there: &KnobCurvePoint, gain: f64) {
        let home = std::mem::replace(&mut self.kept[knob], there.value);
        self.level.set(there.rates, there.samples);
        self.bottleneck = self.stages.bottleneck();
        self.episode.has_gained = true;
        let step = (f64::from(there.value) / f64::from(home)).ln();
        if gain.ln_1p() / step > ELASTICITY_OTHER {
            self.episode.reach = SearchReach::Wide;
        }
        if gain > OTHER_CURVES {
            self.credit.clear();
        }
        if gain.abs() > OTHER_CURVES {
            for other in TunerKnob::ALL.into_iter().filter(|other| *other != knob) {
                self.curves[other].keep_only(Some(KnobCurvePoint { value: self.kept[other], ..*there }));
            }
        }
    }

    /// Keeps a value for now, so that the new bottleneck can be tried.
    fn keep_provisionally(&mut self, knob: TunerKnob, value: u32) {
        self.credit.push((knob, std::mem::replace(&mut self.kept[knob], value)));
        self.bottleneck = self.stages.bottleneck();
        TunerKnob::ALL
            .into_iter()
            .filter(|other| *other != knob)
            .for_each(|other| self.invalidate_other_points(other));
    }

    fn is_kept_provisionally(&self, knob: TunerKnob) -> bool {
        self.credit.iter().any(|(on_credit, _)| *on_credit == knob)
    }

    fn can_raise(&self, knob: TunerKnob) -> bool {
        !self.is_kept_provisionally(knob) && self.kept[knob] < self.setup.ranges[knob].most
    }

    /// Goes straight to the next value: a return to the kept one would only cost time.
    fn reject(
        &mut self,
        at: Duration,
        attempt: KnobAttempt,
        trial: Option<KnobTrialResult>,
    ) -> TunerDecision {
        match self.next(attempt.knob).filter(|_| !attempt.is_release) {
            Some(next) => self.attempt(at, next, trial),
            None => self.return_to_kept(at, attempt.knob, trial),
        }
    }

    fn return_to_kept(
        &mut self,
        at: Duration,
        knob: TunerKnob,
        trial: Option<KnobTrialResult>,
    ) -> TunerDecision {
        self.aim = KnobTrialPhase::Measure;
        self.turn(at, knob, self.kept[knob], KnobMovePurpose::Back, trial)
    }

    /// Settles: no trial is left.
    fn settle_or_revert(&mut self, at: Duration, trial: Option<KnobTrialResult>) -> TunerDecision {
        if let Some((knob, value)) = self.credit.pop() {
            // The raised value has not helped.
            self.kept[knob] = value;
            self.episode.trials = TRIALS_MAX;
            return self.return_to_kept(at, knob, trial);
        }
        if self.episode.has_gained {
            (self.look_after, self.bottleneck_after) = (LOOK_FIRST, Duration::ZERO);
        } else if self.episode.cause == TunerSearchCause::Bottleneck {
            self.bottleneck_after = (2 * self.bottleneck_after).clamp(BOTTLENECK_AGAIN, LOOK_MAX);
        }
        self.aim = KnobTrialPhase::Settled {
            look_at: at + self.look_after,
            bottleneck_at: at + self.bottleneck_after,
            is_other_since: None,
        };
        self.look_after = (2 * self.look_after).min(LOOK_MAX);
        self.level.record_settled_level();
        let knob = self.bottleneck.knobs()[0];
        self.turn(at, knob, self.kept[knob], KnobMovePurpose::Settle, trial)
    }

    fn turn(
        &mut self,
        at: Duration,
        knob: TunerKnob,
        to: u32,
        action: KnobMovePurpose,
        trial: Option<KnobTrialResult>,
    ) -> TunerDecision {
        let from = std::mem::replace(&mut self.present[knob], to);
        if from != to {
            self.level.pause();
            self.steady_from = at + settling_time(self.setup.round_trip);
            self.samples = 0;
        }
        let (bottleneck, cause) = (self.bottleneck, self.episode.cause);
        TunerDecision { at, knob, from, to, action, bottleneck, cause, trial }
    }
}

/// Returns the time until the effect of a knob shows.
fn settling_time(round_trip: Duration) -> Duration {
    (SETTLE + SETTLE_ROUND_TRIPS * round_trip).min(SETTLE_MAX)
}
