//! A directory whose walk a thread has begun and not finished: the state of its listing, and its waiting
//! subdirectories.
//!
//! A level may be released: then it keeps neither a descriptor nor its path, and is opened again on the way
//! back. One thread owns it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use carrack_model::{CopiedDirectoryPaths, ExtraMetadata, Metadata, PathProblem, RelPath};
use rustix::fs::{SeekFrom, seek, tell};

use super::lineage::InheritedDirectoryState;
use super::listing_hashes::ListingHasher;
use super::waiting_subdirectories::PackedNames;
use crate::{FileIdentity, RootDirectory};

pub(super) struct WalkLevel {
    place: LevelPath,
    handle: Option<Arc<OwnedFd>>,
    identity: FileIdentity,
    /// The state for its subdirectories.
    pub inherited: InheritedDirectoryState,
    /// The position at which the listing continues; set when the handle is released.
    position: u64,
    /// Present until the first section takes it.
    pub metadata: Option<Metadata>,
    /// Present until the first section takes them.
    pub extras: Option<Box<ExtraMetadata>>,
    /// Set when the listing has ended.
    pub is_listed: bool,
    /// Subdirectories that were listed and are not yet walked.
    pub children: PackedNames,
    /// The seal of the listing, if a record is kept, until the listing ends.
    pub sealing: Option<Box<ListingHasher>>,
}

/// The path of a level. A path is as long as the level is deep, so keeping all of them would take quadratic
/// memory.
enum LevelPath {
    Known(Arc<CopiedDirectoryPaths>),
    /// The lengths of its paths, which are prefixes of the paths of any level above it on the stack.
    Prefix {
        source_bytes: usize,
        sink_bytes: usize,
    },
}

impl WalkLevel {
    pub fn new(
        directory: Arc<CopiedDirectoryPaths>,
        handle: OwnedFd,
        identity: FileIdentity,
        metadata: Metadata,
        extras: Option<Box<ExtraMetadata>>,
        inherited: InheritedDirectoryState,
    ) -> WalkLevel {
        WalkLevel {
            place: LevelPath::Known(directory),
            handle: Some(Arc::new(handle)),
            identity,
            inherited,
            position: 0,
            metadata: Some(metadata),
            extras,
            is_listed: false,
            children: PackedNames::default(),
            sealing: None,
        }
    }

    /// The device number of its file system.
    pub fn device(&self) -> u64 {
        self.identity.dev
    }

    /// Returns true if its listing has ended and no subdirectory waits.
    pub fn is_done(&self) -> bool {
        self.is_listed && self.children.is_empty()
    }

    /// Its path, which is known for the level on top of the stack.
    pub fn directory(&self) -> &Arc<CopiedDirectoryPaths> {
        match &self.place {
            LevelPath::Known(directory) => directory,
            LevelPath::Prefix { .. } => {
                unreachable!("a released level was recovered when it came to the top")
            }
        }
    }

    /// Gives up the descriptor and the path.
    pub fn release(&mut self) {
        let LevelPath::Known(directory) = &self.place else { return };
        let Some(handle) = &self.handle else { return };
        // A descriptor without a position is kept.
        let Ok(position) = tell(handle) else { return };
        self.position = position;
        self.handle = None;
        let source_bytes = directory.source.as_bytes().len();
        let sink_bytes = directory.sink.as_bytes().len();
        self.place = LevelPath::Prefix { source_bytes, sink_bytes };
    }

    /// Restores the path of a released level from the path of a directory in it.
    pub fn recover_place(&mut self, inner: &CopiedDirectoryPaths) {
        if let LevelPath::Prefix { source_bytes, sink_bytes } = self.place {
            self.place = LevelPath::Known(Arc::new(CopiedDirectoryPaths {
                root_index: inner.root_index,
                source: prefix(&inner.source, source_bytes),
                sink: prefix(&inner.sink, sink_bytes),
            }));
        }
    }

    /// Its descriptor, opened again beneath `root` if it was released.
    pub fn handle(&mut self, root: &RootDirectory) -> io::Result<Arc<OwnedFd>> {
        let handle = match self.handle.take() {
            Some(handle) => handle,
            None => Arc::new(self.open_again(root)?),
        };
        self.handle = Some(Arc::clone(&handle));
        Ok(handle)
    }

    fn open_again(&self, root: &RootDirectory) -> io::Result<OwnedFd> {
        let handle = root.open_directory(&self.directory().source)?;
        if FileIdentity::of_open(&handle)? != self.identity {
            return Err(io::Error::other("it was replaced by another directory during the scan"));
        }
        if !self.is_listed {
            seek(&handle, SeekFrom::Start(self.position))?;
        }
        Ok(handle)
    }

    /// The first waiting subdirectory.
    pub fn first_child(&self) -> Option<Result<Arc<CopiedDirectoryPaths>, PathProblem>> {
        Some(child_of(self.directory(), self.children.first()?).map(Arc::new))
    }
}

fn child_of(parent: &CopiedDirectoryPaths, name: &[u8]) -> Result<CopiedDirectoryPaths, PathProblem> {
    let source = parent.source.join(name)?;
    // In most transfers both ends have the same path and can share its bytes.
    let sink = if parent.source == parent.sink { source.clone() } else { parent.sink.join(name)? };
    Ok(CopiedDirectoryPaths { root_index: parent.root_index, source, sink })
}

fn prefix(path: &RelPath, bytes: usize) -> RelPath {
    RelPath::new(&path.as_bytes()[..bytes]).expect("cut where a component ends")
}
