//! Machines for tests as text: the kernel's files of a well-tuned data transfer node, of a neglected one, and
//! of a container with hardly any visible facts.
//!
//! `path = text` is a file, `path -> target` a link; a text may contain `\n`. `#` begins a comment.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{
    CheckVerdict, DoctorPath, DoctorTransferParameters, KernelProbes, MachineFacts, RTT_MS_DEFAULT,
    RingSizes, checks, run_checks,
};
use crate::sys_files::SysFiles;
use crate::zone::StaleZoneCgroup;

pub(super) struct TestKernelFiles {
    dir: tempfile::TempDir,
}

impl TestKernelFiles {
    pub(super) fn tuned() -> TestKernelFiles {
        TestKernelFiles::of(include_str!("test_machines/tuned.tree"))
    }

    pub(super) fn neglected() -> TestKernelFiles {
        TestKernelFiles::of(include_str!("test_machines/neglected.tree"))
    }

    pub(super) fn container() -> TestKernelFiles {
        TestKernelFiles::of(include_str!("test_machines/container.tree"))
    }

    fn of(text: &str) -> TestKernelFiles {
        let tree = TestKernelFiles { dir: tempfile::tempdir().unwrap() };
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            tree.add(line);
        }
        tree
    }

    fn add(&self, line: &str) {
        let (name, is_link) = match (line.split_once(" -> "), line.split_once(" = ")) {
            (Some((name, _)), None) => (name, true),
            (None, Some((name, _))) => (name, false),
            _ => panic!("neither file nor link: {line}"),
        };
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let value = &line[name.len() + if is_link { 4 } else { 3 }..];
        if is_link {
            symlink(Path::new(value), path).unwrap();
        } else {
            fs::write(path, value.replace("\\n", "\n") + "\n").unwrap();
        }
    }

    pub(super) fn files(&self) -> SysFiles {
        SysFiles::with_root(self.dir.path())
    }

    pub(super) fn remove(&self, path: &str) {
        fs::remove_file(self.dir.path().join(path)).unwrap();
    }
}

fn test_parameters(path: &str) -> DoctorTransferParameters {
    let path = DoctorPath { shown: path.into(), real: Ok(path.into()) };
    DoctorTransferParameters {
        rtt_ms: RTT_MS_DEFAULT,
        speed_mbits: None,
        pool_bytes: 256 << 20,
        paths: vec![path],
    }
}

fn probes(is_good: bool, kinds: &[(bool, &str)]) -> KernelProbes {
    let stale = StaleZoneCgroup { name: "carrack-zone-7-1".into(), pid: 7, cpus: "2-3".into() };
    KernelProbes {
        is_clock_synchronised: Some(is_good),
        has_openat2: Some(is_good),
        has_hwloc: Some(is_good),
        stale_zones: Some(if is_good { vec![] } else { vec![stale] }),
        qdiscs: Some(kinds.iter().map(|(root, kind)| ("eth0".into(), *root, kind.to_string())).collect()),
        rings: [(
            "eth0".into(),
            RingSizes { rx: if is_good { 8192 } else { 512 }, rx_max: 8192, tx: 512, tx_max: 8192 },
        )]
        .into(),
    }
}

/// Names of checks with this verdict.
fn check_names_with_verdict(
    tree: &TestKernelFiles,
    probes: &KernelProbes,
    verdict: CheckVerdict,
) -> Vec<&'static str> {
    let findings = run_checks(&tree.files(), probes, &test_parameters("/data/run7"));
    findings.iter().filter(|finding| finding.verdict == verdict).map(|finding| finding.check.name).collect()
}

#[test]
fn a_well_tuned_node_is_well() {
    let tree = TestKernelFiles::tuned();
    let probes = probes(true, &[(true, "mq"), (false, "fq")]);
    for verdict in [CheckVerdict::Broken, CheckVerdict::Improve, CheckVerdict::Note, CheckVerdict::Unknown] {
        assert_eq!(check_names_with_verdict(&tree, &probes, verdict), [""; 0], "{verdict:?}");
    }
    let well = check_names_with_verdict(&tree, &probes, CheckVerdict::Well);
    let all: Vec<_> = checks().map(|check| check.name).filter(|name| *name != "nfs").collect();
    assert_eq!(well, all);
}

#[test]
fn a_neglected_node_is_told_everything() {
    let tree = TestKernelFiles::neglected();
    let probes = probes(false, &[(true, "pfifo_fast")]);
    assert_eq!(check_names_with_verdict(&tree, &probes, CheckVerdict::Broken), ["open_files"]);
    let improve = [
        "tcp_rmem",
        "tcp_wmem",
        "congestion_control",
        "mtu_probing",
        "link_speed",
        "qdisc",
        "irq_spread",
        "irq_node",
        "governor",
        "irqbalance",
        "stale_zones",
        "memlock",
        "transparent_huge_pages",
        "zone_reclaim",
        "atime",
        "write_mode",
        "clock_synchronised",
        "clock_source",
    ];
    assert_eq!(check_names_with_verdict(&tree, &probes, CheckVerdict::Improve), improve);
    let note = [
        "rmem_max",
        "wmem_max",
        "optmem_max",
        "loss_tolerance",
        "default_qdisc",
        "pci_link",
        "ring",
        "core_zones",
        "huge_pages",
        "numa_balancing",
        "device_nodes",
        "openat2",
        "kernel",
        "hwloc",
    ];
    assert_eq!(check_names_with_verdict(&tree, &probes, CheckVerdict::Note), note);
    assert_eq!(check_names_with_verdict(&tree, &probes, CheckVerdict::Unknown), [""; 0]);
}

#[test]
fn a_container_raises_no_alarm() {
    let tree = TestKernelFiles::container();
    for verdict in [CheckVerdict::Broken, CheckVerdict::Improve, CheckVerdict::Note] {
        assert_eq!(
            check_names_with_verdict(&tree, &KernelProbes::default(), verdict),
            [""; 0],
            "{verdict:?}"
        );
    }
    let unknown = check_names_with_verdict(&tree, &KernelProbes::default(), CheckVerdict::Unknown);
    assert!(unknown.len() > 25 && unknown.contains(&"irq_spread"), "{unknown:?}");
}

#[test]
fn where_there_is_nothing_at_all_every_check_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let files = SysFiles::with_root(dir.path().join("none"));
    let findings = run_checks(&files, &KernelProbes::default(), &test_parameters("/data"));
    assert!(findings.iter().all(|finding| finding.verdict == CheckVerdict::Unknown), "{findings:?}");
    let found: Vec<_> = findings.iter().map(|finding| finding.check.name).collect();
    let all: Vec<_> = checks().map(|check| check.name).filter(|name| *name != "nfs").collect();
    assert_eq!(found, all);
    assert_eq!(MachineFacts::read(&files), MachineFacts::default());
}

#[test]
fn what_can_be_mended_says_how_and_what_is_well_does_not() {
    for tree in [TestKernelFiles::tuned(), TestKernelFiles::neglected(), TestKernelFiles::container()] {
        for finding in run_checks(&tree.files(), &probes(false, &[(true, "fq")]), &test_parameters("/data")) {
            let is_bad = matches!(finding.verdict, CheckVerdict::Improve | CheckVerdict::Broken);
            // The remedy is other hardware or a new file system.
            let has_none =
                ["pci_link", "device_nodes", "core_zones", "openat2", "kernel"].contains(&finding.check.name);
            assert!(!is_bad || has_none || finding.command.is_some(), "{finding:?}");
            assert!(
                is_bad || finding.verdict == CheckVerdict::Note || finding.command.is_none(),
                "{finding:?}"
            );
            assert!(!finding.present.is_empty() && !finding.wanted.is_empty(), "{finding:?}");
        }
    }
}

#[test]
fn names_are_unique_and_every_check_has_words() {
    let mut names: Vec<_> = checks().map(|check| check.name).collect();
    for check in checks() {
        for words in [check.name, check.about, check.why, check.source] {
            assert!(!words.is_empty() && !words.contains("  "), "{check:?}");
        }
    }
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}
