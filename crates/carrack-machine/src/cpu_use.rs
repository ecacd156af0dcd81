//! The share of the machine's CPU time in use by all processes.

use std::path::{Path, PathBuf};

/// Compares the kernel's counters (`/proc/stat`, proc_stat(5)) with those of the previous call.
#[derive(Clone, Debug)]
pub struct CpuUse {
    path: PathBuf,
    last: Option<CpuTotals>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTotals {
    busy: u64,
    all: u64,
}

impl CpuUse {
    /// For the machine whose /proc is in `root`, which is `/` except in tests.
    pub fn with_root(root: &Path) -> CpuUse {
        CpuUse { path: root.join("proc/stat"), last: None }
    }

    /// The share used since the previous call, 0 to 1; `None` at the first call, without counters, or before
    /// the next tick.
    pub fn sample_busy_share(&mut self) -> Option<f64> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        let now = parse_cpu_totals(text.lines().next()?)?;
        let last = self.last.replace(now)?;
        let (busy, all) = (now.busy.checked_sub(last.busy)?, now.all.checked_sub(last.all)?);
        (all > 0).then(|| busy as f64 / all as f64)
    }
}

/// `cpu user nice system idle iowait irq softirq steal …`: iowait and stolen time don't count as used.
fn parse_cpu_totals(line: &str) -> Option<CpuTotals> {
    let values: Vec<u64> =
        line.strip_prefix("cpu ")?.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let all: u64 = values.iter().take(8).sum();
    let idle: u64 = values.get(3..5)?.iter().sum();
    let stolen = values.get(7).copied().unwrap_or(0);
    Some(CpuTotals { busy: all - idle - stolen, all: all - stolen })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn counts_what_was_used_since_the_last_look() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        let mut cpu = CpuUse::with_root(root.path());
        assert_eq!(cpu.sample_busy_share(), None);
        for (text, used) in [
            ("cpu  100 0 100 1000 50 0 0 0 0 0", None),
            ("cpu  130 0 120 1040 60 0 0 900 0 0", Some(0.5)),
            ("cpu  130 0 120 1040 60 0 0 900 0 0", None),
            ("something else", None),
        ] {
            fs::write(root.path().join("proc/stat"), format!("{text}\ncpu0 1 2 3\n")).unwrap();
            assert_eq!(cpu.sample_busy_share(), used, "{text}");
        }
    }
}
