//! `carrack tune`: the records of the tuners of earlier transfers, from its arguments to its exit code.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use crate::exit::{self, ExitStatus};
use crate::lifetime::now_s;
use crate::register::tuner_store::{TunerStore, TunerWorkloadRecord};
use crate::remote::tuner_endpoints;
use crate::user_error::{UserError, escape_control_characters};
use crate::views::output::print_with_picture;
use crate::views::tune::TuneReport;

/// Show or forget the tuner's records of earlier transfers
///
/// A transfer that reads on this host, lasts 5 s or more and may change its settings (`--tune`) leaves its
/// measurements in ~/.local/state/carrack/tuner (XDG_STATE_HOME), by the two sites and the size of the files.
/// The next such transfer begins from there, for 30 days.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(EXAMPLES))]
pub struct TuneArgs {
    #[command(subcommand)]
    command: TuneSubcommand,
}

#[derive(Debug, Subcommand)]
enum TuneSubcommand {
    Show(TuneShowArgs),
    Forget(TuneForgetArgs),
}

/// Show the best numbers of readers, streams and writers, and the rates of others
///
/// A line for each workload; where sites are named, or where there is one workload only, all values that were
/// seen.
#[derive(Debug, Args)]
struct TuneShowArgs {
    #[command(flatten)]
    between: SitePairArgs,

    /// Write one JSON object a line for each workload to stdout
    #[arg(long)]
    json: bool,

    /// Draw throughput over the values, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<PathBuf>,
}

/// Forget the records: the next transfers begin as if they were the first ones
#[derive(Debug, Args)]
struct TuneForgetArgs {
    #[command(flatten)]
    between: SitePairArgs,
}

#[derive(Debug, Args)]
struct SitePairArgs {
    /// The site that read: this host's name
    #[arg(value_name = "SOURCE_SITE", value_hint = ValueHint::Hostname)]
    source: Option<String>,

    /// The site that wrote, as it was typed: HOST, or HOST:PORT of a daemon; a caller's address
    #[arg(value_name = "SINK_SITE", value_hint = ValueHint::Hostname)]
    sink: Option<String>,
}

/// Runs the command.
pub fn run(args: &TuneArgs) -> ExitStatus {
    let done = match &args.command {
        TuneSubcommand::Show(show) => show.run(),
        TuneSubcommand::Forget(forget) => forget.run(),
    };
    ExitStatus::of_command_result(done)
}

impl TuneShowArgs {
    fn run(&self) -> Result<ExitStatus, UserError> {
        let mut known = self.between.known_workloads(&store()?)?;
        let now_s = now_s();
        known.retain(|known| known.is_fresh(now_s));
        if known.is_empty() {
            return Err(self.between.no_records_error());
        }
        let with_curves = self.between.source.is_some() || known.len() == 1;
        let report = TuneReport { known, with_curves };
        let picture = self.svg.as_deref().map(|path| (path, report.to_svg()));
        let exit = print_with_picture(
            |out| if self.json { report.write_json(out) } else { report.write_table(out) },
            picture,
        );
        Ok(exit)
    }
}

impl TuneForgetArgs {
    fn run(&self) -> Result<ExitStatus, UserError> {
        let store = store()?;
        let known = self.between.known_workloads(&store)?;
        if known.is_empty() {
            return Err(self.between.no_records_error());
        }
        let mut failed = 0;
        for TunerWorkloadRecord { workload, .. } in &known {
            if let Err(error) = store.forget(workload) {
                failed += 1;
                UserError::new(format!("{} to {}: {error}", workload.source, workload.sink))
                    .escaped()
                    .print();
            }
        }
        let done = known.len() as u64 - failed;
        // A failed write can't be reported.
        let _ = writeln!(io::stderr(), "carrack: workloads forgotten: {done}");
        Ok(ExitStatus::of_counts(done, failed))
    }
}

impl SitePairArgs {
    /// Returns records of any age.
    fn known_workloads(&self, store: &TunerStore) -> Result<Vec<TunerWorkloadRecord>, UserError> {
        let mut known = store.list().map_err(|error| {
            UserError::new(format!("what earlier transfers have found out can't be read: {error}"))
        })?;
        known.retain(|TunerWorkloadRecord { workload, .. }| {
            self.matches_sites(&workload.source, &workload.sink)
        });
        Ok(known)
    }

    fn matches_sites(&self, source: &str, sink: &str) -> bool {
        [(&self.source, source), (&self.sink, sink)].into_iter().all(|(asked, site)| {
            asked
                .as_ref()
                .is_none_or(|asked| asked == site || tuner_endpoints::site_name_from_text(asked) == site)
        })
    }

    fn no_records_error(&self) -> UserError {
        let (from, to) =
            (site_phrase("from", self.source.as_deref()), site_phrase("to", self.sink.as_deref()));
        let trouble = UserError::new(format!("nothing is known of transfers{from}{to}"));
        match self.source {
            Some(_) => trouble.hint("`carrack tune show` lists what is known on this host"),
            None => {
                trouble.hint("a transfer of 5 s or more leaves what it has found out on the host that reads")
            }
        }
    }
}

fn site_phrase(word: &str, site: Option<&str>) -> String {
    site.map_or_else(String::new, |site| format!(" {word} {}", escape_control_characters(site)))
}

fn store() -> Result<TunerStore, UserError> {
    TunerStore::of_user().ok_or_else(|| {
        UserError::new("there is no place where anything could be remembered")
            .hint("set HOME or XDG_STATE_HOME")
    })
}

const EXAMPLES: &str = "\
Examples:
  carrack tune show
  carrack tune show dtn1 hpc.example.org --svg curves.svg
  carrack tune forget dtn1 hpc.example.org    something was rebuilt

";

#[cfg(test)]
mod tests {
    use super::*;

    fn between(source: Option<&str>, sink: Option<&str>) -> SitePairArgs {
        SitePairArgs { source: source.map(str::to_owned), sink: sink.map(str::to_owned) }
    }

    #[test]
    fn sites_are_chosen_from_the_left() {
        for (source, sink, is) in [
            (None, None, true),
            (Some("a"), None, true),
            (Some("me@A"), Some("carrack://h:99"), true),
            (Some("a"), Some("h"), false),
            (Some("h:99"), None, false),
        ] {
            assert_eq!(between(source, sink).matches_sites("a", "h:99"), is, "{source:?} {sink:?}");
        }
        let nothing = between(Some("a\u{1b}"), Some("b")).no_records_error();
        assert_eq!(nothing.message, "nothing is known of transfers from a\\u{1b} to b");
        assert!(nothing.hint.unwrap().contains("tune show"));
        assert!(between(None, None).no_records_error().hint.unwrap().contains("5 s"));
    }
}
