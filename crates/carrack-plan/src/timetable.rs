//! Rate limits by the time of the week (L15): the user's notation, and the rate at a moment.
//!
//! Pure: the caller knows the local time and its changes.

use std::sync::Arc;
use std::time::Duration;

/// The days as people write them.
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Minutes of a day.
const DAY_MINUTES: u16 = 24 * 60;

/// Rates by day and time, in bytes a second; 0 is no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateTimetable {
    spans: Vec<WeekSpan>,
    otherwise: u64,
}

/// From a minute of some days to another minute, of the next day if that is not later.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WeekSpan {
    /// By day, from Monday on.
    days: [bool; 7],
    from: u16,
    to: u16,
    rate: u64,
}

/// The reason why a text is no timetable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimetableProblem {
    /// An entry of another form.
    #[error("'{0}' is not of the form [DAY[-DAY]] [HH:MM-HH:MM] RATE, as in mon-fri 08:00-18:00 100MB")]
    Entry(String),
    /// An invalid rate.
    #[error("{0}")]
    Rate(String),
    /// Two rates for the rest of the time.
    #[error("two rates are for the rest of the week")]
    TwoRests,
}

impl RateTimetable {
    /// Parses `mon-fri 08:00-18:00 100MB, sat 1GB, 2GB`. The first matching entry counts. A rate alone is for
    /// the rest of the week, which has no limit without it; `off` is no limit. `rate` parses a rate.
    ///
    /// # Errors
    /// If the text is no timetable.
    pub fn parse(
        text: &str,
        rate: impl Fn(&str) -> Result<u64, String>,
    ) -> Result<RateTimetable, TimetableProblem> {
        let (mut spans, mut otherwise) = (Vec::new(), None);
        for entry in text.split(',') {
            let mut words: Vec<&str> = entry.split_whitespace().collect();
            let wrong = TimetableProblem::Entry(entry.trim().to_owned());
            let last = words.pop().ok_or_else(|| wrong.clone())?;
            let rate = if last == "off" { 0 } else { rate(last).map_err(TimetableProblem::Rate)? };
            let (days, times) = match *words {
                [] if otherwise.replace(rate).is_some() => return Err(TimetableProblem::TwoRests),
                [] => continue,
                [word] if word.contains(':') => (Some([true; 7]), parse_time_span(word)),
                [word] => (parse_days(word), Some((0, DAY_MINUTES))),
                [first, second] => (parse_days(first), parse_time_span(second)),
                _ => (None, None),
            };
            let (days, (from, to)) = days.zip(times).ok_or(wrong)?;
            spans.push(WeekSpan { days, from, to, rate });
        }
        Ok(RateTimetable { spans, otherwise: otherwise.unwrap_or(0) })
    }

    /// Returns the rate at a minute of a day, counted from Monday, 0, on.
    pub fn rate(&self, day: usize, minute: u16) -> u64 {
        self.spans.iter().find(|span| span.holds(day % 7, minute)).map_or(self.otherwise, |span| span.rate)
    }

    /// Returns the minutes of a day at which the rate may change; the first is 0.
    pub fn change_minutes(&self) -> Vec<u16> {
        let mut turns: Vec<u16> =
            self.spans.iter().flat_map(|span| [span.from, span.to % DAY_MINUTES]).collect();
        turns.push(0);
        turns.sort_unstable();
        turns.dedup();
        turns
    }
}

impl WeekSpan {
    fn holds(&self, day: usize, minute: u16) -> bool {
        let since = self.days[day] && minute >= self.from;
        if self.from < self.to {
            since && minute < self.to
        } else {
            since || self.days[(day + 6) % 7] && minute < self.to
        }
    }
}

fn parse_days(word: &str) -> Option<[bool; 7]> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last) = (day_of(first)?, day_of(last)?);
    let mut days = [false; 7];
    (0..=(last + 7 - first) % 7).for_each(|more| days[(first + more) % 7] = true);
    Some(days)
}

fn day_of(name: &str) -> Option<usize> {
    DAYS.iter().position(|day| *day == name.to_ascii_lowercase())
}

fn parse_time_span(word: &str) -> Option<(u16, u16)> {
    let (from, to) = word.split_once('-')?;
    let (from, to) = (minute_of(from)?, minute_of(to)?);
    (from < DAY_MINUTES && from != to).then_some((from, to))
}

/// Parses `HH:MM`, up to 24:00, to the minute of the day.
pub fn minute_of(word: &str) -> Option<u16> {
    let (hours, minutes) = word.split_once(':')?;
    let (hours, minutes) = (digits(hours, &[1, 2])?, digits(minutes, &[2])?);
    Some(hours * 60 + minutes).filter(|&minute| minutes < 60 && minute <= DAY_MINUTES)
}

fn digits(text: &str, lengths: &[usize]) -> Option<u16> {
    let is_number = lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u16>().ok().filter(|_| is_number)
}

/// Rates, each from a moment on: times since 1970, bytes a second; 0 is no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledRateLimits(Arc<[(Duration, u64)]>);

impl ScheduledRateLimits {
    /// Creates steps in any order; the first rate holds before its time as well. Without a step there is no
    /// limit.
    pub fn new(mut steps: Vec<(Duration, u64)>) -> ScheduledRateLimits {
        steps.sort_by_key(|(from, _)| *from);
        steps.dedup_by_key(|(_, rate)| *rate);
        ScheduledRateLimits(steps.into())
    }

    /// Returns the rate at a moment.
    pub fn rate_at(&self, moment: Duration) -> u64 {
        let after = self.0.partition_point(|(from, _)| *from <= moment);
        self.0.get(after.saturating_sub(1)).map_or(0, |(_, rate)| *rate)
    }

    /// Returns the highest rate.
    pub fn highest_rate(&self) -> u64 {
        if self.0.iter().any(|(_, rate)| *rate == 0) {
            return 0;
        }
        self.0.iter().map(|(_, rate)| *rate).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RateTimetable, TimetableProblem> {
        RateTimetable::parse(text, |rate| rate.parse().map_err(|_| format!("no rate: {rate}")))
    }

    #[test]
    fn the_first_entry_that_fits_counts() {
        let table = parse("mon-fri 08:00-18:00 100, fri 22:30-6:00 7, Sat-Sun off,1000").unwrap();
        for (day, time, rate) in [
            (0, "07:59", 1000),
            (0, "08:00", 100),
            (4, "17:59", 100),
            (4, "18:00", 1000),
            (4, "22:30", 7),
            (5, "05:59", 7),
            (5, "06:00", 0),
            (6, "23:59", 0),
            (3, "23:00", 1000),
        ] {
            assert_eq!(table.rate(day, minute_of(time).unwrap()), rate, "{day} {time}");
        }
        assert_eq!(table.change_minutes(), [0, 6 * 60, 8 * 60, 18 * 60, 22 * 60 + 30]);
        let over = parse("sat-mon 5").unwrap();
        assert_eq!([5, 6, 0, 1].map(|day| over.rate(day, 0)), [5, 5, 5, 0]);
        assert_eq!(parse("00:00-24:00 5").unwrap().rate(3, 1_439), 5);
    }

    #[test]
    fn what_is_no_timetable_is_refused() {
        for text in [
            "",
            "mon",
            "mon 8-18 5",
            "mon-xyz 5",
            "08:00-08:00 5",
            "24:00-08:00 5",
            "08:60-09:00 5",
            "25:00-26:00 5",
            "mon 08:00-18:00 9:00-10:00 5",
            "mon 5,",
            "5,6",
            "mon-fri x",
            "+1:00-02:00 5",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("1, mon 2,3"), Err(TimetableProblem::TwoRests));
    }

    #[test]
    fn steps_hold_from_their_moments_on() {
        let s = Duration::from_secs;
        let steps = ScheduledRateLimits::new(vec![(s(20), 7), (s(10), 5), (s(15), 5), (s(30), 9)]);
        for (at, rate) in [(0, 5), (10, 5), (19, 5), (20, 7), (29, 7), (30, 9), (99, 9)] {
            assert_eq!(steps.rate_at(s(at)), rate, "{at}");
        }
        assert_eq!(steps.highest_rate(), 9);
        assert_eq!(ScheduledRateLimits::new(vec![(s(1), 3), (s(2), 0)]).highest_rate(), 0);
        assert_eq!(ScheduledRateLimits::new(Vec::new()).rate_at(s(1)), 0);
    }
}
