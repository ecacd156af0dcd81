//! System calls that bind threads to CPUs and memory to nodes, and that report both (M4, N1).
//!
//! Raw calls with masks as long as the sets require, so that neither libnuma nor the fixed size of glibc's
//! `cpu_set_t` (1,024 CPUs) is a limit. Decides nothing: [`crate::EndThreadBindings`] and [`crate::SlotPool`]
//! choose the places.

use std::io;

use crate::id_set::{CpuSet, IdSet, NodeSet};

const WORD_BITS: usize = u64::BITS as usize;

/// Distance of the queried addresses; on kernels with larger pages a page is queried several times.
const PAGE_BYTES: usize = 4096;

/// Pages of one query: bounds the memory for the answer.
const PAGES_PER_CALL: usize = 4096;

/// The longest CPU mask: 64 Ki CPUs.
const CPU_MASK_WORDS: usize = 1024;

/// `MPOL_PREFERRED_MANY` and `MPOL_MF_MOVE` of linux/mempolicy.h, missing in the libc crate.
const MPOL_PREFERRED_MANY: libc::c_int = 5;
const MPOL_MF_MOVE: libc::c_uint = 1 << 1;

/// Memory policy (mbind(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryPolicy {
    /// The kernel's choice.
    Default,
    /// On these nodes only.
    Bind,
    /// On these nodes while they have memory (Linux 5.15).
    PreferMany,
    /// On the first of these nodes while it has memory.
    Prefer,
}

/// Thread ID of the caller.
pub(crate) fn this_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Confines a thread to `cpus`.
#[allow(unsafe_code)]
pub(crate) fn set_thread_affinity(tid: i32, cpus: &CpuSet) -> io::Result<()> {
    let mask = mask_of(cpus);
    // SAFETY: the kernel reads as many bytes as `mask` has, during the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, size_of_val(&mask[..]), mask.as_ptr()) };
    checked(answer).map(|_| ())
}

/// The CPUs that a thread may run on.
#[allow(unsafe_code)]
pub(crate) fn cpus_of(tid: i32) -> io::Result<CpuSet> {
    let mut mask = [0_u64; CPU_MASK_WORDS];
    // SAFETY: the kernel writes at most as many bytes as `mask` has, during the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&mask), mask.as_mut_ptr()) };
    checked(answer)?;
    Ok(set_of(&mask))
}

/// Sets the policy for the pages of a mapping; with `moves` the kernel also migrates existing pages, as far
/// as it can. Contents and addresses don't change, so that a wrong range is an error and never unsafe.
#[allow(unsafe_code)]
pub(crate) fn bind_memory(
    base: *mut u8,
    len: usize,
    policy: MemoryPolicy,
    nodes: &NodeSet,
    moves: bool,
) -> io::Result<()> {
    let (mode, mask) = match policy {
        MemoryPolicy::Default => (libc::MPOL_DEFAULT, Vec::new()),
        MemoryPolicy::Bind => (libc::MPOL_BIND, mask_of(nodes)),
        MemoryPolicy::PreferMany => (MPOL_PREFERRED_MANY, mask_of(nodes)),
        MemoryPolicy::Prefer => (libc::MPOL_PREFERRED, mask_of(&nodes.iter().take(1).collect::<NodeSet>())),
    };
    // The kernel uses one bit fewer than `maxnode` (mbind(2), bugs).
    let bits = if mask.is_empty() { 0 } else { mask.len() * WORD_BITS + 1 };
    let flags = if moves { MPOL_MF_MOVE } else { 0 };
    // SAFETY: mbind changes neither contents nor addresses; the kernel reads the bits of `mask`, or no mask.
    let answer = unsafe {
        libc::syscall(libc::SYS_mbind, base, len, mode as libc::c_ulong, mask.as_ptr(), bits, flags)
    };
    checked(answer).map(|_| ())
}

/// The node of each page of `bytes` (move_pages(2)), one for every 4,096 bytes; `None` for untouched pages.
pub fn node_of_pages(bytes: &[u8]) -> io::Result<Vec<Option<u32>>> {
    query_page_nodes(bytes.as_ptr(), bytes.len())
}

/// Same as [`node_of_pages`] for memory that other threads may write to: reads none of its bytes.
#[allow(unsafe_code)]
pub(crate) fn query_page_nodes(base: *const u8, len: usize) -> io::Result<Vec<Option<u32>>> {
    let pages: Vec<*const u8> = (0..len).step_by(PAGE_BYTES).map(|at| base.wrapping_add(at)).collect();
    let mut nodes = Vec::with_capacity(pages.len());
    for pages in pages.chunks(PAGES_PER_CALL) {
        let mut status = vec![0_i32; pages.len()];
        let nowhere = std::ptr::null::<i32>();
        // SAFETY: without target nodes the call only queries; it reads `pages` and writes `status`, which
        // have the same length, and answers for unmapped addresses with an error in their element.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                pages.len(),
                pages.as_ptr(),
                nowhere,
                status.as_mut_ptr(),
                0,
            )
        };
        checked(answer)?;
        nodes.extend(status.into_iter().map(|node| u32::try_from(node).ok()));
    }
    Ok(nodes)
}

fn checked(answer: libc::c_long) -> io::Result<libc::c_long> {
    match answer {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(answer),
    }
}

fn mask_of<K>(ids: &IdSet<K>) -> Vec<u64> {
    let mut mask = Vec::new();
    for id in ids.iter().map(|id| id as usize) {
        mask.resize(mask.len().max(id / WORD_BITS + 1), 0);
        mask[id / WORD_BITS] |= 1 << (id % WORD_BITS);
    }
    mask
}

fn set_of<K>(mask: &[u64]) -> IdSet<K> {
    (0..mask.len() * WORD_BITS)
        .filter(|id| mask[id / WORD_BITS] & (1 << (id % WORD_BITS)) != 0)
        .map(|id| id as u32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_mask_says_what_the_set_says(ids in proptest::collection::btree_set(0_u32..5_000, 0..40)) {
            let set: CpuSet = ids.into_iter().collect();
            prop_assert_eq!(set_of(&mask_of(&set)), set);
        }
    }

    #[test]
    fn a_thread_runs_only_where_it_may() {
        let allowed = cpus_of(this_thread()).unwrap();
        let last: CpuSet = allowed.iter().last().into_iter().collect();
        std::thread::spawn(move || {
            set_thread_affinity(this_thread(), &last).unwrap();
            assert_eq!(cpus_of(this_thread()).unwrap(), last);
            assert_eq!(rustix::thread::sched_getcpu() as u32, last.first().unwrap());
        })
        .join()
        .unwrap();
        assert_eq!(cpus_of(this_thread()).unwrap(), allowed, "another thread's confinement is its own");
    }

    #[test]
    fn impossible_places_are_refused() {
        assert!(set_thread_affinity(this_thread(), &CpuSet::from_iter([60_000])).is_err());
        assert!(set_thread_affinity(this_thread(), &CpuSet::new()).is_err());
    }
}
