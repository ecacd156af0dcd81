//! `carrack layout --json`: one object a line and path on stdout. Field names are stable; new ones may come.
//!
//! | field | content |
//! | --- | --- |
//! | `path`, `path_hex` | as in `carrack cp --json` |
//! | `type` | `file`, or `directory` |
//! | `file_system` | `lustre`, `cephfs`, `glusterfs`, `beegfs`, `gpfs`, `set` (of `--targets`), `plain` |
//! | `mount_point` | its mount point; null if the kernel does not tell it |
//! | `size` | bytes of the file, or of all files with `-r`; null for a directory without `-r` |
//! | `released` | true if the file's data (with `-r`: that of any file) is in an archive only |
//! | `stripe_size`, `stripe_count`, `pool` | of the widest component; null if unknown; -1: all targets |
//! | `mirrors` | copies that the storage keeps; null if unknown |
//! | `components` | `start`, `end` (null: open), `stripe_size`, `stripe_count`, `pool`, `pattern` of each |
//! | `own_target` | directories only: the target of files without a layout of their own |
//! | `files`, `released_files` | directories with `-r` only |
//! | `targets` | `target`, `bytes` of each; `server`, the host that it belongs to, where that is known |
//! | `imbalance` | the largest of these ÷ their mean |
//! | `problem` | the reason why the layout or a part is unknown; absent otherwise |
//! | `extents` | with `--extents` only: `offset`, `length`, `target` of each |
//!
//! `pattern` is `striped`, `overstriped`, `metadata` (next to the inode), `objects` or `whole`. A file system
//! of another kind than those above is `plain`.

use std::borrow::Cow;
use std::io::{self, Write};

use carrack_layout::{ComponentGeometry, FileSystemKind, STRIPE_COUNT_ALL, StripeGeometry, StripePattern};
use serde::{Serialize, Serializer};

use super::{LayoutViewPathKind, PathLayout, extents};
use crate::views::json::{self, write_long_line};

impl PathLayout {
    /// Writes the line; a file's extents one by one.
    pub fn write_json(&self, out: &mut dyn Write, with_extents: bool) -> io::Result<()> {
        write_long_line(&LayoutLine::of(self, with_extents), out)
    }
}

#[derive(Serialize)]
struct LayoutLine<'a> {
    #[serde(flatten)]
    path: json::JsonFilePathFields<'a>,
    r#type: &'static str,
    file_system: &'static str,
    mount_point: Option<Cow<'a, str>>,
    size: Option<u64>,
    released: bool,
    stripe_size: Option<u64>,
    stripe_count: Option<i64>,
    pool: Option<&'a str>,
    mirrors: Option<u32>,
    components: Vec<ComponentLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    own_target: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    released_files: Option<u64>,
    targets: Vec<TargetLine<'a>>,
    imbalance: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extents: Option<LayoutExtentsJson<'a>>,
}

/// A file's extents, which are computed while they are written.
struct LayoutExtentsJson<'a>(&'a PathLayout);

impl Serialize for LayoutExtentsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(extents::merged_extents(self.0))
    }
}

impl<'a> LayoutLine<'a> {
    fn of(placement: &'a PathLayout, with_extents: bool) -> LayoutLine<'a> {
        let geometry = placement.geometry.as_ref();
        let widest = geometry.and_then(StripeGeometry::widest).map(ComponentLine::of);
        let components = geometry.map_or(&[][..], |geometry| &geometry.components);
        let targets = placement.targets.iter();
        let targets = targets.map(|target| TargetLine {
            target: &target.label,
            server: target.server.as_deref(),
            bytes: target.bytes,
        });
        let (r#type, own_target, size, files, released_files) = match &placement.what {
            LayoutViewPathKind::File { size, is_released, .. } => {
                ("file", None, Some(*size), None, u64::from(*is_released))
            }
            LayoutViewPathKind::Directory { own_target } => ("directory", Some(own_target), None, None, 0),
            LayoutViewPathKind::Tree { own_target, size, file_count, released_count, .. } => {
                ("directory", Some(own_target), Some(*size), Some(*file_count), *released_count)
            }
        };
        LayoutLine {
            path: json::JsonFilePathFields::of(&placement.path),
            r#type,
            file_system: kind_name(placement.kind),
            mount_point: placement.mount_point.as_ref().map(|path| path.to_string_lossy()),
            size,
            released: released_files > 0,
            stripe_size: widest.as_ref().and_then(|widest| widest.stripe_size),
            stripe_count: widest.as_ref().and_then(|widest| widest.stripe_count),
            pool: widest.and_then(|widest| widest.pool),
            mirrors: geometry.map(|geometry| geometry.mirrors).filter(|mirrors| *mirrors > 0),
            components: components.iter().map(ComponentLine::of).collect(),
            own_target: own_target.map(|target| &**target),
            files,
            released_files: files.map(|_| released_files),
            targets: targets.collect(),
            imbalance: placement.imbalance(),
            problem: placement.problem.as_deref(),
            extents: with_extents.then_some(LayoutExtentsJson(placement)),
        }
    }
}

#[derive(Serialize)]
struct ComponentLine<'a> {
    start: u64,
    end: Option<u64>,
    stripe_size: Option<u64>,
    stripe_count: Option<i64>,
    pool: Option<&'a str>,
    pattern: &'static str,
}

impl<'a> ComponentLine<'a> {
    fn of(component: &'a ComponentGeometry) -> ComponentLine<'a> {
        ComponentLine {
            start: component.start,
            end: (component.end < u64::MAX).then_some(component.end),
            stripe_size: (component.stripe_bytes > 0).then_some(component.stripe_bytes),
            stripe_count: match component.stripe_count {
                0 => None,
                STRIPE_COUNT_ALL => Some(-1),
                count => Some(count.into()),
            },
            pool: component.pool.as_deref(),
            pattern: pattern_name(component.pattern),
        }
    }
}

#[derive(Serialize)]
struct TargetLine<'a> {
    target: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<&'a str>,
    bytes: u64,
}

fn kind_name(kind: FileSystemKind) -> &'static str {
    match kind {
        FileSystemKind::Lustre => "lustre",
        FileSystemKind::CephFs => "cephfs",
        FileSystemKind::Gluster => "glusterfs",
        FileSystemKind::BeeGfs => "beegfs",
        FileSystemKind::Gpfs => "gpfs",
        FileSystemKind::Set => "set",
        FileSystemKind::Plain => "plain",
    }
}

/// Returns the name of a pattern, for people too.
pub(super) fn pattern_name(pattern: StripePattern) -> &'static str {
    match pattern {
        StripePattern::Striped => "striped",
        StripePattern::Overstriped => "overstriped",
        StripePattern::Extending => "self-extending",
        StripePattern::Metadata => "metadata",
        StripePattern::Objects => "objects",
        StripePattern::Whole => "whole",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::views::layout::samples;

    fn line(placement: &PathLayout, with_extents: bool) -> Value {
        let mut out = Vec::new();
        placement.write_json(&mut out, with_extents).unwrap();
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn a_file_has_all_fields() {
        let mib = 1 << 20;
        let expected = json!({
            "path": "a\n\u{fffd}", "path_hex": "610aff", "type": "file", "file_system": "lustre",
            "mount_point": "/mnt/lustre", "size": 5 * mib, "released": false, "stripe_size": mib,
            "stripe_count": 4, "pool": "flash", "mirrors": 1,
            "components": [
                {"start": 0, "end": mib, "stripe_size": mib, "stripe_count": 1, "pool": null, "pattern": "striped"},
                {"start": mib, "end": null, "stripe_size": mib, "stripe_count": 4, "pool": "flash",
                 "pattern": "striped"},
            ],
            "targets": [
                {"target": "OST0003", "bytes": 2 * mib, "server": "10.0.0.3@tcp"},
                {"target": "OST0000", "bytes": mib, "server": "10.0.0.2@tcp"},
                {"target": "OST0001", "bytes": mib, "server": "10.0.0.2@tcp"},
                {"target": "OST0002", "bytes": mib, "server": "10.0.0.3@tcp"},
            ],
            "imbalance": 1.6,
        });
        assert_eq!(line(&samples::file(), false), expected);
    }

    #[test]
    fn extents_join_the_line() {
        let value = line(&samples::file(), true);
        let extents = value["extents"].as_array().unwrap();
        assert_eq!(extents[1], json!({"offset": 1 << 20, "length": 1 << 20, "target": "OST0001"}));
        assert_eq!((extents.len(), &value["imbalance"]), (5, &json!(1.6)));
        assert_eq!(line(&samples::released(), true)["extents"], json!([]));
    }

    #[test]
    fn released_files_lie_on_no_target() {
        let value = line(&samples::released(), false);
        assert_eq!((&value["released"], &value["targets"]), (&json!(true), &json!([])));
    }

    #[test]
    fn directories_have_sums_if_asked_for() {
        let tree = line(&samples::tree(), false);
        for (field, expected) in [
            ("type", json!("directory")),
            ("file_system", "cephfs".into()),
            ("files", 3.into()),
            ("released_files", 1.into()),
            ("released", true.into()),
            ("size", (4 << 20).into()),
            ("own_target", "/ceph".into()),
            ("imbalance", 1.5.into()),
            ("problem", "1 file: why".into()),
            ("stripe_count", Value::Null),
            ("components", json!([])),
        ] {
            assert_eq!(tree[field], expected, "{field}");
        }
        assert!(tree["targets"][0].get("server").is_none());
        let directory = line(&samples::directory(), false);
        assert_eq!((&directory["size"], &directory["own_target"]), (&Value::Null, &json!("tmpfs")));
        for absent in ["files", "released_files", "path_hex", "problem", "extents"] {
            assert!(directory.get(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn counts_that_are_no_numbers() {
        let mut file = samples::file();
        let component = &mut file.geometry.as_mut().unwrap().components[1];
        (component.stripe_count, component.stripe_bytes) = (STRIPE_COUNT_ALL, 0);
        let value = line(&file, false);
        assert_eq!((&value["stripe_count"], &value["stripe_size"]), (&json!(-1), &Value::Null));
    }
}
