//! Descriptors that the process may have (`RLIMIT_NOFILE`, getrlimit(2)), and who gets how many of them.
//!
//! A quarter is for walks, each of which holds the directories that it goes back to; as much is what threads have open for a moment.
//! What is left beside sockets, pipes and libraries is for large files, which stay open while they are copied.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// As many may be open where nobody tells: Linux's own limit (`INR_OPEN_CUR`, include/uapi/linux/fs.h).
const USUAL: u64 = 1_024;

/// Sockets, pipes, libraries, the directories where paths begin: what a transfer has beside all that is counted here.
const OTHERS: u64 = 32;

/// What a thread that reads or writes files has open for a moment: the directory, the file, and what is asked of them.
const BY_THREAD: u64 = 4;

/// Lets the process have as many as it may; how many those are.
pub fn raise_descriptors() -> u64 {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If it is not allowed, the soft limit holds.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    Descriptors::of_this_process().0
}

/// So many as the process may have.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors(u64);

impl Descriptors {
    /// As many as this one may have now.
    pub fn of_this_process() -> Descriptors {
        Descriptors(getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(soft, _)| soft))
    }

    /// Large files that may be open at once, with so many descriptors each; at least two, at most `most`.
    pub fn files(self, each: u64, most: usize) -> usize {
        let rest = (self.0 - 2 * self.quarter()).saturating_sub(OTHERS);
        bounded(rest / each, 2, most)
    }

    /// Directories that a walk may hold open; at least four, at most `most`.
    pub fn walk(self, most: usize) -> usize {
        bounded(self.quarter(), 4, most)
    }

    /// Threads that may read or write files; at least two, at most `most`.
    pub fn threads(self, most: usize) -> usize {
        bounded(self.quarter() / BY_THREAD, 2, most)
    }

    fn quarter(self) -> u64 {
        self.0 / 4
    }
}

fn bounded(count: u64, least: usize, most: usize) -> usize {
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
            let descriptors = Descriptors(limit);
            let shares = (descriptors.files(6, 128), descriptors.walk(512), descriptors.threads(64));
            assert_eq!(shares, (files, walk, threads), "{limit}");
        }
    }
}
