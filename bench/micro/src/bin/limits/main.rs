//! `limits`: the limits of this machine, measured in the pieces that a transfer is made of.
//!
//! Measures copies, hashes, file access, TCP over loopback, whole file-to-file paths without any protocol,
//! and small files, on tmpfs, in interleaved repetitions, each end as a process of its own. With `--compare`
//! it compares the results of `bench/compare` with these limits. `bench/limits` builds and runs it.

mod compare;
mod crew;
mod kind;
mod link;
mod local;
mod machine;
mod measure;
mod options;
mod place;
mod report;
mod reserve;
mod row;
mod small;
mod stream;
mod worker;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::Value;

use options::{Cli, Command, Options};
use report::Report;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Some(Command::Worker { job }) => worker::run(&job).map(|()| true),
        None => run(&cli.options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("limits: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures or reads the limits and prints them; returns true if every measurement succeeded.
fn run(options: &Options) -> Result<bool> {
    // Files are read before minutes of measuring: an unreadable one is an error of the command line.
    let results = options.compare.as_deref().map(read_json).transpose()?;
    let report = match &options.from {
        Some(path) => serde_json::from_value(read_json(path)?)
            .with_context(|| format!("{} is not what --json writes", path.display()))?,
        None => Report::measure(options)?,
    };
    println!("{}", report.markdown());
    if let Some(results) = &results {
        println!("{}", compare::markdown(&compare::standings(results, &report)));
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report.to_json())?;
        fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(report.rows.iter().all(|row| row.problem.is_none()))
}

fn read_json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))
}
