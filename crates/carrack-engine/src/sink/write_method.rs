//! The sink's storage: its targets, and the method of writing files (L8).

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use carrack_layout::{
    FileSystems, MountedFileSystem, RequestedLayout, STRIPE_COUNT_ALL, StripeGeometry, StripeOutcome,
    StripePattern, TargetAttachmentKind,
};
use carrack_model::limits::SLOT_BYTES_DEFAULT;
use carrack_model::{SinkIoMethod, StripeChoice, TargetId};
use carrack_storage::{NewLargeFileSpec, PathBase, WriteIoMethod};
use carrack_wire::message::StripingMessage;

use crate::error::SessionError;
use crate::settings::{EndSettings, depth_of};
use crate::wire_layout::stripes_of_message;

/// The storage beneath a destination.
pub(crate) struct SinkStorageFacts {
    file_systems: FileSystems,
    own: Arc<MountedFileSystem>,
    io: SinkIoMethod,
    has_targets: bool,
    /// Disks and servers mounted beneath the destination.
    mounts: usize,
    /// The striping of new files by the destination's directory, if it has one.
    default_striping: Option<StripeGeometry>,
    /// True if the user knows the I/O method.
    io_told: AtomicBool,
    /// True if the user knows that files can't be striped as requested.
    refusal_told: AtomicBool,
}

impl SinkStorageFacts {
    /// Examines the directory that holds the destination or, if `is_destination`, is the destination.
    pub(crate) fn inspect(
        base: &PathBase,
        directory: BorrowedFd<'_>,
        is_destination: bool,
        settings: &EndSettings,
    ) -> Result<SinkStorageFacts, SessionError> {
        let file_systems = settings.file_systems(base)?;
        let looking = SessionError::local("looking at the destination's storage");
        let own = file_systems.file_system_of(directory).map_err(looking)?;
        let mounts = if is_destination { file_systems.mounts_beneath(directory) } else { 0 };
        // Objects that may lie on flash must wait in queues; memory never makes an object wait.
        let is_spilling =
            !settings.spill.sink.is_empty() && own.own_target().medium != TargetAttachmentKind::Memory;
        let has_targets = own.has_layouts() || mounts > 0 || settings.holds_back() || is_spilling;
        let default_striping = own.request_bytes().and_then(|_| own.default_geometry_of(directory));
        let (io_told, refusal_told) = Default::default();
        Ok(SinkStorageFacts {
            file_systems,
            own,
            io: settings.sink_io,
            has_targets,
            mounts,
            default_striping,
            io_told,
            refusal_told,
        })
    }

    /// Returns true if objects wait in the queues of several targets. Otherwise the threads that receive them
    /// write them.
    pub(crate) fn has_targets(&self) -> bool {
        self.has_targets
    }

    /// Returns true if everything beneath the destination lies on its own file system, so that no lookup is
    /// needed.
    pub(crate) fn is_one_file_system(&self) -> bool {
        !self.has_targets
    }

    pub(crate) fn file_systems(&self) -> &FileSystems {
        &self.file_systems
    }

    /// The file system of the destination itself.
    pub(crate) fn destination_file_system(&self) -> &MountedFileSystem {
        &self.own
    }

    /// The most I/O threads that the storage can use.
    pub(crate) fn depth(&self) -> u32 {
        depth_of(&self.own, self.mounts)
    }

    /// Returns the size of objects that suits the destination, if its files are striped so: a client's
    /// largest request, and no more than a stripe, so that an object lies on one target. 0 for any size.
    pub(crate) fn object_bytes(&self, stripe: &StripeChoice) -> u32 {
        let Some(request_bytes) = self.own.request_bytes() else { return 0 };
        let default = self.default_striping.as_ref().and_then(StripeGeometry::widest);
        let default_bytes = default.map_or(0, |default| default.stripe_bytes);
        let (count, stripe_bytes) = match stripe {
            // Objects end where stripes do at the source.
            StripeChoice::Preserve => (1, 0),
            StripeChoice::Default => (default.map_or(1, |default| default.stripe_count), default_bytes),
            StripeChoice::Auto => (STRIPE_COUNT_ALL, default_bytes),
            StripeChoice::Fixed { count, stripe_bytes: 0, .. } => (*count, default_bytes),
            StripeChoice::Fixed { count, stripe_bytes, .. } => (*count, *stripe_bytes),
        };
        let stripe_bytes = u32::try_from(stripe_bytes).unwrap_or(u32::MAX);
        if count == 1 || stripe_bytes == 0 {
            return request_bytes;
        }
        // Stripes below that are too many objects; those lie on several targets.
        request_bytes.min(1 << stripe_bytes.ilog2()).max(SLOT_BYTES_DEFAULT as u32)
    }

    /// The specification of a file on `file_system`.
    pub(crate) fn new_file_spec<'a>(
        &self,
        file_system: &'a MountedFileSystem,
        size: u64,
        stripe: &'a RequestedLayout,
    ) -> NewLargeFileSpec<'a> {
        assert!(size > 0, "an empty file is no large file");
        NewLargeFileSpec { size, file_system, stripe, io: self.io_method(file_system), part_offset: None }
    }

    /// Returns the I/O method. With several targets a write must take the storage's service time, by which
    /// targets are chosen. Local file systems take direct writes well; on others these may be many times
    /// slower than their clients' writes through the page cache.
    fn io_method(&self, file_system: &MountedFileSystem) -> WriteIoMethod {
        let medium = file_system.own_target().medium;
        match self.io {
            SinkIoMethod::Buffered => WriteIoMethod::Cached,
            SinkIoMethod::Direct => WriteIoMethod::Direct,
            SinkIoMethod::Writeback => WriteIoMethod::Writeback,
            SinkIoMethod::Auto if !self.has_targets || medium == TargetAttachmentKind::Memory => {
                WriteIoMethod::Cached
            }
            SinkIoMethod::Auto if medium == TargetAttachmentKind::Device => WriteIoMethod::Direct,
            SinkIoMethod::Auto => WriteIoMethod::Writeback,
        }
    }

    /// Returns a message to the user about the I/O method: once, and only if it was decided here.
    pub(crate) fn take_io_method_notice(&self, io: WriteIoMethod) -> Option<String> {
        let is_first = !self.io_told.swap(true, Relaxed);
        (is_first && io != WriteIoMethod::Cached).then(|| format!("large files are written {}", io.name()))
    }

    /// Returns a message to the user about a striping that is not possible: once.
    pub(crate) fn take_striping_notice(&self, why: &str) -> Option<String> {
        let is_first = !self.refusal_told.swap(true, Relaxed);
        is_first.then(|| {
            format!("files can't be striped as --stripe says, and get their directory's default: {why}")
        })
    }
}

/// Returns the striping of a file of `size` bytes; `at_source` is its striping at the source, and `slow`
/// returns the targets that other files should be spared.
pub(crate) fn stripe_for(
    choice: &StripeChoice,
    at_source: Option<&StripingMessage>,
    size: u64,
    slow: impl FnOnce() -> Vec<TargetId>,
) -> RequestedLayout {
    match (choice, at_source) {
        (StripeChoice::Default, _) | (StripeChoice::Preserve, None) => RequestedLayout::Default,
        (StripeChoice::Preserve, Some(stripes)) => RequestedLayout::Like(stripes_of_message(stripes)),
        (StripeChoice::Auto, _) => RequestedLayout::Auto { file_bytes: size, avoided: slow() },
        (StripeChoice::Fixed { count, stripe_bytes, pool }, _) => RequestedLayout::Fixed {
            count: *count,
            stripe_bytes: (*stripe_bytes > 0).then_some(*stripe_bytes),
            pool: (!pool.is_empty()).then(|| pool.clone()),
        },
    }
}

/// Returns the reasons why a layout that was requested by its geometry is not, or not quite, what a file or
/// directory has; `found` is its present layout, if it is known.
pub(crate) fn unkept_striping(
    wanted: &StripeGeometry,
    outcome: &StripeOutcome,
    found: Option<&StripeGeometry>,
) -> Vec<String> {
    let mut reasons = Vec::new();
    if let StripeOutcome::Refused(why) = outcome {
        reasons.push(why.clone());
    }
    if wanted.mirrors > 1 {
        reasons.push("one replica is written of several".to_owned());
    }
    if wanted.components.iter().any(|component| component.pattern == StripePattern::Extending) {
        reasons.push("components that extend themselves are written with fixed ends".to_owned());
    }
    let counts = (wanted.widest(), found.and_then(StripeGeometry::widest));
    if let ((Some(wanted), Some(found)), StripeOutcome::Set) = (counts, outcome)
        && found.stripe_count < wanted.stripe_count
        && wanted.stripe_count != STRIPE_COUNT_ALL
    {
        reasons.push("the destination has fewer targets than the file has stripes".to_owned());
    }
    reasons
}

#[cfg(test)]
mod tests {
    use carrack_layout::ComponentGeometry;

    use super::*;

    fn shape(stripe_count: u32, pattern: StripePattern, mirrors: u32) -> StripeGeometry {
        let (start, end, stripe_bytes) = (0, u64::MAX, 1 << 20);
        let component = ComponentGeometry { start, end, stripe_bytes, stripe_count, pool: None, pattern };
        StripeGeometry { components: vec![component], mirrors }
    }

    #[test]
    fn each_kind_of_loss_has_its_reason() {
        let (striped, extending) = (StripePattern::Striped, StripePattern::Extending);
        let refused = StripeOutcome::Refused("no pool".to_owned());
        for (wanted, outcome, found, reasons) in [
            (shape(4, striped, 1), &StripeOutcome::Set, shape(4, striped, 1), &[][..]),
            (shape(4, striped, 0), &refused, shape(1, striped, 1), &["no pool"]),
            (shape(4, striped, 2), &StripeOutcome::Set, shape(4, striped, 1), &["replica"]),
            (shape(1, extending, 1), &StripeOutcome::Set, shape(1, striped, 1), &["fixed ends"]),
            (shape(9, striped, 1), &StripeOutcome::Set, shape(4, striped, 1), &["fewer targets"]),
            (shape(STRIPE_COUNT_ALL, striped, 1), &StripeOutcome::Set, shape(4, striped, 1), &[]),
        ] {
            let found = unkept_striping(&wanted, outcome, Some(&found));
            assert_eq!(found.len(), reasons.len(), "{found:?}");
            assert!(found.iter().zip(reasons).all(|(found, reason)| found.contains(reason)), "{found:?}");
        }
    }
}
