//! The memory of a pool (M4): one mapping, bound to nodes, on huge pages, locked, as far as the machine
//! allows.
//!
//! Each property has fallbacks, and a note reports every fallback taken:
//!
//! * nodes: bound, then preferred, then the node of the first touch;
//! * pages: explicit huge pages, if the nodes have enough free ones; then transparent huge pages, by advice;
//!   then plain ones;
//! * locking: of pages as they are touched; then none.

use std::fmt;
use std::io;

use rustix::mm::{self, MapFlags, MlockFlags, ProtFlags};

use crate::binding::{self, MemoryPolicy};
use crate::id_set::NodeSet;
use crate::node_memory::NodeMemoryFiles;
use crate::{Resource, resource_limit};

/// Bytes at the start of a region on plain pages: a session with a few small files touches some kilobytes of
/// its first slot, for which the kernel would have to clear two megabytes.
const PLAIN_BYTES: usize = 2 << 20;

/// Bytes of an explicit huge page, a size of every x86-64 and arm64 kernel with 4 KiB pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes moved to another node in one call: it delays page faults of other threads by at most a few tens of
/// milliseconds.
const MOVE_BYTES: usize = 32 << 20;

/// The properties of a pool's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolBacking {
    /// Bytes of the mapping.
    pub bytes: usize,
    /// The wanted nodes; empty for any.
    pub nodes: NodeSet,
    /// Binding to these nodes.
    pub bound: MemoryBinding,
    /// The kind of pages.
    pub pages: MemoryPageKind,
    /// True if the memory is locked (mlock).
    pub locked: bool,
    /// Reasons for the fallbacks, for people.
    pub notes: Vec<String>,
}

/// Binding of memory to its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBinding {
    /// Strict (`MPOL_BIND`).
    Bound,
    /// Preferred while there is room (`MPOL_PREFERRED_MANY`, `MPOL_PREFERRED`).
    Preferred,
    /// On the node of the first touch, as the kernel refused both.
    FirstTouch,
    /// No binding was requested.
    Unbound,
}

/// Kinds of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPageKind {
    /// Explicit huge pages, all of them populated.
    Huge,
    /// Plain pages with advice to use transparent huge pages, which the kernel follows if it can.
    Advised,
    /// Plain pages.
    Plain,
}

impl fmt::Display for PoolBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = &self.nodes;
        match self.bound {
            MemoryBinding::Bound => write!(f, "bound to node {nodes}")?,
            MemoryBinding::Preferred => write!(f, "on node {nodes} while there is room")?,
            MemoryBinding::FirstTouch => write!(f, "where it is touched first")?,
            MemoryBinding::Unbound => write!(f, "bound to no node")?,
        }
        f.write_str(match self.pages {
            MemoryPageKind::Huge => ", explicit huge pages",
            MemoryPageKind::Advised => ", huge pages advised",
            MemoryPageKind::Plain => ", plain pages",
        })?;
        f.write_str(if self.locked { ", locked" } else { ", not locked" })
    }
}

/// A private anonymous mapping.
pub(crate) struct MappedRegion {
    base: *mut u8,
    len: usize,
}

// SAFETY: the region is plain memory that stays mapped until `MappedRegion` is dropped; its owner controls
// the access to its parts.
#[allow(unsafe_code)]
unsafe impl Send for MappedRegion {}
// SAFETY: see `Send`; a shared `MappedRegion` gives out no references.
#[allow(unsafe_code)]
unsafe impl Sync for MappedRegion {}

impl MappedRegion {
    /// Maps `len` bytes (a multiple of the page size) for the threads of these nodes. Without nodes there is
    /// no binding and no extra cost.
    pub(crate) fn map_on_nodes(nodes: &NodeSet, len: usize) -> io::Result<(MappedRegion, PoolBacking)> {
        let mut notes = Vec::new();
        if !nodes.is_empty() {
            match MappedRegion::map_explicit_huge_pages(nodes, len) {
                Ok(found) => return Ok(found),
                Err(why) => notes.push(format!("no explicit huge pages: {why}")),
            }
        }
        let region = MappedRegion::map(len, MapFlags::NORESERVE)?;
        let bound = region.bind(nodes, false, &mut notes);
        let pages = if region.advise_huge_pages() { MemoryPageKind::Advised } else { MemoryPageKind::Plain };
        let locked = region.lock();
        if !locked {
            notes.push(lock_failure_text(len, resource_limit(Resource::RLIMIT_MEMLOCK)));
        }
        let backing = PoolBacking { bytes: len, nodes: nodes.clone(), bound, pages, locked, notes };
        Ok((region, backing))
    }

    /// Start address.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// The node of each page, as in [`binding::node_of_pages`].
    pub(crate) fn node_of_pages(&self) -> io::Result<Vec<Option<u32>>> {
        binding::query_page_nodes(self.base, self.len)
    }

    /// Moves the memory to other nodes during its use. Pages with device I/O in progress don't move.
    pub(crate) fn rebind(&self, nodes: &NodeSet, backing: &mut PoolBacking) {
        backing.bound = self.bind(nodes, true, &mut backing.notes);
        backing.nodes = nodes.clone();
    }

    #[allow(unsafe_code)]
    fn map(len: usize, flags: MapFlags) -> io::Result<MappedRegion> {
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches no existing
        // memory.
        let base = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | flags,
            )?
        };
        Ok(MappedRegion { base: base.cast(), len })
    }

    /// Maps explicit huge pages. All are populated at once: a page missing later would end the process
    /// (SIGBUS). Reserved pages cost other programs nothing.
    fn map_explicit_huge_pages(nodes: &NodeSet, len: usize) -> Result<(MappedRegion, PoolBacking), String> {
        let wanted = len.div_ceil(HUGE_PAGE_BYTES);
        let free = NodeMemoryFiles::of_this_machine().free_huge_pages(nodes);
        if free < wanted {
            return Err(format!("{wanted} of 2 MiB wanted, {free} free on node {nodes}"));
        }
        let len = wanted * HUGE_PAGE_BYTES;
        let region =
            MappedRegion::map(len, MapFlags::HUGETLB | MapFlags::HUGE_2MB).map_err(|e| e.to_string())?;
        region.apply(MemoryPolicy::Bind, nodes, false).map_err(|e| e.to_string())?;
        region.populate().map_err(|e| e.to_string())?;
        // Explicit huge pages are never swapped out, locked or not.
        let (bound, pages, locked) = (MemoryBinding::Bound, MemoryPageKind::Huge, true);
        let backing =
            PoolBacking { bytes: len, nodes: nodes.clone(), bound, pages, locked, notes: Vec::new() };
        Ok((region, backing))
    }

    fn bind(&self, nodes: &NodeSet, moves: bool, notes: &mut Vec<String>) -> MemoryBinding {
        if nodes.is_empty() {
            if moves {
                let _ = self.apply(MemoryPolicy::Default, nodes, false);
            }
            return MemoryBinding::Unbound;
        }
        let Err(why) = self.bind_strictly(nodes, moves) else { return MemoryBinding::Bound };
        let note = format!("memory is not bound to node {nodes}: {why}");
        if !notes.contains(&note) {
            notes.push(note);
        }
        let preferred = self
            .apply(MemoryPolicy::PreferMany, nodes, moves)
            .or_else(|_| self.apply(MemoryPolicy::Prefer, nodes, moves));
        match preferred {
            Ok(()) => MemoryBinding::Preferred,
            Err(_) => MemoryBinding::FirstTouch,
        }
    }

    /// Binds strictly, if the nodes have enough memory: the kernel kills a process bound to nodes without
    /// free memory, even if other nodes have some.
    fn bind_strictly(&self, nodes: &NodeSet, moves: bool) -> Result<(), String> {
        match NodeMemoryFiles::of_this_machine().available_bytes(nodes) {
            Some(available) if available < self.len as u64 => {
                Err(format!("{} MiB wanted, {} MiB available", self.len.div_ceil(1 << 20), available >> 20))
            }
            _ => self.apply(MemoryPolicy::Bind, nodes, moves).map_err(|error| error.to_string()),
        }
    }

    fn apply(&self, policy: MemoryPolicy, nodes: &NodeSet, moves: bool) -> io::Result<()> {
        let piece_bytes = if moves { MOVE_BYTES } else { self.len };
        for at in (0..self.len).step_by(piece_bytes) {
            let len = piece_bytes.min(self.len - at);
            binding::bind_memory(self.base.wrapping_add(at), len, policy, nodes, moves)?;
        }
        Ok(())
    }

    /// Advises huge pages: 512 times fewer page faults and TLB entries. The first [`PLAIN_BYTES`] keep plain
    /// pages.
    #[allow(unsafe_code)]
    fn advise_huge_pages(&self) -> bool {
        let Some(rest) = self.len.checked_sub(PLAIN_BYTES).filter(|rest| *rest > 0) else { return false };
        // SAFETY: the range lies within this mapping; the advice does not change its contents.
        unsafe { mm::madvise(self.base.wrapping_add(PLAIN_BYTES).cast(), rest, mm::Advice::LinuxHugepage) }
            .is_ok()
    }

    /// Populates all pages; fails if there are too few.
    #[allow(unsafe_code)]
    fn populate(&self) -> io::Result<()> {
        // SAFETY: the range is exactly this mapping; existing pages keep their contents.
        Ok(unsafe { mm::madvise(self.base.cast(), self.len, mm::Advice::LinuxPopulateWrite) }?)
    }

    #[allow(unsafe_code)]
    fn lock(&self) -> bool {
        // SAFETY: the range is exactly this mapping.
        unsafe { mm::mlock_with(self.base.cast(), self.len, MlockFlags::ONFAULT) }.is_ok()
    }
}

impl Drop for MappedRegion {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: unmapped once, by the owner, and no reference outlives it.
        let _ = unsafe { mm::munmap(self.base.cast(), self.len) };
    }
}

fn lock_failure_text(len: usize, limit: Option<u64>) -> String {
    let mib = len.div_ceil(1 << 20);
    match limit {
        Some(limit) if limit < len as u64 => format!(
            "memory is not locked: {} MiB wanted, the limit (RLIMIT_MEMLOCK) is {} KiB; raise it with a memlock line in \
             /etc/security/limits.conf, LimitMEMLOCK= of a systemd unit, or `ulimit -l` as root",
            mib,
            limit >> 10
        ),
        _ => format!(
            "memory is not locked: the kernel refused {mib} MiB; what this user has locked elsewhere counts too"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_explained() {
        let text = lock_failure_text(256 << 20, Some(8 << 20));
        assert!(
            text.contains("256 MiB wanted") && text.contains("8192 KiB") && text.contains("limits.conf"),
            "{text}"
        );
        assert!(lock_failure_text(4096, None).contains("refused"));
    }

    #[test]
    fn memory_that_wishes_nothing_has_nothing_to_explain_about_nodes() {
        let (region, backing) = MappedRegion::map_on_nodes(&NodeSet::new(), 8192).unwrap();
        assert_eq!((backing.bound, backing.bytes), (MemoryBinding::Unbound, 8192));
        assert!(!backing.notes.iter().any(|note| note.contains("node")), "{:?}", backing.notes);
        assert_eq!(region.node_of_pages().unwrap(), [None, None], "nothing is touched");
    }

    #[test]
    fn nobody_is_bound_to_a_node_that_has_too_little() {
        let len = 1 << 46;
        let Ok((_region, backing)) = MappedRegion::map_on_nodes(&NodeSet::from_iter([0]), len) else {
            return;
        };
        assert_ne!(backing.bound, MemoryBinding::Bound);
        assert!(backing.notes.iter().any(|note| note.contains("MiB available")), "{:?}", backing.notes);
    }

    #[test]
    fn a_node_that_does_not_exist_is_refused_step_by_step() {
        let (_region, backing) = MappedRegion::map_on_nodes(&NodeSet::from_iter([900]), 8192).unwrap();
        assert_eq!(backing.bound, MemoryBinding::FirstTouch);
        assert!(
            backing.notes.iter().any(|note| note.contains("is not bound to node 900")),
            "{:?}",
            backing.notes
        );
    }
}
