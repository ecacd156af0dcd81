//! Threads, futexes and time.

use std::sync::OnceLock;

use libc::{c_char, c_int, c_void, timespec};

use super::{answer, kernel, simulated};
use crate::calls::begin;
use crate::faults::CallKind;
use crate::raw_calls::set_errno;
use crate::scheduler::{self, InsideGuard, TaskId, WaitCondition, caller};
use crate::world::world;

/// Seconds that the monotonic clock shows at the begin.
const BOOTED_S: i64 = 100_000;

type StartRoutine = extern "C" fn(*mut c_void) -> *mut c_void;
type CreateFunction = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    StartRoutine,
    *mut c_void,
) -> c_int;
type JoinFunction = unsafe extern "C" fn(libc::pthread_t, *mut *mut c_void) -> c_int;

/// The C library's own function.
fn original(name: &std::ffi::CStr) -> *mut c_void {
    // SAFETY: a lookup by name.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    assert!(!found.is_null(), "the C library has {name:?}");
    found
}

fn create() -> CreateFunction {
    static CREATE: OnceLock<CreateFunction> = OnceLock::new();
    // SAFETY: the function's type.
    *CREATE.get_or_init(|| unsafe {
        std::mem::transmute::<*mut c_void, CreateFunction>(original(c"pthread_create"))
    })
}

fn join() -> JoinFunction {
    static JOIN: OnceLock<JoinFunction> = OnceLock::new();
    // SAFETY: the function's type.
    *JOIN.get_or_init(|| unsafe {
        std::mem::transmute::<*mut c_void, JoinFunction>(original(c"pthread_join"))
    })
}

type ActionFunction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

/// As in the C library, but somebody else seems to handle SIGSEGV and SIGBUS: the standard library would
/// keep a tree of all threads for them, by their addresses, which are not the same each time.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if matches!(signal, libc::SIGSEGV | libc::SIGBUS) {
        // SAFETY: the caller's room, or null.
        if let Some(old) = unsafe { old.as_mut() } {
            // SAFETY: all fields are numbers.
            *old = unsafe { std::mem::zeroed() };
            old.sa_sigaction = libc::SIG_IGN;
        }
        return 0;
    }
    // SAFETY: the function's type, and the caller's arguments, unchanged.
    unsafe { std::mem::transmute::<*mut c_void, ActionFunction>(original(c"sigaction"))(signal, new, old) }
}

/// Called when a thread ends, after the destructors of its own variables.
fn farewell() -> libc::pthread_key_t {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: a new key with a destructor.
        unsafe { libc::pthread_key_create(&mut key, Some(ended)) };
        key
    })
}

/// The destructors of other keys come first: twice it asks to be called again.
unsafe extern "C" fn ended(rounds: *mut c_void) {
    let rounds = rounds as usize;
    if rounds > 1 {
        // SAFETY: the key of this function.
        unsafe { libc::pthread_setspecific(farewell(), (rounds - 1) as *const c_void) };
        return;
    }
    scheduler::leave();
}

/// Makes ready what threads need, before any is simulated.
pub fn prepare() {
    create();
    join();
    farewell();
}

struct ThreadBegin {
    start: StartRoutine,
    argument: *mut c_void,
    id: TaskId,
    baton: &'static std::sync::atomic::AtomicU32,
}

extern "C" fn first(begin: *mut c_void) -> *mut c_void {
    // SAFETY: made by `pthread_create` below, for this thread only.
    let ThreadBegin { start, argument, id, baton } = *unsafe { Box::from_raw(begin.cast::<ThreadBegin>()) };
    // SAFETY: the key of this program.
    unsafe { libc::pthread_setspecific(farewell(), 3 as *const c_void) };
    scheduler::take_seat(id, baton);
    start(argument)
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: StartRoutine,
    argument: *mut c_void,
) -> c_int {
    let Some(_inside) = simulated() else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { create()(thread, attributes, start, argument) };
    };
    let world = world();
    let process = world.spawns_for.take().unwrap_or_else(|| world.process());
    let id = scheduler::add_task(world, process);
    let baton = scheduler::baton_of(world, id);
    let seat = Box::into_raw(Box::new(ThreadBegin { start, argument, id, baton })).cast();
    // SAFETY: `first` takes the box.
    let result = unsafe { create()(thread, attributes, first, seat) };
    assert_eq!(result, 0, "this machine lets a simulation have threads");
    // SAFETY: set by the call.
    world.tasks[id].pthread = unsafe { *thread };
    begin(CallKind::Spawn);
    0
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(thread: libc::pthread_t, result: *mut *mut c_void) -> c_int {
    if let Some(_inside) = simulated() {
        begin(CallKind::Join);
        let tasks = &world().tasks;
        // The newest one: the C library uses numbers again.
        if let Some(id) = tasks.iter().rposition(|task| task.pthread == thread)
            && !matches!(tasks[id].state, scheduler::ThreadState::Ended)
        {
            scheduler::wait(WaitCondition::End(id), None);
        }
    }
    // SAFETY: the caller's arguments, unchanged; the thread ends without another turn.
    unsafe { join()(thread, result) }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(_: libc::pthread_t, name: *const c_char) -> c_int {
    if let Some(_inside) = simulated() {
        // SAFETY: the caller's string.
        let name = unsafe { super::bytes(name) };
        world().tasks[scheduler::me()].name = String::from_utf8_lossy(name).into_owned();
    }
    0
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: i64, b: i64, c: i64, d: i64) -> c_int {
    if let Some(_inside) = simulated() {
        if option == libc::PR_SET_NAME {
            // SAFETY: the caller's string.
            let name = unsafe { super::bytes(a as *const c_char) };
            world().tasks[scheduler::me()].name = String::from_utf8_lossy(name).into_owned();
        }
        return 0;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { kernel(libc::SYS_prctl, [option.into(), a, b, c, d, 0]) as c_int }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_yield() -> c_int {
    match simulated() {
        Some(_inside) => begin(CallKind::Yield),
        // SAFETY: the call has no arguments.
        None => drop(unsafe { kernel(libc::SYS_sched_yield, [0; 6]) }),
    }
    0
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, to: *mut timespec) -> c_int {
    let Some(_inside) = simulated() else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { kernel(libc::SYS_clock_gettime, [clock.into(), to as i64, 0, 0, 0, 0]) as c_int };
    };
    let world = world();
    // Time passes for those who do nothing but look at the clock.
    world.now += 50;
    let booted = if clock == libc::CLOCK_REALTIME { 1_700_000_000 } else { BOOTED_S };
    let (seconds, part) = ((world.now / 1_000_000_000) as i64, (world.now % 1_000_000_000) as i64);
    // SAFETY: the caller's room.
    unsafe { *to = timespec { tv_sec: booted + seconds, tv_nsec: part } };
    0
}

fn nanoseconds(time: &timespec) -> u64 {
    (time.tv_sec.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.max(0) as u64)
}

/// The deadline of a time on one of the clocks.
fn deadline_of(clock: libc::clockid_t, time: &timespec) -> u64 {
    let booted = if clock == libc::CLOCK_REALTIME { 1_700_000_000 } else { BOOTED_S };
    nanoseconds(&timespec { tv_sec: time.tv_sec - booted, tv_nsec: time.tv_nsec })
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { clock_nanosleep(libc::CLOCK_MONOTONIC, 0, time, left) }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: libc::clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    let Some(_inside) = simulated() else {
        let arguments = [clock.into(), flags.into(), time as i64, left as i64, 0, 0];
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { crate::raw_calls::raw_call(libc::SYS_clock_nanosleep, arguments) } as c_int;
    };
    // SAFETY: the caller's time.
    let time = unsafe { &*time };
    begin(CallKind::Sleep);
    let until = match flags & libc::TIMER_ABSTIME {
        0 => world().now.saturating_add(nanoseconds(time)),
        _ => deadline_of(clock, time),
    };
    scheduler::wait(WaitCondition::Time, Some(until));
    0
}

/// As in the C library, for the calls that the simulated crates make in this way.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(number: i64, a: i64, b: i64, c: i64, d: i64, e: i64, f: i64) -> i64 {
    if caller().is_none() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { kernel(number, [a, b, c, d, e, f]) };
    }
    // SAFETY: the caller's pointers, as the kernel takes them.
    unsafe {
        match number {
            libc::SYS_futex => {
                let _inside = InsideGuard::enter();
                futex(a as *const u32, b as c_int, c as u32, d)
            }
            libc::SYS_getrandom => super::machine::getrandom(a as *mut c_void, b as usize, 0) as i64,
            libc::SYS_getdents64 => {
                let _inside = InsideGuard::enter();
                answer(super::files::list(a as c_int, b as *mut u8, c as usize))
            }
            libc::SYS_openat2 => {
                let _inside = InsideGuard::enter();
                let how = &*(c as *const [u64; 3]);
                let rules = crate::volumes::WalkRules {
                    follows: false,
                    is_beneath: how[2] & libc::RESOLVE_BENEATH != 0,
                    refuses_links: how[2] & libc::RESOLVE_NO_SYMLINKS != 0,
                };
                let path = super::bytes(b as *const c_char);
                answer(crate::calls::open(a as c_int, path, how[0] as c_int, how[1] as u32, rules))
            }
            libc::SYS_statx => super::files::statx(
                a as c_int,
                b as *const c_char,
                c as c_int,
                d as u32,
                e as *mut libc::statx,
            )
            .into(),
            libc::SYS_renameat2 => super::files::renameat2(
                a as c_int,
                b as *const c_char,
                c as c_int,
                d as *const c_char,
                e as u32,
            )
            .into(),
            libc::SYS_fchmodat2 => {
                super::files::fchmodat(a as c_int, b as *const c_char, c as u32, d as c_int).into()
            }
            libc::SYS_copy_file_range => {
                set_errno(libc::EXDEV);
                -1
            }
            libc::SYS_eventfd2 => super::sockets::eventfd(a as u32, b as c_int).into(),
            libc::SYS_fchmod => super::files::fchmod(a as c_int, b as u32).into(),
            libc::SYS_fchmodat => super::files::fchmodat(a as c_int, b as *const c_char, c as u32, 0).into(),
            libc::SYS_syncfs => super::files::syncfs(a as c_int).into(),
            libc::SYS_preadv2 => {
                super::files::preadv2(a as c_int, b as *const libc::iovec, c as c_int, d, f as c_int) as i64
            }
            libc::SYS_pwritev2 => {
                super::files::pwritev2(a as c_int, b as *const libc::iovec, c as c_int, d, f as c_int) as i64
            }
            libc::SYS_gettid => scheduler::me() as i64 + 5000,
            libc::SYS_pidfd_open => {
                set_errno(libc::ESRCH);
                -1
            }
            libc::SYS_sched_setaffinity | libc::SYS_mbind | libc::SYS_set_mempolicy => 0,
            _ => {
                // What nobody has thought of could reach the kernel with a simulated descriptor.
                let _inside = InsideGuard::enter();
                world().note("syscall", number, a);
                set_errno(libc::ENOSYS);
                -1
            }
        }
    }
}

unsafe fn futex(word: *const u32, operation: c_int, value: u32, time: i64) -> i64 {
    let command = operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    match command {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
            begin(CallKind::Futex);
            // SAFETY: the caller's word.
            if unsafe { std::ptr::read_volatile(word) } != value {
                set_errno(libc::EAGAIN);
                return -1;
            }
            // SAFETY: the caller's time, or null.
            let time = unsafe { (time as *const timespec).as_ref() };
            let deadline = time.map(|time| match command {
                libc::FUTEX_WAIT => world().now.saturating_add(nanoseconds(time)),
                _ if operation & libc::FUTEX_CLOCK_REALTIME != 0 => deadline_of(libc::CLOCK_REALTIME, time),
                _ => deadline_of(libc::CLOCK_MONOTONIC, time),
            });
            match scheduler::wait(WaitCondition::Futex(word as usize), deadline) {
                true => 0,
                false => {
                    set_errno(libc::ETIMEDOUT);
                    -1
                }
            }
        }
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
            let woken = scheduler::wake_futex(word as usize, value as usize);
            begin(CallKind::Futex);
            woken as i64
        }
        _ => {
            set_errno(libc::ENOSYS);
            -1
        }
    }
}
