//! The audit log: one line of JSON for each session, and for each client that was refused after TLS was
//! established.
//!
//! Appended and reopened on SIGHUP, so that logrotate may move it. An unwritable log stops no transfer: a
//! warning goes to standard error, once until the log works again.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use carrack_trust::ProvedIdentity;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::log::DaemonLog;
use crate::session_messages::AuditedWork;

/// The end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditedOutcome {
    /// Everything requested was done.
    Ok,
    /// Some entries failed.
    Partial,
    /// The session was not admitted.
    Refused,
    /// The session failed.
    Error,
    /// The session's process was killed, or died.
    Killed,
}

/// A line of the log.
#[derive(Debug, Serialize)]
pub struct AuditEntry<'a> {
    /// Time of the session's end (RFC 3339, UTC).
    pub time: String,
    /// The daemon's number for the session.
    pub session: u64,
    /// The client's address and port.
    pub from: String,
    /// The client's identity, and its source.
    pub who: Option<&'a ProvedIdentity>,
    /// The client's request.
    #[serde(flatten)]
    pub work: Option<&'a AuditedWork>,
    /// Bytes of content.
    pub bytes: u64,
    /// Regular files.
    pub files: u64,
    /// Entries that failed.
    pub failed: u64,
    /// Time from the first byte to the end.
    pub seconds: f64,
    /// The result.
    pub result: AuditedOutcome,
    /// The reason of the result.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'a str,
}

/// The log's file.
#[derive(Debug)]
pub struct AuditLog {
    path: Option<PathBuf>,
    file: Option<File>,
    works: bool,
    log: DaemonLog,
}

impl AuditLog {
    /// Opens the log; without a path, lines go to standard error.
    ///
    /// # Errors
    /// The system's error, if the file can't be opened.
    pub fn open(path: Option<&Path>, log: DaemonLog) -> io::Result<AuditLog> {
        let file = path.map(open).transpose()?;
        Ok(AuditLog { path: path.map(Path::to_path_buf), file, works: true, log })
    }

    /// Opens the log again, possibly at another path. If that fails, the open file stays in use.
    pub fn reopen(&mut self, path: Option<&Path>) {
        match path.map(open).transpose() {
            Ok(file) => (self.path, self.file) = (path.map(Path::to_path_buf), file),
            Err(error) => {
                self.log.warn(format!("the audit log can't be opened anew, it goes on where it was: {error}"))
            }
        }
    }

    /// Writes a line, with one call.
    pub fn write(&mut self, entry: &AuditEntry<'_>) {
        let line = match serde_json::to_string(entry) {
            Ok(line) => line + "\n",
            Err(error) => {
                return self.log.warn(format!("a line of the audit log could not be made: {error}"));
            }
        };
        let written = match &mut self.file {
            Some(file) => file.write_all(line.as_bytes()),
            None => io::stderr().write_all(line.as_bytes()),
        };
        match written {
            Ok(()) => self.works = true,
            Err(error) if self.works => {
                self.works = false;
                let path = self.path.as_deref().unwrap_or(Path::new("stderr")).display();
                self.log.warn(format!(
                    "the audit log {path} can't be written, sessions go on: {error}; lost: {}",
                    line.trim()
                ));
            }
            Err(_) => self.log.warn(format!("not in the audit log: {}", line.trim())),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

/// Returns the present time in RFC 3339, to the millisecond.
pub fn now() -> String {
    let now = OffsetDateTime::from(SystemTime::now());
    let milliseconds = now.millisecond();
    let whole = now.replace_millisecond(milliseconds).unwrap_or(now);
    whole.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(reason: &str) -> AuditEntry<'_> {
        AuditEntry {
            time: now(),
            session: 3,
            from: "[::1]:5".into(),
            who: None,
            work: None,
            bytes: 1,
            files: 2,
            failed: 0,
            seconds: 0.5,
            result: AuditedOutcome::Refused,
            reason,
        }
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_line_is_one_line_whatever_it_says() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit");
        let mut audit = AuditLog::open(Some(&path), DaemonLog::default()).unwrap();
        audit.write(&entry("a\nb\"c"));
        std::fs::rename(&path, directory.path().join("old")).unwrap();
        audit.write(&entry("still the old file"));
        audit.reopen(Some(&path));
        audit.write(&entry("new"));
        let (old, new) = (lines(&directory.path().join("old")), lines(&path));
        assert_eq!((old.len(), new.len()), (2, 1));
        assert_eq!((&old[0]["reason"], &old[0]["result"]), (&"a\nb\"c".into(), &"refused".into()));
        let time = new[0]["time"].as_str().unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "{time}");
    }

    #[test]
    fn a_full_disk_stops_nothing() {
        let mut audit = AuditLog::open(Some(Path::new("/dev/full")), DaemonLog::default()).unwrap();
        audit.write(&entry("lost"));
        assert!(!audit.works);
    }
}
