//! What there is to copy, and what is at the destination.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::server::{Item, ItemKind};

/// A source tree: small files, of which some can't be read by anybody, and large ones that are cut into
/// parts.
#[derive(Clone, Debug)]
pub struct Tree {
    pub files: u64,
    pub unreadable: BTreeSet<u64>,
    /// Parts of each.
    pub large: Vec<u64>,
    /// Entries that the destination has and the source has not, if these are to go.
    pub extraneous: u64,
    /// So many of them may go; if there are more none does.
    pub delete_most: u64,
}

impl Tree {
    /// The chunks of a scan: each attempt cuts otherwise.
    pub fn cut(&self, attempt: u32) -> Vec<Item> {
        let small = self.files.div_ceil(files_at_once(attempt));
        let mut kinds = vec![ItemKind::Files; small as usize];
        for (file, count) in self.large.iter().enumerate() {
            let (file, count) = (file as u64, *count);
            kinds.extend((0..count).map(|index| ItemKind::Part { file, index, count }));
        }
        (0..).zip(kinds).map(|(number, kind)| Item { kind, attempt, number }).collect()
    }

    /// Files of a chunk of small ones.
    pub fn files_of(&self, item: &Item) -> std::ops::Range<u64> {
        let count = files_at_once(item.attempt);
        let first = item.number * count;
        first..(first + count).min(self.files)
    }
}

fn files_at_once(attempt: u32) -> u64 {
    3 + u64::from(attempt % 3)
}

/// What is there of one transfer at the destination.
#[derive(Clone, Debug, Default)]
struct Copy {
    files: BTreeSet<u64>,
    parts: BTreeMap<u64, BTreeSet<u64>>,
    finished: BTreeSet<u64>,
    deleted: u64,
    is_closed: bool,
}

/// The destination's file system, which all its movers see but those that look elsewhere.
#[derive(Default)]
pub struct Destination {
    pub trees: BTreeMap<String, Tree>,
    copies: BTreeMap<String, Copy>,
    /// It has no room until then.
    pub full_until: Duration,
    /// What never may happen, and has.
    pub wrongs: Vec<String>,
}

impl Destination {
    /// A mover that sees the file system writes an item; returns entries that have failed.
    pub fn write(&mut self, transfer: &str, item: &Item) -> u64 {
        let tree = &self.trees[transfer];
        let copy = self.copies.entry(transfer.to_owned()).or_default();
        if copy.is_closed && item.kind != ItemKind::Close {
            self.wrongs.push(format!("{transfer}: {} was written after the close", item.name()));
        }
        match item.kind {
            ItemKind::Scan => {}
            ItemKind::Files => {
                copy.files.extend(tree.files_of(item).filter(|file| !tree.unreadable.contains(file)));
                return self.unreadable_of(transfer, item);
            }
            ItemKind::Part { file, index, .. } => {
                copy.parts.entry(file).or_default().insert(index);
            }
            ItemKind::Finish { file } => {
                let parts = copy.parts.get(&file).map_or(0, BTreeSet::len) as u64;
                if parts < tree.large[file as usize] {
                    self.wrongs.push(format!("{transfer}: file {file} was finished with {parts} parts"));
                }
                copy.finished.insert(file);
            }
            ItemKind::Discard { file } => drop(copy.parts.remove(&file)),
            // One by one.
            ItemKind::Delete => {}
            ItemKind::Close => copy.is_closed = true,
        }
        0
    }

    /// One more of what the source has not goes, if there are any; what is under way besides must be nothing.
    pub fn delete_one(&mut self, transfer: &str, under_way: Option<Item>, is_wanted: bool) -> bool {
        let unfinished = self.unfinished(transfer);
        let tree = &self.trees[transfer];
        let copy = self.copies.entry(transfer.to_owned()).or_default();
        if copy.deleted >= tree.extraneous {
            return false;
        }
        copy.deleted += 1;
        let wrong = match (under_way, unfinished) {
            (Some(item), _) => format!("something goes while {} is under way", item.name()),
            (None, Some(lacks)) => format!("something goes, and {lacks}"),
            (None, None) if copy.is_closed => "something goes after the close".to_owned(),
            (None, None) if !tree.unreadable.is_empty() => {
                "something goes, and something has failed".to_owned()
            }
            (None, None) if !is_wanted => {
                "something goes of what was cancelled or paused long ago".to_owned()
            }
            (None, None) if tree.extraneous > tree.delete_most => "more goes than may".to_owned(),
            (None, None) => return true,
        };
        self.wrongs.push(format!("{transfer}: {wrong}"));
        true
    }

    /// Whether more is to go than may.
    pub fn has_too_many(&self, transfer: &str) -> bool {
        let tree = &self.trees[transfer];
        let deleted = self.copies.get(transfer).map_or(0, |copy| copy.deleted);
        tree.extraneous - deleted > tree.delete_most
    }

    /// What is wrong with what was removed for a transfer that is done, of which so many entries have failed.
    pub fn deleted_wrongly(&self, transfer: &str, failed: u64) -> Option<String> {
        let tree = &self.trees[transfer];
        let deleted = self.copies.get(transfer).map_or(0, |copy| copy.deleted);
        let has_too_many = tree.extraneous > tree.delete_most;
        match () {
            () if (has_too_many || !tree.unreadable.is_empty()) && deleted > 0 => {
                Some(format!("{deleted} were deleted, and none might be"))
            }
            () if has_too_many && failed == 0 => Some("nobody was told that too much was to go".to_owned()),
            () if failed == 0 && deleted < tree.extraneous => {
                Some(format!("{deleted} of {} were deleted", tree.extraneous))
            }
            () => None,
        }
    }

    /// Files of an item that nobody can read.
    pub fn unreadable_of(&self, transfer: &str, item: &Item) -> u64 {
        let tree = &self.trees[transfer];
        tree.files_of(item).filter(|file| tree.unreadable.contains(file)).count() as u64
    }

    /// Whether all small files of an item that can be read are there.
    pub fn has(&self, transfer: &str, item: &Item) -> bool {
        let tree = &self.trees[transfer];
        let is_there = |file: u64| {
            tree.unreadable.contains(&file)
                || self.copies.get(transfer).is_some_and(|copy| copy.files.contains(&file))
        };
        item.kind != ItemKind::Files || tree.files_of(item).all(is_there)
    }

    /// What is missing of a transfer that is said to be done; nothing if it is complete.
    pub fn lacks(&self, transfer: &str) -> Option<String> {
        let is_closed = self.copies.get(transfer).is_some_and(|copy| copy.is_closed);
        self.unfinished(transfer).or_else(|| (!is_closed).then(|| "it was not closed".to_owned()))
    }

    /// What is missing of a transfer but for its end.
    fn unfinished(&self, transfer: &str) -> Option<String> {
        let tree = &self.trees[transfer];
        let copy = self.copies.get(transfer).cloned().unwrap_or_default();
        let missing: Vec<u64> = (0..tree.files)
            .filter(|file| !copy.files.contains(file) && !tree.unreadable.contains(file))
            .collect();
        let unfinished: Vec<u64> =
            (0..tree.large.len() as u64).filter(|file| !copy.finished.contains(file)).collect();
        let is_missing = !missing.is_empty() || !unfinished.is_empty();
        is_missing.then(|| format!("files {missing:?} and large files {unfinished:?} are not there"))
    }
}
