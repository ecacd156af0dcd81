//! What the user began to copy and did not end: a small file for each such command, so that it can be run again.
//!
//! They lie in `$XDG_STATE_HOME/carrack/transfers` (XDG Base Directory Specification; `~/.local/state` by default). A
//! transfer does not depend on them: where one can't be written, there is none. What has moved already is not known here but
//! in the journal at the destination.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use carrack_model::TransferId;
use serde::{Deserialize, Serialize};

use crate::process::{Life, Process};
use crate::state;

/// Larger files are not carrack's: a command line has 2 MiB at most (execve(2)), in hexadecimal twice as much.
const RECORD_BYTES_MAX: u64 = 8 << 20;

/// A command that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Its name: 32 hexadecimal digits.
    pub id: String,
    /// The command, its program first.
    pub arguments: Vec<Word>,
    /// Where it was given.
    pub directory: Word,
    /// When, in seconds since 1970.
    pub started: u64,
    /// Who ran it, or runs it still.
    process: Process,
}

/// Bytes that are text mostly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word {
    /// Text.
    Text(String),
    /// Anything else.
    Bytes {
        /// In hexadecimal.
        hex: String,
    },
}

impl Word {
    /// Of an argument or a path.
    pub fn of(word: &OsStr) -> Word {
        match word.to_str() {
            Some(text) => Word::Text(text.to_owned()),
            None => Word::Bytes { hex: word.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect() },
        }
    }

    /// The bytes; nothing if they can't be read.
    pub fn get(&self) -> Option<OsString> {
        match self {
            Word::Text(text) => Some(text.into()),
            Word::Bytes { hex } => {
                let pairs = hex.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).ok());
                let bytes = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect::<Option<Vec<u8>>>();
                bytes.map(OsString::from_vec)
            }
        }
    }
}

impl Transfer {
    /// Whether it still runs.
    pub fn life(&self) -> Life {
        self.process.life()
    }

    /// The host on which it was begun.
    pub fn host(&self) -> &str {
        &self.process.host
    }

    /// The process that runs it or ran it.
    pub fn pid(&self) -> u32 {
        self.process.pid
    }
}

/// The user's transfers.
#[derive(Clone, Debug)]
pub struct Transfers {
    directory: PathBuf,
}

impl Transfers {
    /// Of this process's user; nothing if there is no home.
    pub fn of_user() -> Option<Transfers> {
        Some(Transfers { directory: state::directory("transfers")? })
    }

    fn path(&self, id: &str) -> PathBuf {
        self.directory.join(file_name(id))
    }

    /// Notes that this process begins a transfer. Nothing is noted where another process runs it already.
    pub fn begin(&self, id: TransferId, arguments: &[OsString]) -> io::Result<Option<Noted>> {
        let id = id.to_string();
        if self.read(&self.path(&id)).is_ok_and(|known| known.life() == Life::Running && !known.is_own()) {
            return Ok(None);
        }
        let transfer = Transfer {
            id,
            arguments: arguments.iter().map(|word| Word::of(word)).collect(),
            directory: Word::of(std::env::current_dir()?.as_os_str()),
            started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            process: Process::own().ok_or_else(|| io::Error::other("/proc tells nothing"))?,
        };
        let content = serde_json::to_vec_pretty(&transfer)?;
        let path = state::write(&self.directory, &file_name(&transfer.id), &content)?;
        Ok(Some(Noted { path }))
    }

    /// All that are noted, the oldest first. What can't be read is left out.
    pub fn list(&self) -> io::Result<Vec<Transfer>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let records = paths.filter(|path| path.extension() == Some("json".as_ref()));
        let mut transfers: Vec<Transfer> = records.filter_map(|path| self.read(&path).ok()).collect();
        transfers.sort_by(|one, other| (one.started, &one.id).cmp(&(other.started, &other.id)));
        Ok(transfers)
    }

    /// Forgets one.
    pub fn forget(&self, transfer: &Transfer) -> io::Result<()> {
        fs::remove_file(self.path(&transfer.id))
    }

    fn read(&self, path: &Path) -> io::Result<Transfer> {
        if fs::metadata(path)?.len() > RECORD_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        let transfer: Transfer = serde_json::from_slice(&fs::read(path)?)?;
        // The name leads back to the file.
        match self.path(&transfer.id) == path && transfer.id.parse::<TransferId>().is_ok() {
            true => Ok(transfer),
            false => Err(ErrorKind::InvalidData.into()),
        }
    }
}

impl Transfer {
    fn is_own(&self) -> bool {
        self.process.pid == std::process::id()
    }
}

fn file_name(id: &str) -> String {
    format!("{id}.json")
}

/// A transfer of this process that is noted.
#[derive(Debug)]
pub struct Noted {
    path: PathBuf,
}

impl Noted {
    /// It came to its end.
    pub fn forget(self) {
        // One that stays is shown as ended, and can be run again: no harm.
        let _ = fs::remove_file(self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfers() -> (tempfile::TempDir, Transfers) {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("state/carrack/transfers");
        (home, Transfers { directory })
    }

    #[test]
    fn what_is_begun_is_noted_until_it_has_ended() {
        let (_home, transfers) = transfers();
        assert_eq!(transfers.list().unwrap(), []);
        let strange = OsString::from_vec(b"a\xff".to_vec());
        let arguments = ["carrack".into(), "cp".into(), strange.clone(), "b".into()];
        let noted = transfers.begin(TransferId([7; 16]), &arguments).unwrap().unwrap();
        let listed = transfers.list().unwrap();
        assert_eq!((listed.len(), listed[0].id.as_str()), (1, "07".repeat(16).as_str()));
        assert_eq!(listed[0].arguments[2].get(), Some(strange));
        assert_eq!(listed[0].directory.get(), Some(std::env::current_dir().unwrap().into()));
        assert_eq!((listed[0].life(), listed[0].pid()), (Life::Running, std::process::id()));
        noted.forget();
        assert_eq!(transfers.list().unwrap(), []);
    }

    #[test]
    fn strangers_files_are_no_transfers() {
        let (_home, transfers) = transfers();
        drop(transfers.begin(TransferId([1; 16]), &["x".into()]).unwrap());
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
            let word = Word::of(OsStr::from_bytes(bytes));
            let read: Word = serde_json::from_str(&serde_json::to_string(&word).unwrap()).unwrap();
            assert_eq!(read.get().unwrap().as_bytes(), bytes);
        }
        assert_eq!(Word::Bytes { hex: "0x".into() }.get(), None);
    }
}
