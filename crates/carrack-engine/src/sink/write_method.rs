//! The sink's storage: its targets, and the method of writing files (L8).

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use carrack_layout::{
    ComponentGeometry, FileSystems, MountedFileSystem, RequestedLayout, StripeGeometry, StripePattern,
    TargetAttachmentKind,
};
use carrack_model::{SinkIoMethod, StripeChoice};
use carrack_storage::{NewLargeFileSpec, PathBase, WriteIoMethod};
use carrack_wire::message::StripingMessage;

use crate::error::SessionError;
use crate::settings::{EndSettings, depth_of};

/// The storage beneath a destination.
pub(crate) struct SinkStorageFacts {
    file_systems: FileSystems,
    own: Arc<MountedFileSystem>,
    io: SinkIoMethod,
    has_targets: bool,
    /// Disks and servers mounted beneath the destination.
    mounts: usize,
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
        let (io_told, refusal_told) = Default::default();
        Ok(SinkStorageFacts {
            file_systems,
            own,
            io: settings.sink_io,
            has_targets,
            mounts,
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

/// Returns the striping of a file of `size` bytes; `at_source` is its striping at the source.
pub(crate) fn stripe_for(
    choice: &StripeChoice,
    at_source: Option<&StripingMessage>,
    size: u64,
) -> RequestedLayout {
    match (choice, at_source) {
        (StripeChoice::Default, _) | (StripeChoice::Preserve, None) => RequestedLayout::Default,
        (StripeChoice::Preserve, Some(stripes)) => RequestedLayout::Like(StripeGeometry {
            components: vec![ComponentGeometry {
                start: 0,
                end: u64::MAX,
                stripe_bytes: stripes.stripe_bytes,
                stripe_count: stripes.count,
                // A pool of one file system does not exist in another.
                pool: None,
                pattern: StripePattern::Striped,
            }],
            mirrors: 1,
        }),
        (StripeChoice::Auto, _) => RequestedLayout::Auto { file_bytes: size },
        (StripeChoice::Fixed { count, stripe_bytes, pool }, _) => RequestedLayout::Fixed {
            count: *count,
            stripe_bytes: (*stripe_bytes > 0).then_some(*stripe_bytes),
            pool: (!pool.is_empty()).then(|| pool.clone()),
        },
    }
}
