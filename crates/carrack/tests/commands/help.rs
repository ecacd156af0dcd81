//! Help, manual pages, completions and messages as users see them, and the options that they know from scp
//! and rsync.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::common::process::{assert_exit, assert_says, run, talk};
use crate::common::{CARRACK, Places};

/// The start of a red text, as `error:` on a terminal.
const RED: &str = "\u{1b}[1;31m";

fn carrack(words: &[&str]) -> Output {
    run(Command::new(CARRACK).args(words))
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_beginner_is_told_where_to_begin() {
    let told = carrack(&[]);
    assert_exit(&told, 2);
    assert!(told.stdout.is_empty() && talk(&told).lines().count() <= 10, "{}", talk(&told));
    assert_says(&told, &["carrack cp -r", "carrack --help"]);
    for words in [&["--help"][..], &["-h"], &["help"]] {
        let help = carrack(words);
        assert_exit(&help, 0);
        assert!(text(&help).lines().all(|line| line.len() <= 80), "{}", text(&help));
        for heading in
            ["\nCopy:\n", "\nWatch:\n", "\nServe:\n", "\nFleet:\n", "\nMachine:\n", "\nConfigure:\n"]
        {
            assert!(text(&help).contains(heading), "{heading}: {}", text(&help));
        }
    }
}

#[test]
fn short_helps_fit_a_screen_and_name_the_long_ones() {
    for command in ["cp", "sync", "submit", "verify"] {
        let help = text(&carrack(&[command, "-h"]));
        assert!(help.lines().count() <= 60 && help.lines().all(|line| line.len() <= 100), "{help}");
        assert!(help.contains(&format!("carrack {command} --help")), "{help}");
        assert!(text(&carrack(&[command, "--help"])).lines().count() > 100);
    }
}

#[test]
fn manual_pages_are_printed_and_written() {
    let page = carrack(&["man", "cp"]);
    assert_exit(&page, 0);
    assert!(
        text(&page).contains(".TH CARRACK-CP 1") && text(&page).contains("\n.SH FILES\n"),
        "{}",
        text(&page)
    );
    assert!(text(&carrack(&["man"])).contains(".TH CARRACK 1"));
    for unknown in ["session", "no-such"] {
        let refused = carrack(&["man", unknown]);
        assert_exit(&refused, 2);
        assert_says(&refused, &["no command", "hint: "]);
    }
    let places = Places::new();
    assert_exit(&carrack(&["man", "--all", places.near("man1").to_str().unwrap()]), 0);
    for name in ["carrack.1", "carrack-cp.1", "carrack-mover.1", "carrack-fabric.1"] {
        assert!(fs::metadata(places.near("man1").join(name)).unwrap().len() > 1_000, "{name}");
    }
}

#[test]
fn completions_know_no_internal_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&carrack(&["completions", shell]));
        assert!(script.contains("no-target-directory"), "{shell}");
        for internal in ["queue-copy", "serve-session", "serve-queue", "in-background", "of-sync"] {
            assert!(!script.contains(internal), "{shell}: {internal}");
        }
    }
}

#[test]
fn options_that_only_others_have_name_the_way() {
    for (words, said) in [
        (&["cp", "-z", "a", "b"][..], &["does not compress", "hint: leave -z out"][..]),
        (&["sync", "-z", "a", "b"], &["does not compress"]),
        (
            &["cp", "--delete", "a", "b"],
            &["--delete is an option of `carrack sync`", "hint: carrack sync --delete"],
        ),
        (&["cp", "-u", "a", "b"], &["carrack sync --update"]),
        (&["cp", "--max-delete=5", "a", "b"], &["carrack sync --max-delete"]),
        (&["cp", "-rP", "a", "h:b"], &["a port of ssh", "scp -P", "--partial --progress"]),
        (&["cp", "-P", "22", "-e", "docker exec", "a", "h:b"], &["--ssh-port is an option of OpenSSH"]),
        (&["mv", "a", "h:b"], &["moves no files", "carrack cp", "carrack verify", "carrack rm"]),
    ] {
        let refused = carrack(words);
        assert!(matches!(refused.status.code(), Some(2 | 3)), "{words:?}: {}", talk(&refused));
        assert_says(&refused, said);
    }
}

#[test]
fn options_of_scp_and_rsync_do_what_they_do_there() {
    let places = Places::new();
    fs::create_dir(places.near("tree")).unwrap();
    for name in ["keep", "leave.o"] {
        fs::write(places.near("tree").join(name), name).unwrap();
        fs::set_permissions(places.near("tree").join(name), PermissionsExt::from_mode(0o666)).unwrap();
    }
    fs::write(places.near("patterns"), "*.o\n").unwrap();
    let copy = |words: &[&str]| {
        let mut command = Command::new(CARRACK);
        let output = run(command.arg("cp").args(words).current_dir(places.near("")));
        assert_exit(&output, 0);
        output
    };
    let words = ["-rpvv", "--progress", "--exclude-from", "patterns", "--log-file", "log"];
    copy(&[&words[..], &["tree/", "copy"]].concat());
    let mode = fs::metadata(places.near("copy/keep")).unwrap().permissions().mode();
    assert_eq!((mode & 0o777, places.near("copy/leave.o").exists()), (0o666, false));
    copy(&["--quiet", "--log-file", "log", "tree/keep", "again"]);
    let log = fs::read_to_string(places.near("log")).unwrap();
    assert_eq!(log.matches("carrack: copied 1 file").count(), 2, "{log}");
}

/// The program of `-e` has ssh's name, and notes what it is told.
#[test]
fn a_port_a_key_and_jump_hosts_reach_ssh() {
    let places = Places::new();
    fs::create_dir(places.near("bin")).unwrap();
    let (ssh, told) = (places.near("bin/ssh"), places.near("told"));
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *' -G '*) exit 1;; esac\necho \"$*\" >'{}'\n\
         while [ \"$1\" != -- ]; do shift; done; shift 2\nexec sh -c \"$*\"\n",
        told.display()
    );
    fs::write(&ssh, script).unwrap();
    fs::set_permissions(&ssh, PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(places.near("a"), "a").unwrap();
    fs::write(places.near("key"), "-----BEGIN OPENSSH PRIVATE KEY-----\n").unwrap();
    let mut command = Command::new(CARRACK);
    command.args(["cp", "-P", "2222", "-i", "key", "-J", "gate", "-e", ssh.to_str().unwrap()]);
    command.args(["--remote-carrack", CARRACK, "a"]).arg(format!("host:{}", places.far("b").display()));
    assert_exit(&run(command.current_dir(places.near(""))), 0);
    assert_eq!(fs::read_to_string(places.far("b")).unwrap(), "a");
    let told = fs::read_to_string(told).unwrap();
    assert!(told.starts_with("-p 2222 -i key -J gate -x -T"), "{told}");
}

/// People see the system's message, and never its number.
#[test]
fn no_message_has_the_number_of_a_system_error() {
    let places = Places::new();
    fs::write(places.near("a"), "a").unwrap();
    for words in [
        &["cp", "nowhere", "b"][..],
        &["cp", "a", "nowhere/b/c"],
        &["cp", "a", "/proc/b"],
        &["cp", "--json", "nowhere", "b"],
        &["cp", "--manifest", "nowhere/x", "a", "b"],
        &["cp", "--report", "nowhere/x", "a", "b"],
        &["cp", "--log-file", "nowhere/x", "a", "b"],
        &["cp", "--files-from", "nowhere", "a", "b"],
        &["cp", "--exclude-from", "nowhere", "a", "b"],
        &["cp", "--ssh", "/nowhere/ssh", "a", "h:b"],
        &["cp", "--token-file", "nowhere", "a", "carrack://localhost:1/x"],
        &["sync", "--delete", "nowhere/", "b"],
        &["verify", "nowhere", "b"],
        &["verify", "--json", "nowhere", "b"],
        &["ls", "nowhere"],
        &["stat", "nowhere"],
        &["mkdir", "nowhere/b"],
        &["rm", "-y", "nowhere"],
        &["layout", "nowhere"],
        &["journals", "list", "nowhere"],
        &["journals", "inspect", "nowhere"],
        &["journals", "drop", "nowhere"],
        &["keys", "show", "nowhere"],
        &["keys", "issue", "x", "--dir", "nowhere"],
        &["topo", "--topology", "./nowhere.xml"],
        &["forecast", "x", "--csv", "nowhere"],
        &["serve", "--check", "--config", "nowhere"],
        &["status", "--server", "unix:/nowhere"],
        &["submit", "--server", "unix:/nowhere", "local:/a", "local:/b"],
        &["targets", "--socket", "/nowhere"],
        &["api", "--nats", "nats://127.0.0.1:1", "--socket", "made/s"],
        &["man", "--all", "/proc/nowhere"],
    ] {
        let mut command = Command::new(CARRACK);
        let output = run(command.args(words).current_dir(places.near("")).env("HOME", places.near("")));
        let said = format!("{}{}", text(&output), talk(&output));
        assert!(!output.status.success() && !said.is_empty(), "{words:?}: {said}");
        assert!(!said.contains("os error"), "{words:?}: {said}");
    }
}

#[test]
fn colour_is_for_terminals_and_for_who_asks() {
    let shown = |variables: &[(&str, &str)]| {
        let mut command = Command::new(CARRACK);
        command.args(["cp", "nowhere", "b"]).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        talk(&run(command.envs(variables.iter().copied()))).clone()
    };
    assert!(!shown(&[]).contains('\u{1b}'), "{}", shown(&[]));
    let painted = shown(&[("CLICOLOR_FORCE", "1")]);
    assert!(painted.contains(RED) && painted.contains("\u{1b}[0m"), "{painted}");
    assert!(!shown(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).contains('\u{1b}'));
    // Other messages, and a table.
    let mut command = Command::new(CARRACK);
    let output = run(command.args(["man", "no-such"]).env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR"));
    assert!(talk(&output).starts_with(&format!("carrack: {RED}error:")), "{}", talk(&output));
    let mut command = Command::new(CARRACK);
    let output = run(command.arg("doctor").env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR"));
    assert!(text(&output).contains("\u{1b}[1;32mok\u{1b}[0m"), "{}", text(&output));
}
