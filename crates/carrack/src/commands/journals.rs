//! `carrack journals`: the journals that unfinished transfers left at their sinks, from its arguments to its
//! exit code.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use carrack_engine::remove_temporaries;
use carrack_journal::{Journal, JournalContents, JournalError, boot_id, file_name, id_of_file_name, inspect};
use carrack_model::{TransferId, escape};
use carrack_storage::RootDirectory;
use clap::{Args, Subcommand, ValueHint};

use crate::exit::{self, ExitStatus};
use crate::user_error::UserError;
use crate::views::journals::JournalReport;
use crate::views::output::StdoutReportWriter;

/// Show or drop the journals of unfinished transfers
///
/// A transfer keeps a journal at its sink, in the destination or next to it (`.carrack-ID.journal`), and
/// removes it when everything is done. The same command finds it and resumes; to give a transfer up, drop its
/// journal.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(EXAMPLES))]
pub struct JournalsArgs {
    #[command(subcommand)]
    command: JournalsCommand,
}

#[derive(Debug, Subcommand)]
enum JournalsCommand {
    List(ListArgs),
    Inspect(JournalsInspectArgs),
    Drop(JournalsDropArgs),
}

/// List the journals in directories: sources, destinations and progress
#[derive(Debug, Args)]
struct ListArgs {
    /// Directories on this host, without their subdirectories
    #[arg(default_value = ".", value_name = "DIR", value_hint = ValueHint::DirPath)]
    directories: Vec<PathBuf>,

    /// Write one JSON object a line for each journal to stdout
    #[arg(long)]
    json: bool,
}

/// Show a journal with its unfinished files, and the recorded bytes of each
#[derive(Debug, Args)]
struct JournalsInspectArgs {
    /// The journal, or its directory and its id: DIR/ID
    #[arg(required = true, value_name = "FILE|DIR/ID", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,

    /// Write one JSON object a line for each journal to stdout
    #[arg(long)]
    json: bool,
}

/// Remove a journal, and the temporary files of its unfinished files
///
/// Complete files stay. A journal that a process has is left alone.
#[derive(Debug, Args)]
struct JournalsDropArgs {
    /// The journal, or its directory and its id: DIR/ID
    #[arg(required = true, value_name = "FILE|DIR/ID", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,

    /// Directory of the transfer's files, if it differs from the journal's
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    root: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &JournalsArgs) -> ExitStatus {
    let boot = match boot_id() {
        Ok(boot) => boot,
        Err(error) => {
            UserError::new(format!("reading the kernel's boot id: {error}")).print();
            return ExitStatus::Nothing;
        }
    };
    match &args.command {
        JournalsCommand::List(list) => list.run(boot),
        JournalsCommand::Inspect(inspect) => inspect.run(boot),
        JournalsCommand::Drop(drop) => drop.run(boot),
    }
}

/// A journal named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedJournal {
    directory: PathBuf,
    id: TransferId,
}

impl NamedJournal {
    /// Parses `FILE` or `DIR/ID`.
    fn parse(path: &Path) -> Result<NamedJournal, UserError> {
        let last = path.file_name().unwrap_or_default();
        let id = id_of_file_name(last.as_bytes()).or_else(|| last.to_str().and_then(|id| id.parse().ok()));
        let id = id.ok_or_else(|| {
            UserError::new(format!("{}: not the name of a journal", escaped_path(path)))
                .hint("such as .carrack-ID.journal or DIR/ID, where ID has 32 hexadecimal digits")
        })?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok(NamedJournal { directory: directory.unwrap_or(Path::new(".")).to_owned(), id })
    }

    fn path(&self) -> PathBuf {
        self.directory.join(file_name(self.id))
    }

    fn open_directory(&self) -> Result<File, UserError> {
        File::open(&self.directory)
            .map_err(|error| UserError::new(format!("{}: {error}", escaped_path(&self.directory))))
    }

    fn contents(&self, boot: [u8; 16]) -> Result<JournalContents, UserError> {
        let directory = self.open_directory()?;
        inspect(directory.as_fd(), self.id, boot).map_err(|error| self.user_error(&error))
    }

    fn user_error(&self, error: &JournalError) -> UserError {
        UserError::explained(format!("{}: {error}", escaped_path(&self.path())), error.hint())
    }
}

impl ListArgs {
    fn run(&self, boot: [u8; 16]) -> ExitStatus {
        let mut reports = StdoutReportWriter::new(self.json);
        for directory in &self.directories {
            match journals_in(directory) {
                Ok(found) => {
                    found.iter().for_each(|named| show_journal(named, self.json, false, boot, &mut reports));
                }
                Err(error) => {
                    reports.report_failure(&UserError::new(format!("{}: {error}", escaped_path(directory))))
                }
            }
        }
        reports.into_exit_status()
    }
}

/// Returns the journals in a directory, by name. Only names are kept, not contents: a directory has one
/// journal for each interrupted transfer.
fn journals_in(directory: &Path) -> io::Result<Vec<NamedJournal>> {
    let mut names: Vec<OsString> = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name());
        if id_of_file_name(names[names.len() - 1].as_bytes()).is_none() {
            names.pop();
        }
    }
    names.sort_unstable();
    let ids = names.iter().filter_map(|name| id_of_file_name(name.as_bytes()));
    Ok(ids.map(|id| NamedJournal { directory: directory.to_owned(), id }).collect())
}

impl JournalsInspectArgs {
    fn run(&self, boot: [u8; 16]) -> ExitStatus {
        let mut reports = StdoutReportWriter::new(self.json);
        for file in &self.files {
            match NamedJournal::parse(file) {
                Ok(named) => show_journal(&named, self.json, true, boot, &mut reports),
                Err(trouble) => reports.report_failure(&trouble),
            }
        }
        reports.into_exit_status()
    }
}

fn show_journal(
    named: &NamedJournal,
    is_json: bool,
    with_partials: bool,
    boot: [u8; 16],
    reports: &mut StdoutReportWriter,
) {
    match named.contents(boot) {
        Ok(contents) => {
            let report = JournalReport::new(&escaped_path(&named.path()), &contents, with_partials);
            reports.write(|out| if is_json { report.write_json(out) } else { report.write_table(out) });
        }
        Err(trouble) => reports.report_failure(&trouble),
    }
}

impl JournalsDropArgs {
    fn run(&self, boot: [u8; 16]) -> ExitStatus {
        let (mut done, mut failed) = (0, 0);
        for file in &self.files {
            match NamedJournal::parse(file).and_then(|named| self.drop(&named, boot)) {
                Ok(()) => done += 1,
                Err(trouble) => {
                    failed += 1;
                    trouble.print();
                }
            }
        }
        ExitStatus::of_counts(done, failed)
    }

    /// Removes the journal last: if a step fails before, the journal still names the rest.
    fn drop(&self, named: &NamedJournal, boot: [u8; 16]) -> Result<(), UserError> {
        let directory = named.open_directory()?;
        let seized = Journal::lock_for_removal(directory.as_fd(), named.id, boot);
        let (journal, contents) = seized.map_err(|error| named.user_error(&error))?;
        let removed = self.remove_temporaries(&contents)?;
        journal.remove().map_err(|error| named.user_error(&error))?;
        print_message(&format!(
            "dropped {}, temporary files removed: {removed}",
            escaped_path(&named.path())
        ));
        Ok(())
    }

    /// Returns the number of removed files.
    fn remove_temporaries(&self, contents: &JournalContents) -> Result<u64, UserError> {
        if contents.partials.is_empty() {
            return Ok(0);
        }
        let root = self.destination_root(contents)?;
        let opened = match RootDirectory::open(&root) {
            // Without the destination its temporary files are gone, too.
            Err(error) if error.kind() == ErrorKind::NotFound && self.root.is_none() => return Ok(0),
            opened => opened.map_err(|error| UserError::new(format!("{}: {error}", escaped_path(&root))))?,
        };
        remove_temporaries(&opened, contents).map_err(|error| UserError::new(error.to_string()))
    }

    fn destination_root(&self, contents: &JournalContents) -> Result<PathBuf, UserError> {
        if let Some(root) = &self.root {
            return Ok(root.clone());
        }
        if contents.about.root.is_empty() {
            return Err(UserError::new("the journal does not tell where its temporary files are")
                .hint("name the directory that was copied to with --root"));
        }
        Ok(OsString::from_vec(contents.about.root.clone()).into())
    }
}

/// Prints a message on stderr; a failed write can't be reported.
fn print_message(words: &str) {
    let _ = writeln!(io::stderr(), "carrack: {words}");
}

fn escaped_path(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

const EXAMPLES: &str = "\
Examples:
  carrack journals list /data /scratch        what is unfinished?
  carrack journals inspect /data/.carrack-*.journal
  carrack journals drop /data/0011223344556677889900aabbccddee

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_named_by_its_file_or_its_id() {
        let digits = "000102030405060708090a0b0c0d0e0f";
        let id: TransferId = digits.parse().unwrap();
        for (text, directory) in [
            (format!("/d/e/.carrack-{digits}.journal"), "/d/e"),
            (format!("/d/{digits}"), "/d"),
            (format!(".carrack-{digits}.journal"), "."),
            (digits.to_owned(), "."),
        ] {
            let named = NamedJournal::parse(Path::new(&text)).unwrap();
            assert_eq!(named, NamedJournal { directory: directory.into(), id }, "{text}");
        }
        for wrong in ["", "/", "x", "/d/.carrack-00.journal", "/d/00010203"] {
            assert!(NamedJournal::parse(Path::new(wrong)).is_err(), "{wrong}");
        }
    }
}
