//! Layouts as real file systems tell them, and as the double of Lustre does.
//!
//! Each test needs a mount, whose path a variable of the environment names, and is skipped without:
//! `CARRACK_LIVE_LUSTRE` (`testbed/lustre up DIR`), `CARRACK_LIVE_GLUSTER` (`testbed/gluster up DIR`),
//! `CARRACK_LIVE_CEPH` (`testbed/ceph up DIR`, with the `CEPH_CONF` that it prints).
#![allow(clippy::unwrap_used)] // Also in helpers.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use carrack_layout::{
    ComponentGeometry, FileLayout, FileSystemKind, FileSystems, LayoutFileToCreate, MountedFileSystem,
    RequestedLayout, STRIPE_COUNT_ALL, StripeGeometry, StripeOutcome, StripePattern,
};
use rustix::fs::{CWD, Mode, OFlags, openat};

const MIB: u64 = 1 << 20;

/// A directory of its own on a live file system.
struct Site {
    directory: tempfile::TempDir,
    handle: OwnedFd,
    systems: FileSystems,
    system: Arc<MountedFileSystem>,
}

impl Site {
    /// Nothing if there is no such mount.
    fn on(variable: &str) -> Option<Site> {
        let Some(mount) = std::env::var_os(variable).map(PathBuf::from) else {
            println!("skipped: {variable} names no mount");
            return None;
        };
        let directory = tempfile::tempdir_in(&mount).unwrap();
        let systems = FileSystems::new(&[]).unwrap();
        let held = openat(CWD, &mount, OFlags::PATH, Mode::empty()).unwrap();
        let system = systems.file_system_of(held.as_fd()).unwrap();
        assert_eq!(system.mount_point(), Some(mount.as_path()));
        let handle = openat(CWD, directory.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        Some(Site { directory, handle, systems, system })
    }

    fn create(&self, name: &str, stripe: &RequestedLayout) -> (File, StripeOutcome) {
        let file = LayoutFileToCreate {
            directory: self.handle.as_fd(),
            name: name.as_bytes(),
            flags: OFlags::WRONLY | OFlags::CLOEXEC,
            mode: Mode::RUSR | Mode::WUSR,
            is_shared: false,
        };
        let (file, outcome) = self.system.create(&file, stripe).unwrap();
        (file.into(), outcome)
    }

    /// The layout of a file, which is the same whether it is open or not.
    fn layout(&self, name: &str) -> FileLayout {
        let file = File::open(self.directory.path().join(name)).unwrap();
        let size = file.metadata().unwrap().len();
        let open = self.system.layout_of(file.as_fd(), size);
        let named = self.system.layout_at(self.handle.as_fd(), name.as_bytes(), false, size);
        assert_eq!(format!("{open:?}"), format!("{named:?}"));
        println!("{name}: {open:?}");
        open
    }

    /// The labels of the targets, one for each MiB.
    fn labels(&self, layout: &FileLayout, mib: u64) -> Vec<String> {
        let targets = (0..mib).map(|n| layout.layout.extent_at(n * MIB).target);
        targets.map(|target| self.systems.target(target).unwrap().label.to_string()).collect()
    }
}

fn fill(mut file: File, mib: u64) {
    (0..mib).for_each(|_| file.write_all(&[7; MIB as usize]).unwrap());
}

fn fixed(count: u32, stripe_bytes: u64, pool: Option<&str>) -> RequestedLayout {
    RequestedLayout::Fixed { count, stripe_bytes: Some(stripe_bytes), pool: pool.map(str::to_owned) }
}

#[test]
fn lustre() {
    let Some(site) = Site::on("CARRACK_LIVE_LUSTRE") else { return };
    assert_eq!((site.system.kind(), site.system.has_layouts()), (FileSystemKind::Lustre, true));
    let (file, outcome) = site.create("three", &fixed(3, MIB, None));
    assert_eq!(outcome, StripeOutcome::Set);
    fill(file, 6);
    let layout = site.layout("three");
    assert_eq!(
        (layout.problem.as_deref(), layout.is_released, layout.layout.targets().len()),
        (None, false, 3)
    );
    let labels = site.labels(&layout, 6);
    assert!(labels[..3] == labels[3..] && labels.iter().all(|label| label.starts_with("OST")), "{labels:?}");
    let geometry = layout.geometry.unwrap();
    assert_eq!((geometry.components[0].stripe_count, geometry.components[0].stripe_bytes), (3, MIB));

    let (file, outcome) = site.create("like", &RequestedLayout::Like(geometry.clone()));
    assert_eq!(outcome, StripeOutcome::Set);
    fill(file, 1);
    assert_eq!(site.layout("like").geometry, Some(geometry));

    let part = |start, end, stripe_count| ComponentGeometry {
        start,
        end,
        stripe_bytes: MIB,
        stripe_count,
        pool: None,
        pattern: StripePattern::Striped,
    };
    let components = vec![part(0, 2 * MIB, 1), part(2 * MIB, u64::MAX, 3)];
    let progressive = StripeGeometry { components, mirrors: 1 };
    let (file, outcome) = site.create("progressive", &RequestedLayout::Like(progressive.clone()));
    assert_eq!(outcome, StripeOutcome::Set);
    fill(file, 6);
    let layout = site.layout("progressive");
    assert_eq!((layout.problem.as_deref(), layout.geometry.as_ref()), (None, Some(&progressive)));
    let labels = site.labels(&layout, 6);
    assert!(labels[0] == labels[1] && labels[2] != labels[3] && labels[2] == labels[5], "{labels:?}");

    let on_mdt = ComponentGeometry { pattern: StripePattern::Metadata, ..part(0, MIB, 0) };
    let components = vec![on_mdt, part(MIB, u64::MAX, 1)];
    let (file, outcome) =
        site.create("metadata", &RequestedLayout::Like(StripeGeometry { components, mirrors: 1 }));
    assert_eq!(outcome, StripeOutcome::Set);
    fill(file, 2);
    let labels = site.labels(&site.layout("metadata"), 2);
    assert!(labels[0].starts_with("MDT0") && labels[1].starts_with("OST"), "{labels:?}");

    let (file, outcome) = site.create("all", &fixed(STRIPE_COUNT_ALL, MIB, None));
    assert_eq!(outcome, StripeOutcome::Set);
    fill(file, 1);
    assert!(site.layout("all").layout.targets().len() >= 3);

    let (file, outcome) = site.create("pool", &fixed(2, MIB, Some("no-such-pool")));
    assert!(matches!(&outcome, StripeOutcome::Refused(why) if why.contains("no-such-pool")), "{outcome:?}");
    fill(file, 1);
    let (file, outcome) = site.create("default", &RequestedLayout::Default);
    assert_eq!(outcome, StripeOutcome::Default);
    fill(file, 1);
    assert_eq!(site.layout("default").problem, None);
}

#[test]
fn gluster() {
    let Some(site) = Site::on("CARRACK_LIVE_GLUSTER") else { return };
    assert_eq!((site.system.kind(), site.system.has_layouts()), (FileSystemKind::Gluster, true));
    let (file, outcome) = site.create("refused", &fixed(3, MIB, None));
    assert!(matches!(outcome, StripeOutcome::Refused(_)));
    fill(file, 1);
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..20 {
        let name = format!("f <POSIX({number}):evil:>");
        let (file, outcome) =
            site.create(&name, &RequestedLayout::Auto { file_bytes: 5 << 30, avoided: Vec::new() });
        assert_eq!(outcome, StripeOutcome::Default);
        fill(file, 1);
        let layout = site.layout(&name);
        assert_eq!((layout.problem.as_deref(), layout.layout.targets().len()), (None, 1));
        assert_eq!(layout.geometry.as_ref().unwrap().components[0].pattern, StripePattern::Whole);
        let label = site.labels(&layout, 1).remove(0);
        // Of a distributed volume whose bricks are here.
        if let Some((_, brick)) = label.split_once(":/") {
            let directory = site.directory.path().file_name().unwrap();
            let brick = Path::new("/").join(brick);
            assert!(!brick.exists() || brick.join(directory).join(&name).exists(), "{name} in {label}");
        }
        seen.insert(label);
    }
    println!("{seen:?}");
    assert!(!seen.iter().any(|label| label.contains("evil") || label.contains("POSIX")));
}

#[test]
fn ceph() {
    let Some(site) = Site::on("CARRACK_LIVE_CEPH") else { return };
    assert_eq!((site.system.kind(), site.system.has_layouts()), (FileSystemKind::CephFs, true));
    let (file, outcome) = site.create("three", &fixed(3, MIB, None));
    assert_eq!(outcome, StripeOutcome::Set);
    fill(file, 24);
    let layout = site.layout("three");
    assert_eq!(layout.problem, None);
    let labels = site.labels(&layout, 24);
    println!("{labels:?}");
    // Three objects of 4 MiB, a stripe unit of each in turn; then three others.
    assert!((0..9).all(|n| labels[n] == labels[n + 3] && labels[12 + n] == labels[12 + n + 3]), "{labels:?}");
    assert!(labels.iter().all(|label| label.starts_with("osd.")), "{labels:?}");
    let geometry = layout.geometry.unwrap();
    assert_eq!((geometry.components[0].stripe_count, geometry.components[0].stripe_bytes), (3, MIB));
    assert_eq!(site.create("like", &RequestedLayout::Like(geometry.clone())).1, StripeOutcome::Set);
    assert_eq!(site.layout("like").geometry, Some(geometry));

    let (_, outcome) = site.create("pool", &fixed(2, MIB, Some("no-such-pool")));
    assert!(matches!(&outcome, StripeOutcome::Refused(why) if why.contains("no-such-pool")), "{outcome:?}");
    assert_eq!(site.layout("pool").geometry.unwrap().components[0].stripe_count, 2);
    fs::write(site.directory.path().join("default"), vec![7; 9 << 20]).unwrap();
    let layout = site.layout("default");
    assert_eq!(layout.problem, None);
    let inode = fs::metadata(site.directory.path().join("default")).unwrap().ino();
    let labels = site.labels(&layout, 9);
    for (object, label) in [(0, &labels[0]), (1, &labels[4]), (2, &labels[8])] {
        assert_eq!(*label, primary_osd(&format!("{inode:x}.{object:08x}")));
    }
}

/// As Ceph's own command says: `… acting ([1,2], p1)`.
fn primary_osd(object: &str) -> String {
    let output = Command::new("ceph").args(["osd", "map", "cdata", object]).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let (_, primary) = output.rsplit_once(", p").unwrap();
    format!("osd.{}", primary.trim_end().trim_end_matches(')'))
}
