//! The history of this user's tuners, from which later ones between the same sites begin: a JSON file for
//! each workload in `$XDG_STATE_HOME/carrack/tuner`.
//!
//! | field | content |
//! | --- | --- |
//! | `version` | 1; files of other versions are ignored |
//! | `workload` | `source` and `sink` (names of sites), `size` (`small`, `mixed`, `large`) |
//! | `record` | the tuner's [`SessionTuningResult`] |
//!
//! A file's name is a hash of its workload, since the name of a site may hold any character. A file is
//! ignored if its name does not fit its workload, or if it is unreadable, too long, or too old to be useful.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use carrack_engine::{TunerHistory, TunerMemory};
use carrack_plan::tuner::{MeanSizeClass, SessionTuningResult, TunerWorkload};
use serde::{Deserialize, Serialize};

use crate::lifetime::now_s;
use crate::register::state_directory;
use crate::remote::tuner_endpoints::TransferEndNames;

const VERSION: u32 = 1;

/// Three curves with a point for each possible number of threads take a fifth of this.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// More workloads than one host has in practice; the newest stay.
const FILES_MAX: usize = 256;

/// The longest age at which a record is used: storage and networks change.
const AGE_MAX_S: u64 = 30 * 86_400;

/// Separates these names from other uses of the same hash (BLAKE3's key derivation mode).
const CONTEXT: &str = "carrack 2026 tuner workload v1";

/// A record and its workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunerWorkloadRecord {
    version: u32,
    /// The sites and the size of the files.
    pub workload: TunerWorkload,
    /// The tuner's record.
    pub record: SessionTuningResult,
}

impl TunerWorkloadRecord {
    /// Creates a record of this version.
    pub fn new(workload: TunerWorkload, record: SessionTuningResult) -> TunerWorkloadRecord {
        TunerWorkloadRecord { version: VERSION, workload, record }
    }

    /// Returns true if the record is recent enough. A clock that was far ahead does not keep a record fresh.
    pub fn is_fresh(&self, now_s: i64) -> bool {
        self.record.at_s.abs_diff(now_s.max(0).unsigned_abs()) <= AGE_MAX_S
    }
}

/// The directory of the records.
#[derive(Clone, Debug)]
pub struct TunerStore {
    directory: PathBuf,
}

impl TunerStore {
    /// Returns the store of this process's user; `None` without a home directory.
    pub fn of_user() -> Option<TunerStore> {
        Some(TunerStore { directory: state_directory::user_state_directory("tuner")? })
    }

    /// Returns a store in a directory, which need not exist.
    #[cfg(test)]
    pub fn in_directory(directory: PathBuf) -> TunerStore {
        TunerStore { directory }
    }

    /// Returns the history of sessions between these sites, which they read at the start and extend at the
    /// end.
    pub fn history(self, sites: TransferEndNames) -> TunerHistory {
        TunerHistory(Arc::new(SitesTunerMemory { store: self, sites }))
    }

    /// Returns the last record of this workload, if it is fresh.
    pub fn load_fresh(&self, workload: &TunerWorkload, now_s: i64) -> Option<SessionTuningResult> {
        let known = self.read(&self.path(workload))?;
        known.is_fresh(now_s).then_some(known.record)
    }

    /// Stores a record in place of the earlier one.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn save(&self, known: &TunerWorkloadRecord) -> io::Result<()> {
        let content = serde_json::to_vec_pretty(known)?;
        if content.len() as u64 > FILE_BYTES_MAX {
            return Err(ErrorKind::FileTooLarge.into());
        }
        state_directory::write(&self.directory, &file_name(&known.workload), &content)?;
        self.prune();
        Ok(())
    }

    /// Returns all records of any age, by workload. Invalid files are left out.
    ///
    /// # Errors
    /// If the directory exists and can't be read.
    pub fn list(&self) -> io::Result<Vec<TunerWorkloadRecord>> {
        let mut list: Vec<TunerWorkloadRecord> =
            self.files()?.iter().filter_map(|path| self.read(path)).collect();
        list.sort_by(|one, other| one.workload.cmp(&other.workload));
        Ok(list)
    }

    /// Removes the record of this workload.
    ///
    /// # Errors
    /// If it can't be removed.
    pub fn forget(&self, workload: &TunerWorkload) -> io::Result<()> {
        fs::remove_file(self.path(workload))
    }

    fn path(&self, workload: &TunerWorkload) -> PathBuf {
        self.directory.join(file_name(workload))
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        Ok(entries.flatten().map(|entry| entry.path()).filter(|path| is_store_file(path)).collect())
    }

    fn read(&self, path: &Path) -> Option<TunerWorkloadRecord> {
        let metadata = fs::metadata(path).ok()?;
        if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
            return None;
        }
        let known: TunerWorkloadRecord = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        (known.version == VERSION && self.path(&known.workload) == path).then_some(known)
    }

    /// Keeps only the newest files. Files that can't be removed stay.
    fn prune(&self) {
        let files = self.files().unwrap_or_default().into_iter();
        let files = files.map(|path| (fs::metadata(&path).and_then(|it| it.modified()).ok(), path));
        let mut files: Vec<(Option<SystemTime>, PathBuf)> = files.collect();
        files.sort();
        let spare = files.len().saturating_sub(FILES_MAX);
        files[..spare].iter().for_each(|(_, path)| drop(fs::remove_file(path)));
    }
}

/// Returns true for records, and for temporary files of processes that were killed.
fn is_store_file(path: &Path) -> bool {
    let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    is_hidden || path.extension() == Some("json".as_ref())
}

/// Returns a hash over each site with its length in front, so that no two workloads are the same bytes.
fn file_name(workload: &TunerWorkload) -> String {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    for site in [&workload.source, &workload.sink] {
        hasher.update(&(site.len() as u64).to_le_bytes());
        hasher.update(site.as_bytes());
    }
    hasher.update(match workload.size {
        MeanSizeClass::Small => b"small",
        MeanSizeClass::Mixed => b"mixed",
        MeanSizeClass::Large => b"large",
    });
    let digits = hasher.finalize().to_hex();
    format!("{}.json", &digits[..32])
}

/// The store for two sites.
struct SitesTunerMemory {
    store: TunerStore,
    sites: TransferEndNames,
}

impl SitesTunerMemory {
    fn workload(&self, size: MeanSizeClass) -> TunerWorkload {
        let TransferEndNames { source, sink } = self.sites.clone();
        TunerWorkload { source, sink, size }
    }
}

impl TunerMemory for SitesTunerMemory {
    fn recall(&self, size: MeanSizeClass) -> Option<SessionTuningResult> {
        self.store.load_fresh(&self.workload(size), now_s())
    }

    fn keep(&self, size: MeanSizeClass, record: &SessionTuningResult) {
        // A transfer works without it.
        let _ = self.store.save(&TunerWorkloadRecord::new(self.workload(size), record.clone()));
    }
}

#[cfg(test)]
mod tests;
