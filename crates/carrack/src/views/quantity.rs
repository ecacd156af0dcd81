//! Numbers, rates and times as text.

use std::time::Duration;

use crate::size;

/// Formats a number as `1,234,567`.
pub fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|g| str::from_utf8(g).ok()).collect();
    groups.join(",")
}

/// Formats a count as `1 file` or `2 files`.
pub fn count_with_noun(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", group_digits(number), if number == 1 { one } else { many })
}

/// Returns bytes per second, 0 for no time.
pub fn bytes_per_s(bytes: u64, elapsed: Duration) -> u64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 { (bytes as f64 / seconds) as u64 } else { 0 }
}

/// Formats a rate as `1.5 GiB/s`.
pub fn rate(bytes_per_s: u64) -> String {
    format!("{}/s", size::format_size(bytes_per_s))
}

/// Formats a time in its largest unit: `5s`, `12m`, `3h`, `2d`.
pub fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats a time as `0:07`, `12:34` or `1:02:03`.
pub fn clock(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(group_digits(number), text);
        }
        assert_eq!(bytes_per_s(10, Duration::ZERO), 0);
    }

    #[test]
    fn clocks() {
        for (seconds, shown) in [(7, "0:07"), (754, "12:34"), (3_723, "1:02:03")] {
            assert_eq!(clock(seconds), shown);
        }
    }
}
