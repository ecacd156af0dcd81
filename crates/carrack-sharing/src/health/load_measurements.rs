//! The measurements of targets, from series. Pure.

use std::collections::BTreeMap;

use super::answers::MetricSeries;
use super::name_template::TargetNameFromLabels;

/// The assumed request size of transfers, an object's usual size in bytes: it gives the number of their
/// requests.
const OWN_REQUEST_BYTES: f64 = (1 << 20) as f64;

/// The load of a target, as means over a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TargetRates {
    /// Bytes per second, read and written.
    pub bytes_per_s: f64,
    /// Requests per second.
    pub requests_per_s: f64,
}

/// The quantity that a query measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadQuantity {
    Bytes,
    Requests,
}

impl TargetRates {
    pub(super) fn add(&mut self, quantity: LoadQuantity, value: f64) {
        match quantity {
            LoadQuantity::Bytes => self.bytes_per_s += value,
            LoadQuantity::Requests => self.requests_per_s += value,
        }
    }

    /// The load without the transfers, which move `own` bytes per second.
    pub(super) fn without_own_transfers(self, own: f64) -> TargetRates {
        TargetRates {
            bytes_per_s: (self.bytes_per_s - own).max(0.0),
            requests_per_s: (self.requests_per_s - own / OWN_REQUEST_BYTES).max(0.0),
        }
    }

    /// Bytes per second, where each request counts for at least `request_bytes`: many small requests also
    /// keep a target busy, though they move little.
    pub(super) fn pressure(self, request_bytes: f64) -> f64 {
        self.bytes_per_s.max(self.requests_per_s * request_bytes)
    }
}

/// Measurements by time and target.
#[derive(Debug, Default)]
pub(super) struct TargetLoadMeasurements(pub(super) BTreeMap<(String, i64), TargetRates>);

impl TargetLoadMeasurements {
    /// Adds the series of a query. Series with the same target name are summed.
    pub(super) fn add(
        &mut self,
        quantity: LoadQuantity,
        series: &[MetricSeries],
        names: &TargetNameFromLabels,
    ) {
        for series in series {
            let Some(name) = names.render(&series.labels) else { continue };
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
        let small = TargetRates { bytes_per_s: 4096.0 * 100.0, requests_per_s: 100.0 };
        assert_eq!(small.pressure(65_536.0), 6_553_600.0);
        assert_eq!(small.pressure(0.0), 409_600.0);
        let large = TargetRates { bytes_per_s: 1e8, requests_per_s: 100.0 };
        assert_eq!(large.pressure(65_536.0), 1e8);
    }

    #[test]
    fn what_transfers_do_is_taken_off_and_never_more() {
        let all = TargetRates { bytes_per_s: 10e6, requests_per_s: 100.0 };
        let others = all.without_own_transfers(4.0 * 1_048_576.0);
        assert_eq!((others.bytes_per_s, others.requests_per_s), (10e6 - 4_194_304.0, 96.0));
        assert_eq!(all.without_own_transfers(1e9), TargetRates::default());
    }
}
