//! Descriptors that the process may have (`RLIMIT_NOFILE`, getrlimit(2)).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sockets, pipes, directories, libraries: what a transfer has beside its files.
const OTHERS: u64 = 64;

/// Lets the process have as many as it may; how many those are.
pub fn raise_descriptors() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // If it is not allowed, the soft limit holds.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current.or(current).unwrap_or(u64::MAX)
}

/// How many files may be open at once, with so many descriptors each; at least two, at most `most`.
pub fn open_files_max(descriptors_each: u64, most: usize) -> usize {
    open_files_within(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), descriptors_each, most)
}

fn open_files_within(limit: u64, descriptors_each: u64, most: usize) -> usize {
    let files = limit.saturating_sub(OTHERS) / descriptors_each;
    usize::try_from(files).unwrap_or(usize::MAX).clamp(2, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_leave_room_for_the_rest() {
        for (limit, files) in [(0, 2), (64, 2), (128, 10), (256, 32), (1_024, 128), (u64::MAX, 128)] {
            assert_eq!(open_files_within(limit, 6, 128), files, "{limit}");
        }
    }
}
