//! The pools of OSTs that a client knows.
//!
//! Lustre takes the name of any pool, and puts a file of an unknown one on any OSTs. Its client lists the
//! pools of each file system in procfs, where `lfs setstripe` looks before, too.

use std::fs;
use std::path::{Path, PathBuf};

/// Where a client lists the pools of each mounted file system, in a directory `FSNAME-clilov-NUMBER/pools`.
const CLIENT_LISTS: &str = "/proc/fs/lustre/lov";

/// The lists of a client that belong to one file system.
#[derive(Debug)]
pub(super) struct LustrePoolLists {
    directories: Vec<PathBuf>,
}

impl LustrePoolLists {
    /// The lists of the file system `name`; none without a name, as of a file system that only answers like
    /// Lustre.
    pub(super) fn of_client(name: Option<&str>) -> LustrePoolLists {
        LustrePoolLists::beneath(Path::new(CLIENT_LISTS), name)
    }

    fn beneath(lists: &Path, name: Option<&str>) -> LustrePoolLists {
        let prefix = name.map(|name| format!("{name}-clilov-"));
        let entries = fs::read_dir(lists).into_iter().flatten().flatten();
        let of_name = entries.filter(|entry| {
            let entry_name = entry.file_name();
            prefix.as_deref().is_some_and(|prefix| entry_name.to_string_lossy().starts_with(prefix))
        });
        let pools = of_name.map(|entry| entry.path().join("pools"));
        LustrePoolLists { directories: pools.filter(|directory| directory.is_dir()).collect() }
    }

    /// Returns the indices of a pool's OSTs; none if the client does not list them.
    pub(super) fn members(&self, name: &str) -> Option<Vec<u32>> {
        let lists = self.directories.iter().filter_map(|pools| fs::read_to_string(pools.join(name)).ok());
        let list = lists.reduce(|all, more| all + "\n" + &more)?;
        let index_of = |line: &str| {
            let (_, index) = line.trim().strip_suffix("_UUID")?.rsplit_once("-OST")?;
            u32::from_str_radix(index, 16).ok()
        };
        Some(list.lines().filter_map(index_of).collect())
    }

    /// Returns true if the client lists the pools of the file system, and there is no pool `name`.
    pub(super) fn lack(&self, name: &str) -> bool {
        !self.directories.is_empty()
            && !self.directories.iter().any(|directory| directory.join(name).exists())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_missing_only_where_pools_are_listed() {
        let lists = tempfile::tempdir().unwrap();
        let pools = lists.path().join("lfs-clilov-ffff8881/pools");
        fs::create_dir_all(&pools).unwrap();
        fs::write(pools.join("flash"), "lfs-OST0000_UUID\n").unwrap();
        fs::create_dir_all(lists.path().join("other-clilov-ffff8882/pools")).unwrap();
        let of = |name| LustrePoolLists::beneath(lists.path(), name);
        assert!(!of(Some("lfs")).lack("flash") && of(Some("lfs")).lack("nopool"));
        fs::write(pools.join("disk"), "lfs-OST0001_UUID\nlfs-OST000a_UUID\n").unwrap();
        assert_eq!(of(Some("lfs")).members("disk"), Some(vec![1, 10]));
        assert_eq!((of(Some("lfs")).members("nopool"), of(None).members("disk")), (None, None));
        assert!(of(Some("other")).lack("flash"), "pools belong to one file system");
        assert!(!of(Some("third")).lack("flash") && !of(None).lack("flash"));
        assert!(!LustrePoolLists::beneath(Path::new("/nonexistent"), Some("lfs")).lack("flash"));
    }
}
