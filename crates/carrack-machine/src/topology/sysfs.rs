//! This machine as the kernel's sysfs shows it, for where hwloc is not installed (Documentation/ABI/stable/sysfs-devices-node
//! and -system-cpu).
//!
//! What can't be read is taken as not there: at worst the machine is one node with the allowed CPUs.

use std::path::Path;

use super::allowed::Allowed;
use super::parts::{CorePart, DevicePart, Distances, NodePart, PackagePart, Parts};
use super::{Core, DeviceKind, Node, Origin, Socket, Topology};
use crate::id_set::{CpuSet, IdSet, NodeSet};
use crate::sys_files::SysFiles;

/// Whether the kernel has one NUMA node only, or none.
pub(super) fn has_one_node(sys: &Path) -> bool {
    Sysfs { files: SysFiles::beneath(sys) }
        .files
        .value::<NodeSet>("devices/system/node/online")
        .is_none_or(|nodes| nodes.len() <= 1)
}

/// The machine with everything that sysfs tells.
pub(super) fn this_machine(sys: &Path, allowed: &Allowed) -> Topology {
    let mut parts = Sysfs { files: SysFiles::beneath(sys) }.parts();
    parts.allow(allowed);
    parts.assemble(Origin::Sysfs).unwrap_or_else(|_| one_node(sys, allowed))
}

/// The machine as one node with the allowed CPUs; each of them counts as a core.
pub(super) fn one_node(sys: &Path, allowed: &Allowed) -> Topology {
    let sysfs = Sysfs { files: SysFiles::beneath(sys) };
    let online: Option<CpuSet> = sysfs.files.value("devices/system/cpu/online");
    let usable = match (&allowed.cpus, online) {
        (Some(allowed), Some(online)) => allowed.intersection(&online),
        (allowed, online) => allowed.clone().or(online).unwrap_or_default(),
    };
    let cpus = if usable.is_empty() { CpuSet::from_iter([0]) } else { usable };
    let id = allowed.nodes.as_ref().and_then(IdSet::first).unwrap_or(0);
    let core = |cpu| Core { socket: 0, node: 0, cpus: CpuSet::from_iter([cpu]), cache: 0, capacity: 1_024 };
    Topology {
        origin: Origin::Sysfs,
        sockets: vec![Socket { id: 0, nodes: NodeSet::from_iter([id]), cpus: cpus.clone() }],
        cores: cpus.iter().map(core).collect(),
        nodes: vec![Node { id, socket: 0, cpus, memory_bytes: sysfs.memory(id).unwrap_or(0) }],
        devices: Vec::new(),
        distances: Vec::new(),
    }
}

struct Sysfs {
    files: SysFiles,
}

impl Sysfs {
    fn parts(&self) -> Parts {
        let cpus: CpuSet = self.files.value("devices/system/cpu/online").unwrap_or_default();
        let nodes: NodeSet = self.files.value("devices/system/node/online").unwrap_or_default();
        let mut parts = Parts { distances: self.distances(&nodes), ..Parts::default() };
        parts.nodes = nodes.iter().map(|id| self.node(id)).collect();
        for cpu in cpus.iter() {
            self.cpu(cpu, &mut parts);
        }
        for (class, kind) in
            [("net", DeviceKind::Nic), ("block", DeviceKind::Disk), ("infiniband", DeviceKind::Rdma)]
        {
            parts.devices.extend(self.devices(class, kind));
        }
        parts
    }

    fn cpu(&self, cpu: u32, parts: &mut Parts) {
        let at = |file: &str| format!("devices/system/cpu/cpu{cpu}/{file}");
        let alone = || CpuSet::from_iter([cpu]);
        let threads: CpuSet = self.files.value(&at("topology/thread_siblings_list")).unwrap_or_else(alone);
        if threads.first() == Some(cpu) {
            let sharers: Option<CpuSet> = self.files.value(&at("cache/index3/shared_cpu_list"));
            parts.cores.push(CorePart { cpus: threads, cache: sharers.and_then(|cpus| cpus.first()) });
        }
        let id = self.files.value(&at("topology/physical_package_id")).unwrap_or(0);
        match parts.packages.iter_mut().find(|package| package.id == id) {
            Some(package) => package.cpus.insert(cpu),
            None => parts.packages.push(PackagePart { id, cpus: alone(), nodes: NodeSet::new() }),
        }
        let speed =
            ["cpu_capacity", "cpufreq/cpuinfo_max_freq"].iter().find_map(|file| self.files.value(&at(file)));
        parts.speeds.extend(speed.map(|speed| (cpu, speed)));
    }

    fn node(&self, id: u32) -> NodePart {
        let cpus = self.files.value(&format!("devices/system/node/node{id}/cpulist")).unwrap_or_default();
        NodePart { id, cpus, memory_bytes: self.memory(id).unwrap_or(0), is_special: false }
    }

    /// "Node 0 MemTotal:       16384 kB".
    fn memory(&self, id: u32) -> Option<u64> {
        let table = self.files.text(&format!("devices/system/node/node{id}/meminfo"))?;
        let line = table.lines().find(|line| line.contains("MemTotal:"))?;
        let kib: u64 = line.split_ascii_whitespace().nth(3)?.parse().ok()?;
        kib.checked_mul(1_024)
    }

    fn distances(&self, nodes: &NodeSet) -> Option<Distances> {
        let mut values = Vec::new();
        for id in nodes.iter() {
            let row = self.files.text(&format!("devices/system/node/node{id}/distance"))?;
            values.extend(row.split_ascii_whitespace().filter_map(|word| word.parse::<u64>().ok()));
        }
        Distances::new(nodes.iter().collect(), values)
    }

    /// Devices of a class that are real: those without hardware have no link to it, partitions have their disk's.
    fn devices(&self, class: &str, kind: DeviceKind) -> Vec<DevicePart> {
        let names = self.files.names(&format!("class/{class}")).unwrap_or_default();
        let device = |name: String| {
            let entry = format!("class/{class}/{name}");
            let is_part = self.files.exists(&format!("{entry}/partition"));
            let hardware = self.files.real(&format!("{entry}/device")).filter(|_| !is_part)?;
            Some(self.device(name, kind, Path::new(&hardware)))
        };
        names.into_iter().filter_map(device).collect()
    }

    /// A virtio device, or a disk behind its controller, has no node of its own: its PCI parent has.
    fn device(&self, name: String, kind: DeviceKind, hardware: &Path) -> DevicePart {
        let node_at = |path: &Path| self.files.value(path.join("numa_node").to_str()?);
        let names = || hardware.ancestors().filter_map(|path| path.file_name()?.to_str());
        DevicePart {
            name,
            kind,
            nodes: hardware.ancestors().find_map(node_at).into_iter().collect(),
            pci: names().find(|name| is_pci_address(name)).map(str::to_owned),
            controller: names().find(|name| name.starts_with("pci")).map(str::to_owned),
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

    /// A tree of files as sysfs has it, in a directory that goes with it.
    struct Tree(tempfile::TempDir);

    impl Tree {
        /// Two sockets with a node and two cores each, of two threads; a virtio NIC on node 0, an NVMe disk on node 1.
        fn of_two_sockets() -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap());
            tree.write("devices/system/cpu/online", "0-7\n");
            tree.write("devices/system/node/online", "0-1\n");
            for node in 0..2 {
                let at = |file: &str| format!("devices/system/node/node{node}/{file}");
                tree.write(&at("cpulist"), ["0-1,4-5\n", "2-3,6-7\n"][node]);
                tree.write(&at("distance"), ["10 21\n", "21 10\n"][node]);
                tree.write(
                    &at("meminfo"),
                    &format!("Node {node} MemTotal:       1024 kB\nNode {node} MemFree: 1 kB\n"),
                );
            }
            for cpu in 0..8 {
                let at = |file: &str| format!("devices/system/cpu/cpu{cpu}/{file}");
                tree.write(&at("topology/thread_siblings_list"), &format!("{},{}\n", cpu % 4, cpu % 4 + 4));
                tree.write(&at("topology/physical_package_id"), &format!("{}\n", cpu % 4 / 2));
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
        let tree = Tree::of_two_sockets();
        assert!(!has_one_node(&tree.root()));
        let topology = this_machine(&tree.root(), &Allowed::default());
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
        let tree = Tree::of_two_sockets();
        let allowed = Allowed { cpus: "2,6,99".parse().ok(), nodes: "0".parse().ok() };
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
        let allowed = Allowed { cpus: "3-4".parse().ok(), nodes: None };
        let topology = this_machine(empty.path(), &allowed);
        assert_eq!(
            (topology.cpus().to_string(), topology.nodes.len(), topology.cores.len()),
            ("3-4".into(), 1, 2)
        );
        assert_eq!(one_node(empty.path(), &Allowed::default()).cpus().to_string(), "0");
    }

    /// Two independent readers of one machine, where hwloc is there.
    #[test]
    fn hwloc_sees_the_same_here() {
        let here = Topology::this_machine();
        if here.origin != Origin::Hwloc {
            let _ = std::io::Write::write_all(&mut std::io::stderr(), b"skipped: hwloc is not there\n");
            return;
        }
        let sysfs = this_machine(Path::new("/sys"), &Allowed::of_this_thread());
        let cpus =
            |topology: &Topology| topology.cores.iter().map(|core| core.cpus.clone()).collect::<Vec<_>>();
        let nodes =
            |topology: &Topology| topology.nodes.iter().map(|n| (n.id, n.cpus.clone())).collect::<Vec<_>>();
        let sockets =
            |topology: &Topology| topology.sockets.iter().map(|s| s.cpus.clone()).collect::<Vec<_>>();
        assert_eq!(
            (cpus(&sysfs), nodes(&sysfs), sockets(&sysfs)),
            (cpus(&here), nodes(&here), sockets(&here))
        );
        for device in &here.devices {
            let same =
                sysfs.devices.iter().find(|other| other.name == device.name && other.kind == device.kind);
            let place = |device: &super::super::Device| (device.nodes.clone(), device.pci.clone());
            assert_eq!(same.map(place), Some(place(device)), "{}", device.name);
        }
    }
}
