//! GlusterFS: every file, or every shard of a file, lies whole on one brick (or on a set of bricks that hold
//! copies or parts of it).
//!
//! Reads virtual attributes, and once the client's description of the volume. Sets no layout: the volume
//! places files by a hash of the name.

mod pathinfo;
mod volume;

use std::fs::File;
use std::io::Read;
use std::iter;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use carrack_model::TargetId;
use carrack_plan::{BlockMapLayout, SingleTarget};
use rustix::fs::{CWD, OFlags, statvfs};
use rustix::io::Errno;

pub use pathinfo::{BrickPlace, GlusterPathInfoError, parse_pathinfo};
pub use volume::{GlusterShardRanges, GlusterSubvolume, GlusterVolume, parse_volfile};

use super::file_ref::LayoutQueryFile;
use super::layout_shape::StripeRequest;
use super::provider::{FoundLayout, LayoutFileToCreate, LayoutProvider, MissingLayoutReason};
use super::target_registry::FileSystemTargets;
use super::{ComponentGeometry, StripeGeometry, StripeOutcome, StripePattern};

/// The attribute for root, and for all users (`libglusterfs/src/glusterfs/glusterfs.h`).
const PATHINFO: [&str; 2] = ["trusted.glusterfs.pathinfo", "glusterfs.pathinfo"];

/// Big-endian size of the file's shards; reported only to clients with access to the volume's internals.
const SHARD_BYTES: &str = "trusted.glusterfs.shard.block-size";

/// Smallest shard; smaller files are whole.
const SHARD_BYTES_MIN: u64 = 4 << 20;

/// The client's description of the volume, beneath its mount point. Every user may read it.
const VOLFILE: &str = ".meta/graphs/active/volfile";

/// Bound of that description: a volume of a thousand bricks has about 1 MB.
const VOLFILE_BYTES_MAX: u64 = 16 << 20;

/// The file's GFID as text.
const GFID: &str = "glusterfs.gfid.string";
const GFID_BYTES: usize = 36;

/// Targets that stand in for the bricks of shards, if they and their number are unknown.
const SHARD_BUCKETS: usize = 8;

/// Bound of the shards of a file that are looked up; those behind them are distributed over the same bricks.
const SHARDS_MAX: u64 = 65_536;

/// A mounted volume.
#[derive(Debug)]
pub(super) struct GlusterProvider {
    mount_point: Option<PathBuf>,
    volume: OnceLock<Option<MountedVolume>>,
}

/// The volume as its client describes it.
#[derive(Debug)]
struct MountedVolume {
    description: GlusterVolume,
    /// The `pathinfo` of its root.
    root: String,
    ranges: Option<GlusterShardRanges>,
}

impl MountedVolume {
    /// Reads the description; none if it can't be read, as at a mount of a directory of the volume.
    fn read(mount_point: &Path) -> Option<MountedVolume> {
        let mut text = String::new();
        let file = File::open(mount_point.join(VOLFILE)).ok()?;
        file.take(VOLFILE_BYTES_MAX).read_to_string(&mut text).ok()?;
        let description = parse_volfile(&text);
        let name = mount_point.as_os_str().as_bytes();
        let root = read_pathinfo(&LayoutQueryFile::Named { directory: CWD, name, follow: true }).ok()?;
        let root = String::from_utf8_lossy(&root).into_owned();
        // A brick that is nearly full sends its new shards to others.
        let has_room = statvfs(mount_point).is_ok_and(|found| {
            let min_free = u128::from(found.f_blocks) * u128::from(description.min_free_percent);
            u128::from(found.f_bavail) * 100 >= min_free
        });
        let ranges = GlusterShardRanges::of_root(&description, &root).filter(|_| has_room);
        Some(MountedVolume { description, root, ranges })
    }

    /// The target of each shard behind the first; none if they are unknown.
    fn shard_targets(
        &self,
        file: &LayoutQueryFile<'_>,
        shard_count: u64,
        pieces: &FileSystemTargets,
    ) -> Option<Vec<TargetId>> {
        let ranges = self.ranges.as_ref()?;
        let gfid = String::from_utf8(file.read_attribute(GFID).ok()?).ok()?;
        let gfid = gfid.trim_end_matches('\0');
        if gfid.len() != GFID_BYTES {
            return None;
        }
        let places = self.description.subvolumes.iter().map(|subvolume| {
            let (label, server) = volume::place_of(subvolume, &self.root)?;
            Some(pieces.target_on_server(&label, || server))
        });
        let places = places.collect::<Option<Vec<TargetId>>>()?;
        Some((1..shard_count).map(|shard| places[ranges.subvolume_of(gfid, shard)]).collect())
    }
}

impl GlusterProvider {
    pub(super) fn new(mount_point: Option<&Path>) -> GlusterProvider {
        GlusterProvider { mount_point: mount_point.map(Path::to_path_buf), volume: OnceLock::new() }
    }

    fn volume(&self) -> Option<&MountedVolume> {
        let read = || MountedVolume::read(self.mount_point.as_deref()?);
        self.volume.get_or_init(read).as_ref()
    }

    /// The layout of a file of `size` bytes in shards of `shard_bytes`, the first of which lies on `brick`,
    /// and the reason if the bricks of the others are unknown.
    fn sharded_layout(
        &self,
        file: &LayoutQueryFile<'_>,
        (size, shard_bytes): (u64, u64),
        brick: TargetId,
        pieces: &FileSystemTargets,
    ) -> (Option<BlockMapLayout>, Option<String>) {
        let shard_count = size.div_ceil(shard_bytes).min(SHARDS_MAX);
        let volume = self.volume();
        let (others, problem) = match volume
            .and_then(|volume| volume.shard_targets(file, shard_count, pieces))
        {
            Some(others) => (others, None),
            None => {
                let known = volume.map_or(0, |volume| volume.description.subvolumes.len());
                let count = if known > 0 { known } else { SHARD_BUCKETS };
                let buckets = (0..count).map(|number| pieces.invented_target(&format!("shards.{number}")));
                let problem = "shards: not known; GlusterFS does not tell the bricks of those after the \
                                   first, for which other targets stand in";
                (buckets.collect(), Some(problem.to_owned()))
            }
        };
        let blocks: Vec<TargetId> = iter::once(brick).chain(others).collect();
        (BlockMapLayout::new(&blocks, shard_bytes), problem)
    }
}

impl LayoutProvider for GlusterProvider {
    fn layout_of(
        &self,
        file: &LayoutQueryFile<'_>,
        size: u64,
        pieces: &FileSystemTargets,
    ) -> Result<FoundLayout, MissingLayoutReason> {
        let place = read_brick_place(file)?;
        let brick = pieces.target_on_server(&place.label(), || place.server());
        if size <= SHARD_BYTES_MIN {
            return Ok(whole_file(brick, &place));
        }
        let volume = self.volume();
        let of_volume = || volume.and_then(|volume| volume.description.shard_bytes);
        Ok(match shard_bytes(file).or_else(of_volume) {
            Some(bytes) if size > bytes => {
                let (layout, problem) = self.sharded_layout(file, (size, bytes), brick, pieces);
                let geometry = geometry(bytes, StripePattern::Objects, &place);
                FoundLayout { problem, ..FoundLayout::new(layout, geometry) }
            }
            None if volume.is_none() => {
                let problem = "shards: not known; the description of the volume can't be read";
                FoundLayout { problem: Some(problem.to_owned()), ..whole_file(brick, &place) }
            }
            _ => whole_file(brick, &place),
        })
    }

    fn create(
        &self,
        file: &LayoutFileToCreate<'_>,
        request: &StripeRequest<'_>,
        _pieces: &FileSystemTargets,
    ) -> Result<(OwnedFd, StripeOutcome), Errno> {
        if request.auto.is_some() {
            return Ok((file.create(OFlags::empty())?, StripeOutcome::Default));
        }
        file.create_with_default("GlusterFS chooses the bricks itself".to_owned())
    }
}

fn read_brick_place(file: &LayoutQueryFile<'_>) -> Result<BrickPlace, MissingLayoutReason> {
    let value = read_pathinfo(file)
        .map_err(|errno| MissingLayoutReason::problem("reading glusterfs.pathinfo", errno))?;
    parse_pathinfo(&value).map_err(|error| MissingLayoutReason::problem("reading glusterfs.pathinfo", error))
}

fn read_pathinfo(file: &LayoutQueryFile<'_>) -> Result<Vec<u8>, Errno> {
    file.read_attribute(PATHINFO[0]).or_else(|_| file.read_attribute(PATHINFO[1]))
}

fn shard_bytes(file: &LayoutQueryFile<'_>) -> Option<u64> {
    let value: [u8; 8] = file.read_attribute(SHARD_BYTES).ok()?.try_into().ok()?;
    Some(u64::from_be_bytes(value)).filter(|bytes| *bytes > 0)
}

fn whole_file(brick: TargetId, place: &BrickPlace) -> FoundLayout {
    FoundLayout::new(Some(SingleTarget { target: brick }), geometry(0, StripePattern::Whole, place))
}

fn geometry(stripe_bytes: u64, pattern: StripePattern, place: &BrickPlace) -> StripeGeometry {
    let component =
        ComponentGeometry { start: 0, end: u64::MAX, stripe_bytes, stripe_count: 1, pool: None, pattern };
    // The text does not contain the number of copies.
    StripeGeometry { components: vec![component], mirrors: if place.is_replicated { 0 } else { 1 } }
}
