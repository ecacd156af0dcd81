//! `carrack doctor`: checks that find why this machine is slow at moving data, from its arguments to its exit
//! code.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use carrack_machine::doctor::repair::{DoctorRepairResult, repair};
use carrack_machine::doctor::{
    DoctorPath, DoctorTransferParameters, KernelProbes, RTT_MS_DEFAULT, run_checks,
};
use carrack_machine::{CgroupTree, SysFiles};
use carrack_model::escape;
use carrack_model::limits::POOL_BYTES_DEFAULT;
use clap::{Args, ValueHint};

use crate::exit::{self, ExitStatus};
use crate::size;
use crate::user_error::UserError;
use crate::views::doctor::DoctorReport;
use crate::views::output::{print, print_stdout_error};

/// Find settings that make this machine slow at moving data
///
/// Looks at network buffers, congestion control, interfaces and their interrupts, processors, memory, disks,
/// mounts, clocks and limits. For each: the present value and the wanted one, and where they differ the
/// reason, the source of the advice and the command that changes it. What `sysctl -w` sets lasts until the
/// next start; a file in `/etc/sysctl.d` keeps it.
///
/// Changes nothing without `--apply`. Values that can't be seen, as in a container, are called unknown.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help_of_doctor(EXAMPLES))]
pub struct DoctorArgs {
    /// Files and directories that data comes from or goes to: their mounts are checked
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    paths: Vec<OsString>,

    /// Write one JSON object a line for each finding to stdout
    #[arg(long)]
    json: bool,

    /// Set at once the values that can safely be set, as root
    ///
    /// Spreads the interrupts of interfaces over the CPUs of their NUMA node, where they lie badly, and
    /// removes core zones that a killed transfer has left behind. Then looks again.
    #[arg(long)]
    apply: bool,

    /// Round-trip time of the longest path that buffers are meant to fill, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = RTT_MS_DEFAULT,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rtt: u32,

    /// Speed of that path in Gbit/s [default: that of the fastest interface, or 100 where none is known]
    #[arg(long, value_name = "GBITS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    speed: Option<u32>,

    /// The memory that transfers use, as `--buffer` of `carrack cp`
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value_t = POOL_BYTES_DEFAULT,
          hide_default_value = true)]
    buffer: u64,
}

/// Checks the machine, repairs it if asked to, and prints the findings.
pub fn run(args: &DoctorArgs) -> ExitStatus {
    let files = SysFiles::of_this_machine();
    let has_refusals = args.apply && run_repairs(&files);
    let report =
        DoctorReport::new(run_checks(&files, &KernelProbes::of_this_machine(), &args.transfer_parameters()));
    let exit = ExitStatus::of_findings(report.worst());
    let exit = if has_refusals { exit.partial_if_complete() } else { exit };
    let printed = print(|out| if args.json { report.write_json(out) } else { report.write_table(out) });
    match printed.inspect_err(print_stdout_error) {
        Ok(()) => exit,
        Err(_) => ExitStatus::Nothing,
    }
}

/// Runs the repairs; returns true if any was refused.
fn run_repairs(files: &SysFiles) -> bool {
    let tree = CgroupTree::of_this_machine();
    let repairs = repair(files, tree.as_ref(), &KernelProbes::of_this_machine());
    repairs.iter().for_each(print_repair_result);
    repairs.iter().any(|repair| repair.outcome.is_err())
}

fn print_repair_result(repair: &DoctorRepairResult) {
    let what = escape(repair.what.as_bytes());
    match &repair.outcome {
        Ok(()) => {
            let _ = writeln!(io::stderr(), "carrack: {what}");
        }
        Err(why) => UserError::new(format!("{what}: {why}")).print(),
    }
}

impl DoctorArgs {
    fn transfer_parameters(&self) -> DoctorTransferParameters {
        DoctorTransferParameters {
            rtt_ms: self.rtt,
            speed_mbits: self.speed.map(|gbits| gbits.saturating_mul(1_000)),
            pool_bytes: self.buffer,
            paths: self.paths.iter().map(|path| doctor_path(Path::new(path))).collect(),
        }
    }
}

fn doctor_path(path: &Path) -> DoctorPath {
    DoctorPath { shown: path.to_string_lossy().into_owned(), real: canonical_path(path) }
}

fn canonical_path(path: &Path) -> Result<PathBuf, String> {
    fs::canonicalize(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => "no such file or directory".into(),
        ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    })
}

const EXAMPLES: &str = "\
Examples:
  carrack doctor /scratch /mnt/archive     this machine and two mounts
  carrack doctor --rtt 20 --speed 10       as one end of a shorter path
  carrack doctor --json | jq -r 'select(.verdict == \"improve\").command'
  sudo carrack doctor --apply              spread the interrupts

";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<DoctorArgs, clap::Error> {
        crate::options::tests::parse(words)
    }

    #[test]
    fn options_are_read() {
        let args =
            parse(&["/", "none-of-this-name", "--rtt=20", "--speed=25", "--buffer=1GiB", "--json"]).unwrap();
        assert!(args.json && !args.apply);
        let purpose = args.transfer_parameters();
        assert_eq!((purpose.rtt_ms, purpose.speed_mbits, purpose.pool_bytes), (20, Some(25_000), 1 << 30));
        assert_eq!(purpose.paths[0].real, Ok("/".into()));
        assert_eq!(purpose.paths[1].real, Err("no such file or directory".into()));
        for words in [&["--rtt", "0"][..], &["--speed", "fast"], &["--buffer", "0"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn nothing_needs_to_be_said() {
        let purpose = parse(&[]).unwrap().transfer_parameters();
        assert_eq!((purpose.rtt_ms, purpose.speed_mbits), (RTT_MS_DEFAULT, None));
        assert_eq!(purpose.pool_bytes, POOL_BYTES_DEFAULT);
    }
}
