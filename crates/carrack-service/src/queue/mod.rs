//! The queue of one machine: the verbs of the fleet without one.
//!
//! Transfers are kept in a store (`store`) and carried out by `carrack cp` in processes of their own (`child`), a few at a time, in
//! the order that `turns` says. One lock guards the store and what runs; nobody holds it while he waits. Threads: one that
//! gives turns (`carrack-queue`), and one for each copy, which starts it, hears it and sees it end.

mod child;
mod control;
mod events;
mod going_by;
mod launch;
mod orders;
mod process;
mod runner;
mod service;
mod store;
mod turns;
mod wishes;
mod words;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carrack_plan::fleet::Ranks;
use carrack_register::records::TransferRecord;
use nix::unistd::{Uid, User};
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use thiserror::Error;
use tokio::sync::watch;

use crate::log::Log;
pub use launch::{Errand, become_copy};
pub use service::{EndsWith, QueueError, serve_local};
use store::Store;
pub use store::StoreError;
pub use turns::TurnRules;
pub use words::LOCAL_SITE;

/// Transfers that are not over, at most: a bound on what users can have the disk hold.
const OPEN_MAX: u64 = 100_000;

/// How a queue is run.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// Where its store is; nobody else's.
    pub directory: PathBuf,
    /// Transfers at the same time.
    pub max_running: usize,
    /// How long what is over is remembered.
    pub history: Duration,
    /// Where the paths of other sites begin, as `carrack cp` takes them.
    pub sites: BTreeMap<String, String>,
    /// In what order transfers begin.
    pub turns: TurnRules,
    /// The Unix socket at which copies ask for storage targets; without one they look for a daemon of the machine.
    pub sharing: Option<PathBuf>,
}

/// Why there is no queue.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The system's words about its directory.
    #[error("{path}: {error}", path = .path.display())]
    Directory {
        /// The directory, or what is in it.
        path: PathBuf,
        /// Its words.
        error: io::Error,
    },
    /// Others could read what is submitted, or change it.
    #[error("{path} is not the daemon's user's alone", path = .0.display())]
    NotPrivate(PathBuf),
    /// Another process has it.
    #[error("{path} is the queue of a daemon that runs", path = .0.display())]
    InUse(PathBuf),
    /// Its store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The queue. Copies are the same one.
#[derive(Clone)]
pub struct LocalQueue(Arc<Inner>);

struct Inner {
    settings: QueueSettings,
    log: Log,
    /// Whose transfers are carried out without becoming somebody else.
    owner: String,
    is_root: bool,
    /// Held, so that the directory has one queue.
    _lock: File,
    state: Mutex<State>,
    /// There may be a turn to give, or the queue is to end.
    turn: Condvar,
    /// Changes with every record.
    changes: watch::Sender<u64>,
}

struct State {
    store: Store,
    /// Who has used what, of late.
    ranks: Ranks,
    running: HashMap<String, Running>,
    is_ending: bool,
}

/// A transfer that has its turn.
struct Running {
    /// As it is now; what the store has may be a few seconds old.
    record: TransferRecord,
    /// Once there is a process.
    pidfd: Option<OwnedFd>,
    wish: Option<Wish>,
    /// When its process was told to end.
    told: Option<Instant>,
    /// When its turn began.
    began: Instant,
    /// When its counts last went to the store.
    saved: Instant,
}

/// What is to become of a transfer that runs, once its process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Cancel,
    Pause,
    /// The daemon ends: it waits for the next one.
    Requeue,
}

impl Wish {
    fn name(self) -> &'static str {
        match self {
            Wish::Cancel => "cancel",
            Wish::Pause => "pause",
            Wish::Requeue => "requeue",
        }
    }

    fn from_name(name: &str) -> Option<Wish> {
        [Wish::Cancel, Wish::Pause, Wish::Requeue].into_iter().find(|wish| wish.name() == name)
    }
}

impl LocalQueue {
    /// Opens a queue's directory, which is made if need be, ends what another queue's death has left running, and puts it
    /// back where it was. Nothing is started before [`LocalQueue::start`].
    ///
    /// # Errors
    /// Why it can't be used.
    pub fn open(settings: QueueSettings, log: Log) -> Result<LocalQueue, OpenError> {
        let lock = own(&settings.directory)?;
        let store = Store::open(&settings.directory.join("queue.db"))?;
        let inner = Inner {
            owner: name_of_user(geteuid().as_raw()),
            is_root: geteuid().is_root(),
            log,
            _lock: lock,
            state: Mutex::new(State {
                store,
                ranks: settings.turns.ranks(),
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

    /// Whose daemon this is.
    pub fn owner(&self) -> &str {
        &self.0.owner
    }
}

impl Inner {
    /// What a thread that panicked left behind is in the store, or will be said by the process's end.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is another way now.
    fn tell(&self) {
        self.changes.send_modify(|number| *number += 1);
        self.turn.notify_all();
    }
}

/// Makes the directory its owner's alone, and this process its only user.
fn own(directory: &Path) -> Result<File, OpenError> {
    let trouble = |path: &Path| {
        let path = path.to_path_buf();
        move |error| OpenError::Directory { path, error }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(trouble(directory))?;
    let metadata = fs::metadata(directory).map_err(trouble(directory))?;
    if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
        return Err(OpenError::NotPrivate(directory.to_path_buf()));
    }
    let path = directory.join("lock");
    let lock = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(trouble(&path))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::InUse(directory.to_path_buf())),
        Err(error) => Err(trouble(&path)(error.into())),
    }
}

/// A user's name, or `uid:NUMBER` where none is known.
pub fn name_of_user(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => format!("uid:{uid}"),
    }
}
