//! What the tuners of this user's transfers have found out, from which later ones between the same sites begin: a JSON file for
//! each workload in `$XDG_STATE_HOME/carrack/tuner`.
//!
//! | field | what |
//! | --- | --- |
//! | `version` | 1; a file of any other one counts as none |
//! | `workload` | `source` and `sink` (names of sites), `size` (`small`, `mixed`, `large`) |
//! | `record` | the tuner's [`TunerRecord`] |
//!
//! A file's name is a hash of its workload, since sites may be called anything; one that does not fit counts as none. So does
//! what can't be read, what is too long, and what is too old to say much.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use carrack_engine::{History, TunerMemory};
use carrack_plan::tuner::{SizeClass, TunerRecord, Workload};
use serde::{Deserialize, Serialize};

use crate::lifetime::now_s;
use crate::register::state;
use crate::remote::sites::Sites;

const VERSION: u32 = 1;

/// Three curves of as many points as there can be threads are a fifth of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// More workloads than anybody has on one host; the newest stay.
const FILES_MAX: usize = 256;

/// Storage and networks are changed meanwhile.
const AGE_MAX_S: u64 = 30 * 86_400;

/// What keeps these names apart from other uses of the same hash (BLAKE3's key derivation mode).
const CONTEXT: &str = "carrack 2026 tuner workload v1";

/// What was found out about one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Known {
    version: u32,
    /// Between which sites, with what files.
    pub workload: Workload,
    /// What was found.
    pub record: TunerRecord,
}

impl Known {
    /// Of this version.
    pub fn new(workload: Workload, record: TunerRecord) -> Known {
        Known { version: VERSION, workload, record }
    }

    /// Whether it says something of today. A clock that was far ahead does not keep a record alive.
    pub fn is_fresh(&self, now_s: i64) -> bool {
        self.record.at_s.abs_diff(now_s.max(0).unsigned_abs()) <= AGE_MAX_S
    }
}

/// Where it is kept.
#[derive(Clone, Debug)]
pub struct TunerStore {
    directory: PathBuf,
}

impl TunerStore {
    /// Of this process's user; nothing if there is no home.
    pub fn of_user() -> Option<TunerStore> {
        Some(TunerStore { directory: state::directory("tuner")? })
    }

    /// In a directory, which need not be there.
    #[cfg(test)]
    pub fn at(directory: PathBuf) -> TunerStore {
        TunerStore { directory }
    }

    /// Where a session between these sites begins from, and leaves what it has found out.
    pub fn history(self, sites: Sites) -> History {
        History(Arc::new(SitesMemory { store: self, sites }))
    }

    /// The last one of this workload.
    pub fn recall(&self, workload: &Workload, now_s: i64) -> Option<TunerRecord> {
        let known = self.read(&self.path(workload))?;
        known.is_fresh(now_s).then_some(known.record)
    }

    /// Keeps one in its place.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn keep(&self, known: &Known) -> io::Result<()> {
        let content = serde_json::to_vec_pretty(known)?;
        if content.len() as u64 > FILE_BYTES_MAX {
            return Err(ErrorKind::FileTooLarge.into());
        }
        state::write(&self.directory, &file_name(&known.workload), &content)?;
        self.prune();
        Ok(())
    }

    /// All of whatever age, by workload. What counts as none is left out.
    ///
    /// # Errors
    /// If the directory is there and can't be read.
    pub fn list(&self) -> io::Result<Vec<Known>> {
        let mut list: Vec<Known> = self.files()?.iter().filter_map(|path| self.read(path)).collect();
        list.sort_by(|one, other| one.workload.cmp(&other.workload));
        Ok(list)
    }

    /// Forgets what is known of this workload.
    ///
    /// # Errors
    /// If it can't be removed.
    pub fn forget(&self, workload: &Workload) -> io::Result<()> {
        fs::remove_file(self.path(workload))
    }

    fn path(&self, workload: &Workload) -> PathBuf {
        self.directory.join(file_name(workload))
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        Ok(entries.flatten().map(|entry| entry.path()).filter(|path| is_own(path)).collect())
    }

    fn read(&self, path: &Path) -> Option<Known> {
        let metadata = fs::metadata(path).ok()?;
        if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
            return None;
        }
        let known: Known = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        (known.version == VERSION && self.path(&known.workload) == path).then_some(known)
    }

    /// Leaves the newest ones. What can't be removed stays.
    fn prune(&self) {
        let age = |path: PathBuf| (fs::metadata(&path).and_then(|it| it.modified()).ok(), path);
        let files = self.files().unwrap_or_default().into_iter();
        let mut files: Vec<(Option<SystemTime>, PathBuf)> = files.map(age).collect();
        files.sort();
        let spare = files.len().saturating_sub(FILES_MAX);
        files[..spare].iter().for_each(|(_, path)| drop(fs::remove_file(path)));
    }
}

/// Records, and what a process that was killed left of one.
fn is_own(path: &Path) -> bool {
    let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    is_hidden || path.extension() == Some("json".as_ref())
}

/// Each site with its length in front, so that no two workloads are the same bytes.
fn file_name(workload: &Workload) -> String {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    for site in [&workload.source, &workload.sink] {
        hasher.update(&(site.len() as u64).to_le_bytes());
        hasher.update(site.as_bytes());
    }
    hasher.update(match workload.size {
        SizeClass::Small => b"small",
        SizeClass::Mixed => b"mixed",
        SizeClass::Large => b"large",
    });
    let digits = hasher.finalize().to_hex();
    format!("{}.json", &digits[..32])
}

/// The store, between two sites.
struct SitesMemory {
    store: TunerStore,
    sites: Sites,
}

impl SitesMemory {
    fn workload(&self, size: SizeClass) -> Workload {
        let Sites { source, sink } = self.sites.clone();
        Workload { source, sink, size }
    }
}

impl TunerMemory for SitesMemory {
    fn recall(&self, size: SizeClass) -> Option<TunerRecord> {
        self.store.recall(&self.workload(size), now_s())
    }

    fn keep(&self, size: SizeClass, record: &TunerRecord) {
        // A transfer is none the worse for it.
        let _ = self.store.keep(&Known::new(self.workload(size), record.clone()));
    }
}

#[cfg(test)]
mod tests;
