//! The placement of a path, as `carrack layout` shows it: looked up once ([`look`]), then written as a table
//! or as JSON.
//!
//! Owns the value in between and its sums. Writing asks no file system, so that tests can use made-up
//! layouts.

mod extents;
mod json;
mod look;
mod table;
mod tree_totals;

use std::path::PathBuf;
use std::sync::Arc;

use carrack_layout::{FileSystemKind, StripeGeometry};
use carrack_model::{EntryFailure, TargetId};
use carrack_plan::Layout;

pub use look::LayoutLooker;

/// The placement of one path.
#[derive(Debug)]
pub struct PathLayout {
    /// The path as the user named it.
    path: Box<[u8]>,
    kind: FileSystemKind,
    mount_point: Option<PathBuf>,
    what: LayoutViewPathKind,
    /// For a directory the geometry of new files in it, if known.
    geometry: Option<StripeGeometry>,
    /// For a file in the order of their first bytes, for a tree by name.
    targets: Vec<TargetBytes>,
    /// The reason why the layout, or a part, is unknown.
    problem: Option<String>,
}

/// The kind of the path.
#[derive(Debug)]
enum LayoutViewPathKind {
    File {
        size: u64,
        /// True if its data is in an archive: on no target.
        is_released: bool,
        layout: Arc<dyn Layout>,
    },
    /// A directory without the files below.
    Directory {
        /// The target of files without a layout of their own.
        own_target: Arc<str>,
    },
    /// A directory and all regular files below.
    Tree {
        own_target: Arc<str>,
        /// Sum over the files, released ones included.
        size: u64,
        file_count: u64,
        released_count: u64,
        failures: TreeLookupFailures,
    },
}

/// Bytes on one target.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TargetBytes {
    id: TargetId,
    label: Arc<str>,
    /// The host that it belongs to, if that is known.
    server: Option<Arc<str>>,
    bytes: u64,
}

/// Entries of a tree whose look-up failed.
#[derive(Debug, Default)]
pub struct TreeLookupFailures {
    /// The first failures.
    pub first: Vec<EntryFailure>,
    /// The number of all failures.
    pub count: u64,
}

impl PathLayout {
    /// Returns the failures in a tree; `None` for other paths.
    pub fn failures(&self) -> Option<&TreeLookupFailures> {
        match &self.what {
            LayoutViewPathKind::Tree { failures, .. } => Some(failures),
            LayoutViewPathKind::File { .. } | LayoutViewPathKind::Directory { .. } => None,
        }
    }

    /// Returns true if there is nothing to show: not even the directory could be listed.
    pub fn has_nothing_to_show(&self) -> bool {
        matches!(&self.what, LayoutViewPathKind::Tree { file_count: 0, failures, .. } if failures.count > 0)
    }

    /// Returns the largest share ÷ the mean over all targets; 1 if all are equal, or there are none.
    fn imbalance(&self) -> f64 {
        let largest = self.targets.iter().map(|target| target.bytes).max().unwrap_or(0);
        match self.bytes_placed() {
            0 => 1.0,
            sum => largest as f64 * self.targets.len() as f64 / sum as f64,
        }
    }

    /// Returns the bytes on all targets together; many sparse files may have more than 2^64.
    fn bytes_placed(&self) -> u128 {
        self.targets.iter().map(|target| u128::from(target.bytes)).sum()
    }
}

#[cfg(test)]
mod samples {
    use carrack_layout::{ComponentGeometry, StripePattern};
    use carrack_plan::{CompositeLayout, StripedLayout};

    use super::*;

    fn targets(layout: &dyn Layout, size: u64) -> Vec<TargetBytes> {
        let bytes = layout.bytes_per_target(0..size);
        let targets = layout.targets().iter().zip(bytes);
        targets
            .map(|(id, bytes)| {
                let server = Some(if id.0 < 2 { "10.0.0.2@tcp".into() } else { "10.0.0.3@tcp".into() });
                TargetBytes { id: *id, label: format!("OST{:04x}", id.0).into(), server, bytes }
            })
            .collect()
    }

    /// Returns a file of 5 MiB whose first MiB lies on one target and the rest on four in a pool.
    pub fn file() -> PathLayout {
        let first = StripedLayout::new(vec![TargetId(3)], 1 << 20).unwrap();
        let rest = StripedLayout::new([0, 1, 2, 3].map(TargetId).to_vec(), 1 << 20).unwrap();
        let layout = CompositeLayout::new(vec![(1 << 20, first), (u64::MAX, rest)]).unwrap();
        let first = ComponentGeometry {
            start: 0,
            end: 1 << 20,
            stripe_bytes: 1 << 20,
            stripe_count: 1,
            pool: None,
            pattern: StripePattern::Striped,
        };
        let rest = ComponentGeometry {
            start: first.end,
            end: u64::MAX,
            stripe_count: 4,
            pool: Some("flash".to_owned()),
            ..first.clone()
        };
        let components = vec![first, rest];
        PathLayout {
            path: b"a\n\xff"[..].into(),
            kind: FileSystemKind::Lustre,
            mount_point: Some("/mnt/lustre".into()),
            geometry: Some(StripeGeometry { components, mirrors: 1 }),
            targets: targets(&layout, 5 << 20),
            what: LayoutViewPathKind::File { size: 5 << 20, is_released: false, layout: Arc::new(layout) },
            problem: None,
        }
    }

    /// Returns the same file, released.
    pub fn released() -> PathLayout {
        let mut placement = file();
        if let LayoutViewPathKind::File { is_released, .. } = &mut placement.what {
            *is_released = true;
        }
        placement.targets.clear();
        placement
    }

    /// Returns a tree on two OSDs.
    pub fn tree() -> PathLayout {
        let targets = [(1, "osd.2", 3 << 20), (2, "osd.10", 1 << 20)];
        let targets = targets.map(|(id, label, bytes)| TargetBytes {
            id: TargetId(id),
            label: label.into(),
            server: None,
            bytes,
        });
        PathLayout {
            path: b"tree"[..].into(),
            kind: FileSystemKind::CephFs,
            mount_point: None,
            what: LayoutViewPathKind::Tree {
                own_target: "/ceph".into(),
                size: 4 << 20,
                file_count: 3,
                released_count: 1,
                failures: TreeLookupFailures::default(),
            },
            geometry: None,
            targets: targets.into(),
            problem: Some("1 file: why".into()),
        }
    }

    /// Returns a directory without the files below.
    pub fn directory() -> PathLayout {
        let what = LayoutViewPathKind::Directory { own_target: "tmpfs".into() };
        let (path, problem) = (b"/tmp"[..].into(), None);
        let kind = FileSystemKind::Plain;
        PathLayout { path, kind, mount_point: None, what, geometry: None, targets: Vec::new(), problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imbalance_is_the_largest_share_by_the_mean() {
        assert_eq!(samples::file().imbalance(), 1.6);
        assert_eq!(samples::tree().imbalance(), 1.5);
        assert_eq!((samples::released().imbalance(), samples::directory().imbalance()), (1.0, 1.0));
    }

    #[test]
    fn sums_do_not_overflow() {
        let mut tree = samples::tree();
        tree.targets.iter_mut().for_each(|target| target.bytes = u64::MAX);
        assert_eq!(tree.imbalance(), 1.0);
    }

    #[test]
    fn a_tree_of_which_nothing_could_be_seen_is_void() {
        let mut tree = samples::tree();
        assert!(!tree.has_nothing_to_show());
        if let LayoutViewPathKind::Tree { file_count, failures, .. } = &mut tree.what {
            (*file_count, failures.count) = (0, 1);
        }
        assert!(
            tree.has_nothing_to_show() && tree.failures().is_some() && !samples::file().has_nothing_to_show()
        );
    }
}
