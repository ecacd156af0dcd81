//! Requests of the scan that are repeated after an error that may pass. The caller of the scan knows which
//! errors do, and waits between the tries; without such a caller nothing is repeated.

use std::io;

use rustix::io::Errno;

/// Repeats requests to the storage. Called from all threads of the scan.
pub trait ScanRetries: Sync {
    /// Returns true for an error after which the same request may succeed.
    fn may_pass(&self, error: &io::Error) -> bool;

    /// Makes a request that has failed with such an error, until it succeeds or there is no hope.
    ///
    /// # Errors
    /// The last one.
    fn repeat(&self, request: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()>;
}

/// Makes a request, which is repeated if `retries` says so.
pub(super) fn request<T>(
    retries: Option<&dyn ScanRetries>,
    mut request: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    match (request(), retries) {
        (Err(error), Some(retries)) if retries.may_pass(&error) => {
            let mut answer = Err(error);
            retries.repeat(&mut || {
                answer = Ok(request()?);
                Ok(())
            })?;
            answer
        }
        (answer, _) => answer,
    }
}

/// As [`request`], for a request with an error number.
pub(super) fn request_with_errno<T>(
    retries: Option<&dyn ScanRetries>,
    mut call: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    request(retries, || Ok(call()?)).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
