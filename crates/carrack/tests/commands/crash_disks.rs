//! Power cuts of a disk: a copy goes to a real ext4 and a real XFS, whose disk is a file of the double. The
//! state that a cut after any write or flush of the disk would leave is mounted, which recovers the file
//! system's own journal; the same command runs again on it. This covers `syncfs` and `O_TMPFILE`, which the
//! double itself does not have; the variables are those of `crash_images`.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::power_cuts::{Copy, Cut, Durability, cuts, first_seed, plant_old, say, try_or_keep};
use crate::common::process::{assert_exit, run};
use crate::common::skip;
use crate::common::storage_double::StorageDouble;

/// Images in CI, for each file system; each takes 100 to 300 ms.
const IMAGES: usize = 60;

/// Makes an empty file system, whose disk is a file of a double.
fn disk(make: &[&str], bytes: u64) -> Option<StorageDouble> {
    if Command::new(make[0]).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        skip(&format!("no {} to test with", make[0]));
        return None;
    }
    let double = StorageDouble::start(&[], |_| {})?;
    let image = double.path("disk");
    File::create_new(&image).unwrap().set_len(bytes).unwrap();
    assert_exit(&run(Command::new(make[0]).args(&make[1..]).arg(&image)), 0);
    match double.attach(&image) {
        Ok(()) => Some(double),
        Err(why) => {
            skip(&format!("no disk to test with: {why}"));
            None
        }
    }
}

fn sync(directory: &Path) {
    rustix::fs::syncfs(File::open(directory).unwrap()).unwrap();
}

/// Copies, and tries every cut that is asked for.
fn try_cuts(make: &[&str], bytes: u64, durability: Durability) {
    let Some(double) = disk(make, bytes) else { return };
    let (to, image) = (double.disk("to"), double.local("image"));
    plant_old(&double.disk(""));
    sync(&to);
    let copy = Copy::plant(&double.local("from"), &to, durability);
    double.ask("record");
    double.ask(&format!("rule {}", durability.rule()));
    let all = copy.run(&to);
    copy.assert_complete(&to);
    sync(&to);
    double.ask("clear");
    let log = double.log();
    double.detach();

    let cuts = cuts(log.len(), IMAGES);
    let attempt = |cut: Cut| {
        double.ask(&cut.image(&image));
        double.attach(&image.join("disk")).unwrap();
        let copied = copy.resume(&to);
        double.detach();
        fs::remove_dir_all(&image).unwrap();
        copied
    };
    let copied_again: u64 = cuts.iter().map(|&cut| try_or_keep(&double, cut, &log, attempt)).sum();
    say(&format!(
        "{} power cuts of a disk with {} writes and flushes, {}, a copy of {all} bytes, {durability:?}, seed {}; \
         copied again: {} bytes on average",
        cuts.len(),
        log.len(),
        make[0],
        first_seed(),
        copied_again / cuts.len() as u64
    ));
}

#[test]
fn ext4_loses_nothing() {
    try_cuts(&["mkfs.ext4", "-qF"], 64 << 20, Durability::Each);
}

#[test]
fn ext4_loses_nothing_between_groups() {
    try_cuts(&["mkfs.ext4", "-qF"], 64 << 20, Durability::Group);
}

#[test]
fn xfs_loses_nothing() {
    try_cuts(&["mkfs.xfs", "-qf"], 320 << 20, Durability::Each);
}

#[test]
fn xfs_loses_nothing_between_groups() {
    try_cuts(&["mkfs.xfs", "-qf"], 320 << 20, Durability::Group);
}
