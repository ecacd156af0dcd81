//! Sizes, durations and moments in the users' notation: `1MiB`, `30m`, `2026-11-23T02:00:00Z`.

use std::time::Duration;

use bytesize::ByteSize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Seconds, minutes, hours, days.
const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3600), ('d', 24 * 3600)];

/// Parses a size in bytes, above 0: a number with or without a unit. `k`, `M`, `G`, `T` are powers of 1,000;
/// `KiB`, `MiB`, `GiB`, `TiB` (or `Ki` …) of 1,024.
///
/// # Errors
/// A description of the notation.
pub fn parse_size(text: &str) -> Result<u64, String> {
    match text.trim().parse::<ByteSize>() {
        Ok(ByteSize(0)) => Err("a size above 0 is needed".into()),
        Ok(ByteSize(bytes)) => Ok(bytes),
        Err(_) => Err("a size is a number with a unit, such as 512KiB, 256MiB, 1GiB, 500M".into()),
    }
}

/// Parses a duration: a whole number above 0 with a unit: s, m, h or d.
///
/// # Errors
/// A description of the notation.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    duration_of(text.trim())
        .ok_or_else(|| "a lifetime is a whole number above 0 with a unit, such as 30m, 12h, 90d".to_owned())
}

fn duration_of(text: &str) -> Option<Duration> {
    let (unit, seconds) = UNITS.into_iter().find(|(unit, _)| text.ends_with(*unit))?;
    let digits = text.strip_suffix(unit)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| is_number)?;
    let seconds = count.checked_mul(seconds).filter(|&seconds| seconds > 0)?;
    Some(Duration::from_secs(seconds))
}

/// Parses a moment and returns it in seconds since 1970. It is written as in RFC 3339, as a duration from
/// `now_s`, or as seconds since 1970 in the syntax of date(1): `@1795399200`.
///
/// # Errors
/// A description of the notation.
pub fn parse_moment(text: &str, now_s: i64) -> Result<i64, String> {
    if let Some(moment) = parse_absolute_moment(text) {
        return Ok(moment);
    }
    let later = parse_duration(text).ok().and_then(|later| now_s.checked_add_unsigned(later.as_secs()));
    later.ok_or_else(|| "a moment is written as 2026-11-23T02:00:00Z, or, from now on, as 6h".to_owned())
}

/// Parses as [`parse_moment`], but subtracts a duration from `now_s`.
///
/// # Errors
/// A description of the notation.
pub fn parse_past_moment(text: &str, now_s: i64) -> Result<i64, String> {
    if let Ok(ago) = parse_duration(text) {
        return Ok(now_s.saturating_sub_unsigned(ago.as_secs()));
    }
    parse_absolute_moment(text)
        .ok_or_else(|| "a time is written as 2026-11-23T02:00:00Z, or, so long ago, as 2d".to_owned())
}

fn parse_absolute_moment(text: &str) -> Option<i64> {
    let text = text.trim();
    match OffsetDateTime::parse(text, &Rfc3339) {
        Ok(moment) => Some(moment.unix_timestamp()),
        Err(_) => text.strip_prefix('@').and_then(|digits| digits.parse().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_and_binary_units() {
        for (text, bytes) in [
            ("4096", 4096),
            ("128KiB", 128 << 10),
            ("1MiB", 1 << 20),
            ("1 mib", 1 << 20),
            ("256Mi", 256 << 20),
            ("1.5GiB", 3 << 29),
            ("2k", 2_000),
            ("2K", 2_000),
            ("5M", 5_000_000),
            ("3G", 3_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "-1", "0", "0KiB", "1 furlong", "1.2.3M", "1MiBs"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_whole_numbers_with_a_unit() {
        for (text, seconds) in
            [("45s", 45), ("30m", 1800), ("12h", 43_200), ("90d", 7_776_000), (" 1d ", 86_400)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "d", "0d", "-1d", "+1d", "1", "1w", "1.5h", "1dd", "1 d", "99999999999999999999d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_duration("999999999999999999d").is_err());
    }

    #[test]
    fn moments_are_absolute_or_relative() {
        for (text, moment_s) in [
            ("2027-01-15T08:00:00Z", 1_800_000_000),
            ("2027-01-15T10:00:00.5+02:00", 1_800_000_000),
            ("@12", 12),
            ("6h", 21_607),
            (" 1d", 86_407),
        ] {
            assert_eq!(parse_moment(text, 7), Ok(moment_s), "{text}");
        }
        for text in ["", "now", "2027-01-15", "6", "-1h", "9999999999999999d"] {
            assert!(parse_moment(text, i64::MAX - 7).is_err(), "{text}");
        }
        assert_eq!(parse_past_moment("1h", 3_607), Ok(7));
        assert_eq!(parse_past_moment("@7", 9), Ok(7));
        assert!(parse_past_moment("yesterday", 9).is_err());
    }
}
