//! The OSTs that a Lustre client is connected to, as it lists them in sysfs.
//!
//! Reads small text files, which every user may read; the client answers for the space of an OST from a
//! cache of a second. A client that lists nothing, or a sandbox that hides it, is no error.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where a client lists the OSTs of each mounted file system, in a directory `FSNAME-OST0007-osc-NUMBER`.
const CLIENT_LISTS: &str = "/sys/fs/lustre/osc";

/// The largest request of a client that lists none: 1,024 pages of 4 KiB, Lustre's default since 2.9.
const REQUEST_BYTES_DEFAULT: u32 = 4 << 20;

/// Bounds of a request that is believed. The largest is Lustre's own (`PTLRPC_MAX_BRW_SIZE` of 2.17).
const REQUEST_BYTES_MIN: u64 = 1 << 20;
const REQUEST_BYTES_MAX: u64 = 64 << 20;

/// The time for which spaces are not read again: files are created faster than OSTs fill up.
const SPACES_KEPT: Duration = Duration::from_secs(2);

/// The OSTs of one file system.
#[derive(Debug, Default)]
pub(super) struct ClientOstList {
    /// By index.
    osts: Vec<(u32, PathBuf)>,
    /// The spaces that were read last, and when.
    read: Mutex<Option<(Instant, Arc<[OstSpace]>)>>,
}

/// The space of an OST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OstSpace {
    pub(super) index: u32,
    pub(super) total_bytes: u64,
    pub(super) available_bytes: u64,
}

impl ClientOstList {
    /// The OSTs of the file system `name`; none without a name.
    pub(super) fn of_client(name: Option<&str>) -> ClientOstList {
        ClientOstList::beneath(Path::new(CLIENT_LISTS), name)
    }

    fn beneath(lists: &Path, name: Option<&str>) -> ClientOstList {
        let Some(prefix) = name.map(|name| format!("{name}-OST")) else { return ClientOstList::default() };
        let entries = fs::read_dir(lists).into_iter().flatten().flatten();
        let index_of = |name: &str| {
            let (index, rest) = name.strip_prefix(&prefix)?.split_once('-')?;
            rest.starts_with("osc").then(|| u32::from_str_radix(index, 16).ok()).flatten()
        };
        let osts = entries.filter_map(|entry| {
            let index = index_of(&entry.file_name().to_string_lossy())?;
            Some((index, entry.path()))
        });
        let mut osts: Vec<_> = osts.collect();
        osts.sort();
        // A file system that is mounted twice has two clients of each OST.
        osts.dedup_by_key(|(index, _)| *index);
        ClientOstList { osts, read: Mutex::default() }
    }

    /// Returns the largest request that all OSTs take, rounded down to a power of two.
    pub(super) fn request_bytes(&self) -> u32 {
        let page_bytes = rustix::param::page_size() as u64;
        let pages = self.osts.iter().filter_map(|(_, ost)| number(ost, "max_pages_per_rpc"));
        let bytes = pages.map(|pages| pages.saturating_mul(page_bytes)).min();
        bytes.map_or(REQUEST_BYTES_DEFAULT, |bytes| {
            let bytes = bytes.clamp(REQUEST_BYTES_MIN, REQUEST_BYTES_MAX);
            1 << bytes.ilog2()
        })
    }

    /// Returns the space of the OSTs that answer, as of a moment ago; none of a deactivated one.
    pub(super) fn spaces(&self) -> Arc<[OstSpace]> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        match &*read {
            Some((when, spaces)) if when.elapsed() < SPACES_KEPT => Arc::clone(spaces),
            _ => {
                let spaces: Arc<[OstSpace]> = self.read_spaces().into();
                *read = Some((Instant::now(), Arc::clone(&spaces)));
                spaces
            }
        }
    }

    fn read_spaces(&self) -> Vec<OstSpace> {
        let of = |(index, ost): &(u32, PathBuf)| {
            let is_active = number(ost, "active") != Some(0);
            let bytes = |name| Some(number(ost, name)?.saturating_mul(1 << 10));
            let (total_bytes, available_bytes) = (bytes("kbytestotal")?, bytes("kbytesavail")?);
            is_active.then_some(OstSpace { index: *index, total_bytes, available_bytes })
        };
        self.osts.iter().filter_map(of).collect()
    }
}

fn number(directory: &Path, name: &str) -> Option<u64> {
    fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(osts: &[(&str, &[(&str, &str)])]) -> tempfile::TempDir {
        let lists = tempfile::tempdir().unwrap();
        for (name, values) in osts {
            fs::create_dir(lists.path().join(name)).unwrap();
            for (value, text) in *values {
                fs::write(lists.path().join(name).join(value), text).unwrap();
            }
        }
        lists
    }

    #[test]
    fn a_clients_list_is_read_for_one_file_system() {
        let full = [("kbytestotal", "1000\n"), ("kbytesavail", "10\n"), ("max_pages_per_rpc", "1024\n")];
        let lists = list(&[
            ("lfs-OST000a-osc-ffff8881", &full),
            (
                "lfs-OST0001-osc-ffff8881",
                &[("kbytestotal", "7"), ("kbytesavail", "7"), ("max_pages_per_rpc", "700")],
            ),
            ("lfs-OST0001-osc-ffff8882", &full),
            ("lfs-OST0002-osc-ffff8881", &[("active", "0"), ("kbytestotal", "7"), ("kbytesavail", "7")]),
            ("other-OST0003-osc-ffff8881", &full),
            ("lfs-MDT0000-mdc-ffff8881", &full),
        ]);
        let of = |name| ClientOstList::beneath(lists.path(), name);
        let spaces = of(Some("lfs")).spaces();
        let found: Vec<_> =
            spaces.iter().map(|ost| (ost.index, ost.total_bytes, ost.available_bytes)).collect();
        assert_eq!(found, [(1, 7 << 10, 7 << 10), (10, 1_000 << 10, 10 << 10)]);
        if rustix::param::page_size() == 4_096 {
            assert_eq!(of(Some("lfs")).request_bytes(), 2 << 20, "700 pages are the fewest");
            assert_eq!(of(Some("other")).request_bytes(), 4 << 20);
        }
        assert!(of(None).spaces().is_empty() && of(Some("third")).spaces().is_empty());
        assert_eq!(of(None).request_bytes(), REQUEST_BYTES_DEFAULT);
    }

    #[test]
    fn odd_limits_are_not_believed() {
        for (pages, bytes) in [("0", 1 << 20), ("99999999999", 64 << 20), ("many", 4 << 20)] {
            let lists = list(&[("lfs-OST0000-osc-1", &[("max_pages_per_rpc", pages)])]);
            assert_eq!(ClientOstList::beneath(lists.path(), Some("lfs")).request_bytes(), bytes, "{pages}");
        }
    }
}
