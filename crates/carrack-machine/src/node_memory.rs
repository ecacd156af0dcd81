//! The free memory of NUMA nodes, from sysfs (Documentation/ABI/stable/sysfs-devices-node).
//!
//! The directory is a parameter, so that tests can read those of other machines.

use std::path::{Path, PathBuf};

use crate::id_set::NodeSet;

/// The directory of the nodes.
pub(crate) struct NodeMemoryFiles {
    root: PathBuf,
}

impl NodeMemoryFiles {
    /// The nodes of this machine.
    pub(crate) fn of_this_machine() -> NodeMemoryFiles {
        NodeMemoryFiles::with_root(Path::new("/sys/devices/system/node"))
    }

    /// The nodes in a copy of sysfs.
    pub(crate) fn with_root(root: &Path) -> NodeMemoryFiles {
        NodeMemoryFiles { root: root.to_path_buf() }
    }

    /// Free explicit huge pages of 2 MiB on `nodes`.
    pub(crate) fn free_huge_pages(&self, nodes: &NodeSet) -> usize {
        let file = "hugepages/hugepages-2048kB/free_hugepages";
        nodes.iter().filter_map(|node| self.read(node, file)?.trim().parse::<usize>().ok()).sum()
    }

    /// Free bytes on `nodes`, clean page cache included; `None` if unknown.
    pub(crate) fn available_bytes(&self, nodes: &NodeSet) -> Option<u64> {
        nodes.iter().map(|node| self.available_on(node)).sum()
    }

    fn available_on(&self, node: u32) -> Option<u64> {
        let text = self.read(node, "meminfo")?;
        let of_files = field(&text, "FilePages")?.saturating_sub(field(&text, "Shmem")?);
        Some((field(&text, "MemFree")? + of_files) << 10)
    }

    fn read(&self, node: u32, file: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(format!("node{node}")).join(file)).ok()
    }
}

/// Reads a line of meminfo, such as `NumaNode 0 MemFree:  8388 kB`.
fn field(text: &str, name: &str) -> Option<u64> {
    let name = format!("{name}:");
    let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(&name))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn two_nodes() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (node, huge, free) in [(0, 3, 1_000), (2, 7, 50)] {
            let directory = root.path().join(format!("node{node}"));
            fs::create_dir_all(directory.join("hugepages/hugepages-2048kB")).unwrap();
            fs::write(directory.join("hugepages/hugepages-2048kB/free_hugepages"), format!("{huge}\n"))
                .unwrap();
            let meminfo = format!(
                "Node {node} MemTotal: 9 kB\nNode {node} MemFree:   {free} kB\nNode {node} FilePages: 30 kB\nNode {node} Shmem: 10 kB\n"
            );
            fs::write(directory.join("meminfo"), meminfo).unwrap();
        }
        root
    }

    #[test]
    fn only_the_wanted_nodes_are_asked() {
        let root = two_nodes();
        let state = NodeMemoryFiles::with_root(root.path());
        fn nodes(ids: &[u32]) -> NodeSet {
            ids.iter().copied().collect()
        }
        assert_eq!(state.free_huge_pages(&nodes(&[0, 2, 9])), 10);
        assert_eq!(state.available_bytes(&nodes(&[0, 2])), Some((1_020 + 70) << 10));
        assert_eq!(state.available_bytes(&nodes(&[2])), Some(70 << 10));
        assert_eq!(state.available_bytes(&nodes(&[2, 9])), None, "unknown is not nothing");
    }
}
