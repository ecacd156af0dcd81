//! What goes wrong, in our words and the library's.

use std::ffi::{CStr, c_char, c_int};

use carrack_machine::{Resource, resource_limit};

use crate::ffi;

/// What a failure spoils.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One operation; others go on. The same may be tried again.
    Operation,
    /// The endpoint: it is to be closed, and the session continues over another transport or ends.
    Endpoint,
    /// Every use of the library in this process.
    Library,
}

/// A call or an operation that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {words}")]
pub struct FabricError {
    /// The call or the operation.
    pub what: String,
    /// libfabric's number (`FI_E...`, positive); 0 where it is not the library that complains.
    pub code: i32,
    /// Its words, and the provider's where it has some.
    pub words: String,
    /// What it spoils.
    pub scope: Scope,
}

/// `FI_EAGAIN`: a queue is full at present.
pub(crate) const EAGAIN: i32 = 11;

/// `FI_ENOMEM`.
const ENOMEM: i32 = 12;

impl FabricError {
    /// The answer of a call.
    pub(crate) fn of_call(what: impl Into<String>, code: c_int, scope: Scope) -> FabricError {
        let code = code.saturating_abs();
        FabricError { what: what.into(), code, words: words_of(code), scope }
    }

    /// So many bytes could not be registered. Hardware has them locked, which few users may do with much (RLIMIT_MEMLOCK, getrlimit(2)).
    pub(crate) fn of_registering(bytes: usize, code: c_int) -> FabricError {
        let mut error =
            FabricError::of_call(format!("registering {} KiB", bytes >> 10), code, Scope::Endpoint);
        let limit = resource_limit(Resource::RLIMIT_MEMLOCK).filter(|_| error.code == ENOMEM);
        if let Some(limit) = limit {
            error.words += &format!("; this process may lock {} KiB of memory (ulimit -l)", limit >> 10);
        }
        error
    }

    /// An operation that was posted and failed.
    pub(crate) fn of_completion(what: &str, completion: &ffi::Completion) -> FabricError {
        let provider = text(&completion.words);
        let mut words = words_of(completion.status);
        if !provider.is_empty() && provider != words {
            words = format!("{words} (the provider: {provider}, {})", completion.provider_status);
        }
        FabricError { what: what.to_string(), code: completion.status, words, scope: Scope::Operation }
    }

    /// Something that we refuse ourselves.
    pub(crate) fn ours(what: impl Into<String>, words: impl Into<String>, scope: Scope) -> FabricError {
        FabricError { what: what.into(), code: 0, words: words.into(), scope }
    }
}

/// `fi_strerror(3)`. Only once the library is loaded.
#[allow(unsafe_code)]
fn words_of(code: i32) -> String {
    // SAFETY: errors with numbers come from the library only, which is then loaded; the text is static.
    let words = unsafe { CStr::from_ptr(ffi::cf_strerror(code)) };
    words.to_string_lossy().into_owned()
}

/// The characters before the first NUL.
pub(crate) fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&c| c as u8).take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
