//! The whole path to and from GlusterFS (`testbed/gluster`), for each kind of volume.
//!
//! Each test has a volume of its own and is skipped, with its reason, where there can be none.

use std::collections::BTreeMap;
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

/// Returns the bytes that each brick has of the file and of shards.
fn bytes_on_bricks(gluster: &FileSystem, name: &str) -> BTreeMap<String, u64> {
    let bricks = (0..4).map(|number| gluster.beneath(&format!("brick{number}/brick")));
    let bytes_on = bricks.map(|brick| {
        let shards = fs::read_dir(brick.join(".shard")).into_iter().flatten().flatten();
        let files = shards.map(|shard| shard.path()).chain([brick.join(name)]);
        let bytes = files.filter_map(|file| file.metadata().ok()).filter(|file| file.is_file());
        let bytes = bytes.map(|file| file.len()).sum();
        (brick.canonicalize().unwrap().to_str().unwrap().to_owned(), bytes)
    });
    bytes_on.filter(|(_, bytes)| *bytes > 0).collect()
}

#[test]
fn a_layout_says_where_the_shards_are() {
    in_shards(|gluster| {
        fs::write(gluster.path("large"), noise(70_000_000)).unwrap();
        let said = layout(&gluster.path("large"));
        let by_brick = said.bytes_on.iter().map(|(target, bytes)| {
            let (_, brick) = target.split_once(':').unwrap_or_else(|| panic!("{target} is no brick"));
            (brick.to_owned(), *bytes)
        });
        assert_eq!(by_brick.collect::<BTreeMap<_, _>>(), bytes_on_bricks(gluster, "large"));
        assert_eq!((said.stripe_bytes, said.bytes_on.len() > 1), (Some(4 << 20), true));
    });
}
