//! GlusterFS: every file lies whole on one brick (or on a set of bricks that hold copies or parts of the
//! file).
//!
//! Has no state; reads virtual attributes. Sets no layout: the volume places files by a hash of the name.

mod pathinfo;

use std::os::fd::OwnedFd;

use carrack_model::TargetId;
use carrack_plan::{BlockMapLayout, SingleTarget};
use rustix::fs::OFlags;
use rustix::io::Errno;

pub use pathinfo::{BrickPlace, GlusterPathInfoError, parse_pathinfo};

use super::file_ref::LayoutQueryFile;
use super::layout_shape::StripeRequest;
use super::provider::{FoundLayout, LayoutFileToCreate, LayoutProvider, MissingLayoutReason};
use super::target_registry::FileSystemTargets;
use super::{ComponentGeometry, StripeGeometry, StripeOutcome, StripePattern};

/// The attribute for root, and for all users (`libglusterfs/src/glusterfs/glusterfs.h`).
const PATHINFO: [&str; 2] = ["trusted.glusterfs.pathinfo", "glusterfs.pathinfo"];

/// Big-endian size of a shard; reported only to clients with access to the volume's internals.
const SHARD_BYTES: &str = "trusted.glusterfs.shard.block-size";

/// Targets that stand in for the bricks of all shards but the first, which clients can't learn.
const SHARD_BUCKETS: usize = 8;

/// A mounted volume.
#[derive(Debug)]
pub(super) struct GlusterProvider;

impl LayoutProvider for GlusterProvider {
    fn layout_of(
        &self,
        file: &LayoutQueryFile<'_>,
        size: u64,
        pieces: &FileSystemTargets,
    ) -> Result<FoundLayout, MissingLayoutReason> {
        let place = read_brick_place(file)?;
        let brick = pieces.target_named(&place.label());
        Ok(match shard_bytes(file).filter(|bytes| size > *bytes) {
            Some(bytes) => FoundLayout::new(
                sharded_layout(brick, bytes, pieces),
                geometry(bytes, StripePattern::Objects, &place),
            ),
            None => FoundLayout::new(
                Some(SingleTarget { target: brick }),
                geometry(0, StripePattern::Whole, &place),
            ),
        })
    }

    fn create(
        &self,
        file: &LayoutFileToCreate<'_>,
        request: &StripeRequest<'_>,
    ) -> Result<(OwnedFd, StripeOutcome), Errno> {
        if request.is_auto {
            return Ok((file.create(OFlags::empty())?, StripeOutcome::Default));
        }
        file.create_with_default("GlusterFS chooses the bricks itself".to_owned())
    }
}

fn read_brick_place(file: &LayoutQueryFile<'_>) -> Result<BrickPlace, MissingLayoutReason> {
    let value = file.read_attribute(PATHINFO[0]).or_else(|_| file.read_attribute(PATHINFO[1]));
    let value = value.map_err(|errno| MissingLayoutReason::problem("reading glusterfs.pathinfo", errno))?;
    parse_pathinfo(&value).map_err(|error| MissingLayoutReason::problem("reading glusterfs.pathinfo", error))
}

fn shard_bytes(file: &LayoutQueryFile<'_>) -> Option<u64> {
    let value: [u8; 8] = file.read_attribute(SHARD_BYTES).ok()?.try_into().ok()?;
    Some(u64::from_be_bytes(value)).filter(|bytes| *bytes > 0)
}

/// The first shard lies on the file's own brick; the bricks of the others are unknown.
fn sharded_layout(brick: TargetId, shard_bytes: u64, pieces: &FileSystemTargets) -> Option<BlockMapLayout> {
    let buckets = (0..SHARD_BUCKETS).map(|number| pieces.target_named(&format!("shards.{number}")));
    let blocks: Vec<TargetId> = std::iter::once(brick).chain(buckets).collect();
    BlockMapLayout::new(&blocks, shard_bytes)
}

fn geometry(stripe_bytes: u64, pattern: StripePattern, place: &BrickPlace) -> StripeGeometry {
    let component =
        ComponentGeometry { start: 0, end: u64::MAX, stripe_bytes, stripe_count: 1, pool: None, pattern };
    // The text does not contain the number of copies.
    StripeGeometry { components: vec![component], mirrors: if place.is_replicated { 0 } else { 1 } }
}
