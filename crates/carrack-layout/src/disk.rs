//! The disks of a block device.
//!
//! Owns the reading of sysfs (`Documentation/ABI/testing/sysfs-block`): a partition stands for its disk, and
//! a device of md or the device mapper for the disks beneath it. Never opens a device.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{major, minor};

/// Bound of stacked devices: md on dm on partitions on multipath on disks, and some.
const LEVELS_MAX: usize = 8;

/// Bound of the listed disks of one device.
const DISKS_MAX: usize = 256;

/// The disks of one block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceDisks {
    /// The label for reports: "sda", "md0 (sdb sdc)".
    pub(super) label: String,
    /// The kernel's names of the disks.
    pub(super) members: BTreeSet<String>,
}

impl DeviceDisks {
    /// The disks of the block device with this number; none if it is no block device (or sysfs, mounted at
    /// `sysfs`, lacks it).
    pub(super) fn of(sysfs: &Path, device: u64) -> Option<DeviceDisks> {
        let link = sysfs.join("dev/block").join(format!("{}:{}", major(device), minor(device)));
        let device = whole_device(&fs::canonicalize(link).ok()?)?;
        let mut members = BTreeSet::new();
        add_members(&device, LEVELS_MAX, &mut members);
        let own = mapped_name(&device).or_else(|| name_of(&device))?;
        let listed = members.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        let label = if members.len() == 1 { listed } else { format!("{own} ({listed})") };
        Some(DeviceDisks { label, members })
    }

    /// A key that is equal for two devices exactly if they lie on the same disks.
    pub(super) fn key(&self) -> String {
        self.members.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

/// The kernel's names of the disks under the file system of an open file; none if it lies on no block device.
pub fn disks_of(file: BorrowedFd<'_>) -> Vec<String> {
    let device = rustix::fs::fstat(file).map(|stat| stat.st_dev);
    let disks = device.ok().and_then(|device| DeviceDisks::of(Path::new("/sys"), device));
    disks.map_or_else(Vec::new, |disks| disks.members.into_iter().collect())
}

/// The disk of a partition, whose directory is in the disk's.
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

/// The devices beneath a device; none for a disk.
fn slaves(device: &Path) -> Vec<Box<Path>> {
    let entries = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let devices = entries.filter_map(|entry| fs::canonicalize(entry.path()).ok());
    devices.filter_map(|device| whole_device(&device)).take(DISKS_MAX).collect()
}

/// The user's name of a mapped device: "vg0-data" rather than "dm-3".
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

    /// A sysfs with disks sda (two partitions), sdb, sdc, md0 of sdb1 and sdc, a volume on sda2, one on md0,
    /// and loop0.
    fn sysfs() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        fs::create_dir_all(top.join("dev/block")).unwrap();
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
            fs::create_dir_all(top.join("devices").join(device).join("slaves")).unwrap();
            symlink(top.join("devices").join(device), top.join("dev/block").join(number)).unwrap();
        }
        for partition in ["sda/sda1", "sda/sda2", "sdb/sdb1"] {
            fs::write(top.join("devices/pci").join(partition).join("partition"), "1\n").unwrap();
        }
        for (above, below) in
            [("md0", "pci/sdb/sdb1"), ("md0", "pci/sdc"), ("dm-0", "pci/sda/sda2"), ("dm-1", "virtual/md0")]
        {
            let slave = top.join("devices/virtual").join(above).join("slaves").join(below.replace('/', "-"));
            symlink(top.join("devices").join(below), slave).unwrap();
        }
        for (device, name) in [("dm-0", "vg-root\n"), ("dm-1", "vg-data\n")] {
            fs::create_dir(top.join("devices/virtual").join(device).join("dm")).unwrap();
            fs::write(top.join("devices/virtual").join(device).join("dm/name"), name).unwrap();
        }
        dir
    }

    #[test]
    fn partitions_and_volumes_are_their_disks() {
        let sysfs = sysfs();
        fn disks(sysfs: &tempfile::TempDir, major: u32, minor: u32) -> DeviceDisks {
            DeviceDisks::of(sysfs.path(), makedev(major, minor)).unwrap()
        }
        assert_eq!(
            (disks(&sysfs, 8, 1), disks(&sysfs, 8, 2), disks(&sysfs, 253, 0)),
            (disks(&sysfs, 8, 0), disks(&sysfs, 8, 0), disks(&sysfs, 8, 0))
        );
        assert_eq!(disks(&sysfs, 8, 0).label, "sda");
        assert_eq!(disks(&sysfs, 7, 0).label, "loop0");
        assert_eq!((&*disks(&sysfs, 9, 0).label, disks(&sysfs, 9, 0).members.len()), ("md0 (sdb sdc)", 2));
        assert_eq!(disks(&sysfs, 253, 1).label, "vg-data (sdb sdc)");
        assert_eq!(disks(&sysfs, 253, 1).key(), disks(&sysfs, 9, 0).key());
        assert_ne!(disks(&sysfs, 8, 16).key(), disks(&sysfs, 9, 0).key());
        assert_eq!(DeviceDisks::of(sysfs.path(), makedev(0, 40)), None);
    }

    #[test]
    fn a_circle_of_devices_ends() {
        let sysfs = sysfs();
        let md = sysfs.path().join("devices/virtual/md0");
        symlink(sysfs.path().join("devices/virtual/dm-1"), md.join("slaves/dm-1")).unwrap();
        assert!(DeviceDisks::of(sysfs.path(), makedev(9, 0)).unwrap().members.len() >= 2);
    }
}
