//! The arguments of `carrack cp` besides the options of every transfer (`carrack-options`): its paths, and
//! its output.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use carrack_engine::EndSettings;
use carrack_model::{AgreedTransferSpec, ObjectChecksumAlgorithm, SyncRules};
use carrack_options::{CONNECTION, DATA, TransferArgs};
use clap::{Args, ValueHint};

use crate::exit;
use crate::lifetime;
use crate::options::far_end_connection::FarArgs;
use crate::options::foreign::RefusedRsyncArgs;
use crate::user_error::UserError;

const TALK: &str = "Output";

/// The interval of lines about the status without a terminal: a job's output of a day has 1,440.
const STATS_INTERVAL: Duration = Duration::from_secs(60);

/// Parses an interval in seconds or with a unit; 0 is none.
fn parse_interval(text: &str) -> Result<Duration, String> {
    if text.trim() == "0" { Ok(Duration::ZERO) } else { lifetime::parse_timeout(text) }
}

/// Copy files and directories: here, to another host, or from one
///
/// One end may be on another host, `[user@]host:path`: carrack logs in there with the system's ssh and starts
/// itself on the far side. The data then flows over several connections of its own, or through ssh where none
/// can be made. Remote paths without a leading slash start at the home directory there;
/// `[user@][address]:path` takes an IPv6 address. A local name with a colon is written `./a:b`.
///
/// Or it may be at a daemon (`carrack serve`), `carrack://host[:port]/EXPORT/path`, over TLS: no login is
/// needed there, but a certificate, a key that the daemon knows, or a token. In such a path `?`, `#` and `%`
/// are written %3F, %23 and %25.
///
/// Modification times (to the nanosecond) and symbolic links are kept. New entries get the permission bits of
/// the source less the umask, and existing ones keep their mode; --perms and --archive give every entry the
/// mode of the source. --archive keeps owners, extended attributes and ACLs too. Sockets, devices and pipes
/// are left out, and none is written to. A file at the destination is replaced only when its new content is
/// complete and checked.
#[derive(Debug, Args)]
#[command(after_long_help = after_long_help(), override_usage = "carrack cp [OPTIONS] SOURCE... DESTINATION")]
pub struct CpArgs {
    /// The sources, all local or all on the same host, and last the destination
    // One argument, not two: clap would refuse options between the two.
    #[arg(required = true, num_args = 1.., value_name = "PATH", value_hint = ValueHint::AnyPath)]
    paths: Vec<OsString>,

    /// Copy directories with everything in them
    ///
    /// Links that are named as sources are copied as links.
    #[arg(short, long, help_heading = DATA)]
    pub recursive: bool,

    /// List on stdout the entries that would be copied, and copy nothing
    #[arg(short = 'n', long, help_heading = DATA)]
    pub dry_run: bool,

    /// Write the BLAKE3 digest of each copied file to FILE, for b3sum
    ///
    /// `b3sum --check FILE` in the destination compares them. Implies --checksum blake3. Lines come in the
    /// order of completion. FILE appears when the transfer has ended; if it ended early or some files failed,
    /// FILE holds the files that are complete, and the summary says so.
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run", value_hint = ValueHint::FilePath, help_heading = DATA)]
    pub manifest: Option<PathBuf>,

    /// Print failures only
    #[arg(short, long, conflicts_with = "verbose", help_heading = TALK)]
    pub quiet: bool,

    /// Print notices, entries that were left out and every failure, too
    #[arg(short, long, overrides_with = "verbose", help_heading = TALK)]
    pub verbose: bool,

    /// Write the messages into FILE, too, one after the other
    ///
    /// A file that exists is continued. With --verbose notices are among them.
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run", value_hint = ValueHint::FilePath, help_heading = TALK)]
    pub log_file: Option<PathBuf>,

    /// Write every event to stdout, one JSON object a line
    ///
    /// The last one is the summary.
    #[arg(long, help_heading = TALK)]
    pub json: bool,

    /// Print a line about the status at this interval; 0: never [default: 60 without a terminal, else 0]
    ///
    /// A number alone is in seconds; 5m is five minutes. SIGUSR1 prints the line at once, and SIGUSR2
    /// switches --verbose on and off.
    #[arg(long, value_name = "SECONDS", value_parser = parse_interval, conflicts_with_all = ["json", "quiet", "dry_run", "tui"], help_heading = TALK)]
    pub stats: Option<Duration>,

    /// Write a page about the transfer to FILE (HTML): copied files, rates over time, per target and lane,
    /// sizes, failures
    ///
    /// FILE appears when the transfer has ended, however it ended. It is self-contained, and loads nothing
    /// from anywhere.
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run", value_hint = ValueHint::FilePath, help_heading = TALK)]
    pub report: Option<PathBuf>,

    /// A text by which to recognise the copy in `carrack transfers`
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, help_heading = TALK)]
    pub label: String,

    /// Show the stages, storage targets, lanes and slow files while they work, on the whole terminal; q ends
    /// the copy as Ctrl-C does
    #[arg(long, conflicts_with_all = ["json", "quiet", "dry_run"], help_heading = TALK)]
    pub tui: bool,

    /// Copy in the background; the copy's ID goes to stdout
    ///
    /// It is printed when both ends have met: `carrack status`, `wait` and `cancel` take it.
    /// The copy continues when the terminal is closed. Its output is in a log, which `carrack status` names.
    /// It can't ask for a password: ssh must work without one.
    #[arg(long, conflicts_with_all = ["json", "tui", "dry_run"], help_heading = TALK)]
    pub background: bool,

    /// Marks the background process itself.
    #[arg(long, hide = true)]
    pub in_background: bool,

    #[command(flatten)]
    pub transfer: TransferArgs,

    #[command(flatten)]
    pub far: FarArgs,

    /// Between two far hosts, let the data pass through this host
    ///
    /// For hosts that can't reach each other.
    #[arg(long, help_heading = CONNECTION)]
    pub relay: bool,

    #[command(flatten)]
    pub foreign: RefusedRsyncArgs,

    /// Set by `carrack sync`.
    #[arg(skip)]
    pub sync: Option<SyncRules>,
}

impl CpArgs {
    /// Returns the interval of lines about the status; by default there are none where somebody watches the
    /// progress, and in the background, where `carrack status` shows it.
    pub fn status_interval(&self) -> Option<Duration> {
        let is_watched = self.json || self.quiet || self.tui || self.dry_run || self.in_background;
        let default = if is_watched || io::stderr().is_terminal() { Duration::ZERO } else { STATS_INTERVAL };
        Some(self.stats.unwrap_or(default)).filter(|interval| !interval.is_zero())
    }

    /// Returns the sources, at least one, and the destination.
    pub fn paths(&self) -> Result<(&[OsString], &OsStr), UserError> {
        match self.paths.split_last() {
            Some((destination, sources)) if !sources.is_empty() => Ok((sources, destination)),
            _ => Err(UserError::new("a SOURCE and a DESTINATION are needed").hint("see carrack cp --help")),
        }
    }

    /// Returns the destination as it was typed.
    pub fn destination_mut(&mut self) -> Option<&mut OsString> {
        self.paths.last_mut()
    }

    /// Returns the transfer specification; `is_far` is true if the ends are on different hosts.
    pub fn spec(&self, is_far: bool) -> Result<AgreedTransferSpec, UserError> {
        // Without data connections objects go through ssh, which checks their integrity. Another program in
        // place of ssh may not.
        let is_sealed = is_far && self.transfer.protection().seals() && self.far.ssh.is_openssh();
        let (spec, checksum) = (self.transfer.spec(), self.checksum(is_sealed)?);
        let recursive = self.recursive || spec.recursive;
        self.check_partial_transfer(recursive)?;
        let reports_json = self.json && checksum == ObjectChecksumAlgorithm::Blake3 && spec.part.is_none();
        Ok(AgreedTransferSpec {
            recursive,
            dry_run: self.dry_run,
            checksum,
            report_digests: self.manifest.is_some() || reports_json,
            sync: self.sync.clone(),
            ..spec
        })
    }

    /// Returns the settings of this end alone.
    pub fn settings(&self) -> Result<EndSettings, UserError> {
        self.transfer.settings(self.paths()?.0)
    }

    /// Refuses options that a partial transfer does not have.
    fn check_partial_transfer(&self, recursive: bool) -> Result<(), UserError> {
        self.transfer.check_partial_transfer(self.sync.is_some(), recursive)?;
        if self.transfer.partial_range().is_some() && self.manifest.is_some() {
            let message =
                "a manifest holds digests of whole files, and --offset and --length are for a part of one";
            return Err(
                UserError::new(message).hint("leave --manifest out; `carrack verify` takes the same part")
            );
        }
        Ok(())
    }

    /// Returns the checksum. Where objects are sealed the default is none: the seal detects every change that
    /// a hash would.
    fn checksum(&self, is_sealed: bool) -> Result<ObjectChecksumAlgorithm, UserError> {
        match (self.transfer.checksum(), &self.manifest) {
            (None, None) if is_sealed => Ok(ObjectChecksumAlgorithm::None),
            (None, None) => Ok(ObjectChecksumAlgorithm::default()),
            (Some(checksum), None) => Ok(checksum),
            (None | Some(ObjectChecksumAlgorithm::Blake3), Some(_)) => Ok(ObjectChecksumAlgorithm::Blake3),
            (Some(other), Some(_)) => {
                Err(UserError::new(format!("--manifest needs --checksum blake3, not {other}"))
                    .hint("leave --checksum out"))
            }
        }
    }
}

fn after_long_help() -> String {
    const EXAMPLES: &str = "\
Name of the copy:
  carrack cp -r tree host:data      data is a directory: host:data/tree
                                    there is no data: host:data
  carrack cp -r tree/ host:data     the contents of tree go into data
  carrack cp -rT tree host:data     host:data, each time
  carrack cp file host:data         data is a directory: host:data/file
                                    else: host:data, replaced
  carrack cp file host:data/        goes into data
  carrack cp a b c host:data        several sources go into data
  carrack cp link host:             the file that the link leads to
  carrack cp -r link host:          the link itself
Where something goes into data, data is made if there is none;
the directory above it has to be there.

More examples:
  carrack cp -r me@dtn1:/data/run7 /archive
  carrack cp -r run7 carrack://dtn1.site.org/data/
  carrack cp -rn tree host:         what would be copied?
  carrack cp -r --manifest run7.b3 dtn1:/data/run7 .
                                    then: b3sum --check run7.b3
  carrack cp --offset 64GiB --length 4GiB big host:big
                                    that part of big, in its place
  carrack cp --ports 50000-50100 --connect-from sink big [2001:db8::7]:

";
    exit::help(EXAMPLES)
}

#[cfg(test)]
mod tests {
    use carrack_engine::JournalSettings;
    use carrack_model::limits::{POOL_BYTES_DEFAULT, RETRIES_DEFAULT, SLOT_BYTES_MAX, SLOT_BYTES_MIN};
    use carrack_model::{
        DialingEnd, Durability, PartialCopyRange, ProtectionLevel, SchedulingOptions, SchedulingPolicyChoice,
        SealCipher, SinkIoMethod, SourceReadMethod, StripeChoice, WriteVerification,
    };

    use super::*;
    use crate::options::tests::command;

    fn parse(words: &[&str]) -> Result<CpArgs, clap::Error> {
        crate::options::tests::parse(words)
    }

    #[test]
    fn the_status_has_an_interval() {
        for (words, seconds) in [(&["--stats", "0"][..], 0), (&["--stats", "30"], 30), (&["--stats=5m"], 300)]
        {
            let args = parse(&[words, &["a", "b"]].concat()).unwrap();
            assert_eq!(args.status_interval().unwrap_or_default().as_secs(), seconds, "{words:?}");
        }
        assert_eq!(parse(&["--json", "a", "b"]).unwrap().status_interval(), None);
        for words in [["--stats", "x"], ["--stats", "-1"]] {
            assert!(parse(&[&words[..], &["a", "b"]].concat()).is_err(), "{words:?}");
        }
        assert!(parse(&["--stats", "9", "--json", "a", "b"]).is_err());
    }

    #[test]
    fn the_defaults_are_the_models() {
        let args = parse(&["a", "b"]).unwrap();
        assert_eq!(args.spec(false).unwrap(), AgreedTransferSpec::default());
        let settings = args.settings().unwrap();
        assert_eq!((settings.pool_bytes, settings.io_threads), (POOL_BYTES_DEFAULT, 0));
        assert!(settings.ports.is_none());
        assert_eq!(settings.scheduling, SchedulingOptions::default());
        assert_eq!(
            (settings.journal, settings.verify),
            (JournalSettings::default(), WriteVerification::Object)
        );
        assert_eq!(settings.stall, EndSettings::default().stall);
        assert_eq!((args.transfer.retry, args.transfer.timeout), (RETRIES_DEFAULT, None));
    }

    #[test]
    fn patience_arrives() {
        let args =
            parse(&["--retry", "0", "--stall-timeout", "5", "--timeout", "2h", "--stop-at", "@7", "a", "b"])
                .unwrap();
        assert_eq!(args.settings().unwrap().stall, Duration::from_secs(5));
        assert_eq!((args.transfer.retry, args.transfer.timeout), (0, Some(Duration::from_secs(7_200))));
        assert_eq!(args.transfer.stop_at, Some(7));
        for words in [["--stall-timeout", "0"], ["--timeout", "0"], ["--retry", "-1"]] {
            assert!(parse(&[&words[..], &["a", "b"]].concat()).is_err(), "{words:?}");
        }
    }

    #[test]
    fn options_arrive() {
        let words = "-r -n --checksum none --buffer 8MiB --object-size 2MiB --streams 7 --io-threads 3 --ports 9-10 \
                     --connect-from sink --via ssh --source-io direct --ssh 'x -y' --remote-carrack /c a b c";
        let words = shell_words::split(words).unwrap();
        let args = parse(&words.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        let spec = args.spec(false).unwrap();
        assert!(spec.recursive && spec.dry_run && !spec.report_digests);
        assert_eq!(
            (spec.checksum, spec.slot_bytes, spec.streams),
            (ObjectChecksumAlgorithm::None, 2 << 20, 7)
        );
        assert_eq!(spec.dial_from, DialingEnd::Sink);
        let settings = args.settings().unwrap();
        assert_eq!((settings.pool_bytes, settings.io_threads), (8 << 20, 3));
        assert!(settings.over_control && !parse(&["a", "b"]).unwrap().settings().unwrap().over_control);
        assert_eq!((settings.ports, settings.source_io), (Some(9..=10), SourceReadMethod::Direct));
        assert_eq!(
            (&args.far.ssh, &args.far.remote_carrack),
            (&"x -y".parse().unwrap(), &"/c".parse().unwrap())
        );
        assert_eq!(args.paths().unwrap(), (&["a".into(), "b".into()][..], OsStr::new("c")));
    }

    #[test]
    fn the_seal_is_the_check_between_hosts_unless_another_is_asked_for() {
        for (words, is_far, checksum) in [
            ("a b", true, ObjectChecksumAlgorithm::None),
            ("a b", false, ObjectChecksumAlgorithm::Xxh3),
            ("--protection safe a b", true, ObjectChecksumAlgorithm::None),
            ("--protection clear a b", true, ObjectChecksumAlgorithm::Xxh3),
            ("--ssh /opt/bin/ssh a b", true, ObjectChecksumAlgorithm::None),
            ("--ssh kubectl-exec a b", true, ObjectChecksumAlgorithm::Xxh3),
            ("--ssh docker --checksum none a b", true, ObjectChecksumAlgorithm::None),
            ("--checksum xxh3 a b", true, ObjectChecksumAlgorithm::Xxh3),
            ("--manifest m a b", true, ObjectChecksumAlgorithm::Blake3),
        ] {
            let args = parse(&words.split(' ').collect::<Vec<_>>()).unwrap();
            assert_eq!(args.spec(is_far).unwrap().checksum, checksum, "{words} {is_far}");
        }
        let args = parse(&["--protection", "safe", "--cipher", "chacha20-poly1305", "a", "b"]).unwrap();
        let spec = args.spec(true).unwrap();
        assert_eq!((spec.protection, spec.cipher), (ProtectionLevel::Safe, SealCipher::ChaCha20Poly1305));
    }

    #[test]
    fn storage_options_arrive() {
        let words = "--policy threshold:1000,80,30 --bwlimit 1MB --bwlimit-per-target 2MB --max-inflight-per-target 3 \
                     --targets /a,/b --targets /c --sink-io direct --stripe auto --recall a b";
        let args = parse(&words.split_whitespace().collect::<Vec<_>>()).unwrap();
        let settings = args.settings().unwrap();
        let scheduling = settings.scheduling;
        assert_eq!(scheduling.policy.to_string(), "threshold:1000,80,30");
        assert_eq!(
            (scheduling.rate, scheduling.target_rate, scheduling.in_flight_max),
            (1_000_000, 2_000_000, 3)
        );
        assert_eq!(settings.target_sets, ["/a", "/b", "/c"].map(PathBuf::from));
        assert_eq!((settings.sink_io, settings.recall), (SinkIoMethod::Direct, true));
        assert_eq!(args.spec(false).unwrap().stripe, StripeChoice::Auto);
        let nice = parse(&["--nice", "a", "b"]).unwrap().settings().unwrap();
        assert_eq!(nice.scheduling.policy, SchedulingPolicyChoice::Adaptive { nice: true });
        assert!(parse(&["--nice", "--policy", "round-robin", "a", "b"]).unwrap().settings().is_err());
        assert!(parse(&["--policy", "fifo", "a", "b"]).is_err());
    }

    #[test]
    fn journal_options_arrive() {
        let words =
            "--durability end --group-size 1MiB --group-time 20 --journal-dir /j --verify readback a b";
        let args = parse(&words.split(' ').collect::<Vec<_>>()).unwrap();
        let settings = args.settings().unwrap();
        let expected = JournalSettings {
            is_on: true,
            directory: Some("/j".into()),
            durability: Durability::End,
            group_bytes: 1 << 20,
            group_time: Duration::from_millis(20),
        };
        assert_eq!((settings.journal, settings.verify), (expected, WriteVerification::Readback));
        assert!(!parse(&["--no-journal", "a", "b"]).unwrap().settings().unwrap().journal.is_on);
        assert!(parse(&["--no-journal", "--journal-dir", "/j", "a", "b"]).is_err());
    }

    #[test]
    fn a_manifest_needs_blake3() {
        let spec = parse(&["--manifest", "m", "a", "b"]).unwrap().spec(false).unwrap();
        assert_eq!((spec.checksum, spec.report_digests), (ObjectChecksumAlgorithm::Blake3, true));
        assert!(parse(&["--manifest", "m", "--checksum", "blake3", "a", "b"]).unwrap().spec(false).is_ok());
        assert!(parse(&["--manifest", "m", "--checksum", "xxh3", "a", "b"]).unwrap().spec(false).is_err());
        let spec = parse(&["--json", "--checksum", "blake3", "a", "b"]).unwrap().spec(false).unwrap();
        assert!(spec.report_digests);
    }

    #[test]
    fn nonsense_is_refused() {
        for words in [
            &[][..],
            &["--streams", "65", "a", "b"],
            &["--io-threads", "257", "a", "b"],
            &["--object-size", "3MiB", "a", "b"],
            &["--ports", "9-8", "a", "b"],
            &["-q", "-v", "a", "b"],
            &["-n", "--manifest", "m", "a", "b"],
            &["--checksum", "md5", "a", "b"],
        ] {
            assert_eq!(parse(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
        assert!(parse(&["--buffer", "3MiB", "a", "b"]).unwrap().settings().is_err());
        assert!(parse(&["a"]).unwrap().paths().is_err());
    }

    fn spec(words: &str) -> Result<AgreedTransferSpec, UserError> {
        parse(&words.split(' ').collect::<Vec<_>>()).unwrap().spec(false)
    }

    fn part(words: &str) -> Option<PartialCopyRange> {
        spec(words).unwrap().part
    }

    #[test]
    fn a_part_is_of_one_file_as_it_is() {
        assert_eq!(part("a b"), None);
        assert_eq!(part("--offset 0 a b"), Some(PartialCopyRange { offset: 0, length: None }));
        assert_eq!(part("--length 1KiB a b"), Some(PartialCopyRange { offset: 0, length: Some(1_024) }));
        assert_eq!(part("--offset 7 --length 5 a b"), Some(PartialCopyRange { offset: 7, length: Some(5) }));
        assert!(part("--offset 7 --no-times a b").is_some());
        assert!(!spec("--offset 7 --json --checksum blake3 a b").unwrap().report_digests);
        for words in ["-r", "-a", "--perms", "--chmod go-w", "--xattrs", "-H", "--chown 7", "--manifest m"] {
            let trouble = spec(&format!("--offset 7 {words} a b")).unwrap_err();
            assert!(trouble.hint.is_some(), "{words}");
        }
        assert!(parse(&["--length", "0", "a", "b"]).is_err());
    }

    #[test]
    fn options_may_stand_anywhere() {
        let args = parse(&["a", "-r", "b", "--manifest", "m", "c", "--", "-d"]).unwrap();
        assert_eq!(args.paths().unwrap(), (&["a".into(), "b".into(), "c".into()][..], OsStr::new("-d")));
        assert!(args.recursive && args.manifest.is_some());
    }

    #[test]
    fn the_help_names_the_limits_that_hold() {
        let help = command::<CpArgs>().render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let object = format!("{} to {}", SLOT_BYTES_MIN >> 10, SLOT_BYTES_MAX >> 20);
        assert_eq!(object, "128 to 64");
        for words in [
            "128KiB to 64MiB",
            "up to 64; 0 chooses by the path",
            "2 at first on a near path, 8 where",
            "up to 256",
            "CARRACK_SSH",
            "tree/ host:data",
            "130",
        ] {
            assert!(help.contains(words), "{words}:\n{help}");
        }
    }
}
