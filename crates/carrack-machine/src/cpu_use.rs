//! How much of the machine's CPU time is used, by everybody on it.

use std::path::{Path, PathBuf};

/// Compares the kernel's account (`/proc/stat`, proc_stat(5)) with that of the last look.
#[derive(Clone, Debug)]
pub struct CpuUse {
    path: PathBuf,
    last: Option<Ticks>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    all: u64,
}

impl CpuUse {
    /// Of the machine whose /proc is beneath `root`; it is `/` but in tests.
    pub fn at(root: &Path) -> CpuUse {
        CpuUse { path: root.join("proc/stat"), last: None }
    }

    /// The part that was used since the last look, 0 to 1; nothing the first time, where nothing is told, or no tick has passed.
    pub fn look(&mut self) -> Option<f64> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        let now = ticks(text.lines().next()?)?;
        let last = self.last.replace(now)?;
        let (busy, all) = (now.busy.checked_sub(last.busy)?, now.all.checked_sub(last.all)?);
        (all > 0).then(|| busy as f64 / all as f64)
    }
}

/// `cpu user nice system idle iowait irq softirq steal …`: what waits for a disk and what the host takes is not used here.
fn ticks(line: &str) -> Option<Ticks> {
    let values: Vec<u64> =
        line.strip_prefix("cpu ")?.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let all: u64 = values.iter().take(8).sum();
    let idle: u64 = values.get(3..5)?.iter().sum();
    let stolen = values.get(7).copied().unwrap_or(0);
    Some(Ticks { busy: all - idle - stolen, all: all - stolen })
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
        let mut cpu = CpuUse::at(root.path());
        assert_eq!(cpu.look(), None);
        let mut account = |text: &str| {
            fs::write(root.path().join("proc/stat"), format!("{text}\ncpu0 1 2 3\n")).unwrap();
            cpu.look()
        };
        assert_eq!(account("cpu  100 0 100 1000 50 0 0 0 0 0"), None);
        assert_eq!(account("cpu  130 0 120 1040 60 0 0 900 0 0"), Some(0.5));
        assert_eq!(account("cpu  130 0 120 1040 60 0 0 900 0 0"), None);
        assert_eq!(account("something else"), None);
    }
}
