//! Far hosts without carrack: a program is sent, kept, found again, and refused where it may not be trusted.
//!
//! The far host is another home directory on this machine, behind a stand-in for ssh that runs the command in
//! a login shell with a small environment. The program that is sent is a script that starts the command under
//! test.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::process::{assert_exit, assert_says, run, talk};
use crate::common::sshd::Sshd;
use crate::common::tree::{assert_same, noise, plant};
use crate::common::{CARRACK, Places, skip};

/// What the near end prints when it sends a program.
const SENT: &str = "has no carrack 0.1.0, and gets one now";

struct FarHost {
    places: Places,
    ssh: String,
    shell: String,
    /// The far user's PATH behind a directory of the test's.
    path: String,
    /// Runs before the shell, as root in a mount namespace of its own.
    mounts: String,
}

impl FarHost {
    fn new() -> FarHost {
        let places = Places::new();
        // As OpenSSH's client: options up to `--`, the host, and a command for the far user's login shell.
        let ssh = places.script(
            "ssh",
            "while [ \"$1\" != -- ]; do case $1 in -G) exit 1 ;; esac; shift; done; shift 2\n\
             [ -z \"$FAR_MOUNTS\" ] || { \n\
             export FAR_COMMAND=\"$*\"\n\
             exec unshare -m sh -c \"$FAR_MOUNTS\"'\nexec env -i $FAR_ENV $FAR_SHELL -c \"$FAR_COMMAND\"'; }\n\
             exec env -i $FAR_ENV $FAR_SHELL -c \"$*\"",
        );
        fs::create_dir(places.far("home")).unwrap();
        fs::create_dir(places.far("run")).unwrap();
        fs::create_dir(places.near("programs")).unwrap();
        let host =
            FarHost { places, ssh, shell: "sh".into(), path: "/usr/bin:/bin".into(), mounts: String::new() };
        host.offer("x86_64", &format!("#!/bin/sh\nexec {CARRACK} \"$@\"\n"));
        plant(&host.places.near("tree"));
        host
    }

    /// Writes the near end's program for this kind of machine.
    fn offer(&self, machine: &str, text: &str) {
        let programs = self.places.near("programs");
        fs::write(programs.join(format!("carrack-0.1.0-linux-{machine}")), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let far = |path: &str| self.places.far(path).display().to_string();
        let mut command = Command::new(CARRACK);
        command.args(arguments).args(["--bootstrap-dir", "programs"]).env("CARRACK_SSH", &self.ssh);
        command
            .current_dir(self.places.near(""))
            .env("FAR_SHELL", &self.shell)
            .env("FAR_MOUNTS", &self.mounts);
        command.env(
            "FAR_ENV",
            format!("HOME={} XDG_RUNTIME_DIR={} PATH={}:{}", far("home"), far("run"), far("bin"), self.path),
        );
        command
    }

    fn remote(&self, path: &str) -> String {
        format!("127.0.0.1:{}", self.places.far(path).display())
    }

    /// Copies the tree to this name on the far host.
    fn copy_to(&self, name: &str) -> Output {
        run(&mut self.command(&["cp", "-r", "--perms", "tree", &self.remote(name)]))
    }

    #[track_caller]
    fn assert_copies(&self, name: &str, sends: bool) -> Output {
        let copied = self.copy_to(name);
        assert_exit(&copied, 0);
        assert_eq!(talk(&copied).contains(SENT), sends, "{}", talk(&copied));
        assert_same(&self.places.near("tree"), &self.places.far(name));
        copied
    }

    /// Returns the programs that are kept beneath this directory of the far host.
    fn kept(&self, cache: &str) -> Vec<PathBuf> {
        let versions = fs::read_dir(self.places.far(cache).join("carrack")).into_iter().flatten();
        versions.map(|version| version.unwrap().path().join("carrack")).filter(|path| path.exists()).collect()
    }
}

#[test]
fn a_bare_host_gets_a_program_once() {
    let host = FarHost::new();
    host.assert_copies("first", true);
    let kept = host.kept("home/.cache");
    let [program] = &kept[..] else { panic!("{kept:?}") };
    let directory = program.parent().unwrap();
    assert!(directory.file_name().unwrap().to_str().unwrap().starts_with("0.1.0-"));
    assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
    assert_eq!(fs::read_dir(directory).unwrap().count(), 1, "nothing else is left there");

    host.assert_copies("second", false);
    for far in ["first", "second"] {
        assert_exit(&run(&mut host.command(&["verify", "tree", &host.remote(far)])), 0);
    }
    let listed = run(&mut host.command(&["ls", &host.remote("first")]));
    assert!(String::from_utf8_lossy(&listed.stdout).contains("empty"), "{listed:?}");
    let (from, to) = (host.remote("first"), host.remote("third"));
    assert_exit(&run(&mut host.command(&["cp", "-r", "--perms", &from, &to])), 0);
    assert_same(&host.places.near("tree"), &host.places.far("third"));
}

#[test]
fn the_far_users_umask_decides_as_before() {
    let host = FarHost::new();
    let shell = host.places.script("shell", "umask 0002; exec sh \"$@\"");
    let host = FarHost { shell, ..host };
    set_mode(&host.places.near("tree/big"), 0o666);
    for name in ["first", "second"] {
        assert_exit(&run(&mut host.command(&["cp", "-r", "tree", &host.remote(name)])), 0);
        let mode = host.places.far(name).join("big").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o664, "{name}");
    }
}

#[test]
fn other_commands_send_it_too() {
    for what in ["ls", "verify", "between", "from"] {
        let host = FarHost::new();
        let there =
            Command::new("cp").arg("-a").args([host.places.near("tree"), host.places.far("tree")]).status();
        assert!(there.unwrap().success());
        let (tree, copy) = (host.remote("tree"), host.remote("copy"));
        let arguments = match what {
            "ls" => vec!["ls", &tree],
            "verify" => vec!["verify", "tree", &tree],
            "between" => vec!["cp", "-r", "--perms", &tree, &copy],
            _ => vec!["cp", "-r", "--perms", &tree, "copy"],
        };
        let output = run(&mut host.command(&arguments));
        assert_exit(&output, 0);
        assert!(talk(&output).contains(SENT), "{what}: {}", talk(&output));
        assert_eq!(host.kept("home/.cache").len(), 1, "{what}");
    }
}

#[test]
fn any_login_shell_will_do() {
    for shell in ["sh", "bash", "dash", "zsh", "fish", "tcsh", "mksh", "busybox sh"] {
        let program = shell.split(' ').next().unwrap();
        if Command::new(program).arg("-c").arg("true").output().is_err() {
            skip(&format!("no {shell}"));
            continue;
        }
        let host = FarHost { shell: shell.to_owned(), ..FarHost::new() };
        host.assert_copies("first", true);
        host.assert_copies("second", false);
    }
}

#[test]
fn an_installed_one_is_used_unless_it_speaks_another_protocol() {
    let host = FarHost::new();
    fs::create_dir(host.places.far("bin")).unwrap();
    let install = |script: &str| {
        let path = host.places.far("bin/carrack");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    install(&format!("echo Welcome; exec {CARRACK} \"$@\""));
    host.assert_copies("installed", false);
    assert!(host.kept("home/.cache").is_empty());

    install("printf 'carrack\\0\\001\\0\\002\\0\\0\\0\\0\\0'; exit 76");
    host.assert_copies("other", true);
    let mut stubborn = host.command(&["cp", "-r", "--no-bootstrap", "tree", &host.remote("never")]);
    let refused = run(&mut stubborn);
    assert_exit(&refused, 3);
    assert_says(&refused, &["speaks protocol versions 1 to 2"]);
}

#[test]
fn nothing_is_sent_where_it_is_not_wanted() {
    let host = FarHost::new();
    let to = host.remote("copy");
    for option in [&["--no-bootstrap"][..], &["--remote-carrack", "no/carrack"]] {
        let refused = run(host.command(&["cp", "-r", "tree", &to]).args(option));
        assert_exit(&refused, 3);
        assert_says(&refused, &["was not found on 127.0.0.1"]);
        assert!(host.kept("home/.cache").is_empty());
    }
    host.offer("aarch64", "#!/bin/sh\n");
    fs::remove_file(host.places.near("programs/carrack-0.1.0-linux-x86_64")).unwrap();
    let refused = host.copy_to("copy");
    assert_exit(&refused, 3);
    assert_says(&refused, &["there is no program for Linux", "--bootstrap-dir"]);
    assert!(!host.places.far("copy").exists());
}

/// What it is, and what it does with the program that is kept.
type Attack = (&'static str, fn(&Path));

#[test]
fn what_others_could_have_written_is_not_run() {
    // Each of these is what another user of the far host may have planted, or a disk has changed.
    let attacks: [Attack; 6] = [
        ("the program was changed", |program| {
            fs::write(program, "#!/bin/sh\ntouch \"$HOME/run\"\n").unwrap()
        }),
        ("the directory is open to others", |program| {
            set_mode(program.parent().unwrap(), 0o777);
        }),
        ("the directories above are open to others", |program| {
            set_mode(program.ancestors().nth(2).unwrap(), 0o777);
        }),
        ("others may replace the cache", |program| set_mode(program.ancestors().nth(3).unwrap(), 0o777)),
        ("the directory is a symbolic link", |program| {
            let directory = program.parent().unwrap();
            let moved = directory.with_extension("moved");
            fs::rename(directory, &moved).unwrap();
            symlink(&moved, directory).unwrap();
        }),
        ("the program is a symbolic link to a changed one", |program| {
            let evil = program.ancestors().nth(3).unwrap().join("evil");
            fs::write(&evil, "#!/bin/sh\ntouch \"$HOME/run\"\n").unwrap();
            set_mode(&evil, 0o755);
            fs::remove_file(program).unwrap();
            symlink(&evil, program).unwrap();
        }),
    ];
    for (what, attack) in attacks {
        let host = FarHost::new();
        host.assert_copies("first", true);
        attack(&host.kept("home/.cache")[0]);
        host.assert_copies("second", true);
        assert!(!host.places.far("home/run").exists(), "{what}");
        host.assert_copies("third", false);
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn nothing_is_made_behind_another_users_link() {
    let host = FarHost::new();
    fs::create_dir(host.places.far("home/.cache")).unwrap();
    fs::create_dir(host.places.far("target")).unwrap();
    symlink(host.places.far("target"), host.places.far("home/.cache/carrack")).unwrap();
    host.assert_copies("first", true);
    assert_eq!(fs::read_dir(host.places.far("target")).unwrap().count(), 0);
    assert_eq!(host.kept("run").len(), 1, "the next place was taken");
}

#[test]
fn a_cache_that_runs_no_programs_any_more_is_passed_over() {
    let Some(host) = with_mounts("mount --bind HOME HOME; mount -o remount,bind,noexec HOME") else { return };
    let mounts = host.mounts.clone();
    let host = FarHost { mounts: String::new(), ..host };
    host.assert_copies("first", true);
    assert_eq!(host.kept("home/.cache").len(), 1);
    let host = FarHost { mounts, ..host };
    host.assert_copies("second", true);
    assert_eq!(host.kept("run").len(), 1, "the next place was taken");
    host.assert_copies("third", false);
}

/// Returns a far host whose PATH has these tools alone.
fn with_tools_but(missing: &[&str]) -> FarHost {
    let host = FarHost { shell: "/bin/sh".into(), ..FarHost::new() };
    fs::create_dir(host.places.far("bin")).unwrap();
    let tools =
        ["cat", "chmod", "date", "dd", "find", "gzip", "head", "id", "ls", "mkdir", "mv", "rm", "rmdir"];
    let tools = tools.into_iter().chain(["sh", "sha256sum", "uname", "wc"]);
    for tool in tools.filter(|tool| !missing.contains(tool)) {
        symlink(Path::new("/usr/bin").join(tool), host.places.far("bin").join(tool)).unwrap();
    }
    FarHost { path: String::new(), ..host }
}

#[test]
fn a_host_without_a_tool_gets_along_or_says_so() {
    with_tools_but(&["gzip"]).assert_copies("copy", true);
    let host = with_tools_but(&["sha256sum", "gzip"]);
    host.assert_copies("first", true);
    // Nobody can tell there whether it is still the same.
    host.assert_copies("second", true);
    for missing in ["dd", "head", "wc"] {
        let refused = with_tools_but(&[missing]).copy_to("copy");
        assert_exit(&refused, 3);
        assert_says(&refused, &["did not keep one"]);
    }
}

#[test]
fn another_users_directory_is_left_alone() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can make a directory of another user");
    }
    let host = FarHost::new();
    host.assert_copies("first", true);
    let program = host.kept("home/.cache").remove(0);
    for directory in [program.parent().unwrap(), program.ancestors().nth(2).unwrap()] {
        std::os::unix::fs::chown(directory, Some(4_242), None).unwrap();
        host.assert_copies("second", true);
        assert_eq!(host.kept("run").len(), 1, "the next place was taken");
        std::os::unix::fs::chown(directory, Some(0), None).unwrap();
        fs::remove_dir_all(host.places.far("run/carrack")).unwrap();
        fs::remove_dir_all(host.places.far("second")).unwrap();
    }
    assert_eq!(program.metadata().unwrap().uid(), 0);
}

/// Returns a far host with these mounts; `None`, with the reason said, if it can't be.
fn with_mounts(mounts: &str) -> Option<FarHost> {
    let host = FarHost::new();
    let home = host.places.far("home");
    let tried = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "tmpfs"]).arg(&home).output();
    if !tried.is_ok_and(|output| output.status.success()) {
        skip("no mount namespace for this user");
        return None;
    }
    Some(FarHost { mounts: mounts.replace("HOME", &home.display().to_string()), ..host })
}

#[test]
fn a_home_that_runs_no_programs_is_passed_over() {
    for options in ["noexec", "ro"] {
        let Some(host) = with_mounts(&format!("mount -t tmpfs -o {options} tmpfs HOME")) else { return };
        host.assert_copies("first", true);
        assert_eq!(host.kept("run").len(), 1);
        host.assert_copies("second", false);
    }
}

#[test]
fn a_host_without_room_says_so() {
    let Some(host) = with_mounts("") else { return };
    let last = format!("/tmp/carrack-{}", rustix::process::geteuid().as_raw());
    let places = [host.places.far("home"), host.places.far("run")].map(|place| place.display().to_string());
    let places = [&places.join(" "), "/dev/shm", "/var/tmp", &last].join(" ");
    let mounts = format!("mkdir -p {last}; for d in {places}; do mount -t tmpfs -o size=256k tmpfs $d; done");
    let host = FarHost { mounts, ..host };
    let padding = "# padding\n".repeat(60_000);
    host.offer("x86_64", &format!("#!/bin/sh\nexec {CARRACK} \"$@\"\n{padding}"));
    let refused = host.copy_to("copy");
    // It was made in the real directory, below the mount.
    let _ = fs::remove_dir(last);
    assert_exit(&refused, 3);
    assert_says(&refused, &["no room for 58", "and did not keep one"]);
}

#[test]
fn a_connection_that_breaks_meanwhile_leaves_no_program() {
    let host = FarHost::new();
    let program = [format!("#!/bin/sh\nexec {CARRACK} \"$@\"\n").as_bytes(), &noise(300_000)].concat();
    fs::write(host.places.near("programs/carrack-0.1.0-linux-x86_64"), program).unwrap();
    let no_settings = "case \" $* \" in *' -G '*) exit 1 ;; esac";
    let cut = format!("{no_settings}\nhead -c 100000 | {} \"$@\"\nexit 255", host.ssh);
    // The name by which it is taken for OpenSSH.
    fs::create_dir(host.places.near("cut")).unwrap();
    let cut = host.places.script(host.places.near("cut/ssh").to_str().unwrap(), &cut);
    let mut command = host.command(&["cp", "-r", "--perms", "tree", &host.remote("copy")]);
    let failed = run(command.env("CARRACK_SSH", cut));
    assert_exit(&failed, 3);
    assert_says(&failed, &["broke while a carrack was sent to it"]);
    assert!(host.kept("home/.cache").is_empty() && !host.places.far("copy").exists());
    host.assert_copies("copy", true);
}

#[test]
fn an_administrator_can_forbid_it() {
    let Some(host) =
        with_mounts("mount -t tmpfs tmpfs /etc; mkdir /etc/carrack; touch /etc/carrack/no-bootstrap")
    else {
        return;
    };
    let refused = host.copy_to("copy");
    assert_exit(&refused, 3);
    assert_says(
        &refused,
        &["forbids that programs are sent there (/etc/carrack/no-bootstrap)", "was not found"],
    );
}

#[test]
fn over_a_real_sshd() {
    let Some(sshd) = Sshd::start() else { return };
    let host = FarHost::new();
    let target = format!("carrack-test:{}", host.places.far("copy").display());
    for sends in [true, false] {
        let mut command = host.command(&["cp", "-r", "--perms", "-T", "tree", &target]);
        let copied = run(command.env("CARRACK_SSH", sshd.ssh()));
        assert_exit(&copied, 0);
        assert_eq!(talk(&copied).contains(SENT), sends, "{}", talk(&copied));
        assert_same(&host.places.near("tree"), &host.places.far("copy"));
    }
}
