//! The pages of docs/: runs the commands of their runnable blocks (`console run`), and checks that the book
//! has all pages. A block's preparations, which its readers have made already, precede it in a comment, `<!--
//! run`, with one command a line. Every host name stands for this host, and `$PAGE` is the page.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::common::process::{Running, talk};
use crate::common::{CARRACK, DIRECT_SHELL, free_port};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// The port that pages have daemons listen on.
const PORT: &str = "7512";

/// Many times the time of a page on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a page's runnable commands as a script: the text after `$ `, and after `> ` where a command
/// continues; and the preparations.
fn script(page: &str) -> String {
    let mut script = String::new();
    let (mut inside, mut is_comment) = (false, false);
    for line in page.lines() {
        match line {
            "```console run" => inside = true,
            "```" => inside = false,
            "<!-- run" => is_comment = true,
            "-->" => is_comment = false,
            _ if is_comment => script += &format!("{line}\n"),
            _ if inside => {
                if let Some(command) = line.strip_prefix("$ ").or_else(|| line.strip_prefix("> ")) {
                    script += &format!("{command}\n");
                }
            }
            _ => {}
        }
    }
    script
}

/// The processes of a page, which are killed on drop.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // It fails only for a group without processes.
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

/// Runs a script in an empty directory that is the home, too. It ends at the first command that fails,
/// together with its processes.
fn run(script: &str, page: &Path) -> Output {
    let home = tempfile::tempdir().unwrap();
    let port = free_port().to_string();
    let program = Path::new(CARRACK).parent().unwrap().display();
    let shells = tempfile::tempdir().unwrap();
    symlink(DIRECT_SHELL, shells.path().join("ssh")).unwrap();
    let path = format!("{}:{program}:{}", shells.path().display(), std::env::var("PATH").unwrap());
    let script = format!("set -eu -o pipefail\n{}", script.replace(PORT, &port));
    let mut bash = Command::new("bash");
    bash.args(["-xc", &script]).current_dir(home.path()).process_group(0);
    bash.env("HOME", home.path()).env("PATH", path).env("PAGE", page);
    for variable in ["CARRACK_CA", "CARRACK_TOKEN", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
        bash.env_remove(variable);
    }
    let running = Running::start(&mut bash);
    let _group = Group(Pid::from_raw(running.id().cast_signed()).unwrap());
    running.end_within(PATIENCE)
}

fn pages(directory: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.insert(path);
        }
    }
}

#[test]
fn the_commands_of_the_pages_run() {
    let mut found = BTreeSet::new();
    pages(Path::new(DOCS), &mut found);
    let mut ran = BTreeSet::new();
    for page in found {
        let script = script(&fs::read_to_string(&page).unwrap());
        if !script.is_empty() {
            let output = run(&script, &page);
            assert!(output.status.success(), "{}: {}\n{}", page.display(), output.status, talk(&output));
            ran.insert(page.file_name().unwrap().to_owned());
        }
    }
    for page in [
        "batch-jobs.md",
        "cluster-to-cluster.md",
        "config.md",
        "daemon.md",
        "dtn.md",
        "exit-codes.md",
        "first-transfer.md",
        "laptop-to-cluster.md",
        "nightly-mirror.md",
        "partial.md",
        "queue.md",
        "resume.md",
        "retry.md",
        "scheduling.md",
        "sharing.md",
        "small-files.md",
        "watching.md",
        "without-account.md",
    ] {
        assert!(ran.contains(Path::new(page).as_os_str()), "{page} has nothing to run");
    }
}

#[test]
fn a_command_of_a_page_that_fails_is_noticed() {
    let page = |command: &str| format!("```console run\n$ true\nfalse\n$ {command}\n$ true\n```\n$ false\n");
    let run = |page: String| run(&script(&page), Path::new("page.md"));
    assert!(run(page("cat <<END\n> false\n> END")).status.success());
    for command in ["false", "false | cat", "carrack cp nothing to"] {
        assert!(!run(page(command)).status.success(), "{command}");
        assert!(!run(format!("<!-- run\n{command}\n-->\n")).status.success(), "{command}");
    }
}

#[test]
fn the_book_has_every_page() {
    let summary = fs::read_to_string(Path::new(DOCS).join("SUMMARY.md")).unwrap();
    let linked = summary.lines().filter_map(|line| line.rsplit_once("](")?.1.strip_suffix(')'));
    let linked: BTreeSet<_> = linked.map(|page| Path::new(DOCS).join(page)).collect();
    let mut there = BTreeSet::new();
    pages(Path::new(DOCS), &mut there);
    there.remove(&Path::new(DOCS).join("SUMMARY.md"));
    assert_eq!(linked, there);
}
