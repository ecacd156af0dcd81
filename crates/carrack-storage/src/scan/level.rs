//! One directory that a thread has begun and not finished: how far its listing is, and which subdirectories wait.
//!
//! A level may be released: then it keeps neither a descriptor nor its path, and is opened again on the way back.
//! Belongs to one thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use carrack_model::{Directory, Extras, Metadata, PathProblem, RelPath};
use rustix::fs::{SeekFrom, seek, tell};

use super::lineage::Lineage;
use super::name_list::NameList;
use super::record::Sealing;
use crate::{Identity, Root};

pub(super) struct Level {
    place: Place,
    handle: Option<Arc<OwnedFd>>,
    identity: Identity,
    /// It and what it was entered through, where links are followed.
    pub lineage: Option<Arc<Lineage>>,
    /// Where the listing goes on; set when the handle is released.
    position: u64,
    /// Until the first section took it.
    pub metadata: Option<Metadata>,
    /// With it.
    pub extras: Option<Box<Extras>>,
    /// Whether the listing has ended.
    pub is_listed: bool,
    /// Subdirectories that were listed and are not yet walked.
    pub children: NameList,
    /// What of the listing is noted, if a record is kept, until it has ended.
    pub sealing: Option<Box<Sealing>>,
}

/// Where a level is. A path is as long as the level is deep, so keeping all of them would take quadratic memory.
enum Place {
    Known(Arc<Directory>),
    /// It is so many bytes of any path above it on the stack.
    Prefix {
        source_bytes: usize,
        sink_bytes: usize,
    },
}

impl Level {
    pub fn new(
        directory: Arc<Directory>,
        handle: OwnedFd,
        identity: Identity,
        metadata: Metadata,
        extras: Option<Box<Extras>>,
        lineage: Option<Arc<Lineage>>,
    ) -> Level {
        Level {
            place: Place::Known(directory),
            handle: Some(Arc::new(handle)),
            identity,
            lineage,
            position: 0,
            metadata: Some(metadata),
            extras,
            is_listed: false,
            children: NameList::default(),
            sealing: None,
        }
    }

    /// The device that it lies on.
    pub fn device(&self) -> u64 {
        self.identity.dev
    }

    /// Whether nothing of it is left to do.
    pub fn is_done(&self) -> bool {
        self.is_listed && self.children.is_empty()
    }

    /// Where it is; known for every level that is on top of the stack.
    pub fn directory(&self) -> &Arc<Directory> {
        match &self.place {
            Place::Known(directory) => directory,
            Place::Prefix { .. } => unreachable!("a released level was recovered when it came to the top"),
        }
    }

    /// Gives up the descriptor and the path.
    pub fn release(&mut self) {
        let Place::Known(directory) = &self.place else { return };
        let Some(handle) = &self.handle else { return };
        // A descriptor that can't tell its position is kept.
        let Ok(position) = tell(handle) else { return };
        self.position = position;
        self.handle = None;
        let source_bytes = directory.source.as_bytes().len();
        let sink_bytes = directory.sink.as_bytes().len();
        self.place = Place::Prefix { source_bytes, sink_bytes };
    }

    /// Finds the path of a released level again, from that of a directory in it.
    pub fn recover_place(&mut self, inner: &Directory) {
        if let Place::Prefix { source_bytes, sink_bytes } = self.place {
            self.place = Place::Known(Arc::new(Directory {
                root_index: inner.root_index,
                source: prefix(&inner.source, source_bytes),
                sink: prefix(&inner.sink, sink_bytes),
            }));
        }
    }

    /// Its descriptor, opened again beneath `root` if it was released.
    pub fn handle(&mut self, root: &Root) -> io::Result<Arc<OwnedFd>> {
        let handle = match self.handle.take() {
            Some(handle) => handle,
            None => Arc::new(self.open_again(root)?),
        };
        self.handle = Some(Arc::clone(&handle));
        Ok(handle)
    }

    fn open_again(&self, root: &Root) -> io::Result<OwnedFd> {
        let handle = root.open_directory(&self.directory().source)?;
        if Identity::of_open(&handle)? != self.identity {
            return Err(io::Error::other("it was replaced by another directory during the scan"));
        }
        if !self.is_listed {
            seek(&handle, SeekFrom::Start(self.position))?;
        }
        Ok(handle)
    }

    /// The first of the children.
    pub fn first_child(&self) -> Option<Result<Arc<Directory>, PathProblem>> {
        Some(child_of(self.directory(), self.children.first()?).map(Arc::new))
    }
}

fn child_of(parent: &Directory, name: &[u8]) -> Result<Directory, PathProblem> {
    let source = parent.source.join(name)?;
    // Mostly both ends have the same path and can share its bytes.
    let sink = if parent.source == parent.sink { source.clone() } else { parent.sink.join(name)? };
    Ok(Directory { root_index: parent.root_index, source, sink })
}

fn prefix(path: &RelPath, bytes: usize) -> RelPath {
    RelPath::new(&path.as_bytes()[..bytes]).expect("cut where a component ends")
}
