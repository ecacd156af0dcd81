//! Options of the journal, from which a transfer resumes, and of the check of written data.

use std::path::PathBuf;
use std::time::Duration;

use carrack_engine::JournalSettings;
use carrack_model::{Durability, WriteVerification};
use clap::{Args, ValueEnum, ValueHint};

use crate::size;

const HEADING: &str = "Durability and resume";

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Args)]
pub struct JournalDurabilityArgs {
    /// Time at which written data is made durable, and recorded: each object before it counts, groups of
    /// objects, or all at the end
    ///
    /// After a kill, the next run writes at most one group again; with end, after a power cut, everything. In
    /// every case a replaced file is the old one or the complete new one; with end only without a power cut.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = DurabilityName::Group, help_heading = HEADING)]
    durability: DurabilityName,

    /// Size of a group
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size::parse, help_heading = HEADING)]
    group_size: u64,

    /// Time span of a group, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=3_600_000),
          help_heading = HEADING)]
    group_time: u32,

    /// The directory, at the end that writes, for the journal [default: next to the destination]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "no_journal", help_heading = HEADING)]
    journal_dir: Option<PathBuf>,

    /// Keep no journal: a transfer that ends early starts again
    #[arg(long, help_heading = HEADING)]
    no_journal: bool,

    /// Check of written data: of each object before it is written, or also by reading it again
    ///
    /// `readback` reads from the storage, past the page cache.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = VerifyOptionValue::Object, help_heading = HEADING)]
    verify: VerifyOptionValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DurabilityName {
    /// Each object: slow
    Each,
    /// Groups of objects, while others travel
    Group,
    /// All data, at the end
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum VerifyOptionValue {
    /// The check of each object
    Object,
    /// A second read from the storage; damaged data is sent again
    Readback,
}

impl JournalDurabilityArgs {
    /// Returns the journal's settings.
    pub fn journal(&self) -> JournalSettings {
        JournalSettings {
            is_on: !self.no_journal,
            directory: self.journal_dir.clone(),
            durability: match self.durability {
                DurabilityName::Each => Durability::Each,
                DurabilityName::Group => Durability::Group,
                DurabilityName::End => Durability::End,
            },
            group_bytes: self.group_size.max(1),
            group_time: Duration::from_millis(self.group_time.into()),
        }
    }

    /// Returns the sink's check of written data.
    pub fn write_verification(&self) -> WriteVerification {
        match self.verify {
            VerifyOptionValue::Object => WriteVerification::Object,
            VerifyOptionValue::Readback => WriteVerification::Readback,
        }
    }
}
