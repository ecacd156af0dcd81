//! The whole path to and from GlusterFS (`testbed/gluster`), for each kind of volume.
//!
//! Each test has a volume of its own and is skipped, with its reason, where there can be none.

use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use crate::common::file_system::{FileSystem, layout, plant_large};
use crate::common::tree::{assert_same_but_times, noise, plant_rich};

/// GlusterFS 10 was seen to leave requests to files in shards unanswered for ten minutes, to two copies at
/// the same time.
fn in_shards(test: impl Fn(&FileSystem)) {
    FileSystem::try_twice(|| gluster("shard"), test);
}

fn gluster(kind: &str) -> Option<FileSystem> {
    FileSystem::start("gluster", &["--kind", kind])
}

/// GlusterFS 10 keeps a time before 1970, but shows 1970 after the file was read, also to `touch`, `cat` and
/// `stat`.
fn plant_since_1970(root: &Path) {
    plant_rich(root);
    let file = File::open(root.join("sub/deep/none")).unwrap();
    file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + Duration::from_nanos(1))).unwrap();
}

#[test]
fn a_rich_tree_to_bricks_and_back() {
    let Some(gluster) = gluster("distribute") else { return };
    gluster.takes_and_gives_back(plant_since_1970);
}

#[test]
fn a_rich_tree_to_pairs_of_bricks_and_back() {
    let Some(gluster) = gluster("replicate") else { return };
    gluster.takes_and_gives_back(plant_since_1970);
}

#[test]
fn a_rich_tree_to_shards_and_back() {
    // GlusterFS 10 loses times of files in shards, also those set by `touch`.
    in_shards(|gluster| gluster.takes_and_gives_back_as(plant_rich, assert_same_but_times));
}

/// GlusterFS miscounts the size of a file in shards that grows while its directory is listed; `cp` leaves it
/// too long.
#[test]
fn files_in_shards_have_their_size_also_if_somebody_looks() {
    in_shards(|gluster| {
        let (tree, copy) = (gluster.local("tree"), gluster.path("copy"));
        fs::create_dir(&copy).unwrap();
        thread::scope(|scope| {
            let copies = scope.spawn(|| {
                for seed in 0..8 {
                    plant_large(&tree, seed);
                    gluster.copy(&[Path::new("tree/large"), &copy]);
                    assert_same_but_times(&tree.join("large"), &copy.join("large"));
                }
            });
            while !copies.is_finished() {
                // An entry may have lost its temporary name.
                for entry in fs::read_dir(copy.join("large")).into_iter().flatten().flatten() {
                    let _ = entry.metadata();
                }
            }
        });
    });
}

// Layouts.

#[test]
fn a_layout_names_the_brick() {
    let Some(gluster) = gluster("distribute") else { return };
    for number in 0..8 {
        let name = format!("file {number}");
        fs::write(gluster.path(&name), noise(100_000)).unwrap();
        let pathinfo = gluster.ask("getfattr", &["--only-values", "-n", "trusted.glusterfs.pathinfo"], &name);
        let said = layout(&gluster.path(&name));
        assert_eq!((&*said.file_system, said.bytes_on.len()), ("glusterfs", 1));
        let (target, bytes) = said.bytes_on.first_key_value().unwrap();
        let (host, brick) = target.split_once(':').unwrap();
        assert!(pathinfo.contains(&format!("<POSIX({brick}):{host}:")), "{target} is not in {pathinfo}");
        assert_eq!(*bytes, 100_000);
    }
}
