//! The storage targets of a file, and the distribution of new files over them.
//!
//! [`FileSystems`] knows the mounts, and [`MountedFileSystem`] queries each of them through a provider. The
//! parsers of their replies are pure functions. Reads attributes and calls `ioctl`; never reads or writes a
//! file's data. Any thread may call it. `docs/formats/layouts.md` has the formats.

mod beegfs;
mod ceph;
mod disk;
mod examined_file_systems;
mod file_ref;
mod gluster;
mod gpfs;
mod ioctl;
mod layout_shape;
mod lustre;
mod mount_table;
mod mounted_file_system;
mod provider;
mod target;
mod target_registry;

pub use disk::disks_of;
pub use examined_file_systems::{DeclaredMountsError, FileSystems, kind_of, split_declared_mount};
pub use layout_shape::{
    ComponentGeometry, RequestedLayout, STRIPE_COUNT_ALL, StripeGeometry, StripeOutcome, StripePattern,
};
pub use mount_table::{fstab_points, mount_points};
pub use mounted_file_system::{FileLayout, FileSystemKind, MountedFileSystem};
pub use provider::LayoutFileToCreate;
pub use target::{LUSTRE_MAGIC, StorageServer, StorageTarget, TargetAttachmentKind, UNKNOWN_MAGIC, magic_of};

/// Parsers of the replies of file systems: bytes in, values out, with no trust in the contents.
pub mod formats {
    pub use super::beegfs::{
        BeeGfsError, BeeGfsStripeTarget, BeeGfsStripes, STRIPE_INFO_BYTES, STRIPE_TARGET_BYTES,
        STRIPE_TARGET_V2_BYTES, parse_stripe_info, parse_stripe_target, parse_stripe_target_v2,
    };
    pub use super::ceph::{CephLayout, CephLayoutError, parse_ceph_layout};
    pub use super::gluster::{
        BrickPlace, GlusterPathInfoError, GlusterShardRanges, GlusterSubvolume, GlusterVolume,
        parse_pathinfo, parse_volfile,
    };
    pub use super::gpfs::{GpfsBlocks, GpfsReplyError, block_request, parse_blocks};
    pub use super::lustre::{LovComponent, LovError, LovFile, LovStripes, parse_lov};
}
