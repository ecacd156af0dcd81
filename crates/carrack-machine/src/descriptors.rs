//! The process's limit on descriptors (`RLIMIT_NOFILE`, getrlimit(2)), and its division.
//!
//! A quarter is for walks, which keep the directories on their path open, and a quarter for short-lived
//! descriptors of threads. The rest, less sockets, pipes and libraries, is for large files, which stay open
//! during their copy.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Assumed if the limit can't be read: Linux's own default (`INR_OPEN_CUR`, include/uapi/linux/fs.h).
const USUAL: u64 = 1_024;

/// Sockets, pipes, libraries and root directories: descriptors that are not counted elsewhere.
const OTHERS: u64 = 32;

/// Short-lived descriptors of an I/O thread: the directory, the file, and queries of both.
const BY_THREAD: u64 = 4;

/// Raises the soft limit to the hard limit, and returns the resulting limit.
pub fn raise_descriptor_limit() -> u64 {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // On failure the soft limit remains.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    DescriptorBudget::of_this_process().0
}

/// A number of descriptors to divide.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorBudget(u64);

impl DescriptorBudget {
    /// The limit of this process.
    pub fn of_this_process() -> DescriptorBudget {
        DescriptorBudget(getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(soft, _)| soft))
    }

    /// Large files that may be open at once, with `each` descriptors each; at least two, at most `most`.
    pub fn open_files_max(self, each: u64, most: usize) -> usize {
        let rest = (self.0 - 2 * self.quarter()).saturating_sub(OTHERS);
        clamp_count(rest / each, 2, most)
    }

    /// Directories that a walk may keep open; at least four, at most `most`.
    pub fn walk_directories_max(self, most: usize) -> usize {
        clamp_count(self.quarter(), 4, most)
    }

    /// Threads that may read or write files; at least two, at most `most`.
    pub fn io_threads_max(self, most: usize) -> usize {
        clamp_count(self.quarter() / BY_THREAD, 2, most)
    }

    fn quarter(self) -> u64 {
        self.0 / 4
    }
}

fn clamp_count(count: u64, least: usize, most: usize) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX).min(most).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_together_leave_room_for_the_rest() {
        for (limit, files, walk, threads) in [
            (0, 2, 4, 2),
            (64, 2, 16, 4),
            (128, 5, 32, 8),
            (256, 16, 64, 16),
            (1_024, 80, 256, 64),
            (4_096, 128, 512, 64),
            (u64::MAX, 128, 512, 64),
        ] {
            let descriptors = DescriptorBudget(limit);
            let shares = (
                descriptors.open_files_max(6, 128),
                descriptors.walk_directories_max(512),
                descriptors.io_threads_max(64),
            );
            assert_eq!(shares, (files, walk, threads), "{limit}");
        }
    }
}
