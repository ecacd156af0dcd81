//! Signals as bytes in one pipe each, so that the loop sees them among its other events.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// The request that a signal stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalRequest {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGTERM and SIGINT: end.
    End,
    /// SIGCHLD: a session's process has ended.
    Wait,
}

/// The pipes.
#[derive(Debug)]
pub struct SignalPipes([(SignalRequest, UnixStream); 4]);

impl SignalPipes {
    /// Catches the signals from now on.
    pub fn catch() -> io::Result<SignalPipes> {
        Ok(SignalPipes([
            (SignalRequest::Reload, piped(SIGHUP)?),
            (SignalRequest::End, piped(SIGTERM)?),
            (SignalRequest::End, piped(SIGINT)?),
            (SignalRequest::Wait, piped(SIGCHLD)?),
        ]))
    }

    /// Returns the descriptors to wait for.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|(_, pipe)| pipe.as_fd())
    }

    /// Returns the requests since the last call, each as often as its signal arrived; the kernel may have
    /// merged several into one.
    pub fn take_requests(&mut self) -> Vec<SignalRequest> {
        let mut wishes = Vec::new();
        for (wish, pipe) in &mut self.0 {
            let mut bytes = [0; 64];
            while let Ok(count @ 1..) = pipe.read(&mut bytes) {
                wishes.extend(std::iter::repeat_n(*wish, count));
            }
        }
        wishes
    }
}

fn piped(signal: i32) -> io::Result<UnixStream> {
    let (heard, said) = UnixStream::pair()?;
    heard.set_nonblocking(true)?;
    pipe::register(signal, said)?;
    Ok(heard)
}
