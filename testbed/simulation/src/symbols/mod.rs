//! The C library's functions that this program replaces. The linker takes them for the standard library and
//! all crates.
//!
//! Threads that are not simulated, and the simulation's own code, reach the kernel.

pub mod files;
pub mod machine;
pub mod sockets;
pub mod threads;

use crate::descriptors::FIRST;
use crate::raw_calls::{raw_call, set_errno, with_errno};
use crate::scheduler::{InsideGuard, caller};

/// A call that is simulated: the simulation's own code runs until this is dropped.
fn simulated() -> Option<InsideGuard> {
    caller().map(|_| InsideGuard::enter())
}

/// The same for a call with a descriptor.
fn simulated_fd(fd: i32) -> Option<InsideGuard> {
    if fd >= FIRST || fd == libc::AT_FDCWD { simulated() } else { None }
}

/// An answer as the C library gives it.
fn answer(result: Result<i64, i32>) -> i64 {
    if let Err(errno) = result {
        let world = crate::world::world();
        world.note("errno", errno.into(), 0);
    }
    match result {
        Ok(value) => value,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// The kernel's answer.
///
/// # Safety
/// As the call itself says.
unsafe fn kernel(number: i64, arguments: [i64; 6]) -> i64 {
    // SAFETY: the caller's arguments, unchanged.
    with_errno(unsafe { raw_call(number, arguments) })
}

/// A path's bytes.
///
/// # Safety
/// A string that ends with a zero, or null.
unsafe fn bytes<'a>(path: *const libc::c_char) -> &'a [u8] {
    if path.is_null() {
        return b"";
    }
    // SAFETY: the caller's string.
    unsafe { std::ffi::CStr::from_ptr(path) }.to_bytes()
}
