//! Sets of CPUs and of NUMA nodes, in the kernel's notation: `0-5,12` (the list format of cpuset(7)).

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Largest number in a set: above the limit of every kernel, and small enough that a typing error in a range
/// costs no memory.
const ID_MAX: u32 = 65_535;

/// Marks a set of logical CPUs by the kernel's numbers (hwloc: PUs, by OS index).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuIdTypeMarker;

/// Marks a set of NUMA nodes by the kernel's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumaIdMarker;

/// Logical CPUs.
pub type CpuSet = IdSet<CpuIdTypeMarker>;

/// NUMA nodes.
pub type NodeSet = IdSet<NumaIdMarker>;

/// A set of numbers of one kind.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdSet<K> {
    ids: BTreeSet<u32>,
    kind: PhantomData<K>,
}

impl<K> Serialize for IdSet<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.ids.serialize(serializer)
    }
}

/// The text is no list of numbers and ranges.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a list such as 0-5,12")]
pub struct BadIdList(String);

impl<K> IdSet<K> {
    /// An empty set.
    pub fn new() -> IdSet<K> {
        IdSet { ids: BTreeSet::new(), kind: PhantomData }
    }

    /// Returns true if `id` is in the set.
    pub fn contains(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// Adds `id`.
    pub fn insert(&mut self, id: u32) {
        self.ids.insert(id);
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ids.iter().copied()
    }

    /// The smallest number.
    pub fn first(&self) -> Option<u32> {
        self.ids.first().copied()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true for an empty set.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The numbers in both sets.
    pub fn intersection(&self, other: &IdSet<K>) -> IdSet<K> {
        self.ids.intersection(&other.ids).copied().collect()
    }

    /// The numbers in either set.
    pub fn union(&self, other: &IdSet<K>) -> IdSet<K> {
        self.ids.union(&other.ids).copied().collect()
    }

    /// The numbers that are not in `other`.
    pub fn difference(&self, other: &IdSet<K>) -> IdSet<K> {
        self.ids.difference(&other.ids).copied().collect()
    }

    /// Returns true if all numbers are in `other`.
    pub fn is_subset(&self, other: &IdSet<K>) -> bool {
        self.ids.is_subset(&other.ids)
    }
}

impl<K> FromIterator<u32> for IdSet<K> {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> IdSet<K> {
        IdSet { ids: ids.into_iter().collect(), kind: PhantomData }
    }
}

impl<K> Extend<u32> for IdSet<K> {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, ids: I) {
        self.ids.extend(ids);
    }
}

impl<K> fmt::Display for IdSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.ids.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = ids.next() {
            let mut last = first;
            while let Some(next) = ids.next_if(|&next| next == last + 1) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl<K> fmt::Debug for IdSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl<K> FromStr for IdSet<K> {
    type Err = BadIdList;

    /// Parses the kernel's list format; surrounding blanks and an empty list are allowed.
    fn from_str(text: &str) -> Result<IdSet<K>, BadIdList> {
        IdSet::parse(text).ok_or_else(|| BadIdList(text.trim().to_string()))
    }
}

impl<K> IdSet<K> {
    fn parse(text: &str) -> Option<IdSet<K>> {
        let mut set = IdSet::new();
        for part in text.trim().split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.parse().ok()?;
            let last: u32 = last.parse().ok()?;
            if first > last || last > ID_MAX {
                return None;
            }
            set.extend(first..=last);
        }
        Some(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for (text, written, count) in [("0-5,12\n", "0-5,12", 7), ("", "", 0), ("3,1,2,9", "1-3,9", 4)] {
            let set: CpuSet = text.parse().unwrap();
            assert_eq!((set.to_string().as_str(), set.len()), (written, count), "{text:?}");
        }
        for bad in ["5-3", "a", "1-", "0-99999999", "-1"] {
            assert!(bad.parse::<NodeSet>().is_err(), "{bad:?}");
        }
    }
}
