//! Bytes that were written to a connection and wait in the kernel for their turn.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::net::TcpStream;
use std::sync::{Arc, Weak};

use rustix::ioctl::{Getter, Opcode, ioctl};

/// `SIOCOUTQNSD` (linux/sockios.h): what was not sent, in bytes, as an `int`.
const NOT_SENT: Opcode = 0x894B;

/// Looks at a connection that somebody else has; when that is closed, nothing is left to be sent.
#[derive(Clone, Debug)]
pub struct Unsent(Weak<TcpStream>);

impl Unsent {
    pub(crate) fn of(stream: &Arc<TcpStream>) -> Unsent {
        Unsent(Arc::downgrade(stream))
    }

    /// How many these are now.
    pub fn bytes(&self) -> u64 {
        let Some(stream) = self.0.upgrade() else { return 0 };
        // SAFETY: of a TCP socket the kernel writes an `int`, which is what the getter has room for, and keeps no pointer.
        let count = unsafe { ioctl(&*stream, Getter::<NOT_SENT, c_int>::new()) };
        // A connection that is broken has nothing to send either.
        count.ok().and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    #[allow(clippy::unwrap_used)]
    fn what_the_other_end_does_not_take_waits_here() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let mut far = listener.accept().unwrap().0;
        let unsent = Unsent::of(&near);
        assert_eq!(unsent.bytes(), 0);
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = (&*near).write(&[7; 65_536]) {
            written += count;
        }
        let waiting = unsent.bytes();
        assert!(waiting > 0 && waiting < written as u64, "{waiting} of {written}");
        far.read_exact(&mut vec![0; written]).unwrap();
        assert_eq!(unsent.bytes(), 0);
        drop(near);
        assert_eq!(unsent.bytes(), 0);
    }
}
