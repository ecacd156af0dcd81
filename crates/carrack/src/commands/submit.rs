//! `carrack submit`: a transfer for whoever carries them out.

use std::io::{self, Write};

use carrack_cluster::records::{Location, Options, Submission, Umask};
use carrack_model::limits::{IO_THREADS_MAX, STREAMS_MAX};
use clap::Args;
use rustix::fs::Mode;
use rustix::process::umask;

use super::copied_options::CopiedArgs;
use super::not_here::NotHere;
use super::storage_options::Limit;
use super::target_options::{TargetArgs, control};
use super::wait::await_end;
use super::when_options::WhenArgs;
use crate::exit::{self, Exit};
use crate::size;
use crate::trouble::Trouble;

const HOW: &str = "How it is carried out";

/// Submit a transfer, which is carried out when its turn comes
///
/// SRC and DST are SITE:/path; the site `local` is the machine of the daemon that is asked. They mean what they mean to `carrack cp
/// -r`: a directory is copied with everything in it, its contents with a slash behind it. The transfer's ID goes to stdout; `carrack
/// status`, `wait`, `pause`, `resume` and `cancel` take it. What says which entries are left out, --file-flags and timetables are for
/// one machine's queue; a fleet refuses them. There a copy is made with your umask, too.
#[derive(Debug, Args)]
#[command(after_long_help = after_long_help())]
pub struct SubmitArgs {
    /// What is copied, SITE:/path
    #[arg(value_name = "SRC")]
    source: Location,

    /// Where to, SITE:/path
    #[arg(value_name = "DST")]
    destination: Location,

    /// 0 to 9: where there is not enough for all, more is sooner
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: u8,

    /// Words by which you know it again
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    label: String,

    /// Return when it is over, with the exit code that `carrack cp` would have had
    #[arg(long)]
    wait: bool,

    /// As for `carrack cp`: private, safe, clear
    #[arg(long, value_name = "LEVEL", help_heading = HOW)]
    protection: Option<String>,

    /// As for `carrack cp`: aes-256-gcm, aes-128-gcm, chacha20-poly1305
    #[arg(long, value_name = "NAME", help_heading = HOW)]
    cipher: Option<String>,

    /// As for `carrack cp`: xxh3, blake3, none
    #[arg(long, value_name = "KIND", help_heading = HOW)]
    checksum: Option<String>,

    /// As for `carrack cp`: each, group, end
    #[arg(long, value_name = "WHEN", help_heading = HOW)]
    durability: Option<String>,

    /// As for `carrack cp`: object, readback
    #[arg(long, value_name = "WHAT", help_heading = HOW)]
    verify: Option<String>,

    /// Data connections of each pair of movers, up to 64
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=STREAMS_MAX as i64), help_heading = HOW)]
    streams: Option<u16>,

    /// Memory for data in flight at each mover
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = HOW)]
    buffer: Option<u64>,

    /// Largest piece that is read, sent and written at once: a power of two, 128KiB to 64MiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse_slot, help_heading = HOW)]
    object_size: Option<u32>,

    /// Bytes per second that each pair of movers may move; on one machine also a timetable, as for `carrack cp`
    #[arg(long, value_name = "RATE", value_parser = Limit::parse, help_heading = HOW)]
    bwlimit: Option<Limit>,

    /// As for `carrack cp`: adaptive, round-robin, threshold:W,T,M
    #[arg(long, value_name = "POLICY", help_heading = HOW)]
    policy: Option<String>,

    /// As for `carrack cp`: the class where storage targets are shared out
    #[arg(long, value_name = "NAME", help_heading = HOW)]
    class: Option<String>,

    /// Back off as soon as others use a storage target
    #[arg(long, help_heading = HOW)]
    nice: bool,

    /// Bytes per second from or to each storage target, for each mover of a pair
    #[arg(long, value_name = "RATE", value_parser = size::parse, help_heading = HOW)]
    bwlimit_per_target: Option<u64>,

    /// Requests to one storage target at a time, for each mover of a pair
    #[arg(long, value_name = "N", help_heading = HOW)]
    max_inflight_per_target: Option<u32>,

    /// As for `carrack cp`: auto, buffered, direct
    #[arg(long, value_name = "WAY", help_heading = HOW)]
    source_io: Option<String>,

    /// As for `carrack cp`: auto, buffered, direct, writeback
    #[arg(long, value_name = "WAY", help_heading = HOW)]
    sink_io: Option<String>,

    /// Threads that read or write at each mover of a pair, up to 256
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=IO_THREADS_MAX as i64), help_heading = HOW)]
    io_threads: Option<u16>,

    /// In a fleet: bytes of a chunk at most
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = HOW)]
    chunk_size: Option<u64>,

    /// In a fleet: pairs of movers at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = HOW)]
    pairs: Option<u32>,

    /// In a fleet: each pair gets its share beforehand, for comparisons
    #[arg(long, help_heading = HOW)]
    static_striping: bool,

    #[command(flatten)]
    when: WhenArgs,

    #[command(flatten)]
    copied: CopiedArgs,

    #[command(flatten)]
    not_here: NotHere,

    #[command(flatten)]
    target: TargetArgs,
}

impl SubmitArgs {
    fn submission(&self, not_before_ms: Option<u64>) -> Result<Submission, Trouble> {
        Ok(Submission {
            source: self.source.clone(),
            destination: self.destination.clone(),
            priority: self.priority,
            label: self.label.clone(),
            not_before_ms,
            umask: Some(own_umask()),
            options: Options {
                protection: self.protection.clone(),
                cipher: self.cipher.clone(),
                checksum: self.checksum.clone(),
                durability: self.durability.clone(),
                verify: self.verify.clone(),
                streams: self.streams,
                buffer_bytes: self.buffer,
                object_bytes: self.object_size,
                limit_bytes_per_s: self.bwlimit.as_ref().and_then(Limit::always),
                timetable: self.bwlimit.as_ref().and_then(Limit::text),
                copy_options: self.copied.words()?,
                policy: self.policy.clone(),
                nice: self.nice,
                class: self.class.clone(),
                deadline_ms: self.when.claim_ms(),
                limit_bytes_per_s_per_target: self.bwlimit_per_target,
                max_inflight_per_target: self.max_inflight_per_target,
                source_io: self.source_io.clone(),
                sink_io: self.sink_io.clone(),
                io_threads: self.io_threads,
                chunk_bytes: self.chunk_size,
                pairs_max: self.pairs,
                static_striping: self.static_striping,
            },
        })
    }
}

/// That of this process, which makes nothing meanwhile.
fn own_umask() -> Umask {
    let own = umask(Mode::empty());
    umask(own);
    Umask::of_bits(own.as_raw_mode())
}

/// Submits it, and waits for its end if that is wanted.
pub fn run(args: &SubmitArgs) -> Exit {
    submit(args).unwrap_or_else(|trouble| {
        trouble.tell();
        Exit::Nothing
    })
}

fn submit(args: &SubmitArgs) -> Result<Exit, Trouble> {
    args.not_here.check()?;
    let start = args.when.start()?;
    let target = control(&args.target)?;
    // Who asks is found out by the one who is asked.
    let record = target.wait(target.control.submit("", args.submission(start.not_before_ms)?))?;
    if !start.words.is_empty() {
        let _ = writeln!(io::stderr(), "carrack: {}", start.words);
    }
    // It is submitted, whether somebody reads its ID or not.
    let _ = writeln!(io::stdout(), "{}", record.id);
    if args.wait { await_end(&target, &record.id) } else { Ok(Exit::Complete) }
}

fn after_long_help() -> String {
    const EXAMPLES: &str = "\
Examples:
  carrack submit local:/scratch/run7 local:/archive/
  id=$(carrack submit --priority 7 local:/a/ alcf:/a); carrack wait $id
  carrack submit --server https://site.org --token-file token a:/x b:/y
  carrack submit --when=best --deadline 18h --expect 2h --storage lfs01 \\
      --config carrack.toml local:/lustre/a/ local:/archive/a

";
    format!("{EXAMPLES}{}", exit::help())
}
