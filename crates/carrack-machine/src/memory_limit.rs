//! How much memory this process may use: what its cgroups leave to it, at each level up to the top of the hierarchy (v1 and v2, also
//! within a container), and what its resource limits do (`ulimit -v`, `ulimit -d`).
//!
//! Page cache does not count as used: the kernel takes it back. What other processes of a cgroup have for themselves does.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use crate::recent::Recent;
use crate::{Resource, SysFiles, resource_limit};

/// How long a limit that was read counts. Buffers are taken into use well after they were planned with it, so that a shorter time would
/// make no session's plan any better.
const FRESH_FOR: Duration = Duration::from_millis(250);

/// A limit, and what of it is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Whose it is, for people.
    pub origin: String,
    /// The limit.
    pub limit_bytes: u64,
    /// What nobody uses now.
    pub free_bytes: u64,
}

impl MemoryLimit {
    /// The limit that leaves this process least; nothing without any. It may be a quarter of a second old.
    pub fn of_this_process() -> Option<MemoryLimit> {
        static KNOWN: Recent<Option<MemoryLimit>> = Recent::new(FRESH_FOR);
        KNOWN.get(|| {
            let files = SysFiles::here();
            let limits = cgroup_limits(&files).into_iter().chain(resource_limits(&files));
            limits.min_by_key(|limit| limit.free_bytes)
        })
    }

    /// The same of cgroups alone.
    pub fn of_cgroups(files: &SysFiles) -> Option<MemoryLimit> {
        cgroup_limits(files).into_iter().min_by_key(|limit| limit.free_bytes)
    }
}

/// Has glibc keep to one heap for all threads if the address space or the memory is limited: each further one reserves 64 MiB and keeps
/// what its thread has freed.
#[allow(unsafe_code)]
pub fn keep_heaps_few() {
    #[cfg(target_env = "gnu")]
    if MemoryLimit::of_this_process().is_some_and(|limit| limit.free_bytes < FEW_HEAPS_BYTES) {
        // SAFETY: mallopt(3) takes two integers and may be called at any time.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// With more than this, a heap for each core's threads does not matter.
#[cfg(target_env = "gnu")]
const FEW_HEAPS_BYTES: u64 = 1 << 30;

/// A v1 hierarchy says so where there is no limit: the largest number of whole pages (kernel documentation, cgroup-v1/memory).
const V1_UNLIMITED_BYTES: u64 = i64::MAX as u64 / 4096 * 4096;

/// A version of the interface.
struct Interface {
    /// The type in mountinfo.
    file_system: &'static str,
    /// The files that hold limits.
    limits: &'static [&'static str],
    /// The lines of `memory.stat` that count what can't be taken back.
    used: &'static [&'static str],
}

static V1: Interface = Interface {
    file_system: "cgroup",
    limits: &["memory.limit_in_bytes"],
    used: &["total_rss", "total_shmem", "total_unevictable"],
};

/// Beyond `memory.high` the kernel does not kill, but slows the process down until it hardly moves.
static V2: Interface = Interface {
    file_system: "cgroup2",
    limits: &["memory.max", "memory.high"],
    used: &["anon", "shmem", "sock", "slab_unreclaimable", "kernel_stack"],
};

fn cgroup_limits(files: &SysFiles) -> Vec<MemoryLimit> {
    let read = || Some((files.text("proc/self/cgroup")?, files.text("proc/self/mountinfo")?));
    let Some((groups, mounts)) = read() else { return Vec::new() };
    let of = |interface: &'static Interface| {
        let levels = levels(interface, &groups, &mounts);
        levels.into_iter().flat_map(|level| limits_at(files, interface, &level)).collect::<Vec<_>>()
    };
    [of(&V1), of(&V2)].concat()
}

/// The directories of this process's group and of those above it.
fn levels(interface: &Interface, groups: &str, mounts: &str) -> Vec<PathBuf> {
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
    // In a container the path may begin elsewhere than what is mounted there.
    let below = group.strip_prefix(&root).unwrap_or(Path::new(""));
    let below = if below.components().all(|part| matches!(part, Component::Normal(_))) {
        below
    } else {
        Path::new("")
    };
    below.ancestors().map(|level| point.join(level)).collect()
}

fn limits_at(files: &SysFiles, interface: &Interface, level: &Path) -> Vec<MemoryLimit> {
    let Some(shown) = level.to_str() else { return Vec::new() };
    let directory = shown.trim_start_matches('/').trim_end_matches('/');
    let limits = interface.limits.iter().filter_map(|name| {
        let path = format!("{directory}/{name}");
        let limit: u64 = files.value(&path)?;
        (limit < V1_UNLIMITED_BYTES).then_some((format!("/{path}"), limit))
    });
    let limits: Vec<_> = limits.collect();
    if limits.is_empty() {
        return Vec::new();
    }
    let used =
        used_bytes(&files.text(&format!("{directory}/memory.stat")).unwrap_or_default(), interface.used);
    let limit_of = |(origin, limit_bytes): (String, u64)| MemoryLimit {
        origin,
        limit_bytes,
        free_bytes: limit_bytes.saturating_sub(used),
    };
    limits.into_iter().map(limit_of).collect()
}

fn used_bytes(stat: &str, names: &[&str]) -> u64 {
    let line = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        names.contains(&name).then(|| value.trim().parse::<u64>().ok()).flatten()
    };
    stat.lines().filter_map(line).fold(0, u64::saturating_add)
}

/// The address space and the data of this process.
fn resource_limits(files: &SysFiles) -> Vec<MemoryLimit> {
    let status = files.text("proc/self/status").unwrap_or_default();
    let limit_of = |(resource, origin, line): (Resource, &str, &str)| {
        let limit_bytes = resource_limit(resource)?;
        let used = kib_of(&status, line).unwrap_or(0).saturating_mul(1024);
        Some(MemoryLimit {
            origin: origin.to_owned(),
            limit_bytes,
            free_bytes: limit_bytes.saturating_sub(used),
        })
    };
    let limits =
        [(Resource::RLIMIT_AS, "ulimit -v", "VmSize:"), (Resource::RLIMIT_DATA, "ulimit -d", "VmData:")];
    limits.into_iter().filter_map(limit_of).collect()
}

/// A line of `/proc/self/status` (proc_pid_status(5)).
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
        let files = SysFiles::beneath(root.path());
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
