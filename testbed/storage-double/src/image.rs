//! A file system in memory: inodes, names, data. Pure; the live image and the image after a power cut are
//! both of this type.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::change::Change;
use crate::pages::Pages;

/// An inode's number.
pub type Ino = u64;
/// A name in a directory.
pub type Name = Vec<u8>;

/// The root directory's number.
pub const ROOT: Ino = 1;

/// The contents of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A regular file's bytes.
    File(Pages),
    /// A directory's names.
    Directory(BTreeMap<Name, Ino>),
    /// A symbolic link's target.
    Link(Vec<u8>),
    /// A pipe, socket or device, with its number.
    Special(u32),
}

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its contents.
    pub contents: Contents,
    /// Its type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Time of the last access, if it was set.
    pub atime: SystemTime,
    /// Time of the last change of its contents.
    pub mtime: SystemTime,
    /// Time of the last change of its contents or attributes.
    pub ctime: SystemTime,
    /// The number of its names.
    pub links: u32,
    /// The directory and the name that it got last, for people.
    pub home: (Ino, Name),
}

impl Node {
    /// Creates an inode without a name.
    pub fn new(contents: Contents, mode: u32, owner: (u32, u32), now: SystemTime) -> Node {
        let home = (ROOT, Name::new());
        let (uid, gid) = owner;
        Node { contents, mode, uid, gid, atime: now, mtime: now, ctime: now, links: 0, home }
    }

    /// Returns its kind.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    /// Returns its size, as `stat` has it.
    pub fn bytes(&self) -> u64 {
        match &self.contents {
            Contents::File(pages) => pages.bytes(),
            Contents::Link(target) => target.len() as u64,
            Contents::Directory(_) | Contents::Special(_) => 0,
        }
    }
}

/// A whole file system.
#[derive(Clone, Debug)]
pub struct Image {
    nodes: HashMap<Ino, Node>,
}

impl Image {
    /// Creates an image with an empty root directory.
    pub fn new(now: SystemTime) -> Image {
        let mode = FileType::Directory.as_raw_mode() | 0o755;
        let root = Node::new(Contents::Directory(BTreeMap::new()), mode, (0, 0), now);
        Image { nodes: HashMap::from([(ROOT, Node { links: 1, ..root })]) }
    }

    /// Returns an inode.
    pub fn node(&self, ino: Ino) -> Result<&Node, Errno> {
        self.nodes.get(&ino).ok_or(Errno::STALE)
    }

    /// Returns an inode, to be changed past the log.
    pub fn node_mut(&mut self, ino: Ino) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&ino).ok_or(Errno::STALE)
    }

    /// Returns a file's bytes.
    pub fn file(&self, ino: Ino) -> Result<&Pages, Errno> {
        match &self.node(ino)?.contents {
            Contents::File(pages) => Ok(pages),
            Contents::Directory(_) => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// Returns a directory's names.
    pub fn names(&self, directory: Ino) -> Result<&BTreeMap<Name, Ino>, Errno> {
        match &self.node(directory)?.contents {
            Contents::Directory(names) => Ok(names),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// Returns the inode of a name.
    pub fn lookup(&self, directory: Ino, name: &[u8]) -> Result<Ino, Errno> {
        self.names(directory)?.get(name).copied().ok_or(Errno::NOENT)
    }

    /// Returns the inode of a path from the root; links are not followed.
    pub fn resolve(&self, path: &str) -> Result<Ino, Errno> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        parts.try_fold(ROOT, |directory, part| self.lookup(directory, part.as_bytes()))
    }

    /// Returns a path that leads to the inode, or led to it last: for people, with odd bytes as `\xNN`.
    pub fn path(&self, ino: Ino) -> String {
        let mut parts = Vec::new();
        let mut at = ino;
        // The loop is bounded: no path is longer than PATH_MAX.
        while at != ROOT && parts.len() < 4096 {
            let Some(node) = self.nodes.get(&at) else { break };
            parts.push(node.home.1.escape_ascii().to_string());
            at = node.home.0;
        }
        parts.reverse();
        parts.join("/")
    }

    /// Returns the path of a name in a directory, which it need not have.
    pub fn path_in(&self, directory: Ino, name: &[u8]) -> String {
        let (directory, name) = (self.path(directory), name.escape_ascii().to_string());
        if directory.is_empty() { name } else { format!("{directory}/{name}") }
    }

    /// Returns the largest number in use.
    pub fn last_ino(&self) -> Ino {
        self.nodes.keys().copied().max().unwrap_or(ROOT)
    }

    /// Returns the number of inodes, and of pages that aren't holes.
    pub fn usage(&self) -> (u64, u64) {
        let pages = |node: &Node| if let Contents::File(pages) = &node.contents { pages.count() } else { 0 };
        (self.nodes.len() as u64, self.nodes.values().map(pages).sum())
    }

    /// Removes an inode that has no name.
    pub fn remove_nameless(&mut self, ino: Ino) {
        if self.nodes.get(&ino).is_some_and(|node| node.links == 0) {
            self.nodes.remove(&ino);
        }
    }

    /// Removes all inodes that have no name, as mounting does after a power cut.
    pub fn remove_all_nameless(&mut self) {
        self.nodes.retain(|_, node| node.links > 0);
    }

    /// Applies a change in full.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Names { made, removes, sets, time } => {
                self.make(made.as_deref());
                for (directory, name, ino) in removes {
                    self.unname(*directory, name, *ino);
                    self.touch(*directory, *time);
                }
                for (directory, name, ino) in sets {
                    self.name(*directory, name, *ino);
                    self.touch(*directory, *time);
                }
            }
            Change::Write { ino, offset, data, time } => {
                self.with_file(*ino, *time, |file| file.write(*offset, data));
            }
            Change::Resize { ino, bytes, time } => self.with_file(*ino, *time, |file| file.resize(*bytes)),
            Change::Zero { ino, offset, bytes, time } => {
                self.with_file(*ino, *time, |file| file.zero(*offset, *bytes));
            }
            Change::Attributes { ino, set } => {
                if let Some(node) = self.nodes.get_mut(ino) {
                    set.apply(node);
                }
            }
            Change::Synced { .. } | Change::SyncFailed { .. } => {}
        }
    }

    /// Adds an inode that has no name yet.
    pub fn make(&mut self, made: Option<&(Ino, Node)>) {
        if let Some((ino, node)) = made {
            self.nodes.insert(*ino, node.clone());
        }
    }

    /// Changes a file's bytes, which sets its times.
    pub fn with_file(&mut self, ino: Ino, time: SystemTime, change: impl FnOnce(&mut Pages)) {
        if let Some(node) = self.nodes.get_mut(&ino)
            && let Contents::File(file) = &mut node.contents
        {
            change(file);
            (node.mtime, node.ctime) = (time, time);
        }
    }

    fn touch(&mut self, directory: Ino, time: SystemTime) {
        if let Some(node) = self.nodes.get_mut(&directory) {
            (node.mtime, node.ctime) = (time, time);
        }
    }

    /// Sets a name, and replaces an existing entry.
    fn name(&mut self, directory: Ino, name: &Name, ino: Ino) {
        let Some(Node { contents: Contents::Directory(names), .. }) = self.nodes.get_mut(&directory) else {
            return;
        };
        let replaced = names.insert(name.clone(), ino);
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.links += 1;
            node.home = (directory, name.clone());
        }
        self.unlink(replaced);
    }

    /// Removes a name if it still leads to the inode, which it may not if the disk missed changes.
    fn unname(&mut self, directory: Ino, name: &Name, ino: Ino) {
        let Some(Node { contents: Contents::Directory(names), .. }) = self.nodes.get_mut(&directory) else {
            return;
        };
        if names.get(name) == Some(&ino) {
            names.remove(name);
            self.unlink(Some(ino));
        }
    }

    fn unlink(&mut self, ino: Option<Ino>) {
        if let Some(node) = ino.and_then(|ino| self.nodes.get_mut(&ino)) {
            node.links = node.links.saturating_sub(1);
        }
    }
}
