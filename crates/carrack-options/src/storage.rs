//! Options of storage: scheduling of targets, ways of reading and writing, rate limits, and striping.

use std::path::PathBuf;
use std::str::FromStr;

use carrack_model::{
    SchedulingOptions, SchedulingPolicyChoice, SinkIoMethod, SourceReadMethod, StripeChoice,
};
use carrack_plan::{RateTimetable, ScheduledRateLimits};
use clap::{Args, ValueEnum, ValueHint};

use crate::local_time;
use crate::size;
use crate::user_error::UserError;

const STORAGE: &str = "Storage and rate limits";

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Args)]
pub struct StorageIoArgs {
    /// Way of reading large files
    #[arg(long, value_enum, value_name = "WAY", default_value_t = SourceIoName::Auto, help_heading = STORAGE)]
    source_io: SourceIoName,

    /// Way of writing large files
    #[arg(long, value_enum, value_name = "WAY", default_value_t = SinkIoName::Auto, help_heading = STORAGE)]
    sink_io: SinkIoName,

    /// Choice of the storage target (OST, OSD, brick, disk) to read from or write to next
    ///
    /// `adaptive` learns the normal service time of each target, and avoids targets that take longer while
    /// others have work. `round-robin` serves each in turn. `threshold:W,T,M` is the algorithm of the LADS
    /// paper: a target whose mean service time over the last W ms is above T ms is skipped the next M times.
    #[arg(long, value_name = "POLICY", default_value_t = SchedulingPolicyChoice::default(), help_heading = STORAGE)]
    policy: SchedulingPolicyChoice,

    /// Back off as soon as others use a storage target
    #[arg(long, help_heading = STORAGE)]
    nice: bool,

    /// Most requests to one storage target at a time; 0: by the kind of storage
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = STORAGE)]
    max_inflight_per_target: u32,

    /// Most bytes a second, such as 500MB or 1GiB; or a timetable
    ///
    /// As in `mon-fri 08:00-18:00 100MB, 1GB`. The entries of a timetable are `[DAY[-DAY]] [HH:MM-HH:MM]
    /// RATE` with commas between them: days from mon to sun, by the local time here. The first entry that
    /// fits counts; a rate alone is for the rest of the week, which has no limit without it; `off` is no
    /// limit. The end on this host follows it while the copy runs.
    #[arg(long, value_name = "RATE", value_parser = RateLimitOption::parse, help_heading = STORAGE)]
    bwlimit: Option<RateLimitOption>,

    /// Most bytes a second from or to each storage target
    #[arg(long, value_name = "RATE", value_parser = parse_rate, help_heading = STORAGE)]
    bwlimit_per_target: Option<u64>,

    /// Mounts that form one set, each of them one storage target; either end uses those that it has
    ///
    /// `SERVER=DIR` names the server of a mount, where several mounts of the set are of one server; NFS and
    /// SMB mounts know theirs.
    #[arg(long, value_name = "[SERVER=]DIR,...", value_delimiter = ',', value_hint = ValueHint::DirPath,
          help_heading = STORAGE)]
    targets: Vec<PathBuf>,

    /// Striping of large files at the destination: default, preserve, auto, or `COUNT[:SIZE[:POOL]]`
    ///
    /// `default` takes that of the destination's directory, `preserve` the layouts of files and directories
    /// at the source, `auto` one stripe for each GiB up to the number of targets; on Lustre it avoids targets
    /// that are nearly full or slow. COUNT may be `all`.
    #[arg(long, value_name = "STRIPE", default_value = "default", value_parser = parse_stripe, help_heading = STORAGE)]
    pub stripe: StripeChoice,

    /// Read files too that were released to an archive (Lustre HSM); reading brings them back
    #[arg(long, help_heading = STORAGE)]
    recall: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SourceIoName {
    /// Cached data from the page cache, other data past it
    Auto,
    /// Always through the page cache
    Buffered,
    /// Always past it, where the file system can
    Direct,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SinkIoName {
    /// Through the page cache; with several targets, past it on local disks and waiting for write-back
    /// elsewhere
    Auto,
    /// Through the page cache; the kernel decides when to write
    Buffered,
    /// Past it, where the file system can
    Direct,
    /// Through the page cache, waiting for each object's write-back
    Writeback,
}

impl StorageIoArgs {
    /// Returns the way of reading large files.
    pub fn source_io(&self) -> SourceReadMethod {
        match self.source_io {
            SourceIoName::Auto => SourceReadMethod::Auto,
            SourceIoName::Buffered => SourceReadMethod::Buffered,
            SourceIoName::Direct => SourceReadMethod::Direct,
        }
    }

    /// Returns the way of writing large files.
    pub fn sink_io(&self) -> SinkIoMethod {
        match self.sink_io {
            SinkIoName::Auto => SinkIoMethod::Auto,
            SinkIoName::Buffered => SinkIoMethod::Buffered,
            SinkIoName::Direct => SinkIoMethod::Direct,
            SinkIoName::Writeback => SinkIoMethod::Writeback,
        }
    }

    /// Returns the scheduling of targets.
    pub fn scheduling(&self) -> Result<SchedulingOptions, UserError> {
        let policy = match (self.policy, self.nice) {
            (SchedulingPolicyChoice::Adaptive { .. }, nice) => SchedulingPolicyChoice::Adaptive { nice },
            (policy, false) => policy,
            (policy, true) => {
                return Err(UserError::new(format!("--nice needs --policy adaptive, not {policy}"))
                    .hint("leave --policy out, or use --max-inflight-per-target"));
            }
        };
        Ok(SchedulingOptions {
            policy,
            rate: match &self.bwlimit {
                None => 0,
                Some(RateLimitOption::Always(rate)) => *rate,
                Some(RateLimitOption::ByTime(..)) => self.timetable().map_or(0, |steps| steps.highest_rate()),
            },
            target_rate: self.bwlimit_per_target.unwrap_or(0),
            in_flight_max: self.max_inflight_per_target,
        })
    }

    /// Returns the changes of the rate from now on.
    pub fn timetable(&self) -> Option<ScheduledRateLimits> {
        match &self.bwlimit {
            Some(RateLimitOption::ByTime(_, table)) => Some(local_time::steps(table)),
            _ => None,
        }
    }

    /// Returns mounts that are a target each, with their servers.
    pub fn target_sets(&self) -> Vec<PathBuf> {
        self.targets.clone()
    }

    /// Returns true if released files are read.
    pub fn should_recall(&self) -> bool {
        self.recall
    }
}

/// Bytes per second.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RateLimitOption {
    Always(u64),
    /// The text, and the parsed timetable.
    ByTime(String, RateTimetable),
}

impl RateLimitOption {
    /// Parses a limit.
    ///
    /// # Errors
    /// If it is neither a rate nor a timetable.
    fn parse(text: &str) -> Result<RateLimitOption, String> {
        if let Ok(rate) = parse_rate(text) {
            return Ok(RateLimitOption::Always(rate));
        }
        // A single word with neither days nor times is meant as a rate.
        if text.contains([',', ':', ' ']) {
            match RateTimetable::parse(text, parse_rate) {
                Ok(table) => Ok(RateLimitOption::ByTime(text.to_owned(), table)),
                Err(problem) => Err(problem.to_string()),
            }
        } else {
            parse_rate(text).map(RateLimitOption::Always)
        }
    }
}

/// Parses a size per second.
fn parse_rate(text: &str) -> Result<u64, String> {
    let number = text.trim().strip_suffix("/s").unwrap_or(text);
    size::parse(number).map_err(|_| "a rate is bytes a second, such as 500MB, 1GiB or 1GiB/s".into())
}

/// Parses the size of a stripe. A unit of one letter is a power of 1,024, as for `lfs setstripe -S 4M`.
fn parse_stripe_size(text: &str) -> Option<u64> {
    match text.strip_suffix(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T']) {
        Some(number) => size::parse(&format!("{number}{}iB", &text[number.len()..])).ok(),
        None => size::parse(text).ok(),
    }
}

fn parse_stripe(text: &str) -> Result<StripeChoice, String> {
    match text {
        "default" => return Ok(StripeChoice::Default),
        "preserve" => return Ok(StripeChoice::Preserve),
        "auto" => return Ok(StripeChoice::Auto),
        _ => {}
    }
    let problem =
        "a striping is default, preserve, auto, or COUNT[:SIZE[:POOL]], such as 8, 8:4MiB, all:1MiB:flash";
    let mut parts = text.splitn(3, ':');
    let count = match parts.next() {
        Some("all") => u32::MAX,
        Some(count) => u32::from_str(count).ok().filter(|count| *count > 0).ok_or(problem)?,
        None => return Err(problem.to_owned()),
    };
    let stripe_bytes = match parts.next() {
        None | Some("") => 0,
        Some(size) => parse_stripe_size(size).ok_or(problem)?,
    };
    if !stripe_bytes.is_multiple_of(64 << 10) {
        return Err("stripes are multiples of 64KiB, such as 1MiB".into());
    }
    let pool = parts.next().unwrap_or_default().to_owned();
    Ok(StripeChoice::Fixed { count, stripe_bytes, pool })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(count: u32, stripe_bytes: u64, pool: &str) -> StripeChoice {
        StripeChoice::Fixed { count, stripe_bytes, pool: pool.into() }
    }

    #[test]
    fn stripings_are_read() {
        for (text, stripe) in [
            ("default", StripeChoice::Default),
            ("preserve", StripeChoice::Preserve),
            ("auto", StripeChoice::Auto),
            ("8", fixed(8, 0, "")),
            ("all:1MiB", fixed(u32::MAX, 1 << 20, "")),
            ("4::flash", fixed(4, 0, "flash")),
            ("4:64KiB:flash", fixed(4, 64 << 10, "flash")),
            ("4:1M", fixed(4, 1 << 20, "")),
            ("4:64k", fixed(4, 64 << 10, "")),
        ] {
            assert_eq!(parse_stripe(text), Ok(stripe), "{text}");
        }
        for text in ["", "0", "many", "4:1000", "4:x", ":1MiB", "-1"] {
            assert!(parse_stripe(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_sizes_by_the_second() {
        for (text, rate) in [("500M", 500_000_000), ("1GiB/s", 1 << 30), ("2k", 2_000)] {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for text in ["", "0", "fast", "1Gbit", "/s"] {
            assert!(parse_rate(text).is_err(), "{text}");
            assert!(RateLimitOption::parse(text).is_err_and(|error| error.contains("a rate is")), "{text}");
        }
        assert_eq!(RateLimitOption::parse("1 GiB"), Ok(RateLimitOption::Always(1 << 30)));
        assert!(matches!(
            RateLimitOption::parse("mon-fri 8:00-18:00 1MB/s, off"),
            Ok(RateLimitOption::ByTime(..))
        ));
        assert!(
            RateLimitOption::parse("mon-fri 8:00-18:00 fast").is_err_and(|error| error.contains("a rate is"))
        );
        assert!(RateLimitOption::parse("fri 8-18 1MB").is_err_and(|error| error.contains("HH:MM")));
    }
}
