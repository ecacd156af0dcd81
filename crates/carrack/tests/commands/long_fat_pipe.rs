//! A path with delay, a bottleneck and loss between the two ends: `testbed/wan`, two network namespaces.
//! `bench/wan` and `bench/tuner` measure its throughput; here every file must arrive, over the number of
//! connections for such a path.
//!
//! Skipped, with its reason, where network namespaces can't be made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::process::{assert_exit, json, run};
use crate::common::tree::{assert_same, noise, plant_rich};
use crate::common::{CARRACK, skip};

/// One way in ms, Mbit/s, loss in per cent, the queue in MB: a round trip of 60 ms, 0.75 MB in flight.
const PIPE: [&str; 4] = ["30", "100", "0.05", "0.75"];

/// Connections at first on a path with such a round trip; on a near path there are two.
const FAR_STREAMS: u64 = 8;

/// The pipe, which is removed on drop.
struct Pipe {
    root: tempfile::TempDir,
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // It fails for a pipe that was never made.
        let _ = self.wan("down").output();
    }
}

impl Pipe {
    fn start() -> Option<Pipe> {
        let pipe = Pipe { root: tempfile::tempdir().unwrap() };
        let up = pipe.wan("up").args(PIPE).output().unwrap();
        if !up.status.success() {
            skip(&format!("no pipe to test with: {}", String::from_utf8_lossy(&up.stderr)));
            return None;
        }
        Some(pipe)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn script() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/wan")
    }

    fn wan(&self, verb: &str) -> Command {
        let mut command = Command::new(Pipe::script());
        command.arg(verb).arg(self.path("pipe"));
        command
    }

    /// Runs `carrack cp` at the near end.
    fn copy(&self, words: &[&str]) -> Output {
        let shell = format!("{} shell {}", Pipe::script().display(), self.path("pipe").display());
        let mut command = self.wan("exec");
        command.arg(CARRACK).args(["cp", "-r", "--json", "--ssh", &shell, "--remote-carrack", CARRACK]);
        run(command.args(words).current_dir(self.root.path()))
    }
}

fn streams(output: &Output) -> u64 {
    let events = json(output);
    let connected = events.iter().find(|event| event["event"] == "connected").unwrap();
    connected["streams"].as_u64().unwrap()
}

#[test]
fn everything_arrives_over_a_path_that_loses() {
    let Some(pipe) = Pipe::start() else { return };
    let tree = pipe.path("tree");
    plant_rich(&tree);
    for number in 0..3 {
        fs::write(tree.join(format!("large-{number}")), noise((8 << 20) + number)).unwrap();
    }
    let (far, back) = (pipe.path("far"), pipe.path("back"));
    let there = format!("10.98.0.2:{}", far.display());
    let output = pipe.copy(&["tree", &there]);
    assert_exit(&output, 0);
    assert_eq!(streams(&output), FAR_STREAMS);
    assert_same(&tree, &far);
    let output = pipe.copy(&[&there, back.to_str().unwrap()]);
    assert_exit(&output, 0);
    assert_eq!(streams(&output), FAR_STREAMS);
    assert_same(&tree, &back);
}
