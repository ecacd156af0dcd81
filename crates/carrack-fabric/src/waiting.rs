//! How a thread that has nothing to do waits for an endpoint.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::endpoint::Endpoint;
use crate::ffi;

impl Endpoint {
    /// Readable when there may be something to poll, if [`may_wait`](Endpoint::may_wait) allowed to wait just before;
    /// nothing where the provider has no descriptor and has to be polled.
    #[allow(unsafe_code)]
    pub fn readiness(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: a plain read.
        let fd = unsafe { ffi::cf_wait_fd(self.core().raw()) };
        // SAFETY: the queue's descriptor, open until the core is closed, which `self` holds.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether nothing is to be polled now, so that the descriptor tells of what comes (fi_poll(3), fi_trywait).
    #[allow(unsafe_code)]
    pub fn may_wait(&self) -> bool {
        // SAFETY: the core is open.
        unsafe { ffi::cf_may_wait(self.core().raw()) == 0 }
    }

    /// Sleeps until there may be something to poll, for `limit` at most. Polls every millisecond where there is no descriptor.
    pub fn wait(&self, limit: Duration) -> io::Result<()> {
        let Some(fd) = self.readiness() else {
            std::thread::sleep(limit.min(Duration::from_millis(1)));
            return Ok(());
        };
        if !self.may_wait() {
            return Ok(());
        }
        let time = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
