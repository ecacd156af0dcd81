//! The context that all lanes of a source share. It is constant while an object passes through. Members that
//! change have their own locks.

use std::sync::Arc;

use carrack_model::{AgreedTransferSpec, Entry, KeptMetadata};
use carrack_plan::Layout;

use super::absence_proof::DeletionProof;
use super::chunks::SessionChunks;
use super::offers::SourceOfferTable;
use super::part_files::OpenPartFiles;
use super::shared_counts::SharedCounts;
use super::sizing::SourceSizing;
use super::source_roots::SourceTree;
use crate::event_delivery::TransferObserver;
use crate::placement::PlacedLanes;
use crate::settings::EndSettings;
use crate::sharing::SessionGrantClient;

/// A source beyond its lanes.
pub(super) struct SourceContext<'a> {
    pub(super) spec: AgreedTransferSpec,
    pub(super) settings: &'a EndSettings,
    pub(super) tree: SourceTree,
    pub(super) camp: &'a PlacedLanes,
    pub(super) sizing: SourceSizing,
    /// Sections that wait for the sink's reply, if the source offers its entries.
    pub(super) offers: Option<SourceOfferTable>,
    /// The proof for removals at the sink.
    pub(super) deletion: DeletionProof,
    /// The chunks, if the work does not come from a scan.
    pub(super) chunks: Option<SessionChunks>,
    /// The files that are open for parts of them.
    pub(super) part_files: OpenPartFiles,
    pub(super) counts: SharedCounts,
    /// Metadata beyond mode and time that both ends can keep.
    pub(super) kept: KeptMetadata,
    /// The client of the meta-scheduler, if targets are shared.
    pub(super) share: Option<Arc<SessionGrantClient>>,
    /// The observer, if the user started this end.
    pub(super) observer: Option<&'a dyn TransferObserver>,
}

impl SourceContext<'_> {
    /// Returns the size of the objects of a file: a power of two, at most a slot.
    pub(super) fn object_bytes(&self, layout: &dyn Layout) -> u64 {
        let slot_bytes = self.spec.slot_bytes;
        let wish = self.sizing.object_bytes.or_else(|| self.tree.target_object_bytes(layout));
        let bytes = wish.map_or(slot_bytes, |wish| wish.min(slot_bytes));
        assert!(bytes > 0, "an object has bytes");
        u64::from(bytes)
    }

    /// Returns the bytes of an entry to copy.
    pub(super) fn wanted_bytes(&self, entry: &Entry) -> u64 {
        match self.spec.part {
            Some(part) => part.range_in(entry.size()).map_or(0, |range| range.len),
            None => entry.size(),
        }
    }

    /// Returns the end of the copied range in a file of `size` bytes.
    pub(super) fn end_in(&self, size: u64) -> u64 {
        self.spec.part.map_or(size, |part| part.end_in(size))
    }

    /// Returns true if a file of `size` bytes lies outside the range to copy.
    pub(super) fn lacks_part(&self, size: u64) -> bool {
        self.spec.part.is_some_and(|part| part.range_in(size).is_none())
    }

    /// Returns true if the sink compares contents and needs digests.
    pub(super) fn compares_contents(&self) -> bool {
        self.spec.sync.as_ref().is_some_and(|sync| sync.by_contents)
    }
}
