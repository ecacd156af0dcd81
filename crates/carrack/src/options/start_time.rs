//! Start of a submitted transfer: at once, at a time, or when its storage is expected to be the least busy
//! (L14).

use carrack_plan::forecast::{ForecastTransferWindow, LoadForecast, TransferRateUnderLoad, best_window};
use clap::Args;

use crate::commands::forecast::measurements_too_old_error;
use crate::lifetime::{self, format_moment, now_s, parse_moment};
use crate::options::load::LoadSourceArgs;
use crate::size;
use crate::user_error::UserError;

/// Heading of these options in the help.
const HEADING: &str = "Start time";

/// The longest time ahead that a forecast covers: a week.
const AHEAD_MOST_S: i64 = 7 * 86_400;

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Args)]
pub struct StartTimeArgs {
    /// Start time: best, 2026-11-23T02:00:00Z, or a time from now, 6h
    ///
    /// `best` starts it while its storage is expected to be the least busy.
    #[arg(long, value_name = "WHEN", value_parser = RequestedStartTime::parse, help_heading = HEADING)]
    when: Option<RequestedStartTime>,

    /// Time by which it must be done, or a time from now
    ///
    /// With --when=best the start is chosen so that it is done by then, up to a week ahead. Else its turn
    /// comes sooner as the deadline comes nearer, and one machine's queue claims the necessary rate at shared
    /// storage targets, as `carrack cp` does.
    #[arg(long, value_name = "TIME", value_parser = parse_moment, help_heading = HEADING)]
    deadline: Option<i64>,

    /// With --when=best: its duration on idle storage, such as 2h
    #[arg(long, value_name = "TIME", value_parser = lifetime::parse, requires = "when", help_heading = HEADING,
          conflicts_with_all = ["bytes", "rate"])]
    expect: Option<std::time::Duration>,

    /// With --when=best: bytes to move
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires_all = ["when", "rate"], help_heading = HEADING)]
    bytes: Option<u64>,

    /// With --when=best: bytes per second on idle storage
    #[arg(long, value_name = "RATE", value_parser = size::parse, requires_all = ["when", "bytes"], help_heading = HEADING)]
    rate: Option<u64>,

    /// With --when=best: the target or file system whose load counts, as for `carrack forecast`
    #[arg(long, value_name = "NAME", requires = "when", help_heading = HEADING)]
    storage: Option<String>,

    #[command(flatten)]
    load: LoadSourceArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestedStartTime {
    Best,
    /// Unix seconds.
    At(i64),
}

impl RequestedStartTime {
    fn parse(text: &str) -> Result<RequestedStartTime, String> {
        match text {
            "best" => Ok(RequestedStartTime::Best),
            _ => parse_moment(text).map(RequestedStartTime::At).map_err(|error| format!("{error}; or best")),
        }
    }
}

/// The start of a transfer, and a message about it.
#[derive(Debug, PartialEq)]
pub struct ScheduledTransferStart {
    /// Milliseconds since 1970; `None` starts at once.
    pub not_before_ms: Option<u64>,
    /// The message; may be empty.
    pub words: String,
}

impl StartTimeArgs {
    /// Returns the start.
    ///
    /// # Errors
    /// If options are missing or contradict each other, or there is no forecast.
    pub fn start(&self) -> Result<ScheduledTransferStart, UserError> {
        let now_s = now_s();
        match self.when {
            None => Ok(ScheduledTransferStart { not_before_ms: None, words: String::new() }),
            Some(RequestedStartTime::At(at_s)) => self.start_at(at_s),
            Some(RequestedStartTime::Best) => self.best_start(now_s),
        }
    }

    /// Returns the deadline by which the transfer claims its rate, in milliseconds since 1970; `None` if the
    /// deadline chose the start.
    pub fn rate_claim_deadline_ms(&self) -> Option<u64> {
        self.deadline.filter(|_| self.when != Some(RequestedStartTime::Best)).and_then(milliseconds)
    }

    fn start_at(&self, at_s: i64) -> Result<ScheduledTransferStart, UserError> {
        let only_best = self.expect.is_some() || self.bytes.is_some() || self.storage.is_some();
        if only_best {
            return Err(UserError::new("the start is said, and so is what it is to be found by")
                .hint("write --when=best, or leave --expect, --bytes, --rate and --storage out"));
        }
        Ok(ScheduledTransferStart { not_before_ms: milliseconds(at_s), words: String::new() })
    }

    fn best_start(&self, now_s: i64) -> Result<ScheduledTransferStart, UserError> {
        let deadline_s = self.deadline(now_s)?;
        let (bytes, idle_rate) = self.bytes_and_rate()?;
        let name = self.storage.as_deref().ok_or_else(|| {
            UserError::new("nothing says whose load counts")
                .hint("name the target or file system: --storage lfs01")
        })?;
        let (storage, _) = self.load.storage_history(name, now_s)?;
        let capacity = storage.capacity.ok_or_else(|| {
            UserError::new(format!("what {name} can bear is not known"))
                .hint("a day of measurements tells, or --capacity")
                .escaped()
        })?;
        let forecast = storage
            .history
            .forecast(now_s, deadline_s - now_s)
            .ok_or_else(|| measurements_too_old_error(name))?;
        if forecast.backtests.is_empty() {
            let message = format!("there are too few measurements of {name} for a forecast");
            return Err(UserError::new(message).hint("a day is the least; or say when: --when 6h").escaped());
        }
        let model = TransferRateUnderLoad::new(idle_rate, capacity);
        let model = model.ok_or_else(|| UserError::new("a transfer at this rate would never end"))?;
        let window = best_window(&forecast, bytes, &model, now_s, deadline_s);
        Ok(scheduled_start(&window, &forecast, now_s, deadline_s))
    }

    fn deadline(&self, now_s: i64) -> Result<i64, UserError> {
        match self.deadline {
            None => {
                Err(UserError::new("--when=best needs a deadline").hint("write --deadline 18h, or a time"))
            }
            Some(past) if past <= now_s => Err(UserError::new("the deadline is over")),
            Some(far) if far > now_s + AHEAD_MOST_S => {
                Err(UserError::new("the deadline is more than a week ahead")
                    .hint("no forecast reaches so far"))
            }
            Some(deadline_s) => Ok(deadline_s),
        }
    }

    /// Returns the bytes and the bytes per second on idle storage; if only the time is given, its seconds at
    /// a rate of 1.
    fn bytes_and_rate(&self) -> Result<(u64, f64), UserError> {
        match (self.expect, self.bytes, self.rate) {
            (Some(time), ..) => Ok((time.as_secs(), 1.0)),
            (None, Some(bytes), Some(rate)) => Ok((bytes, rate as f64)),
            _ => Err(UserError::new("nothing says how long the transfer takes")
                .hint("write --expect 2h, or --bytes 40TiB --rate 2GiB")),
        }
    }
}

fn scheduled_start(
    window: &ForecastTransferWindow,
    forecast: &LoadForecast,
    now_s: i64,
    deadline_s: i64,
) -> ScheduledTransferStart {
    let now = window.start_s <= now_s;
    let end = format_moment(window.end_s);
    let by = forecast.far.name();
    let words = match (window.is_late, now) {
        (true, _) => format!(
            "it will miss its deadline, {}, and is expected to end {end}: it starts at once",
            format_moment(deadline_s)
        ),
        (false, true) => format!("it starts at once, and is expected to end {end} (by {by})"),
        (false, false) => format!(
            "it starts {}, and is expected to end {end}; started now it would end {} (by {by})",
            format_moment(window.start_s),
            format_moment(window.end_if_now_s)
        ),
    };
    ScheduledTransferStart { not_before_ms: if now { None } else { milliseconds(window.start_s) }, words }
}

fn milliseconds(at_s: i64) -> Option<u64> {
    u64::try_from(at_s).ok().map(|at_s| at_s.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use crate::options::tests::parse;

    fn start(words: &[&str]) -> Result<ScheduledTransferStart, UserError> {
        parse::<StartTimeArgs>(words).unwrap().start()
    }

    /// Writes a week in which the storage is busy all day but for the two hours that begin at this distance
    /// from now.
    fn week(idle_in_s: i64) -> (tempfile::TempDir, String) {
        let now_s = now_s();
        let dir = tempfile::tempdir().unwrap();
        let mut text = "time,target,load\n".to_owned();
        for at_s in (now_s - 7 * 86_400..now_s).step_by(300) {
            let since = (at_s - now_s - idle_in_s).rem_euclid(86_400);
            let noise = (at_s / 300 * 7919 % 101) as f64 * 1e-4;
            let load = if since < 7200 { noise } else { 0.9 + noise };
            writeln!(text, "{at_s},fs/a,{load}").unwrap();
        }
        let path = dir.path().join("a.csv");
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap().to_owned();
        (dir, path)
    }

    #[test]
    fn the_best_hours_are_waited_for() {
        let (_dir, csv) = week(5 * 3600);
        let words = ["--when=best", "--storage", "fs", "--csv", &csv, "--capacity", "1"];
        let now_s = now_s();
        for work in [&["--expect", "1h"][..], &["--bytes", "3600GB", "--rate", "1GB"]] {
            let found = start(&[&words[..], &["--deadline", "12h"], work].concat()).unwrap();
            let waits_s = found.not_before_ms.map_or(0, |ms| ms as i64 / 1000 - now_s);
            assert!((17_000..22_000).contains(&waits_s), "{found:?}");
            assert!(found.words.contains("started now it would end"), "{found:?}");
        }
        let late = start(&[&words[..], &["--deadline", "4h", "--expect", "1h"]].concat()).unwrap();
        assert!(late.not_before_ms.is_none() && late.words.contains("miss its deadline"), "{late:?}");
    }

    #[test]
    fn what_is_missing_is_said() {
        let (_dir, csv) = week(0);
        let known = ["--storage", "fs", "--csv", &csv];
        for (words, word) in [
            (&["--when=best"][..], "needs a deadline"),
            (&["--when=best", "--deadline", "8d"], "more than a week"),
            (&["--when=best", "--deadline", "2020-01-01T00:00:00Z"], "is over"),
            (&["--when=best", "--deadline", "6h"], "how long"),
            (&["--when=6h", "--expect", "7h"], "so is what"),
        ] {
            let trouble = start(&[words, &known[..]].concat()).unwrap_err();
            assert!(trouble.message.contains(word), "{words:?}: {trouble:?}");
        }
        let enough = ["--when=best", "--deadline", "6h", "--expect", "1h"];
        assert!(start(&enough).unwrap_err().hint.unwrap().contains("--storage"));
        let unknown = start(&[&enough[..], &["--storage", "fs"]].concat()).unwrap_err();
        assert!(unknown.message.contains("nothing is known of the load of fs") && unknown.hint.is_some());
        let short = csv.replace("a.csv", "b.csv");
        std::fs::write(&short, format!("time,target,load\n{},fs/a,1\n", now_s())).unwrap();
        let few = start(&[&enough[..], &["--storage", "fs", "--csv", &short]].concat()).unwrap_err();
        assert!(few.message.contains("too few"), "{few:?}");
    }

    #[test]
    fn a_time_is_a_start() {
        assert_eq!(start(&[]).unwrap(), ScheduledTransferStart { not_before_ms: None, words: String::new() });
        let at = start(&["--when", "2027-01-15T08:00:00Z"]).unwrap();
        assert_eq!(at.not_before_ms, Some(1_800_000_000_000));
        assert!(parse::<StartTimeArgs>(&["--when", "soon"]).is_err());
    }

    #[test]
    fn a_deadline_chooses_the_start_or_claims_a_rate() {
        for (words, claim_ms) in [
            (&[][..], Some(1_795_399_200_000)),
            (&["--when", "6h"], Some(1_795_399_200_000)),
            (&["--when", "best"], None),
        ] {
            let words = [&["--deadline", "@1795399200"], words].concat();
            assert_eq!(
                parse::<StartTimeArgs>(&words).unwrap().rate_claim_deadline_ms(),
                claim_ms,
                "{words:?}"
            );
        }
    }
}
