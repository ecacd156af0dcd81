//! The `ioctl` calls of file systems that keep no attributes.
//!
//! All `unsafe` code of theirs is here. Numbers of type 'f' mean something else on every file system: a caller has
//! looked at `f_type` before.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// An `ioctl` number names its argument's size in 14 bits.
const ARGUMENT_BYTES_MAX: usize = (1 << 14) - 1;

/// `_IOR(group, number, N bytes)`: also for calls which, against that name, read their argument first.
pub(super) const fn reads<const N: usize>(group: u8, number: u8) -> Opcode {
    assert!(N <= ARGUMENT_BYTES_MAX);
    opcode::read::<[u8; N]>(group, number)
}

/// `_IOWR(group, number, N bytes)`.
pub(super) const fn updates<const N: usize>(group: u8, number: u8) -> Opcode {
    assert!(N <= ARGUMENT_BYTES_MAX);
    opcode::read_write::<[u8; N]>(group, number)
}

/// Hands `argument` to the kernel, which may change it. `OPCODE` comes from [`reads`] or [`updates`] with the same `N`.
pub(super) fn exchange<const OPCODE: Opcode, const N: usize>(
    file: BorrowedFd<'_>,
    argument: &mut [u8; N],
) -> Result<(), Errno> {
    const { assert!((OPCODE as usize >> 16) & ARGUMENT_BYTES_MAX == N) };
    // SAFETY: the opcode names N as the size of its argument (asserted above), so the kernel reads and writes at most
    // the N bytes behind the pointer, which are initialised and ours alone for the time of the call. Any bytes are a
    // valid `[u8; N]`. The calls keep no pointer.
    unsafe { ioctl(file, Updater::<OPCODE, [u8; N]>::new(argument)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_headers() {
        assert_eq!(reads::<6>(b'f', 22), 0x8006_6616);
        assert_eq!(reads::<12>(b'f', 25), 0x800C_6619);
        assert_eq!(reads::<262>(b'f', 26), 0x8106_661A);
        assert_eq!(reads::<536>(b'f', 26), 0x8218_661A);
        assert_eq!(updates::<248>(0x97, 3), 0xC0F8_9703);
    }
}
