//! The report of `carrack journals` on one journal: a paragraph for people, a JSON object for programs.

use std::io::{self, Write};

use carrack_journal::{JournalContents, PartialFile};
use carrack_model::escape;
use serde::Serialize;

use crate::lifetime::format_moment;
use crate::size;
use crate::views::json::write_line;
use crate::views::quantity::count_with_noun;
use crate::views::table::write_facts;

/// A journal.
#[derive(Debug, Serialize)]
pub struct JournalReport {
    journal: String,
    id: String,
    created: String,
    software: String,
    sources: Vec<String>,
    destination: String,
    root: String,
    is_in_use: bool,
    process: Option<JournalHolder>,
    sessions: u64,
    complete_files: u64,
    complete_bytes: u64,
    partial_files: u64,
    partial_bytes: u64,
    journal_bytes: u64,
    damaged_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    partials: Option<Vec<PartialFileReport>>,
}

/// The process that has it, or had it last.
#[derive(Debug, Serialize)]
struct JournalHolder {
    pid: u32,
    host: String,
}

/// A file that is not complete.
#[derive(Debug, Serialize)]
struct PartialFileReport {
    path: String,
    temporary: String,
    size: u64,
    held_bytes: u64,
    ranges: Vec<MissingRange>,
}

#[derive(Debug, Serialize)]
struct MissingRange {
    offset: u64,
    length: u64,
}

impl JournalReport {
    /// Creates the report on the journal at `path`; `with_partials` lists each unfinished file.
    pub fn new(path: &str, contents: &JournalContents, with_partials: bool) -> JournalReport {
        let JournalContents { about, statistics, partials, last_session, is_in_use } = contents;
        let process = last_session.as_ref();
        JournalReport {
            journal: path.to_owned(),
            id: about.id.to_string(),
            created: format_moment(about.created.seconds),
            software: escape(about.software.as_bytes()),
            sources: about.sources.iter().map(|source| escape(source)).collect(),
            destination: escape(&about.destination),
            root: escape(&about.root),
            is_in_use: *is_in_use,
            process: process.map(|last| JournalHolder { pid: last.pid, host: escape(last.host.as_bytes()) }),
            sessions: statistics.sessions,
            complete_files: statistics.done,
            complete_bytes: statistics.done_bytes,
            partial_files: partials.len() as u64,
            partial_bytes: statistics.held_bytes,
            journal_bytes: statistics.journal_bytes,
            damaged_bytes: statistics.cut_bytes,
            partials: with_partials.then(|| partials.iter().map(PartialFileReport::new).collect()),
        }
    }

    /// Writes the report for programs.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_line(self, out)
    }

    /// Writes the report for people.
    pub fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.journal)?;
        let facts = [
            ("from", self.sources.join(", ")),
            ("to", self.destination.clone()),
            ("files in", self.root.clone()),
            ("begun", self.created.clone()),
            ("in use", self.use_in_words()),
            ("complete", count_and_size(self.complete_files, self.complete_bytes)),
            ("unfinished", count_and_size(self.partial_files, self.partial_bytes)),
            ("damaged", self.damage_in_words()),
        ];
        write_facts(&facts, out)?;
        self.partials.iter().flatten().try_for_each(|partial| partial.write_table(out))
    }

    fn use_in_words(&self) -> String {
        match (&self.process, self.is_in_use) {
            (_, false) => "no".to_owned(),
            (None, true) => "yes".to_owned(),
            (Some(JournalHolder { pid, host }), true) => format!("yes, by process {pid} on {host}"),
        }
    }

    /// Returns the damage in words. While a process writes, an incomplete end is not damage.
    fn damage_in_words(&self) -> String {
        if self.damaged_bytes == 0 || self.is_in_use {
            return String::new();
        }
        format!("the last {} bytes; what they said is copied again", self.damaged_bytes)
    }
}

impl PartialFileReport {
    fn new(partial: &PartialFile) -> PartialFileReport {
        let [path, temporary] = [&partial.name, &partial.temporary].map(|name| {
            let path = escape(&[partial.directory.as_bytes(), name].join(&b'/'));
            path.strip_prefix('/').map_or(path.clone(), str::to_owned)
        });
        PartialFileReport {
            path,
            temporary,
            size: partial.size,
            held_bytes: partial.held.covered_bytes(),
            ranges: partial
                .held
                .iter()
                .map(|range| MissingRange { offset: range.offset, length: range.len })
                .collect(),
        }
    }

    fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let percent = self.held_bytes as f64 * 100.0 / self.size.max(1) as f64;
        writeln!(out, "  {percent:5.1}% of {:>9}  {}", size::format_size(self.size), self.path)?;
        self.ranges.iter().try_for_each(|range| {
            writeln!(out, "           offset {}, length {}", range.offset, range.length)
        })
    }
}

fn count_and_size(files: u64, bytes: u64) -> String {
    format!("{}, {}", count_with_noun(files, "file", "files"), size::format_size(bytes))
}
