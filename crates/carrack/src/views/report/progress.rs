//! The progress line: the part that is done, the rate, the time left, and the limiting stage.
//!
//! [`SmoothedRate`] and [`text`] are pure; [`ProgressLine`] shows them on stderr, which is a terminal.

use std::time::Duration;

use carrack_model::{LimitingStage, TransferProgress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::size;
use crate::views::quantity::{clock, group_digits, rate};

/// Time constant of the smoothing: a rate of the last few seconds, steady enough to read.
const SMOOTHING_S: f64 = 5.0;

/// Steps of the bar.
const BAR_STEPS: u64 = 1_000;

/// Rates, smoothed exponentially.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmoothedRate {
    last: Option<(Duration, u64, u64)>,
    bytes_per_s: f64,
    entries_per_s: f64,
    is_known: bool,
}

impl SmoothedRate {
    /// Updates the rates from counters; times come in order.
    pub fn update(&mut self, progress: &TransferProgress, elapsed: Duration) {
        let (then, bytes, entries) = self.last.unwrap_or_default();
        let seconds = elapsed.saturating_sub(then).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let weight = if self.is_known { 1.0 - (-seconds / SMOOTHING_S).exp() } else { 1.0 };
        let bytes_per_s = progress.bytes_done.saturating_sub(bytes) as f64 / seconds;
        let entries_per_s = progress.entries_done.saturating_sub(entries) as f64 / seconds;
        self.bytes_per_s += weight * (bytes_per_s - self.bytes_per_s);
        self.entries_per_s += weight * (entries_per_s - self.entries_per_s);
        self.is_known = self.is_known || progress.entries_done + progress.bytes_done > 0;
        self.last = Some((elapsed, progress.bytes_done, progress.entries_done));
    }

    /// Returns the seconds left: the longer of those for the bytes and for the entries. `None` before the
    /// totals and a rate are known.
    fn seconds_left(&self, progress: &TransferProgress) -> Option<u64> {
        let settled = progress.entries_done + progress.entries_failed;
        let bytes = progress.bytes_found.saturating_sub(progress.bytes_done);
        let entries = progress.entries_found.saturating_sub(settled);
        let left = seconds_for(bytes, self.bytes_per_s)?.max(seconds_for(entries, self.entries_per_s)?);
        progress.scan_done.then_some(left)
    }
}

/// Returns the seconds for a count; `None` if they are beyond any useful time or infinite.
fn seconds_for(count: u64, per_s: f64) -> Option<u64> {
    const SECONDS_MAX: f64 = 1e8;
    let seconds = if count == 0 { 0.0 } else { count as f64 / per_s };
    (seconds < SECONDS_MAX).then_some(seconds.ceil() as u64)
}

/// Returns the line without the bar, the most important first: a narrow terminal cuts off its end.
pub fn text(progress: &TransferProgress, pace: &SmoothedRate) -> String {
    let counts = [
        (size::format_size(progress.bytes_done), size::format_size(progress.bytes_found)),
        (group_digits(progress.entries_done), group_digits(progress.entries_found)),
    ];
    let [bytes, entries] = counts.map(|(done, found)| {
        if progress.scan_done { format!("{done}/{found}") } else { format!("{done} of {found}+") }
    });
    let rate = rate(pace.bytes_per_s as u64);
    let mut text = format!("{bytes}, {rate}, {}", time_left_text(progress, pace));
    if progress.limiter != LimitingStage::Unknown {
        text.push_str(&format!(", limit: {}", progress.limiter.name()));
    }
    text.push_str(&format!(", {entries} entries"));
    if progress.entries_failed > 0 {
        text.push_str(&format!(", {} failed", group_digits(progress.entries_failed)));
    }
    text
}

fn time_left_text(progress: &TransferProgress, pace: &SmoothedRate) -> String {
    match pace.seconds_left(progress) {
        _ if !progress.scan_done => "scanning".into(),
        Some(seconds) => format!("{} left", clock(seconds)),
        None => "-:-- left".into(),
    }
}

/// Returns the position in steps of the bar: by bytes, or by entries if there are no bytes.
fn position(progress: &TransferProgress) -> u64 {
    let (done, found) = match progress.bytes_found {
        0 => (progress.entries_done, progress.entries_found),
        found => (progress.bytes_done, found),
    };
    match found {
        0 => 0,
        _ => (done as f64 / found as f64 * BAR_STEPS as f64) as u64,
    }
}

/// The line on the terminal, which a drop removes.
pub struct ProgressLine {
    bar: ProgressBar,
    pace: SmoothedRate,
    has_totals: bool,
}

impl ProgressLine {
    /// Creates a bar that draws nothing before the first [`show`](ProgressLine::show), so that ssh can ask
    /// its questions.
    pub fn on_stderr() -> ProgressLine {
        let bar = ProgressBar::with_draw_target(Some(BAR_STEPS), ProgressDrawTarget::stderr());
        ProgressLine {
            bar: bar.with_style(style("{spinner} {wide_msg}")),
            pace: SmoothedRate::default(),
            has_totals: false,
        }
    }

    /// Shows the counters.
    pub fn show(&mut self, progress: &TransferProgress, elapsed: Duration) {
        self.pace.update(progress, elapsed);
        if progress.scan_done && !self.has_totals {
            self.has_totals = true;
            self.bar.set_style(style("[{bar:10}] {wide_msg}"));
        }
        self.bar.set_message(text(progress, &self.pace));
        self.bar.set_position(position(progress));
    }

    /// Removes the line, calls `write`, and draws it again.
    pub fn suspend(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Returns the style of a template. An invalid one (a test checks them) would only change the appearance.
fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ").tick_chars("|/-\\ ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(entries_done: u64, bytes_done: u64, scan_done: bool) -> TransferProgress {
        TransferProgress {
            entries_found: 2_000,
            bytes_found: 100 << 20,
            scan_done,
            entries_done,
            bytes_done,
            ..TransferProgress::default()
        }
    }

    #[test]
    fn while_it_scans() {
        let (mut pace, progress) = (SmoothedRate::default(), at(1_000, 10 << 20, false));
        pace.update(&progress, Duration::from_secs(1));
        assert_eq!(
            text(&progress, &pace),
            "10.0 MiB of 100.0 MiB+, 10.0 MiB/s, scanning, 1,000 of 2,000+ entries"
        );
    }

    #[test]
    fn when_the_totals_are_known() {
        let mut pace = SmoothedRate::default();
        let progress = TransferProgress {
            limiter: LimitingStage::SinkStorage,
            entries_failed: 1,
            ..at(1_000, 10 << 20, true)
        };
        pace.update(&progress, Duration::from_secs(1));
        assert_eq!(
            text(&progress, &pace),
            "10.0 MiB/100.0 MiB, 10.0 MiB/s, 0:09 left, limit: sink storage, 1,000/2,000 entries, 1 failed"
        );
        assert_eq!(position(&progress), 100);
    }

    #[test]
    fn many_small_files_take_as_long_as_their_number() {
        let (mut pace, progress) = (SmoothedRate::default(), at(1, 90 << 20, true));
        pace.update(&progress, Duration::from_secs(1));
        assert_eq!(pace.seconds_left(&progress), Some(1_999));
    }

    #[test]
    fn a_standstill_has_no_end() {
        let (pace, progress) = (SmoothedRate::default(), at(0, 0, true));
        assert!(text(&progress, &pace).contains("-:-- left"));
        let done = at(2_000, 100 << 20, true);
        assert_eq!(pace.seconds_left(&done), Some(0));
    }

    #[test]
    fn the_rate_is_smooth_and_follows() {
        let mut pace = SmoothedRate::default();
        let mut bytes = 0;
        for tenth in 1..=1_000u64 {
            bytes += if tenth <= 500 { 100 } else { 200 };
            pace.update(&at(0, bytes, true), Duration::from_millis(tenth * 100));
            if tenth == 501 {
                assert!((1_000.0..1_100.0).contains(&pace.bytes_per_s), "{}", pace.bytes_per_s);
            }
        }
        assert!((1_990.0..2_001.0).contains(&pace.bytes_per_s), "{}", pace.bytes_per_s);
    }

    #[test]
    fn no_entries_no_position() {
        assert_eq!(position(&TransferProgress::default()), 0);
        let empty_files =
            TransferProgress { entries_found: 4, entries_done: 1, ..TransferProgress::default() };
        assert_eq!(position(&empty_files), 250);
    }

    #[test]
    fn the_templates_can_be_read() {
        for template in ["{spinner} {wide_msg}", "[{bar:10}] {wide_msg}"] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
