//! `carrack topo` as a process: this machine and others, its three forms, and how it fails.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::common::process::{assert_exit, assert_says, json, run};
use crate::common::{CARRACK, skip};

/// The MDTM paper's machine.
const MDTM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../carrack-machine/tests/fixtures/mdtm-4x6.xml");

#[track_caller]
fn topo(arguments: &[&str]) -> Output {
    run(Command::new(CARRACK).arg("topo").args(arguments))
}

#[track_caller]
fn object(arguments: &[&str]) -> Value {
    let output = topo(&[&["--json"], arguments].concat());
    assert_exit(&output, 0);
    let mut objects = json(&output);
    assert_eq!(objects.len(), 1);
    objects.remove(0)
}

#[test]
fn a_file_of_another_machine_is_planned_on() {
    let found = object(&["--topology", MDTM, "--nic", "eth2", "--disk", "sda,sdb", "--threads", "16"]);
    assert_eq!((&found["origin"], &found["name"]), (&json!("xml"), &json!(MDTM)));
    let sockets: Vec<_> =
        found["placement"]["lanes"].as_array().unwrap().iter().map(|lane| &lane["socket"]).collect();
    assert_eq!(sockets, [0, 1, 3, 2]);
    let lane = &found["placement"]["lanes"][0];
    assert_eq!(
        (&lane["disks"], &lane["comm"]),
        (&json!(["sdb"]), &json!({"cpus": [0], "device": "eth2", "cost": 1.2}))
    );
    let single = object(&["--topology", MDTM, "--placement", "single", "--nic", "eth2", "--lanes", "2"]);
    let sockets: Vec<_> =
        single["placement"]["lanes"].as_array().unwrap().iter().map(|lane| &lane["socket"]).collect();
    assert_eq!(sockets, [0, 0]);
}

#[test]
fn a_description_is_planned_on() {
    let output = topo(&["--topology", "pack:2 numa:2 core:6 pu:1"]);
    if String::from_utf8_lossy(&output.stderr).contains("install libhwloc15") {
        return skip("libhwloc is not there");
    }
    assert_exit(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("pack:2 numa:2 core:6 pu:1: 2 sockets, 4 NUMA nodes, 24 cores, 24 CPUs\n"),
        "{text}"
    );
    assert!(text.contains("lane 1  socket 1  buffer on nodes 2-3\n"), "{text}");
}

#[test]
fn this_machine_is_shown_as_far_as_it_may_be_used() {
    let found = object(&[]);
    let cpus: usize =
        found["cores"].as_array().unwrap().iter().map(|core| core["cpus"].as_array().unwrap().len()).sum();
    assert_eq!(cpus, rustix::thread::sched_getaffinity(None).unwrap().count() as usize);
    assert_eq!(found["measured"], Value::Null);
    let first = found["cores"][0]["cpus"][0].to_string();
    let mut on_one = Command::new("taskset");
    let output = run(on_one.args(["-c", &first, CARRACK, "topo", "--json"]));
    assert_exit(&output, 0);
    assert_eq!(json(&output)[0]["cores"].as_array().unwrap().len(), 1);
}

#[test]
fn the_picture_is_written_beside_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.svg");
    let output = topo(&["--topology", MDTM, "--svg", path.to_str().unwrap()]);
    assert_exit(&output, 0);
    assert!(String::from_utf8(output.stdout).unwrap().contains("\nplacement mts\n"));
    let picture = fs::read_to_string(&path).unwrap();
    assert!(picture.starts_with("<?xml ") && picture.ends_with("</svg>\n"), "{picture}");
    let nowhere = topo(&["--topology", MDTM, "--svg", "/nowhere/m.svg"]);
    assert_exit(&nowhere, 1);
    assert_says(&nowhere, &["/nowhere/m.svg: No such file"]);
}

#[test]
fn what_can_not_be_shown_is_told() {
    let cases: [(&[&str], i32, &str); 6] = [
        (&["--topology", MDTM, "--nic", "eth0"], 2, "hint: those are eth2"),
        (&["--topology", MDTM, "--disk", "eth2"], 2, "hint: those are sda, sdb"),
        (&["--topology", "/etc/hostname.xml"], 3, "No such file"),
        (&["--topology", file!(), "--json"], 3, "topo.rs"),
        (&["--measure", "--topology", MDTM], 2, "cannot be used with"),
        (&["--placement", "best"], 2, "possible values: auto, off, single, mmb, mts"),
    ];
    for (arguments, exit, words) in cases {
        let output = run(Command::new(CARRACK).current_dir(root()).arg("topo").args(arguments));
        assert_exit(&output, exit);
        assert_says(&output, &[words]);
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

/// Returns the root of the source files' names.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
