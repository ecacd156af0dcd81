//! Storage that fails: the double of `testbed/storage` returns errors by rule, at the sink or at the source.
//! All other files are copied, failed ones are named, no partial file has a final name; and without the error
//! the same command completes the copy, even after a power cut. A readback finds bits that flip on the
//! storage.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::CARRACK;
use crate::common::process::{assert_says, run, talk};
use crate::common::storage_double::StorageDouble;
use crate::common::tree::{assert_same, census, noise};

const LARGE_BYTES: usize = 3_000_001;

/// Plants the source.
fn plant_new(root: &Path) {
    fs::create_dir_all(root.join("sub")).unwrap();
    fs::create_dir_all(root.join("empty")).unwrap();
    for (name, bytes) in [("large", LARGE_BYTES), ("other", 2_000_000)] {
        fs::write(root.join(name), noise(bytes)).unwrap();
    }
    for number in 0..8 {
        fs::write(root.join(format!("sub/small{number}")), noise(5_000 + number)).unwrap();
    }
    symlink("sub/small0", root.join("link")).unwrap();
}

/// Plants the old files at the destination.
fn plant_old(root: &Path) {
    fs::create_dir_all(root.join("to/sub")).unwrap();
    for name in ["to/large", "to/sub/small3"] {
        fs::write(root.join(name), "old").unwrap();
    }
}

/// Two ends, one of them on a double.
struct Ends {
    double: StorageDouble,
    from: PathBuf,
    to: PathBuf,
    /// The final state of the sink without errors.
    reference: PathBuf,
}

impl Ends {
    #[track_caller]
    fn sink_on_a_double() -> Option<Ends> {
        let double = StorageDouble::start(&["--record"], plant_old)?;
        let (from, to) = (double.local("from"), double.path("to"));
        plant_new(&from);
        let reference = from.clone();
        Some(Ends { double, from, to, reference })
    }

    #[track_caller]
    fn source_on_a_double() -> Option<Ends> {
        let double = StorageDouble::start(&["--record"], |root| plant_new(&root.join("from")))?;
        let (from, to) = (double.path("from"), double.local("to"));
        fs::create_dir(&to).unwrap();
        let reference = double.local("first/from");
        Some(Ends { double, from, to, reference })
    }

    fn copy(&self, options: &[&str]) -> Output {
        let mut command = Command::new(CARRACK);
        command.args(["cp", "-r", "--object-size", "128KiB"]).args(options);
        run(command.arg(self.from.join("")).arg(&self.to))
    }

    /// Returns the paths that differ from the final state; each has its old contents, or is absent.
    fn missing(&self) -> Vec<String> {
        let there = census(&self.to);
        let differs = census(&self.reference).into_iter().filter(|entry| !there.contains(entry));
        let files = differs.map(|entry| entry.path).filter(|path| !self.reference.join(path).is_dir());
        let missing: Vec<PathBuf> = files.collect();
        for path in &missing {
            match fs::symlink_metadata(self.to.join(path)) {
                Err(_) => {}
                Ok(_) => assert_eq!(fs::read(self.to.join(path)).unwrap(), b"old", "{}", path.display()),
            }
        }
        missing.into_iter().map(|path| path.into_os_string().into_string().unwrap()).collect()
    }

    /// Removes the error, cuts the power, and runs the same command again.
    #[track_caller]
    fn completes_without_errors(&self, rules: &[&str]) {
        self.double.ask("clear");
        // All weathers occur, each always in the same cases.
        let seed: u64 = rules.iter().flat_map(|rule| rule.bytes()).map(u64::from).sum();
        let operations = self.double.log().len();
        self.double.ask(&format!("cut {operations} {seed}"));
        let output = self.copy(&[]);
        assert_eq!(output.status.code(), Some(0), "seed {seed}: {}", talk(&output));
        assert_same(&self.reference, &self.to);
    }
}

/// Checks that only these files fail: the others are complete, and the exit code is 1.
#[track_caller]
fn one_fails(ends: Option<Ends>, rules: &[&str], failing: &[&str], says: &[&str]) {
    let Some(ends) = ends else { return };
    for rule in rules {
        ends.double.ask(&format!("rule {rule}"));
    }
    let output = ends.copy(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", talk(&output));
    assert!(ends.double.hits().iter().all(|&hits| hits > 0), "{}", ends.double.ask("rules"));
    assert_says(&output, says);
    assert_says(&output, failing);
    assert_eq!(ends.missing(), failing);
    ends.completes_without_errors(rules);
}

/// Checks that the transfer ends when the sink is full.
#[track_caller]
fn it_ends(rule: &str, says: &[&str]) {
    let Some(ends) = Ends::sink_on_a_double() else { return };
    ends.double.ask(&format!("rule {rule}"));
    let output = ends.copy(&[]);
    // 3 if no copied file had been reported yet.
    assert!(matches!(output.status.code(), Some(1 | 3)), "{}", talk(&output));
    assert_says(&output, says);
    assert_says(&output, &["\nhint: "]);
    assert!(!ends.missing().is_empty());
    ends.completes_without_errors(&[rule]);
}

#[test]
fn a_full_sink() {
    let to = "/mnt/to/";
    it_ends("ENOSPC:write:after=1000000:count=all", &["No space left on device", to]);
    // Nothing can be written, not even a journal.
    it_ends("ENOSPC:write:count=all", &["No space left on device"]);
    it_ends("ENOSPC:write:path=small5", &["No space left on device", "to/sub/small5"]);
    it_ends("ENOSPC:create:path=large", &["No space left on device", "to/large"]);
    it_ends("ENOSPC:mkdir:path=to/empty", &["No space left on device", "to/empty"]);
}

#[test]
fn a_quota_at_the_sink() {
    it_ends("EDQUOT:write:after=2000000:count=all", &["Disk quota exceeded"]);
    it_ends("EDQUOT:create:path=small2", &["Disk quota exceeded", "to/sub/small2"]);
}

#[test]
fn a_file_that_cannot_be_written() {
    let says = ["Read-only file system"];
    for nth in [1, 3, 12] {
        let rule = format!("EROFS:write:path=large:nth={nth}");
        one_fails(Ends::sink_on_a_double(), &[&rule], &["large"], &says);
    }
    one_fails(Ends::sink_on_a_double(), &["EROFS:write:path=small3"], &["sub/small3"], &says);
    one_fails(Ends::sink_on_a_double(), &["EROFS:create:path=small6"], &["sub/small6"], &says);
    one_fails(Ends::sink_on_a_double(), &["EROFS:symlink"], &["link"], &says);
}

/// Errors as after an eviction by a server pass: the requests are repeated, and the copy is complete.
#[track_caller]
fn passes(ends: Option<Ends>, rules: &[&str], options: &[&str]) -> Option<Output> {
    let ends = ends?;
    for rule in rules {
        ends.double.ask(&format!("rule {rule}"));
    }
    let output = ends.copy(options);
    assert_eq!(output.status.code(), Some(0), "{rules:?}: {}", talk(&output));
    assert!(ends.double.hits().iter().all(|&hits| hits > 0), "{}", ends.double.ask("rules"));
    assert_same(&ends.reference, &ends.to);
    Some(output)
}

#[test]
fn an_error_that_passes_at_the_sink() {
    for rule in [
        "EIO:write:path=large:nth=3",
        "ESHUTDOWN:write:path=large:nth=12:count=2",
        "EIO:write:path=small3",
        "EIO:sync:path=small3",
        "ESHUTDOWN:create:path=small6",
        "EIO:create:path=large",
        "EIO:symlink",
        "EIO:mkdir:path=to/empty",
        "EIO:rename:path=small3",
        "EIO:rename:path=to/large",
    ] {
        passes(Ends::sink_on_a_double(), &[rule], &[]);
    }
}

#[test]
fn an_error_that_passes_at_the_source() {
    let rules = ["EIO:read:path=large:nth=2:count=2", "ESHUTDOWN:read:path=small1:count=2"];
    passes(Ends::source_on_a_double(), &rules, &["--source-io", "direct"]);
    let rules = ["EIO:open:path=other", "ESHUTDOWN:open:path=small7:count=2"];
    passes(Ends::source_on_a_double(), &rules, &[]);
    let rules = ["EIO:list:path=sub", "ESHUTDOWN:lookup:path=small3", "EIO:list:path=from:nth=4"];
    passes(Ends::source_on_a_double(), &rules, &[]);
}

/// A failed sync of a file is not repeated: the file's data is written anew, that of other files is not.
#[test]
fn a_sync_of_a_file_that_fails_once() {
    for options in [&["--durability", "each"][..], &["--durability", "group"], &["--sink-io", "writeback"]] {
        passes(Ends::sink_on_a_double(), &["EIO:sync:path=large"], options);
    }
}

/// After a failed sync of directories another session writes what is not recorded, here too, where both ends
/// are in one process.
#[test]
fn a_sync_of_directories_that_fails_once_costs_a_session() {
    // The first two are of the journal's creation, before the session begins.
    for rule in ["EIO:syncdir:nth=3", "EIO:sync:path=.journal:nth=2"] {
        let options = ["--durability", "each"];
        let Some(output) = passes(Ends::sink_on_a_double(), &[rule], &options) else { return };
        assert_says(&output, &["Input/output error; trying again in 2.0 s (1 of 4)"]);
    }
}

#[test]
fn a_file_that_cannot_be_renamed() {
    let says = ["Read-only file system"];
    one_fails(Ends::sink_on_a_double(), &["EROFS:rename:path=to/large"], &["large"], &says);
    one_fails(Ends::sink_on_a_double(), &["EROFS:rename:path=small3"], &["sub/small3"], &says);
    one_fails(Ends::sink_on_a_double(), &["EACCES:rename:path=small4"], &["sub/small4"], &["denied"]);
}

#[test]
fn a_file_that_cannot_be_read() {
    // All reads fail, until nothing else is left to read and the target is given up.
    let (rules, says) = (
        ["EIO:read:path=large:count=all", "EIO:read:path=small1:count=all"],
        ["Input/output error", "2 entries failed by errors of the storage"],
    );
    one_fails(Ends::source_on_a_double(), &rules, &["large", "sub/small1"], &says);
    one_fails(Ends::source_on_a_double(), &["EACCES:open:path=other"], &["other"], &["permission denied"]);
    let rules = ["EACCES:open:path=small2", "EACCES:open:path=small7"];
    one_fails(Ends::source_on_a_double(), &rules, &["sub/small2", "sub/small7"], &["permission denied"]);
}

/// In all cases the same command completes the copy.
#[test]
fn a_sink_that_cannot_sync() {
    for rule in [
        "EIO:sync:path=large",
        "EIO:sync:path=small3",
        "EIO:sync:path=small5:count=all",
        "EIO:syncdir",
        "ENOSPC:sync:nth=4:count=all",
        "EIO:sync:path=.journal",
        "EIO:write:path=.journal:nth=3",
        "EIO:any:path=.journal:nth=5:count=all",
    ] {
        let Some(ends) = Ends::sink_on_a_double() else { return };
        ends.double.ask(&format!("rule {rule}"));
        let output = ends.copy(&["--retry", "0"]);
        // The failure may come when the transfer is over and every file is there, or pass.
        let code = output.status.code();
        assert!(matches!(code, Some(0 | 1 | 3)), "{rule}: {}", talk(&output));
        assert!(ends.double.hits()[0] > 0, "{rule} met nothing");
        ends.double.ask("clear");
        let missing = ends.missing();
        assert!(code != Some(0) || missing.is_empty(), "{rule}: {missing:?}");
        assert!(
            code == Some(0)
                || !rule.contains("count=all")
                || rule.contains(".journal")
                || !missing.is_empty()
        );
        ends.completes_without_errors(&[rule]);
    }
}

/// Flips bits between the sink's page cache and the medium, and checks that the objects are sent again.
#[track_caller]
fn repaired(rules: &[&str], options: &[&str]) {
    let Some(ends) = Ends::sink_on_a_double() else { return };
    for rule in rules {
        ends.double.ask(&format!("rule {rule}"));
    }
    let output = ends.copy(&[&["--verify", "readback"], options].concat());
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    assert!(ends.double.hits().iter().all(|&hits| hits > 0), "{}", ends.double.ask("rules"));
    // The contents at rest, without the cache.
    let at_rest = ends.double.local("at rest");
    ends.double.ask(&format!("live {}", at_rest.display()));
    assert_same(&ends.reference, &at_rest.join("to"));
}

#[test]
fn damage_at_the_sink_is_repaired() {
    for durability in ["each", "group", "end"] {
        let options = ["--durability", durability];
        repaired(&["flip:write:path=large:nth=5"], &options);
        repaired(&["flip:write:path=large:every=3:count=8"], &options);
        repaired(&["flip:write:path=small5", "flip:write:path=small3"], &options);
        repaired(
            &["flip:write:path=large:nth=23", "flip:write:path=other", "flip:write:path=small7"],
            &options,
        );
    }
}

#[test]
fn damage_that_stays_is_an_error() {
    let Some(ends) = Ends::sink_on_a_double() else { return };
    ends.double.ask("rule flip:write:path=small3:count=all");
    ends.double.ask("rule flip:write:path=large:count=all");
    let output = ends.copy(&["--verify", "readback"]);
    assert_eq!(output.status.code(), Some(1), "{}", talk(&output));
    assert_says(&output, &["small3", "large"]);
    assert_eq!(ends.missing(), ["large", "sub/small3"]);
    ends.completes_without_errors(&["flip"]);
}

/// Damage without an error is not seen without a readback: the double works.
#[test]
fn damage_that_nobody_looks_for_stays() {
    let Some(ends) = Ends::sink_on_a_double() else { return };
    ends.double.ask("rule flip:write:path=large:nth=5");
    assert_eq!(ends.copy(&[]).status.code(), Some(0));
    let at_rest = ends.double.local("at rest");
    ends.double.ask(&format!("live {}", at_rest.display()));
    let (there, wanted) =
        (fs::read(at_rest.join("to/large")).unwrap(), fs::read(ends.from.join("large")).unwrap());
    assert_eq!(there.iter().zip(&wanted).filter(|(one, other)| one != other).count(), 1);
}
