//! The `ioctl` calls of file systems that lack an attribute.
//!
//! All their `unsafe` code is here. Numbers of type 'f' have another meaning on every file system: callers
//! check `f_type` first.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};

/// Largest argument: an `ioctl` number encodes the size in 14 bits.
const ARGUMENT_BYTES_MAX: usize = (1 << 14) - 1;

/// `_IOR(group, number, N bytes)`, also for calls that read their argument first despite the name.
pub(super) const fn read_opcode<const N: usize>(group: u8, number: u8) -> Opcode {
    assert!(N <= ARGUMENT_BYTES_MAX);
    opcode::read::<[u8; N]>(group, number)
}

/// `_IOWR(group, number, N bytes)`.
pub(super) const fn read_write_opcode<const N: usize>(group: u8, number: u8) -> Opcode {
    assert!(N <= ARGUMENT_BYTES_MAX);
    opcode::read_write::<[u8; N]>(group, number)
}

/// Passes `argument` to the kernel, which may change it. `OPCODE` comes from [`read_opcode`] or
/// [`read_write_opcode`] with the same `N`.
pub(super) fn call_ioctl<const OPCODE: Opcode, const N: usize>(
    file: BorrowedFd<'_>,
    argument: &mut [u8; N],
) -> Result<(), Errno> {
    const { assert!((OPCODE as usize >> 16) & ARGUMENT_BYTES_MAX == N) };
    // SAFETY: the opcode encodes N as the size of its argument (asserted above), so the kernel reads and
    // writes at most the N bytes behind the pointer, which are initialised and exclusively borrowed during
    // the call. Any bytes are a valid `[u8; N]`. The calls keep no pointer.
    unsafe { ioctl(file, Updater::<OPCODE, [u8; N]>::new(argument)) }
}

/// `BeegfsIoctl_MkFileWithStripeHints_Arg` (BeeGFS 8.3, beegfs_client.h).
#[repr(C)]
#[derive(Debug)]
struct BeegfsMakeFileArg {
    /// A C string.
    name: *const c_char,
    mode: u32,
    target_count: u32,
    chunk_bytes: u32,
}

/// `BEEGFS_IOC_MKFILE_STRIPEHINTS`, `_IOW('f', 27, 24 bytes)`.
const MAKE_FILE: Opcode = opcode::write::<BeegfsMakeFileArg>(b'f', 27);

/// Makes BeeGFS create `name` in `directory`, striped over `target_count` targets in chunks of `chunk_bytes`
/// (0 for the default of either).
pub(super) fn beegfs_make_file(
    directory: BorrowedFd<'_>,
    name: &CStr,
    mode: u32,
    target_count: u32,
    chunk_bytes: u32,
) -> Result<(), Errno> {
    let argument = BeegfsMakeFileArg { name: name.as_ptr(), mode, target_count, chunk_bytes };
    // SAFETY: the opcode's argument is this structure; the kernel copies it and the C string that it points
    // to, which lives until the call is over, and writes to neither.
    unsafe { ioctl(directory, Setter::<MAKE_FILE, BeegfsMakeFileArg>::new(argument)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_headers() {
        assert_eq!(read_opcode::<4>(b'f', 175), 0x8004_66AF);
        assert_eq!(read_opcode::<6>(b'f', 22), 0x8006_6616);
        assert_eq!(read_opcode::<12>(b'f', 25), 0x800C_6619);
        assert_eq!(read_opcode::<262>(b'f', 26), 0x8106_661A);
        assert_eq!(read_opcode::<536>(b'f', 26), 0x8218_661A);
        assert_eq!(read_write_opcode::<248>(0x97, 3), 0xC0F8_9703);
        #[cfg(target_pointer_width = "64")]
        assert_eq!(MAKE_FILE, 0x4018_661B);
    }
}
