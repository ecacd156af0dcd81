//! Each option in each way of running a copy: it has its effect at the destination, or is refused with the
//! documented reason. There is no third outcome, and no option without a row.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, Permissions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, SystemTime};

use carrack_options::{SubmissionExecutorKind as Submitted, samples};
use rustix::fs::{FileType, XattrFlags, lgetxattr, lsetxattr};
use tempfile::TempDir;

use super::is_root;
use super::specials::node;
use crate::common::process::{Serving, run, talk, wait_for};
use crate::common::tree::noise;
use crate::common::{CARRACK, free_port, skip};
use crate::daemon::Site;
use crate::fleet::stage::{Manner, SITES, Stage};

/// Bytes for the tree and its copies.
const BYTES: u64 = 2 << 30;

/// A user without an account.
const SOMEBODY: u32 = 54_321;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Here,
    Ssh,
    Daemon,
    BetweenTwo,
    Queue,
    Fleet,
}

/// The ways that need no fleet.
const WAYS: [Way; 5] = [Way::Here, Way::Ssh, Way::Daemon, Way::BetweenTwo, Way::Queue];

impl Way {
    fn submits(self) -> Option<Submitted> {
        match self {
            Way::Queue => Some(Submitted::Queue),
            Way::Fleet => Some(Submitted::Fleet),
            _ => None,
        }
    }
}

/// The environment for all ways of copying.
struct World {
    place: TempDir,
    site: Site,
    port: u16,
    ssh: String,
    // The servers are dropped before their directories.
    _daemon: Serving,
    _queue: Serving,
}

impl World {
    fn new() -> World {
        let (place, site, port) = (tempfile::tempdir().unwrap(), Site::new(), free_port());
        let path = |name: &str| place.path().join(name);
        site.identity("alice");
        let config = site.write_config(&format!("listen = [\"127.0.0.1:{port}\"]\n"), &site.usual_exports());
        let daemon = Serving::start(&config, &path("daemon.log"));
        let queue =
            format!("[queue]\ndirectory = \"{0}/queue\"\nsocket = \"{0}/socket\"\n", place.path().display());
        fs::write(path("queue.toml"), queue).unwrap();
        let queue = Serving::start(&path("queue.toml"), &path("queue.log"));
        let ssh = path("stand-in");
        fs::write(&ssh, "#!/bin/sh\nshift\nexec \"$@\"\n").unwrap();
        fs::set_permissions(&ssh, Permissions::from_mode(0o755)).unwrap();
        plant(&path("tree"));
        fs::create_dir(path("empty")).unwrap();
        let logs = [("daemon.log", "listening"), ("queue.log", "the queue answers")]
            .map(|(log, word)| (path(log), word));
        for (log, word) in logs {
            wait_for(word, || fs::read_to_string(&log).unwrap_or_default().contains(word).then_some(()));
        }
        World { ssh: ssh.to_str().unwrap().to_owned(), place, site, port, _daemon: daemon, _queue: queue }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Returns the source of a way. The fleet's files belong to the thread that started it.
    fn tree(&self, fleet: Option<&Stage>, name: &str) -> PathBuf {
        fleet.map_or_else(|| self.path(name), |stage| stage.seen("east").join(name))
    }

    fn there(&self, way: Way, fleet: Option<&Stage>, name: &str) -> PathBuf {
        match (way, fleet) {
            (_, Some(stage)) => stage.seen("west").join(name),
            (Way::Daemon, _) => self.site.path().join("data").join(name),
            _ => self.path(&format!("{way:?}-{name}")),
        }
    }

    /// Copies a directory, or its contents if it ends with a slash, to `name`.
    fn carry(
        &self,
        (way, fleet): (Way, Option<&Stage>),
        words: &[String],
        tree: &str,
        name: &str,
        syncs: bool,
    ) -> Output {
        let there = self.there(way, fleet, name);
        let (from, to) = (self.path(tree).display().to_string(), there.display().to_string());
        let copies = match OF_ONE_FILE.contains(&name) {
            _ if syncs => &["sync"][..],
            true => &["cp"],
            false => &["cp", "-r"],
        };
        let far = ["--ssh", &self.ssh, "--remote-carrack", CARRACK];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let url = format!("carrack://localhost:{}/data/{name}", self.port);
        let identity = self.site.path().join("alice.pem");
        let near = |words: &[&[&str]]| {
            let mut command = Command::new(CARRACK);
            command.args(words.concat()).env("HOME", self.place.path()).current_dir(self.place.path());
            command.env("CARRACK_CA", self.site.path().join("authority/ca.pem"));
            command.env("CARRACK_SERVER", format!("unix:{}", self.path("socket").display()));
            run(&mut command)
        };
        match (way, fleet) {
            (Way::Here, _) => near(&[copies, &words, &[&from, &to]]),
            (Way::Ssh, _) => near(&[copies, &far, &words, &[&from, &format!("host:{to}")]]),
            (Way::BetweenTwo, _) => {
                near(&[copies, &far, &words, &[&format!("one:{from}"), &format!("two:{to}")]])
            }
            (Way::Daemon, _) => {
                near(&[copies, &["--identity", identity.to_str().unwrap()], &words, &[&from, &url]])
            }
            (Way::Queue, _) => {
                near(&[&["submit", "--wait"], &words, &[&format!("local:{from}"), &format!("local:{to}")]])
            }
            (Way::Fleet, Some(stage)) => {
                let (from, to) = (stage.location(SITES[0], tree), stage.location(SITES[1], name));
                stage.ask(&[&["submit", "--wait"], &words[..], &[&from, &to]].concat())
            }
            (Way::Fleet, None) => unreachable!("without a fleet nothing goes through one"),
        }
    }
}

fn stage() -> Option<Stage> {
    let mut stage = Stage::start(1, BYTES)?;
    stage.start_manager("manager");
    for number in 1..=2 {
        let manner = Manner { options: &["--keep-owners", "--allow-fabric"], ..Manner::default() };
        SITES.iter().for_each(|site| stage.start_mover_so(site, number, manner));
    }
    stage.wait_for_movers(4);
    plant(&stage.seen("east/tree"));
    fs::create_dir(stage.seen("east/empty")).unwrap();
    Some(stage)
}

/// Plants an entry of each kind that an option is about.
fn plant(tree: &Path) {
    for directory in ["sub/deep", "only", "closed"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    let write = |name: &str, bytes: usize| fs::write(tree.join(name), noise(bytes)).unwrap();
    for (name, bytes) in
        [("a", 10_000), ("big", 3_000_000), ("b.o", 10), ("keep.o", 10), ("sub/deep/f", 20), ("only/f", 5)]
    {
        write(name, bytes);
    }
    write("mode", 7);
    fs::set_permissions(tree.join("mode"), Permissions::from_mode(0o666)).unwrap();
    write("owned", 9);
    lchown(tree.join("owned"), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    write("old", 11);
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    set_time(&tree.join("old"), old);
    lsetxattr(tree.join("a"), "user.k", b"v", XattrFlags::empty()).unwrap();
    let acl: Vec<u8> = [2_u32.to_le_bytes().to_vec()]
        .into_iter()
        .chain(
            [(1, 6, u32::MAX), (2, 7, SOMEBODY), (4, 4, u32::MAX), (0x10, 7, u32::MAX), (0x20, 4, u32::MAX)]
                .map(|(tag, right, who): (u16, u16, u32)| {
                    [&tag.to_le_bytes()[..], &right.to_le_bytes(), &who.to_le_bytes()].concat()
                }),
        )
        .flatten()
        .collect();
    lsetxattr(tree.join("sub/deep/f"), "system.posix_acl_access", &acl, XattrFlags::empty()).unwrap();
    fs::hard_link(tree.join("a"), tree.join("again")).unwrap();
    node(&tree.join("pipe"), FileType::Fifo, (0, 0), 0o644);
    node(&tree.join("null"), FileType::CharacterDevice, (1, 3), 0o666);
    symlink("a", tree.join("link")).unwrap();
    symlink("../../outside", tree.join("sub/out")).unwrap();
    let holes = File::create(tree.join("holes")).unwrap();
    holes.set_len(4 << 20).unwrap();
    holes.write_all_at(&noise(1_000), 1 << 20).unwrap();
    for directory in ["sub/deep", "sub", "only"] {
        set_time(&tree.join(directory), old);
    }
}

fn set_time(path: &Path, time: SystemTime) {
    File::open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
}

/// The destination.
struct There<'a> {
    tree: &'a Path,
    root: &'a Path,
}

impl There<'_> {
    fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.root.join(name)).is_ok()
    }

    fn of(&self, name: &str) -> Option<fs::Metadata> {
        fs::symlink_metadata(self.root.join(name)).ok()
    }

    fn mode(&self, name: &str) -> u32 {
        self.of(name).map_or(0, |found| found.mode() & 0o7777)
    }

    fn owner(&self, name: &str) -> (u32, u32) {
        self.of(name).map_or((0, 0), |found| (found.uid(), found.gid()))
    }

    fn is_link(&self, name: &str) -> bool {
        self.of(name).is_some_and(|found| found.is_symlink())
    }

    fn attribute(&self, name: &str, attribute: &str) -> bool {
        lgetxattr(self.root.join(name), attribute, &mut [0; 100][..]).is_ok()
    }

    fn has_time(&self, name: &str) -> bool {
        let time =
            |root: &Path| fs::symlink_metadata(root.join(name)).ok().and_then(|found| found.modified().ok());
        time(self.root) == time(self.tree)
    }

    fn is_same(&self, name: &str) -> bool {
        fs::read(self.root.join(name)).ok() == fs::read(self.tree.join(name)).ok()
    }

    /// Returns true if the destination has this part of the source, and its own bytes elsewhere.
    fn is_over_sevens(&self, part: Range<usize>) -> bool {
        let Ok(source) = fs::read(self.tree) else { return false };
        let mut expected = [7; SEVENS];
        expected[part.clone()].copy_from_slice(&source[part]);
        fs::read(self.root).is_ok_and(|found| found == expected)
    }

    /// Returns true if all regular files have their contents.
    fn is_whole(&self) -> bool {
        ["a", "big", "b.o", "keep.o", "sub/deep/f", "only/f", "mode", "owned", "old", "holes"]
            .iter()
            .all(|name| self.is_same(name))
    }
}

/// The effect of an option, and its preparation.
struct Row {
    tree: &'static str,
    /// Arguments in place of the sample's.
    words: Option<&'static [&'static str]>,
    before: fn(&Path),
    holds: fn(&There<'_>) -> bool,
}

const fn row(holds: fn(&There<'_>) -> bool) -> Row {
    Row { tree: "tree/", words: None, before: |_| {}, holds }
}

const fn with(words: &'static [&'static str], holds: fn(&There<'_>) -> bool) -> Row {
    Row { words: Some(words), ..row(holds) }
}

const fn after(before: fn(&Path), holds: fn(&There<'_>) -> bool) -> Row {
    Row { before, ..row(holds) }
}

/// Writes a file that is larger than the source.
fn sevens(there: &Path) {
    fs::write(there, [7; SEVENS]).unwrap();
}

const SEVENS: usize = 12_000;

/// Makes an entry that the source lacks, and a file with other contents.
fn extra(there: &Path) {
    fs::create_dir(there).unwrap();
    fs::write(there.join("extra"), "extra").unwrap();
    fs::write(there.join("extra.o"), "extra").unwrap();
    fs::write(there.join("a"), "other").unwrap();
    set_time(&there.join("a"), SystemTime::UNIX_EPOCH + Duration::from_secs(1_100_000_000));
}

/// Makes the old file, of the same size, with other contents, and this much later.
fn old_but(there: &Path, later: Duration) {
    fs::create_dir(there).unwrap();
    fs::write(there.join("old"), [0; 11]).unwrap();
    set_time(&there.join("old"), SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000) + later);
}

/// Options that change only the way of working, and not the result.
const HOW: &[&str] = &[
    "buffer",
    "checksum",
    "chunk-size",
    "cipher",
    "class",
    "congestion",
    "connect-from",
    "deadline",
    "durability",
    "fabric",
    "group-size",
    "group-time",
    "io-threads",
    "lanes",
    "max-inflight-per-target",
    "nice",
    "no-journal",
    "object-size",
    "pairs",
    "placement",
    "policy",
    "ports",
    "protection",
    "recall",
    "retry",
    "sharing",
    "sink-io",
    "source-io",
    "stop-at",
    "streams",
    "strict",
    "stripe",
    "targets",
    "tune",
    "verify",
    "via",
    "zone",
];

/// Returns true if no owners, attributes and other extra metadata were copied.
fn is_plain(there: &There<'_>) -> bool {
    there.is_whole()
        && there.owner("owned") == (0, 0)
        && !there.attribute("a", "user.k")
        && !there.has("pipe")
}

fn rows() -> BTreeMap<&'static str, Row> {
    let how = HOW.iter().map(|name| (*name, row(|there| there.is_whole())));
    let rows = [
        ("journal-dir", with(&["--journal-dir=/tmp"], |there| there.is_whole())),
        ("spill", with(&["--spill=/var/tmp:64MiB"], |there| there.is_whole())),
        ("sink-spill", with(&["--sink-spill=/var/tmp:64MiB"], |there| there.is_whole())),
        ("spill-budget", with(&["--spill=/var/tmp:64MiB", "--spill-budget=1"], |there| there.is_whole())),
        ("bwlimit-per-target", with(&["--bwlimit-per-target=90MB"], |there| there.is_whole())),
        ("bwlimit", with(&["--bwlimit=90MB"], |there| there.is_whole())),
        ("timeout", with(&["--timeout=1h"], |there| there.is_whole())),
        ("stall-timeout", with(&["--stall-timeout=90"], |there| there.is_whole())),
        (
            "archive",
            row(|there| {
                there.is_whole()
                    && there.mode("mode") == 0o666
                    && there.attribute("a", "user.k")
                    && there.of("a").is_some_and(|found| found.nlink() == 2)
                    && there.has("pipe")
            }),
        ),
        (
            "preserve",
            row(|there| there.mode("mode") == 0o666 && there.owner("owned") == (SOMEBODY, SOMEBODY)),
        ),
        ("perms", row(|there| there.mode("mode") == 0o666)),
        ("no-perms", with(&["--archive", "--no-perms"], |there| there.mode("mode") == 0o644)),
        ("chmod", with(&["--chmod=F600"], |there| there.mode("a") == 0o600 && there.mode("mode") == 0o600)),
        ("no-times", row(|there| there.is_whole() && !there.has_time("old"))),
        ("omit-dir-times", row(|there| there.has_time("old") && !there.has_time("sub/deep"))),
        ("owner", row(|there| there.owner("owned") == (SOMEBODY, 0))),
        ("no-owner", row(|there| there.owner("owned") == (0, SOMEBODY))),
        ("group", row(|there| there.owner("owned") == (0, SOMEBODY))),
        ("no-group", row(|there| there.owner("owned") == (SOMEBODY, 0))),
        ("numeric-ids", with(&["--owner", "--numeric-ids"], |there| there.owner("owned") == (SOMEBODY, 0))),
        ("chown", row(|there| there.owner("owned") == (7, 8) && there.owner("a") == (7, 8))),
        ("usermap", with(&["--usermap=54321:7"], |there| there.owner("owned").0 == 7)),
        ("groupmap", with(&["--groupmap=54321:8"], |there| there.owner("owned").1 == 8)),
        ("xattrs", row(|there| there.attribute("a", "user.k"))),
        ("no-xattrs", row(|there| !there.attribute("a", "user.k") && there.has("pipe"))),
        ("acls", row(|there| there.attribute("sub/deep/f", "system.posix_acl_access"))),
        (
            "no-acls",
            row(|there| !there.attribute("sub/deep/f", "system.posix_acl_access") && there.has("pipe")),
        ),
        ("hard-links", row(|there| there.of("again").is_some_and(|found| found.nlink() == 2))),
        (
            "no-hard-links",
            row(|there| there.of("again").is_some_and(|found| found.nlink() == 1) && there.has("pipe")),
        ),
        ("devices", row(|there| there.has("null") && !there.has("pipe"))),
        ("no-devices", row(|there| !there.has("null") && there.has("pipe"))),
        ("specials", row(|there| there.has("pipe") && !there.has("null"))),
        ("no-specials", row(|there| !there.has("pipe"))),
        // The tests of flags cover chattr, on a file system with flags.
        ("file-flags", row(|there| there.is_whole())),
        (
            "no-target-directory",
            Row { tree: "tree", ..after(|there| fs::create_dir(there).unwrap(), |there| there.is_whole()) },
        ),
        ("offset", Row { tree: "tree/a", ..after(sevens, |there| there.is_over_sevens(3..10_000)) }),
        ("length", Row { tree: "tree/a", ..after(sevens, |there| there.is_over_sevens(0..3)) }),
        ("exclude", row(|there| !there.has("b.o") && there.is_same("a"))),
        (
            "include",
            with(&["--exclude=*.o", "--include=keep.o"], |there| there.has("keep.o") && !there.has("b.o")),
        ),
        ("filter-from", with(&["--filter-from=/dev/null"], |there| there.is_whole())),
        (
            "filter",
            with(&["--filter=+ keep.o", "--filter=- *.o"], |there| there.has("keep.o") && !there.has("b.o")),
        ),
        ("exclude-from", with(&["--exclude-from=LIST"], |there| !there.has("a") && !there.has("sub"))),
        (
            "include-from",
            with(&["--include-from=LIST", "--filter=- /*"], |there| there.has("sub") && !there.has("b.o")),
        ),
        (
            "rclone-filter",
            with(&["--rclone-filter=+ keep.o", "--rclone-filter=- *.o"], |there| {
                there.has("keep.o") && !there.has("b.o")
            }),
        ),
        ("rclone-filter-from", with(&["--rclone-filter-from=/dev/null"], |there| there.is_whole())),
        ("min-size", with(&["--min-size=1k"], |there| there.has("a") && !there.has("mode"))),
        ("max-size", with(&["--max-size=1k"], |there| !there.has("a") && there.has("mode"))),
        ("newer", with(&["--newer=1d"], |there| there.has("a") && !there.has("old"))),
        // A mount in the source needs rights that not every machine gives: the tests of selection have one.
        ("one-file-system", row(|there| there.is_whole())),
        ("skip-links", row(|there| there.is_whole() && !there.has("link"))),
        ("safe-links", row(|there| there.is_link("link") && !there.has("sub/out"))),
        (
            "copy-links",
            with(&["--copy-links", "--exclude=out"], |there| there.is_same("link") && !there.is_link("link")),
        ),
        ("only", with(&["--only=a", "--only=sub"], |there| there.is_same("a") && !there.has("big"))),
        ("files-from", with(&["--files-from=LIST"], |there| there.is_same("a") && !there.has("big"))),
        ("from0", with(&["--files-from=LIST0", "--from0"], |there| there.is_same("a") && !there.has("big"))),
        ("sync", after(extra, |there| there.is_whole() && there.has("extra"))),
        ("contents", after(|there| old_but(there, Duration::ZERO), |there| there.is_same("old"))),
        (
            "modify-window",
            after(
                |there| old_but(there, Duration::from_secs(1)),
                |there| there.is_same("a") && !there.is_same("old"),
            ),
        ),
        (
            "update",
            after(
                |there| old_but(there, Duration::from_secs(60)),
                |there| there.is_same("a") && !there.is_same("old"),
            ),
        ),
        ("existing", after(extra, |there| there.is_same("a") && !there.has("big"))),
        ("ignore-existing", after(extra, |there| there.is_same("big") && !there.is_same("a"))),
        ("delete", after(extra, |there| there.is_whole() && !there.has("extra"))),
        ("delete-before", after(extra, |there| there.is_whole() && !there.has("extra"))),
        (
            "delete-all",
            Row { tree: "empty/", ..after(extra, |there| !there.has("extra") && !there.has("a")) },
        ),
        (
            "delete-excluded",
            Row {
                words: Some(&["--delete", "--delete-excluded", "--exclude=*.o"]),
                ..after(extra, |there| !there.has("extra.o") && !there.has("b.o") && there.is_same("a"))
            },
        ),
        ("delete-mounts", after(extra, |there| there.is_whole() && !there.has("extra"))),
        (
            "max-delete",
            Row {
                words: Some(&["--delete", "--max-delete=1"]),
                // A fleet deletes nothing above the limit.
                ..after(extra, |there| there.is_whole() && (there.has("extra") || there.has("extra.o")))
            },
        ),
        (
            "backup-dir",
            Row {
                words: Some(&["--delete", "--backup-dir=old-ones"]),
                ..after(extra, |there| there.is_whole() && !there.has("extra") && there.has("old-ones/extra"))
            },
        ),
        ("trash", after(extra, |there| there.is_whole() && !there.has("extra"))),
    ];
    how.chain(rows).collect()
}

/// Options that turn carrack cp into carrack sync.
const OF_SYNC: &[&str] = &[
    "sync",
    "contents",
    "modify-window",
    "update",
    "existing",
    "ignore-existing",
    "delete",
    "delete-before",
    "delete-all",
    "delete-excluded",
    "delete-mounts",
    "max-delete",
    "backup-dir",
    "trash",
];

/// Options of copies of a single file.
const OF_ONE_FILE: &[&str] = &["offset", "length"];

/// Options of submitted transfers alone: commands that copy have none of that name.
const OF_SUBMISSIONS: &[&str] = &["sync", "chunk-size", "pairs"];

/// Further refusals, each with its way and a part of the reason.
const REFUSED: &[(Way, &str, &str)] = &[
    (Way::Here, "fabric", "both ends are in this process"),
    (Way::Queue, "fabric", "both ends are in this process"),
    (Way::BetweenTwo, "fabric", "objects between two far hosts go over TCP"),
    (Way::Daemon, "fabric", "it is not allowed there"),
    // The administrator may allow less than private data.
    (Way::Daemon, "protection", "does not let data travel safe"),
    (Way::Fleet, "protection", "does not let data travel safe"),
    // There is no such directory below an export.
    (Way::Daemon, "journal-dir", "can't be used"),
    (Way::Daemon, "sink-spill", "a daemon lets nobody choose one"),
];

/// Features that a machine may lack: an option, and the message.
const LACKING: &[(&str, &str)] = &[
    ("fabric", "no provider"),
    ("spill", "no spill in"),
    ("sink-spill", "no spill in"),
    ("spill-budget", "no spill in"),
    ("zone", "no core is planned"),
];

/// Metadata that a daemon can't keep, and reports: it never gives files to other users.
const LOST_AT_DAEMONS: &[&str] = &[
    "preserve",
    "owner",
    "no-owner",
    "group",
    "no-group",
    "numeric-ids",
    "chown",
    "usermap",
    "groupmap",
    "devices",
];

/// Checks a destination; returns the reason for a failure.
fn judge(
    world: &World,
    (way, fleet): (Way, Option<&Stage>),
    name: &'static str,
    words: &[String],
    row: &Row,
) -> Result<(), String> {
    let there = world.there(way, fleet, name);
    (row.before)(&there);
    let syncs = OF_SYNC.contains(&name) && way.submits().is_none();
    let output = world.carry((way, fleet), words, row.tree, name, syncs);
    let (code, said) = (output.status.code(), talk(&output));
    let refused = REFUSED.iter().find(|(by, of, _)| (*by, *of) == (way, name)).map(|(_, _, why)| *why);
    let refused = refused.or_else(|| way.submits().and_then(|submitted| submitted.refusal(name)));
    let refused = match way.submits() {
        None if OF_SUBMISSIONS.contains(&name) => Some("unexpected argument"),
        _ => refused,
    };
    if let Some(why) = refused {
        return match code {
            Some(2 | 3) if said.contains(why) => Ok(()),
            _ => Err(format!("not refused with {why:?}: {code:?}: {said}")),
        };
    }
    if way == Way::Daemon && LOST_AT_DAEMONS.contains(&name) {
        return match code {
            Some(0) if said.contains("not kept") || said.contains("not made") => Ok(()),
            _ => Err(format!("not told of as lost: {code:?}: {said}")),
        };
    }
    if LACKING.iter().any(|(of, words)| *of == name && code == Some(3) && said.contains(words)) {
        return Ok(());
    }
    if code != Some(i32::from(name == "max-delete")) {
        return Err(format!("exit code {code:?}: {said}"));
    }
    let tree = world.tree(fleet, row.tree);
    match (row.holds)(&There { tree: &tree, root: &there }) {
        true => Ok(()),
        false => Err(format!("no effect, or another one: {said}")),
    }
}

#[test]
fn every_option_works_in_every_way_or_is_refused() {
    if !is_root() {
        return skip("only root gives files to others");
    }
    let world = World::new();
    fs::write(world.path("LIST"), "a\nsub\n").unwrap();
    fs::write(world.path("LIST0"), "a\0sub\0").unwrap();
    let rows = rows();
    let names: Vec<&str> = samples().into_iter().map(|(name, _)| name).collect();
    let nameless: Vec<&&str> = rows.keys().filter(|name| !names.contains(name)).collect();
    assert!(nameless.is_empty(), "no options: {nameless:?}");
    let stage = stage();
    let wrong = thread::scope(|scope| {
        let (world, rows) = (&world, &rows);
        let near = WAYS.map(|way| scope.spawn(move || wrong_ones(world, rows, way, None)));
        let fleets = stage.as_ref().map(|stage| wrong_ones(world, rows, Way::Fleet, Some(stage)));
        let near = near.into_iter().flat_map(|ended| ended.join().unwrap());
        near.chain(fleets.into_iter().flatten()).collect::<Vec<String>>()
    });
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the failures of all options in one way.
fn wrong_ones(world: &World, rows: &BTreeMap<&str, Row>, way: Way, fleet: Option<&Stage>) -> Vec<String> {
    let mut wrong = Vec::new();
    let plain = world.carry((way, fleet), &[], "tree/", "plain", false);
    let there = world.there(way, fleet, "plain");
    if !is_plain(&There { tree: &world.tree(fleet, "tree"), root: &there }) {
        wrong.push(format!("{way:?}, no option: {}", talk(&plain)));
    }
    for (name, words) in samples() {
        let Some(row) = rows.get(name) else {
            wrong.push(format!("--{name} has no row"));
            continue;
        };
        let list = world.path("LIST").display().to_string();
        let own = row.words.map(|words| words.iter().map(|word| word.replace("LIST", &list)).collect());
        let words: Vec<String> = own.unwrap_or(words);
        if let Err(why) = judge(world, (way, fleet), name, &words, row) {
            wrong.push(format!("{way:?}, {words:?}: {why}"));
        }
    }
    wrong
}
