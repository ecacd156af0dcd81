//! What is done to an image, as the log keeps it, and which sync makes it durable.

use std::sync::Arc;
use std::time::SystemTime;

use crate::image::{Image, Ino, Name, Node};
use rustix::fs::FileType;

/// One change of an image, or what is said of changes before it.
#[derive(Clone, Debug)]
pub enum Change {
    /// Names come and go, all at once; what already has one of the names loses it.
    Names {
        /// An inode that is made with its first name.
        made: Option<Box<(Ino, Node)>>,
        /// Names that go, with what they lead to.
        removes: Vec<(Ino, Name, Ino)>,
        /// Names that come.
        sets: Vec<(Ino, Name, Ino)>,
        /// When.
        time: SystemTime,
    },
    /// Bytes are written.
    Write {
        /// The file.
        ino: Ino,
        /// Where.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
        /// When.
        time: SystemTime,
    },
    /// A file gets another size.
    Resize {
        /// The file.
        ino: Ino,
        /// Its new size.
        bytes: u64,
        /// When.
        time: SystemTime,
    },
    /// A range becomes zeros.
    Zero {
        /// The file.
        ino: Ino,
        /// Where it begins.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// When.
        time: SystemTime,
    },
    /// Attributes are set.
    Attributes {
        /// Whose.
        ino: Ino,
        /// Which.
        set: Attributes,
    },
    /// A sync succeeded: what it covers is durable from now on.
    Synced {
        /// The file or directory.
        ino: Ino,
        /// `fdatasync`: a file's data and size, not its mode and times.
        data_only: bool,
    },
    /// A sync failed: what it would have covered may be lost, and no later sync helps, as in Linux.
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
    /// When it was read.
    pub atime: Option<SystemTime>,
    /// When it was changed.
    pub mtime: Option<SystemTime>,
    /// When this was asked for.
    pub time: Option<SystemTime>,
}

impl Attributes {
    /// Sets them.
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

/// What one sync makes durable.
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
    /// For people: what, and the path.
    pub label: String,
    /// What it does.
    pub change: Change,
    /// A sync of any of these makes it durable.
    pub covered: Vec<Covered>,
}

impl Entry {
    /// Of a change that is about to be applied.
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

/// Nobody can sync a link or a pipe: their attributes go with the directory's names.
fn attributes(image: &Image, ino: Ino) -> Covered {
    match image.node(ino) {
        Ok(node) if !matches!(node.kind(), FileType::RegularFile | FileType::Directory) => {
            Covered::Names(node.home.0)
        }
        _ => Covered::Attributes(ino),
    }
}
