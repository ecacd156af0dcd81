//! Work items of I/O threads, and sent objects by their origin.

use std::sync::Arc;

use carrack_model::{FileId, RangeSet, TargetId};
use carrack_plan::{Bundle, FileCursor, ObjectExtent};
use carrack_wire::message::SourceExistenceQuery;

use super::chunks::SourceChunkMembership;
use super::large_file::{LargeFileNextStep, OpenSourceLargeFile, UnopenedFile};
use crate::chunks::FILE_COSTS_BYTES;

/// A work item of an I/O thread.
pub(super) enum ReadWork {
    /// Read these small files and send them in one bundle.
    Bundle(BundleReadWork),
    /// Open this large file, announce it, and queue its cursors.
    Open(UnopenedFile),
    /// Send these ranges of a file again, which the sink's storage does not hold as written.
    Refill(Arc<OpenSourceLargeFile>, RangeSet),
    /// Read some of a file's objects, one after the other.
    Cursor(Arc<OpenSourceLargeFile>, FileCursor),
    /// Read this object (again).
    Object(ObjectWork),
    /// Take the next step for a file.
    Follow(Arc<OpenSourceLargeFile>, LargeFileNextStep),
    /// Report that the sink's storage damages this file, and take the next step.
    Damaged(Arc<OpenSourceLargeFile>, LargeFileNextStep),
    /// Report that the sink could not get this object undamaged.
    GiveUp(SentObject),
    /// Close a file that has ended.
    Close(Arc<OpenSourceLargeFile>),
    /// Answer the sink's existence query.
    Stand(SourceExistenceQuery),
}

/// A bundle to read.
pub(super) struct BundleReadWork {
    pub(super) bundle: Bundle,
    /// The number of earlier reads.
    pub(super) attempts: u32,
    /// True if it is the rest of another bundle, which has had room and was charged.
    pub(super) is_rest: bool,
    /// The chunk of the bundle, if the work comes in chunks.
    pub(super) chunk: Option<SourceChunkMembership>,
}

/// An object of a large file.
pub(super) struct ObjectWork {
    pub(super) file: Arc<OpenSourceLargeFile>,
    pub(super) extent: ObjectExtent,
    /// The number of earlier reads.
    pub(super) attempts: u32,
    /// Its place at the sink, if places are counted.
    pub(super) place: Option<ObjectFlowControlKey>,
}

/// The place of an object at the sink, as far as the source knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ObjectFlowControlKey {
    /// To this target of the sink.
    Target(TargetId),
    /// This file, whose layout the sink has not sent.
    File(FileId),
    /// Small files from this target of the source: they mostly go to one target at the sink too.
    Bundles(TargetId),
}

/// A sent object, with the data for its repetition.
pub(super) enum SentObject {
    Bundle(TargetId, BundleReadWork),
    Object(ObjectWork),
}

fn bundle_work_bytes(bundle: &Bundle) -> u64 {
    bundle.content_bytes + FILE_COSTS_BYTES * bundle.entry_count as u64
}

impl SentObject {
    /// Returns its bytes of work.
    pub(super) fn work_bytes(&self) -> u64 {
        match self {
            SentObject::Bundle(_, parcel) => bundle_work_bytes(&parcel.bundle),
            SentObject::Object(piece) => piece.extent.range.len,
        }
    }

    /// Returns its place at the sink, if places are counted.
    pub(super) fn flow_control_key(&self) -> Option<ObjectFlowControlKey> {
        match self {
            SentObject::Bundle(target, ..) => Some(ObjectFlowControlKey::Bundles(*target)),
            SentObject::Object(piece) => piece.place,
        }
    }
}

impl BundleReadWork {
    /// Splits off the entries from this index on.
    pub(super) fn split_off(&mut self, at: usize) -> BundleReadWork {
        assert!(at <= self.bundle.entry_count, "a bundle is split at one of its entries");
        BundleReadWork {
            bundle: self.bundle.split_off(at),
            attempts: self.attempts,
            is_rest: true,
            chunk: self.chunk.clone(),
        }
    }
}

impl ReadWork {
    /// Returns the number of entries for which it takes room, if it came from the scan and has not been
    /// touched yet.
    pub(super) fn fresh_entries(&self) -> usize {
        match self {
            ReadWork::Bundle(BundleReadWork { bundle, attempts: 0, is_rest: false, .. }) => {
                bundle.entry_count
            }
            ReadWork::Open(UnopenedFile { attempts: 0, .. }) => 1,
            _ => 0,
        }
    }

    /// Returns its bytes of work, including the opening and reading of small files.
    pub(super) fn work_bytes(&self) -> u64 {
        match self {
            ReadWork::Bundle(parcel) => bundle_work_bytes(&parcel.bundle),
            job => job.bytes(),
        }
    }

    /// Returns its approximate size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            ReadWork::Bundle(parcel) => parcel.bundle.content_bytes,
            ReadWork::Open(opening) => opening.bytes(),
            ReadWork::Cursor(_, cursor) => cursor.remaining_bytes(),
            ReadWork::Object(piece) => piece.extent.range.len,
            ReadWork::Follow(..)
            | ReadWork::GiveUp(_)
            | ReadWork::Refill(..)
            | ReadWork::Damaged(..)
            | ReadWork::Close(_)
            | ReadWork::Stand(_) => 0,
        }
    }
}
