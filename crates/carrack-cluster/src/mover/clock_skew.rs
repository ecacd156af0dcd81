//! Compares the mover's clock with that of NATS: with a wrong clock its certificates are invalid for other
//! movers, and theirs for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::MoverContext;

/// Interval of checks.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Tolerance of a clock: certificates are valid from five minutes before they are made.
const OFF_AT_MOST_S: u64 = 240;

/// Checks the clock as long as the mover runs.
pub(super) async fn watch(mover: Arc<MoverContext>) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        check_clock(&mover).await;
    }
}

/// Checks the clock once; without an answer from NATS the earlier result stays.
pub(super) async fn check_clock(mover: &MoverContext) {
    if let Ok(Some(ahead_ms)) = mover.registration.clock_lead_ms().await {
        mover.set_clock_problem(describe_skew(ahead_ms));
    }
}

/// Describes the error of a clock with this lead; empty for a right one.
fn describe_skew(ahead_ms: i64) -> String {
    let off_s = ahead_ms.unsigned_abs() / 1000;
    if off_s <= OFF_AT_MOST_S {
        return String::new();
    }
    let off = match off_s {
        ..7200 => format!("{} min", (off_s + 30) / 60),
        _ => format!("{} h", (off_s + 1800) / 3600),
    };
    let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
    format!("its clock is {off} {side} that of NATS: set it right (NTP)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_told_with_by_how_much() {
        assert_eq!(describe_skew(-240_000), "");
        assert!(describe_skew(-300_000).contains("5 min behind that of NATS"));
        assert!(describe_skew(3 * 3_600_000).contains("3 h ahead of"));
    }
}
