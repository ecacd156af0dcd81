//! On which storage targets a file lies, and how a new file is spread over them.
//!
//! [`FileSystems`] knows the mounts, [`FileSystem`] asks each of them in its own way (a provider), and the parsers of
//! what they answer are pure functions. Reads attributes and asks with `ioctl`; never reads or writes a file's bytes.
//! Any thread may ask at any time. `docs/formats/layouts.md` has the formats.

mod beegfs;
mod ceph;
mod disk;
mod file_ref;
mod file_system;
mod file_systems;
mod geometry;
mod gluster;
mod gpfs;
mod ioctl;
mod lustre;
mod mount_table;
mod provider;
mod registry;

pub use disk::disks_of;
pub use file_system::{FileLayout, FileSystem, FileSystemKind};
pub(crate) use file_systems::kind_of;
pub use file_systems::{FileSystems, SetError};
pub use geometry::{ComponentGeometry, Geometry, Pattern, STRIPE_COUNT_ALL, Stripe, StripeOutcome};
pub(crate) use mount_table::{fstab_points, mount_points};

/// The formats that file systems answer in, taken apart: bytes in, values out, and nothing in them is trusted.
pub mod formats {
    pub use super::beegfs::{
        BeeGfsError, BeeGfsStripes, STRIPE_INFO_BYTES, STRIPE_TARGET_BYTES, STRIPE_TARGET_V2_BYTES,
        parse_stripe_info, parse_stripe_target, parse_stripe_target_v2,
    };
    pub use super::ceph::{CephError, CephLayout, parse_ceph_layout};
    pub use super::gluster::{BrickPlace, PathInfoError, parse_pathinfo};
    pub use super::gpfs::{GpfsBlocks, GpfsError, block_request, parse_blocks};
    pub use super::lustre::{LovComponent, LovError, LovFile, LovStripes, parse_lov};
}
