//! Memory: limits of locking, huge pages, and the kernel's automatic NUMA policies.

use super::finding::{CheckFinding, CheckGroup, CheckVerdict, MachineCheck, well_if};
use super::{DoctorTransferParameters, MachineFacts};
use crate::MemoryLimit;
use crate::sys_files::SysFiles;

pub(super) const CHECKS: &[&MachineCheck] =
    &[&MEMLOCK, &MEMORY_LIMIT, &TRANSPARENT_HUGE_PAGES, &HUGE_PAGES, &NUMA_BALANCING, &ZONE_RECLAIM];

static MEMLOCK: MachineCheck = MachineCheck {
    name: "memlock",
    group: CheckGroup::Memory,
    about: "how much memory a process may lock (RLIMIT_MEMLOCK)",
    why: "carrack locks the memory that payload passes through; what is not locked may be swapped or moved",
    source: "getrlimit(2), mlock2(2), systemd.exec(5)",
};

static MEMORY_LIMIT: MachineCheck = MachineCheck {
    name: "memory_limit",
    group: CheckGroup::Memory,
    about: "what the cgroups of this process leave of the memory, as in a container or a batch job",
    why: "with less than this the buffers of a transfer are smaller than they would be",
    source: "kernel documentation, admin-guide/cgroup-v2, memory.max and memory.high; cgroup-v1/memory",
};

static TRANSPARENT_HUGE_PAGES: MachineCheck = MachineCheck {
    name: "transparent_huge_pages",
    group: CheckGroup::Memory,
    about: "whether a process may ask for huge pages",
    why: "payload memory in pages of 2 MiB takes 512 times fewer page faults and entries of the TLB",
    source: "kernel documentation, admin-guide/mm/transhuge",
};

static HUGE_PAGES: MachineCheck = MachineCheck {
    name: "huge_pages",
    group: CheckGroup::Memory,
    about: "free huge pages that an administrator set aside",
    why: "they serve where transparent ones are switched off",
    source: "kernel documentation, admin-guide/mm/hugetlbpage",
};

static NUMA_BALANCING: MachineCheck = MachineCheck {
    name: "numa_balancing",
    group: CheckGroup::Memory,
    about: "whether the kernel moves pages after the threads that use them (kernel.numa_balancing)",
    why: "where threads and buffers are bound it only costs page faults",
    source: "kernel documentation, admin-guide/sysctl/kernel",
};

static ZONE_RECLAIM: MachineCheck = MachineCheck {
    name: "zone_reclaim",
    group: CheckGroup::Memory,
    about: "whether a full node drops its page cache before it asks another (vm.zone_reclaim_mode)",
    why: "a transfer through the page cache then waits for reclaim while other nodes have free memory",
    source: "kernel documentation, admin-guide/sysctl/vm",
};

/// `CAP_IPC_LOCK` (capabilities(7)): no limit on locked memory.
const CAP_IPC_LOCK: u32 = 14;

const HUGE_PAGE_BYTES: u64 = 2 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryFacts {
    /// Bytes; `u64::MAX` for no limit.
    memlock_bytes: Option<u64>,
    may_lock_all: Option<bool>,
    /// True if the cgroups of this process are known.
    has_cgroups: bool,
    memory_limit: Option<MemoryLimit>,
    /// "always", "madvise" or "never".
    transparent: Option<String>,
    free_huge_pages: Option<u64>,
    numa_balancing: Option<u32>,
    zone_reclaim: Option<u32>,
}

pub(super) fn read(files: &SysFiles) -> MemoryFacts {
    MemoryFacts {
        memlock_bytes: files
            .read_text("proc/self/limits")
            .and_then(|text| soft_limit(&text, "Max locked memory")),
        may_lock_all: files
            .read_text("proc/self/status")
            .and_then(|text| has_capability(&text, CAP_IPC_LOCK)),
        has_cgroups: files.read_text("proc/self/cgroup").is_some(),
        memory_limit: MemoryLimit::of_cgroups(files),
        transparent: files
            .read_text("sys/kernel/mm/transparent_hugepage/enabled")
            .and_then(|text| bracketed_word(&text)),
        free_huge_pages: files.read_value("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"),
        numa_balancing: files.read_value("proc/sys/kernel/numa_balancing"),
        zone_reclaim: files.read_value("proc/sys/vm/zone_reclaim_mode"),
    }
}

/// The soft limit of a line of `/proc/self/limits` (proc_pid_limits(5)); `u64::MAX` for none.
pub(super) fn soft_limit(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// Returns true if `CapEff` of `/proc/self/status` has a bit (proc_pid_status(5)).
fn has_capability(text: &str, bit: u32) -> Option<bool> {
    let mask = text.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    Some(u64::from_str_radix(mask.trim(), 16).ok()? >> bit & 1 == 1)
}

/// "always [madvise] never"
fn bracketed_word(text: &str) -> Option<String> {
    let word = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))?;
    Some(word.to_string())
}

pub(super) fn evaluate(
    facts: &MemoryFacts,
    machine: &MachineFacts,
    purpose: &DoctorTransferParameters,
) -> Vec<CheckFinding> {
    vec![
        memlock(facts, purpose.pool_bytes),
        memory_limit(facts, purpose.pool_bytes),
        transparent_huge_pages(facts, purpose.pool_bytes),
        huge_pages(facts, purpose.pool_bytes),
        numa_balancing(facts, machine),
        zone_reclaim(facts, machine),
    ]
}

fn memlock(facts: &MemoryFacts, pool_bytes: u64) -> CheckFinding {
    let wanted = format!("{pool_bytes} bytes or more");
    let Some(bytes) = facts.memlock_bytes else { return MEMLOCK.unknown_finding(wanted) };
    let is_free = facts.may_lock_all == Some(true);
    let present = match bytes {
        u64::MAX => "unlimited".to_string(),
        _ if is_free => format!("{bytes} bytes, which does not bind this user (CAP_IPC_LOCK)"),
        _ => format!("{bytes} bytes"),
    };
    // limits.conf is read at login.
    let command = "echo '* - memlock unlimited' >/etc/security/limits.d/carrack.conf; then log in again";
    MEMLOCK
        .finding(well_if(is_free || bytes >= pool_bytes, CheckVerdict::Improve), present, wanted)
        .with_repair_command(command)
}

/// A local copy has two buffers, which get a quarter of the free memory.
fn memory_limit(facts: &MemoryFacts, pool_bytes: u64) -> CheckFinding {
    let wanted_bytes = pool_bytes.saturating_mul(8);
    let wanted = format!("no limit, or {wanted_bytes} bytes free");
    match &facts.memory_limit {
        None if !facts.has_cgroups => MEMORY_LIMIT.unknown_finding(wanted),
        None => MEMORY_LIMIT.finding(CheckVerdict::Well, "no limit", wanted),
        Some(MemoryLimit { origin, limit_bytes, free_bytes }) => {
            let present = format!("{origin} is {limit_bytes} bytes, of which {free_bytes} are free");
            let command = "raise the limit of the container, or of the job";
            let verdict = well_if(*free_bytes >= wanted_bytes, CheckVerdict::Note);
            MEMORY_LIMIT.finding(verdict, present, wanted).with_repair_command(command)
        }
    }
}

fn has_enough_huge_pages(facts: &MemoryFacts, pool_bytes: u64) -> bool {
    facts.free_huge_pages.is_some_and(|free| free.saturating_mul(HUGE_PAGE_BYTES) >= pool_bytes)
}

fn transparent_huge_pages(facts: &MemoryFacts, pool_bytes: u64) -> CheckFinding {
    let wanted = "madvise or always";
    let Some(present) = &facts.transparent else { return TRANSPARENT_HUGE_PAGES.unknown_finding(wanted) };
    let is_well = present != "never" || has_enough_huge_pages(facts, pool_bytes);
    TRANSPARENT_HUGE_PAGES
        .finding(well_if(is_well, CheckVerdict::Improve), present, wanted)
        .with_repair_command("echo madvise >/sys/kernel/mm/transparent_hugepage/enabled")
}

fn huge_pages(facts: &MemoryFacts, pool_bytes: u64) -> CheckFinding {
    let count = pool_bytes.div_ceil(HUGE_PAGE_BYTES);
    let wanted = format!("{count} of 2 MiB, or transparent ones");
    let Some(free) = facts.free_huge_pages else { return HUGE_PAGES.unknown_finding(wanted) };
    let is_well = facts.transparent.as_deref() != Some("never") || free >= count;
    HUGE_PAGES
        .finding(well_if(is_well, CheckVerdict::Note), format!("{free} of 2 MiB free"), wanted)
        .with_repair_command(format!("sysctl -w vm.nr_hugepages={count}"))
}

fn numa_balancing(facts: &MemoryFacts, machine: &MachineFacts) -> CheckFinding {
    let wanted = "0 where transfers are bound to nodes";
    let Some(present) = facts.numa_balancing else { return NUMA_BALANCING.unknown_finding(wanted) };
    let is_well = present == 0 || !machine.is_numa();
    NUMA_BALANCING
        .finding(well_if(is_well, CheckVerdict::Note), present.to_string(), wanted)
        .with_repair_command("sysctl -w kernel.numa_balancing=0")
}

fn zone_reclaim(facts: &MemoryFacts, machine: &MachineFacts) -> CheckFinding {
    let Some(present) = facts.zone_reclaim else { return ZONE_RECLAIM.unknown_finding("0") };
    let is_well = present == 0 || !machine.is_numa();
    ZONE_RECLAIM
        .finding(well_if(is_well, CheckVerdict::Improve), present.to_string(), "0")
        .with_repair_command("sysctl -w vm.zone_reclaim_mode=0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL_BYTES: u64 = 256 << 20;

    #[test]
    fn limits_and_capabilities_are_read() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
            Max open files            20000                20000                files\n\
            Max locked memory         8388608              unlimited            bytes\n\
            Max cpu time              unlimited            unlimited            seconds\n";
        assert_eq!(soft_limit(limits, "Max locked memory"), Some(8 << 20));
        assert_eq!(soft_limit(limits, "Max cpu time"), Some(u64::MAX));
        assert_eq!(soft_limit(limits, "Max msgqueue size"), None);
        assert_eq!(has_capability("Name:\tx\nCapEff:\t0000000000004000\n", CAP_IPC_LOCK), Some(true));
        assert_eq!(has_capability("CapEff:\t0000000000000000\n", CAP_IPC_LOCK), Some(false));
        assert_eq!(has_capability("", CAP_IPC_LOCK), None);
        assert_eq!(bracketed_word("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(bracketed_word("always"), None);
    }

    #[test]
    fn the_pool_should_be_locked() {
        for (bytes, may, verdict) in [
            (Some(8 << 20), Some(false), CheckVerdict::Improve),
            (Some(8 << 20), None, CheckVerdict::Improve),
            (Some(8 << 20), Some(true), CheckVerdict::Well),
            (Some(POOL_BYTES), Some(false), CheckVerdict::Well),
            (Some(u64::MAX), None, CheckVerdict::Well),
            (None, Some(true), CheckVerdict::Unknown),
        ] {
            let facts = MemoryFacts { memlock_bytes: bytes, may_lock_all: may, ..MemoryFacts::default() };
            assert_eq!(memlock(&facts, POOL_BYTES).verdict, verdict, "{bytes:?} {may:?}");
        }
    }

    #[test]
    fn a_limit_of_memory_is_told() {
        fn limit(free_bytes: u64) -> MemoryLimit {
            MemoryLimit { origin: "memory.max".into(), limit_bytes: 1 << 40, free_bytes }
        }
        for (has_cgroups, memory_limit, verdict) in [
            (false, None, CheckVerdict::Unknown),
            (true, None, CheckVerdict::Well),
            (true, Some(limit(8 * POOL_BYTES)), CheckVerdict::Well),
            (true, Some(limit(100 << 20)), CheckVerdict::Note),
        ] {
            let facts = MemoryFacts { has_cgroups, memory_limit, ..MemoryFacts::default() };
            assert_eq!(super::memory_limit(&facts, POOL_BYTES).verdict, verdict, "{facts:?}");
        }
    }

    #[test]
    fn one_kind_of_huge_pages_is_enough() {
        use CheckVerdict::{Improve, Note, Well};
        for (mode, free, verdicts) in [
            ("madvise", 0, [Well, Well]),
            ("always", 0, [Well, Well]),
            ("never", 0, [Improve, Note]),
            ("never", 128, [Well, Well]),
        ] {
            let facts = MemoryFacts {
                transparent: Some(mode.into()),
                free_huge_pages: Some(free),
                ..MemoryFacts::default()
            };
            let found =
                [transparent_huge_pages(&facts, POOL_BYTES).verdict, huge_pages(&facts, POOL_BYTES).verdict];
            assert_eq!(found, verdicts, "{mode} {free}");
        }
    }

    #[test]
    fn nodes_matter_where_there_are_several() {
        let facts = MemoryFacts { numa_balancing: Some(1), zone_reclaim: Some(1), ..MemoryFacts::default() };
        let several = MachineFacts {
            nodes: vec![(0, "0".parse().unwrap()), (1, "1".parse().unwrap())],
            ..MachineFacts::default()
        };
        assert_eq!(numa_balancing(&facts, &several).verdict, CheckVerdict::Note);
        assert_eq!(zone_reclaim(&facts, &several).verdict, CheckVerdict::Improve);
        assert_eq!(numa_balancing(&facts, &MachineFacts::default()).verdict, CheckVerdict::Well);
        assert_eq!(zone_reclaim(&facts, &MachineFacts::default()).verdict, CheckVerdict::Well);
    }
}
