//! The local time: the next moment of a time of day, and a week's rates as moments.

use std::time::Duration;

use carrack_plan::{RateTimetable, ScheduledRateLimits, minute_of};
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::lifetime;

/// Days for which a timetable is computed; then the last rate stays.
const AHEAD_DAYS: i64 = 400;

/// Parses a moment, in seconds since 1970: as [`lifetime::parse_moment`] does, or the next `HH:MM` of the
/// local time.
pub fn parse_moment(text: &str) -> Result<i64, String> {
    match minute_of(text.trim()) {
        Some(minute) => next(minute, Timestamp::now(), &TimeZone::system())
            .ok_or_else(|| "this time of the day does not come".to_owned()),
        None => {
            lifetime::parse_moment(text).map_err(|error| format!("{error}, or, as the next 18:30, as 18:30"))
        }
    }
}

/// Returns the next moment of this minute of a day. If clocks are put forward over it, the time that they
/// show then.
fn next(minute: u16, now: Timestamp, zone: &TimeZone) -> Option<i64> {
    let today = now.to_zoned(zone.clone()).date();
    let days = (0..=2).filter_map(|days| today.checked_add(days.days()).ok());
    days.filter_map(|day| local_time_to_unix(day, minute, zone)).find(|&at_s| at_s > now.as_second())
}

/// Returns seconds since 1970.
fn local_time_to_unix(day: Date, minute: u16, zone: &TimeZone) -> Option<i64> {
    let (day, minute) = if minute < 24 * 60 { (day, minute) } else { (day.tomorrow().ok()?, 0) };
    let time = Time::new((minute / 60) as i8, (minute % 60) as i8, 0, 0).ok()?;
    Some(zone.to_zoned(day.to_datetime(time)).ok()?.timestamp().as_second())
}

/// Returns a timetable's rates from now on, by the system's time zone.
pub fn steps(table: &RateTimetable) -> ScheduledRateLimits {
    steps_in(table, Timestamp::now(), &TimeZone::system())
}

fn steps_in(table: &RateTimetable, now: Timestamp, zone: &TimeZone) -> ScheduledRateLimits {
    let today = now.to_zoned(zone.clone()).date();
    let days = (-1..AHEAD_DAYS).filter_map(|days| today.checked_add(days.days()).ok());
    let turns = table.change_minutes();
    let steps =
        days.flat_map(|day| turns.iter().map(move |minute| (day, *minute))).filter_map(|(day, minute)| {
            let from = Duration::from_secs(u64::try_from(local_time_to_unix(day, minute, zone)?).ok()?);
            let weekday = day.weekday().to_monday_zero_offset();
            Some((from, table.rate(usize::try_from(weekday).ok()?, minute)))
        });
    ScheduledRateLimits::new(steps.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_second()
    }

    /// As in Berlin, by POSIX.1's TZ.
    fn zone() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    #[test]
    fn a_time_of_the_day_is_the_next_one() {
        let now: Timestamp = "2026-11-23T17:00:00Z".parse().unwrap();
        for (minute, moment) in [
            (18 * 60 + 30, "2026-11-23T17:30:00Z"),
            (18 * 60, "2026-11-24T17:00:00Z"),
            (0, "2026-11-23T23:00:00Z"),
            (24 * 60, "2026-11-23T23:00:00Z"),
        ] {
            assert_eq!(next(minute, now, &zone()), Some(of(moment)), "{minute}");
        }
        // The night on which clocks are put forward from 2 to 3.
        let spring: Timestamp = "2026-03-28T23:30:00Z".parse().unwrap();
        assert_eq!(next(2 * 60 + 30, spring, &zone()), Some(of("2026-03-29T01:30:00Z")));
        assert_eq!(next(4 * 60, spring, &zone()), Some(of("2026-03-29T02:00:00Z")));
        assert_eq!(parse_moment("@7"), Ok(7));
        assert!(parse_moment("25:00").is_err() && parse_moment("soon").is_err());
        let hour = parse_moment("12:00").unwrap() - lifetime::now_s();
        assert!((0..=2 * 86_400).contains(&hour), "{hour}");
    }

    #[test]
    fn a_timetable_follows_the_local_time_all_year() {
        let text = "mon-fri 08:00-18:00 100, 1000";
        let table = RateTimetable::parse(text, |rate| rate.parse().map_err(|_| String::new())).unwrap();
        let now: Timestamp = "2026-11-23T06:59:00Z".parse().unwrap();
        let steps = steps_in(&table, now, &zone());
        for (moment, rate) in [
            ("2026-11-23T06:59:59Z", 1000),
            ("2026-11-23T07:00:00Z", 100),
            ("2026-11-23T17:00:00Z", 1000),
            ("2026-11-28T12:00:00Z", 1000),
            // Summer time.
            ("2027-07-01T05:59:59Z", 1000),
            ("2027-07-01T06:00:00Z", 100),
        ] {
            assert_eq!(steps.rate_at(Duration::from_secs(of(moment) as u64)), rate, "{moment}");
        }
        assert_eq!(steps.highest_rate(), 1000);
    }
}
