//! The destination as the sink finds it: looked at before anything is touched, opened when the source has decided.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carrack_storage::{Identity, Root};
use carrack_wire::message::SinkState;

use super::place::{DestinationFacts, PlaceRoot, Standing};
use super::typed::{ends_with_slash, last_name, parent};
use crate::error::SessionError;
use crate::settings::Settings;
use crate::sink::SinkStorage;

/// Where the user wants the data.
pub(crate) struct Destination {
    path: PathBuf,
    facts: DestinationFacts,
    ancestors: Vec<Identity>,
    storage: Arc<SinkStorage>,
}

impl Destination {
    /// Looks at `path` without touching it.
    pub(crate) fn look(path: &Path, settings: &Settings) -> Result<Destination, SessionError> {
        let standing = match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Standing::Directory,
            Ok(_) => Standing::Other,
            Err(error) if error.kind() == ErrorKind::NotFound => Standing::Nothing,
            Err(error) if error.kind() == ErrorKind::NotADirectory => Standing::Other,
            Err(error) => return Err(unusable(path, &error)),
        };
        let nearest = if standing == Standing::Directory { path } else { parent(path) };
        let root = Root::open(nearest).map_err(|error| unusable(nearest, &error))?;
        let ancestors = root.ancestors().map_err(|error| unusable(nearest, &error))?;
        let storage = SinkStorage::look(root.as_fd(), path, settings)?;
        let facts = DestinationFacts {
            standing,
            wants_directory: ends_with_slash(path),
            name: last_name(path).unwrap_or_default().to_vec(),
        };
        Ok(Destination { path: path.to_path_buf(), facts, ancestors, storage: Arc::new(storage) })
    }

    pub(super) fn facts(&self) -> &DestinationFacts {
        &self.facts
    }

    pub(crate) fn storage(&self) -> Arc<SinkStorage> {
        Arc::clone(&self.storage)
    }

    /// What the source has to know.
    pub(crate) fn to_message(&self, credits: u32) -> SinkState {
        SinkState {
            destination: match self.facts.standing {
                Standing::Nothing => 0,
                Standing::Directory => 1,
                Standing::Other => 2,
            },
            wants_directory: self.facts.wants_directory,
            name: self.facts.name.clone(),
            host: host_identity(),
            ancestors: self.ancestors.iter().flat_map(|identity| [identity.dev, identity.ino]).collect(),
            credits,
            has_targets: self.storage.has_targets(),
        }
    }

    /// Whether a source that keeps to the rules of [`super::place`] could have decided so: one that lies must not get
    /// the destination's parent to write to.
    pub(crate) fn allows(&self, root: PlaceRoot) -> bool {
        let may_be_a_file = !self.facts.wants_directory && !self.facts.name.is_empty();
        match (self.facts.standing, root) {
            (Standing::Directory, root) => root == PlaceRoot::Destination,
            (Standing::Nothing, PlaceRoot::NewDestination) => true,
            (Standing::Nothing | Standing::Other, PlaceRoot::Parent) => may_be_a_file,
            _ => false,
        }
    }

    /// Opens the directory beneath which everything is written, creating it if the source says so.
    pub(crate) fn open(&self, root: PlaceRoot) -> Result<Root, SessionError> {
        let path = match root {
            PlaceRoot::Destination => self.path.as_path(),
            PlaceRoot::Parent => parent(&self.path),
            PlaceRoot::NewDestination => {
                match fs::create_dir(&self.path) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                        return Err(unusable(&self.path, &error));
                    }
                    _ => {}
                }
                self.path.as_path()
            }
        };
        Root::open(path).map_err(|error| unusable(path, &error))
    }
}

/// What a source knows of a sink.
pub(crate) struct SinkFacts {
    pub(crate) facts: DestinationFacts,
    /// The destination (or its parent while it does not exist) and every directory above, if it is on this host.
    pub(crate) ancestors_here: Vec<Identity>,
    pub(crate) credits: u32,
    pub(crate) has_targets: bool,
}

impl SinkFacts {
    pub(crate) fn from_message(message: &SinkState) -> Result<SinkFacts, SessionError> {
        let standing = match message.destination {
            0 => Standing::Nothing,
            1 => Standing::Directory,
            2 => Standing::Other,
            _ => return Err(SessionError::Protocol("a destination of a kind that is not known here".into())),
        };
        let same_host = !message.host.is_empty() && message.host == host_identity();
        let pairs = message.ancestors.chunks_exact(2);
        let identities = pairs.map(|pair| Identity { dev: pair[0], ino: pair[1] });
        Ok(SinkFacts {
            facts: DestinationFacts {
                standing,
                wants_directory: message.wants_directory,
                name: message.name.clone(),
            },
            ancestors_here: if same_host { identities.collect() } else { Vec::new() },
            credits: message.credits,
            has_targets: message.has_targets,
        })
    }
}

/// The same for two processes exactly if they run under one kernel; nothing if that can't be told.
fn host_identity() -> Vec<u8> {
    fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

fn unusable(path: &Path, error: &io::Error) -> SessionError {
    let hint = match error.kind() {
        ErrorKind::NotFound => "create the directory that is to hold it first",
        ErrorKind::PermissionDenied => "choose a destination that you may write to",
        _ => "",
    };
    let shown = carrack_model::escape(path.as_os_str().as_bytes());
    SessionError::refused(format!("the destination {shown} can't be used: {error}"), hint)
}
