//! The part of the source's metadata that entries get, and the comparison with existing entries.
//!
//! It is the same for all entries of a session, and any thread may use it.

use std::borrow::Cow;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use carrack_model::{
    AgreedTransferSpec, ExtraMetadata, KeptMetadata, Metadata, MetadataFidelity, ModeChange, ModifyWindow,
};
use carrack_storage::{
    AttributeWriter, DestinationTimePrecision, DirectoryMetadataSpool, LinkSpool, MetadataToSet,
    RootDirectory, ScratchNames, users_umask,
};

use crate::settings::EndSettings;

/// Set-user-ID and set-group-ID (inode(7)): a program with these bits runs with its owner's rights, whichever
/// user starts it.
pub(super) const SPECIAL_MODES: u32 = 0o6000;

/// The kept part of the source's metadata, and its attribute writer.
pub(super) struct AttributePolicy {
    /// Sets owners and attributes.
    pub(super) keeper: Arc<AttributeWriter>,
    /// Kinds of entries and metadata that were requested beyond mode and time. A source that creates devices
    /// without that breaks the protocol.
    pub(super) kept: KeptMetadata,
    /// Special files that a file, link or directory may replace: in a sync those that are copied.
    pub(super) replaced: KeptMetadata,
    /// The precision of times in the destination's file systems.
    pub(super) times: DestinationTimePrecision,
    /// True if hard links to a file do not get the source's times.
    omits_times: bool,
    /// True if entries may get set-user-ID and set-group-ID bits.
    special_modes: bool,
    /// The user's changes to the modes of the source.
    mode_change: ModeChange,
}

impl AttributePolicy {
    /// Creates the policy of a session. `probes` names files by which the destination's precision of times is
    /// measured; `None` in a dry run.
    pub(super) fn new(
        spec: &AgreedTransferSpec,
        settings: &EndSettings,
        probes: Option<Arc<ScratchNames>>,
    ) -> AttributePolicy {
        // A partial transfer keeps none of the source's metadata.
        let fidelity = match spec.part {
            Some(_) => Cow::Owned(MetadataFidelity { omit_times: true, ..MetadataFidelity::default() }),
            None => Cow::Borrowed(&settings.fidelity),
        };
        let window = spec.sync.as_ref().map_or(ModifyWindow::Stored, |sync| sync.modify_window);
        AttributePolicy {
            keeper: Arc::new(AttributeWriter::new(settings.special_modes).with_fidelity(&fidelity)),
            kept: fidelity.kept,
            replaced: AttributePolicy::replaceable_special_files(spec, settings),
            times: DestinationTimePrecision::new(window, probes),
            omits_times: fidelity.omit_times,
            special_modes: settings.special_modes,
            mode_change: fidelity.mode_change.clone(),
        }
    }

    /// Special files that other entries may replace.
    pub(super) fn replaceable_special_files(
        spec: &AgreedTransferSpec,
        settings: &EndSettings,
    ) -> KeptMetadata {
        if spec.sync.is_some() { settings.fidelity.kept } else { KeptMetadata::default() }
    }

    /// Creates the spool of directories beneath `root`, which get their metadata at the end.
    pub(super) fn directory_spool(&self, root: Arc<RootDirectory>) -> DirectoryMetadataSpool {
        DirectoryMetadataSpool::new(root, Arc::clone(&self.keeper))
    }

    /// Creates the spool of hard links beneath `root`, which are made at the end.
    pub(super) fn link_spool(&self, root: Arc<RootDirectory>) -> LinkSpool {
        let spool = LinkSpool::new(root);
        if self.omits_times { spool.without_times() } else { spool }
    }

    /// Returns the metadata of the source that an entry other than a directory may get.
    pub(super) fn allowed(&self, metadata: Metadata) -> Metadata {
        let mode = self.mode_change.apply(metadata.mode, false, users_umask());
        let mode = if self.special_modes { mode } else { mode & !SPECIAL_MODES };
        Metadata { mode, ..metadata }
    }

    /// Returns the same for a directory, where set-ID bits give no program rights.
    pub(super) fn allowed_directory(&self, metadata: Metadata) -> Metadata {
        Metadata { mode: self.mode_change.apply(metadata.mode, true, users_umask()), ..metadata }
    }

    /// Returns the metadata that an entry gets, with owner and attributes.
    pub(super) fn metadata_to_set<'a>(
        &'a self,
        metadata: &'a Metadata,
        extras: Option<&'a ExtraMetadata>,
    ) -> MetadataToSet<'a> {
        let extras = extras.map(|extras| (extras, &*self.keeper));
        let losses = Some(self.keeper.losses());
        MetadataToSet { metadata, extras, losses, policy: self.keeper.policy(), lasting: 0 }
    }

    /// Returns true if an entry that an earlier session placed still has its mode, set-ID bits apart, which
    /// it may have lost.
    pub(super) fn has_mode(&self, found: &Metadata, entry: Metadata) -> bool {
        let wanted = self.allowed(entry);
        !self.keeper.policy().perms
            || (found.mode ^ wanted.mode) & !SPECIAL_MODES == 0
                && found.mode & SPECIAL_MODES & !wanted.mode == 0
    }

    /// Returns true if an entry of the directory `held` has the announced time, as the file system there
    /// stores it.
    pub(super) fn has_time(&self, found: &Metadata, entry: Metadata, held: BorrowedFd<'_>) -> bool {
        !self.keeper.policy().times || self.times.is_stored(entry.mtime, found.mtime, held)
    }
}
