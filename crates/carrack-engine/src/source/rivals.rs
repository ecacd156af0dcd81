//! Another controller in the tuner's place, for `bench/tuner`: one number, to which readers, streams and writers are set.

use std::env;

use carrack_plan::tuner::rivals::{Rival, Rule};
use carrack_plan::tuner::{KnobRange, PerKnob, Sample};

/// One for each knob, that see the same and so have the same value as far as the ranges allow it.
pub(super) struct Rivals(PerKnob<Rival>);

impl Rivals {
    /// What the knobs are to be after a sample; nothing unless the environment asks for a rival.
    pub(super) fn turn(
        rivals: &mut Option<Rivals>,
        sample: &Sample,
        ranges: impl FnOnce() -> PerKnob<KnobRange>,
    ) -> Option<PerKnob<u32>> {
        if rivals.is_none() {
            let rule = match env::var("CARRACK_RIVAL").ok()?.as_str() {
                "one-more" => Rule::OneMore,
                "rise-and-level" => Rule::RiseAndLevel,
                other => panic!("CARRACK_RIVAL is one-more or rise-and-level, not {other}"),
            };
            let ranges = ranges();
            *rivals = Some(Rivals(PerKnob::from_fn(|knob| Rival::new(rule, ranges[knob]))));
        }
        let Rivals(rivals) = rivals.as_mut()?;
        for rival in [&mut rivals.readers, &mut rivals.streams, &mut rivals.writers] {
            rival.observe(sample);
        }
        Some(PerKnob::from_fn(|knob| rivals[knob].value()))
    }
}
