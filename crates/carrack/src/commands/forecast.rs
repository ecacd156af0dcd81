//! `carrack forecast`: what is expected of a storage system in the next day, from its arguments to its exit code.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::load_options::LoadArgs;
use crate::canvas;
use crate::exit::{self, Exit};
use crate::forecast_report::Report;
use crate::lifetime::now_s;
use crate::trouble::Trouble;

/// The next day.
const AHEAD_S: i64 = 86_400;

/// Show what load is expected of a storage target or a file system in the next 24 hours
///
/// From the load of the last four weeks, as the site's Prometheus or a file has it, its daily and weekly pattern is continued. Beside it
/// stands how far such forecasts have been off, and what "same as now" would have been off by.
#[derive(Debug, Args)]
#[command(after_long_help = after_long_help())]
pub struct ForecastArgs {
    /// A target, such as lfs01/OST0007, or a file system: the mean of its targets
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    load: LoadArgs,

    /// Write one JSON object to stdout
    #[arg(long)]
    json: bool,

    /// Draw the last week and the next day, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<PathBuf>,
}

/// Shows it.
pub fn run(args: &ForecastArgs) -> Exit {
    let report = match args.report() {
        Ok(report) => report,
        Err(trouble) => {
            trouble.tell();
            return Exit::Nothing;
        }
    };
    let mut failed = 0;
    let shown = show(&report, args.json);
    // A reader who left has seen enough.
    if let Err(error) =
        shown.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
    {
        failed += 1;
        Trouble::new(format!("writing to stdout: {error}")).tell();
    }
    if let Some(Err(trouble)) = args.svg.as_ref().map(|path| canvas::write(&report.picture(), path)) {
        failed += 1;
        trouble.tell();
    }
    Exit::of_counts(1 + u64::from(args.svg.is_some()) - failed, failed)
}

impl ForecastArgs {
    fn report(&self) -> Result<Report, Trouble> {
        let now_s = now_s();
        let (storage, unit) = self.load.storage(&self.name, now_s)?;
        let forecast = storage.history.forecast(now_s, AHEAD_S).ok_or_else(|| too_old(&self.name))?;
        Ok(Report { name: self.name.clone(), storage, forecast, unit, now_s })
    }
}

/// What there is says nothing of the next days.
pub fn too_old(name: &str) -> Trouble {
    Trouble::new(format!("no load of {name} was measured in the last four weeks"))
        .hint("a forecast needs measurements up to now")
        .tamed()
}

fn show(report: &Report, is_json: bool) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match is_json {
        true => report.write_json(&mut out),
        false => report.write_table(&mut out),
    }?;
    out.flush()
}

fn after_long_help() -> String {
    const EXAMPLES: &str = "\
Examples:
  carrack forecast lfs01 --prometheus http://m:9090 \\
      --preset lustre_exporter
  carrack forecast lfs01/OST0007 --config carrack.toml --json
  carrack forecast lfs01 --csv load.csv --svg forecast.svg

";
    format!("{EXAMPLES}{}", exit::help())
}
