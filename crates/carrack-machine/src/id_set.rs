//! Sets of CPUs and of NUMA nodes, written as the kernel writes them: `0-5,12` (the list format of cpuset(7)).

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// The greatest number that a set takes: more than any kernel is built for, and small enough that a typing error in a
/// range costs no memory.
const ID_MAX: u32 = 65_535;

/// Says that a set's numbers are the kernel's numbers of logical CPUs (hwloc: PUs, by OS index).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus;

/// Says that a set's numbers are the kernel's numbers of NUMA nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nodes;

/// Logical CPUs.
pub type CpuSet = IdSet<Cpus>;

/// NUMA nodes.
pub type NodeSet = IdSet<Nodes>;

/// A set of the kernel's numbers of one kind.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdSet<K> {
    ids: BTreeSet<u32>,
    kind: PhantomData<K>,
}

/// A text that is no list of numbers and ranges.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a list such as 0-5,12")]
pub struct BadList(String);

impl<K> IdSet<K> {
    /// No numbers.
    pub fn new() -> IdSet<K> {
        IdSet { ids: BTreeSet::new(), kind: PhantomData }
    }

    /// Whether `id` is in it.
    pub fn contains(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// Adds `id`.
    pub fn insert(&mut self, id: u32) {
        self.ids.insert(id);
    }

    /// The numbers, rising.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ids.iter().copied()
    }

    /// The least number.
    pub fn first(&self) -> Option<u32> {
        self.ids.first().copied()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Those in both.
    pub fn intersection(&self, other: &IdSet<K>) -> IdSet<K> {
        self.ids.intersection(&other.ids).copied().collect()
    }

    /// Those in either.
    pub fn union(&self, other: &IdSet<K>) -> IdSet<K> {
        self.ids.union(&other.ids).copied().collect()
    }

    /// Those that are not in `other`.
    pub fn difference(&self, other: &IdSet<K>) -> IdSet<K> {
        self.ids.difference(&other.ids).copied().collect()
    }

    /// Whether all are in `other`.
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
    type Err = BadList;

    /// Reads the kernel's list format; blanks around it and an empty list are allowed.
    fn from_str(text: &str) -> Result<IdSet<K>, BadList> {
        let bad = || BadList(text.trim().to_string());
        let mut set = IdSet::new();
        for part in text.trim().split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.parse().map_err(|_| bad())?;
            let last: u32 = last.parse().map_err(|_| bad())?;
            if first > last || last > ID_MAX {
                return Err(bad());
            }
            set.extend(first..=last);
        }
        Ok(set)
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
