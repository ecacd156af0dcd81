//! The machine: processors, memory, chance.

use libc::{c_int, c_void, size_t, ssize_t};

use super::{kernel, simulated};
use crate::raw_calls::set_errno;
use crate::world::world;

/// Memory that the machine seems to have.
const MEMORY_BYTES: u64 = 16 << 30;

/// Mappings of this size and less are not counted: threads have their stacks for signals there.
const STACK_BYTES_MAX: usize = 128 << 10;

/// As in the C library, with the seed's numbers.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(to: *mut c_void, count: size_t, flags: libc::c_uint) -> ssize_t {
    let Some(_inside) = simulated() else {
        // The tables of this program itself are to be the same for the same seed, too.
        let _ = flags;
        // SAFETY: the caller's room.
        unsafe { std::ptr::write_bytes(to.cast::<u8>(), 0x5a, count) };
        return count as ssize_t;
    };
    // SAFETY: the caller's room.
    let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), count) };
    for part in to.chunks_mut(8) {
        let number = world().random.next().to_ne_bytes();
        part.copy_from_slice(&number[..part.len()]);
    }
    count as ssize_t
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_getaffinity(process: libc::pid_t, size: size_t, to: *mut c_void) -> c_int {
    let Some(_inside) = simulated() else {
        // SAFETY: the caller's arguments, unchanged.
        let got =
            unsafe { kernel(libc::SYS_sched_getaffinity, [process.into(), size as i64, to as i64, 0, 0, 0]) };
        return if got < 0 { -1 } else { 0 };
    };
    let cpus = world().cpus;
    // SAFETY: the caller's room.
    let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), size) };
    to.fill(0);
    to[0] = ((1u32 << cpus) - 1) as u8;
    0
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_setaffinity(process: libc::pid_t, size: size_t, set: *const c_void) -> c_int {
    match simulated() {
        Some(_inside) => 0,
        None => {
            let arguments = [process.into(), size as i64, set as i64, 0, 0, 0];
            // SAFETY: the caller's arguments, unchanged.
            unsafe { kernel(libc::SYS_sched_setaffinity, arguments) as c_int }
        }
    }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_getcpu() -> c_int {
    0
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysinfo(to: *mut libc::sysinfo) -> c_int {
    // SAFETY: the caller's room; all fields are numbers.
    unsafe {
        *to = std::mem::zeroed();
        (*to).mem_unit = 1;
        ((*to).totalram, (*to).freeram) = (MEMORY_BYTES, MEMORY_BYTES / 2);
    }
    0
}

macro_rules! limits {
    ($($name:ident),*) => {
        $(
            /// As in the C library.
            ///
            /// # Safety
            /// As in the C library.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(resource: libc::c_uint, to: *mut libc::rlimit) -> c_int {
                let Some(_inside) = simulated() else {
                    let arguments = [0, resource.into(), 0, to as i64, 0, 0];
                    // SAFETY: the caller's arguments, unchanged.
                    return unsafe { kernel(libc::SYS_prlimit64, arguments) as c_int };
                };
                let most = match resource {
                    libc::RLIMIT_NOFILE => 65_536,
                    _ => libc::RLIM_INFINITY,
                };
                // SAFETY: the caller's room.
                unsafe { *to = libc::rlimit { rlim_cur: most, rlim_max: most } };
                0
            }
        )*
    };
}

limits!(getrlimit, getrlimit64);

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpid() -> libc::pid_t {
    match simulated() {
        Some(_inside) => 4000 + world().process() as i32,
        // SAFETY: the call has no arguments.
        None => unsafe { kernel(libc::SYS_getpid, [0; 6]) as libc::pid_t },
    }
}

/// As in the C library: a process of the simulation hears of no signals.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kill(process: libc::pid_t, signal: c_int) -> c_int {
    match simulated() {
        Some(_inside) => {
            set_errno(libc::ESRCH);
            -1
        }
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { kernel(libc::SYS_kill, [process.into(), signal.into(), 0, 0, 0, 0]) as c_int },
    }
}

macro_rules! mapping {
    ($($name:ident),*) => {
        $(
            /// As in the C library.
            ///
            /// # Safety
            /// As in the C library.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                at: *mut c_void,
                length: size_t,
                protection: c_int,
                flags: c_int,
                fd: c_int,
                offset: libc::off_t,
            ) -> *mut c_void {
                let arguments =
                    [at as i64, length as i64, protection.into(), flags.into(), fd.into(), offset];
                // SAFETY: the caller's arguments, unchanged.
                let mapped = unsafe { kernel(libc::SYS_mmap, arguments) };
                if let Some(_inside) = simulated().filter(|_| mapped != -1 && length > STACK_BYTES_MAX) {
                    let world = world();
                    let process = world.process();
                    world.mapped.insert(mapped as usize, (length, process));
                    let total = world.mapped.values().map(|(length, _)| length).sum::<usize>();
                    world.mapped_peak = world.mapped_peak.max(total);
                }
                mapped as *mut c_void
            }
        )*
    };
}

mapping!(mmap, mmap64);

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, length: size_t) -> c_int {
    if let Some(_inside) = simulated() {
        world().mapped.remove(&(at as usize));
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { kernel(libc::SYS_munmap, [at as i64, length as i64, 0, 0, 0, 0]) as c_int }
}

/// As in the C library: nothing is locked in memory here.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(_: *const c_void, _: size_t, _: libc::c_uint) -> c_int {
    0
}
