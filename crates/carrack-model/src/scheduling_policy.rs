//! The scheduling policies by which an end picks the next storage target.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A scheduling policy by name, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SchedulingPolicyChoice {
    /// Round-robin over the targets, except those with requests in flight (L2).
    RoundRobin,
    /// The LADS paper's congestion-aware algorithm (L7).
    Threshold {
        /// `W`: maximum age of the service times that count.
        window: Duration,
        /// `T`: a target with a longer mean service time is congested.
        threshold: Duration,
        /// `M`: number of turns that a congested target is skipped.
        skips: u32,
    },
    /// Learns the normal service time of each target.
    Adaptive {
        /// Backs off as soon as others use a target (L15).
        nice: bool,
    },
}

impl Default for SchedulingPolicyChoice {
    fn default() -> SchedulingPolicyChoice {
        SchedulingPolicyChoice::Adaptive { nice: false }
    }
}

/// The scheduling of an end's storage targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulingOptions {
    /// The policy that picks the next target.
    pub policy: SchedulingPolicyChoice,
    /// Bytes per second of all targets together; 0 for no limit.
    pub rate: u64,
    /// Bytes per second of each target; 0 for no limit.
    pub target_rate: u64,
    /// Limit of requests in flight for each target; 0 for the storage's default.
    pub in_flight_max: u32,
}

impl SchedulingOptions {
    /// Returns true if any limit is set: then objects are taken one by one, even from a single target.
    pub fn has_limits(&self) -> bool {
        self.rate > 0
            || self.target_rate > 0
            || self.in_flight_max > 0
            || self.policy == SchedulingPolicyChoice::Adaptive { nice: true }
    }

    /// The scheduling of one of `lanes` lanes: the rates are shared with the others, and the requests in
    /// flight are divided, with at least one for each lane.
    pub fn per_lane(&self, lanes: usize) -> SchedulingOptions {
        let part = self.in_flight_max / u32::try_from(lanes).unwrap_or(u32::MAX).max(1);
        SchedulingOptions { in_flight_max: if self.in_flight_max == 0 { 0 } else { part.max(1) }, ..*self }
    }
}

/// The text names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a policy; there are round-robin, threshold:W,T,M (two times in ms and a count) and adaptive")]
pub struct UnknownSchedulingPolicy;

impl FromStr for SchedulingPolicyChoice {
    type Err = UnknownSchedulingPolicy;

    fn from_str(text: &str) -> Result<SchedulingPolicyChoice, UnknownSchedulingPolicy> {
        match text {
            "round-robin" => return Ok(SchedulingPolicyChoice::RoundRobin),
            "adaptive" => return Ok(SchedulingPolicyChoice::default()),
            _ => {}
        }
        let numbers = text.strip_prefix("threshold:").ok_or(UnknownSchedulingPolicy)?;
        let numbers = numbers.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>();
        match *numbers.map_err(|_| UnknownSchedulingPolicy)? {
            [window, threshold, skips] if window > 0 && threshold > 0 => {
                Ok(SchedulingPolicyChoice::Threshold {
                    window: Duration::from_millis(window.into()),
                    threshold: Duration::from_millis(threshold.into()),
                    skips,
                })
            }
            _ => Err(UnknownSchedulingPolicy),
        }
    }
}

impl fmt::Display for SchedulingPolicyChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchedulingPolicyChoice::RoundRobin => out.write_str("round-robin"),
            SchedulingPolicyChoice::Threshold { window, threshold, skips } => {
                write!(out, "threshold:{},{},{skips}", window.as_millis(), threshold.as_millis())
            }
            // `nice` is an option of its own.
            SchedulingPolicyChoice::Adaptive { .. } => out.write_str("adaptive"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_have_parts_of_the_requests_at_a_time_and_the_rates_together() {
        let all =
            SchedulingOptions { rate: 7, target_rate: 5, in_flight_max: 5, ..SchedulingOptions::default() };
        assert_eq!(all.per_lane(2), SchedulingOptions { in_flight_max: 2, ..all });
        assert_eq!(SchedulingOptions { in_flight_max: 1, ..all }.per_lane(2).in_flight_max, 1);
        assert_eq!(SchedulingOptions::default().per_lane(2), SchedulingOptions::default());
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        for text in ["round-robin", "adaptive", "threshold:1000,80,30"] {
            assert_eq!(text.parse::<SchedulingPolicyChoice>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "fifo",
            "threshold",
            "threshold:1,2",
            "threshold:0,1,2",
            "threshold:1,2,3,4",
            "threshold:-1,2,3",
        ] {
            assert!(text.parse::<SchedulingPolicyChoice>().is_err(), "{text}");
        }
    }
}
