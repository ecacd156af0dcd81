//! Changes of an image, as the log keeps them, and the sync that makes each durable.

use std::sync::Arc;
use std::time::SystemTime;

use crate::image::{Image, Ino, Name, Node};
use rustix::fs::FileType;

/// One change of an image, or the outcome of a sync of earlier changes.
#[derive(Clone, Debug)]
pub enum Change {
    /// Names are removed and set, atomically; an existing entry of such a name is replaced.
    Names {
        /// An inode that is made with its first name.
        made: Option<Box<(Ino, Node)>>,
        /// Names that are removed, with their inodes.
        removes: Vec<(Ino, Name, Ino)>,
        /// Names that are set.
        sets: Vec<(Ino, Name, Ino)>,
        /// Time of the change.
        time: SystemTime,
    },
    /// Bytes are written.
    Write {
        /// The file.
        ino: Ino,
        /// Offset in the file.
        offset: u64,
        /// The bytes.
        data: Arc<[u8]>,
        /// Time of the change.
        time: SystemTime,
    },
    /// A file gets another size.
    Resize {
        /// The file.
        ino: Ino,
        /// Its new size.
        bytes: u64,
        /// Time of the change.
        time: SystemTime,
    },
    /// A range becomes zeros.
    Zero {
        /// The file.
        ino: Ino,
        /// Its start.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Time of the change.
        time: SystemTime,
    },
    /// Attributes are set.
    Attributes {
        /// The inode.
        ino: Ino,
        /// The new values.
        set: Attributes,
    },
    /// A sync succeeded: the changes that it covers are durable from now on.
    Synced {
        /// The file or directory.
        ino: Ino,
        /// `fdatasync`: a file's data and size, not its mode and times.
        data_only: bool,
    },
    /// A sync failed: the changes that it would have covered may be lost, and no later sync helps, as in
    /// Linux.
    SyncFailed {
        /// The file or directory.
        ino: Ino,
    },
}

/// Attributes that are set; the others stay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Time of the last access.
    pub atime: Option<SystemTime>,
    /// Time of the last modification.
    pub mtime: Option<SystemTime>,
    /// Time of the request.
    pub time: Option<SystemTime>,
}

impl Attributes {
    /// Sets the attributes of an inode.
    pub fn apply(&self, node: &mut Node) {
        let kind = node.kind().as_raw_mode();
        node.mode = self.mode.map_or(node.mode, |mode| kind | (mode & 0o7777));
        node.uid = self.uid.unwrap_or(node.uid);
        node.gid = self.gid.unwrap_or(node.gid);
        node.atime = self.atime.unwrap_or(node.atime);
        node.mtime = self.mtime.unwrap_or(node.mtime);
        node.ctime = self.time.unwrap_or(node.ctime);
    }
}

/// The part of an inode that a single sync makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Covered {
    /// A file's data and size.
    Data(Ino),
    /// An inode's mode, owner and times.
    Attributes(Ino),
    /// A directory's names.
    Names(Ino),
}

/// One operation of the log.
#[derive(Clone, Debug)]
pub struct Entry {
    /// For people: the operation, and the path.
    pub label: String,
    /// The change.
    pub change: Change,
    /// A sync of any of these makes it durable.
    pub covered: Vec<Covered>,
}

impl Entry {
    /// Creates the entry of a change that is about to be applied.
    pub fn new(image: &Image, label: String, change: Change) -> Entry {
        Entry { label, covered: covered(image, &change), change }
    }
}

fn covered(image: &Image, change: &Change) -> Vec<Covered> {
    match change {
        Change::Names { removes, sets, .. } => {
            let mut all: Vec<Ino> = removes.iter().chain(sets).map(|(directory, ..)| *directory).collect();
            all.dedup();
            all.into_iter().map(Covered::Names).collect()
        }
        Change::Write { ino, .. } | Change::Resize { ino, .. } | Change::Zero { ino, .. } => {
            vec![Covered::Data(*ino)]
        }
        Change::Attributes { ino, .. } => vec![attributes(image, *ino)],
        Change::Synced { .. } | Change::SyncFailed { .. } => vec![],
    }
}

/// A link or a pipe can't be synced: their attributes become durable with the directory's names.
fn attributes(image: &Image, ino: Ino) -> Covered {
    match image.node(ino) {
        Ok(node) if !matches!(node.kind(), FileType::RegularFile | FileType::Directory) => {
            Covered::Names(node.home.0)
        }
        _ => Covered::Attributes(ino),
    }
}
