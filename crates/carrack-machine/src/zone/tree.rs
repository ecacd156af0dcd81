//! The cgroup v2 hierarchy (Documentation/admin-guide/cgroup-v2.rst): the few files that a zone reads and writes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::ZoneError;
use crate::id_set::CpuSet;

/// What a zone asks of a file system: the kernel's, or a model of it in tests.
pub(super) trait Files: Send + Sync {
    fn read(&self, path: &Path) -> io::Result<String>;
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// The names of a directory's directories.
    fn dirs(&self, path: &Path) -> io::Result<Vec<String>>;
}

struct KernelFiles;

impl Files for KernelFiles {
    fn read(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        // In one call, as these files want it, and never a new file.
        io::Write::write_all(&mut fs::OpenOptions::new().write(true).open(path)?, text.as_bytes())
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn dirs(&self, path: &Path) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(path)?.filter_map(Result::ok);
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        Ok(dirs.filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }
}

/// A cgroup v2 hierarchy, and the processes that live in it.
pub struct CgroupTree {
    root: PathBuf,
    proc: PathBuf,
    files: Box<dyn Files>,
}

impl CgroupTree {
    /// This machine's, wherever it is mounted; nothing where it is not.
    pub fn of_this_machine() -> Option<CgroupTree> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        Some(CgroupTree::at(&mount_point(&mounts)?, Path::new("/proc")))
    }

    /// The one beneath `root`, with the processes that are told of beneath `proc`.
    pub fn at(root: &Path, proc: &Path) -> CgroupTree {
        CgroupTree::of_files(root, proc, Box::new(KernelFiles))
    }

    pub(super) fn of_files(root: &Path, proc: &Path, files: Box<dyn Files>) -> CgroupTree {
        CgroupTree { root: root.to_path_buf(), proc: proc.to_path_buf(), files }
    }

    /// Where a child of the top of the hierarchy is.
    pub(super) fn group(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Whether this is the top of the machine's hierarchy and not of a container's: only others have a type.
    pub(super) fn is_top(&self) -> bool {
        self.files.read(&self.root.join("cgroup.type")).is_err()
    }

    /// Whether the hierarchy may divide CPUs; not where a v1 hierarchy has taken that over.
    pub(super) fn can_divide_cpus(&self) -> bool {
        self.has_word("cgroup.controllers", "cpuset")
    }

    /// Whether it does so already.
    pub(super) fn divides_cpus(&self) -> bool {
        self.has_word("cgroup.subtree_control", "cpuset")
    }

    /// Lets it, or does so no longer.
    pub(super) fn divide_cpus(&self, on: bool) -> Result<(), ZoneError> {
        self.write(&self.root.join("cgroup.subtree_control"), if on { "+cpuset" } else { "-cpuset" })
    }

    /// Whether any group beneath the top has CPUs of its own.
    pub(super) fn has_divided_cpus(&self) -> bool {
        let cpus = |name: &String| self.files.read(&self.root.join(name).join("cpuset.cpus"));
        let names = self.files.dirs(&self.root).unwrap_or_default();
        names.iter().filter_map(|name| cpus(name).ok()).any(|cpus| !cpus.trim().is_empty())
    }

    /// The CPUs that the top has left for those who are in no zone.
    pub(super) fn cpus_for_all(&self) -> Result<CpuSet, ZoneError> {
        let path = self.root.join("cpuset.cpus.effective");
        let text = self.read(&path)?;
        text.parse().map_err(|error| ZoneError::refused("read", &path, io::Error::other(error)))
    }

    /// Names of the groups beneath the top.
    pub(super) fn groups(&self) -> Result<Vec<String>, ZoneError> {
        self.files.dirs(&self.root).map_err(|error| ZoneError::refused("list", &self.root, error))
    }

    pub(super) fn make(&self, group: &Path) -> Result<(), ZoneError> {
        self.files.make_dir(group).map_err(|error| ZoneError::refused("make", group, error))
    }

    /// Gives an empty group's CPUs back and removes it; one that somebody else has removed is as good. Without the first the
    /// kernel would give them back some time after the group is gone.
    pub(super) fn remove(&self, group: &Path) -> Result<(), ZoneError> {
        let _ = self.set(group, "cpuset.cpus.partition", "member");
        match self.files.remove_dir(group) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(ZoneError::refused("remove", group, error))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn set(&self, group: &Path, file: &str, text: &str) -> Result<(), ZoneError> {
        self.write(&group.join(file), text)
    }

    pub(super) fn get(&self, group: &Path, file: &str) -> Result<String, ZoneError> {
        Ok(self.read(&group.join(file))?.trim().to_string())
    }

    /// The processes in a group; 0 stands for those of which this process may not know.
    pub(super) fn members(&self, group: &Path) -> Vec<u32> {
        let text = self.files.read(&group.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    /// Moves a process into a group, else to the top, which takes everybody.
    pub(super) fn move_to(&self, pid: u32, group: &Path) -> Result<(), ZoneError> {
        self.enter(pid, group).or_else(|_| self.enter(pid, &self.root))
    }

    pub(super) fn enter(&self, pid: u32, group: &Path) -> Result<(), ZoneError> {
        self.write(&group.join("cgroup.procs"), &pid.to_string())
    }

    /// The group that this process is in.
    pub(super) fn own_group(&self) -> Result<PathBuf, ZoneError> {
        let text = self.read(&self.proc.join("self/cgroup"))?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        Ok(self.root.join(path))
    }

    /// When a process was started, in ticks since boot: together with its number it is not used again (proc_pid_stat(5)).
    pub(super) fn start_of(&self, pid: u32) -> Option<u64> {
        let stat = self.files.read(&self.proc.join(pid.to_string()).join("stat")).ok()?;
        // Its name, in parentheses, may hold blanks and parentheses itself; after it comes field 3.
        stat.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()
    }

    /// The same for this process, which surely has one.
    pub(super) fn own_start(&self, pid: u32) -> Result<u64, ZoneError> {
        let stat = self.proc.join(pid.to_string()).join("stat");
        self.start_of(pid).ok_or_else(|| ZoneError::refused("read", &stat, io::ErrorKind::NotFound.into()))
    }

    fn has_word(&self, file: &str, word: &str) -> bool {
        let text = self.files.read(&self.root.join(file)).unwrap_or_default();
        text.split_whitespace().any(|found| found == word)
    }

    fn read(&self, path: &Path) -> Result<String, ZoneError> {
        self.files.read(path).map_err(|error| ZoneError::refused("read", path, error))
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), ZoneError> {
        self.files.write(path, text).map_err(|error| ZoneError::refused("write", path, error))
    }
}

/// Where /proc/self/mountinfo says that cgroup v2 is mounted.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    let is_cgroup2 =
        |line: &&str| line.split_once(" - ").is_some_and(|(_, kind)| kind.starts_with("cgroup2 "));
    let line = mounts.lines().find(is_cgroup2)?;
    // A mount point with blanks would be escaped; nobody mounts this one so.
    line.split(' ').nth(4).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_wherever_it_is_mounted() {
        let v1 = "33 25 0:29 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n";
        let mixed = format!("{v1}42 25 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
        assert_eq!(mount_point(v1), None);
        assert_eq!(mount_point(&mixed), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        let pure = "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(mount_point(pure), Some(PathBuf::from("/sys/fs/cgroup")));
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        let tree = CgroupTree::at(Path::new("/nowhere"), Path::new("/proc"));
        let start = tree.start_of(std::process::id()).unwrap();
        assert!(start > 0);
        assert_eq!(tree.start_of(std::process::id()), Some(start));
        assert_eq!(tree.start_of(u32::MAX), None);
    }
}
