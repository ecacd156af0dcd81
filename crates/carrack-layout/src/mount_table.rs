//! The kernel's list of mounts: type, source and mount point.
//!
//! Owns the reading of `/proc/self/mountinfo` (`proc_pid_mountinfo(5)`). The kernel writes the text, but any
//! user may have chosen the names in it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, StatxFlags, major, minor, statx};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountRecord {
    id: u64,
    device: (u32, u32),
    /// The mounted directory within the file system, except a directory that a server chose.
    pub(super) root: PathBuf,
    /// The mount point in this process's view.
    pub(super) point: PathBuf,
    /// The type of the file system: "ext4", "fuse.glusterfs".
    pub(super) kind: String,
    /// The mounted source: "/dev/sda1", "host:/volume".
    pub(super) source: PathBuf,
}

/// The mount of a file or directory with device number `device`; none without `/proc`.
pub(super) fn mount_of(fd: BorrowedFd<'_>, device: u64) -> Option<MountRecord> {
    find(&MountTable::current()?, mount_id(fd), (major(device), minor(device)))
}

/// The number of disks and servers mounted on directories beneath `path`, which is absolute and contains no
/// links.
pub(super) fn mounts_beneath(path: &Path) -> usize {
    MountTable::current().map_or(0, |mounts| count_beneath(&mounts, path))
}

/// The mounts at the last read. The file stays open: poll(2) reports when a mount was added, removed or
/// changed since.
struct MountTable {
    file: File,
    mounts: Arc<[MountRecord]>,
}

static KNOWN: Mutex<Option<MountTable>> = Mutex::new(None);

impl MountTable {
    /// All present mounts of this process; none without `/proc`.
    fn current() -> Option<Arc<[MountRecord]>> {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = known.as_ref().is_some_and(|table| !table.has_changed());
        if !is_current {
            *known = None;
            *known = Some(MountTable::read().ok()?);
        }
        known.as_ref().map(|table| Arc::clone(&table.mounts))
    }

    /// Reads the table. The next poll(2) reports changes after the file was opened.
    fn read() -> io::Result<MountTable> {
        let mut file = File::open("/proc/self/mountinfo")?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(MountTable { file, mounts: parse_table(&text).collect() })
    }

    /// Returns true if the mounts may have changed since they were read.
    fn has_changed(&self) -> bool {
        let mut watched = [PollFd::new(&self.file, PollFlags::PRI)];
        let polled = poll(&mut watched, Some(&Timespec::default()));
        polled.is_err() || watched[0].revents().intersects(PollFlags::PRI | PollFlags::ERR)
    }
}

/// The mount points in this text of `/proc/self/mountinfo`, with the mounts' IDs. A mount that covers another
/// comes later.
pub fn mount_points(table: &[u8]) -> Vec<(PathBuf, u64)> {
    parse_table(table).map(|mount| (mount.point, mount.id)).collect()
}

/// The mount points in this text of `/etc/fstab` (`fstab(5)`).
pub fn fstab_points(table: &[u8]) -> Vec<PathBuf> {
    table.split(|&byte| byte == b'\n').filter_map(fstab_point).collect()
}

fn fstab_point(line: &[u8]) -> Option<PathBuf> {
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let (what, point) = (words.next()?, words.next()?);
    (!what.starts_with(b"#") && point.starts_with(b"/")).then(|| decode_path(point))
}

/// Counts mounts with a slash or a colon in their source; others ("tmpfs", "proc") are the kernel's own file
/// systems.
fn count_beneath(mounts: &[MountRecord], path: &Path) -> usize {
    let beneath = mounts.iter().filter(|mount| mount.point != path && mount.point.starts_with(path));
    beneath
        .filter(|mount| mount.source.as_os_str().as_bytes().iter().any(|byte| b"/:".contains(byte)))
        .count()
}

/// The mount's ID, on Linux 5.8 and newer: a device may be mounted several times, and btrfs has more devices
/// than mounts.
fn mount_id(fd: BorrowedFd<'_>) -> Option<u64> {
    let found = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
}

/// The mount with the ID, else the last one with the device, which covers the others.
fn find(mounts: &[MountRecord], id: Option<u64>, device: (u32, u32)) -> Option<MountRecord> {
    let by_id = id.and_then(|id| mounts.iter().find(|mount| mount.id == id));
    by_id.or_else(|| mounts.iter().rfind(|mount| mount.device == device)).cloned()
}

pub(super) fn parse_table(table: &[u8]) -> impl Iterator<Item = MountRecord> {
    table.split(|&byte| byte == b'\n').filter_map(parse)
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext3 /dev/root rw`
fn parse(line: &[u8]) -> Option<MountRecord> {
    let mut words = line.split(|&byte| byte == b' ');
    let id = number(words.next()?)?;
    let mut device = words.nth(1)?.split(|&byte| byte == b':');
    let device = (number(device.next()?)?, number(device.next()?)?);
    let (root, point) = (decode_path(words.next()?), decode_path(words.next()?));
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let kind = String::from_utf8_lossy(words.next()?).into_owned();
    Some(MountRecord { id, device, root, point, kind, source: decode_path(words.next()?) })
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Decodes a path, in which space, tab, newline and backslash are three octal digits.
fn decode_path(word: &[u8]) -> PathBuf {
    let (mut name, mut rest) = (Vec::with_capacity(word.len()), word);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] if byte == b'\\' => {
                name.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = after;
            }
            _ => name.push(byte),
        }
    }
    OsString::from_vec(name).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::process::Command;

    const TABLE: &[u8] = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
        42 27 254:0 /run /run/ne\\040tns rw shared:1 master:2 - ext4 /dev/vda rw\n\
        77 27 0:50 / /mnt/v1 rw,relatime shared:9 - fuse.glusterfs 127.0.0.1:/v1 rw,user_id=0\n\
        broken line\n";

    #[test]
    fn a_mount_is_found_by_its_id_or_its_device() {
        fn find(id: Option<u64>, device: (u32, u32)) -> Option<MountRecord> {
            super::find(&parse_table(TABLE).collect::<Vec<_>>(), id, device)
        }
        let gluster = find(None, (0, 50)).unwrap();
        assert_eq!((&*gluster.kind, gluster.source.to_str()), ("fuse.glusterfs", Some("127.0.0.1:/v1")));
        assert_eq!(gluster.point.to_str(), Some("/mnt/v1"));
        assert_eq!(find(Some(27), (0, 50)).unwrap().point.to_str(), Some("/"));
        assert_eq!(find(Some(99), (254, 0)).unwrap().point.to_str(), Some("/run/ne tns"));
        assert_eq!(find(Some(42), (254, 0)).unwrap().root.to_str(), Some("/run"));
        assert_eq!(find(None, (9, 9)), None);
    }

    #[test]
    fn mount_points_are_listed() {
        let points = mount_points(TABLE);
        assert_eq!(points.len(), 4);
        assert_eq!(points[2], (PathBuf::from("/run/ne tns"), 42));
        let fstab = b"# <what> <where>\nUUID=1 / ext4 defaults 0 1\n\
            nas:/v\t/mnt/na\\040s  nfs noauto\n/dev/sda2 none swap sw 0 0\n\n#x /y z\n";
        assert_eq!(fstab_points(fstab), [PathBuf::from("/"), PathBuf::from("/mnt/na s")]);
    }

    #[test]
    fn a_mount_is_known_as_soon_as_it_is_there_and_no_longer() {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap();
        fn is_known(point: &Path) -> bool {
            MountTable::current().is_some_and(|mounts| mounts.iter().any(|mount| mount.point == point))
        }
        fn succeeds(command: &mut Command) -> bool {
            command.output().is_ok_and(|ran| ran.status.success())
        }
        assert!(!is_known(&point));
        if !succeeds(Command::new("mount").args(["-t", "tmpfs", "carrack-test"]).arg(&point)) {
            println!("skipped: mount(8) may not mount");
            return;
        }
        let was_known = is_known(&point);
        assert!(succeeds(Command::new("umount").arg(&point)));
        assert!(was_known && !is_known(&point));
    }

    #[test]
    fn this_machine_has_a_root() {
        let root = File::open("/").unwrap();
        let device = rustix::fs::fstat(&root).unwrap().st_dev;
        let Some(mount) = mount_of(root.as_fd(), device) else {
            println!("skipped: no /proc");
            return;
        };
        assert_eq!(mount.point.to_str(), Some("/"));
    }

    #[test]
    fn mounts_beneath_a_directory_are_counted() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /set/d0 rw - xfs /dev/b rw\n\
                      3 1 0:9 / /set/n rw - nfs4 host:/export rw\n4 1 0:5 / /set/run rw - tmpfs tmpfs rw\n";
        let mounts: Vec<MountRecord> = parse_table(table).collect();
        for (path, count) in [("/", 2), ("/set", 2), ("/set/d0", 0), ("/se", 0), ("/other", 0)] {
            assert_eq!(count_beneath(&mounts, Path::new(path)), count, "{path}");
        }
    }
}
