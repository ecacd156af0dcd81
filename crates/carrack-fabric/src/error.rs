//! The errors of this crate and of libfabric.

use std::ffi::{CStr, c_char, c_int};

use carrack_machine::{Resource, resource_limit};

use crate::ffi;

/// The extent of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricErrorScope {
    /// One operation. Others continue, and the same operation may be tried again.
    Operation,
    /// The endpoint. It must be closed, and the session continues over another transport or ends.
    Endpoint,
    /// Every use of the library in this process.
    Library,
}

/// A failed call or operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {words}")]
pub struct FabricError {
    /// The call or the operation.
    pub what: String,
    /// libfabric's number (`FI_E...`, positive); 0 for an error of this crate.
    pub code: i32,
    /// The library's text, with the provider's where it has one.
    pub words: String,
    /// The extent of the failure.
    pub scope: FabricErrorScope,
}

/// `FI_EAGAIN`: a queue is full at present.
pub(crate) const EAGAIN: i32 = 11;

/// `FI_ENOMEM`.
const ENOMEM: i32 = 12;

impl FabricError {
    /// The error of a call.
    pub(crate) fn of_call(what: impl Into<String>, code: c_int, scope: FabricErrorScope) -> FabricError {
        let code = code.saturating_abs();
        FabricError { what: what.into(), code, words: error_text(code), scope }
    }

    /// The error of a registration. Hardware needs the memory locked, and most users may lock little
    /// (RLIMIT_MEMLOCK, getrlimit(2)).
    pub(crate) fn of_registering(bytes: usize, code: c_int) -> FabricError {
        let mut error = FabricError::of_call(
            format!("registering {} KiB", bytes >> 10),
            code,
            FabricErrorScope::Endpoint,
        );
        let limit = resource_limit(Resource::RLIMIT_MEMLOCK).filter(|_| error.code == ENOMEM);
        if let Some(limit) = limit {
            error.words += &format!("; this process may lock {} KiB of memory (ulimit -l)", limit >> 10);
        }
        error
    }

    /// The error of a posted operation.
    pub(crate) fn of_completion(what: &str, completion: &ffi::RawCompletion) -> FabricError {
        let provider = text_before_nul(&completion.words);
        let mut words = error_text(completion.status);
        if !provider.is_empty() && provider != words {
            words = format!("{words} (the provider: {provider}, {})", completion.provider_status);
        }
        FabricError {
            what: what.to_string(),
            code: completion.status,
            words,
            scope: FabricErrorScope::Operation,
        }
    }

    /// An error of this crate.
    pub(crate) fn own_error(
        what: impl Into<String>,
        words: impl Into<String>,
        scope: FabricErrorScope,
    ) -> FabricError {
        FabricError { what: what.into(), code: 0, words: words.into(), scope }
    }
}

/// `fi_strerror(3)`. Only while the library is loaded.
#[allow(unsafe_code)]
fn error_text(code: i32) -> String {
    // SAFETY: error numbers come only from the library, which is then loaded; the text is static.
    let words = unsafe { CStr::from_ptr(ffi::cf_strerror(code)) };
    words.to_string_lossy().into_owned()
}

/// The characters before the first NUL.
pub(crate) fn text_before_nul(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&c| c as u8).take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
