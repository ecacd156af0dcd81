//! libgpfs, loaded on demand.
//!
//! Owns the library. All `unsafe` code of GPFS is here.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libloading::Library;

const LIBRARY: &str = "libgpfs.so";

/// `int gpfs_fcntl(gpfs_file_t fileDesc, void *fcntlArgP)` (`gpfs_fcntl.h`).
type GpfsFcntlFunction = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;

/// The only function in use.
#[derive(Debug)]
pub(super) struct GpfsLibrary {
    fcntl: GpfsFcntlFunction,
    _library: Library,
}

impl GpfsLibrary {
    /// Loads the library.
    ///
    /// # Errors
    /// The missing part, as a message.
    pub(super) fn load() -> Result<GpfsLibrary, String> {
        // SAFETY: libgpfs belongs to the system; its initialisers only need to run once, which the loader
        // ensures.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|error| error.to_string())?;
        // SAFETY: the type is that of gpfs_fcntl.h; the pointer is called only while the library is loaded.
        let fcntl = unsafe { library.get::<GpfsFcntlFunction>(b"gpfs_fcntl\0") }
            .map_err(|error| error.to_string())?;
        Ok(GpfsLibrary { fcntl: *fcntl, _library: library })
    }

    /// Queries a file. The reply replaces the argument, whose first number is its length.
    pub(super) fn fcntl(&self, file: BorrowedFd<'_>, argument: &mut [u8]) -> io::Result<()> {
        let announced = argument.first_chunk().map(|length| i32::from_ne_bytes(*length));
        assert_eq!(announced.map(i64::from), Some(argument.len() as i64), "an argument says how long it is");
        // SAFETY: the descriptor is open; the library reads and writes at most as many bytes as the argument
        // announces, which are exclusively borrowed during the call, and keeps no pointer.
        match unsafe { (self.fcntl)(file.as_raw_fd(), argument.as_mut_ptr().cast()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
