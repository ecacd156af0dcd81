//! The queue of one machine: the fleet's commands without a fleet.
//!
//! Transfers are kept in a store (`store`) and carried out by `carrack cp` in processes of their own
//! (`child`), a few at a time, in the order of `turns`. One lock guards the store and the running transfers;
//! no thread waits while it holds the lock. Threads: a thread that gives turns (`carrack-queue`), and one for
//! each copy, which starts it, reads its output and waits for its end.

mod child;
mod control;
mod copy_arguments;
mod copy_events;
mod effective_config;
mod launch;
mod orders;
mod process_identity;
mod reload_requests;
mod runner;
mod service;
mod store;
mod turns;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carrack_plan::fleet::TransferRanking;
use carrack_register::transfer_records::TransferRecord;
use nix::unistd::{Uid, User};
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use thiserror::Error;
use tokio::sync::watch;

use crate::log::DaemonLog;
pub use copy_arguments::LOCAL_SITE;
pub use launch::{LaunchRequest, become_copy};
pub use service::{QueueProcessStopTrigger, QueueServiceError, serve_local};
use store::QueueStore;
pub use store::QueueStoreError;
pub use turns::QueueOrderRules;

/// Upper bound of transfers that are not over: it limits the disk space that users can fill.
const OPEN_MAX: u64 = 100_000;

/// Settings of a queue.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// Directory of its store, which belongs to the daemon's user alone.
    pub directory: PathBuf,
    /// Simultaneous transfers.
    pub max_running: usize,
    /// Time for which a finished transfer stays in the history.
    pub history: Duration,
    /// Prefixes of the paths on other sites, in the notation of `carrack cp`.
    pub sites: BTreeMap<String, String>,
    /// Rules of the order in which transfers begin.
    pub turns: QueueOrderRules,
    /// The Unix socket at which copies ask for storage targets; without one they look for a daemon of the
    /// machine.
    pub sharing: Option<PathBuf>,
}

/// An error of opening a queue.
#[derive(Debug, Error)]
pub enum QueueOpenError {
    /// The system's error about its directory.
    #[error("{path}: {error}", path = .path.display())]
    Directory {
        /// The directory, or a file in it.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Other users could read or change submissions.
    #[error("{path} is not the daemon's user's alone", path = .0.display())]
    NotPrivate(PathBuf),
    /// Another process uses the directory.
    #[error("{path} is the queue of a daemon that runs", path = .0.display())]
    InUse(PathBuf),
    /// An error of its store.
    #[error(transparent)]
    Store(#[from] QueueStoreError),
}

/// The queue. Clones share it.
#[derive(Clone)]
pub struct LocalQueue(Arc<QueueShared>);

struct QueueShared {
    settings: QueueSettings,
    log: DaemonLog,
    /// The user whose transfers run without a change of the user.
    owner: String,
    is_root: bool,
    /// Held, so that the directory has one queue.
    _lock: File,
    state: Mutex<LocalQueueState>,
    /// Wakes for a possible turn, and for the end of the queue.
    turn: Condvar,
    /// Changes with every record.
    changes: watch::Sender<u64>,
}

struct LocalQueueState {
    store: QueueStore,
    /// Recent use by account.
    ranks: TransferRanking,
    running: HashMap<String, RunningTransfer>,
    is_ending: bool,
}

/// A transfer that has its turn.
struct RunningTransfer {
    /// The present record; that of the store may be a few seconds old.
    record: TransferRecord,
    /// Set once the process has started.
    pidfd: Option<OwnedFd>,
    wish: Option<StopWish>,
    /// Time at which its process was told to end.
    told: Option<Instant>,
    /// Start of its turn.
    began: Instant,
    /// Time at which its counts were last stored.
    saved: Instant,
}

/// The state that a running transfer gets once its process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopWish {
    Cancel,
    Pause,
    /// The daemon ends: the transfer waits for the next one.
    Requeue,
}

impl StopWish {
    fn name(self) -> &'static str {
        match self {
            StopWish::Cancel => "cancel",
            StopWish::Pause => "pause",
            StopWish::Requeue => "requeue",
        }
    }

    fn from_name(name: &str) -> Option<StopWish> {
        [StopWish::Cancel, StopWish::Pause, StopWish::Requeue].into_iter().find(|wish| wish.name() == name)
    }
}

impl LocalQueue {
    /// Opens a queue's directory and creates it if necessary. Processes that a dead queue left running are
    /// ended, and their transfers take their earlier places. Nothing is started before [`LocalQueue::start`].
    ///
    /// # Errors
    /// [`QueueOpenError`] if the directory can't be used.
    pub fn open(settings: QueueSettings, log: DaemonLog) -> Result<LocalQueue, QueueOpenError> {
        let lock = claim_directory(&settings.directory)?;
        let store = QueueStore::open(&settings.directory.join("queue.db"))?;
        let inner = QueueShared {
            owner: name_of_user(geteuid().as_raw()),
            is_root: geteuid().is_root(),
            log,
            _lock: lock,
            state: Mutex::new(LocalQueueState {
                store,
                ranks: settings.turns.new_ranking(),
                running: HashMap::new(),
                is_ending: false,
            }),
            settings,
            turn: Condvar::new(),
            changes: watch::Sender::new(0),
        };
        inner.recover()?;
        Ok(LocalQueue(Arc::new(inner)))
    }

    /// Returns the user of this daemon.
    pub fn owner(&self) -> &str {
        &self.0.owner
    }
}

impl QueueShared {
    /// Locks the state. If a thread panicked, the store has its state, or the end of the process will tell
    /// it.
    fn state(&self) -> MutexGuard<'_, LocalQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces a change to watchers and to the thread that gives turns.
    fn notify_change(&self) {
        self.changes.send_modify(|number| *number += 1);
        self.turn.notify_all();
    }
}

/// For `map_err`: adds the path.
fn directory_error(path: &Path) -> impl FnOnce(io::Error) -> QueueOpenError {
    move |error| QueueOpenError::Directory { path: path.to_path_buf(), error }
}

/// Restricts the directory to its owner, and takes the lock for this process.
fn claim_directory(directory: &Path) -> Result<File, QueueOpenError> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(directory_error(directory))?;
    let metadata = fs::metadata(directory).map_err(directory_error(directory))?;
    if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
        return Err(QueueOpenError::NotPrivate(directory.to_path_buf()));
    }
    let path = directory.join("lock");
    let lock = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(directory_error(&path))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(QueueOpenError::InUse(directory.to_path_buf())),
        Err(error) => Err(directory_error(&path)(error.into())),
    }
}

/// Returns a user's name, or `uid:NUMBER` if none is known.
pub fn name_of_user(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => format!("uid:{uid}"),
    }
}
