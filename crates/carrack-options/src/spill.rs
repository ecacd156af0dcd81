//! Options of the spill to flash while the sink, or its storage, does not take objects.

use carrack_engine::{SpillDirectory, SpillSettings};
use clap::{ArgGroup, Args, ValueHint};

use crate::size;

const SPILL: &str = "Spill to flash";

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("flash").args(["spill", "sink_spill"]).multiple(true))]
pub struct SpillDirectoryArgs {
    /// Directory on flash, and its space, for objects that the other end does not take yet
    ///
    /// The source continues to read into it while the other end takes less than usual. Several directories
    /// are distributed among the lanes.
    #[arg(long, value_name = "DIR:SIZE", value_hint = ValueHint::DirPath, help_heading = SPILL)]
    spill: Vec<SpillDirectory>,

    /// Directory on flash, and its space, for objects that the destination's storage does not take yet
    ///
    /// The destination's end continues to receive into it while its storage takes less than usual. As
    /// --spill.
    #[arg(long, value_name = "DIR:SIZE", value_hint = ValueHint::DirPath, help_heading = SPILL)]
    sink_spill: Vec<SpillDirectory>,

    /// Most bytes that are written to flash in all, at each end: it wears out
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "flash", help_heading = SPILL)]
    spill_budget: Option<u64>,
}

impl SpillDirectoryArgs {
    /// Returns the settings of both ends.
    pub fn settings(&self) -> SpillSettings {
        SpillSettings {
            source: self.spill.clone(),
            sink: self.sink_spill.clone(),
            budget: self.spill_budget,
            may_lack: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestSpillCommand {
        #[command(flatten)]
        args: SpillDirectoryArgs,
    }

    fn parse(words: &[&str]) -> Result<SpillSettings, clap::Error> {
        TestSpillCommand::try_parse_from([&["cp"], words].concat()).map(|cp| cp.args.settings())
    }

    #[test]
    fn directories_have_sizes() {
        assert_eq!(parse(&[]).unwrap(), SpillSettings::default());
        let words = ["--spill", "/a:1GiB", "--spill", "/b:c:512MiB", "--spill-budget", "10GiB"];
        let expected = [("/a", 1u64 << 30), ("/b:c", 512 << 20)];
        let spill = parse(&words).unwrap();
        let found = spill.source.iter().map(|at| (at.directory.to_str().unwrap(), at.bytes));
        assert_eq!((found.collect::<Vec<_>>(), spill.budget), (expected.to_vec(), Some(10 << 30)));
        for wrong in ["/a", "/a:", "a:1GiB", "/a:0", "/a:x"] {
            assert!(parse(&["--spill", wrong]).is_err(), "{wrong}");
        }
        assert!(parse(&["--spill-budget", "1GiB"]).is_err());
    }
}
