//! `carrack layout`: where files lie, from its arguments to its exit code.

use std::ffi::OsString;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use carrack_model::escape;
use clap::{Args, ValueHint};

use crate::exit::{self, Exit};
use crate::layout_report::{Failures, Looker, Placement};
use crate::trouble::Trouble;

/// Show on which storage targets files lie
///
/// For each file: its file system, size and striping, how many of its bytes lie on each storage target (OST, OSD,
/// brick, disk), and how far that is from even. For a directory: where what has no layout of its own lies, and how new
/// files in it are striped, where that is known. Bytes are counted up to the file's size, holes included.
///
/// Links that are named are followed. Never reads a file's bytes: what was released to an archive stays there.
#[derive(Debug, Args)]
#[command(after_long_help = after_long_help())]
pub struct LayoutArgs {
    /// Files and directories on this host
    #[arg(required = true, num_args = 1.., value_name = "PATH", value_hint = ValueHint::AnyPath)]
    paths: Vec<OsString>,

    /// Add up all regular files beneath directories; links in them are not followed
    #[arg(short, long)]
    recursive: bool,

    /// List each run of bytes on one target too: its offset and length in bytes, and the target
    #[arg(long, conflicts_with = "recursive")]
    extents: bool,

    /// Write one JSON object a line for each path to stdout
    #[arg(long)]
    json: bool,

    /// Mounts that form one set, each of them one storage target
    #[arg(long, value_name = "DIR,DIR...", value_delimiter = ',', value_hint = ValueHint::DirPath)]
    targets: Vec<PathBuf>,
}

/// Shows them.
pub fn run(args: &LayoutArgs) -> Exit {
    match Looker::new(&args.targets, args.recursive) {
        Ok(looker) => Showing { args, looker, done: 0, failed: 0 }.run(),
        Err(trouble) => {
            trouble.tell();
            Exit::Usage
        }
    }
}

struct Showing<'a> {
    args: &'a LayoutArgs,
    looker: Looker,
    done: u64,
    failed: u64,
}

impl Showing<'_> {
    fn run(mut self) -> Exit {
        let mut out = BufWriter::new(io::stdout().lock());
        for path in &self.args.paths {
            if let Err(error) = self.show(Path::new(path), &mut out) {
                self.failed += 1;
                tell_unwritten(&error);
                // What is still in the buffer can't be written either.
                let _ = out.into_parts();
                break;
            }
        }
        Exit::of_counts(self.done, self.failed)
    }

    /// Fails only if nothing more can be written.
    fn show(&mut self, path: &Path, out: &mut impl Write) -> io::Result<()> {
        let placement = match self.looker.look(path) {
            Ok(placement) => placement,
            Err(trouble) => {
                self.failed += 1;
                trouble.tell();
                return Ok(());
            }
        };
        let failures = placement.failures().filter(|failures| failures.count > 0);
        if let Some(failures) = failures {
            self.failed += 1;
            tell_failures(path, failures);
        }
        if placement.is_void() {
            return Ok(());
        }
        self.write(&placement, out)?;
        // Now, so that it stands before what is told of the next path.
        out.flush()?;
        self.done += 1;
        Ok(())
    }

    fn write(&self, placement: &Placement, out: &mut impl Write) -> io::Result<()> {
        if self.args.json {
            return placement.write_json(out, self.args.extents);
        }
        if self.done > 0 {
            writeln!(out)?;
        }
        placement.write_table(out, self.args.extents)
    }
}

fn tell_failures(path: &Path, failures: &Failures) {
    for failure in &failures.first {
        let message = format!("{}: {}", escape(&failure.path), failure.detail);
        Trouble { message, hint: failure.kind.hint().map(str::to_owned) }.tell();
    }
    let more = failures.count.saturating_sub(failures.first.len() as u64);
    if more > 0 {
        let path = escape(path.as_os_str().as_encoded_bytes());
        Trouble::new(format!("{path}: {more} more entries could not be looked at")).tell();
    }
}

/// A reader who left knows it.
fn tell_unwritten(error: &io::Error) {
    if error.kind() != ErrorKind::BrokenPipe {
        Trouble::new(format!("writing to stdout: {error}")).tell();
    }
}

fn after_long_help() -> String {
    const EXAMPLES: &str = "\
Examples:
  carrack layout big                where does it lie?
  carrack layout -r /scratch/run7   are its files spread evenly?
  carrack layout --json --extents big | jq -c '.extents[]'

";
    format!("{EXAMPLES}{}", exit::help())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Layout {
        #[command(flatten)]
        args: LayoutArgs,
    }

    fn parse(words: &[&str]) -> Result<LayoutArgs, clap::Error> {
        Layout::try_parse_from([&["layout"], words].concat()).map(|layout| layout.args)
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
