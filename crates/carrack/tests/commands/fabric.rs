//! `carrack cp --fabric`: objects by RMA, between two processes of this host, and the fallback where there is
//! no fabric.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::process::{Running, assert_exit, assert_says, json, run, talk, wait_for};
use crate::common::tree::{assert_same_entries, census, noise, plant_rich};
use crate::common::{CARRACK, Places, say_skipped};

const PROVIDERS: [&str; 3] = ["tcp;ofi_rxm", "shm", "sockets"];
const LARGE_BYTES: usize = 6_000_000;

struct World {
    places: Places,
    ssh: String,
}

impl World {
    /// Creates a world whose ssh stand-in records its process, runs `first`, and becomes the far carrack.
    fn new(first: &str) -> World {
        let places = Places::new();
        let pids = places.far("pids");
        let script = format!("echo $$ >>'{}'\n{first}\nshift\nexec \"$@\"", pids.display());
        let ssh = places.script("stand-in", &script);
        World { places, ssh }
    }

    fn copy(&self, options: &[&str]) -> Command {
        let mut command = Command::new(CARRACK);
        command.args(["cp", "-r", "--ssh", &self.ssh, "--remote-carrack", CARRACK]).args(options);
        command.env("HOME", self.places.near("")).env_remove("XDG_STATE_HOME").env_remove("CARRACK_FABRIC");
        command
    }

    fn push(&self, options: &[&str]) -> Command {
        let to = format!("far:{}", self.places.far("data").display());
        let mut command = self.copy(options);
        command.arg(self.places.near("tree")).arg(to);
        command
    }

    fn pull(&self, options: &[&str]) -> Command {
        let from = format!("far:{}", self.places.far("data").display());
        let mut command = self.copy(options);
        command.arg(from).arg(self.places.near("back"));
        command
    }

    /// Plants a file that takes seconds at the rate of [`SLOWLY`].
    fn plant_large(&self) {
        fs::create_dir(self.places.near("tree")).unwrap();
        fs::write(self.places.near("tree/file"), noise(LARGE_BYTES)).unwrap();
    }

    fn far_process(&self) -> Pid {
        let noted = fs::read_to_string(self.places.far("pids")).unwrap();
        Pid::from_raw(noted.lines().last().unwrap().parse().unwrap()).unwrap()
    }

    fn wait_until_moving(&self) {
        wait_for("the file is being written", || {
            let entries = fs::read_dir(self.places.far("data")).ok()?.flatten();
            let is_growing =
                |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
            entries.map(|entry| entry.path()).find(is_growing)
        });
    }

    fn assert_arrived(&self) {
        assert!(fs::read(self.places.far("data/file")).unwrap() == noise(LARGE_BYTES), "other bytes");
    }
}

const SLOWLY: [&str; 4] = ["--bwlimit", "1MB", "--retry", "0"];

/// Returns the providers of this host; prints the reason if there is none.
fn providers() -> Vec<&'static str> {
    let listed = run(Command::new(CARRACK).args(["fabric", "--json"]));
    let report = json(&listed).pop().unwrap();
    if let Some(problem) = report["problem"].as_str() {
        assert_exit(&listed, 3);
        say_skipped(problem);
        return Vec::new();
    }
    assert_exit(&listed, 0);
    let has = |provider: &&str| {
        let is_it = |offer: &serde_json::Value| offer["provider"] == *provider && offer["usable"] == true;
        report["offers"].as_array().unwrap().iter().any(is_it)
    };
    let (here, missing): (Vec<_>, Vec<_>) = PROVIDERS.into_iter().partition(has);
    missing.into_iter().for_each(|provider| say_skipped(&format!("no provider {provider}")));
    here
}

fn transport(output: &Output) -> String {
    let events = json(output);
    let connected = events.iter().find(|event| event["event"] == "connected").unwrap();
    connected["transport"].as_str().unwrap().to_owned()
}

#[test]
fn trees_arrive_as_they_are_both_ways_and_at_every_protection() {
    for provider in providers() {
        for (protection, lanes) in [("private", "1"), ("safe", "1"), ("clear", "1"), ("private", "2")] {
            let world = World::new("");
            let tree = world.places.near("tree");
            fs::create_dir(&tree).unwrap();
            plant_rich(&tree);
            let options = [
                "--fabric",
                provider,
                "--protection",
                protection,
                "--lanes",
                lanes,
                "--io-threads",
                "4",
                "--json",
            ];
            for copied in [run(&mut world.push(&options)), run(&mut world.pull(&options))] {
                assert_exit(&copied, 0);
                assert_eq!(transport(&copied), "fabric", "{provider}");
            }
            let there = census(&tree);
            assert_same_entries(&there, &census(&world.places.far("data")));
            assert_same_entries(&there, &census(&world.places.near("back")));
        }
    }
}

#[test]
fn what_is_not_there_is_said_and_tcp_is_not_a_matter_of_the_library() {
    let world = World::new("");
    world.plant_large();
    let refused = run(&mut world.push(&["--fabric", "no-such-provider"]));
    assert_exit(&refused, 3);
    assert_says(&refused, &["--fabric no-such-provider: ", "hint: leave --fabric out"]);
    assert!(!world.places.far("data").exists(), "nothing was touched");
    for fabric in ["auto", "off"] {
        let copied = run(&mut world.push(&["--fabric", fabric, "--json"]));
        assert_exit(&copied, 0);
        assert_eq!(transport(&copied), "tcp", "there is no RDMA hardware where tests run");
    }
    let told = run(&mut world.push(&["-v"]));
    assert_says(&told, &["fabric: not used: no RDMA network"]);
    let local =
        run(world.copy(&["--fabric", "shm"]).arg(world.places.near("tree")).arg(world.places.near("x")));
    assert_exit(&local, 3);
    assert_says(&local, &["--fabric shm: "]);
}

/// After a break at any point the rest goes over TCP, without sending complete objects again; a required
/// provider is kept.
#[test]
fn a_preferred_fabric_that_breaks_gives_way_to_tcp() {
    for provider in providers() {
        let world = World::new("");
        world.plant_large();
        let fabric = format!("try:{provider}");
        let options =
            ["--fabric", &fabric, "--bwlimit", "1MB", "--stall-timeout", "10", "--group-time", "100"];
        let copying = Running::start(world.push(&options).arg("--json"));
        world.wait_until_moving();
        std::thread::sleep(Duration::from_secs(2));
        kill_process(world.far_process(), Signal::KILL).unwrap();
        let output = copying.end();
        assert_exit(&output, 0);
        world.assert_arrived();
        let events = json(&output);
        let of =
            |kind: &str| events.iter().filter(|event| event["event"] == kind).cloned().collect::<Vec<_>>();
        let transports: Vec<_> = of("connected").iter().map(|event| event["transport"].clone()).collect();
        assert_eq!(transports, ["fabric", "tcp"], "{provider}");
        let told = of("warning").iter().any(|event| {
            let text = event["text"].as_str().unwrap_or_default();
            text.starts_with(&format!("over {provider}: ")) && text.contains("trying TCP in")
        });
        assert!(told, "{provider}: {events:?}");
        let written = of("summary")[0]["bytes_done"].as_u64().unwrap();
        assert!(written < LARGE_BYTES as u64 * 5 / 4, "{provider}: {written} bytes written");
    }
}

#[test]
fn a_preferred_fabric_that_is_not_there_is_tcp() {
    let mut world = World::new("");
    world.plant_large();
    let tried = run(&mut world.push(&["--fabric", "try:no-such-provider", "-v"]));
    assert_exit(&tried, 0);
    assert_says(&tried, &["fabric: not used: no-such-provider: "]);
    world.assert_arrived();
    let Some(provider) = providers().pop() else { return };
    let hide = broken_library(&world.places);
    world.ssh = world.places.script("without-library", &format!("{hide}\nshift\nexec \"$@\""));
    let fabric = format!("try:{provider}");
    let far = run(&mut world.push(&["--fabric", &fabric, "-v"]));
    assert_exit(&far, 0);
    assert_says(&far, &["fabric: not used: no libfabric"]);
}

/// Makes a library that can't be loaded, found before the system's.
fn broken_library(places: &Places) -> String {
    fs::create_dir(places.near("lib")).unwrap();
    fs::write(places.near("lib/libfabric.so.1"), "no library").unwrap();
    format!("LD_LIBRARY_PATH='{}'; export LD_LIBRARY_PATH", places.near("lib").display())
}

#[test]
fn an_end_without_the_library_says_so() {
    let Some(provider) = providers().pop() else { return };
    let mut world = World::new("");
    world.plant_large();
    let hide = broken_library(&world.places);
    let near = run(world.push(&["--fabric", provider]).env("LD_LIBRARY_PATH", world.places.near("lib")));
    assert_exit(&near, 3);
    assert_says(&near, &["no libfabric", "hint: "]);
    let listed = run(Command::new(CARRACK).arg("fabric").env("LD_LIBRARY_PATH", world.places.near("lib")));
    assert_exit(&listed, 3);
    assert_says(&listed, &["there is no fabric here", "hint: carrack cp goes over TCP"]);
    world.ssh = world.places.script("without-library", &format!("{hide}\nshift\nexec \"$@\""));
    let far = run(&mut world.push(&["--fabric", provider]));
    assert_exit(&far, 3);
    assert_says(&far, &["at the other end: no libfabric", "hint: "]);
}

#[test]
fn a_far_end_that_is_killed_is_noticed_and_what_it_had_is_kept() {
    for provider in providers() {
        let world = World::new("");
        world.plant_large();
        let options =
            [&SLOWLY[..], &["--fabric", provider, "--stall-timeout", "10", "--group-time", "100", "--json"]]
                .concat();
        let copying = Running::start(&mut world.push(&options));
        world.wait_until_moving();
        std::thread::sleep(Duration::from_secs(2));
        kill_process(world.far_process(), Signal::KILL).unwrap();
        let killed = Instant::now();
        let output = copying.end();
        assert!(matches!(output.status.code(), Some(1 | 3)), "{provider}: {}", talk(&output));
        assert!(killed.elapsed() < Duration::from_secs(60), "{provider}: {:?}", killed.elapsed());
        let again = run(&mut world.push(&["--fabric", provider, "--json"]));
        assert_exit(&again, 0);
        world.assert_arrived();
        let end = json(&again).pop().unwrap();
        let kept = end["bytes_kept"].as_u64().unwrap();
        assert!(kept > 0 && kept < LARGE_BYTES as u64, "{provider}: {end}");
    }
}
