//! The end of a session from without: the parent's death, its word (SIGTERM), both of which the client is told of.
//!
//! Owns one thread, which begins once the process is what it will be.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use carrack_engine::Abort;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::pipe;

/// Watches from now on. `parent` is only looked at.
pub fn watch(parent: UnixStream, abort: Abort) -> io::Result<()> {
    let (mut heard, said) = UnixStream::pair()?;
    pipe::register(SIGTERM, said)?;
    let wait = move || {
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(parent.as_fd(), PollFlags::RDHUP),
                PollFd::from_borrowed_fd(heard.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        // A daemon that is started again, or a time that is over: the client may come back.
        abort.dismiss();
        // The session ends by itself now. A parent that is alive counts its time; one that is gone can't.
        let mut byte = [0; 2];
        while !matches!(heard.read(&mut byte), Ok(0) | Err(_)) {}
    };
    thread::Builder::new().name("carrack-guard".into()).spawn(wait)?;
    Ok(())
}
