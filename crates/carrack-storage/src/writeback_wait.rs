//! Waits until the storage has received the data of the page cache.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// Starts the write-back of a range and waits for it (`sync_file_range(2)`). This measures the storage's
/// service time. It makes nothing durable, as the file's metadata is not written.
pub(crate) fn write_back(file: BorrowedFd<'_>, offset: u64, len: u64) -> Result<(), Errno> {
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let range = (i64::try_from(offset), i64::try_from(len));
    let (Ok(offset), Ok(len)) = range else { return Err(Errno::FBIG) };
    // SAFETY: the call reads no memory; the descriptor is open for as long as it is borrowed.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) };
    match result {
        0 => Ok(()),
        _ => match std::io::Error::last_os_error().raw_os_error().map(Errno::from_raw_os_error) {
            // Storage without this call writes the data back later.
            Some(Errno::NOSYS | Errno::INVAL | Errno::SPIPE) => Ok(()),
            Some(errno) => Err(errno),
            None => Err(Errno::IO),
        },
    }
}
