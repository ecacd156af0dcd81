//! libhwloc, loaded on demand: discovers this machine or reads a description, and writes XML.
//!
//! Its structures are not used, so that one build serves all versions with this ABI (2.x). All `unsafe` code
//! of the topology is here.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_ulong, c_void};
use std::io;
use std::ptr;

use libloading::Library;

use super::error::TopologyError;

const LIBRARY: &str = "libhwloc.so.15";

/// `HWLOC_TYPE_FILTER_KEEP_IMPORTANT` of `enum hwloc_type_filter_e`: important PCI devices, and their OS
/// devices.
const KEEP_IMPORTANT: c_int = 3;

/// `HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST` of `enum hwloc_topology_components_flag_e`.
const BLACKLIST: c_ulong = 1;

/// hwloc components for GPUs and displays: slow, and useless for a transfer.
const UNWANTED: [&CStr; 6] = [c"opencl", c"cuda", c"nvml", c"rsmi", c"levelzero", c"gl"];

/// `hwloc_topology_t`.
type HwlocTopologyHandle = *mut c_void;

/// The functions in use, with the types of `hwloc.h` and `hwloc/export.h`.
struct HwlocFunctions {
    init: unsafe extern "C" fn(*mut HwlocTopologyHandle) -> c_int,
    set_components: unsafe extern "C" fn(HwlocTopologyHandle, c_ulong, *const c_char) -> c_int,
    set_io_types_filter: unsafe extern "C" fn(HwlocTopologyHandle, c_int) -> c_int,
    set_synthetic: unsafe extern "C" fn(HwlocTopologyHandle, *const c_char) -> c_int,
    load: unsafe extern "C" fn(HwlocTopologyHandle) -> c_int,
    export_xmlbuffer:
        unsafe extern "C" fn(HwlocTopologyHandle, *mut *mut c_char, *mut c_int, c_ulong) -> c_int,
    free_xmlbuffer: unsafe extern "C" fn(HwlocTopologyHandle, *mut c_char),
    destroy: unsafe extern "C" fn(HwlocTopologyHandle),
    _library: Library,
}

/// This machine as XML, with its devices.
pub(super) fn this_machine_xml() -> Result<String, TopologyError> {
    let hwloc = HwlocFunctions::load()?;
    let context = HwlocTopology::new(&hwloc)?;
    context.exclude_unwanted_components();
    context.keep_devices()?;
    context.xml()
}

/// A described machine as XML.
pub(super) fn synthetic_xml(description: &str) -> Result<String, TopologyError> {
    let text = CString::new(description).map_err(|_| bad_synthetic(description))?;
    let hwloc = HwlocFunctions::load()?;
    let context = HwlocTopology::new(&hwloc)?;
    context.set_synthetic_description(&text).map_err(|_| bad_synthetic(description))?;
    context.xml()
}

fn bad_synthetic(description: &str) -> TopologyError {
    TopologyError::BadSynthetic(description.to_owned())
}

/// Returns true if the library can be loaded.
pub(super) fn is_available() -> bool {
    HwlocFunctions::load().is_ok()
}

impl HwlocFunctions {
    fn load() -> Result<HwlocFunctions, TopologyError> {
        // SAFETY: libhwloc is the system's; its initialisers must only run once, which the loader ensures.
        let library = unsafe { Library::new(LIBRARY) }.map_err(missing)?;
        // SAFETY: the types are those of hwloc's headers for this ABI version (an enum is an int); the
        // pointers are called only while the library is loaded, which `_library` ensures.
        unsafe {
            Ok(HwlocFunctions {
                init: *library.get(b"hwloc_topology_init\0").map_err(missing)?,
                set_components: *library.get(b"hwloc_topology_set_components\0").map_err(missing)?,
                set_io_types_filter: *library
                    .get(b"hwloc_topology_set_io_types_filter\0")
                    .map_err(missing)?,
                set_synthetic: *library.get(b"hwloc_topology_set_synthetic\0").map_err(missing)?,
                load: *library.get(b"hwloc_topology_load\0").map_err(missing)?,
                export_xmlbuffer: *library.get(b"hwloc_topology_export_xmlbuffer\0").map_err(missing)?,
                free_xmlbuffer: *library.get(b"hwloc_free_xmlbuffer\0").map_err(missing)?,
                destroy: *library.get(b"hwloc_topology_destroy\0").map_err(missing)?,
                _library: library,
            })
        }
    }
}

fn missing(error: libloading::Error) -> TopologyError {
    TopologyError::NoLibrary(error.to_string())
}

/// A topology of hwloc.
struct HwlocTopology<'a> {
    hwloc: &'a HwlocFunctions,
    handle: HwlocTopologyHandle,
}

impl Drop for HwlocTopology<'_> {
    fn drop(&mut self) {
        // SAFETY: `init` gave the handle, and no code uses it afterwards.
        unsafe { (self.hwloc.destroy)(self.handle) }
    }
}

impl<'a> HwlocTopology<'a> {
    fn new(hwloc: &'a HwlocFunctions) -> Result<HwlocTopology<'a>, TopologyError> {
        let mut handle = ptr::null_mut();
        // SAFETY: the call writes one pointer to `handle`.
        let status = unsafe { (hwloc.init)(&mut handle) };
        checked(status, "hwloc_topology_init").map(|()| HwlocTopology { hwloc, handle })
    }

    /// An unknown component is an error, which does not matter.
    fn exclude_unwanted_components(&self) {
        for name in UNWANTED {
            // SAFETY: the handle is alive and not loaded yet; the name ends with a zero and is only read.
            let _ = unsafe { (self.hwloc.set_components)(self.handle, BLACKLIST, name.as_ptr()) };
        }
    }

    fn keep_devices(&self) -> Result<(), TopologyError> {
        // SAFETY: the handle is alive and not loaded yet; the number is one of the enum's.
        let status = unsafe { (self.hwloc.set_io_types_filter)(self.handle, KEEP_IMPORTANT) };
        checked(status, "hwloc_topology_set_io_types_filter")
    }

    fn set_synthetic_description(&self, text: &CStr) -> Result<(), TopologyError> {
        // SAFETY: the handle is alive and not loaded yet; the text ends with a zero and is only read.
        let status = unsafe { (self.hwloc.set_synthetic)(self.handle, text.as_ptr()) };
        checked(status, "hwloc_topology_set_synthetic")
    }

    fn xml(&self) -> Result<String, TopologyError> {
        // SAFETY: the handle is alive, and loaded once.
        checked(unsafe { (self.hwloc.load)(self.handle) }, "hwloc_topology_load")?;
        let (mut buffer, mut length) = (ptr::null_mut(), 0);
        // SAFETY: the handle is loaded; the call writes a pointer and a length to the variables.
        let status = unsafe { (self.hwloc.export_xmlbuffer)(self.handle, &mut buffer, &mut length, 0) };
        checked(status, "hwloc_topology_export_xmlbuffer")?;
        // SAFETY: the buffer is a string that ends with a zero (`hwloc/export.h`), and is freed after it was
        // copied.
        let text = unsafe { CStr::from_ptr(buffer) }.to_string_lossy().into_owned();
        // SAFETY: `export_xmlbuffer` gave the buffer, and no code uses it afterwards.
        unsafe { (self.hwloc.free_xmlbuffer)(self.handle, buffer) };
        Ok(text)
    }
}

fn checked(status: c_int, call: &'static str) -> Result<(), TopologyError> {
    match status {
        0 => Ok(()),
        _ => Err(TopologyError::Library { call, error: io::Error::last_os_error() }),
    }
}
