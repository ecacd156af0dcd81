//! `carrack doctor` on the machine that runs the test: every check reports all its fields, and the exit code
//! follows from them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::process::{assert_exit, assert_says, json, run, talk};
use crate::common::{CARRACK, say_skipped};

const FIELDS: [&str; 10] =
    ["check", "group", "subject", "verdict", "about", "present", "wanted", "why", "source", "command"];

#[track_caller]
fn doctor(arguments: &[&str]) -> Output {
    run(Command::new(CARRACK).arg("doctor").args(arguments))
}

/// Returns the checks as `docs/doctor.md` lists them.
fn documented() -> BTreeSet<String> {
    let text = include_str!("../../../../docs/doctor.md");
    let checks = text.split("## The checks").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = checks.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    rows.map(str::to_owned).collect()
}

fn has(findings: &[Value], verdict: &str) -> bool {
    findings.iter().any(|finding| finding["verdict"] == verdict)
}

fn expected_exit(findings: &[Value]) -> i32 {
    match (has(findings, "broken"), has(findings, "improve")) {
        (true, _) => 3,
        (false, true) => 1,
        (false, false) => 0,
    }
}

#[test]
fn every_check_tells_everything() {
    let output = doctor(&["--json", "/"]);
    let findings = json(&output);
    assert_exit(&output, expected_exit(&findings));
    for finding in &findings {
        let fields: BTreeSet<_> = finding.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, FIELDS.into(), "{finding}");
        for field in ["check", "group", "verdict", "about", "present", "wanted", "why", "source"] {
            assert!(finding[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {finding}");
        }
        let is_well = ["ok", "unknown"].contains(&finding["verdict"].as_str().unwrap());
        assert!(!is_well || finding["command"].is_null(), "{finding}");
    }
    let mut found: BTreeSet<_> =
        findings.iter().map(|finding| finding["check"].as_str().unwrap().to_owned()).collect();
    // This check exists only where the path is on NFS.
    found.insert("nfs".into());
    assert_eq!(found, documented());
}

#[test]
fn the_table_says_the_same() {
    let findings = json(&doctor(&["--json", "/"]));
    let output = doctor(&["/"]);
    assert_exit(&output, expected_exit(&findings));
    let table = String::from_utf8(output.stdout).unwrap();
    for finding in &findings {
        let line =
            format!("  {:<8} {}", finding["verdict"].as_str().unwrap(), finding["check"].as_str().unwrap());
        let words: Vec<_> = line.split_whitespace().collect();
        assert!(
            table.lines().any(|line| line.split_whitespace().take(2).eq(words.iter().copied())),
            "{line}:\n{table}"
        );
    }
    assert!(table.trim_end().ends_with(" ok"), "{table}");
}

#[test]
fn what_keeps_transfers_from_working_has_a_code_of_its_own() {
    let output = doctor(&["--json", "/", "/of-this-name-there-is-nothing"]);
    assert_exit(&output, 3);
    let broken: Vec<_> = json(&output).into_iter().filter(|finding| finding["verdict"] == "broken").collect();
    assert_eq!(broken[0]["subject"], "/of-this-name-there-is-nothing", "{broken:?}");
    let few = run(Command::new("sh").args(["-c", r#"ulimit -n 100 && exec "$0" doctor --json"#, CARRACK]));
    assert_exit(&few, 3);
    let findings = json(&few);
    let files = findings.iter().find(|finding| finding["check"] == "open_files").unwrap();
    assert_eq!((&files["verdict"], &files["present"]), (&"broken".into(), &"100".into()));
}

#[test]
fn buffers_follow_the_path_that_is_named() {
    let wanted = |rtt: &str, speed: &str| {
        let findings = json(&doctor(&["--json", "--rtt", rtt, "--speed", speed]));
        let buffer = findings.iter().find(|finding| finding["check"] == "tcp_rmem").unwrap();
        buffer["wanted"].as_str().unwrap().to_owned()
    };
    assert!(wanted("100", "10").starts_with("125000000 or more"));
    assert!(wanted("1", "1").starts_with("4194304 or more"));
    for arguments in [["--rtt", "0"], ["--speed", "fast"]] {
        assert_exit(&doctor(&arguments), 2);
    }
}

#[test]
fn a_reader_who_leaves_is_no_death() {
    let Ok(full) = File::options().write(true).open("/dev/full") else { return say_skipped("no /dev/full") };
    let output = Command::new(CARRACK).arg("doctor").stdout(full).output().unwrap();
    assert_exit(&output, 3);
    assert_says(&output, &["writing to stdout: "]);
}

/// A machine that consists of its files only: two nodes, `eth0` on the second, all its interrupts on CPU 0.
struct Neglected {
    dir: tempfile::TempDir,
}

impl Neglected {
    fn new() -> Neglected {
        let machine = Neglected { dir: tempfile::tempdir().unwrap() };
        let tree = include_str!("../../../carrack-machine/src/doctor/test_machines/neglected.tree");
        tree.lines().for_each(|line| machine.add(line));
        machine
    }

    fn add(&self, line: &str) {
        let parts = |separator| line.split_once(separator);
        let Some((name, value)) = parts(" -> ").or_else(|| parts(" = ")) else { return };
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match line.contains(" -> ") {
            true => symlink(value, path).unwrap(),
            false => fs::write(path, value.replace("\\n", "\n") + "\n").unwrap(),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Runs the doctor with these files in the place of the kernel's, and no network; `None` where that is
    /// not allowed.
    fn doctor(&self, arguments: &str) -> Option<Output> {
        let script =
            format!("mount --bind sys /sys && mount --bind proc /proc && exec \"$0\" doctor {arguments}");
        let may = |script: &str| {
            let mut unshare = Command::new("unshare");
            unshare.args(["-rmn", "sh", "-c", script, CARRACK]).current_dir(Path::new(self.dir.path()));
            unshare
        };
        let is_allowed = may("mount --bind sys /sys").output().is_ok_and(|output| output.status.success());
        is_allowed.then(|| run(&mut may(&script)))
    }
}

fn verdict_of<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    &findings.iter().find(|finding| finding["check"] == check).unwrap()["verdict"]
}

#[test]
fn interrupts_are_spread_when_asked_for() {
    let machine = Neglected::new();
    let Some(before) = machine.doctor("--json") else { return say_skipped("no user and mount namespaces") };
    assert_eq!(verdict_of(&json(&before), "irq_node"), "improve");
    assert_eq!(fs::read_to_string(machine.at("proc/irq/102/smp_affinity_list")).unwrap(), "0-7\n");

    // irqbalance would move them again.
    let refused = machine.doctor("--apply --json").unwrap();
    assert_says(&refused, &["error: interrupts: irqbalance is running"]);
    assert_eq!(verdict_of(&json(&refused), "irq_node"), "improve");

    fs::remove_file(machine.at("proc/900/comm")).unwrap();
    let after = machine.doctor("--apply --json").unwrap();
    assert_says(&after, &["carrack: interrupt 102 of eth0 (mlx5_comp1@pci:0000:81:00.0): from CPU 0 to 3"]);
    let findings = json(&after);
    let [spread, node] = ["irq_spread", "irq_node"].map(|check| verdict_of(&findings, check));
    assert_eq!((spread, node), (&"ok".into(), &"ok".into()), "{findings:?}");
    let set = [101, 102, 103, 104].map(|irq| machine.at(&format!("proc/irq/{irq}/smp_affinity_list")));
    assert_eq!(set.map(|path| fs::read_to_string(path).unwrap()), ["2\n", "3\n", "6\n", "7\n"]);
    assert_eq!(talk(&machine.doctor("--apply --json").unwrap()), "");
}
