//! The cgroup v2 hierarchy (Documentation/admin-guide/cgroup-v2.rst): the files that a zone reads and writes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::CoreZoneError;
use crate::id_set::CpuSet;

/// File operations of a zone: the kernel's, or a model in tests.
pub(super) trait CgroupFileOperations: Send + Sync {
    fn read(&self, path: &Path) -> io::Result<String>;
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// The names of a directory's subdirectories.
    fn list_dirs(&self, path: &Path) -> io::Result<Vec<String>>;
}

struct KernelCgroupFiles;

impl CgroupFileOperations for KernelCgroupFiles {
    fn read(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        // In one call, as these files require, and never a new file.
        io::Write::write_all(&mut fs::OpenOptions::new().write(true).open(path)?, text.as_bytes())
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list_dirs(&self, path: &Path) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(path)?.filter_map(Result::ok);
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        Ok(dirs.filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }
}

/// A cgroup v2 hierarchy, and its processes.
pub struct CgroupTree {
    root: PathBuf,
    proc: PathBuf,
    files: Box<dyn CgroupFileOperations>,
}

impl CgroupTree {
    /// The hierarchy of this machine; `None` if it is not mounted.
    pub fn of_this_machine() -> Option<CgroupTree> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        Some(CgroupTree::with_roots(&mount_point(&mounts)?, Path::new("/proc")))
    }

    /// The hierarchy at `root`, with its processes' files at `proc`.
    pub fn with_roots(root: &Path, proc: &Path) -> CgroupTree {
        CgroupTree::of_files(root, proc, Box::new(KernelCgroupFiles))
    }

    pub(super) fn of_files(root: &Path, proc: &Path, files: Box<dyn CgroupFileOperations>) -> CgroupTree {
        CgroupTree { root: root.to_path_buf(), proc: proc.to_path_buf(), files }
    }

    /// Path of a child of the top of the hierarchy.
    pub(super) fn group(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns true for the top of the machine's hierarchy, and false for a container's: only others have a
    /// type.
    pub(super) fn is_top(&self) -> bool {
        self.files.read(&self.root.join("cgroup.type")).is_err()
    }

    /// Returns true if the hierarchy can divide CPUs; false if a v1 hierarchy has the controller.
    pub(super) fn can_divide_cpus(&self) -> bool {
        self.has_word("cgroup.controllers", "cpuset")
    }

    /// Returns true if the hierarchy divides CPUs now.
    pub(super) fn divides_cpus(&self) -> bool {
        self.has_word("cgroup.subtree_control", "cpuset")
    }

    /// Enables or disables the division of CPUs.
    pub(super) fn set_cpu_division(&self, on: bool) -> Result<(), CoreZoneError> {
        self.write(&self.root.join("cgroup.subtree_control"), if on { "+cpuset" } else { "-cpuset" })
    }

    /// Returns true if any group below the top has its own CPUs.
    pub(super) fn has_group_with_cpus(&self) -> bool {
        let names = self.files.list_dirs(&self.root).unwrap_or_default();
        let paths = names.iter().map(|name| self.root.join(name).join("cpuset.cpus"));
        paths.filter_map(|path| self.files.read(&path).ok()).any(|cpus| !cpus.trim().is_empty())
    }

    /// The CPUs at the top that are in no zone.
    pub(super) fn unassigned_cpus(&self) -> Result<CpuSet, CoreZoneError> {
        let path = self.root.join("cpuset.cpus.effective");
        let text = self.read(&path)?;
        text.parse().map_err(|error| CoreZoneError::refused("read", &path, io::Error::other(error)))
    }

    /// Names of the groups below the top.
    pub(super) fn groups(&self) -> Result<Vec<String>, CoreZoneError> {
        self.files.list_dirs(&self.root).map_err(|error| CoreZoneError::refused("list", &self.root, error))
    }

    pub(super) fn make(&self, group: &Path) -> Result<(), CoreZoneError> {
        self.files.make_dir(group).map_err(|error| CoreZoneError::refused("make", group, error))
    }

    /// Returns an empty group's CPUs and removes it; a group that is gone already is no error. Without the
    /// first step the kernel would return the CPUs some time after the removal.
    pub(super) fn remove(&self, group: &Path) -> Result<(), CoreZoneError> {
        let _ = self.set(group, "cpuset.cpus.partition", "member");
        match self.files.remove_dir(group) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(CoreZoneError::refused("remove", group, error))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn set(&self, group: &Path, file: &str, text: &str) -> Result<(), CoreZoneError> {
        self.write(&group.join(file), text)
    }

    pub(super) fn get(&self, group: &Path, file: &str) -> Result<String, CoreZoneError> {
        Ok(self.read(&group.join(file))?.trim().to_string())
    }

    /// The processes in a group; 0 for invisible ones.
    pub(super) fn members(&self, group: &Path) -> Vec<u32> {
        let text = self.files.read(&group.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    /// Moves a process into a group, or else to the top, which accepts every process.
    pub(super) fn move_to(&self, pid: u32, group: &Path) -> Result<(), CoreZoneError> {
        self.add_process(pid, group).or_else(|_| self.add_process(pid, &self.root))
    }

    pub(super) fn add_process(&self, pid: u32, group: &Path) -> Result<(), CoreZoneError> {
        self.write(&group.join("cgroup.procs"), &pid.to_string())
    }

    /// The group of this process.
    pub(super) fn own_group(&self) -> Result<PathBuf, CoreZoneError> {
        let text = self.read(&self.proc.join("self/cgroup"))?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        Ok(self.root.join(path))
    }

    /// Start time of a process in ticks since boot: unique together with its ID (proc_pid_stat(5)).
    pub(super) fn start_time_of(&self, pid: u32) -> Option<u64> {
        let stat = self.files.read(&self.proc.join(pid.to_string()).join("stat")).ok()?;
        // The name, in parentheses, may itself have blanks and parentheses; field 3 follows.
        stat.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()
    }

    /// Start time of this process.
    pub(super) fn own_start_time(&self, pid: u32) -> Result<u64, CoreZoneError> {
        let stat = self.proc.join(pid.to_string()).join("stat");
        self.start_time_of(pid)
            .ok_or_else(|| CoreZoneError::refused("read", &stat, io::ErrorKind::NotFound.into()))
    }

    fn has_word(&self, file: &str, word: &str) -> bool {
        let text = self.files.read(&self.root.join(file)).unwrap_or_default();
        text.split_whitespace().any(|found| found == word)
    }

    fn read(&self, path: &Path) -> Result<String, CoreZoneError> {
        self.files.read(path).map_err(|error| CoreZoneError::refused("read", path, error))
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), CoreZoneError> {
        self.files.write(path, text).map_err(|error| CoreZoneError::refused("write", path, error))
    }
}

/// Mount point of cgroup v2 in /proc/self/mountinfo.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    let line = mounts
        .lines()
        .find(|line| line.split_once(" - ").is_some_and(|(_, kind)| kind.starts_with("cgroup2 ")))?;
    // Blanks in a mount point would be escaped, which does not occur here.
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
        let tree = CgroupTree::with_roots(Path::new("/nowhere"), Path::new("/proc"));
        let start = tree.start_time_of(std::process::id()).unwrap();
        assert!(start > 0);
        assert_eq!(tree.start_time_of(std::process::id()), Some(start));
        assert_eq!(tree.start_time_of(u32::MAX), None);
    }
}
