//! Lifetimes on the command line: `30m`, `12h`, `90d`; timeouts, for which a number alone is in seconds;
//! moments, and their form for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use carrack_model::Timestamp;
pub use carrack_model::parse_duration as parse;
use time::OffsetDateTime;

/// Parses a whole number of seconds above 0, or a lifetime.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = if is_number { parse(&format!("{text}s")) } else { parse(text) };
    parsed.map_err(|_| {
        "a whole number of seconds above 0 is needed, or one with a unit, such as 90, 5m, 12h".into()
    })
}

/// Parses a moment, in seconds since 1970; a duration is counted from now on.
pub fn parse_moment(text: &str) -> Result<i64, String> {
    carrack_model::parse_moment(text, now_s())
}

/// Returns the present time in seconds since 1970.
pub fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// Formats a moment, in seconds since 1970, by RFC 3339 in UTC.
pub fn format_moment(seconds: i64) -> String {
    let Ok(moment) = OffsetDateTime::from_unix_timestamp(seconds) else { return format!("{seconds} s") };
    let (hour, minute, second) = moment.to_hms();
    let (year, month, day) = (moment.year(), u8::from(moment.month()), moment.day());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Formats the same to the nanosecond.
pub fn format_timestamp(time: Timestamp) -> String {
    let moment = format_moment(time.seconds);
    match moment.strip_suffix('Z') {
        Some(whole) => format!("{whole}.{:09}Z", time.nanoseconds),
        None => moment,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_in_seconds() {
        for (text, seconds) in [("1", 1), (" 90", 90), ("90s", 90), ("5m", 300)] {
            assert_eq!(parse_timeout(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0", "-1", "0s", "1.5", "x", "1 s"] {
            assert!(parse_timeout(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shows_utc() {
        assert_eq!(format_moment(0), "1970-01-01T00:00:00Z");
        assert_eq!(format_moment(1_800_000_000), "2027-01-15T08:00:00Z");
    }
}
