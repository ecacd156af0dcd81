//! Assignment of directories to lanes by the nodes of their disks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::id_set::NodeSet;
use crate::nic;
use crate::sys_files::SysFiles;

/// Maximum depth of stacked devices (LVM on RAID on partitions).
const LEVELS_MAX: usize = 4;

/// The NUMA node of the disk with a directory's file system (`numa_node` of its PCI function, sysfs(5)).
///
/// `None` for file systems over the network or in memory, disks of several nodes, and machines that don't
/// report nodes.
pub fn node_of_directory(files: &SysFiles, directory: &Path) -> Option<u32> {
    let device = fs::metadata(directory).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    node_of_block_device(files, &format!("sys/dev/block/{major}:{minor}"), LEVELS_MAX)
}

fn node_of_block_device(files: &SysFiles, device: &str, levels: usize) -> Option<u32> {
    if let Some(function) = nic::pci_function(files, device) {
        return files.read_value(&format!("{function}/numa_node"));
    }
    let levels = levels.checked_sub(1)?;
    let below = files.list_directory(&format!("{device}/slaves"))?;
    let mut nodes =
        below.iter().map(|name| node_of_block_device(files, &format!("{device}/slaves/{name}"), levels));
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

/// Assigns items at `nodes` to lanes on `lanes`, and returns the lane of each item. The lanes' counts differ
/// by at most one; within that bound, items go to lanes that contain their node.
pub fn assign_to_lanes(nodes: &[Option<u32>], lanes: &[NodeSet]) -> Vec<usize> {
    let room = nodes.len().div_ceil(lanes.len().max(1));
    let mut counts = vec![0; lanes.len()];
    let mut dealt = vec![None; nodes.len()];
    for only_near in [true, false] {
        for (&node, dealt) in nodes.iter().zip(&mut dealt).filter(|(_, dealt)| dealt.is_none()) {
            let lane = (0..lanes.len())
                .filter(|&lane| counts[lane] < room)
                .filter(|&lane| !only_near || node.is_some_and(|node| lanes[lane].contains(node)))
                .min_by_key(|&lane| counts[lane]);
            let Some(lane) = lane else { continue };
            counts[lane] += 1;
            *dealt = Some(lane);
        }
    }
    dealt.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn make(sys: &Path, number: &str, path: &str, below: &[&str]) {
        let device = sys.join("devices").join(path);
        fs::create_dir_all(device.join("slaves")).unwrap();
        fs::create_dir_all(sys.join("dev/block")).unwrap();
        symlink(&device, sys.join("dev/block").join(number)).unwrap();
        for other in below {
            let other = sys.join("devices").join(other);
            symlink(&other, device.join("slaves").join(other.file_name().unwrap())).unwrap();
        }
    }

    /// A machine with disks on PCI functions of two nodes, and devices on top of them.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path().join("sys");
        let (a, b, c) = ("pci0000:00/0000:01:00.0", "pci0000:40/0000:41:00.0", "pci0000:00/0000:02:00.0");
        make(&sys, "259:1", &format!("{a}/nvme/nvme0/nvme0n1"), &[]);
        make(&sys, "259:2", &format!("{a}/nvme/nvme0/nvme0n1/nvme0n1p1"), &[]);
        make(&sys, "259:3", &format!("{b}/nvme/nvme1/nvme1n1"), &[]);
        make(&sys, "259:4", &format!("{c}/nvme/nvme2/nvme2n1"), &[]);
        let disks = [
            format!("{a}/nvme/nvme0/nvme0n1"),
            format!("{b}/nvme/nvme1/nvme1n1"),
            format!("{c}/nvme/nvme2/nvme2n1"),
        ];
        make(&sys, "253:0", "virtual/block/dm-0", &[&disks[0], &disks[2]]);
        make(&sys, "253:1", "virtual/block/dm-1", &[&disks[0], &disks[1]]);
        make(&sys, "253:2", "virtual/block/dm-2", &["virtual/block/dm-0"]);
        make(&sys, "7:0", "virtual/block/loop0", &[]);
        for (function, node) in [(a, "0"), (b, "1"), (c, "0")] {
            fs::write(sys.join("devices").join(function).join("numa_node"), node).unwrap();
        }
        root
    }

    fn nodes_of<const N: usize>(files: &SysFiles, numbers: [&str; N]) -> [Option<u32>; N] {
        numbers.map(|number| node_of_block_device(files, &format!("sys/dev/block/{number}"), LEVELS_MAX))
    }

    #[test]
    fn a_disk_lies_at_the_node_of_its_function() {
        let root = machine();
        let files = SysFiles::with_root(root.path());
        assert_eq!(nodes_of(&files, ["259:1", "259:2", "259:3"]), [Some(0), Some(0), Some(1)]);
        assert_eq!(
            nodes_of(&files, ["253:0", "253:2"]),
            [Some(0), Some(0)],
            "upon two of one node, and upon that"
        );
        assert_eq!(nodes_of(&files, ["253:1", "7:0", "1:2"]), [None, None, None]);
        fs::write(root.path().join("sys/devices/pci0000:00/0000:01:00.0/numa_node"), "-1").unwrap();
        assert_eq!(nodes_of(&files, ["259:1", "253:0"]), [None, None], "it does not say");
    }

    #[test]
    fn each_lane_has_as_many_and_those_near_it() {
        fn on(nodes: &[u32]) -> NodeSet {
            nodes.iter().copied().collect()
        }
        let lanes = [on(&[1]), on(&[0])];
        assert_eq!(assign_to_lanes(&[Some(0), Some(1)], &lanes), [1, 0]);
        assert_eq!(assign_to_lanes(&[Some(0), Some(0), Some(1), Some(1)], &lanes), [1, 1, 0, 0]);
        assert_eq!(assign_to_lanes(&[Some(0), Some(0)], &lanes), [1, 0], "both have one");
        assert_eq!(assign_to_lanes(&[None, Some(1), None], &lanes), [1, 0, 0]);
        assert_eq!(assign_to_lanes(&[None, None, None], &[on(&[]), on(&[])]), [0, 1, 0]);
        assert_eq!(assign_to_lanes(&[], &lanes), [0; 0]);
    }
}
