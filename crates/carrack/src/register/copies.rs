//! The register of this user's copies, in the foreground or in the background: a small file for each, so that
//! it can be listed, followed and run again.
//!
//! The files are in `$XDG_STATE_HOME/carrack/transfers` (XDG Base Directory Specification; `~/.local/state`
//! by default), each with its log next to it. A copy does not depend on them: if a file can't be written, the
//! copy runs without. The completed objects are not recorded here but in the journal at the destination.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use carrack_model::{TransferId, escape};
use serde::{Deserialize, Serialize};

use super::process::{ProcessIdentity, RecordedProcessLiveness};
use crate::exit::ExitStatus;
use crate::lifetime::{format_moment, now_s};
use crate::register::state_directory;
use crate::size;
use crate::user_error::UserError;
use crate::views::json::hex;
use crate::views::table::write_facts;
use crate::views::transfer::rate_if_any;

/// Larger files are not carrack's: a command line has 2 MiB at most (execve(2)), in hexadecimal twice as
/// much.
const RECORD_BYTES_MAX: u64 = 8 << 20;

/// The number of files above which complete copies are removed, the oldest first, and the number of complete
/// ones that remain.
const FILES: [usize; 2] = [600, 400];

/// Seconds after which complete copies are removed then in any case.
const KEPT_S: i64 = 30 * 24 * 3600;

/// The fewest digits by which an ID may be abbreviated.
const PREFIX_MIN: usize = 4;

/// Digits of an ID that lists show.
const SHOWN_DIGITS: usize = 12;

/// A copy that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalCopyRecord {
    /// Its ID: 32 hexadecimal digits.
    pub id: String,
    /// The command line, its program first; empty if it has a secret.
    pub arguments: Vec<ArgumentText>,
    /// The working directory.
    pub directory: ArgumentText,
    /// Start, in seconds since 1970.
    pub started: u64,
    /// The process that runs it or ran it.
    process: ProcessIdentity,
    /// Its latest state.
    #[serde(flatten)]
    pub standing: CopyProgressRecord,
}

/// The state of a copy, as its process wrote it last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyProgressRecord {
    /// Its user's label.
    pub label: String,
    /// The sources as they were typed.
    pub sources: Vec<String>,
    /// The destination as it was typed.
    pub destination: String,
    /// Time of the last write, in seconds since 1970.
    pub updated: i64,
    /// True if the copy makes its destination, so that the same command would copy into it the next time.
    pub makes_destination: bool,
    /// True if it runs without a terminal.
    pub in_background: bool,
    /// True if both ends have met.
    pub has_begun: bool,
    pub entries_found: u64,
    pub bytes_found: u64,
    /// True if the two fields above are totals.
    pub scan_done: bool,
    pub entries_done: u64,
    pub bytes_done: u64,
    pub entries_failed: u64,
    /// Bytes per second, recently.
    pub bytes_per_s: u64,
    /// The exit code, once it has ended.
    pub exit: Option<u8>,
    /// The reason for its end; empty without one.
    pub reason: String,
}

/// A copy with its state, for JSON.
#[derive(Debug, Serialize)]
pub struct CopyRow<'a> {
    state: &'static str,
    #[serde(flatten)]
    copy: &'a LocalCopyRecord,
}

/// Bytes that are mostly text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ArgumentText {
    /// Text.
    Text(String),
    /// Bytes that are not UTF-8.
    Bytes {
        /// In hexadecimal.
        hex: String,
    },
}

impl ArgumentText {
    /// Stores an argument or a path.
    pub fn of(word: &OsStr) -> ArgumentText {
        match word.to_str() {
            Some(text) => ArgumentText::Text(text.to_owned()),
            None => ArgumentText::Bytes { hex: hex(word.as_bytes()) },
        }
    }

    /// Returns the bytes; `None` if the digits are invalid.
    pub fn get(&self) -> Option<OsString> {
        match self {
            ArgumentText::Text(text) => Some(text.into()),
            ArgumentText::Bytes { hex } => {
                let pairs = hex.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).ok());
                let bytes = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect::<Option<Vec<u8>>>();
                bytes.map(OsString::from_vec)
            }
        }
    }
}

impl LocalCopyRecord {
    /// Returns the state of its process.
    pub fn process_liveness(&self) -> RecordedProcessLiveness {
        self.process.liveness()
    }

    /// Returns the host on which it was begun.
    pub fn host(&self) -> &str {
        &self.process.host
    }

    /// Returns the process that runs it or ran it.
    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    fn is_of_this_process(&self) -> bool {
        self.process.pid == std::process::id()
    }

    /// Returns true if it runs.
    pub fn is_running(&self) -> bool {
        self.standing.exit.is_none() && self.process.liveness() != RecordedProcessLiveness::Ended
    }

    /// Returns true if it ended with everything done.
    pub fn is_complete(&self) -> bool {
        self.standing.exit == Some(ExitStatus::Complete.code())
    }

    /// Returns its exit code, if it has ended.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.standing.exit.map(|code| ExitStatus::from_code(code).unwrap_or(ExitStatus::Nothing))
    }

    /// Returns its state in a word or two.
    pub fn state(&self) -> &'static str {
        match self.exit_status() {
            None if self.process_liveness() == RecordedProcessLiveness::Elsewhere => "elsewhere",
            None if !self.is_running() => "killed",
            None if self.standing.has_begun => "running",
            None => "starting",
            Some(ExitStatus::Complete) => "done",
            Some(ExitStatus::Partial) => "done in part",
            Some(ExitStatus::Interrupted) => "interrupted",
            Some(ExitStatus::TimedOut) => "out of time",
            Some(_) => "failed",
        }
    }

    /// Returns the copy for JSON.
    pub fn to_row(&self) -> CopyRow<'_> {
        CopyRow { state: self.state(), copy: self }
    }

    /// Returns as many digits of its ID as are enough for lists.
    pub fn short_id(&self) -> &str {
        self.id.get(..SHOWN_DIGITS).unwrap_or(&self.id)
    }

    /// Writes everything about it.
    pub fn show(&self, log: Option<&Path>, out: &mut impl Write) -> io::Result<()> {
        let standing = &self.standing;
        let so_far = if standing.scan_done { "" } else { " found so far" };
        writeln!(out, "{}  {}", self.id, self.state())?;
        let (done, found) = (size::format_size(standing.bytes_done), size::format_size(standing.bytes_found));
        let facts = [
            ("from", standing.sources.join(" ")),
            ("to", standing.destination.clone()),
            ("label", standing.label.clone()),
            ("process", format!("{} on {}", self.process.pid, self.process.host)),
            ("started", format_moment(i64::try_from(self.started).unwrap_or(i64::MAX))),
            (if self.is_running() { "seen" } else { "ended" }, format_moment(standing.updated)),
            ("entries", format!("{} of {}{so_far}", standing.entries_done, standing.entries_found)),
            ("bytes", format!("{done} of {found}{so_far}")),
            ("rate", if self.is_running() { rate_if_any(standing.bytes_per_s) } else { String::new() }),
            (
                "failed",
                Some(standing.entries_failed).filter(|&n| n > 0).map_or(String::new(), |n| n.to_string()),
            ),
            ("reason", standing.reason.clone()),
            ("log", log.map_or(String::new(), |log| escape(log.as_os_str().as_bytes()))),
        ];
        write_facts(&facts, out)
    }
}

/// The register of the user's copies.
#[derive(Clone, Debug)]
pub struct CopyStore {
    directory: PathBuf,
}

impl CopyStore {
    /// Returns the register of this process's user; `None` without a home directory.
    pub fn of_user() -> Option<CopyStore> {
        Some(CopyStore { directory: state_directory::user_state_directory("transfers")? })
    }

    fn path(&self, id: &str) -> PathBuf {
        self.directory.join(file_name(id))
    }

    /// Returns the path of a copy's log.
    pub fn log_path(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.log"))
    }

    /// Creates the directory, unless it exists.
    pub(super) fn make_directory(&self) -> io::Result<()> {
        state_directory::make_directory(&self.directory)
    }

    /// Records that this process begins a copy. Records nothing if another process is running it already.
    pub fn begin(
        &self,
        id: TransferId,
        arguments: &[OsString],
        standing: CopyProgressRecord,
    ) -> io::Result<Option<NotedCopy>> {
        let id = id.to_string();
        let known = self.read(&self.path(&id)).ok();
        if known.as_ref().is_some_and(|known| {
            known.is_running()
                && !known.is_of_this_process()
                && known.process_liveness() == RecordedProcessLiveness::Running
        }) {
            return Ok(None);
        }
        self.prune();
        let copy = LocalCopyRecord {
            id,
            arguments: arguments.iter().map(|word| ArgumentText::of(word)).collect(),
            directory: ArgumentText::of(std::env::current_dir()?.as_os_str()),
            started: now_s().unsigned_abs(),
            process: ProcessIdentity::of_this_process()
                .ok_or_else(|| io::Error::other("/proc tells nothing"))?,
            standing: CopyProgressRecord { updated: now_s(), ..standing },
        };
        self.write(&copy)?;
        let has_made = known.as_ref().is_some_and(|known| known.standing.makes_destination);
        let is_new = known.is_none_or(|known| known.is_complete());
        Ok(Some(NotedCopy { copies: self.clone(), copy, is_new, has_made }))
    }

    fn write(&self, copy: &LocalCopyRecord) -> io::Result<()> {
        state_directory::write(&self.directory, &file_name(&copy.id), &serde_json::to_vec_pretty(copy)?)
            .map(drop)
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let notes = entries.flatten().map(|entry| entry.path()).filter(|path| {
            let is_named = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .is_some_and(|id| id.parse::<TransferId>().is_ok());
            is_named && path.extension() == Some("json".as_ref())
        });
        Ok(notes.collect())
    }

    /// Returns all recorded copies, the oldest first. Unreadable files are left out.
    pub fn list(&self) -> io::Result<Vec<LocalCopyRecord>> {
        let mut copies: Vec<LocalCopyRecord> =
            self.files()?.iter().filter_map(|path| self.read(path).ok()).collect();
        copies.sort_by(|one, other| (one.started, &one.id).cmp(&(other.started, &other.id)));
        Ok(copies)
    }

    /// Returns the copy with this ID, or the only copy whose ID begins with it; `None` if there is none.
    ///
    /// # Errors
    /// If several IDs begin with it.
    pub fn find(&self, id: &str) -> Result<Option<LocalCopyRecord>, UserError> {
        if id.len() < PREFIX_MIN {
            return Ok(None);
        }
        let wanted = id.to_ascii_lowercase();
        let files = self.files().unwrap_or_default();
        let mut matching = files.iter().filter(|path| {
            path.file_stem().is_some_and(|stem| stem.as_bytes().starts_with(wanted.as_bytes()))
        });
        match (matching.next(), matching.next()) {
            (Some(only), None) => Ok(self.read(only).ok()),
            (Some(_), Some(_)) => {
                Err(UserError::new(format!("{} is the beginning of several copies", escape(id.as_bytes())))
                    .hint("give more of its digits; `carrack transfers` lists them"))
            }
            (None, _) => Ok(None),
        }
    }

    /// Reads the latest state of a copy.
    pub fn reload(&self, copy: &LocalCopyRecord) -> io::Result<LocalCopyRecord> {
        self.read(&self.path(&copy.id))
    }

    /// Removes a copy from the register.
    pub fn forget(&self, copy: &LocalCopyRecord) -> io::Result<()> {
        // There may be no log.
        let _ = fs::remove_file(self.log_path(&copy.id));
        fs::remove_file(self.path(&copy.id))
    }

    /// Removes complete copies, if there are too many or they are too old. Files that can't be removed are
    /// tried again the next time.
    fn prune(&self) {
        let [many, fewer] = FILES;
        if self.files().is_ok_and(|files| files.len() <= many) {
            return;
        }
        let complete: Vec<LocalCopyRecord> =
            self.list().unwrap_or_default().into_iter().filter(LocalCopyRecord::is_complete).collect();
        let mut left = complete.len();
        for copy in &complete {
            let is_old = copy.standing.updated < now_s() - KEPT_S;
            if (left > fewer || is_old) && self.forget(copy).is_ok() {
                left -= 1;
            }
        }
    }

    fn read(&self, path: &Path) -> io::Result<LocalCopyRecord> {
        let found = fs::metadata(path)?;
        if !found.is_file() || found.len() > RECORD_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        let copy: LocalCopyRecord = serde_json::from_slice(&fs::read(path)?)?;
        // The ID must lead back to the file.
        if self.path(&copy.id) == path && copy.id.parse::<TransferId>().is_ok() {
            Ok(copy)
        } else {
            Err(ErrorKind::InvalidData.into())
        }
    }
}

fn file_name(id: &str) -> String {
    format!("{id}.json")
}

/// A copy of this process that is recorded.
#[derive(Debug)]
pub struct NotedCopy {
    copies: CopyStore,
    copy: LocalCopyRecord,
    is_new: bool,
    has_made: bool,
}

impl NotedCopy {
    /// Returns true if no earlier run left anything to resume.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns true if an earlier run has made the destination.
    pub fn has_made_destination(&self) -> bool {
        self.has_made
    }

    /// Returns the path of its log.
    pub fn log_path(&self) -> PathBuf {
        self.copies.log_path(&self.copy.id)
    }

    /// Returns its state, to be changed; see [`write`](Self::write).
    pub(super) fn progress_mut(&mut self) -> &mut CopyProgressRecord {
        &mut self.copy.standing
    }

    /// Writes its state.
    pub(super) fn write(&mut self) -> io::Result<()> {
        self.copy.standing.updated = now_s();
        self.copies.write(&self.copy)
    }

    /// Removes it from the register: there was no copy to run.
    pub fn forget(&self) {
        // If it can't be removed, it is listed as ended and can be run again: no harm.
        let _ = self.copies.forget(&self.copy);
    }
}

/// Returns the error that the register has no directory.
pub fn no_register_error() -> UserError {
    UserError::new("there is no place where copies could be remembered").hint("set HOME or XDG_STATE_HOME")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfers() -> (tempfile::TempDir, CopyStore) {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("state/carrack/transfers");
        (home, CopyStore { directory })
    }

    #[test]
    fn what_is_begun_is_noted_until_it_has_ended() {
        let (_home, transfers) = transfers();
        assert_eq!(transfers.list().unwrap(), []);
        let strange = OsString::from_vec(b"a\xff".to_vec());
        let arguments = ["carrack".into(), "cp".into(), strange.clone(), "b".into()];
        let noted =
            transfers.begin(TransferId([7; 16]), &arguments, CopyProgressRecord::default()).unwrap().unwrap();
        let listed = transfers.list().unwrap();
        assert_eq!((listed.len(), listed[0].id.as_str()), (1, "07".repeat(16).as_str()));
        assert_eq!(listed[0].arguments[2].get(), Some(strange));
        assert_eq!(listed[0].directory.get(), Some(std::env::current_dir().unwrap().into()));
        assert_eq!(
            (listed[0].process_liveness(), listed[0].pid()),
            (RecordedProcessLiveness::Running, std::process::id())
        );
        noted.forget();
        assert_eq!(transfers.list().unwrap(), []);
    }

    #[test]
    fn strangers_files_are_no_transfers() {
        let (_home, transfers) = transfers();
        drop(transfers.begin(TransferId([1; 16]), &["x".into()], CopyProgressRecord::default()).unwrap());
        let known = transfers.list().unwrap().remove(0);
        for (name, content) in [
            ("broken.json", "{".to_owned()),
            ("other.json", serde_json::to_string(&known).unwrap()),
            ("notes.txt", String::new()),
        ] {
            fs::write(transfers.directory.join(name), content).unwrap();
        }
        assert_eq!(transfers.list().unwrap(), std::slice::from_ref(&known));
        transfers.forget(&known).unwrap();
        assert!(transfers.forget(&known).is_err());
    }

    #[test]
    fn words_survive() {
        for bytes in [&b"plain"[..], b"", b"\xff\x00\x80", "ü".as_bytes()] {
            let word = ArgumentText::of(OsStr::from_bytes(bytes));
            let read: ArgumentText = serde_json::from_str(&serde_json::to_string(&word).unwrap()).unwrap();
            assert_eq!(read.get().unwrap().as_bytes(), bytes);
        }
        assert_eq!(ArgumentText::Bytes { hex: "0x".into() }.get(), None);
    }
}
