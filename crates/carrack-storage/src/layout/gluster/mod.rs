//! GlusterFS: every file lies whole on one brick (or on a set of bricks that hold copies or parts of it).
//!
//! Owns no state; asks for virtual attributes. Places nothing: the volume decides by a hash of the name.

mod pathinfo;

use std::os::fd::OwnedFd;

use carrack_model::TargetId;
use carrack_plan::{Mapped, SingleTarget};
use rustix::fs::OFlags;
use rustix::io::Errno;

pub use pathinfo::{BrickPlace, PathInfoError, parse_pathinfo};

use super::file_ref::FileRef;
use super::geometry::Wish;
use super::provider::{Found, NewFile, NoLayout, Provider};
use super::registry::Pieces;
use super::{ComponentGeometry, Geometry, Pattern, StripeOutcome};

/// For root, and for everybody (`libglusterfs/src/glusterfs/glusterfs.h`).
const PATHINFO: [&str; 2] = ["trusted.glusterfs.pathinfo", "glusterfs.pathinfo"];

/// Big-endian bytes of a shard; only clients that see the volume's inside are told.
const SHARD_BYTES: &str = "trusted.glusterfs.shard.block-size";

/// Shards but the first lie on bricks that clients are not told. So many targets keep them apart.
const SHARD_BUCKETS: usize = 8;

/// A mounted volume.
#[derive(Debug)]
pub(super) struct Gluster;

impl Provider for Gluster {
    fn layout_of(&self, file: &FileRef<'_>, size: u64, pieces: &Pieces) -> Result<Found, NoLayout> {
        let place = place_of(file)?;
        let brick = pieces.named(&place.label());
        Ok(match shard_bytes(file).filter(|bytes| size > *bytes) {
            Some(bytes) => {
                Found::new(sharded(brick, bytes, pieces), geometry(bytes, Pattern::Objects, &place))
            }
            None => Found::new(Some(SingleTarget { target: brick }), geometry(0, Pattern::Whole, &place)),
        })
    }

    fn create(&self, file: &NewFile<'_>, wish: &Wish<'_>) -> Result<(OwnedFd, StripeOutcome), Errno> {
        if wish.is_auto {
            return Ok((file.create(OFlags::empty())?, StripeOutcome::Default));
        }
        file.refuse("GlusterFS chooses the bricks itself".to_owned())
    }
}

fn place_of(file: &FileRef<'_>) -> Result<BrickPlace, NoLayout> {
    let value = file.attribute(PATHINFO[0]).or_else(|_| file.attribute(PATHINFO[1]));
    let value = value.map_err(|errno| NoLayout::problem("reading glusterfs.pathinfo", errno))?;
    parse_pathinfo(&value).map_err(|error| NoLayout::problem("reading glusterfs.pathinfo", error))
}

fn shard_bytes(file: &FileRef<'_>) -> Option<u64> {
    let value: [u8; 8] = file.attribute(SHARD_BYTES).ok()?.try_into().ok()?;
    Some(u64::from_be_bytes(value)).filter(|bytes| *bytes > 0)
}

/// The first shard lies on the file's own brick; the others are spread, we don't know where to.
fn sharded(brick: TargetId, shard_bytes: u64, pieces: &Pieces) -> Option<Mapped> {
    let buckets = (0..SHARD_BUCKETS).map(|number| pieces.named(&format!("shards.{number}")));
    let blocks: Vec<TargetId> = std::iter::once(brick).chain(buckets).collect();
    Mapped::new(&blocks, shard_bytes)
}

fn geometry(stripe_bytes: u64, pattern: Pattern, place: &BrickPlace) -> Geometry {
    let component =
        ComponentGeometry { start: 0, end: u64::MAX, stripe_bytes, stripe_count: 1, pool: None, pattern };
    // The text does not say how many copies there are.
    Geometry { components: vec![component], mirrors: if place.is_replicated { 0 } else { 1 } }
}
