//! What is measured of targets, from series. Pure.

use std::collections::BTreeMap;

use super::answers::Series;
use super::target_name::TargetName;

/// What a transfer's requests have, by which those of transfers are counted: an object's usual size, in bytes.
const OWN_REQUEST_BYTES: f64 = (1 << 20) as f64;

/// What a target does, as means over a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Measured {
    /// Bytes per second, read and written.
    pub bytes_per_s: f64,
    /// Requests per second.
    pub requests_per_s: f64,
}

/// What a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Bytes,
    Requests,
}

impl Measured {
    pub(super) fn add(&mut self, quantity: Quantity, value: f64) {
        match quantity {
            Quantity::Bytes => self.bytes_per_s += value,
            Quantity::Requests => self.requests_per_s += value,
        }
    }

    /// What others than the transfers do, who have moved `own` bytes per second.
    pub(super) fn without(self, own: f64) -> Measured {
        Measured {
            bytes_per_s: (self.bytes_per_s - own).max(0.0),
            requests_per_s: (self.requests_per_s - own / OWN_REQUEST_BYTES).max(0.0),
        }
    }

    /// Bytes per second, where no request counts for less than `request_bytes`: many small ones keep a target busy too, though they
    /// move little.
    pub(super) fn pressure(self, request_bytes: f64) -> f64 {
        self.bytes_per_s.max(self.requests_per_s * request_bytes)
    }
}

/// Measurements by time and target.
#[derive(Debug, Default)]
pub(super) struct Measurements(pub(super) BTreeMap<(String, i64), Measured>);

impl Measurements {
    /// Adds what a query gave; series that have one target's name sum up.
    pub(super) fn add(&mut self, quantity: Quantity, series: &[Series], names: &TargetName) {
        for series in series {
            let Some(name) = names.of(&series.labels) else { continue };
            for (at_s, value) in series.points() {
                self.0.entry((name.clone(), at_s)).or_default().add(quantity, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_requests_count_as_larger_ones() {
        let small = Measured { bytes_per_s: 4096.0 * 100.0, requests_per_s: 100.0 };
        assert_eq!(small.pressure(65_536.0), 6_553_600.0);
        assert_eq!(small.pressure(0.0), 409_600.0);
        let large = Measured { bytes_per_s: 1e8, requests_per_s: 100.0 };
        assert_eq!(large.pressure(65_536.0), 1e8);
    }

    #[test]
    fn what_transfers_do_is_taken_off_and_never_more() {
        let all = Measured { bytes_per_s: 10e6, requests_per_s: 100.0 };
        let others = all.without(4.0 * 1_048_576.0);
        assert_eq!((others.bytes_per_s, others.requests_per_s), (10e6 - 4_194_304.0, 96.0));
        assert_eq!(all.without(1e9), Measured::default());
    }
}
