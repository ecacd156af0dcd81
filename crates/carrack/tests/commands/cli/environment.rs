//! Copies in environments that give a process less than usual: no home, small limits, little memory, a full
//! destination.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::World;
use crate::common::process::{assert_exit, assert_says, json, run, talk};
use crate::common::tree::{assert_same, noise, plant};
use crate::common::{CARRACK, skip};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A small tmpfs, which is unmounted on drop.
struct Mount(PathBuf);

impl Mount {
    fn new(path: PathBuf, options: &str) -> Option<Mount> {
        fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(&path).output();
        let is_mounted = is_root() && mounted.is_ok_and(|output| output.status.success());
        if !is_mounted {
            skip("no tmpfs can be mounted");
        }
        is_mounted.then_some(Mount(path))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// A memory cgroup, of either version; `None`, with a printed reason, where none can be made.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new(mib: u64) -> Option<MemoryGroup> {
        let (top, file) = match Path::new("/sys/fs/cgroup/memory").is_dir() {
            true => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            false => ("/sys/fs/cgroup", "memory.max"),
        };
        let group = Path::new(top).join(format!("carrack-test-{}-{mib}", std::process::id()));
        let made = fs::create_dir(&group).map(|()| MemoryGroup(group));
        let limited = made.and_then(|made| {
            fs::write(made.0.join(file), (mib << 20).to_string())?;
            Ok(made)
        });
        limited.inspect_err(|error| skip(&format!("no memory cgroup: {error}"))).ok()
    }

    /// Returns the command, which enters the group first.
    fn around(&self, command: &Command) -> Command {
        shell("echo $$ >\"$GROUP/cgroup.procs\"", command, &[("GROUP", self.0.as_os_str().to_owned())])
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Returns the command after words of a shell, such as `ulimit`.
fn shell(words: &str, command: &Command, environment: &[(&str, OsString)]) -> Command {
    let mut around = Command::new("sh");
    around.args(["-c", &format!("{words} && exec \"$0\" \"$@\"")]).arg(command.get_program());
    around.args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        around.current_dir(directory);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => around.env(name, value),
            None => around.env_remove(name),
        };
    }
    around.envs(environment.iter().map(|(name, value)| (name, value)));
    around
}

#[test]
fn a_home_that_is_not_the_users_is_left_alone() {
    let world = World::new();
    fs::write(world.near("a"), "a").unwrap();
    fs::create_dir_all(world.near("theirs/.config/carrack")).unwrap();
    fs::write(world.near("theirs/.config/carrack/config.toml"), "nonsense = 1\n").unwrap();
    let with_home = |home: &Path, verbose: &[&str]| {
        let mut command = world.command(&[&["cp"], verbose, &["a", "copy"]].concat());
        let _ = fs::remove_file(world.near("copy"));
        let output =
            run(command.env("HOME", home).env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME"));
        assert_exit(&output, 0);
        assert_eq!(fs::read(world.near("copy")).unwrap(), b"a");
        output
    };
    for home in [world.near("none"), "/".into(), "relative".into(), world.near("a")] {
        let output = with_home(&home, &[]);
        assert!(!talk(&output).contains("warning"), "{}", talk(&output));
        assert_says(&with_home(&home, &["-v"]), &["warning: HOME is", "no notes are kept"]);
    }
    assert!(!world.near("none").exists());
    fs::create_dir(world.near("own")).unwrap();
    with_home(&world.near("own"), &[]);
    assert!(world.near("own/.local/state/carrack").is_dir());
    if !is_root() {
        return skip("only root may give a home away");
    }
    let theirs = world.near("theirs");
    std::os::unix::fs::chown(&theirs, Some(4242), Some(4242)).unwrap();
    with_home(&theirs, &[]);
    assert!(!theirs.join(".local").exists());
    assert_eq!(fs::metadata(&theirs).unwrap().uid(), 4242);
}

/// This is the state after `su`, and in an image that starts as another user.
#[test]
fn a_home_that_may_not_be_entered_is_left_alone() {
    let world = World::new();
    if !is_root() {
        return skip("needs two users");
    }
    let place = world.near("");
    for directory in place.ancestors().take_while(|directory| *directory != Path::new("/")) {
        let may_enter = fs::metadata(directory).unwrap().mode() & 0o001 != 0;
        if !may_enter && !directory.starts_with(std::env::temp_dir()) {
            return skip("the temporary directory is not for others");
        }
        if !may_enter {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    fs::write(world.near("a"), "a").unwrap();
    for (name, mode) in [("home", 0o700), ("to", 0o777)] {
        fs::create_dir(world.near(name)).unwrap();
        fs::set_permissions(world.near(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let words = format!("cp {CARRACK} to/carrack && chmod 755 to/carrack");
    assert_exit(&run(Command::new("sh").args(["-c", &words]).current_dir(world.near(""))), 0);
    for (variable, value) in [("HOME", world.near("home")), ("XDG_CONFIG_HOME", world.near("home/config"))] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "4242", "--regid", "4242", "--clear-groups"]);
        command.args(["to/carrack", "cp", "a", "to/copy"]).current_dir(world.near(""));
        command.env_remove("XDG_STATE_HOME").env(variable, value);
        assert_exit(&run(&mut command), 0);
        fs::remove_file(world.near("to/copy")).unwrap();
    }
}

/// A part is done and a part failed in every direction of copying, and the summary counts the done part.
#[test]
fn a_full_destination_is_a_partial_copy() {
    let world = World::new();
    fs::create_dir(world.near("tree")).unwrap();
    for i in 0..40 {
        fs::write(world.near("tree").join(format!("small{i}")), [7; 3_000]).unwrap();
    }
    fs::write(world.near("tree/too-large"), vec![7; 40_000_000]).unwrap();
    for (name, words) in [
        ("a", &["cp", "-r", "tree"][..]),
        ("b", &["sync", "tree/"]),
        ("c", &["cp", "-r", "--remote-carrack", CARRACK, "tree"]),
    ] {
        let far = if name == "c" { "host:" } else { "" };
        // The order of the files is chance: in some attempt small ones are complete.
        let is_partial = (0..8).any(|attempt| {
            let Some(mount) = Mount::new(world.near(&format!("{name}{attempt}")), "size=24m") else {
                return true;
            };
            let to = format!("{far}{}/", mount.0.display());
            let output = world.run(&[words, &["--json", &to]].concat());
            assert_says(&output, &["No space left"]);
            let summary = json(&output).pop().unwrap();
            let done = summary["files_done"].as_u64().unwrap();
            assert_exit(&output, if done > 0 { 1 } else { 3 });
            assert_eq!(summary["bytes_done"], 3_000 * done, "{summary}");
            done > 0
        });
        assert!(is_partial, "{words:?}");
    }
}

/// Runs carrack from a shell that limits the process first.
fn limited(world: &World, limit: &str, arguments: &[&str]) -> Output {
    let mut command = shell(limit, &world.command(arguments), &[]);
    run(&mut command)
}

#[test]
fn a_file_beyond_the_size_limit_fails_alone() {
    let world = World::new();
    fs::create_dir(world.near("tree")).unwrap();
    fs::write(world.near("tree/small"), "small").unwrap();
    fs::write(world.near("tree/large"), vec![7; 3_000_000]).unwrap();
    // The limit is in blocks of 512 bytes.
    let output = limited(&world, "ulimit -f 2000", &["cp", "-r", "--no-journal", "--json", "tree", "copy"]);
    assert_exit(&output, 1);
    let events = json(&output);
    let failed: Vec<&str> =
        events.iter().filter(|e| e["event"] == "failed").filter_map(|e| e["detail"].as_str()).collect();
    assert!(matches!(failed[..], [detail] if detail.contains("File too large")), "{failed:?}");
    let summary = events.last().unwrap();
    assert_eq!((&summary["files_done"], &summary["bytes_done"]), (&1.into(), &5.into()));
}

#[test]
fn small_limits_are_kept_to() {
    let world = World::new();
    plant(&world.near("tree"));
    for (number, limit) in
        ["ulimit -s 64", "ulimit -v 600000", "ulimit -d 300000", "ulimit -l 0", "ulimit -n 64"]
            .iter()
            .enumerate()
    {
        let to = format!("copy{number}");
        assert_exit(&limited(&world, limit, &["cp", "-r", "tree", &to]), 0);
        assert_same(&world.near("tree"), &world.near(&to));
    }
    let told = limited(&world, "ulimit -v 600000", &["cp", "-rv", "tree", "told"]);
    assert_says(&told, &["buffers of ", "ulimit -v is 585 MiB, of which "]);
    let chosen = limited(&world, "ulimit -v 600000", &["cp", "-r", "--buffer", "1GiB", "tree", "chosen"]);
    assert_exit(&chosen, 0);
    assert_says(&chosen, &["warning: --buffer: buffers of "]);
    let refused =
        limited(&world, "ulimit -v 600000", &["cp", "--object-size", "64MiB", "tree/big", "refused"]);
    assert_exit(&refused, 3);
    assert_says(
        &refused,
        &["4 buffers of 67108864 bytes do not fit", "hint: choose a smaller --object-size"],
    );
}

/// Plants large files in many directories.
fn plant_wide(tree: &Path) {
    let large = noise(1_200_000);
    for number in 0..60 {
        let directory = tree.join(format!("wide/{number}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("large"), &large).unwrap();
        fs::write(directory.join("small"), number.to_string()).unwrap();
    }
}

/// Plants more levels than there are descriptors.
fn plant_deep(tree: &Path) {
    let mut deep = tree.join("deep");
    for level in 0..300 {
        deep.push("level");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), level.to_string()).unwrap();
    }
}

/// The limit holds for both ends in one process, and for the other end alone. The hard limit can't be raised.
#[test]
fn few_descriptors_are_enough() {
    let world = World::new();
    for tree in [world.near("tree"), world.far("tree")] {
        plant_wide(&tree);
        plant_deep(&tree);
    }
    for limit in ["ulimit -n 64", "ulimit -n 128"] {
        let done = |words: &[&str]| assert_exit(&limited(&world, limit, words), 0);
        done(&["cp", "-a", "tree", "copy"]);
        assert_same(&world.near("tree"), &world.near("copy"));
        ["copy/wide/7/gone", "copy/gone"].iter().for_each(|path| plant_deep(&world.near(path)));
        for _ in 0..2 {
            done(&["sync", "-a", "--delete", "tree/", "copy"]);
        }
        done(&["verify", "tree/", "copy"]);
        assert_same(&world.near("tree"), &world.near("copy"));
        done(&["rm", "--yes", "-r", "copy"]);
        assert!(!world.near("copy").exists());
    }
    let few = world.script("few", &format!("ulimit -n 64; exec '{CARRACK}' \"$@\""));
    let done = |verb: &[&str], words: &[&str]| {
        assert_exit(&world.run(&[verb, &["--remote-carrack", &few], words].concat()), 0);
    };
    done(&["cp", "-a"], &["tree", "host:copy"]);
    assert_same(&world.near("tree"), &world.far("copy"));
    done(&["verify"], &["tree/", "host:copy"]);
    done(&["cp", "-a"], &["host:tree", "back"]);
    assert_same(&world.far("tree"), &world.near("back"));
    done(&["rm", "--yes", "-r"], &["host:copy"]);
    assert!(!world.far("copy").exists());
}

/// Both ends together are in the group, as in a container.
#[test]
fn little_memory_is_enough() {
    let world = World::new();
    let Some(group) = MemoryGroup::new(64) else { return };
    fs::write(world.near("large"), vec![7; 100_000_000]).unwrap();
    for (words, to) in [
        (&["cp", "-v", "large"][..], "copy"),
        (&["cp", "-v", "--remote-carrack", CARRACK, "large"], "host:copy"),
    ] {
        let output = run(&mut group.around(&world.command(&[words, &[to]].concat())));
        assert_exit(&output, 0);
        assert_says(&output, &["buffers of ", "/memory."]);
    }
    let length = |path: PathBuf| fs::metadata(path).unwrap().len();
    assert_eq!((length(world.near("copy")), length(world.far("copy"))), (100_000_000, 100_000_000));
}

#[test]
fn closed_streams_do_not_matter() {
    let world = World::new();
    fs::write(world.near("a"), "a").unwrap();
    let closed = world.command(&["cp", "a", "copy"]);
    let mut command = shell("exec <&- >&- 2>&-", &closed, &[("LANG", "".into())]);
    assert_exit(&run(&mut command), 0);
    assert_eq!(fs::read(world.near("copy")).unwrap(), b"a");
}

#[test]
fn without_proc_the_copy_works_all_the_same() {
    let world = World::new();
    plant(&world.near("tree"));
    let without = "umount -l /proc";
    let can = is_root()
        && Command::new("unshare")
            .args(["-m", "sh", "-c", without])
            .output()
            .is_ok_and(|o| o.status.success());
    if !can {
        return skip("no mount namespace");
    }
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &format!("{without} && exec \"$0\" \"$@\""), CARRACK]);
    command.args(["cp", "-r", "tree", "copy"]).current_dir(world.near(""));
    assert_exit(&run(&mut command), 0);
    assert_same(&world.near("tree"), &world.near("copy"));
}

/// On this host and over ssh, alone and among others.
#[test]
fn a_source_that_is_no_file_is_a_failure() {
    let world = World::new();
    for place in [world.near("pipe"), world.far("pipe")] {
        mknodat(CWD, &place, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    }
    for directory in [world.near(""), world.far("")] {
        fs::write(directory.join("a"), "a").unwrap();
    }
    fs::create_dir(world.near("to")).unwrap();
    fs::create_dir(world.far("to")).unwrap();
    for (sources, code) in [
        (&["pipe"][..], 3),
        (&["pipe", "a"], 1),
        (&["/dev/zero"], 3),
        (&["host:pipe"], 3),
        (&["host:a", "host:pipe"], 1),
    ] {
        let is_far = sources[0].starts_with("host:");
        for to in ["to/", "host:to/"].iter().filter(|to| !is_far || !to.starts_with("host:")) {
            let output = world.copy(&[sources, &[to]].concat());
            assert_exit(&output, code);
            assert_says(&output, &["which is not copied", "hint: not-a-file: "]);
        }
        assert!(!world.near("to/pipe").exists() && !world.near("to/zero").exists());
    }
    // Within a tree it is left out, as before.
    assert_exit(&world.copy(&["-r", "--exclude", "/to", "./", "host:tree"]), 0);
    // With the option that makes it anew it is no failure.
    assert_exit(&world.copy(&["--specials", "pipe", "host:made"]), 0);
    assert!(fs::metadata(world.far("made")).unwrap().mode() & 0o170000 == 0o010000);
}

#[test]
fn far_patterns_are_expanded_at_the_far_end() {
    let world = World::new();
    fs::create_dir_all(world.far("run 1/sub.dat")).unwrap();
    for name in ["a.dat", "b.dat", "c.txt", ".hidden.dat", "sub.dat/f"] {
        fs::write(world.far("run 1").join(name), name).unwrap();
    }
    fs::create_dir(world.near("to")).unwrap();
    let output = world.copy(&["-r", "host:run*/*.dat", "to/"]);
    assert_exit(&output, 0);
    let mut names: Vec<_> =
        fs::read_dir(world.near("to")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.dat", "b.dat", "sub.dat"]);
    assert!(world.near("to/sub.dat/f").exists());
    // A literal name takes precedence.
    fs::write(world.far("run 1/[c].txt"), "itself").unwrap();
    assert_exit(&world.copy(&["host:run 1/[c].txt", "to/"]), 0);
    assert!(world.near("to/[c].txt").exists() && !world.near("to/c.txt").exists());
    // Two files can't become a single one.
    let output = world.copy(&["host:run 1/[ab].dat", "file"]);
    assert_exit(&output, 0);
    assert!(world.near("file/a.dat").exists() && world.near("file/b.dat").exists());
    let none = world.copy(&["host:*.none", "to/"]);
    assert_exit(&none, 3);
    assert_says(&none, &["*.none: No such file"]);
}

#[test]
fn the_far_carrack_may_be_behind_another_command() {
    let world = World::new();
    fs::write(world.near("a b"), "a").unwrap();
    fs::create_dir(world.far("my bin")).unwrap();
    symlink(CARRACK, world.far("my bin/carrack")).unwrap();
    let quoted = format!("'{}'", world.far("my bin/carrack").display());
    for (number, far) in [
        format!("env WHO=me {CARRACK}"),
        format!("nice -n 1 {quoted}"),
        quoted,
        format!("WHO=me; export WHO && {CARRACK}"),
    ]
    .iter()
    .enumerate()
    {
        let to = format!("copy {number}");
        let output = world.run(&["cp", "--remote-carrack", far, "a b", &format!("host:{to}")]);
        assert_exit(&output, 0);
        // The stand-in is not ssh, which would check the integrity of its stream.
        assert_says(&output, &["checked with xxh3"]);
        assert!(world.far(&to).exists(), "{far}");
    }
    assert_exit(&world.run(&["cp", "--remote-carrack", "sudo 'x", "a b", "host:"]), 2);
    let ssh = world.script("broken", "head -c 16 >/dev/null; exit 255");
    let failed = world.run(&["cp", "--ssh", &format!("{ssh} -p 22"), "a b", "host:"]);
    assert_says(&failed, &[&format!("hint: try `{ssh} -p 22 host true`")]);
}
