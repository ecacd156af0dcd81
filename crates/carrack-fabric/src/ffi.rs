//! The declarations of shim/shim.h.

use std::ffi::{c_char, c_int, c_void};

/// Bytes of an operation's context (`CF_CONTEXT_BYTES`).
pub(crate) const CONTEXT_BYTES: usize = 64;

/// `struct cf_offer`.
#[repr(C)]
pub(crate) struct RawFabricInterface {
    pub(crate) provider: [c_char; 64],
    pub(crate) fabric: [c_char; 128],
    pub(crate) domain: [c_char; 64],
    pub(crate) nic: [c_char; 64],
    pub(crate) caps: u64,
    pub(crate) mr_mode: u64,
    pub(crate) inject_bytes: u64,
    pub(crate) max_message_bytes: u64,
    pub(crate) cq_data_bytes: u64,
    pub(crate) send_operations: u64,
    pub(crate) receive_operations: u64,
    pub(crate) key_bytes: u64,
    pub(crate) address_format: u32,
    pub(crate) is_reliable_datagram: u32,
    pub(crate) progresses_by_itself: u32,
    pub(crate) has_pci: u32,
    pub(crate) pci: [u32; 4],
}

/// `struct cf_completion`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawCompletion {
    pub(crate) context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: u64,
    pub(crate) data: u64,
    pub(crate) status: i32,
    pub(crate) provider_status: i32,
    pub(crate) words: [c_char; 128],
}

impl RawCompletion {
    pub(crate) const EMPTY: RawCompletion = RawCompletion {
        context: std::ptr::null_mut(),
        flags: 0,
        len: 0,
        data: 0,
        status: 0,
        provider_status: 0,
        words: [0; 128],
    };
}

/// `struct cf_post`.
#[repr(C)]
pub(crate) struct RawFabricPost {
    pub(crate) buffer: *mut c_void,
    pub(crate) len: u64,
    pub(crate) region: *mut RawRegion,
    pub(crate) peer: u64,
    pub(crate) address: u64,
    pub(crate) key: u64,
    pub(crate) data: u64,
    pub(crate) has_data: u32,
    pub(crate) context: *mut c_void,
}

/// The purpose of registered memory: the enumeration before `cf_register`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegistrationPurpose {
    Messages,
    OwnRma,
    PeersRead,
    PeersWrite,
}

/// `struct cf_endpoint`.
#[repr(C)]
pub(crate) struct RawFabricEndpoint {
    _opaque: [u8; 0],
}

/// `struct cf_region`.
#[repr(C)]
pub(crate) struct RawRegion {
    _opaque: [u8; 0],
}

#[allow(unsafe_code)]
// SAFETY: these are shim.h's declarations, whose layouts the tests below compare with the compiler's.
unsafe extern "C" {
    pub(crate) fn cf_load() -> *const c_char;
    pub(crate) fn cf_version() -> u32;
    pub(crate) fn cf_strerror(code: c_int) -> *const c_char;
    pub(crate) fn cf_list(
        provider: *const c_char,
        source: *const c_char,
        is_usable: c_int,
        head: *mut *mut c_void,
    ) -> c_int;
    pub(crate) fn cf_next(info: *mut c_void) -> *mut c_void;
    pub(crate) fn cf_describe(info: *mut c_void, offer: *mut RawFabricInterface);
    pub(crate) fn cf_duplicate(info: *mut c_void) -> *mut c_void;
    pub(crate) fn cf_free(info: *mut c_void);
    pub(crate) fn cf_open(
        info: *mut c_void,
        completions: u64,
        out: *mut *mut RawFabricEndpoint,
        what: *mut *const c_char,
    ) -> c_int;
    pub(crate) fn cf_close_endpoint(endpoint: *mut RawFabricEndpoint) -> c_int;
    pub(crate) fn cf_close(endpoint: *mut RawFabricEndpoint, what: *mut *const c_char) -> c_int;
    pub(crate) fn cf_name(endpoint: *mut RawFabricEndpoint, name: *mut u8, len: *mut usize) -> c_int;
    pub(crate) fn cf_add_peer(endpoint: *mut RawFabricEndpoint, name: *const u8, peer: *mut u64) -> c_int;
    pub(crate) fn cf_register(
        endpoint: *mut RawFabricEndpoint,
        base: *mut c_void,
        len: usize,
        purpose: RegistrationPurpose,
        key: u64,
        out: *mut *mut RawRegion,
        chosen_key: *mut u64,
    ) -> c_int;
    pub(crate) fn cf_deregister(region: *mut RawRegion) -> c_int;
    pub(crate) fn cf_send(endpoint: *mut RawFabricEndpoint, post: *const RawFabricPost) -> c_int;
    pub(crate) fn cf_receive(endpoint: *mut RawFabricEndpoint, post: *const RawFabricPost) -> c_int;
    pub(crate) fn cf_read(endpoint: *mut RawFabricEndpoint, post: *const RawFabricPost) -> c_int;
    pub(crate) fn cf_write(endpoint: *mut RawFabricEndpoint, post: *const RawFabricPost) -> c_int;
    pub(crate) fn cf_poll(endpoint: *mut RawFabricEndpoint, out: *mut RawCompletion, limit: c_int) -> c_int;
    pub(crate) fn cf_wait_fd(endpoint: *mut RawFabricEndpoint) -> c_int;
    pub(crate) fn cf_may_wait(endpoint: *mut RawFabricEndpoint) -> c_int;
    #[cfg(test)]
    fn cf_layout(sizes: *mut usize);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    #[allow(unsafe_code)]
    fn layouts_are_those_of_the_c_compiler() {
        let mut theirs = [0usize; 8];
        // SAFETY: fills eight sizes.
        unsafe { cf_layout(theirs.as_mut_ptr()) };
        let ours = [
            size_of::<RawFabricInterface>(),
            offset_of!(RawFabricInterface, caps),
            offset_of!(RawFabricInterface, pci),
            size_of::<RawCompletion>(),
            offset_of!(RawCompletion, words),
            size_of::<RawFabricPost>(),
            offset_of!(RawFabricPost, context),
            CONTEXT_BYTES,
        ];
        assert_eq!(ours, theirs);
    }
}
