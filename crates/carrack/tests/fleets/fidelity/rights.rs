//! Who may do what with a copy: beside `cp` and `rsync`, of the same trees, onto the same destinations. No copy gives anybody a right
//! that the safer of the two does not give, and that he did not have there before.
//!
//! Each case follows from its number. `CARRACK_RIGHTS_RUNS` says how many there are, `CARRACK_RIGHTS_RUN` names one to look at.
//! docs/design/fidelity.md says where the three differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::fs::{FileType, XattrFlags, lgetxattr, lsetxattr};
use rustix::process::geteuid;

use super::specials::node;
use crate::common::process::{Running, run};
use crate::common::{CARRACK, skip};

const RUNS: u64 = 40;

/// Who copies where it is not root, and others who own files.
const USER: u32 = 65_534;
const OWNERS: [(u32, u32); 4] = [(0, 0), (USER, USER), (54_321, 54_322), (54_323, 54_324)];

/// SplitMix64: a case has to be the same everywhere.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[(self.next() % choices.len() as u64) as usize].clone()
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }
}

/// What is kept, as each of the three is told it; nothing where there is no such option.
struct Options {
    carrack: &'static [&'static str],
    cp: Option<&'static [&'static str]>,
    rsync: &'static [&'static str],
    keeps_modes: bool,
}

const OPTIONS: [Options; 5] = [
    Options { carrack: &["-r"], cp: Some(&["-r"]), rsync: &["-rlt"], keeps_modes: false },
    Options { carrack: &["-a"], cp: Some(&["-a"]), rsync: &["-aAX"], keeps_modes: true },
    Options {
        carrack: &["-r", "--perms"],
        cp: Some(&["-r", "--preserve=mode"]),
        rsync: &["-rltp"],
        keeps_modes: true,
    },
    Options {
        carrack: &["-a", "--no-perms"],
        // Where it is told so, it does not look at the modes of the source at all.
        cp: None,
        rsync: &["-a", "--no-perms"],
        keeps_modes: false,
    },
    Options {
        carrack: &["-r", "--chmod=Dg+s,g+w,o-rwx"],
        cp: None,
        rsync: &["-rlt", "--chmod=Dg+s,g+w,o-rwx"],
        keeps_modes: false,
    },
];

/// An entry of an ACL: tag, permissions, and whose.
fn acl(user: u16, named: u16, group: u16, mask: u16, other: u16) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in [
        (1_u16, user, u32::MAX),
        (2, named, 54_323),
        (4, group, u32::MAX),
        (16, mask, u32::MAX),
        (32, other, u32::MAX),
    ] {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&perm.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

fn set_acl(path: &Path, name: &str, value: &[u8]) {
    let set = lsetxattr(path, name, value, XattrFlags::empty());
    set.unwrap_or_else(|errno| panic!("{}: {errno}", path.display()));
}

/// Plants some of the entries that every tree may have; whoever copies can read them.
fn plant(chance: &mut Chance, root: &Path, is_root: bool, often: u64, has_acls: bool) {
    const NAMES: [&str; 8] = ["", "d", "d/small", "d/large", "small", "large", "e", "e/small"];
    for name in NAMES {
        let path = root.join(name);
        let is_there = name.is_empty() || path.parent().is_some_and(Path::is_dir) && !chance.one_in(often);
        let (uid, gid) = chance.of(&OWNERS);
        let mut mode =
            chance.of(&[0o644, 0o600, 0o664, 0o666, 0o755, 0o777, 0o4755, 0o6775, 0o2751, 0o1777, 0o640]);
        let acl = chance.of(&[
            None,
            None,
            None,
            Some(acl(7, 7, 0, 7, 0)),
            Some(acl(7, 5, 5, 5, 5)),
            Some(acl(7, 7, 7, 7, 0)),
        ]);
        let default = chance.of(&[None, None, acl.clone()]);
        if !is_there {
            continue;
        }
        let is_directory = name.is_empty() || ["d", "e"].contains(&name);
        match is_directory {
            true => fs::create_dir_all(&path).unwrap(),
            false => fs::write(&path, vec![7; if name.ends_with("large") { 200_000 } else { 20 }]).unwrap(),
        }
        if is_directory {
            mode = mode | 0o711 | (mode & 0o444) >> 2;
        }
        let (uid, gid) = match is_root {
            true => (uid, gid),
            // What the user could neither read nor replace has no case.
            false => (USER, chance.of(&[USER, gid])),
        };
        chown(&path, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        if !has_acls {
            continue;
        }
        if let Some(acl) = acl {
            set_acl(&path, "system.posix_acl_access", &acl);
        }
        if let Some(default) = default.filter(|_| is_directory) {
            set_acl(&path, "system.posix_acl_default", &default);
        }
    }
}

/// What each may do, by their numbers: read, write, execute; and whose rights a program gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rights {
    of: BTreeMap<(u32, u32), u32>,
    /// Of the owner, the group, a named user and all others, whoever they are.
    classes: [u32; 4],
    mode: u32,
    owner: (u32, u32),
    set_ids: BTreeSet<(bool, u32)>,
}

fn rights(path: &Path) -> Option<Rights> {
    let found = fs::symlink_metadata(path).ok()?;
    let mut value = vec![0; 4_096];
    let length = lgetxattr(path, "system.posix_acl_access", &mut value[..]).unwrap_or(0);
    let entries: Vec<(u16, u32, u32)> = value[..length]
        .get(4..)
        .unwrap_or_default()
        .chunks_exact(8)
        .map(|entry| {
            let number = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
            (number(0), number(2).into(), u32::from_le_bytes(entry[4..8].try_into().unwrap()))
        })
        .collect();
    let (mode, is_file) = (found.mode(), found.is_file());
    let of = OWNERS.iter().flat_map(|(uid, _)| OWNERS.iter().map(move |(_, gid)| (*uid, *gid)));
    let mask = entries.iter().find(|entry| entry.0 == 16).map_or(7, |entry| entry.1);
    let group = entries.iter().find(|entry| entry.0 == 4).map_or(mode >> 3 & 7, |entry| entry.1);
    let of = of.filter(|(uid, _)| *uid != 0).map(|(uid, gid)| {
        let named =
            |tag, id| entries.iter().find(|entry| entry.0 == tag && entry.2 == id).map(|entry| entry.1);
        let may = match uid {
            uid if uid == found.uid() => mode >> 6 & 7,
            uid if named(2, uid).is_some() => named(2, uid).unwrap() & mask,
            _ if gid == found.gid() => group & mask,
            _ => mode & 7,
        };
        ((uid, gid), may)
    });
    let named = entries.iter().find(|entry| entry.0 == 2).map_or(0, |entry| entry.1);
    let classes = [mode >> 6 & 7, group & mask, named & mask, mode & 7];
    let mut set_ids = BTreeSet::new();
    if is_file && mode & 0o4000 != 0 {
        set_ids.insert((true, found.uid()));
    }
    if is_file && mode & 0o2000 != 0 {
        set_ids.insert((false, found.gid()));
    }
    Some(Rights {
        of: of.collect(),
        classes,
        mode: mode & 0o7777,
        owner: (found.uid(), found.gid()),
        set_ids,
    })
}

fn has_default_acl(directory: Option<&Path>) -> bool {
    let length = directory.map(|path| lgetxattr(path, "system.posix_acl_default", &mut [0; 4_096][..]));
    length.is_some_and(|length| length.is_ok())
}

fn every_path(root: &Path) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::new()];
    let mut at = 0;
    while at < paths.len() {
        if let Ok(entries) = fs::read_dir(root.join(&paths[at])) {
            let names: Vec<_> = entries.map(|entry| paths[at].join(entry.unwrap().file_name())).collect();
            paths.extend(names);
        }
        at += 1;
    }
    paths
}

/// By the shell, which sets the umask, and as the user if need be.
fn carry_out(program: &Path, args: &[&str], umask: u32, is_root: bool, from: &Path, to: &Path) -> Output {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!(r#"umask {umask:o}; exec "$0" "$@""#)).arg(program).args(args);
    command.arg(from).arg(to).env("HOME", "/nonexistent");
    if !is_root {
        use std::os::unix::process::CommandExt;
        command.uid(USER).gid(USER);
    }
    run(&mut command)
}

/// Nothing if nobody got more by carrack than by both of the others.
fn case(number: u64, program: &Path) -> Vec<String> {
    let mut chance = Chance(number);
    let ground = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let place = |name: &str| ground.path().join(name);
    let is_root = chance.one_in(2);
    let umask = chance.of(&[0o022, 0o002, 0o077, 0o027]);
    let options = &OPTIONS[(chance.next() % OPTIONS.len() as u64) as usize];
    // Exact modes without the ACLs that belong to them: docs/design/fidelity.md.
    let has_acls = !options.carrack.contains(&"--perms");
    plant(&mut chance, &place("src"), is_root, 8, options.carrack == ["-a"]);
    let before = chance.next();
    let ends = ["before", "ours", "cp", "rsync"];
    for end in ends {
        let mut chance = Chance(before);
        plant(&mut chance, &place(end), is_root, 2, has_acls);
        let copied = place(end).join("src");
        if chance.one_in(2) {
            plant(&mut chance, &copied, is_root, 2, has_acls);
        }
    }
    let source = place("src");
    let mut ours = options.carrack.to_vec();
    ours.splice(
        0..0,
        [
            "cp",
            "-q",
            "--no-config",
            "--no-journal",
            "--buffer",
            "8MiB",
            "--object-size",
            "128KiB",
            "--sharing",
            "off",
        ],
    );
    let outputs = [
        Some(carry_out(program, &ours, umask, is_root, &source, &place("ours"))),
        options.cp.map(|cp| carry_out(Path::new("cp"), cp, umask, is_root, &source, &place("cp"))),
        Some(carry_out(Path::new("rsync"), options.rsync, umask, is_root, &source, &place("rsync"))),
    ];
    let about = format!("case {number}: {:?}, umask {umask:03o}, root {is_root}", options.carrack);
    let mut problems = Vec::new();
    for output in outputs.iter().flatten().filter(|output| !output.status.success()) {
        problems.push(format!("{about}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    for path in every_path(&place("ours")) {
        let of = |end: &str| rights(&place(end).join(&path));
        let Some(found) = of("ours") else { continue };
        let (before, rsync) = (of("before").unwrap_or_default(), of("rsync").unwrap_or_default());
        // rsync alone takes the default ACL of another directory there now and then: docs/design/fidelity.md.
        if options.cp.is_none() && before.mode == 0 && has_default_acl(place("ours").join(&path).parent()) {
            continue;
        }
        let cp = options.cp.map(|_| of("cp").unwrap_or_default());
        let told = rights(&source.join(path.strip_prefix("src").unwrap_or(&path))).unwrap_or_default();
        // What both others give, what was there, and by an archive what the source gives.
        let allowed = |of: &dyn Fn(&Rights) -> u32| {
            let source = if options.carrack == ["-a"] { of(&told) } else { 0 };
            cp.as_ref().map_or(7, of) & of(&rsync) | of(&before) | source
        };
        let mut check = |who: &dyn std::fmt::Debug, of: &dyn Fn(&Rights) -> u32| {
            if of(&found) & !allowed(of) != 0 {
                let ends = [Some(&told), Some(&before), Some(&found), cp.as_ref(), Some(&rsync)];
                let ends = ends
                    .map(|end| end.map(|end| format!("{:o} {:?} {:?}", end.mode, end.owner, end.classes)));
                problems.push(format!("{about}: {}: {who:?}: {ends:?}", path.display()));
            }
        };
        // With exact modes alone the group is what the directory gives, which differs in when each sets the bit of that.
        if is_root && options.carrack != ["-r", "--perms"] {
            found.of.keys().for_each(|who| check(who, &|rights| rights.of.get(who).copied().unwrap_or(0)));
        }
        (0..4).for_each(|class| check(&class, &|rights| rights.classes[class]));
        let is_theirs = |set_id| {
            // Of one that may give a right, each has to give it.
            options.keeps_modes
                && told.set_ids.contains(set_id)
                && cp.as_ref().is_none_or(|cp| cp.set_ids.contains(set_id))
                && rsync.set_ids.contains(set_id)
        };
        for set_id in
            found.set_ids.iter().filter(|set_id| !before.set_ids.contains(set_id) && !is_theirs(set_id))
        {
            problems.push(format!("{about}: {}: a program with the rights of {set_id:?}", path.display()));
        }
    }
    problems
}

fn numbers() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("CARRACK_RIGHTS_RUN") {
        Some(run) => run..run + 1,
        None => 0..number("CARRACK_RIGHTS_RUNS").unwrap_or(RUNS),
    }
}

/// One that others may start.
fn program(place: &Path) -> PathBuf {
    let binary = place.join("carrack");
    fs::set_permissions(place, Permissions::from_mode(0o755)).unwrap();
    fs::hard_link(CARRACK, &binary).or_else(|_| fs::copy(CARRACK, &binary).map(drop)).unwrap();
    binary
}

#[test]
fn nobody_may_more_than_by_the_safer_of_cp_and_rsync() {
    if !geteuid().is_root() {
        return skip("only root can give files to others");
    }
    if Command::new("rsync").arg("--version").output().is_err() {
        return skip("no rsync");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let binary = program(dir.path());
    let problems: Vec<String> = numbers().flat_map(|number| case(number, &binary)).collect();
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// Each way in which a file gets its metadata: small and large, by a copy and a sync, local and over a pipe.
#[test]
fn set_id_bits_go_with_the_owner() {
    if !geteuid().is_root() {
        return skip("only root can give files to others");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let binary = program(dir.path());
    let at = |path: &str| dir.path().join(path);
    fs::create_dir(at("src")).unwrap();
    for (name, size) in [("small", 10), ("large", 2_000_000)] {
        fs::write(at("src").join(name), vec![7; size]).unwrap();
        chown(at("src").join(name), Some(54_321), Some(54_322)).unwrap();
        fs::set_permissions(at("src").join(name), Permissions::from_mode(0o6755)).unwrap();
    }
    let modes =
        |to: &str| ["small", "large"].map(|name| fs::metadata(at(to).join(name)).unwrap().mode() & 0o7777);
    let copy = |command: &str, options: &[&str], to: &str, is_root: bool| {
        let args: Vec<&str> = [command, "-q", "--no-config"].iter().chain(options).copied().collect();
        let output = carry_out(&binary, &args, 0o022, is_root, &at("src/"), &at(to));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        modes(to)
    };
    assert_eq!(copy("cp", &["-r"], "none", true), [0o755; 2]);
    assert_eq!(copy("cp", &["-r", "--perms"], "perms", true), [0o755; 2]);
    assert_eq!(copy("cp", &["-a"], "all", true), [0o6755; 2]);
    assert_eq!(copy("sync", &["-a"], "all", true), [0o6755; 2]);
    assert_eq!(copy("cp", &["-a", "--no-owner"], "group", true), [0o2755; 2]);
    assert_eq!(copy("cp", &["-a", "--no-group"], "user", true), [0o4755; 2]);
    assert_eq!(copy("cp", &["-a", "--chown", "54323:54324"], "given", true), [0o755; 2]);
    assert_eq!(copy("cp", &["-a", "--usermap", "54321:54323"], "mapped", true), [0o2755; 2]);
    // What is there already and equal gets none either, and loses what it got.
    assert_eq!(copy("sync", &["--perms"], "all", true), [0o755; 2]);
    assert_eq!(copy("sync", &["--perms"], "none", true), [0o755; 2]);
    // Bits that somebody else's file had do not become those of another owner.
    for (options, to) in
        [(&["--owner"][..], "owned"), (&["--group"], "grouped"), (&["-a", "--no-perms"], "both")]
    {
        copy("cp", &["-r"], to, true);
        for name in ["small", "large"] {
            chown(at(to).join(name), Some(USER), Some(USER)).unwrap();
            fs::set_permissions(at(to).join(name), Permissions::from_mode(0o6755)).unwrap();
        }
        assert_eq!(copy("sync", options, to, true), [0o755; 2], "{options:?}");
    }
    fs::create_dir(at("theirs")).unwrap();
    chown(at("theirs"), Some(USER), Some(USER)).unwrap();
    let theirs = |command: &str| copy(command, &["-a"], "theirs/copy", false);
    assert_eq!((theirs("cp"), theirs("sync")), ([0o755; 2], [0o755; 2]));
}

#[test]
fn modes_and_times_are_changed_by_request() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir_all(at("src/d")).unwrap();
    fs::write(at("src/d/f"), "x").unwrap();
    fs::hard_link(at("src/d/f"), at("src/d/g")).unwrap();
    symlink("f", at("src/d/l")).unwrap();
    for (path, mode) in [("src/d/f", 0o666), ("src/d", 0o777), ("src", 0o700)] {
        fs::set_permissions(at(path), Permissions::from_mode(mode)).unwrap();
    }
    for path in ["src/d/f", "src/d"] {
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000);
        fs::File::open(at(path)).unwrap().set_modified(time).unwrap();
    }
    let copy = |options: &[&str], to: &str| {
        let args: Vec<&str> = ["cp", "-q", "-r"].iter().chain(options).copied().collect();
        let output = carry_out(Path::new(CARRACK), &args, 0o027, true, &at("src"), &at(to));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found = |path: &str| fs::metadata(at(to).join(path)).unwrap();
        let mode = |path: &str| found(path).mode() & 0o7777;
        let is_old = |path: &str| found(path).mtime() == 1_000;
        ([mode(""), mode("d"), mode("d/f")], [is_old("d"), is_old("d/f")])
    };
    assert_eq!(copy(&[], "a"), ([0o700, 0o750, 0o640], [true, true]));
    assert_eq!(copy(&["--perms"], "b"), ([0o700, 0o777, 0o666], [true, true]));
    assert_eq!(copy(&["--perms", "--chmod", "D2711,F604"], "c"), ([0o2711, 0o2711, 0o604], [true, true]));
    assert_eq!(copy(&["--chmod=u-w"], "d"), ([0o500, 0o550, 0o440], [true, true]));
    assert_eq!(copy(&["-O"], "e"), ([0o700, 0o750, 0o640], [false, true]));
    assert_eq!(copy(&["-H", "--no-times"], "f"), ([0o700, 0o750, 0o640], [false, false]));
    assert_eq!(fs::metadata(at("f/d/g")).unwrap().nlink(), 2, "names of one file need no time");
}

/// Long before its mode is set at the end.
#[test]
fn a_directory_that_is_there_is_closed_before_anything_is_placed_in_it() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = |path: &str| dir.path().join(path);
    for path in ["src/closed", "to/closed"] {
        fs::create_dir_all(at(path)).unwrap();
    }
    fs::write(at("src/closed/large"), vec![7; 1_000_000]).unwrap();
    fs::set_permissions(at("src/closed"), Permissions::from_mode(0o700)).unwrap();
    let mut command = Command::new(CARRACK);
    command.args(["sync", "--perms", "--bwlimit", "400kB"]).arg(at("src/")).arg(at("to"));
    let running = Running::start(&mut command);
    while fs::read_dir(at("to/closed")).unwrap().next().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let mode = fs::metadata(at("to/closed")).unwrap().mode() & 0o777;
    assert!(running.end().status.success());
    assert_eq!(mode, 0o700);
}

#[test]
fn standard_output_by_its_name_is_no_destination() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::write(at("src"), "x").unwrap();
    symlink("/proc/self/fd/1", at("stdout")).unwrap();
    let log = fs::File::create(at("log")).unwrap();
    let mut command = Command::new(CARRACK);
    let output = command.arg("cp").arg(at("src")).arg(at("stdout")).stdout(log).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(at("stdout").is_symlink());
}

#[test]
fn devices_pipes_and_sockets_are_no_destinations() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = |path: &str| dir.path().join(path);
    let makes = [
        ("null", FileType::CharacterDevice, (1, 3)),
        ("pipe", FileType::Fifo, (0, 0)),
        ("socket", FileType::Socket, (0, 0)),
    ];
    fs::create_dir(at("src")).unwrap();
    fs::write(at("small"), "x").unwrap();
    fs::write(at("large"), vec![7; 2_000_000]).unwrap();
    symlink("pipe", at("link")).unwrap();
    for (name, kind, number) in makes {
        if !node(&at(name), kind, number, 0o600) {
            skip(&format!("no {name}"));
            continue;
        }
        for from in ["small", "large", "src"] {
            for words in [&["cp", "-r"][..], &["cp", "-a"], &["sync"]] {
                let args: Vec<&str> = words.to_vec();
                let output = carry_out(Path::new(CARRACK), &args, 0o022, true, &at(from), &at(name));
                let told = String::from_utf8_lossy(&output.stderr);
                let is_refused = told.contains("is not written to") || told.contains("not a directory");
                assert!(output.status.code() == Some(3) && is_refused, "{words:?} {name}: {told}");
            }
        }
        let found = fs::symlink_metadata(at(name)).unwrap().file_type();
        assert!(found.is_char_device() || found.is_fifo() || found.is_socket());
    }
    let output = carry_out(Path::new(CARRACK), &["cp"], 0o022, true, &at("small"), &at("link"));
    assert!(output.status.code() == Some(3), "a link that leads to one");
    // Within a tree it stands in the way, but for a sync of such.
    fs::create_dir(at("there")).unwrap();
    for name in ["small", "large"] {
        fs::write(at("src").join(name), vec![7; if name == "large" { 2_000_000 } else { 2 }]).unwrap();
        assert!(node(&at("there").join(name), FileType::Fifo, (0, 0), 0o600));
    }
    let is_fifo = |name: &str| fs::symlink_metadata(at("there").join(name)).unwrap().file_type().is_fifo();
    for [command, option] in [["cp", "-r"], ["cp", "-a"], ["sync", "-r"]] {
        let output =
            carry_out(Path::new(CARRACK), &[command, option], 0o022, true, &at("src/"), &at("there"));
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stderr).contains("a named pipe stands there"));
        assert!(is_fifo("small") && is_fifo("large"));
    }
    let output = carry_out(Path::new(CARRACK), &["sync", "-a"], 0o022, true, &at("src/"), &at("there"));
    assert!(output.status.success() && !is_fifo("small") && !is_fifo("large"));
}
