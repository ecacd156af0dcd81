//! The clock for deadlines of other processes: it runs while the machine sleeps, as their clocks do.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the time since the machine's start, sleep included (`CLOCK_BOOTTIME`, clock_gettime(2)).
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_kernels_uptime() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let told: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
        let now = since_boot().as_secs_f64();
        assert!((told - 0.1..told + 60.0).contains(&now), "{told} s and {now} s");
    }
}
