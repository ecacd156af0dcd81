//! Mistakes of users and of file systems: each gives a clear failure of the right kind, and no data is lost.
//! Existing files at the destination stay, the rest of the tree is copied, and no temporary names are left.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use carrack_engine::{
    AbortHandle, EndSettings, SessionError, SessionRole, TransferObserver, TransferOutcome, TransferRequest,
    copy_local, copy_with_peer,
};
use carrack_model::FailureKind::*;
use carrack_model::{
    AgreedTransferSpec, FailureKind, ObjectChecksumAlgorithm, TransferEvent, TransferSummary, UserNotice,
};

use crate::common;
use crate::common::gate::copy_gated;
use crate::common::*;

const LIMIT_S: u64 = 60;
const SLOT: usize = 128 << 10;
/// A size of several objects, more than slots and credits together.
const LARGE: usize = 24 * SLOT + 5;

/// The directory of one copy; the names of sources and destinations are relative to it.
struct Place {
    dir: tempfile::TempDir,
    way: Way,
    checksum: ObjectChecksumAlgorithm,
}

/// The result of a copy.
struct Done {
    outcome: TransferOutcome,
    recorder: Recorder,
}

impl Place {
    fn new(way: Way, checksum: ObjectChecksumAlgorithm) -> Place {
        Place { dir: tempfile::tempdir().unwrap(), way, checksum }
    }

    fn path(&self, name: &str) -> PathBuf {
        // `Path::join` is not used, as the tests name paths with and without a trailing slash.
        PathBuf::from(format!("{}/{name}", self.dir.path().display()))
    }

    fn write(&self, name: &str, content: &[u8]) {
        write(&self.path(name), content);
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Makes a destination that has an entry.
    fn old(&self) {
        self.write("dst/old", b"old");
    }

    fn transfer(&self, sources: &[&str], destination: &str) -> TransferRequest {
        TransferRequest {
            spec: AgreedTransferSpec {
                recursive: true,
                slot_bytes: SLOT as u32,
                checksum: self.checksum,
                ..AgreedTransferSpec::default()
            },
            settings: EndSettings { pool_bytes: 4 * SLOT as u64, ..EndSettings::default() },
            sources: sources.iter().map(|name| self.path(name)).collect(),
            destination: self.path(destination),
            identity: None,
            source_base: carrack_storage::PathBase::Anywhere,
            feed: None,
        }
    }

    fn copy(&self, sources: &[&str], destination: &str) -> Done {
        self.copy_as(&self.transfer(sources, destination))
    }

    fn copy_as(&self, transfer: &TransferRequest) -> Done {
        let (outcome, recorder) = copy(self.way, transfer);
        self.check(Done { outcome, recorder })
    }

    /// Checks the invariants of every copy.
    fn check(&self, done: Done) -> Done {
        if self.path("dst/old").exists() {
            assert_eq!(self.read("dst/old"), b"old");
        }
        assert_clean(self.dir.path());
        let told = done.recorder.failed().len() as u64;
        if done.outcome.result.is_ok() {
            assert_eq!(done.outcome.summary.entries_failed, told, "{:?}", done.recorder.failures());
        }
        done
    }
}

impl Done {
    /// Asserts that the copy completed, with exactly these failures.
    fn failed(&self, expected: &[(FailureKind, &str)]) -> &TransferSummary {
        assert!(self.outcome.result.is_ok(), "{:?}", self.outcome.result);
        let failed = self.recorder.failed();
        let failed: Vec<_> = failed.iter().map(|(kind, name)| (*kind, name.as_str())).collect();
        assert_eq!(failed, expected, "{:?}", self.recorder.failures());
        &self.outcome.summary
    }

    /// Asserts that the copy was refused before it began, with a message that contains `why`.
    fn refused(&self, why: &str) {
        let Err(error @ SessionError::Refused { .. }) = &self.outcome.result else {
            panic!("{:?}", self.outcome)
        };
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(self.outcome.summary, TransferSummary::default());
    }
}

fn each_way(test: impl Fn(&Place) + Clone + Send + 'static) {
    for way in WAYS {
        let test = test.clone();
        within(LIMIT_S, move || test(&Place::new(way, ObjectChecksumAlgorithm::default())));
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Returns true if the test may continue. Permissions do not restrict root; for root the test runs again in a
/// process of another user.
fn runs_as_a_user(test: &str) -> bool {
    if !is_root() {
        return true;
    }
    let binary = std::env::current_exe().unwrap();
    let arguments = [test, "--exact", "--nocapture"];
    match Command::new(binary).args(arguments).uid(65_534).gid(65_534).current_dir("/").output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
        }
        Err(error) => println!("skipped: another user can't run the tests: {error}"),
    }
    false
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

// Unreadable sources.

#[test]
fn missing_sources_are_listed_and_the_others_copied() {
    each_way(|place| {
        place.old();
        place.write("a/one", b"1");
        place.write("b", b"22");
        let done = place.copy(&["missing1", "a", "missing2", "b", "b/below"], "dst");
        let summary = done.failed(&[(Missing, "below"), (Missing, "missing1"), (Missing, "missing2")]);
        assert_eq!((summary.files_done, summary.directories_done), (2, 1));
        assert_eq!((place.read("dst/a/one"), place.read("dst/b")), (b"1".to_vec(), b"22".to_vec()));
    });
}

#[test]
fn nothing_but_missing_sources_is_refused_before_anything_is_made() {
    each_way(|place| {
        place.copy(&["missing"], "new").refused("No such file");
        place.copy(&["missing", "missing2"], "new").refused("missing");
        assert!(!place.path("new").exists());
    });
}

#[test]
fn what_may_not_be_read_is_listed_and_the_rest_copied() {
    if !runs_as_a_user("what_may_not_be_read_is_listed_and_the_rest_copied") {
        return;
    }
    each_way(|place| {
        place.old();
        place.write("src/good", b"good");
        place.write("src/small", b"secret");
        place.write("src/large", &noise(LARGE, 1));
        place.write("src/closed/file", b"unseen");
        place.write("src/unsearchable/file", b"unseen");
        for name in ["src/small", "src/large", "src/closed"] {
            chmod(&place.path(name), 0o000);
        }
        chmod(&place.path("src/unsearchable"), 0o400);
        let done = place.copy(&["src"], "dst");
        for name in ["src/closed", "src/unsearchable"] {
            chmod(&place.path(name), 0o700);
        }
        done.failed(&[
            (Unreadable, "closed"),
            (Unreadable, "file"),
            (Unreadable, "large"),
            (Unreadable, "small"),
        ]);
        assert_eq!(place.read("dst/src/good"), b"good");
        assert!(!place.path("dst/src/small").exists() && !place.path("dst/src/large").exists());
        chmod(&place.path("dst/src/unsearchable"), 0o700);
    });
}

#[test]
fn a_read_error_is_told_and_the_rest_copied() {
    each_way(|place| {
        place.old();
        place.write("good", b"good");
        // A read at offset 0 gives EIO, as no page is mapped there.
        let mut transfer = place.transfer(&["good"], "dst");
        transfer.sources.push("/proc/self/mem".into());
        place.copy_as(&transfer).failed(&[(ReadError, "mem")]);
        assert_eq!(place.read("dst/good"), b"good");
        assert!(!place.path("dst/mem").exists());
    });
}

#[test]
fn a_file_whose_size_lies_is_not_copied_wrongly() {
    each_way(|place| {
        place.old();
        let sources = ["/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"];
        let sources: Vec<PathBuf> = sources.iter().map(PathBuf::from).filter(|path| path.exists()).collect();
        if sources.is_empty() {
            return println!("skipped: no /proc or /sys");
        }
        let expected = sources.len();
        let transfer = TransferRequest { sources, ..place.transfer(&[], "dst/") };
        let done = place.copy_as(&transfer);
        let failed = done.recorder.failed();
        assert!(failed.iter().all(|(kind, _)| *kind == Changed) && failed.len() == expected, "{failed:?}");
        assert_eq!(fs::read_dir(place.path("dst")).unwrap().count(), 1);
    });
}

#[test]
fn sockets_pipes_and_devices_are_left_out_and_noted() {
    each_way(|place| {
        place.old();
        place.write("src/good", b"good");
        let _socket = UnixListener::bind(place.path("src/socket")).unwrap();
        let mut expected = vec!["socket"];
        for (name, arguments) in [("pipe", &["p"][..]), ("device", &["c", "1", "3"])] {
            let made = Command::new("mknod").arg(place.path(&format!("src/{name}"))).args(arguments).output();
            match made {
                Ok(output) if output.status.success() => expected.push(name),
                _ => println!("skipped: no {name} can be made here"),
            }
        }
        let done = place.copy(&["src", "src/socket"], "dst");
        // A special file that the user names is a failure.
        assert_eq!(done.failed(&[(NotAFile, "socket")]).entries_skipped, expected.len() as u64);
        let mut skipped: Vec<String> = done.recorder.events().into_iter().filter_map(skipped_name).collect();
        skipped.sort();
        expected.sort_unstable();
        assert_eq!(skipped, expected);
        assert_eq!(fs::read_dir(place.path("dst/src")).unwrap().count(), 1);
        assert_eq!(place.read("dst/src/good"), b"good");
    });
}

fn skipped_name(event: TransferEvent) -> Option<String> {
    let TransferEvent::Notice(UserNotice::Skipped { path, .. }) = event else { return None };
    let path = Path::new(OsStr::from_bytes(&path)).to_path_buf();
    Some(path.file_name().unwrap().to_string_lossy().into_owned())
}

// Unwritable destinations.

#[test]
fn a_destination_that_can_not_be_is_refused() {
    each_way(|place| {
        place.write("src/f", b"f");
        place.write("file", b"a file");
        place.copy(&["src"], "no/such/directory").refused("can't be used");
        place.copy(&["src/f"], "no/such/file").refused("can't be used");
        place.copy(&["src"], "file/below").refused("can't be used");
        place.copy(&["src/f"], "file/below").refused("can't be used");
        place.copy(&["src"], "file").refused("not a directory");
        place.copy(&["src/f"], "file/").refused("");
        place.copy(&["src/f", "src"], "file").refused("not a directory");
        symlink("loop", place.path("loop")).unwrap();
        place.copy(&["src"], "loop").refused("can't be used");
        assert_eq!(place.read("file"), b"a file");
        assert!(!place.path("no").exists());
    });
}

#[test]
fn a_read_only_directory_of_ones_own_is_written_to() {
    if !runs_as_a_user("a_read_only_directory_of_ones_own_is_written_to") {
        return;
    }
    each_way(|place| {
        place.old();
        place.write("src/small", b"small");
        place.write("src/large", &noise(LARGE, 1));
        place.write("dst/src/closed/old", b"old");
        place.write("src/closed/new", b"new");
        chmod(&place.path("dst/src/closed"), 0o500);
        place.copy(&["src"], "dst").failed(&[]);
        assert_eq!(
            (place.read("dst/src/small"), place.read("dst/src/large")),
            (b"small".to_vec(), noise(LARGE, 1))
        );
        assert_eq!(place.read("dst/src/closed/new"), b"new");
        chmod(&place.path("dst"), 0o500);
        place.copy(&["src"], "dst/new").refused("can't be used");
        place.copy(&["src/small", "src/large"], "dst").failed(&[]);
        assert_eq!(fs::metadata(place.path("dst")).unwrap().mode() & 0o777, 0o500);
        chmod(&place.path("dst"), 0o700);
        assert_eq!(
            (place.read("dst/large"), place.read("dst/src/closed/old")),
            (noise(LARGE, 1), b"old".to_vec())
        );
    });
}

/// A tmpfs mounted at `dst`, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn at(place: &Place, options: &str) -> Option<Mounted> {
        if !is_root() {
            println!("skipped: only root mounts");
            return None;
        }
        let path = place.path("dst");
        fs::create_dir_all(&path).unwrap();
        let mount = ["-t", "tmpfs", "-o", options, "carrack-test"];
        let output = Command::new("mount").args(mount).arg(&path).output();
        if !output.is_ok_and(|output| output.status.success()) {
            println!("skipped: mounting is not allowed here");
            return None;
        }
        Some(Mounted(path))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

#[test]
fn a_read_only_destination_is_told_for_every_entry() {
    each_way(|place| {
        let Some(mounted) = Mounted::at(place, "size=8m") else { return };
        place.old();
        place.write("src/small", b"small");
        place.write("src/large", &noise(LARGE, 1));
        let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(&mounted.0).output();
        assert!(remounted.unwrap().status.success());
        let done = place.copy(&["src/small", "src/large"], "dst");
        done.failed(&[(WriteError, "large"), (WriteError, "small")]);
        place.copy(&["src"], "dst/new").refused("can't be used");
        assert_eq!(fs::read_dir(place.path("dst")).unwrap().count(), 1);
    });
}

#[test]
fn a_full_disk_ends_the_transfer_and_loses_nothing() {
    each_way(|place| {
        let Some(_mounted) = Mounted::at(place, "size=8m") else { return };
        place.old();
        place.write("dst/replaced", b"the old one");
        place.write("large/replaced", &noise(12 << 20, 1));
        place.copy(&["large/replaced"], "dst").is_no_space();
        assert_eq!(place.read("dst/replaced"), b"the old one");

        for n in 0..400 {
            place.write(&format!("small/replaced{n}"), &noise(30_000, n));
        }
        place.write("dst/small/replaced399", b"the old one");
        place.copy(&["small"], "dst").is_no_space();
        for entry in fs::read_dir(place.path("dst/small")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let content = place.read(&format!("dst/small/{name}"));
            let is_new = content == place.read(&format!("small/{name}"));
            assert!(is_new || content == b"the old one", "{name} is neither old nor new");
        }
        assert_eq!(place.read("dst/replaced"), b"the old one");
    });
}

impl Done {
    fn is_no_space(&self) {
        match &self.outcome.result {
            Err(error @ SessionError::NoSpace { .. }) => assert!(error.hint().unwrap().contains("make room")),
            // The message of the sink, as responder.
            Err(SessionError::PeerAborted { message, hint, .. }) => {
                assert!(message.contains("no space"), "{message}");
                assert!(hint.as_ref().unwrap().contains("make room"));
            }
            other => panic!("{other:?}"),
        }
    }
}

// Files that change while they are read.

fn gated(place: &Place, sources: &[&str], script: impl FnOnce(&common::gate::Gate) + Send) -> Done {
    let (outcome, recorder) = copy_gated(place.way, &place.transfer(sources, "dst"), script);
    place.check(Done { outcome, recorder })
}

/// Runs `test` for each connection that can have a gate between the ends.
fn each_gated_way(test: impl Fn(&Place) + Clone + Send + 'static) {
    let gated = test.clone();
    each_way(move |place| {
        if place.way != Way::Local {
            gated(place);
        }
    });
    // Without a checksum no thread reads the bytes: sendfile(2) moves them.
    for way in [Way::Push, Way::Pull] {
        let test = test.clone();
        within(LIMIT_S, move || test(&Place::new(way, ObjectChecksumAlgorithm::None)));
    }
}

type Change = fn(&Path);

const CHANGES: [(&str, Change); 5] = [
    ("grows", |path| File::options().append(true).open(path).unwrap().write_all(b"more").unwrap()),
    ("grows a lot", |path| {
        File::options().append(true).open(path).unwrap().write_all(&noise(LARGE, 9)).unwrap()
    }),
    ("shrinks", |path| File::options().write(true).open(path).unwrap().set_len(SLOT as u64 / 2).unwrap()),
    ("is emptied", |path| File::options().write(true).open(path).unwrap().set_len(0).unwrap()),
    ("is rewritten", |path| {
        let size = fs::metadata(path).unwrap().len();
        let mut file = File::options().write(true).open(path).unwrap();
        file.write_all(&noise(size as usize, 8)).unwrap();
    }),
];

#[test]
fn a_large_file_that_changes_once_is_copied_as_it_is_then() {
    for (what, change) in CHANGES {
        each_gated_way(move |place| {
            place.old();
            place.write("dst/large", b"the old one");
            place.write("large", &noise(LARGE, 1));
            let path = place.path("large");
            let done = gated(place, &["large"], |gate| {
                gate.wait(1);
                change(&path);
                gate.open(usize::MAX);
            });
            assert_eq!(done.failed(&[]).files_done, 1, "{what}");
            assert!(place.read("dst/large") == place.read("large"), "{what}, {:?}", place.way);
            let (old, new) = (fs::metadata(&path).unwrap(), fs::metadata(place.path("dst/large")).unwrap());
            assert_eq!((old.mtime(), old.mtime_nsec()), (new.mtime(), new.mtime_nsec()));
        });
    }
}

#[test]
fn a_large_file_that_changes_twice_is_reported_and_not_placed() {
    for (what, change) in CHANGES {
        each_gated_way(move |place| {
            place.old();
            place.write("dst/src/large", b"the old one");
            place.write("src/large", &noise(LARGE, 1));
            place.write("src/small", b"small");
            let path = place.path("src/large");
            let done = gated(place, &["src"], |gate| {
                gate.wait(1);
                change(&path);
                if what == "is emptied" {
                    // Only a large file is announced again.
                    fs::write(&path, noise(LARGE, 5)).unwrap();
                }
                if what == "shrinks" {
                    File::options().write(true).open(&path).unwrap().set_len(LARGE as u64 - 1).unwrap();
                }
                gate.open(1);
                gate.wait(2);
                change(&path);
                gate.open(usize::MAX);
            });
            let summary = *done.failed(&[(Changed, "large")]);
            assert_eq!((summary.files_done, summary.directories_done), (1, 1), "{what}");
            assert_eq!(place.read("dst/src/large"), b"the old one");
            assert_eq!(place.read("dst/src/small"), b"small");
        });
    }
}

#[test]
fn a_file_that_never_stops_growing_is_reported_and_not_placed() {
    each_way(|place| {
        place.old();
        place.write("dst/log", b"the old one");
        place.write("log", &noise(64 << 20, 1));
        let (path, is_over) = (place.path("log"), AtomicBool::new(false));
        let done = thread::scope(|scope| {
            scope.spawn(|| {
                let mut log = File::options().append(true).open(&path).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    log.write_all(b"a line\n").unwrap();
                    thread::yield_now();
                }
            });
            let done = place.copy(&["log"], "dst");
            is_over.store(true, Ordering::Relaxed);
            done
        });
        done.failed(&[(Changed, "log")]);
        assert_eq!(place.read("dst/log"), b"the old one");
    });
}

/// Makes many small files, of which the source has read some when it stops at the gate.
fn many_small(place: &Place) {
    for n in 0..30 {
        place.write(&format!("src/f{n:02}"), &noise(100_000, n));
    }
}

const OLD: &str = "the old one";

#[test]
fn small_files_that_change_once_are_copied_as_they_were_or_are() {
    for (what, change) in CHANGES {
        each_gated_way(move |place| {
            place.old();
            many_small(place);
            let src = place.path("src");
            let before: Vec<_> = (0..30).map(|n| place.read(&format!("src/f{n:02}"))).collect();
            let done = gated(place, &["src"], |gate| {
                gate.wait(1);
                for entry in fs::read_dir(&src).unwrap() {
                    change(&entry.unwrap().path());
                }
                gate.open(usize::MAX);
            });
            assert_eq!(done.failed(&[]).files_done, 30, "{what}");
            let mut as_it_is = 0;
            for (n, before) in before.iter().enumerate() {
                let copied = place.read(&format!("dst/src/f{n:02}"));
                let now = place.read(&format!("src/f{n:02}"));
                assert!(copied == now || copied == *before, "{what}: f{n} is neither");
                as_it_is += usize::from(copied == now);
            }
            assert!(as_it_is >= 15, "{what}: only {as_it_is} were read after the change");
        });
    }
}

/// During truncation ext4 shows the new size of a file before its new time.
#[test]
fn a_small_file_under_the_knife_gets_its_new_time() {
    each_gated_way(|place| {
        place.old();
        many_small(place);
        let src = place.path("src");
        let writable = |n: usize| File::options().write(true).open(src.join(format!("f{n:02}"))).unwrap();
        let later = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let done = gated(place, &["src"], |gate| {
            gate.wait(1);
            for file in (0..30).map(writable) {
                let modified = file.metadata().unwrap().modified().unwrap();
                file.set_len(50_000).unwrap();
                file.set_times(FileTimes::new().set_modified(modified)).unwrap();
            }
            gate.open(usize::MAX);
            thread::sleep(Duration::from_millis(50));
            for file in (0..30).map(writable) {
                file.set_times(FileTimes::new().set_modified(later)).unwrap();
            }
        });
        assert_eq!(done.failed(&[]).files_done, 30);
        for n in 0..30 {
            let copy = place.path(&format!("dst/src/f{n:02}"));
            let metadata = fs::metadata(&copy).unwrap();
            let is_cut = metadata.len() == 50_000;
            assert_eq!(is_cut, metadata.modified().unwrap() == later, "{}: {metadata:?}", copy.display());
        }
    });
}

#[test]
fn files_replaced_between_scan_and_read_are_reported() {
    let changes: [(&str, FailureKind, Change); 5] = [
        ("a link", Changed, |path| {
            fs::remove_file(path).unwrap();
            symlink("/etc/passwd", path).unwrap();
        }),
        ("a pipe", Changed, |path| {
            fs::remove_file(path).unwrap();
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        }),
        ("a directory", Changed, |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
        ("a socket", Changed, |path| {
            fs::remove_file(path).unwrap();
            UnixListener::bind(path).unwrap();
        }),
        ("nothing", Missing, |path| fs::remove_file(path).unwrap()),
    ];
    for (what, kind, change) in changes {
        each_gated_way(move |place| {
            place.old();
            many_small(place);
            for n in 0..30 {
                place.write(&format!("dst/src/f{n:02}"), OLD.as_bytes());
            }
            let before: Vec<_> = (0..30).map(|n| place.read(&format!("src/f{n:02}"))).collect();
            let src = place.path("src");
            let done = gated(place, &["src"], |gate| {
                gate.wait(1);
                for n in 0..30 {
                    change(&src.join(format!("f{n:02}")));
                }
                gate.open(usize::MAX);
            });
            let failed = done.recorder.failed();
            assert!(done.outcome.result.is_ok(), "{:?}", done.outcome.result);
            assert!(failed.len() >= 15 && failed.iter().all(|(k, _)| *k == kind), "{what}: {failed:?}");
            assert_eq!(done.outcome.summary.files_done, 30 - failed.len() as u64);
            for (n, before) in before.iter().enumerate() {
                let name = format!("f{n:02}");
                let expected = match failed.iter().any(|(_, failed)| *failed == name) {
                    true => OLD.as_bytes(),
                    false => before,
                };
                assert!(place.read(&format!("dst/src/{name}")) == expected, "{what}: {name}");
            }
        });
    }
}

#[test]
fn a_large_file_replaced_while_it_is_read_is_copied_as_the_new_one_or_reported() {
    each_gated_way(|place| {
        place.old();
        place.write("dst/large", b"the old one");
        place.write("large", &noise(LARGE, 1));
        place.write("newer", &noise(LARGE, 2));
        let (path, newer) = (place.path("large"), place.path("newer"));
        let done = gated(place, &["large"], |gate| {
            gate.wait(1);
            fs::rename(&newer, &path).unwrap();
            gate.open(usize::MAX);
        });
        // The rename unlinks the open file, which changes its ctime: the source reads again, by name.
        done.failed(&[]);
        assert!(place.read("dst/large") == noise(LARGE, 2));
    });
    each_gated_way(|place| {
        place.old();
        place.write("dst/large", b"the old one");
        place.write("large", &noise(LARGE, 1));
        let path = place.path("large");
        let done = gated(place, &["large"], |gate| {
            gate.wait(1);
            fs::remove_file(&path).unwrap();
            symlink("/dev/zero", &path).unwrap();
            gate.open(usize::MAX);
        });
        done.failed(&[(Changed, "large")]);
        assert_eq!(place.read("dst/large"), b"the old one");
    });
}

#[test]
fn a_small_file_that_grows_does_not_take_its_neighbours_room() {
    each_gated_way(|place| {
        place.old();
        // Each bundle has many files, and the first of each grows to almost a slot.
        for n in 0..400 {
            place.write(&format!("src/f{n:03}"), &noise(10_000, n));
        }
        let src = place.path("src");
        let done = gated(place, &["src"], |gate| {
            gate.wait(1);
            for n in (0..400).step_by(3) {
                fs::write(src.join(format!("f{n:03}")), noise(60_000, n)).unwrap();
            }
            gate.open(usize::MAX);
        });
        assert_eq!(done.failed(&[]).files_done, 400);
        assert_clean(&place.path("dst"));
    });
}

// Sources and destinations that are the same file, or contain each other.

#[test]
fn a_path_given_twice_is_copied_once() {
    each_way(|place| {
        place.old();
        place.write("a/one", b"1");
        place.write("f", b"f");
        let done = place.copy(&["a", "f", "a", "f", "a/../f"], "dst");
        assert_eq!(done.failed(&[]).files_done, 2);
        let is_told = |event: &TransferEvent| matches!(event, TransferEvent::Notice(UserNotice::Text(text)) if text.contains("given twice"));
        let told = done.recorder.events().iter().filter(|event| is_told(event)).count();
        assert_eq!(told, 3);
        assert_eq!((place.read("dst/a/one"), place.read("dst/f")), (b"1".to_vec(), b"f".to_vec()));
    });
}

#[test]
fn two_sources_of_one_name_are_refused_before_anything_is_touched() {
    each_way(|place| {
        place.old();
        place.write("a/f", b"a");
        place.write("b/f", b"b");
        place.write("dst/f", b"the old one");
        place.copy(&["a/f", "b/f"], "dst").refused("two sources would both become 'f'");
        place.write("c/a/x", b"x");
        place.copy(&["a", "c/a"], "new").refused("two sources would both become 'a'");
        assert!(!place.path("new").exists());
        assert_eq!(place.read("dst/f"), b"the old one");
        // The contents of two directories may contain the same name; the first is copied.
        for (sources, arrives) in [(["a/", "b/"], b"a"), (["b/", "a/"], b"b")] {
            place.copy(&sources, "dst").failed(&[(InTheWay, "f")]);
            assert_eq!(place.read("dst/f"), arrives);
        }
    });
}

#[test]
fn a_file_is_not_copied_onto_itself() {
    each_way(|place| {
        place.old();
        place.write("d/f", b"content");
        symlink("d", place.path("other")).unwrap();
        for (source, destination) in [
            ("d/f", "d/f"),
            ("d/f", "d"),
            ("d/f", "d/"),
            ("d/f", "other/f"),
            ("other/f", "d"),
            ("d/../d/f", "d/f"),
        ] {
            place.copy(&[source], destination).refused("same file");
        }
        place.write("good", b"good");
        let done = place.copy(&["d/f", "good"], "d");
        done.failed(&[(IntoItself, "f")]);
        assert_eq!((place.read("d/f"), place.read("d/good")), (b"content".to_vec(), b"good".to_vec()));
        let mut transfer = place.transfer(&["d/f"], "d/f");
        transfer.spec.recursive = false;
        place.copy_as(&transfer).refused("same file");
        assert_eq!(place.read("d/f"), b"content");
    });
}

#[test]
fn a_link_does_not_replace_what_it_points_to() {
    each_way(|place| {
        place.old();
        place.write("d/f", b"content");
        symlink("d/f", place.path("link")).unwrap();
        symlink("d/f", place.path("f")).unwrap();
        for (source, destination) in [("link", "d/f"), ("f", "d"), ("f", "d/")] {
            for recursive in [true, false] {
                let mut transfer = place.transfer(&[source], destination);
                transfer.spec.recursive = recursive;
                let done = place.copy_as(&transfer);
                assert_eq!(place.read("d/f"), b"content", "{source} to {destination}, {recursive}");
                assert!(!place.path("d/f").is_symlink(), "{source} to {destination}: the content is lost");
                if recursive {
                    done.refused("the file that the link points to");
                }
            }
        }
        // In the opposite direction the link is replaced, and the file stays.
        place.copy(&["d/f"], "link").failed(&[]);
        assert_eq!((place.read("d/f"), place.read("link")), (b"content".to_vec(), b"content".to_vec()));
    });
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    each_way(|place| {
        place.write("src/f", b"f");
        place.write("src/in/g", b"g");
        symlink("src/in", place.path("way")).unwrap();
        for (source, destination) in [
            ("src", "src"),
            ("src/", "src/"),
            ("src", "src/in"),
            ("src", "src/in/new"),
            ("src", "src/new"),
            ("src/.", "src/in"),
            ("src", "way"),
            ("src", "way/new"),
            ("src/in", "src"),
            ("src/in", "src/"),
        ] {
            let done = place.copy(&[source], destination);
            done.refused("");
            let message = done.outcome.result.unwrap_err().to_string();
            assert!(
                message.contains("is this directory, or lies within it")
                    || message.contains("same directory"),
                "{message}"
            );
        }
        assert_eq!(snapshot(&place.path("src")).len(), 4);
        // The other sources are copied.
        place.write("good", b"good");
        place.copy(&["src", "good"], "src/in").failed(&[(IntoItself, "src")]);
        assert_eq!(place.read("src/in/good"), b"good");
    });
}

#[test]
fn a_source_inside_the_destination_is_copied() {
    each_way(|place| {
        place.old();
        place.write("dst/a/b/f", b"f");
        place.copy(&["dst/a/b"], "dst").failed(&[]);
        assert_eq!((place.read("dst/b/f"), place.read("dst/a/b/f")), (b"f".to_vec(), b"f".to_vec()));
        place.copy(&["dst/a/"], "dst").failed(&[]);
        assert_eq!(place.read("dst/b/f"), b"f");
    });
}

#[test]
fn directories_need_to_be_asked_for() {
    each_way(|place| {
        place.old();
        place.write("d/f", b"f");
        place.write("g", b"g");
        let mut transfer = place.transfer(&["d"], "dst");
        transfer.spec.recursive = false;
        let done = place.copy_as(&transfer);
        done.refused("it is a directory");
        assert!(done.outcome.result.unwrap_err().hint().unwrap().contains("-r"));
        let mut transfer = place.transfer(&["d", "g", "d/"], "dst");
        transfer.spec.recursive = false;
        place.copy_as(&transfer).failed(&[(IsDirectory, ""), (IsDirectory, "d")]);
        assert_eq!(place.read("dst/g"), b"g");
        assert!(!place.path("dst/d").exists());
    });
}

// Existing entries at the destination.

#[test]
fn directories_and_files_do_not_replace_each_other() {
    each_way(|place| {
        place.old();
        place.write("src/good", b"good");
        place.write("src/small", b"small");
        place.write("src/large", &noise(LARGE, 1));
        symlink("nowhere", place.path("src/link")).unwrap();
        place.write("src/tree/inner", b"inner");
        for name in ["small", "large", "link"] {
            place.write(&format!("dst/src/{name}/kept"), b"kept");
        }
        place.write("dst/src/tree", b"kept");
        let done = place.copy(&["src"], "dst");
        let expected = [
            (InTheWay, "inner"),
            (InTheWay, "large"),
            (InTheWay, "link"),
            (InTheWay, "small"),
            (InTheWay, "tree"),
        ];
        assert_eq!(done.failed(&expected).files_done, 1);
        for name in ["small", "large", "link"] {
            assert_eq!(place.read(&format!("dst/src/{name}/kept")), b"kept");
        }
        assert_eq!(
            (place.read("dst/src/tree"), place.read("dst/src/good")),
            (b"kept".to_vec(), b"good".to_vec())
        );
    });
}

#[test]
fn links_at_the_destination_are_replaced_or_refused_and_never_followed() {
    each_way(|place| {
        place.old();
        place.write("outside/target", b"target");
        place.write("outside/empty/.keep", b"");
        place.write("src/good", b"good");
        place.write("src/small", b"small");
        place.write("src/large", &noise(LARGE, 1));
        place.write("src/sub/small", b"small");
        place.write("src/sub/large", &noise(LARGE, 1));
        place.write("src/sub/deeper/f", b"f");
        fs::create_dir_all(place.path("dst/src")).unwrap();
        for name in ["small", "large"] {
            symlink(place.path("outside/target"), place.path(&format!("dst/src/{name}"))).unwrap();
        }
        symlink(place.path("outside/empty"), place.path("dst/src/sub")).unwrap();
        let outside = snapshot(&place.path("outside"));
        let done = place.copy(&["src"], "dst");
        let failed = done.recorder.failed();
        assert!(failed.iter().all(|(kind, _)| *kind == InTheWay), "{failed:?}");
        done.failed(&[
            (InTheWay, "deeper"),
            (InTheWay, "f"),
            (InTheWay, "large"),
            (InTheWay, "small"),
            (InTheWay, "sub"),
        ]);
        assert_eq!(snapshot(&place.path("outside")), outside);
        assert_eq!(
            (place.read("dst/src/good"), place.read("dst/src/small")),
            (b"good".to_vec(), b"small".to_vec())
        );
        assert!(place.read("dst/src/large") == noise(LARGE, 1));
        assert!(!place.path("dst/src/small").is_symlink() && !place.path("dst/src/large").is_symlink());
        assert!(place.path("dst/src/sub").is_symlink());
    });
}

// Names and depths.

/// Returns a path below an open directory, whose own path may exceed PATH_MAX.
fn below(directory: &File, name: &str) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}

#[test]
fn trees_deeper_than_any_path_and_the_longest_names_arrive() {
    const LEVELS: usize = 24;
    each_way(|place| {
        place.old();
        let name = |level: usize| format!("{level:x>255}");
        fs::create_dir(place.path("src")).unwrap();
        let mut held = File::open(place.path("src")).unwrap();
        for level in 0..LEVELS {
            fs::write(below(&held, "small"), noise(100, level as u64)).unwrap();
            fs::create_dir(below(&held, &name(level))).unwrap();
            held = File::open(below(&held, &name(level))).unwrap();
        }
        fs::write(below(&held, &"L".repeat(255)), noise(LARGE, 7)).unwrap();
        fs::write(below(&held, &"S".repeat(255)), b"small").unwrap();
        symlink("t".repeat(4_095), below(&held, "link")).unwrap();

        // The test looks for temporary names below: `snapshot` does not support such long paths.
        let (outcome, recorder) = copy(place.way, &place.transfer(&["src"], "dst"));
        assert_eq!(recorder.failures(), Vec::<String>::new());
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        assert_eq!(
            (outcome.summary.files_done, outcome.summary.directories_done),
            (LEVELS as u64 + 2, LEVELS as u64 + 1)
        );
        let mut held = File::open(place.path("dst/src")).unwrap();
        for level in 0..LEVELS {
            assert_eq!(fs::read(below(&held, "small")).unwrap(), noise(100, level as u64));
            assert_eq!(fs::read_dir(below(&held, "")).unwrap().count(), 2);
            held = File::open(below(&held, &name(level))).unwrap();
        }
        assert!(fs::read(below(&held, &"L".repeat(255))).unwrap() == noise(LARGE, 7));
        assert_eq!(fs::read(below(&held, &"S".repeat(255))).unwrap(), b"small");
        assert_eq!(fs::read_link(below(&held, "link")).unwrap().as_os_str().len(), 4_095);
        assert_eq!(fs::read_dir(below(&held, "")).unwrap().count(), 3);
        assert_eq!(place.read("dst/old"), b"old");
    });
}

// Interrupts.

/// The end that the user interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Caller,
    Called,
}

/// Interrupts as soon as the destination has a partial file; returns the results of both ends.
fn interrupted(place: &Place, at: At) -> Vec<Result<(), SessionError>> {
    let mut transfer = place.transfer(&["src"], "dst");
    // For a digest the source sends holes as zeros, which takes long.
    (transfer.spec.checksum, transfer.spec.report_digests) = (ObjectChecksumAlgorithm::Blake3, true);
    let (caller, called) = (AbortHandle::new().unwrap(), AbortHandle::new().unwrap());
    let abort = if at == At::Caller { caller.clone() } else { called.clone() };
    let watched = place.path("dst/src");
    let interrupter = thread::spawn(move || {
        wait_until("something is under way", || is_under_way(&watched));
        abort.interrupt();
        Instant::now()
    });
    let observer = Recorder::default();
    let observer: &dyn TransferObserver = &observer;
    let results = match place.way {
        Way::Local => vec![copy_local(&transfer, observer, &caller).result],
        way => {
            let role = if way == Way::Push { SessionRole::Source } else { SessionRole::Sink };
            let (here, there) = channel();
            let serving = thread::spawn(move || serve_any(there, &called));
            let peer = peer(here);
            let outcome = copy_with_peer(&transfer, role, peer, observer, &caller);
            vec![outcome.result, serving.join().unwrap().result]
        }
    };
    let since = interrupter.join().unwrap().elapsed();
    assert!(since < Duration::from_secs(4), "{:?} {at:?}: it took {since:?}", place.way);
    results
}

/// Returns true if the directory has a temporary file of more than 4 MiB.
fn is_under_way(directory: &Path) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    entries.flatten().any(|entry| {
        let is_temporary = entry.file_name().to_string_lossy().contains("carrack-");
        is_temporary && entry.metadata().is_ok_and(|metadata| metadata.len() > 4 << 20)
    })
}

#[test]
fn an_interrupt_ends_both_ends_and_removes_temporary_names() {
    for at in [At::Caller, At::Called] {
        each_way(move |place| {
            if place.way == Way::Local && at == At::Called {
                return;
            }
            place.old();
            place.write("dst/src/huge", b"the old one");
            fs::create_dir(place.path("src")).unwrap();
            // The files have no blocks, so that the source's reads cost nothing but CPU time.
            File::create(place.path("src/huge")).unwrap().set_len(64 << 30).unwrap();
            File::create(place.path("src/huge2")).unwrap().set_len(64 << 30).unwrap();
            for result in interrupted(place, at) {
                assert!(
                    matches!(result, Err(SessionError::Interrupted)),
                    "{:?} {at:?}: {result:?}",
                    place.way
                );
            }
            assert_clean(&place.path("dst"));
            assert_eq!(
                (place.read("dst/old"), place.read("dst/src/huge")),
                (b"old".to_vec(), b"the old one".to_vec())
            );
            assert!(!place.path("dst/src/huge2").exists());
        });
    }
}

#[test]
fn an_interrupt_before_the_start_touches_nothing() {
    each_way(|place| {
        place.write("src/f", b"f");
        let abort = AbortHandle::new().unwrap();
        abort.interrupt();
        let transfer = place.transfer(&["src"], "dst");
        let observer = Recorder::default();
        let outcome = match place.way {
            Way::Local => copy_local(&transfer, &observer, &abort),
            way => {
                let role = if way == Way::Push { SessionRole::Source } else { SessionRole::Sink };
                let (here, there) = channel();
                let serving = thread::spawn(move || serve_any(there, &AbortHandle::new().unwrap()));
                let peer = peer(here);
                let outcome = copy_with_peer(&transfer, role, peer, &observer, &abort);
                assert!(serving.join().unwrap().result.is_err());
                outcome
            }
        };
        assert!(matches!(outcome.result, Err(SessionError::Interrupted)), "{:?}", outcome.result);
        assert!(!place.path("dst/f").exists() && !place.path("dst/src").exists());
    });
}
