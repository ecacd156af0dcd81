//! Lifetimes on the command line: `30m`, `12h`, `90d`; patience, where a number alone is of seconds; moments, and how people
//! read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Seconds, minutes, hours, days.
const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3600), ('d', 24 * 3600)];

/// A whole number above 0 with a unit.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || "a lifetime is a whole number above 0 with a unit, such as 30m, 12h, 90d".to_owned();
    let text = text.trim();
    let (unit, seconds) = UNITS.into_iter().find(|(unit, _)| text.ends_with(*unit)).ok_or_else(wrong)?;
    let digits = text.trim_end_matches(unit);
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.len() + 1 == text.len();
    let count: u64 = digits.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
    let seconds = count.checked_mul(seconds).filter(|&seconds| seconds > 0).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds))
}

/// A whole number of seconds above 0, or the same as a lifetime.
pub fn parse_patience(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = if is_number { parse(&format!("{text}s")) } else { parse(text) };
    parsed.map_err(|_| {
        "a whole number of seconds above 0 is needed, or one with a unit, such as 90, 5m, 12h".into()
    })
}

/// A moment, seconds since 1970: as RFC 3339 writes it, in so long from now on, as a lifetime, or in seconds since 1970, as date(1) takes
/// them: `@1795399200`.
pub fn parse_moment(text: &str) -> Result<i64, String> {
    moment(text, now_s())
}

fn moment(text: &str, now_s: i64) -> Result<i64, String> {
    if let Ok(moment) = OffsetDateTime::parse(text.trim(), &Rfc3339) {
        return Ok(moment.unix_timestamp());
    }
    if let Some(seconds) = text.trim().strip_prefix('@').and_then(|digits| digits.parse().ok()) {
        return Ok(seconds);
    }
    let later = parse(text).ok().and_then(|later| now_s.checked_add_unsigned(later.as_secs()));
    later.ok_or_else(|| "a moment is written as 2026-11-23T02:00:00Z, or, from now on, as 6h".to_owned())
}

/// Now, in seconds since 1970.
pub fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// A moment, seconds since 1970, as RFC 3339 writes it in UTC.
pub fn show_moment(seconds: i64) -> String {
    let Ok(moment) = OffsetDateTime::from_unix_timestamp(seconds) else { return format!("{seconds} s") };
    let (hour, minute, second) = moment.to_hms();
    let (year, month, day) = (moment.year(), u8::from(moment.month()), moment.day());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_units() {
        for (text, seconds) in
            [("45s", 45), ("30m", 1800), ("12h", 43_200), ("90d", 7_776_000), (" 1d ", 86_400)]
        {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in ["", "d", "0d", "-1d", "+1d", "1", "1w", "1.5h", "1dd", "1 d", "99999999999999999999d"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("999999999999999999d").is_err());
    }

    #[test]
    fn patience_is_in_seconds() {
        for (text, seconds) in [("1", 1), (" 90", 90), ("90s", 90), ("5m", 300)] {
            assert_eq!(parse_patience(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0", "-1", "0s", "1.5", "x", "1 s"] {
            assert!(parse_patience(text).is_err(), "{text}");
        }
    }

    #[test]
    fn moments_are_absolute_or_from_now_on() {
        for (text, moment_s) in [
            ("2027-01-15T08:00:00Z", 1_800_000_000),
            ("2027-01-15T10:00:00.5+02:00", 1_800_000_000),
            ("6h", 21_607),
            (" 1d", 86_407),
        ] {
            assert_eq!(moment(text, 7), Ok(moment_s), "{text}");
        }
        for text in ["", "now", "2027-01-15", "6", "-1h", "9999999999999999d"] {
            assert!(moment(text, i64::MAX - 7).is_err(), "{text}");
        }
    }

    #[test]
    fn shows_utc() {
        assert_eq!(show_moment(0), "1970-01-01T00:00:00Z");
        assert_eq!(show_moment(1_800_000_000), "2027-01-15T08:00:00Z");
    }
}
