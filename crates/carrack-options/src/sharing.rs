//! Options of shared storage targets: the meta-server, and the transfer's class and deadline.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use carrack_model::limits::CLASS_BYTES_MAX;
use clap::{Args, ValueHint};

use crate::lifetime::parse_moment;

const SHARING: &str = "Shared storage targets";

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Args)]
pub struct SharingArgs {
    /// Class of the transfer at shared storage targets
    ///
    /// The administrator defines classes and their users. An unknown or forbidden class counts as none.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, value_parser = parse_class, help_heading = SHARING)]
    class: String,

    /// Time by which the transfer should be done: 2026-11-23T02:00:00Z, or a duration from now, 6h
    ///
    /// At shared storage targets the transfer claims the necessary rate, as far as its class permits; once
    /// the time is over, all that its class permits.
    #[arg(long, value_name = "TIME", value_parser = parse_deadline, help_heading = SHARING)]
    deadline: Option<SystemTime>,

    /// Meta-scheduler of shared storage targets: auto, off, or the Unix socket of a daemon
    ///
    /// auto is the daemon of this machine, if it shares targets. Another host uses its own daemon: `off`
    /// counts there too, a socket does not.
    #[arg(long, value_name = "WHO", default_value = "auto", value_hint = ValueHint::FilePath, help_heading = SHARING)]
    sharing: MetaSchedulerChoice,
}

impl SharingArgs {
    /// Returns the class; empty for none.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// Returns the time by which the transfer should be done.
    pub fn deadline(&self) -> Option<SystemTime> {
        self.deadline
    }

    /// Returns the meta-server for this end.
    pub fn meta_scheduler(&self) -> &MetaSchedulerChoice {
        &self.sharing
    }
}

/// The choice of a meta-server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaSchedulerChoice {
    /// The daemon of this machine, if it shares targets.
    Auto,
    /// None.
    Off,
    /// The meta-server at this socket.
    Socket(PathBuf),
}

impl FromStr for MetaSchedulerChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<MetaSchedulerChoice, Infallible> {
        Ok(match text {
            "auto" => MetaSchedulerChoice::Auto,
            "off" => MetaSchedulerChoice::Off,
            path => MetaSchedulerChoice::Socket(path.strip_prefix("unix:").unwrap_or(path).into()),
        })
    }
}

fn parse_deadline(text: &str) -> Result<SystemTime, String> {
    let seconds = parse_moment(text)?;
    let moment = u64::try_from(seconds).ok().and_then(|s| UNIX_EPOCH.checked_add(Duration::from_secs(s)));
    moment.ok_or_else(|| "that is before 1970, or after the end of time".to_owned())
}

fn parse_class(text: &str) -> Result<String, String> {
    let is_fine = text.len() <= CLASS_BYTES_MAX && !text.chars().any(char::is_control);
    if is_fine {
        Ok(text.to_owned())
    } else {
        Err(format!("a class has a name of up to {CLASS_BYTES_MAX} bytes"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestSharingCommandLine {
        #[command(flatten)]
        args: SharingArgs,
    }

    fn parse(words: &[&str]) -> Result<SharingArgs, clap::Error> {
        TestSharingCommandLine::try_parse_from([&["cp"], words].concat()).map(|cp| cp.args)
    }

    fn sharer(words: &[&str]) -> MetaSchedulerChoice {
        parse(words).unwrap().sharing
    }

    #[test]
    fn who_is_asked_is_a_word_or_a_socket() {
        assert_eq!(
            (sharer(&[]), sharer(&["--sharing", "off"])),
            (MetaSchedulerChoice::Auto, MetaSchedulerChoice::Off)
        );
        for path in ["/x/y.sock", "unix:/x/y.sock"] {
            assert_eq!(sharer(&["--sharing", path]), MetaSchedulerChoice::Socket("/x/y.sock".into()));
        }
    }

    #[test]
    fn a_deadline_is_a_moment() {
        assert_eq!(parse(&[]).unwrap().deadline(), None);
        let at = parse(&["--deadline", "6h"]).unwrap().deadline().unwrap();
        let left = at.duration_since(SystemTime::now()).unwrap();
        assert!((21_590..=21_600).contains(&left.as_secs()), "{left:?}");
        let over = parse(&["--deadline", "@1000"]).unwrap().deadline();
        assert_eq!(
            over,
            UNIX_EPOCH.checked_add(Duration::from_secs(1_000)),
            "it waited in a queue, and is late"
        );
        for text in ["1969-01-01T00:00:00Z", "soon", "@-1"] {
            assert!(parse(&["--deadline", text]).is_err(), "{text}");
        }
    }

    #[test]
    fn a_class_is_a_name() {
        assert_eq!(
            (parse(&[]).unwrap().class(), parse(&["--class", "urgent"]).unwrap().class()),
            ("", "urgent")
        );
        let long = "x".repeat(CLASS_BYTES_MAX + 1);
        assert!(parse(&["--class", &long]).is_err() && parse(&["--class", "a\nb"]).is_err());
    }
}
