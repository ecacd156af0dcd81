//! `carrack forecast`: the expected load of a storage system in the next day, from its arguments to its exit
//! code.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::exit::{self, ExitStatus};
use crate::lifetime::now_s;
use crate::options::load::LoadSourceArgs;
use crate::user_error::UserError;
use crate::views::forecast::LoadForecastReport;
use crate::views::output::print_with_picture;

/// Length of the forecast: a day.
const AHEAD_S: i64 = 86_400;

/// Show the expected load of storage in the next 24 hours
///
/// NAME is a storage target or a file system. The daily and weekly pattern of its load in the last four
/// weeks, from the site's Prometheus or a file, is continued. The error of earlier forecasts is shown too,
/// and beside it that of "same as now".
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(EXAMPLES))]
pub struct LoadForecastArgs {
    /// A target, such as lfs01/OST0007, or a file system: the mean of its targets
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    load: LoadSourceArgs,

    /// Write one JSON object to stdout
    #[arg(long)]
    json: bool,

    /// Draw the last week and the next day, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<PathBuf>,
}

/// Prints the forecast.
pub fn run(args: &LoadForecastArgs) -> ExitStatus {
    let report = match args.report() {
        Ok(report) => report,
        Err(trouble) => {
            trouble.print();
            return ExitStatus::Nothing;
        }
    };
    let picture = args.svg.as_deref().map(|path| (path, report.to_svg()));
    print_with_picture(
        |out| if args.json { report.write_json(out) } else { report.write_table(out) },
        picture,
    )
}

impl LoadForecastArgs {
    fn report(&self) -> Result<LoadForecastReport, UserError> {
        let now_s = now_s();
        let (storage, unit) = self.load.storage_history(&self.name, now_s)?;
        let forecast =
            storage.history.forecast(now_s, AHEAD_S).ok_or_else(|| measurements_too_old_error(&self.name))?;
        Ok(LoadForecastReport { name: self.name.clone(), storage, forecast, unit, now_s })
    }
}

/// Returns the error that all measurements are too old for a forecast.
pub fn measurements_too_old_error(name: &str) -> UserError {
    UserError::new(format!("no load of {name} was measured in the last four weeks"))
        .hint("a forecast needs measurements up to now")
        .escaped()
}

const EXAMPLES: &str = "\
Examples:
  carrack forecast lfs01 --prometheus http://m:9090 \\
      --preset lustre_exporter
  carrack forecast lfs01/OST0007 --config carrack.toml --json
  carrack forecast lfs01 --csv load.csv --svg forecast.svg

";
