//! System calls of this program's own, past the C library's functions that it replaces.

use std::sync::atomic::AtomicU32;

/// A system call with six arguments; a negative result is an error number.
///
/// # Safety
/// As the call itself says.
#[cfg(target_arch = "x86_64")]
pub unsafe fn raw_call(number: i64, [a, b, c, d, e, f]: [i64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the kernel's calling convention; the caller answers for the arguments.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// A system call with six arguments; a negative result is an error number.
///
/// # Safety
/// As the call itself says.
#[cfg(target_arch = "aarch64")]
pub unsafe fn raw_call(number: i64, [a, b, c, d, e, f]: [i64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the kernel's calling convention; the caller answers for the arguments.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number, inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}

/// The result as the C library gives it, with `errno` set.
pub fn with_errno(result: i64) -> i64 {
    if (-4095..0).contains(&result) {
        set_errno(-result as i32);
        return -1;
    }
    result
}

/// Sets this thread's `errno`.
pub fn set_errno(errno: i32) {
    // SAFETY: the C library gives each thread a place of its own.
    unsafe { *libc::__errno_location() = errno };
}

/// Sleeps until `word` changes from 0, and sets it to 0 again.
pub fn sleep_on(word: &AtomicU32) {
    use std::sync::atomic::Ordering::{AcqRel, Acquire};
    while word.compare_exchange(1, 0, AcqRel, Acquire).is_err() {
        let address = word as *const AtomicU32 as i64;
        let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as i64;
        // SAFETY: the word outlives the call.
        unsafe { raw_call(libc::SYS_futex, [address, operation, 0, 0, 0, 0]) };
    }
}

/// Wakes the thread that sleeps on `word`.
pub fn wake(word: &AtomicU32) {
    word.store(1, std::sync::atomic::Ordering::Release);
    let address = word as *const AtomicU32 as i64;
    let operation = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as i64;
    // SAFETY: the word outlives the call.
    unsafe { raw_call(libc::SYS_futex, [address, operation, 1, 0, 0, 0]) };
}
