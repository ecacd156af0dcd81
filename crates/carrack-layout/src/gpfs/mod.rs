//! GPFS (IBM Storage Scale): blocks are distributed over disks.
//!
//! Owns the library, which is loaded at the first query. No GPFS was available when this was written: the
//! replies are tested byte by byte, the calls are not. Stripes can't be set: the file system has one block
//! size for all files.

mod library;
mod reply;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use carrack_model::TargetId;
use carrack_plan::BlockMapLayout;
use rustix::fs::OFlags;
use rustix::io::Errno;

use library::GpfsLibrary;
pub use reply::{GpfsBlocks, GpfsReplyError, block_request, parse_blocks};

use super::file_ref::LayoutQueryFile;
use super::layout_shape::StripeRequest;
use super::provider::{FoundLayout, LayoutFileToCreate, LayoutProvider, MissingLayoutReason};
use super::target_registry::FileSystemTargets;
use super::{ComponentGeometry, StripeGeometry, StripeOutcome, StripePattern};

/// Bound of the blocks of a file that are queried; those behind them are distributed over the same disks.
const BLOCKS_MAX: u64 = 65_536;

/// A mounted GPFS.
#[derive(Debug, Default)]
pub(super) struct GpfsProvider {
    library: OnceLock<Result<GpfsLibrary, String>>,
}

impl LayoutProvider for GpfsProvider {
    fn layout_of(
        &self,
        file: &LayoutQueryFile<'_>,
        size: u64,
        pieces: &FileSystemTargets,
    ) -> Result<FoundLayout, MissingLayoutReason> {
        let library = self.library.get_or_init(GpfsLibrary::load);
        let library = library.as_ref().map_err(|problem| MissingLayoutReason::Problem(problem.clone()))?;
        if size == 0 {
            return Err(MissingLayoutReason::Default);
        }
        let held = file.descriptor().map_err(|errno| MissingLayoutReason::problem("opening", errno))?;
        let blocks = query_all_blocks(size, |start| query_blocks(library, held.as_fd(), start, size))?;
        let disks = block_targets(&blocks, size, pieces);
        let geometry = geometry(blocks.block_bytes, &disks);
        Ok(FoundLayout::new(BlockMapLayout::new(&disks, blocks.block_bytes), geometry))
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
        file.create_with_default("GPFS stripes every file over all disks of its pool".to_owned())
    }
}

fn query_blocks(
    library: &GpfsLibrary,
    file: BorrowedFd<'_>,
    start: u64,
    size: u64,
) -> Result<GpfsBlocks, MissingLayoutReason> {
    let mut argument = block_request(start, size - start);
    library
        .fcntl(file, &mut argument)
        .map_err(|error| MissingLayoutReason::problem("asking GPFS for a file's blocks", error))?;
    parse_blocks(&argument)
        .map_err(|error| MissingLayoutReason::problem("asking GPFS for a file's blocks", error))
}

/// Queries the blocks from 0 on, as long as the replies contain further blocks.
fn query_all_blocks(
    size: u64,
    ask: impl Fn(u64) -> Result<GpfsBlocks, MissingLayoutReason>,
) -> Result<GpfsBlocks, MissingLayoutReason> {
    let mut all = ask(0)?;
    let wanted = size.div_ceil(all.block_bytes).min(BLOCKS_MAX);
    while (all.blocks.len() as u64) < wanted {
        let Some(next) = all.blocks.last().and_then(|(offset, _)| offset.checked_add(all.block_bytes)) else {
            break;
        };
        let more = if next < size { ask(next)? } else { break };
        let is_further = more.blocks.first().is_some_and(|(offset, _)| *offset >= next);
        if !is_further || more.block_bytes != all.block_bytes {
            break;
        }
        all.blocks.extend(more.blocks);
    }
    Ok(all)
}

/// The target of each block; the file system's own target for holes and unreported blocks.
fn block_targets(blocks: &GpfsBlocks, size: u64, pieces: &FileSystemTargets) -> Vec<TargetId> {
    let count = size.div_ceil(blocks.block_bytes).clamp(1, BLOCKS_MAX);
    let mut places = vec![pieces.own_target(); count as usize];
    let mut targets = HashMap::new();
    for (offset, disk) in &blocks.blocks {
        let place = usize::try_from(offset / blocks.block_bytes).ok().and_then(|index| places.get_mut(index));
        if let (Some(place), Some(disk)) = (place, disk) {
            *place = *targets.entry(*disk).or_insert_with(|| pieces.target_named(&format!("disk {disk}")));
        }
    }
    places
}

fn geometry(block_bytes: u64, disks: &[TargetId]) -> StripeGeometry {
    let distinct: std::collections::HashSet<_> = disks.iter().collect();
    let component = ComponentGeometry {
        start: 0,
        end: u64::MAX,
        stripe_bytes: block_bytes,
        stripe_count: u32::try_from(distinct.len()).unwrap_or(u32::MAX),
        pool: None,
        pattern: StripePattern::Objects,
    };
    StripeGeometry { components: vec![component], mirrors: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TargetAttachmentKind;
    use crate::target::TargetLabelAndName;
    use crate::target_registry::{TargetKey, TargetRegistry};
    use std::sync::Arc;

    /// The replies of a file system with three disks, of two blocks each.
    fn two_blocks(start: u64) -> Result<GpfsBlocks, MissingLayoutReason> {
        let blocks = [start, start + 10].map(|offset| (offset, Some((offset / 10 % 3) as u32)));
        Ok(GpfsBlocks { block_bytes: 10, blocks: blocks.to_vec() })
    }

    #[test]
    fn blocks_are_asked_for_until_the_files_end() {
        let registry = Arc::new(TargetRegistry::default());
        let own = registry
            .get_or_insert(
                TargetKey::FileSystem(5),
                || TargetLabelAndName::new("/gpfs", None),
                TargetAttachmentKind::Network,
                1,
            )
            .unwrap();
        let pieces = FileSystemTargets::new(registry.clone(), 5, &own, None);
        let blocks = query_all_blocks(45, two_blocks).unwrap();
        assert_eq!(blocks.blocks.len(), 6);
        let places = block_targets(&blocks, 45, &pieces);
        let labels: Vec<_> = places.iter().map(|id| registry.get(*id).unwrap().label.to_string()).collect();
        assert_eq!(labels, ["disk 0", "disk 1", "disk 2", "disk 0", "disk 1"]);
        assert_eq!(geometry(10, &places).components[0].stripe_count, 3);
    }

    #[test]
    fn answers_that_go_nowhere_end() {
        for (size, blocks) in [(u64::MAX, vec![(0, Some(1))]), (100, vec![])] {
            let answered =
                query_all_blocks(size, |_| Ok(GpfsBlocks { block_bytes: 10, blocks: blocks.clone() }));
            assert_eq!(answered.unwrap().blocks, blocks);
        }
    }
}
