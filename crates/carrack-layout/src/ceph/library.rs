//! libcephfs, loaded on demand, which reports the OSD of an object.
//!
//! Owns the library and one connection to the cluster. All `unsafe` code of CephFS is here. The functions are
//! those of `cephfs/libcephfs.h` (Ceph 16 to 19); the library finds configuration and keys like every Ceph
//! client (`CEPH_CONF`, `CEPH_ARGS`, `/etc/ceph`).
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use libloading::Library;

use super::text;

/// Timeout of a cluster's answer in seconds; Ceph's own default is five minutes.
const MOUNT_TIMEOUT_S: &CStr = c"10";

/// Attempts to find the map of pools and OSDs, once: five seconds.
const MAP_TRIES: usize = 250;
const MAP_PAUSE: Duration = Duration::from_millis(20);

const LIBRARY: &str = "libcephfs.so.2";

/// `struct ceph_mount_info`.
type CephMountHandle = *mut c_void;

type CephCreateFunction = unsafe extern "C" fn(*mut CephMountHandle, *const c_char) -> c_int;
type CephReadConfigFunction = unsafe extern "C" fn(CephMountHandle, *const c_char) -> c_int;
type CephConfSetFunction = unsafe extern "C" fn(CephMountHandle, *const c_char, *const c_char) -> c_int;
type CephMountFunction = unsafe extern "C" fn(CephMountHandle, *const c_char) -> c_int;
type CephReleaseFunction = unsafe extern "C" fn(CephMountHandle) -> c_int;
type PoolReplicationFunction = unsafe extern "C" fn(CephMountHandle, c_int) -> c_int;
type CephOpenFunction = unsafe extern "C" fn(CephMountHandle, *const c_char, c_int, c_uint) -> c_int;
type CephCloseFunction = unsafe extern "C" fn(CephMountHandle, c_int) -> c_int;
type CephStatxFunction =
    unsafe extern "C" fn(CephMountHandle, c_int, *mut CephStatx, c_uint, c_uint) -> c_int;
type CephFilePoolFunction = unsafe extern "C" fn(CephMountHandle, c_int) -> c_int;
type CephOsdLocationFunction = unsafe extern "C" fn(CephMountHandle, c_int, *mut c_char, usize) -> c_int;
type CephExtentOsdsFunction =
    unsafe extern "C" fn(CephMountHandle, c_int, i64, *mut i64, *mut c_int, c_int) -> c_int;

/// `struct ceph_statx` (`cephfs/ceph_ll_client.h`): 160 bytes in Ceph 16, with room for fields of later
/// versions.
#[repr(C)]
struct CephStatx {
    before: [u64; 3],
    inode: u64,
    behind: [u64; 60],
}

/// `CEPH_STATX_INO`.
const STATX_INODE: c_uint = 0x100;

/// Bound of the OSDs of one object: enough for the widest erasure code.
const OSDS_MAX: usize = 64;

/// Bound of an OSD's location in the CRUSH map: about a dozen levels, each with a type and a name.
const LOCATION_BYTES_MAX: usize = 4_096;

/// The functions of the library, which live as long as it does.
#[derive(Debug)]
struct CephFunctions {
    leave: CephReleaseFunction,
    pool_replication: PoolReplicationFunction,
    open: CephOpenFunction,
    close: CephCloseFunction,
    statx: CephStatxFunction,
    file_pool: CephFilePoolFunction,
    extent_osds: CephExtentOsdsFunction,
    osd_location: CephOsdLocationFunction,
    _library: Library,
}

/// A connection to the cluster of this host's configuration.
#[derive(Debug)]
pub(super) struct CephClusterConnection {
    functions: CephFunctions,
    mount: NonNull<c_void>,
    /// Set when the map of pools and OSDs has arrived.
    has_map: AtomicBool,
}

// SAFETY: libcephfs may be called by any thread on one mount at once (every call takes the client's lock),
// and none of its state belongs to a thread.
unsafe impl Send for CephClusterConnection {}
// SAFETY: as above.
unsafe impl Sync for CephClusterConnection {}

/// A file that is open in the cluster while its objects are queried.
pub(super) struct CephFile<'a> {
    cluster: &'a CephClusterConnection,
    file: c_int,
}

impl CephClusterConnection {
    /// Connects to the cluster.
    ///
    /// # Errors
    /// The missing part, as a message.
    pub(super) fn connect() -> Result<CephClusterConnection, String> {
        // SAFETY: libcephfs belongs to the system; its initialisers only need to run once, which the loader
        // ensures.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|error| error.to_string())?;
        let create: CephCreateFunction = symbol(&library, c"ceph_create")?;
        let read_configuration: CephReadConfigFunction = symbol(&library, c"ceph_conf_read_file")?;
        let read_arguments: CephReadConfigFunction = symbol(&library, c"ceph_conf_parse_env")?;
        let set: CephConfSetFunction = symbol(&library, c"ceph_conf_set")?;
        let attach: CephMountFunction = symbol(&library, c"ceph_mount")?;
        let release: CephReleaseFunction = symbol(&library, c"ceph_release")?;
        let functions = CephFunctions::of(library)?;
        let mut mount: CephMountHandle = null_mut();
        // SAFETY: `ceph_create` writes a pointer to the given place; without an ID it uses the default one.
        check("ceph_create", unsafe { create(&mut mount, null()) })?;
        let mount = NonNull::new(mount).ok_or("ceph_create gave nothing")?;
        // SAFETY: the mount was just created and is not yet shared; null names mean the defaults, the others
        // are C strings.
        let attached = unsafe {
            check("reading Ceph's configuration", read_configuration(mount.as_ptr(), null()))
                .and_then(|()| check("reading CEPH_ARGS", read_arguments(mount.as_ptr(), null())))
                .and_then(|()| {
                    let key = c"client_mount_timeout".as_ptr();
                    check("ceph_conf_set", set(mount.as_ptr(), key, MOUNT_TIMEOUT_S.as_ptr()))
                })
                .and_then(|()| check("ceph_mount", attach(mount.as_ptr(), c"/".as_ptr())))
        };
        if let Err(problem) = attached {
            // SAFETY: the mount was created, is not attached, and has no other user.
            unsafe { release(mount.as_ptr()) };
            return Err(problem);
        }
        Ok(CephClusterConnection { functions, mount, has_map: AtomicBool::new(false) })
    }

    /// Opens the file `path` of the cluster's (default) file system, if it has this inode number.
    ///
    /// # Errors
    /// The reason, as a message.
    pub(super) fn open(&self, path: &[u8], inode: u64) -> Result<CephFile<'_>, String> {
        let path = CString::new(path).map_err(|error| error.to_string())?;
        // SAFETY: the mount is attached, the path a C string; 0 is `O_RDONLY`.
        let file = unsafe { (self.functions.open)(self.mount.as_ptr(), path.as_ptr(), 0, 0) };
        check("ceph_open", file)?;
        let held = CephFile { cluster: self, file };
        // The mount may be of another file system, or of a directory in it.
        if held.inode() != Some(inode) {
            return Err("Ceph's configuration leads to another file".to_owned());
        }
        match held.pool() {
            Some(pool) if self.has_pool(pool) => Ok(held),
            _ => Err("the file's pool is not known".to_owned()),
        }
    }

    /// The host of an OSD, by the CRUSH map; none if the map has no hosts.
    pub(super) fn osd_host(&self, osd: u32) -> Option<String> {
        let osd = c_int::try_from(osd).ok()?;
        let mut location = [0u8; LOCATION_BYTES_MAX];
        // SAFETY: the mount is attached; the call writes at most the given count of bytes.
        let len = unsafe {
            let osd_location = self.functions.osd_location;
            osd_location(self.mount.as_ptr(), osd, location.as_mut_ptr().cast(), LOCATION_BYTES_MAX)
        };
        text::host_in_location(location.get(..usize::try_from(len).ok()?)?)
    }

    /// Returns true if the map of pools and OSDs contains a pool. The map arrives some milliseconds after the
    /// connection. libcephfs aborts the process when it is queried for an object of a pool that its map
    /// lacks.
    fn has_pool(&self, pool: c_int) -> bool {
        for _ in 0..MAP_TRIES {
            // SAFETY: the mount is attached.
            let replication = unsafe { (self.functions.pool_replication)(self.mount.as_ptr(), pool) };
            if replication >= 0 {
                self.has_map.store(true, Relaxed);
                return true;
            }
            if self.has_map.load(Relaxed) {
                return false;
            }
            thread::sleep(MAP_PAUSE);
        }
        // Later callers don't wait again.
        self.has_map.store(true, Relaxed);
        false
    }
}

impl CephFile<'_> {
    /// The OSD that serves the object of the byte at `offset` at present; none if no OSD does.
    pub(super) fn osd_at(&self, offset: u64) -> Option<u32> {
        let offset = i64::try_from(offset).ok()?;
        let mut osds = [-1; OSDS_MAX];
        // SAFETY: the mount is attached, the file open and its pool known; the call writes at most the given
        // count of numbers, and no length to a null pointer.
        let count = unsafe {
            let extent_osds = self.cluster.functions.extent_osds;
            extent_osds(self.mount(), self.file, offset, null_mut(), osds.as_mut_ptr(), OSDS_MAX as c_int)
        };
        let count = usize::try_from(count).ok()?.min(OSDS_MAX);
        // An erasure-coded object may lack some of its OSDs.
        osds[..count].iter().find_map(|osd| u32::try_from(*osd).ok())
    }

    fn inode(&self) -> Option<u64> {
        let mut status = CephStatx { before: [0; 3], inode: 0, behind: [0; 60] };
        // SAFETY: the mount is attached and the file open; the structure has room for everything that the
        // call writes.
        let answer =
            unsafe { (self.cluster.functions.statx)(self.mount(), self.file, &mut status, STATX_INODE, 0) };
        (answer == 0).then_some(status.inode)
    }

    fn pool(&self) -> Option<c_int> {
        // SAFETY: the mount is attached and the file open.
        let pool = unsafe { (self.cluster.functions.file_pool)(self.mount(), self.file) };
        (pool >= 0).then_some(pool)
    }

    fn mount(&self) -> CephMountHandle {
        self.cluster.mount.as_ptr()
    }
}

impl Drop for CephFile<'_> {
    fn drop(&mut self) {
        // SAFETY: the mount is attached, and the file was opened and is closed once.
        unsafe { (self.cluster.functions.close)(self.mount(), self.file) };
    }
}

impl Drop for CephClusterConnection {
    fn drop(&mut self) {
        // SAFETY: the mount is attached, no file is open any more (files borrow this), and it is not used
        // afterwards.
        unsafe { (self.functions.leave)(self.mount.as_ptr()) };
    }
}

impl CephFunctions {
    fn of(library: Library) -> Result<CephFunctions, String> {
        Ok(CephFunctions {
            leave: symbol(&library, c"ceph_shutdown")?,
            pool_replication: symbol(&library, c"ceph_get_pool_replication")?,
            open: symbol(&library, c"ceph_open")?,
            close: symbol(&library, c"ceph_close")?,
            statx: symbol(&library, c"ceph_fstatx")?,
            file_pool: symbol(&library, c"ceph_get_file_pool")?,
            extent_osds: symbol(&library, c"ceph_get_file_extent_osds")?,
            osd_location: symbol(&library, c"ceph_get_osd_crush_location")?,
            _library: library,
        })
    }
}

fn symbol<T: Copy>(library: &Library, name: &CStr) -> Result<T, String> {
    // SAFETY: the types above are those of libcephfs.h; the pointers are called only while the library is
    // loaded.
    let found = unsafe { library.get::<T>(name.to_bytes_with_nul()) };
    found.map(|function| *function).map_err(|error| error.to_string())
}

fn check(what: &str, answer: c_int) -> Result<(), String> {
    match answer {
        0.. => Ok(()),
        negative => Err(format!("{what}: {}", std::io::Error::from_raw_os_error(-negative))),
    }
}
