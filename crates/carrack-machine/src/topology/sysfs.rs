//! This machine by the kernel's sysfs, if hwloc is not installed (Documentation/ABI/stable/sysfs-devices-node
//! and -system-cpu).
//!
//! Unreadable files count as missing: at worst the machine is one node with the allowed CPUs.

use std::path::Path;

use super::allowed::AllowedResources;
use super::parts::{
    CpuCoreDescription, MachineDeviceFacts, NodeDistances, NumaNodeFacts, PackagePart, TopologyHardwareParts,
};
use super::{CpuCore, CpuSocket, MachineDeviceKind, NumaNode, Topology, TopologyOrigin};
use crate::id_set::{CpuSet, IdSet, NodeSet};
use crate::sys_files::SysFiles;

/// Returns true if the kernel has at most one NUMA node.
pub(super) fn has_one_node(sys: &Path) -> bool {
    SysfsReader { files: SysFiles::with_root(sys) }
        .files
        .read_value::<NodeSet>("devices/system/node/online")
        .is_none_or(|nodes| nodes.len() <= 1)
}

/// The machine with all parts in sysfs.
pub(super) fn this_machine(sys: &Path, allowed: &AllowedResources) -> Topology {
    let mut parts = SysfsReader { files: SysFiles::with_root(sys) }.read_parts();
    parts.restrict_allowed(allowed);
    parts.assemble(TopologyOrigin::Sysfs).unwrap_or_else(|_| one_node_topology(sys, allowed))
}

/// The machine as one node with the allowed CPUs; each CPU counts as a core.
pub(super) fn one_node_topology(sys: &Path, allowed: &AllowedResources) -> Topology {
    let sysfs = SysfsReader { files: SysFiles::with_root(sys) };
    let online: Option<CpuSet> = sysfs.files.read_value("devices/system/cpu/online");
    let usable = match (&allowed.cpus, online) {
        (Some(allowed), Some(online)) => allowed.intersection(&online),
        (allowed, online) => allowed.clone().or(online).unwrap_or_default(),
    };
    let cpus = if usable.is_empty() { CpuSet::from_iter([0]) } else { usable };
    let id = allowed.nodes.as_ref().and_then(IdSet::first).unwrap_or(0);
    Topology {
        origin: TopologyOrigin::Sysfs,
        sockets: vec![CpuSocket { id: 0, nodes: NodeSet::from_iter([id]), cpus: cpus.clone() }],
        cores: cpus
            .iter()
            .map(|cpu| CpuCore {
                socket: 0,
                node: 0,
                cpus: CpuSet::from_iter([cpu]),
                cache: 0,
                capacity: 1_024,
            })
            .collect(),
        nodes: vec![NumaNode { id, socket: 0, cpus, memory_bytes: sysfs.memory(id).unwrap_or(0) }],
        devices: Vec::new(),
        distances: Vec::new(),
    }
}

struct SysfsReader {
    files: SysFiles,
}

impl SysfsReader {
    fn read_parts(&self) -> TopologyHardwareParts {
        let cpus: CpuSet = self.files.read_value("devices/system/cpu/online").unwrap_or_default();
        let nodes: NodeSet = self.files.read_value("devices/system/node/online").unwrap_or_default();
        let mut parts =
            TopologyHardwareParts { distances: self.distances(&nodes), ..TopologyHardwareParts::default() };
        parts.nodes = nodes.iter().map(|id| self.node(id)).collect();
        for cpu in cpus.iter() {
            self.add_cpu(cpu, &mut parts);
        }
        for (class, kind) in [
            ("net", MachineDeviceKind::Nic),
            ("block", MachineDeviceKind::Disk),
            ("infiniband", MachineDeviceKind::Rdma),
        ] {
            parts.devices.extend(self.devices(class, kind));
        }
        parts
    }

    fn add_cpu(&self, cpu: u32, parts: &mut TopologyHardwareParts) {
        let directory = format!("devices/system/cpu/cpu{cpu}");
        let siblings = self.files.read_value(&format!("{directory}/topology/thread_siblings_list"));
        let threads: CpuSet = siblings.unwrap_or_else(|| CpuSet::from_iter([cpu]));
        if threads.first() == Some(cpu) {
            let sharers: Option<CpuSet> =
                self.files.read_value(&format!("{directory}/cache/index3/shared_cpu_list"));
            parts
                .cores
                .push(CpuCoreDescription { cpus: threads, cache: sharers.and_then(|cpus| cpus.first()) });
        }
        let id = self.files.read_value(&format!("{directory}/topology/physical_package_id")).unwrap_or(0);
        match parts.packages.iter_mut().find(|package| package.id == id) {
            Some(package) => package.cpus.insert(cpu),
            None => {
                let cpus = CpuSet::from_iter([cpu]);
                parts.packages.push(PackagePart { id, cpus, nodes: NodeSet::new() });
            }
        }
        let speeds = ["cpu_capacity", "cpufreq/cpuinfo_max_freq"];
        let speed = speeds.iter().find_map(|file| self.files.read_value(&format!("{directory}/{file}")));
        parts.speeds.extend(speed.map(|speed| (cpu, speed)));
    }

    fn node(&self, id: u32) -> NumaNodeFacts {
        let cpus =
            self.files.read_value(&format!("devices/system/node/node{id}/cpulist")).unwrap_or_default();
        NumaNodeFacts { id, cpus, memory_bytes: self.memory(id).unwrap_or(0), is_special: false }
    }

    /// "Node 0 MemTotal:       16384 kB".
    fn memory(&self, id: u32) -> Option<u64> {
        let table = self.files.read_text(&format!("devices/system/node/node{id}/meminfo"))?;
        let line = table.lines().find(|line| line.contains("MemTotal:"))?;
        let kib: u64 = line.split_ascii_whitespace().nth(3)?.parse().ok()?;
        kib.checked_mul(1_024)
    }

    fn distances(&self, nodes: &NodeSet) -> Option<NodeDistances> {
        let mut values = Vec::new();
        for id in nodes.iter() {
            let row = self.files.read_text(&format!("devices/system/node/node{id}/distance"))?;
            values.extend(row.split_ascii_whitespace().filter_map(|word| word.parse::<u64>().ok()));
        }
        NodeDistances::new(nodes.iter().collect(), values)
    }

    /// Hardware devices of a class: virtual ones have no `device` link, partitions have their disk's.
    fn devices(&self, class: &str, kind: MachineDeviceKind) -> Vec<MachineDeviceFacts> {
        let names = self.files.list_directory(&format!("class/{class}")).unwrap_or_default();
        names
            .into_iter()
            .filter_map(|name| {
                let entry = format!("class/{class}/{name}");
                let is_part = self.files.exists(&format!("{entry}/partition"));
                let hardware = self.files.resolve_links(&format!("{entry}/device")).filter(|_| !is_part)?;
                Some(self.device(name, kind, Path::new(&hardware)))
            })
            .collect()
    }

    /// Virtio devices, and disks behind a controller, take the node of their PCI ancestor.
    fn device(&self, name: String, kind: MachineDeviceKind, hardware: &Path) -> MachineDeviceFacts {
        let names: Vec<&str> = hardware.ancestors().filter_map(|path| path.file_name()?.to_str()).collect();
        MachineDeviceFacts {
            name,
            kind,
            nodes: hardware
                .ancestors()
                .find_map(|path| self.files.read_value(path.join("numa_node").to_str()?))
                .into_iter()
                .collect(),
            pci: names.iter().find(|name| is_pci_address(name)).map(|name| (*name).to_owned()),
            controller: names.iter().find(|name| name.starts_with("pci")).map(|name| (*name).to_owned()),
        }
    }
}

/// "0000:81:00.0".
fn is_pci_address(name: &str) -> bool {
    let parts: Vec<&str> = name.split([':', '.']).collect();
    parts.len() == 4
        && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// A copy of sysfs in a temporary directory.
    struct TestSysfsTree(tempfile::TempDir);

    impl TestSysfsTree {
        /// Two sockets with a node and two cores each, of two threads; a virtio NIC on node 0, an NVMe disk
        /// on node 1.
        fn of_two_sockets() -> TestSysfsTree {
            let tree = TestSysfsTree(tempfile::tempdir().unwrap());
            tree.write("devices/system/cpu/online", "0-7\n");
            tree.write("devices/system/node/online", "0-1\n");
            for node in 0..2 {
                let directory = format!("devices/system/node/node{node}");
                tree.write(&format!("{directory}/cpulist"), ["0-1,4-5\n", "2-3,6-7\n"][node]);
                tree.write(&format!("{directory}/distance"), ["10 21\n", "21 10\n"][node]);
                let meminfo = format!("Node {node} MemTotal:       1024 kB\nNode {node} MemFree: 1 kB\n");
                tree.write(&format!("{directory}/meminfo"), &meminfo);
            }
            for cpu in 0..8 {
                let directory = format!("devices/system/cpu/cpu{cpu}/topology");
                let siblings = format!("{},{}\n", cpu % 4, cpu % 4 + 4);
                tree.write(&format!("{directory}/thread_siblings_list"), &siblings);
                tree.write(&format!("{directory}/physical_package_id"), &format!("{}\n", cpu % 4 / 2));
            }
            tree.device("net", "eth0", "devices/pci0000:00/0000:00:03.0", "virtio1", 0);
            tree.device("block", "nvme0n1", "devices/pci0000:80/0000:80:01.0/0000:81:00.0", "nvme/nvme0", 1);
            tree.write("class/block/nvme0n1p1/partition", "1\n");
            tree.write("class/net/lo/mtu", "65536\n");
            tree
        }

        fn root(&self) -> PathBuf {
            self.0.path().canonicalize().unwrap()
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.root().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn device(&self, class: &str, name: &str, pci: &str, beneath: &str, node: u32) {
            self.write(&format!("{pci}/numa_node"), &format!("{node}\n"));
            let hardware = self.root().join(pci).join(beneath);
            fs::create_dir_all(&hardware).unwrap();
            let entry = self.root().join("class").join(class).join(name);
            fs::create_dir_all(&entry).unwrap();
            symlink(hardware, entry.join("device")).unwrap();
        }
    }

    #[test]
    fn the_kernels_files_are_read() {
        let tree = TestSysfsTree::of_two_sockets();
        assert!(!has_one_node(&tree.root()));
        let topology = this_machine(&tree.root(), &AllowedResources::default());
        let nodes: Vec<_> =
            topology.nodes.iter().map(|n| (n.id, n.socket, n.cpus.to_string(), n.memory_bytes)).collect();
        assert_eq!(nodes, [(0, 0, "0-1,4-5".into(), 1 << 20), (1, 1, "2-3,6-7".into(), 1 << 20)]);
        let cores: Vec<_> = topology.cores.iter().map(|c| (c.socket, c.node, c.cpus.to_string())).collect();
        let expected = [(0, 0, "0,4"), (0, 0, "1,5"), (1, 1, "2,6"), (1, 1, "3,7")];
        assert_eq!(cores, expected.map(|(socket, node, cpus)| (socket, node, cpus.to_string())));
        assert_eq!(topology.distances, [[10, 21], [21, 10]]);
        let devices: Vec<_> =
            topology.devices.iter().map(|d| (&*d.name, &*d.nodes, d.pci.as_deref())).collect();
        let expected =
            [("eth0", &[0][..], Some("0000:00:03.0")), ("nvme0n1", &[1][..], Some("0000:81:00.0"))];
        assert_eq!(devices, expected);
        assert_eq!(topology.devices[1].controller.as_deref(), Some("pci0000:80"));
    }

    #[test]
    fn only_what_is_allowed_is_there() {
        let tree = TestSysfsTree::of_two_sockets();
        let allowed = AllowedResources { cpus: "2,6,99".parse().ok(), nodes: "0".parse().ok() };
        let topology = this_machine(&tree.root(), &allowed);
        assert_eq!(
            (topology.cpus().to_string(), topology.node_ids().to_string()),
            ("2,6".into(), "0".into())
        );
        assert_eq!(topology.cores[0].node, 0);
    }

    #[test]
    fn where_nothing_is_told_there_is_one_node() {
        let empty = tempfile::tempdir().unwrap();
        assert!(has_one_node(empty.path()));
        let allowed = AllowedResources { cpus: "3-4".parse().ok(), nodes: None };
        let topology = this_machine(empty.path(), &allowed);
        assert_eq!(
            (topology.cpus().to_string(), topology.nodes.len(), topology.cores.len()),
            ("3-4".into(), 1, 2)
        );
        assert_eq!(one_node_topology(empty.path(), &AllowedResources::default()).cpus().to_string(), "0");
    }

    /// Compares two independent readers of one machine, if hwloc is installed.
    #[test]
    fn hwloc_sees_the_same_here() {
        let here = Topology::this_machine();
        if here.origin != TopologyOrigin::Hwloc {
            let _ = std::io::Write::write_all(&mut std::io::stderr(), b"skipped: hwloc is not there\n");
            return;
        }
        let sysfs = this_machine(Path::new("/sys"), &AllowedResources::of_this_thread());
        let [ours, theirs] = [&sysfs, &here].map(|topology| {
            (
                topology.cores.iter().map(|core| core.cpus.clone()).collect::<Vec<_>>(),
                topology.nodes.iter().map(|node| (node.id, node.cpus.clone())).collect::<Vec<_>>(),
                topology.sockets.iter().map(|socket| socket.cpus.clone()).collect::<Vec<_>>(),
            )
        });
        assert_eq!(ours, theirs);
        for device in &here.devices {
            let same =
                sysfs.devices.iter().find(|other| other.name == device.name && other.kind == device.kind);
            let same = same.map(|same| (&same.nodes, &same.pci));
            assert_eq!(same, Some((&device.nodes, &device.pci)), "{}", device.name);
        }
    }
}
