//! `carrack layout`: the storage targets of files, from its arguments to its exit code.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use carrack_model::escape;
use clap::{Args, ValueHint};

use crate::exit::{self, ExitStatus};
use crate::user_error::UserError;
use crate::views::layout::{LayoutLooker, TreeLookupFailures};
use crate::views::output::StdoutReportWriter;

/// Show the storage targets of files
///
/// For each file: its file system, size and striping, how many of its bytes lie on each storage target (OST,
/// OSD, brick, disk), how far that is from even, and each target's server, where that is known. For a
/// directory: the target of files without a layout of their own, and how new files in it are striped, where
/// that is known. Bytes are counted up to the file's size, holes included.
///
/// Links that are named are followed. Never reads a file's bytes: files that were released to an archive stay
/// there.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(EXAMPLES))]
pub struct LayoutArgs {
    /// Files and directories on this host
    #[arg(required = true, num_args = 1.., value_name = "PATH", value_hint = ValueHint::AnyPath)]
    paths: Vec<OsString>,

    /// Add up all regular files in directories and their subdirectories; links in them are not followed
    #[arg(short, long)]
    recursive: bool,

    /// List each run of bytes on one target too: its offset and length in bytes, and the target
    #[arg(long, conflicts_with = "recursive")]
    extents: bool,

    /// Write one JSON object a line for each path to stdout
    #[arg(long)]
    json: bool,

    /// Mounts that form one set, each of them one storage target; `SERVER=DIR` names a mount's server
    #[arg(long, value_name = "[SERVER=]DIR,...", value_delimiter = ',', value_hint = ValueHint::DirPath)]
    targets: Vec<PathBuf>,
}

/// Prints the layouts.
pub fn run(args: &LayoutArgs) -> ExitStatus {
    match LayoutLooker::new(&args.targets, args.recursive) {
        Ok(looker) => show_layouts(args, &looker),
        Err(trouble) => {
            trouble.print();
            ExitStatus::Usage
        }
    }
}

fn show_layouts(args: &LayoutArgs, looker: &LayoutLooker) -> ExitStatus {
    let mut reports = StdoutReportWriter::new(args.json);
    for path in args.paths.iter().map(Path::new) {
        if reports.is_over {
            break;
        }
        let placement = match looker.look_up(path) {
            Ok(placement) => placement,
            Err(trouble) => {
                reports.report_failure(&trouble);
                continue;
            }
        };
        let failures = placement.failures().into_iter().flat_map(|failures| lookup_errors(path, failures));
        failures.for_each(|trouble| reports.report_failure(&trouble));
        if !placement.has_nothing_to_show() {
            reports.write(|out| {
                if args.json {
                    placement.write_json(out, args.extents)
                } else {
                    placement.write_table(out, args.extents)
                }
            });
        }
    }
    reports.into_exit_status()
}

fn lookup_errors(path: &Path, failures: &TreeLookupFailures) -> Vec<UserError> {
    let troubles = failures.first.iter().map(|failure| {
        let message = format!("{}: {}", escape(&failure.path), failure.detail);
        UserError::explained(message, failure.kind.hint())
    });
    let mut troubles: Vec<UserError> = troubles.collect();
    let more = failures.count.saturating_sub(failures.first.len() as u64);
    if more > 0 {
        let path = escape(path.as_os_str().as_encoded_bytes());
        troubles.push(UserError::new(format!("{path}: {more} more entries could not be looked at")));
    }
    troubles
}

const EXAMPLES: &str = "\
Examples:
  carrack layout big                where does it lie?
  carrack layout -r /scratch/run7   are its files spread evenly?
  carrack layout --json --extents big | jq -c '.extents[]'

";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<LayoutArgs, clap::Error> {
        crate::options::tests::parse(words)
    }

    #[test]
    fn options_are_read() {
        let args = parse(&["--targets", "/a,/b", "x", "-r", "y", "--json"]).unwrap();
        assert!(args.recursive && args.json && !args.extents);
        assert_eq!((args.paths.len(), args.targets), (2, vec!["/a".into(), "/b".into()]));
        for words in [&[][..], &["-r", "--extents", "x"], &["--targets"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
