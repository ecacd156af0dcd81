//! Disks, and the mounts of the named paths.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::finding::{CheckFinding, CheckGroup, CheckVerdict, MachineCheck, well_if};
use super::nics::HardwareNic;
use super::{DoctorPath, DoctorTransferParameters, MachineFacts};
use crate::nic;
use crate::sys_files::SysFiles;

pub(super) const CHECKS: &[&MachineCheck] = &[&DEVICE_NODES, &MOUNT, &ATIME, &WRITE_MODE, &NFS];

static DEVICE_NODES: MachineCheck = MachineCheck {
    name: "device_nodes",
    group: CheckGroup::Storage,
    about: "whether interfaces and disks are attached to one socket",
    why: "what goes from a disk of one socket to an interface of another crosses the link between them",
    source: "fasterdata.es.net, 100G tuning; kernel documentation, ABI/testing/sysfs-bus-pci",
};

static MOUNT: MachineCheck = MachineCheck {
    name: "mount",
    group: CheckGroup::Storage,
    about: "the mount that a path lies on",
    why: "a path that can't be looked at is neither source nor destination; a read-only one is a source only",
    source: "proc_pid_mountinfo(5)",
};

static ATIME: MachineCheck = MachineCheck {
    name: "atime",
    group: CheckGroup::Storage,
    about: "whether reading a file writes its access time",
    why: "each small file that is read then costs a write of its inode",
    source: "mount(8), relatime and noatime",
};

static WRITE_MODE: MachineCheck = MachineCheck {
    name: "write_mode",
    group: CheckGroup::Storage,
    about: "whether writes wait for the disk, or data is written twice",
    why: "sync makes each write a round trip to the disk, and data=journal writes all data to the journal first; \
          carrack flushes what it has finished by itself",
    source: "mount(8), sync; ext4(5), data",
};

static NFS: MachineCheck = MachineCheck {
    name: "nfs",
    group: CheckGroup::Storage,
    about: "over how many connections and in which sizes NFS is read and written",
    why: "one connection is held to one CPU and one window; small requests cost a round trip each",
    source: "nfs(5), nconnect, rsize and wsize",
};

/// Local file systems on disks, for which these options are defined.
const LOCAL: [&str; 6] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"];

/// Bytes of an NFS request: the maximum of Linux.
const NFS_REQUEST_BYTES: u64 = 1 << 20;

/// Advised connections of an NFS mount; up to 16 are possible.
const NFS_CONNECTIONS: u32 = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MachineStorageFacts {
    /// Mounts in mount order; `None` if not visible.
    mounts: Option<Vec<MountEntry>>,
    /// Disks with known nodes.
    disks: Vec<(String, u32)>,
    /// Socket of each node.
    sockets: BTreeMap<u32, u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct MountEntry {
    point: PathBuf,
    kind: String,
    source: String,
    /// Options of the mount and of the file system.
    options: BTreeSet<String>,
}

impl MountEntry {
    fn has_option(&self, option: &str) -> bool {
        self.options.contains(option)
    }

    /// "rsize=1048576"
    fn option_value<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
    }
}

pub(super) fn read(files: &SysFiles) -> MachineStorageFacts {
    let machine = MachineFacts::read(files);
    let sockets = machine.nodes.iter().filter_map(|(node, cpus)| {
        let cpu = cpus.first()?;
        let socket =
            files.read_value(&format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"))?;
        Some((*node, socket))
    });
    MachineStorageFacts {
        mounts: files
            .read_text("proc/self/mountinfo")
            .map(|text| text.lines().filter_map(parse_mount).collect()),
        disks: disk_nodes(files),
        sockets: sockets.collect(),
    }
}

fn disk_nodes(files: &SysFiles) -> Vec<(String, u32)> {
    let names = files.list_directory("sys/block").unwrap_or_default();
    names
        .iter()
        .filter_map(|name| {
            let function = nic::pci_function(files, &format!("sys/block/{name}"))?;
            Some((name.clone(), files.read_value(&format!("{function}/numa_node"))?))
        })
        .collect()
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext3 /dev/root rw,errors=continue`
fn parse_mount(line: &str) -> Option<MountEntry> {
    let (of_mount, of_system) = line.split_once(" - ")?;
    let mut words = of_mount.split(' ').skip(4);
    let (point, own) = (words.next()?, words.next()?);
    let mut words = of_system.split(' ');
    let (kind, source, of_system) = (words.next()?, words.next()?, words.next().unwrap_or_default());
    Some(MountEntry {
        point: unescape(point).into(),
        kind: kind.into(),
        source: unescape(source),
        options: own.split(',').chain(of_system.split(',')).map(str::to_owned).collect(),
    })
}

/// Space, tab, newline and backslash are escaped as three octal digits.
fn unescape(word: &str) -> String {
    let escapes = [(r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")];
    escapes.iter().fold(word.to_string(), |word, (escape, character)| word.replace(escape, character))
}

pub(super) fn evaluate(
    facts: &MachineStorageFacts,
    nics: &[HardwareNic],
    machine: &MachineFacts,
    purpose: &DoctorTransferParameters,
) -> Vec<CheckFinding> {
    let of_paths = purpose.paths.iter().flat_map(|path| evaluate_path(facts, path));
    std::iter::once(device_nodes(facts, nics, machine)).chain(of_paths).collect()
}

fn device_nodes(facts: &MachineStorageFacts, nics: &[HardwareNic], machine: &MachineFacts) -> CheckFinding {
    let wanted = "one socket";
    if !machine.is_numa() && !machine.nodes.is_empty() {
        return DEVICE_NODES.finding(CheckVerdict::Well, "one node", wanted);
    }
    let nics = nics.iter().filter_map(|nic| Some((nic.name.clone(), nic.node?)));
    let (nics, disks): (Vec<_>, _) = (nics.collect(), &facts.disks);
    if nics.is_empty() || disks.is_empty() {
        return DEVICE_NODES.unknown_finding(wanted);
    }
    let mut sockets = BTreeSet::new();
    let mut by_node: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (name, node) in nics.iter().chain(disks) {
        sockets.insert(facts.sockets.get(node).copied().unwrap_or(*node));
        by_node.entry(*node).or_default().push(name);
    }
    let present = by_node.iter().map(|(node, names)| format!("node {node}: {}", names.join(" ")));
    DEVICE_NODES.finding(
        well_if(sockets.len() == 1, CheckVerdict::Note),
        present.collect::<Vec<_>>().join("; "),
        wanted,
    )
}

fn evaluate_path(facts: &MachineStorageFacts, path: &DoctorPath) -> Vec<CheckFinding> {
    let real = match &path.real {
        Ok(real) => real,
        Err(why) => {
            let wanted = "a file or directory that this user may look at";
            return vec![MOUNT.finding(CheckVerdict::Broken, why, wanted).with_subject(&path.shown)];
        }
    };
    let Some(mount) = facts.mounts.as_deref().and_then(|mounts| mount_of(mounts, real)) else {
        return [&MOUNT, &ATIME, &WRITE_MODE]
            .map(|check| check.unknown_finding("a mount that is seen").with_subject(&path.shown))
            .into();
    };
    let mut findings = vec![mount_state(mount), atime(mount), write_mode(mount)];
    findings.extend(mount.kind.starts_with("nfs").then(|| nfs(mount)));
    findings.into_iter().map(|finding| finding.with_subject(&path.shown)).collect()
}

/// The deepest mount above the path; of several on one mount point the last covers the others.
fn mount_of<'a>(mounts: &'a [MountEntry], path: &Path) -> Option<&'a MountEntry> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count())
}

fn mount_state(mount: &MountEntry) -> CheckFinding {
    let present = format!("{} from {} at {}", mount.kind, mount.source, mount.point.display());
    let is_read_only = mount.has_option("ro");
    let present = if is_read_only { format!("{present}, read-only") } else { present };
    MOUNT
        .finding(well_if(!is_read_only, CheckVerdict::Note), present, "writable, if it is a destination")
        .with_repair_command(format!("mount -o remount,rw {}", quote_for_shell(&mount.point)))
}

fn atime(mount: &MountEntry) -> CheckFinding {
    let wanted = "relatime or noatime";
    if !LOCAL.contains(&&*mount.kind) {
        return ATIME.finding(CheckVerdict::Well, format!("the matter of {}", mount.kind), wanted);
    }
    let kept = ["noatime", "relatime", "lazytime", "ro"].into_iter().find(|option| mount.has_option(option));
    ATIME
        .finding(well_if(kept.is_some(), CheckVerdict::Improve), kept.unwrap_or("strictatime"), wanted)
        .with_repair_command(format!("mount -o remount,noatime {}", quote_for_shell(&mount.point)))
}

fn write_mode(mount: &MountEntry) -> CheckFinding {
    let slow: Vec<&str> =
        ["sync", "data=journal"].into_iter().filter(|option| mount.has_option(option)).collect();
    let present = if slow.is_empty() { "async".to_string() } else { slow.join(", ") };
    let finding = WRITE_MODE.finding(
        well_if(slow.is_empty(), CheckVerdict::Improve),
        present,
        "async, data not journalled",
    );
    // The journalling mode can't be changed by a remount.
    if mount.has_option("sync") {
        finding.with_repair_command(format!("mount -o remount,async {}", quote_for_shell(&mount.point)))
    } else {
        finding
    }
}

fn nfs(mount: &MountEntry) -> CheckFinding {
    let connections: u32 = mount.option_value("nconnect").unwrap_or(1);
    let proto: String = mount.option_value("proto").unwrap_or_else(|| "tcp".into());
    let sizes = [mount.option_value("rsize"), mount.option_value("wsize")];
    let is_large = sizes.iter().all(|size: &Option<u64>| size.is_none_or(|size| size >= NFS_REQUEST_BYTES));
    let is_parallel = connections > 1 || proto.starts_with("rdma");
    let [rsize, wsize] = sizes.map(|size| size.map_or("unknown".into(), |size| size.to_string()));
    let present = format!("proto={proto}, nconnect={connections}, rsize={rsize}, wsize={wsize}");
    let options = format!("nconnect={NFS_CONNECTIONS},rsize={NFS_REQUEST_BYTES},wsize={NFS_REQUEST_BYTES}");
    let point = quote_for_shell(&mount.point);
    NFS.finding(well_if(is_large && is_parallel, CheckVerdict::Improve), present, options.replace(',', ", "))
        .with_repair_command(format!(
            "umount {point} && mount -o {options} {} {point}",
            quote_for_shell(Path::new(&mount.source))
        ))
}

/// Quotes a path for a shell.
fn quote_for_shell(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-:,@+=[]".contains(&byte)) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
        28 27 259:1 / /data rw shared:1 - xfs /dev/nvme0n1p1 rw,attr2,inode64\n\
        29 27 259:2 / /slow rw,noatime,sync - ext4 /dev/sdb rw,sync,data=journal\n\
        30 27 0:50 / /net/a\\040b rw,relatime - nfs4 host:/export rw,vers=4.2,rsize=262144,wsize=1048576,proto=tcp\n\
        31 27 0:51 / /net/fast rw,relatime - nfs4 host:/f rw,rsize=1048576,wsize=1048576,proto=tcp,nconnect=16\n\
        32 27 0:52 / /image ro,relatime - squashfs /dev/loop0 ro\n\
        33 27 0:53 / /net/rdma rw - nfs host:/r rw,rsize=1048576,wsize=1048576,proto=rdma\n\
        broken line";

    fn facts() -> MachineStorageFacts {
        MachineStorageFacts {
            mounts: Some(TABLE.lines().filter_map(parse_mount).collect()),
            ..MachineStorageFacts::default()
        }
    }

    fn of(path: &str) -> Vec<(&'static str, CheckVerdict)> {
        let path = DoctorPath { shown: path.into(), real: Ok(path.into()) };
        evaluate_path(&facts(), &path).iter().map(|finding| (finding.check.name, finding.verdict)).collect()
    }

    #[test]
    fn a_path_is_judged_by_its_mount() {
        use CheckVerdict::{Improve, Note, Well};
        for (path, mount, atime, write_mode, nfs) in [
            ("/home/x", Well, Well, Well, None),
            ("/data/x", Well, Improve, Well, None),
            ("/database", Well, Well, Well, None),
            ("/slow", Well, Well, Improve, None),
            ("/net/a b/c", Well, Well, Well, Some(Improve)),
            ("/net/fast", Well, Well, Well, Some(Well)),
            ("/net/rdma", Well, Well, Well, Some(Well)),
            ("/image/x", Note, Well, Well, None),
        ] {
            let mut expected = vec![("mount", mount), ("atime", atime), ("write_mode", write_mode)];
            expected.extend(nfs.map(|verdict| ("nfs", verdict)));
            assert_eq!(of(path), expected, "{path}");
        }
    }

    #[test]
    fn a_path_that_is_not_there_is_broken() {
        let path = DoctorPath { shown: "x".into(), real: Err("no such file or directory".into()) };
        let findings = evaluate_path(&facts(), &path);
        assert_eq!((findings.len(), findings[0].verdict), (1, CheckVerdict::Broken));
        let path = DoctorPath { shown: "/".into(), real: Ok("/".into()) };
        let unseen = evaluate_path(&MachineStorageFacts::default(), &path);
        assert!(unseen.len() == 3 && unseen.iter().all(|finding| finding.verdict == CheckVerdict::Unknown));
    }

    #[test]
    fn commands_are_safe_in_a_shell() {
        assert_eq!(quote_for_shell(Path::new("/mnt/data-1")), "/mnt/data-1");
        assert_eq!(quote_for_shell(Path::new("/a b'; rm")), r"'/a b'\''; rm'");
        let path = DoctorPath { shown: "/net/a b".into(), real: Ok("/net/a b".into()) };
        let command = evaluate_path(&facts(), &path)[3].command.clone().unwrap();
        assert!(command.starts_with("umount '/net/a b' && mount -o nconnect=8,"), "{command}");
    }

    #[test]
    fn devices_should_share_a_socket() {
        let machine = MachineFacts {
            nodes: vec![(0, "0".parse().unwrap()), (1, "1".parse().unwrap()), (2, "2".parse().unwrap())],
            ..MachineFacts::default()
        };
        let facts = MachineStorageFacts {
            disks: vec![("nvme0n1".into(), 1)],
            sockets: [(0, 0), (1, 0), (2, 1)].into(),
            ..MachineStorageFacts::default()
        };
        for (node, verdict) in [
            (Some(1), CheckVerdict::Well),
            (Some(0), CheckVerdict::Well),
            (Some(2), CheckVerdict::Note),
            (None, CheckVerdict::Unknown),
        ] {
            let nic = HardwareNic { name: "eth0".into(), node, ..HardwareNic::default() };
            assert_eq!(device_nodes(&facts, &[nic], &machine).verdict, verdict, "{node:?}");
        }
    }
}
