//! The end that is called (`carrack session`, or a daemon's), up to the decision of its house, which admits nobody: paths
//! would be real ones. Whatever comes must be refused in words. Input: what comes.
#![no_main]

use carrack_engine::{AbortHandle, AdmittedCallerRights, ControlChannel, AccessPolicy, AccessRequest, SessionError, serve};
use carrack_fuzz::far_end::closed_pipes;
use libfuzzer_sys::fuzz_target;

struct Closed;

impl AccessPolicy for Closed {
    fn admit(&self, _: AccessRequest<'_>) -> Result<AdmittedCallerRights, SessionError> {
        Err(SessionError::refused("nobody is admitted", ""))
    }
}

fuzz_target!(|data: &[u8]| {
    let (input, output) = closed_pipes(data);
    let outcome = serve(ControlChannel::Pipes { input, output }, &Closed, &AbortHandle::new().expect("an eventfd"));
    assert!(outcome.result.is_err());
});
