//! The contents that the destination may have: those before the transfer and those of the source.

use std::collections::BTreeMap;

use crate::image::Contents;
use crate::volumes::NodeRef;

/// An entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEntry {
    /// A file with its bytes and its time in seconds.
    File(Vec<u8>, u64),
    /// A directory.
    Directory,
    /// A symbolic link.
    Link(Vec<u8>),
}

impl TreeEntry {
    /// Returns true if these are its contents.
    pub fn is(&self, contents: &Contents) -> bool {
        match (self, contents) {
            (TreeEntry::File(bytes, _), Contents::File(pages)) => {
                pages.bytes() == bytes.len() as u64 && pages.read(0, bytes.len()) == *bytes
            }
            (TreeEntry::Directory, Contents::Directory(_)) => true,
            (TreeEntry::Link(target), Contents::Link(found)) => target == found,
            _ => false,
        }
    }
}

/// The contents before and after a transfer, by their paths at the sink.
#[derive(Clone, Debug, Default)]
pub struct ExpectedTree {
    /// The contents of the source.
    pub new: BTreeMap<Vec<u8>, TreeEntry>,
    /// The contents of the destination before.
    pub old: BTreeMap<Vec<u8>, TreeEntry>,
    /// Files that got a name of a copy.
    pub finals: BTreeMap<NodeRef, Vec<u8>>,
    /// Every change of a name is checked.
    pub watches: bool,
}

impl ExpectedTree {
    /// A regular file is to have this path.
    pub fn is_file(&self, path: &[u8]) -> bool {
        matches!(self.new.get(path), Some(TreeEntry::File(..)))
    }

    /// In which bytes the contents differ from the new ones, in words.
    pub fn difference_from_new(&self, path: &[u8], contents: &Contents) -> String {
        let (Some(TreeEntry::File(bytes, _)), Contents::File(pages)) = (self.new.get(path), contents) else {
            return "it is no file".to_owned();
        };
        let found = pages.read(0, pages.bytes() as usize);
        let differs: Vec<usize> =
            (0..bytes.len().min(found.len())).filter(|&at| bytes[at] != found[at]).collect();
        let zeros = differs.iter().filter(|&&at| found[at] == 0).count();
        format!(
            "{} of {} bytes; {} differ, {zeros} of them zeros, from {:?} to {:?}",
            found.len(),
            bytes.len(),
            differs.len(),
            differs.first(),
            differs.last()
        )
    }

    /// The contents are the old or the new ones.
    pub fn is_old_or_new(&self, path: &[u8], contents: &Contents) -> bool {
        [&self.new, &self.old].into_iter().any(|tree| tree.get(path).is_some_and(|entry| entry.is(contents)))
    }
}
