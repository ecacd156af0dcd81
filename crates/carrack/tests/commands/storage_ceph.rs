//! The whole path to and from CephFS (`testbed/ceph`).
//!
//! Each test has a cluster of its own and is skipped, with its reason, where there can be none.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::common::file_system::{FileSystem, Layout, layout_with};
use crate::common::tree::{noise, plant_rich};

fn ceph() -> Option<FileSystem> {
    FileSystem::start("ceph", &[])
}

/// Ceph counts seconds with 32 bits from 1970 on: it has no times before, nor after 2106.
fn plant_since_1970(tree: &Path) {
    plant_rich(tree);
    let first = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_nanos(1));
    File::open(tree.join("sub/deep/none")).unwrap().set_times(first).unwrap();
}

#[test]
fn a_rich_tree_there_and_back() {
    let Some(ceph) = ceph() else { return };
    ceph.takes_and_gives_back(plant_since_1970);
}

// Layouts.

const OBJECT_BYTES: u64 = 4 << 20;

/// Returns the bytes on each OSD, by the place of each object in Ceph's own report, for a file in stripes of
/// `unit` bytes over `count` objects at a time.
fn bytes_on_osds(ceph: &FileSystem, path: &str, unit: u64, count: u64) -> BTreeMap<String, u64> {
    let file = ceph.path(path).metadata().unwrap();
    let mut bytes_of = BTreeMap::<u64, u64>::new();
    for start in (0..file.len()).step_by(unit as usize) {
        let (turn, in_turn) = (start / unit / count, start / unit % count);
        let object = turn / (OBJECT_BYTES / unit) * count + in_turn;
        *bytes_of.entry(object).or_default() += unit.min(file.len() - start);
    }
    let mut bytes_on = BTreeMap::new();
    for (object, bytes) in bytes_of {
        let name = format!("{:x}.{object:08x}", file.ino());
        let map = ceph.script(&["cli"], &["osd", "map", "cdata", &name, "--format=json"]).unwrap();
        let map: serde_json::Value = serde_json::from_str(&map).unwrap();
        *bytes_on.entry(format!("osd.{}", map["acting_primary"])).or_default() += bytes;
    }
    bytes_on
}

/// Returns the report of `carrack layout` with this cluster's configuration.
fn layout_of(ceph: &FileSystem, path: &str) -> Layout {
    layout_with(&ceph.path(path), &[("CEPH_CONF", ceph.beneath("ceph.conf"))])
}

#[test]
fn a_layout_says_what_each_osd_holds() {
    let Some(ceph) = ceph() else { return };
    fs::write(ceph.path("default"), noise(17_000_000)).unwrap();
    let said = layout_of(&ceph, "default");
    assert_eq!(said.bytes_on, bytes_on_osds(&ceph, "default", OBJECT_BYTES, 1));

    fs::write(ceph.path("striped"), "").unwrap();
    let wish = "stripe_unit=1048576 stripe_count=3 object_size=4194304 pool=cdata";
    ceph.ask("setfattr", &["-n", "ceph.file.layout", "-v", wish], "striped");
    fs::write(ceph.path("striped"), noise(30_000_000)).unwrap();
    let said = layout_of(&ceph, "striped");
    assert_eq!(said.bytes_on, bytes_on_osds(&ceph, "striped", 1 << 20, 3));
    assert_eq!((said.stripe_bytes, said.stripe_count), (Some(1 << 20), Some(3)));
}

#[test]
fn a_wished_striping_is_what_files_get() {
    let Some(ceph) = ceph() else { return };
    fs::write(ceph.local("f"), noise(9_000_000)).unwrap();
    ceph.copy(&["--stripe=3:1048576".as_ref(), ceph.local("f").as_os_str(), ceph.path("f").as_os_str()]);
    assert_eq!(fs::read(ceph.path("f")).unwrap(), noise(9_000_000));
    let layout = ceph.ask("getfattr", &["--only-values", "-n", "ceph.file.layout"], "f");
    assert!(layout.starts_with("stripe_unit=1048576 stripe_count=3 "), "{layout}");
}
