//! libcephfs, loaded when it is needed: which OSD has an object.
//!
//! Owns the library and one connection to the cluster. All `unsafe` code of CephFS is here. The functions are those of
//! `cephfs/libcephfs.h` (Ceph 16 to 19); configuration and keys are found as every Ceph client finds them (`CEPH_CONF`,
//! `CEPH_ARGS`, `/etc/ceph`).
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{NonNull, null, null_mut};

use libloading::Library;

/// How long a cluster may take to answer, in seconds; Ceph's own default is five minutes.
const MOUNT_TIMEOUT_S: &CStr = c"10";

const LIBRARY: &str = "libcephfs.so.2";

/// `struct ceph_mount_info`.
type Mount = *mut c_void;
/// `struct Inode`.
type Inode = *mut c_void;

type Create = unsafe extern "C" fn(*mut Mount, *const c_char) -> c_int;
type ReadConfiguration = unsafe extern "C" fn(Mount, *const c_char) -> c_int;
type Set = unsafe extern "C" fn(Mount, *const c_char, *const c_char) -> c_int;
type AttachRoot = unsafe extern "C" fn(Mount, *const c_char) -> c_int;
type Leave = unsafe extern "C" fn(Mount) -> c_int;
type PoolId = unsafe extern "C" fn(Mount, *const c_char) -> c_int;
/// `struct inodeno_t` holds one `uint64_t` and is passed as it.
type LookUp = unsafe extern "C" fn(Mount, u64, *mut Inode) -> c_int;
type StripeOsd = unsafe extern "C" fn(Mount, Inode, u64, *mut FileLayout) -> c_int;
type Put = unsafe extern "C" fn(Mount, Inode) -> c_int;

/// `struct ceph_file_layout` (`include/ceph_fs.h`): little-endian numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct FileLayout {
    stripe_unit: u32,
    stripe_count: u32,
    object_size: u32,
    cas_hash: u32,
    object_stripe_unit: u32,
    unused: u32,
    pool: u32,
}

/// The functions, which live as long as the library.
#[derive(Debug)]
struct Functions {
    leave: Leave,
    pool_id: PoolId,
    look_up: LookUp,
    stripe_osd: StripeOsd,
    put: Put,
    _library: Library,
}

/// A connection to the cluster of this host's configuration.
#[derive(Debug)]
pub(super) struct Cluster {
    functions: Functions,
    mount: NonNull<c_void>,
}

// SAFETY: libcephfs may be called by any thread on one mount at once (every call takes the client's lock), and nothing
// of it belongs to a thread.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

/// One file in the cluster, for as long as its objects are looked up.
pub(super) struct HeldInode<'a> {
    cluster: &'a Cluster,
    inode: NonNull<c_void>,
    layout: FileLayout,
}

impl Cluster {
    /// Connects.
    ///
    /// # Errors
    /// Says what is missing, for people.
    pub(super) fn connect() -> Result<Cluster, String> {
        // SAFETY: libcephfs is the system's; its initialisers have no other condition than that they run once, which
        // the loader sees to.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|error| error.to_string())?;
        let create: Create = symbol(&library, c"ceph_create")?;
        let read_configuration: ReadConfiguration = symbol(&library, c"ceph_conf_read_file")?;
        let read_arguments: ReadConfiguration = symbol(&library, c"ceph_conf_parse_env")?;
        let set: Set = symbol(&library, c"ceph_conf_set")?;
        let attach: AttachRoot = symbol(&library, c"ceph_mount")?;
        let release: Leave = symbol(&library, c"ceph_release")?;
        let functions = Functions::of(library)?;
        let mut mount: Mount = null_mut();
        // SAFETY: `ceph_create` writes a pointer to the place that it is given; without an id it uses the default one.
        check("ceph_create", unsafe { create(&mut mount, null()) })?;
        let mount = NonNull::new(mount).ok_or("ceph_create gave nothing")?;
        // SAFETY: the mount is the one just created, not yet shared; null names mean the defaults, the others are C
        // strings.
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
            // SAFETY: it was created, is not attached, and nobody else has it.
            unsafe { release(mount.as_ptr()) };
            return Err(problem);
        }
        Ok(Cluster { functions, mount })
    }

    /// The number of a data pool.
    pub(super) fn pool_id(&self, name: &str) -> Option<u32> {
        let name = CString::new(name).ok()?;
        // SAFETY: the mount is attached, and the name a C string.
        let id = unsafe { (self.functions.pool_id)(self.mount.as_ptr(), name.as_ptr()) };
        u32::try_from(id).ok()
    }

    /// The file with an inode number, whose objects have `object_bytes` bytes and lie in the pool.
    ///
    /// An object's place follows from the inode number, the object's number and the pool alone, so that it does not
    /// matter which of a cluster's file systems is asked.
    pub(super) fn inode(&self, number: u64, object_bytes: u32, pool: u32) -> Option<HeldInode<'_>> {
        let mut inode: Inode = null_mut();
        // SAFETY: the mount is attached; the call writes a pointer to the place that it is given.
        let answer = unsafe { (self.functions.look_up)(self.mount.as_ptr(), number, &mut inode) };
        let inode = NonNull::new(inode).filter(|_| answer == 0)?;
        let (bytes, one) = (object_bytes.to_le(), 1u32.to_le());
        let layout = FileLayout {
            // With one stripe unit for each object, blocks are objects.
            stripe_unit: bytes,
            stripe_count: one,
            object_size: bytes,
            cas_hash: 0,
            object_stripe_unit: 0,
            unused: 0,
            pool: pool.to_le(),
        };
        Some(HeldInode { cluster: self, inode, layout })
    }
}

impl HeldInode<'_> {
    /// The OSD that serves an object at present; nothing if none does.
    pub(super) fn osd_of(&self, object: u64) -> Option<u32> {
        let mut layout = self.layout;
        let cluster = self.cluster;
        // SAFETY: the mount is attached and the inode held; the layout has sizes other than 0, and is only read.
        let osd = unsafe {
            (cluster.functions.stripe_osd)(cluster.mount.as_ptr(), self.inode.as_ptr(), object, &mut layout)
        };
        u32::try_from(osd).ok()
    }
}

impl Drop for HeldInode<'_> {
    fn drop(&mut self) {
        // SAFETY: the reference was taken by the look-up and is given back once.
        unsafe { (self.cluster.functions.put)(self.cluster.mount.as_ptr(), self.inode.as_ptr()) };
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: the mount is attached, no inode is held any more (they borrow this), and nobody uses it after.
        unsafe { (self.functions.leave)(self.mount.as_ptr()) };
    }
}

impl Functions {
    fn of(library: Library) -> Result<Functions, String> {
        Ok(Functions {
            leave: symbol(&library, c"ceph_shutdown")?,
            pool_id: symbol(&library, c"ceph_get_pool_id")?,
            look_up: symbol(&library, c"ceph_ll_lookup_inode")?,
            stripe_osd: symbol(&library, c"ceph_ll_get_stripe_osd")?,
            put: symbol(&library, c"ceph_ll_put")?,
            _library: library,
        })
    }
}

fn symbol<T: Copy>(library: &Library, name: &CStr) -> Result<T, String> {
    // SAFETY: the types above are those of libcephfs.h; the pointers are called only while the library is loaded.
    let found = unsafe { library.get::<T>(name.to_bytes_with_nul()) };
    found.map(|function| *function).map_err(|error| error.to_string())
}

fn check(what: &str, answer: c_int) -> Result<(), String> {
    match answer {
        0.. => Ok(()),
        negative => Err(format!("{what}: {}", std::io::Error::from_raw_os_error(-negative))),
    }
}
