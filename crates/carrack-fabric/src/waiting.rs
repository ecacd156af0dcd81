//! Waiting for an endpoint by an idle thread.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::endpoint::FabricEndpoint;
use crate::ffi;

impl FabricEndpoint {
    /// A descriptor that is readable when there may be completions to poll, if
    /// [`may_wait`](FabricEndpoint::may_wait) returned true just before; `None` if the provider has no
    /// descriptor and needs polling.
    #[allow(unsafe_code)]
    pub fn readiness(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: a plain read.
        let fd = unsafe { ffi::cf_wait_fd(self.core().raw()) };
        // SAFETY: the queue's descriptor, open until the core is closed, which `self` holds.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Returns true if there is no completion to poll, so that the descriptor shows the next one (fi_poll(3),
    /// fi_trywait).
    #[allow(unsafe_code)]
    pub fn may_wait(&self) -> bool {
        // SAFETY: the core is open.
        unsafe { ffi::cf_may_wait(self.core().raw()) == 0 }
    }

    /// Sleeps until there may be completions to poll, for `limit` at most. Sleeps at most a millisecond if
    /// there is no descriptor.
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
