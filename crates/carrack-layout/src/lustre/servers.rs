//! The servers of OSTs and MDTs, as a client is connected with them.
//!
//! The client lists its connections in sysfs (in procfs before Lustre 2.12), where every user may read the
//! network identifier (NID) of each target's server. With failover a target changes its server: the one at
//! the first look counts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a client lists its connections, in directories `osc/FSNAME-OST0007-osc-NUMBER` and
/// `mdc/FSNAME-MDT0000-mdc-NUMBER`.
const CLIENT_LISTS: [&str; 2] = ["/sys/fs/lustre", "/proc/fs/lustre"];

/// The kinds of connections, and the file with the server's NID.
const KINDS: [(&str, &str); 2] = [("osc", "ost_conn_uuid"), ("mdc", "mds_conn_uuid")];

/// A client's connections that belong to one file system.
#[derive(Debug)]
pub(super) struct LustreConnections {
    /// The file with the server's NID, by the target's name.
    nid_files: BTreeMap<String, PathBuf>,
}

impl LustreConnections {
    /// The connections of the file system `name`; none without a name.
    pub(super) fn of_client(name: Option<&str>) -> LustreConnections {
        LustreConnections::beneath(&CLIENT_LISTS.map(Path::new), name)
    }

    fn beneath(lists: &[&Path], name: Option<&str>) -> LustreConnections {
        let mut nid_files = BTreeMap::new();
        let prefix = name.map(|name| format!("{name}-"));
        for (list, (kind, file)) in lists.iter().flat_map(|list| KINDS.map(|kind| (list, kind))) {
            for entry in fs::read_dir(list.join(kind)).into_iter().flatten().flatten() {
                let entry_name = entry.file_name();
                let target = prefix.as_deref().and_then(|prefix| {
                    let of_name = entry_name.to_str()?.strip_prefix(prefix)?;
                    of_name.split_once(&format!("-{kind}-")).map(|(target, _)| target)
                });
                if let Some(target) = target {
                    nid_files.entry(target.to_owned()).or_insert_with(|| entry.path().join(file));
                }
            }
        }
        LustreConnections { nid_files }
    }

    /// The NID of the server of an OST or MDT: "10.0.0.2@tcp". None while there is no connection.
    pub(super) fn server_of(&self, target: &str) -> Option<String> {
        let text = fs::read_to_string(self.nid_files.get(target)?).ok()?;
        Some(text.trim().to_owned()).filter(|nid| nid.contains('@'))
    }

    /// The MDT of a file system with a single one.
    pub(super) fn only_mdt(&self) -> Option<&str> {
        let mut mdts = self.nid_files.keys().filter(|target| target.starts_with("MDT"));
        mdts.next().filter(|_| mdts.next().is_none()).map(String::as_str)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The lists of a client of the file systems `lfs`, with two servers of two OSTs each, and `other`.
    pub(crate) fn lists() -> tempfile::TempDir {
        let lists = tempfile::tempdir().unwrap();
        let connections = [
            ("osc/lfs-OST0000-osc-ffff8881/ost_conn_uuid", "10.0.0.2@tcp\n"),
            ("osc/lfs-OST0001-osc-ffff8881/ost_conn_uuid", "10.0.0.2@tcp\n"),
            ("osc/lfs-OST0002-osc-ffff8881/ost_conn_uuid", "10.0.0.3@tcp\n"),
            ("osc/lfs-OST000a-osc-ffff8881/ost_conn_uuid", "10.0.0.3@tcp\n"),
            ("osc/lfs-OST000b-osc-ffff8881/ost_conn_uuid", "<none>\n"),
            ("mdc/lfs-MDT0000-mdc-ffff8881/mds_conn_uuid", "10.0.0.1@tcp\n"),
            ("osc/other-OST0000-osc-ffff8882/ost_conn_uuid", "10.0.0.9@tcp\n"),
            ("mdc/other-MDT0000-mdc-ffff8882/mds_conn_uuid", "10.0.0.9@tcp\n"),
            ("mdc/other-MDT0001-mdc-ffff8882/mds_conn_uuid", "10.0.0.9@tcp\n"),
        ];
        for (path, nid) in connections {
            let path = lists.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, nid).unwrap();
        }
        lists
    }

    pub(crate) fn connections(lists: &tempfile::TempDir, name: Option<&str>) -> LustreConnections {
        LustreConnections::beneath(&[Path::new("/nonexistent"), lists.path()], name)
    }

    #[test]
    fn a_targets_server_is_the_one_of_its_connection() {
        let lists = lists();
        let lfs = connections(&lists, Some("lfs"));
        let servers = ["OST0000", "OST0001", "OST0002", "OST000a", "MDT0000", "OST000b", "OST0003"];
        let servers = servers.map(|target| lfs.server_of(target));
        let nid = |last: u8| Some(format!("10.0.0.{last}@tcp"));
        assert_eq!(servers, [nid(2), nid(2), nid(3), nid(3), nid(1), None, None]);
        assert_eq!(connections(&lists, Some("other")).server_of("OST0000"), nid(9));
        for name in [None, Some("third"), Some("lf")] {
            assert_eq!(connections(&lists, name).server_of("OST0000"), None, "{name:?}");
        }
    }

    #[test]
    fn a_single_mdt_is_known_without_asking_for_it() {
        let lists = lists();
        let only = |name| connections(&lists, Some(name)).only_mdt().map(str::to_owned);
        assert_eq!((only("lfs").as_deref(), only("other"), only("third")), (Some("MDT0000"), None, None));
    }
}
