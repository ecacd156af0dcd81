//! Pipes, sockets, events and waiting for them.

use libc::{c_int, c_void, size_t, sockaddr, socklen_t, ssize_t};

use super::{answer, kernel, simulated, simulated_fd};
use crate::calls;
use crate::descriptors::{DescriptorKind, FIRST, OpenDescription};
use crate::raw_calls::set_errno;
use crate::world::world;

/// Bytes that a pipe or a link within a process holds.
const PIPE_BYTES: usize = 64 << 10;

fn add(kind: DescriptorKind, is_nonblocking: bool) -> c_int {
    let world = world();
    let process = world.process();
    let mut description = OpenDescription::new(kind);
    description.is_nonblocking = is_nonblocking;
    world.descriptors.add(process, description)
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pipe2(fds: *mut c_int, flags: c_int) -> c_int {
    let Some(_inside) = simulated() else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { kernel(libc::SYS_pipe2, [fds as i64, flags.into(), 0, 0, 0, 0]) as c_int };
    };
    let (pipe, _) = world().descriptors.pipes(PIPE_BYTES);
    let is_nonblocking = flags & libc::O_NONBLOCK != 0;
    // SAFETY: room for two descriptors.
    unsafe {
        *fds = add(DescriptorKind::Stream { input: Some(pipe), output: None }, is_nonblocking);
        *fds.add(1) = add(DescriptorKind::Stream { input: None, output: Some(pipe) }, is_nonblocking);
    }
    0
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socketpair(domain: c_int, kind: c_int, protocol: c_int, fds: *mut c_int) -> c_int {
    let Some(_inside) = simulated() else {
        let arguments = [domain.into(), kind.into(), protocol.into(), fds as i64, 0, 0];
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { kernel(libc::SYS_socketpair, arguments) as c_int };
    };
    let (one, other) = world().descriptors.pipes(PIPE_BYTES);
    let is_nonblocking = kind & libc::SOCK_NONBLOCK != 0;
    // SAFETY: room for two descriptors.
    unsafe {
        *fds = add(DescriptorKind::Stream { input: Some(one), output: Some(other) }, is_nonblocking);
        *fds.add(1) = add(DescriptorKind::Stream { input: Some(other), output: Some(one) }, is_nonblocking);
    }
    0
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eventfd(count: libc::c_uint, flags: c_int) -> c_int {
    match simulated() {
        Some(_inside) => add(DescriptorKind::Event(count.into()), flags & libc::EFD_NONBLOCK != 0),
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { kernel(libc::SYS_eventfd2, [count.into(), flags.into(), 0, 0, 0, 0]) as c_int },
    }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let Some(_inside) = simulated() else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe {
            kernel(libc::SYS_socket, [domain.into(), kind.into(), protocol.into(), 0, 0, 0]) as c_int
        };
    };
    if domain != libc::AF_INET || kind & 0xf != libc::SOCK_STREAM {
        set_errno(libc::EAFNOSUPPORT);
        return -1;
    }
    add(DescriptorKind::Socket(0), kind & libc::SOCK_NONBLOCK != 0)
}

unsafe fn port_of(address: *const sockaddr) -> u16 {
    // SAFETY: an address of the Internet, as the simulated sockets have no others.
    u16::from_be(unsafe { (*address.cast::<libc::sockaddr_in>()).sin_port })
}

unsafe fn put_address(port: u16, to: *mut sockaddr, length: *mut socklen_t) {
    if to.is_null() {
        return;
    }
    // SAFETY: all fields are numbers.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as u16;
    address.sin_port = port.to_be();
    address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    // SAFETY: the caller's room, which is enough for an address of the Internet.
    unsafe {
        std::ptr::write_unaligned(to.cast(), address);
        *length = std::mem::size_of::<libc::sockaddr_in>() as socklen_t;
    }
}

macro_rules! on_socket {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $body:expr, $kernel:expr;)*) => {
        $(
            /// As in the C library.
            ///
            /// # Safety
            /// As in the C library.
            #[unsafe(no_mangle)]
            #[allow(unused_unsafe)]
            pub unsafe extern "C" fn $name(fd: c_int, $($argument: $type),*) -> $result {
                let arguments: [i64; 6] = $kernel(fd.into());
                match simulated_fd(fd) {
                    // SAFETY: the caller's pointers, as the C library takes them.
                    Some(_inside) => answer(unsafe { $body(fd) }) as $result,
                    // SAFETY: the caller's arguments, unchanged.
                    None => unsafe { kernel(number(stringify!($name)), arguments) as $result },
                }
            }
        )*
    };
}

fn number(name: &str) -> i64 {
    match name {
        "bind" => libc::SYS_bind,
        "listen" => libc::SYS_listen,
        "connect" => libc::SYS_connect,
        "accept4" => libc::SYS_accept4,
        "getsockname" => libc::SYS_getsockname,
        "getpeername" => libc::SYS_getpeername,
        "setsockopt" => libc::SYS_setsockopt,
        "getsockopt" => libc::SYS_getsockopt,
        "shutdown" => libc::SYS_shutdown,
        "sendto" => libc::SYS_sendto,
        "sendmsg" => libc::SYS_sendmsg,
        "recvfrom" => libc::SYS_recvfrom,
        _ => libc::SYS_recvmsg,
    }
}

on_socket! {
    fn bind(address: *const sockaddr, length: socklen_t) -> c_int, |fd| {
        let wanted = port_of(address);
        let world = world();
        let port = if wanted == 0 { world.descriptors.free_port() } else { wanted };
        world.descriptors.get_mut(fd)?.kind = DescriptorKind::Socket(port);
        Ok(0)
    }, |fd| [fd, address as i64, length.into(), 0, 0, 0];
    fn listen(backlog: c_int) -> c_int, |fd| {
        let description = world().descriptors.get_mut(fd)?;
        let DescriptorKind::Socket(port) = description.kind else { return Err(libc::EINVAL) };
        description.kind = DescriptorKind::Listener { port, waiting: Vec::new() };
        Ok(0)
    }, |fd| [fd, backlog.into(), 0, 0, 0, 0];
    fn connect(address: *const sockaddr, length: socklen_t) -> c_int,
        |fd| calls::connect(fd, port_of(address)),
        |fd| [fd, address as i64, length.into(), 0, 0, 0];
    fn accept4(address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int, |fd| {
        let accepted = calls::accept(fd)?;
        put_address(40_000, address, length);
        Ok(accepted)
    }, |fd| [fd, address as i64, length as i64, flags.into(), 0, 0];
    fn getsockname(address: *mut sockaddr, length: *mut socklen_t) -> c_int, |fd| {
        let port = match world().descriptors.get(fd)?.kind {
            DescriptorKind::Socket(port) | DescriptorKind::Listener { port, .. } => port,
            _ => 40_000,
        };
        put_address(port, address, length);
        Ok(0)
    }, |fd| [fd, address as i64, length as i64, 0, 0, 0];
    fn getpeername(address: *mut sockaddr, length: *mut socklen_t) -> c_int, |fd| {
        world().descriptors.get(fd)?;
        put_address(40_000, address, length);
        Ok(0)
    }, |fd| [fd, address as i64, length as i64, 0, 0, 0];
    fn setsockopt(level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int, |fd| {
        let description = world().descriptors.get_mut(fd)?;
        if level == libc::SOL_SOCKET && matches!(name, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) {
            let time: libc::timeval = std::ptr::read_unaligned(value.cast());
            let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
            let timeout = (ns > 0).then_some(ns);
            match name {
                libc::SO_RCVTIMEO => description.receive_timeout = timeout,
                _ => description.send_timeout = timeout,
            }
        }
        Ok(0)
    }, |fd| [fd, level.into(), name.into(), value as i64, length.into(), 0];
    fn getsockopt(level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int, |fd| {
        world().descriptors.get(fd)?;
        if level != libc::SOL_SOCKET || name != libc::SO_ERROR {
            return Err(libc::ENOPROTOOPT);
        }
        std::ptr::write_bytes(value.cast::<u8>(), 0, *length as usize);
        Ok(0)
    }, |fd| [fd, level.into(), name.into(), value as i64, length as i64, 0];
    fn shutdown(how: c_int) -> c_int, |fd| {
        match how {
            libc::SHUT_RD => Ok(0),
            _ => calls::finish_sending(fd),
        }
    }, |fd| [fd, how.into(), 0, 0, 0, 0];
    fn sendto(data: *const c_void, count: size_t, flags: c_int, to: *const sockaddr,
        length: socklen_t) -> ssize_t,
        |fd| calls::send(fd, &[std::slice::from_raw_parts(data.cast::<u8>(), count)], flags),
        |fd| [fd, data as i64, count as i64, flags.into(), to as i64, length.into()];
    fn sendmsg(message: *const libc::msghdr, flags: c_int) -> ssize_t, |fd| {
        let parts = std::slice::from_raw_parts((*message).msg_iov, (*message).msg_iovlen);
        let slice = |part: &libc::iovec| match part.iov_len {
            0 => &[],
            length => std::slice::from_raw_parts(part.iov_base.cast::<u8>(), length),
        };
        let parts: Vec<&[u8]> = parts.iter().map(slice).collect();
        calls::send(fd, &parts, flags)
    }, |fd| [fd, message as i64, flags.into(), 0, 0, 0];
    fn recvfrom(data: *mut c_void, count: size_t, flags: c_int, from: *mut sockaddr,
        length: *mut socklen_t) -> ssize_t,
        |fd| calls::receive(fd, std::slice::from_raw_parts_mut(data.cast::<u8>(), count), flags),
        |fd| [fd, data as i64, count as i64, flags.into(), from as i64, length as i64];
    fn recvmsg(message: *mut libc::msghdr, flags: c_int) -> ssize_t,
        |_| { let _ = (message, flags); Err(libc::ENOTSUP) },
        |fd| [fd, message as i64, flags.into(), 0, 0, 0];
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { accept4(fd, address, length, 0) }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(fd: c_int, data: *const c_void, count: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { sendto(fd, data, count, flags, std::ptr::null(), 0) }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, data: *mut c_void, count: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { recvfrom(fd, data, count, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout_ms: c_int) -> c_int {
    let Some(_inside) = simulated() else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe {
            kernel(libc::SYS_poll, [fds as i64, count as i64, timeout_ms.into(), 0, 0, 0]) as c_int
        };
    };
    let timeout = u64::try_from(timeout_ms).ok().map(|ms| ms * 1_000_000);
    // SAFETY: the caller's array.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, if fds.is_null() { 0 } else { count as usize }) };
    answer(calls::poll(fds, timeout)) as c_int
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    let Some(_inside) = simulated() else {
        let arguments = [fds as i64, count as i64, timeout as i64, mask as i64, 8, 0];
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { kernel(libc::SYS_ppoll, arguments) as c_int };
    };
    // SAFETY: the caller's time, or null.
    let timeout =
        unsafe { timeout.as_ref() }.map(|time| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
    // SAFETY: the caller's array.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, if fds.is_null() { 0 } else { count as usize }) };
    answer(calls::poll(fds, timeout)) as c_int
}

const _: () = assert!(FIRST > 0);
