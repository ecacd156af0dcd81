//! CephFS: files are cut into objects, each of which lies on an OSD of its own.
//!
//! Owns a connection to the cluster, made at the first query that the kernel can't answer. If the OSDs are
//! unknown, the numbers of objects stand in for them, which still keeps objects apart.
//!
//! For the metadata server libcephfs is another client. It answers within some milliseconds, except for a
//! file that another client wrote a moment ago: the server may first make its own log durable, which takes up
//! to five seconds.

mod library;
mod text;

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use carrack_model::TargetId;
use carrack_plan::BlockMapLayout;
use rustix::fs::{FileType, Mode, OFlags, XattrFlags, fsetxattr, fstat, getxattr, openat};
use rustix::io::Errno;
use rustix::ioctl::Opcode;

use library::CephClusterConnection;
pub use text::{CephLayout, CephLayoutError, parse_ceph_layout};

use super::file_ref::{LayoutQueryFile, descriptor_path};
use super::ioctl::{call_ioctl, read_write_opcode};
use super::layout_shape::StripeRequest;
use super::mount_table::MountRecord;
use super::provider::{FoundLayout, LayoutFileToCreate, LayoutProvider, MissingLayoutReason};
use super::target_registry::FileSystemTargets;
use super::{ComponentGeometry, STRIPE_COUNT_ALL, StripeGeometry, StripeOutcome, StripePattern};

/// The attribute that contains the layout.
const LAYOUT: &str = "ceph.file.layout";

/// The attribute that contains the layout of new files in a directory, where it was set.
const DIRECTORY_LAYOUT: &str = "ceph.dir.layout";

/// Bound of the directories above one: the longest path (`PATH_MAX`) has no more.
const DIRECTORY_LEVELS_MAX: usize = 2_048;

/// Targets that stand in for unknown OSDs: about as many as a transfer has I/O threads.
const BUCKETS: u64 = 32;

/// `struct ceph_ioctl_dataloc` (Linux, fs/ceph/ioctl.h).
const DATALOC_BYTES: usize = 248;

/// Offset of `osd` in it, behind four numbers, the object's name and two more numbers.
const DATALOC_OSD_OFFSET: usize = 112;

/// Offset of `osd_addr` in it, a `sockaddr_storage`.
const DATALOC_ADDRESS_OFFSET: usize = 120;

/// `AF_INET` and `AF_INET6` (`linux/socket.h`).
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// `CEPH_IOC_GET_DATALOC`.
const GET_DATALOC: Opcode = read_write_opcode::<DATALOC_BYTES>(0x97, 3);

/// `CEPH_MIN_STRIPE_UNIT`: stripe units are multiples of it.
const STRIPE_UNIT: u64 = 64 << 10;

/// A mounted CephFS.
#[derive(Debug)]
pub(super) struct CephFsProvider {
    /// True for a mount of the kernel's own client.
    is_kernel: bool,
    mount: Option<MountRecord>,
    cluster: OnceLock<Result<CephClusterConnection, String>>,
}

/// The cluster's ID, which all its clients share; none for clients older than Ceph 15.
pub(super) fn cluster_id(directory: BorrowedFd<'_>) -> Option<String> {
    let mut id = [0; 64];
    let len = getxattr(descriptor_path(directory), "ceph.cluster_fsid", &mut id[..]).ok()?;
    String::from_utf8(id[..len].to_vec()).ok().filter(|id| !id.is_empty())
}

impl CephFsProvider {
    pub(super) fn new(is_kernel: bool, mount: Option<&MountRecord>) -> CephFsProvider {
        CephFsProvider { is_kernel, mount: mount.cloned(), cluster: OnceLock::new() }
    }

    /// The target of each block of the file, and the reason if OSDs are unknown.
    fn block_targets(
        &self,
        file: &LayoutQueryFile<'_>,
        layout: &CephLayout,
        size: u64,
        pieces: &FileSystemTargets,
    ) -> (Vec<TargetId>, Option<String>) {
        if self.is_kernel
            && let Ok(held) = file.descriptor()
            && let Some(places) = targets_by_osd(
                layout,
                size,
                pieces,
                |object| dataloc_osd(&kernel_dataloc(held.as_fd(), layout, object)?),
                |_, object| dataloc_host(&kernel_dataloc(held.as_fd(), layout, object)?),
            )
        {
            return (places, None);
        }
        match self.block_targets_by_library(file, layout, size, pieces) {
            Ok(places) => (places, None),
            Err(problem) => {
                let places = targets_by_object(layout, size, |object| {
                    Some(pieces.invented_target(&format!("bucket.{}", object % BUCKETS)))
                });
                let problem = format!("CephFS does not tell which OSD has an object: {problem}");
                (places.unwrap_or_default(), Some(problem))
            }
        }
    }

    fn block_targets_by_library(
        &self,
        file: &LayoutQueryFile<'_>,
        layout: &CephLayout,
        size: u64,
        pieces: &FileSystemTargets,
    ) -> Result<Vec<TargetId>, String> {
        let cluster =
            self.cluster.get_or_init(CephClusterConnection::connect).as_ref().map_err(String::clone)?;
        let held = file.path_descriptor().map_err(|errno| errno.to_string())?;
        let inode = fstat(held.as_fd()).map_err(|errno| errno.to_string())?.st_ino;
        let path = self.path_of(held.as_fd()).ok_or("the file's path is not known")?;
        let file = cluster.open(path.as_os_str().as_bytes(), inode)?;
        let osd_of = |object| file.osd_at(layout.first_byte_of(object)?);
        targets_by_osd(layout, size, pieces, osd_of, |osd, _| cluster.osd_host(osd))
            .ok_or("no OSD has it".to_owned())
    }

    /// The path within the mounted file system.
    fn path_of(&self, file: BorrowedFd<'_>) -> Option<PathBuf> {
        let mount = self.mount.as_ref()?;
        let path = fs::read_link(descriptor_path(file)).ok()?;
        Some(mount.root.join(path.strip_prefix(&mount.point).ok()?))
    }
}

impl LayoutProvider for CephFsProvider {
    fn layout_of(
        &self,
        file: &LayoutQueryFile<'_>,
        size: u64,
        pieces: &FileSystemTargets,
    ) -> Result<FoundLayout, MissingLayoutReason> {
        let value = match file.read_attribute(LAYOUT) {
            Ok(value) => value,
            Err(Errno::NODATA) if size == 0 => return layout_of_new_files(file),
            Err(errno) => return Err(MissingLayoutReason::problem("reading ceph.file.layout", errno)),
        };
        let layout = parse_ceph_layout(&value)
            .map_err(|error| MissingLayoutReason::problem("reading ceph.file.layout", error))?;
        let (places, problem) = self.block_targets(file, &layout, size, pieces);
        let mapped = BlockMapLayout::new(&places, layout.block_bytes());
        Ok(FoundLayout { problem, ..FoundLayout::new(mapped, geometry(&layout)) })
    }

    fn create(
        &self,
        file: &LayoutFileToCreate<'_>,
        request: &StripeRequest<'_>,
        _pieces: &FileSystemTargets,
    ) -> Result<(OwnedFd, StripeOutcome), Errno> {
        file.create_and_set(OFlags::empty(), |created| set_striping(created, request))
    }

    fn open_shared(
        &self,
        file: &LayoutFileToCreate<'_>,
        request: &StripeRequest<'_>,
        _pieces: &FileSystemTargets,
    ) -> Result<OwnedFd, Errno> {
        file.open_and_set(OFlags::empty(), |opened| set_striping(opened, request))
    }
}

/// The layout of new files in a directory, which it has of its own or inherits from the nearest directory
/// above that has one. The file system's own default is unknown.
fn layout_of_new_files(directory: &LayoutQueryFile<'_>) -> Result<FoundLayout, MissingLayoutReason> {
    let unknown = |errno| MissingLayoutReason::problem("reading ceph.dir.layout", errno);
    let first = directory.path_descriptor().map_err(unknown)?;
    let start = fstat(first.as_fd()).map_err(unknown)?;
    if !FileType::from_raw_mode(start.st_mode).is_dir() {
        return Err(unknown(Errno::NODATA));
    }
    let (mut inode, mut above): (u64, Option<OwnedFd>) = (start.st_ino, None);
    for _ in 0..DIRECTORY_LEVELS_MAX {
        let held = above.as_ref().map_or(first.as_fd(), OwnedFd::as_fd);
        match LayoutQueryFile::Held(held).read_attribute(DIRECTORY_LAYOUT) {
            Ok(value) => {
                let layout = parse_ceph_layout(&value)
                    .map_err(|error| MissingLayoutReason::problem("reading ceph.dir.layout", error))?;
                return Ok(FoundLayout::new(None::<BlockMapLayout>, geometry(&layout)));
            }
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(unknown(errno)),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let next = openat(held, "..", flags, Mode::empty()).map_err(unknown)?;
        let stat = fstat(&next).map_err(unknown)?;
        if stat.st_dev != start.st_dev || stat.st_ino == inode {
            break;
        }
        (inode, above) = (stat.st_ino, Some(next));
    }
    Err(MissingLayoutReason::Default)
}

fn geometry(layout: &CephLayout) -> StripeGeometry {
    let component = ComponentGeometry {
        start: 0,
        end: u64::MAX,
        stripe_bytes: layout.block_bytes(),
        stripe_count: u32::try_from(layout.stripe_count.get()).unwrap_or(STRIPE_COUNT_ALL),
        pool: layout.pool.clone(),
        pattern: StripePattern::Objects,
    };
    StripeGeometry { components: vec![component], mirrors: 1 }
}

/// The reply of the kernel's client about the OSD that it would contact for an object.
fn kernel_dataloc(file: BorrowedFd<'_>, layout: &CephLayout, object: u64) -> Option<[u8; DATALOC_BYTES]> {
    let mut argument = [0; DATALOC_BYTES];
    argument[..8].copy_from_slice(&layout.first_byte_of(object)?.to_ne_bytes());
    call_ioctl::<GET_DATALOC, DATALOC_BYTES>(file, &mut argument).ok()?;
    Some(argument)
}

/// The OSD in the reply; none if no OSD has the object (-1).
fn dataloc_osd(argument: &[u8; DATALOC_BYTES]) -> Option<u32> {
    let osd = argument[DATALOC_OSD_OFFSET..].first_chunk()?;
    u32::try_from(i64::from_ne_bytes(*osd)).ok()
}

/// The address of the OSD's host in the reply, without the port.
fn dataloc_host(argument: &[u8; DATALOC_BYTES]) -> Option<String> {
    let address = &argument[DATALOC_ADDRESS_OFFSET..];
    // `sockaddr_in` has the port before the address, `sockaddr_in6` the flow as well.
    let host = match u16::from_ne_bytes(*address.first_chunk()?) {
        AF_INET => IpAddr::from(*address[4..].first_chunk::<4>()?),
        AF_INET6 => IpAddr::from(*address[8..].first_chunk::<16>()?),
        _ => return None,
    };
    Some(host.to_string())
}

/// One target for each OSD; none if any object has no OSD. `server_of` names the host of an OSD that has this
/// object.
fn targets_by_osd(
    layout: &CephLayout,
    size: u64,
    pieces: &FileSystemTargets,
    osd_of: impl Fn(u64) -> Option<u32>,
    server_of: impl Fn(u32, u64) -> Option<String>,
) -> Option<Vec<TargetId>> {
    let mut targets = HashMap::new();
    targets_by_object(layout, size, |object| {
        let osd = osd_of(object)?;
        let target = || pieces.target_on_server(&format!("osd.{osd}"), || server_of(osd, object));
        Some(*targets.entry(osd).or_insert_with(target))
    })
}

/// Queries the target of each object once, and assigns it to the object's blocks.
fn targets_by_object(
    layout: &CephLayout,
    size: u64,
    mut target_of: impl FnMut(u64) -> Option<TargetId>,
) -> Option<Vec<TargetId>> {
    let mut known: HashMap<u64, TargetId> = HashMap::new();
    let mut targets = Vec::new();
    for object in layout.objects(size) {
        let target = match known.get(&object) {
            Some(target) => *target,
            None => target_of(object)?,
        };
        known.insert(object, target);
        targets.push(target);
    }
    Some(targets)
}

/// Sets the layout of an empty file, from its default and the request.
fn set_striping(file: BorrowedFd<'_>, request: &StripeRequest<'_>) -> Result<StripeOutcome, String> {
    if request.auto.is_some() {
        // Every file is distributed over as many OSDs as it has objects.
        return Ok(StripeOutcome::Default);
    }
    let value = LayoutQueryFile::Open(file)
        .read_attribute(LAYOUT)
        .map_err(|errno| format!("reading {LAYOUT}: {errno}"))?;
    let default = parse_ceph_layout(&value).map_err(|error| format!("reading {LAYOUT}: {error}"))?;
    let text = requested_layout_text(&default, request);
    let Some(pool) = request.pool else {
        set_layout(file, &text).map_err(|errno| format!("setting {LAYOUT}: {errno}"))?;
        return Ok(StripeOutcome::Set);
    };
    match set_layout(file, &format!("{text} pool={pool}")) {
        Ok(()) => Ok(StripeOutcome::Set),
        Err(errno) => match set_layout(file, &text) {
            Ok(()) => Ok(StripeOutcome::Refused(format!("striped, but not in the pool {pool}: {errno}"))),
            Err(errno) => Err(format!("setting {LAYOUT}: {errno}")),
        },
    }
}

fn set_layout(file: BorrowedFd<'_>, text: &str) -> Result<(), Errno> {
    fsetxattr(file, LAYOUT, text.as_bytes(), XattrFlags::empty())
}

/// The text of the requested layout. Objects keep their size as far as whole stripe units fit.
fn requested_layout_text(default: &CephLayout, request: &StripeRequest<'_>) -> String {
    let unit = request.stripe_bytes.map_or(default.stripe_unit.get(), |bytes| {
        bytes.clamp(STRIPE_UNIT, 1 << 31).next_multiple_of(STRIPE_UNIT)
    });
    // Objects lie on all OSDs in any case; no number of objects in a round stands for all OSDs.
    let requested_count = request.count.filter(|count| *count != STRIPE_COUNT_ALL);
    let count = requested_count.map_or(default.stripe_count.get(), u64::from);
    let object_bytes = default.object_bytes.get().next_multiple_of(unit);
    format!("stripe_unit={unit} stripe_count={count} object_size={object_bytes}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TargetAttachmentKind;
    use crate::target::TargetLabelAndName;
    use crate::target_registry::{TargetKey, TargetRegistry};
    use std::sync::Arc;

    fn pieces() -> (Arc<TargetRegistry>, FileSystemTargets) {
        let registry = Arc::new(TargetRegistry::default());
        let own = registry
            .get_or_insert(
                TargetKey::FileSystem(5),
                || TargetLabelAndName::new("/ceph", None),
                TargetAttachmentKind::Network,
                1,
            )
            .unwrap();
        (registry.clone(), FileSystemTargets::new(registry, 5, &own, None))
    }

    fn layout(text: &str) -> CephLayout {
        parse_ceph_layout(text.as_bytes()).unwrap()
    }

    #[test]
    fn an_object_is_asked_for_once_and_its_units_lie_together() {
        let (registry, pieces) = pieces();
        let layout = layout("stripe_unit=65536 stripe_count=2 object_size=131072 pool=cdata");
        let asked = std::cell::Cell::new(0);
        let osd_of = |object| {
            asked.set(asked.get() + 1);
            Some((object % 3) as u32)
        };
        let host_of = |osd, _| (osd < 2).then(|| "node1".to_owned());
        let places = targets_by_osd(&layout, 6 << 16, &pieces, osd_of, host_of).unwrap();
        let labels: Vec<_> = places.iter().map(|id| registry.get(*id).unwrap().label.to_string()).collect();
        assert_eq!(labels, ["osd.0", "osd.1", "osd.0", "osd.1", "osd.2", "osd.0"]);
        assert_eq!(asked.get(), 4);
        assert_eq!(targets_by_osd(&layout, 1, &pieces, |_| None, |_, _| None), None);
        let servers = registry.all().into_iter().filter_map(|target| target.server);
        assert_eq!(servers.map(|server| server.name.to_string()).collect::<Vec<_>>(), ["node1"; 2]);
    }

    #[test]
    fn the_kernels_answer_names_the_osd() {
        let mut answer = [0xEE; DATALOC_BYTES];
        answer[DATALOC_OSD_OFFSET..][..8].copy_from_slice(&7i64.to_ne_bytes());
        assert_eq!(dataloc_osd(&answer), Some(7));
        answer[DATALOC_OSD_OFFSET..][..8].copy_from_slice(&(-1i64).to_ne_bytes());
        assert_eq!((dataloc_osd(&answer), dataloc_host(&answer)), (None, None));
        answer[120..122].copy_from_slice(&2u16.to_ne_bytes());
        answer[124..128].copy_from_slice(&[10, 0, 0, 7]);
        assert_eq!(dataloc_host(&answer).as_deref(), Some("10.0.0.7"));
        answer[120..122].copy_from_slice(&10u16.to_ne_bytes());
        answer[128..144].copy_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(dataloc_host(&answer).as_deref(), Some("fd00::1"));
    }

    #[test]
    fn a_wish_keeps_what_it_does_not_name() {
        let default = layout("stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=cdata");
        for (count, stripe_bytes, text) in [
            (Some(3), Some(1 << 20), "stripe_unit=1048576 stripe_count=3 object_size=4194304"),
            (Some(3), None, "stripe_unit=4194304 stripe_count=3 object_size=4194304"),
            (None, Some(3 << 20), "stripe_unit=3145728 stripe_count=1 object_size=6291456"),
            (Some(STRIPE_COUNT_ALL), Some(1), "stripe_unit=65536 stripe_count=1 object_size=4194304"),
        ] {
            let request = StripeRequest { count, stripe_bytes, pool: None, components: &[], auto: None };
            assert_eq!(requested_layout_text(&default, &request), text);
            assert!(parse_ceph_layout(text.as_bytes()).is_ok());
        }
    }
}
