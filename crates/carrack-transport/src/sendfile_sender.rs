//! Sends an extent of a file with sendfile(2): the kernel passes pages of the page cache on, without a copy
//! on this side.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use carrack_wire::FrameHeader;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, sendfile};
use rustix::io::Errno;
use rustix::net::send;

use crate::endpoint_interface::{EndpointWaitLimit, SendfileSourceFile};
use crate::tcp::send_flags;

/// Sent in place of bytes that the file does not give.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

pub(crate) struct SendfileSender {
    file: Arc<dyn SendfileSourceFile>,
    offset: u64,
    left: usize,
    is_spoilt: bool,
}

impl SendfileSender {
    /// A writer of the body that `header` announces.
    pub(crate) fn new(file: Arc<dyn SendfileSourceFile>, header: &FrameHeader) -> SendfileSender {
        SendfileSender { file, offset: header.offset, left: header.body_len as usize, is_spoilt: false }
    }

    /// Sends until the extent is out (true) or the socket takes no more at present (false).
    pub(crate) fn advance(&mut self, stream: &TcpStream, patience: EndpointWaitLimit) -> io::Result<bool> {
        while self.left > 0 {
            let sent = if self.is_spoilt {
                send(stream, &ZEROS[..self.left.min(ZEROS.len())], send_flags(patience))
            } else {
                call_with_wait_limit(stream, patience, || self.send_from_file(stream))
            };
            match sent {
                Ok(count) => self.left -= count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }

    fn send_from_file(&mut self, stream: &TcpStream) -> Result<usize, Errno> {
        match sendfile(stream, self.file.descriptor(), Some(&mut self.offset), self.left) {
            Err(errno @ (Errno::INTR | Errno::AGAIN | Errno::PIPE | Errno::CONNRESET)) => Err(errno),
            Ok(0) | Err(_) => {
                // If the cause was a broken connection, sending the zeros fails too.
                self.is_spoilt = true;
                self.file.report_failed_extent();
                Ok(0)
            }
            sent => sent,
        }
    }
}

/// Calls `sendfile`, which has no `MSG_DONTWAIT`: without patience the socket is non-blocking for the call.
fn call_with_wait_limit(
    stream: &TcpStream,
    patience: EndpointWaitLimit,
    call: impl FnOnce() -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    match patience {
        EndpointWaitLimit::Brief => call(),
        EndpointWaitLimit::None => {
            let flags = fcntl_getfl(stream)?;
            fcntl_setfl(stream, flags | OFlags::NONBLOCK)?;
            let sent = call();
            fcntl_setfl(stream, flags)?;
            sent
        }
    }
}
