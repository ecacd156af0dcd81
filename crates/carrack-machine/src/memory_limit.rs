//! Memory limits of this process: its cgroups at each level up to the top of the hierarchy (v1 and v2, also
//! within a container), and its resource limits (`ulimit -v`, `ulimit -d`).
//!
//! Page cache does not count as used, as the kernel reclaims it. Memory of other processes in a cgroup
//! counts.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use crate::cached_fact::CachedFact;
use crate::{Resource, SysFiles, resource_limit};

/// Maximum age of a limit. A session touches its buffers well after it planned them, so that a shorter time
/// would improve no plan.
const FRESH_FOR: Duration = Duration::from_millis(250);

/// A limit, and its unused part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Source of the limit, for people.
    pub origin: String,
    /// The limit itself.
    pub limit_bytes: u64,
    /// Unused bytes.
    pub free_bytes: u64,
}

impl MemoryLimit {
    /// The tightest limit, if there is any. It may be a quarter of a second old.
    pub fn of_this_process() -> Option<MemoryLimit> {
        static KNOWN: CachedFact<Option<MemoryLimit>> = CachedFact::new(FRESH_FOR);
        KNOWN.get(|| {
            let files = SysFiles::of_this_machine();
            let limits = cgroup_limits(&files).into_iter().chain(resource_limits(&files));
            limits.min_by_key(|limit| limit.free_bytes)
        })
    }

    /// The tightest limit of cgroups.
    pub fn of_cgroups(files: &SysFiles) -> Option<MemoryLimit> {
        cgroup_limits(files).into_iter().min_by_key(|limit| limit.free_bytes)
    }
}

/// Limits glibc to one heap for all threads if the address space or the memory is limited: each further heap
/// reserves 64 MiB and keeps the memory that its threads free.
#[allow(unsafe_code)]
pub fn limit_malloc_arenas() {
    #[cfg(target_env = "gnu")]
    if MemoryLimit::of_this_process().is_some_and(|limit| limit.free_bytes < FEW_HEAPS_BYTES) {
        // SAFETY: mallopt(3) takes two integers and may be called at any time.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// Above this size the heaps of each core's threads don't matter.
#[cfg(target_env = "gnu")]
const FEW_HEAPS_BYTES: u64 = 1 << 30;

/// A v1 hierarchy's value for no limit: the largest number of whole pages (kernel documentation,
/// cgroup-v1/memory).
const V1_UNLIMITED_BYTES: u64 = i64::MAX as u64 / 4096 * 4096;

/// A version of the cgroup interface.
struct CgroupInterface {
    /// File system type in mountinfo.
    file_system: &'static str,
    /// Files that hold limits.
    limits: &'static [&'static str],
    /// Lines of `memory.stat` that count memory which can't be reclaimed.
    used: &'static [&'static str],
}

static V1: CgroupInterface = CgroupInterface {
    file_system: "cgroup",
    limits: &["memory.limit_in_bytes"],
    used: &["total_rss", "total_shmem", "total_unevictable"],
};

/// Beyond `memory.high` the kernel does not kill the process, but throttles it almost to a halt.
static V2: CgroupInterface = CgroupInterface {
    file_system: "cgroup2",
    limits: &["memory.max", "memory.high"],
    used: &["anon", "shmem", "sock", "slab_unreclaimable", "kernel_stack"],
};

fn cgroup_limits(files: &SysFiles) -> Vec<MemoryLimit> {
    let [groups, mounts] = ["proc/self/cgroup", "proc/self/mountinfo"].map(|path| files.read_text(path));
    let (Some(groups), Some(mounts)) = (groups, mounts) else { return Vec::new() };
    let mut limits = Vec::new();
    for interface in [&V1, &V2] {
        for level in cgroup_directories(interface, &groups, &mounts) {
            limits.extend(limits_at(files, interface, &level));
        }
    }
    limits
}

/// The directories of this process's group and of its ancestors.
fn cgroup_directories(interface: &CgroupInterface, groups: &str, mounts: &str) -> Vec<PathBuf> {
    let is_v1 = interface.file_system == V1.file_system;
    let group = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_it =
            if is_v1 { controllers.split(',').any(|one| one == "memory") } else { controllers.is_empty() };
        is_it.then(|| PathBuf::from(path))
    });
    let mount = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let is_type = after.next()? == interface.file_system;
        let is_memory = !is_v1 || after.next_back()?.split(',').any(|option| option == "memory");
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (PathBuf::from(fields.next()?), PathBuf::from(fields.next()?));
        (is_type && is_memory).then_some((root, point))
    });
    let (Some(group), Some((root, point))) = (group, mount) else { return Vec::new() };
    // In a container the path may be outside of the mounted root.
    let below = group.strip_prefix(&root).unwrap_or(Path::new(""));
    let below = if below.components().all(|part| matches!(part, Component::Normal(_))) {
        below
    } else {
        Path::new("")
    };
    below.ancestors().map(|level| point.join(level)).collect()
}

fn limits_at(files: &SysFiles, interface: &CgroupInterface, level: &Path) -> Vec<MemoryLimit> {
    let Some(shown) = level.to_str() else { return Vec::new() };
    let directory = shown.trim_start_matches('/').trim_end_matches('/');
    let limits = interface.limits.iter().filter_map(|name| {
        let path = format!("{directory}/{name}");
        let limit: u64 = files.read_value(&path)?;
        (limit < V1_UNLIMITED_BYTES).then_some((format!("/{path}"), limit))
    });
    let limits: Vec<_> = limits.collect();
    if limits.is_empty() {
        return Vec::new();
    }
    let used =
        used_bytes(&files.read_text(&format!("{directory}/memory.stat")).unwrap_or_default(), interface.used);
    limits
        .into_iter()
        .map(|(origin, limit_bytes)| MemoryLimit {
            origin,
            limit_bytes,
            free_bytes: limit_bytes.saturating_sub(used),
        })
        .collect()
}

fn used_bytes(stat: &str, names: &[&str]) -> u64 {
    stat.lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            names.contains(&name).then(|| value.trim().parse::<u64>().ok()).flatten()
        })
        .fold(0, u64::saturating_add)
}

/// Limits of the address space and the data segment of this process.
fn resource_limits(files: &SysFiles) -> Vec<MemoryLimit> {
    let status = files.read_text("proc/self/status").unwrap_or_default();
    let limits =
        [(Resource::RLIMIT_AS, "ulimit -v", "VmSize:"), (Resource::RLIMIT_DATA, "ulimit -d", "VmData:")];
    limits
        .into_iter()
        .filter_map(|(resource, origin, line)| {
            let limit_bytes = resource_limit(resource)?;
            let used = kib_of(&status, line).unwrap_or(0).saturating_mul(1024);
            Some(MemoryLimit {
                origin: origin.to_owned(),
                limit_bytes,
                free_bytes: limit_bytes.saturating_sub(used),
            })
        })
        .collect()
}

/// Reads a line of `/proc/self/status` (proc_pid_status(5)).
fn kib_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A machine with these files.
    fn machine(contents: &[(&str, &str)]) -> (tempfile::TempDir, SysFiles) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in contents {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let files = SysFiles::with_root(root.path());
        (root, files)
    }

    const V1_MOUNT: &str = "32 25 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n\
        33 25 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
    const V2_MOUNT: &str = "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_level_that_leaves_least_counts() {
        let (_root, files) = machine(&[
            ("proc/self/cgroup", "0::/job/step\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/job/step/memory.max", "max\n"),
            ("sys/fs/cgroup/job/step/memory.high", "104857600\n"),
            ("sys/fs/cgroup/job/step/memory.stat", "anon 4194304\nfile 90000000\nsock 1048576\n"),
            ("sys/fs/cgroup/job/memory.max", "209715200\n"),
            ("sys/fs/cgroup/job/memory.stat", "anon 146800640\nfile 0\n"),
        ]);
        let limit = MemoryLimit::of_cgroups(&files).unwrap();
        assert_eq!((limit.limit_bytes, limit.free_bytes), (200 * MIB, 60 * MIB));
        assert_eq!(limit.origin, "/sys/fs/cgroup/job/memory.max");
        let limits = cgroup_limits(&files);
        assert!(limits.iter().any(|limit| limit.free_bytes == 95 * MIB), "{limits:?}");
    }

    #[test]
    fn version_1_has_its_own_files() {
        let (_root, files) = machine(&[
            ("proc/self/cgroup", "8:cpu:/other\n4:memory,hugetlb:/batch/7\n0::/\n"),
            ("proc/self/mountinfo", V1_MOUNT),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/batch/memory.limit_in_bytes", "134217728\n"),
            ("sys/fs/cgroup/memory/batch/memory.stat", "rss 1\ntotal_rss 8388608\ntotal_cache 99999999\n"),
            ("sys/fs/cgroup/memory/batch/7/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        let limit = MemoryLimit::of_cgroups(&files).unwrap();
        assert_eq!((limit.limit_bytes, limit.free_bytes), (128 * MIB, 120 * MIB));
    }

    #[test]
    fn a_container_sees_its_own_part() {
        let mount = "32 25 0:32 /docker/a1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        for group in ["/docker/a1", "/docker/a1/child", "/", "/../../elsewhere"] {
            let (_root, files) = machine(&[
                ("proc/self/cgroup", &format!("4:memory:{group}\n")),
                ("proc/self/mountinfo", mount),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n"),
            ]);
            let limit = MemoryLimit::of_cgroups(&files).map(|limit| limit.free_bytes);
            assert_eq!(limit, Some(100 * MIB), "{group}");
        }
        let (_root, files) = machine(&[]);
        assert_eq!(MemoryLimit::of_cgroups(&files), None);
        let (_root, files) = machine(&[("proc/self/cgroup", "0::/\n"), ("proc/self/mountinfo", V2_MOUNT)]);
        assert_eq!(MemoryLimit::of_cgroups(&files), None);
    }

    #[test]
    fn what_this_process_has_is_taken_off() {
        assert_eq!(kib_of("Name:\tx\nVmSize:\t  2048 kB\n", "VmSize:"), Some(2048));
        assert_eq!(kib_of("Name:\tx\n", "VmSize:"), None);
    }
}
