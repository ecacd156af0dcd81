//! Watches for the end of a session from outside: the parent's death or its SIGTERM. The client is informed
//! of both.
//!
//! Owns one thread, which starts after the process has its final user.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use carrack_engine::AbortHandle;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::pipe;

/// Starts the thread. `parent` is only polled.
pub fn start_guard_thread(parent: UnixStream, abort: AbortHandle) -> io::Result<()> {
    let (heard, said) = UnixStream::pair()?;
    pipe::register(SIGTERM, said)?;
    thread::Builder::new()
        .name("carrack-guard".into())
        .spawn(move || watch_parent(&parent, heard, &abort))?;
    Ok(())
}

fn watch_parent(parent: &UnixStream, mut heard: UnixStream, abort: &AbortHandle) {
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
    // The daemon may be restarting, or a time limit was reached: the client may try again.
    abort.interrupt_locally();
    // The session ends now. A living parent enforces its deadline; a dead one can't.
    let mut byte = [0; 2];
    while !matches!(heard.read(&mut byte), Ok(0) | Err(_)) {}
}
