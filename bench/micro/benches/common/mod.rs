//! The measuring time of every benchmark.

use std::time::Duration;

use criterion::Criterion;

/// Returns two seconds each after half a second's warm-up: all benchmarks together stay within a few minutes.
pub fn config() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
}
