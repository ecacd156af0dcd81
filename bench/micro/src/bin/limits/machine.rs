//! The state of the machine: its load, its memory, its description.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

/// `f_type` of tmpfs, from `statfs(2)`.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Returns the CPU seconds for which all cores together were busy since boot; steal and iowait are not busy.
pub fn busy_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    busy_ticks(&stat) as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Returns user + nice + system + irq + softirq of the first line.
fn busy_ticks(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    [0, 1, 2, 5, 6].iter().filter_map(|&index: &usize| fields.get(index)).sum()
}

/// Returns the memory that is available without swapping.
pub fn available_memory_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    memory_line_bytes(&meminfo, "MemAvailable:")
}

fn memory_line_bytes(meminfo: &str, key: &str) -> u64 {
    let line = meminfo.lines().find(|line| line.starts_with(key)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).map_or(0, |kib: u64| kib << 10)
}

/// Returns the cores that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Returns true if files in the directory are in memory.
pub fn is_tmpfs(directory: &Path) -> bool {
    fs::File::open(directory)
        .and_then(|directory| Ok(rustix::fs::fstatfs(directory)?))
        .is_ok_and(|found| found.f_type == TMPFS_MAGIC)
}

/// Returns the bytes free for files in the directory.
pub fn free_bytes(directory: &Path) -> u64 {
    fs::File::open(directory)
        .and_then(|directory| Ok(rustix::fs::fstatfs(directory)?))
        .map_or(0, |found| found.f_bavail * found.f_bsize as u64)
}

/// Returns one line that describes the machine of the results.
pub fn describe(work_dir: &Path) -> String {
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let memory_gib = memory_line_bytes(&read("/proc/meminfo"), "MemTotal:") as f64 / f64::from(1 << 30);
    [
        format!("{} cores of {}", cores(), model.map_or("?", |(_, name)| name.trim())),
        format!("{memory_gib:.0} GiB memory"),
        format!("Linux {}", read("/proc/sys/kernel/osrelease")),
        format!("data on {}", if is_tmpfs(work_dir) { "tmpfs" } else { "another file system than tmpfs" }),
        format!("TCP {} by default", read("/proc/sys/net/ipv4/tcp_congestion_control")),
        format!("loopback MTU {}", read("/sys/class/net/lo/mtu")),
    ]
    .join(", ")
}

/// Returns the repository's commit, marked when the work tree differs from it.
pub fn commit() -> String {
    let git = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--abbrev=12"])
        .output();
    let text = git.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "?".to_owned(), |text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        assert_eq!(busy_ticks("cpu  1 20 300 4000 50000 600000 7000000 8\ncpu0 9 9"), 7_600_321);
        assert_eq!(busy_ticks(""), 0);
        let meminfo = "MemTotal:  24 kB\nMemAvailable:   20 kB\n";
        assert_eq!(memory_line_bytes(meminfo, "MemAvailable:"), 20 << 10);
        assert!(available_memory_bytes() > 0 && busy_s() > 0.0);
    }
}
