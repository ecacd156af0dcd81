//! Which disks a block device lies on.
//!
//! Owns the reading of sysfs (`Documentation/ABI/testing/sysfs-block`): a partition is its disk, and what md and the
//! device mapper make of other devices is those. Never opens a device.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{major, minor};

/// md on dm on partitions on multipath on disks, and some.
const LEVELS_MAX: usize = 8;

/// Disks of one device that are listed.
const DISKS_MAX: usize = 256;

/// The disks of one block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Disks {
    /// Names that people know: "sda", "md0 (sdb sdc)".
    pub(super) label: String,
    /// The disks themselves, by the kernel's names.
    pub(super) members: BTreeSet<String>,
}

impl Disks {
    /// Of the block device with this number; nothing if it is none (or sysfs, mounted at `sysfs`, doesn't know it).
    pub(super) fn of(sysfs: &Path, device: u64) -> Option<Disks> {
        let link = sysfs.join("dev/block").join(format!("{}:{}", major(device), minor(device)));
        let device = whole_device(&fs::canonicalize(link).ok()?)?;
        let mut members = BTreeSet::new();
        add_members(&device, LEVELS_MAX, &mut members);
        let own = mapped_name(&device).or_else(|| name_of(&device))?;
        let listed = members.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        let label = if members.len() == 1 { listed } else { format!("{own} ({listed})") };
        Some(Disks { label, members })
    }

    /// Equal for two devices exactly if they lie on the same disks.
    pub(super) fn key(&self) -> String {
        self.members.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

/// The disks that the file system of an open file lies on, by the kernel's names; none where it lies on no block device.
pub fn disks_of(file: BorrowedFd<'_>) -> Vec<String> {
    let device = rustix::fs::fstat(file).map(|stat| stat.st_dev);
    let disks = device.ok().and_then(|device| Disks::of(Path::new("/sys"), device));
    disks.map_or_else(Vec::new, |disks| disks.members.into_iter().collect())
}

/// A partition's directory lies in its disk's.
fn whole_device(directory: &Path) -> Option<Box<Path>> {
    let whole = if directory.join("partition").exists() { directory.parent()? } else { directory };
    Some(whole.into())
}

fn add_members(device: &Path, levels: usize, members: &mut BTreeSet<String>) {
    let below = if levels > 0 { slaves(device) } else { Vec::new() };
    if below.is_empty() && members.len() < DISKS_MAX {
        members.extend(name_of(device));
    }
    for device in below {
        add_members(&device, levels - 1, members);
    }
}

/// What a device is made of; nothing for a disk.
fn slaves(device: &Path) -> Vec<Box<Path>> {
    let entries = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let devices = entries.filter_map(|entry| fs::canonicalize(entry.path()).ok());
    devices.filter_map(|device| whole_device(&device)).take(DISKS_MAX).collect()
}

/// What the device mapper's user called it: "vg0-data" rather than "dm-3".
fn mapped_name(device: &Path) -> Option<String> {
    let name = fs::read_to_string(device.join("dm/name")).ok()?;
    Some(name.trim_end().to_owned()).filter(|name| !name.is_empty())
}

fn name_of(device: &Path) -> Option<String> {
    Some(device.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::makedev;
    use std::os::unix::fs::symlink;

    /// A sysfs with disks sda (two partitions), sdb, sdc, md0 of sdb1 and sdc, a volume on sda2, one on md0, and loop0.
    fn sysfs() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("dev/block")).unwrap();
        for (number, device) in [
            ("8:0", "pci/sda"),
            ("8:1", "pci/sda/sda1"),
            ("8:2", "pci/sda/sda2"),
            ("8:16", "pci/sdb"),
            ("8:17", "pci/sdb/sdb1"),
            ("8:32", "pci/sdc"),
            ("9:0", "virtual/md0"),
            ("253:0", "virtual/dm-0"),
            ("253:1", "virtual/dm-1"),
            ("7:0", "virtual/loop0"),
        ] {
            fs::create_dir_all(at("devices").join(device).join("slaves")).unwrap();
            symlink(at("devices").join(device), at("dev/block").join(number)).unwrap();
        }
        for partition in ["sda/sda1", "sda/sda2", "sdb/sdb1"] {
            fs::write(at("devices/pci").join(partition).join("partition"), "1\n").unwrap();
        }
        for (above, below) in
            [("md0", "pci/sdb/sdb1"), ("md0", "pci/sdc"), ("dm-0", "pci/sda/sda2"), ("dm-1", "virtual/md0")]
        {
            let slave = at("devices/virtual").join(above).join("slaves").join(below.replace('/', "-"));
            symlink(at("devices").join(below), slave).unwrap();
        }
        for (device, name) in [("dm-0", "vg-root\n"), ("dm-1", "vg-data\n")] {
            fs::create_dir(at("devices/virtual").join(device).join("dm")).unwrap();
            fs::write(at("devices/virtual").join(device).join("dm/name"), name).unwrap();
        }
        dir
    }

    #[test]
    fn partitions_and_volumes_are_their_disks() {
        let sysfs = sysfs();
        let disks = |major, minor| Disks::of(sysfs.path(), makedev(major, minor)).unwrap();
        assert_eq!((disks(8, 1), disks(8, 2), disks(253, 0)), (disks(8, 0), disks(8, 0), disks(8, 0)));
        assert_eq!(disks(8, 0).label, "sda");
        assert_eq!(disks(7, 0).label, "loop0");
        assert_eq!((&*disks(9, 0).label, disks(9, 0).members.len()), ("md0 (sdb sdc)", 2));
        assert_eq!(disks(253, 1).label, "vg-data (sdb sdc)");
        assert_eq!(disks(253, 1).key(), disks(9, 0).key());
        assert_ne!(disks(8, 16).key(), disks(9, 0).key());
        assert_eq!(Disks::of(sysfs.path(), makedev(0, 40)), None);
    }

    #[test]
    fn a_circle_of_devices_ends() {
        let sysfs = sysfs();
        let md = sysfs.path().join("devices/virtual/md0");
        symlink(sysfs.path().join("devices/virtual/dm-1"), md.join("slaves/dm-1")).unwrap();
        assert!(Disks::of(sysfs.path(), makedev(9, 0)).unwrap().members.len() >= 2);
    }
}
