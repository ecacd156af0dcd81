//! Resolution of host names with a time limit.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The addresses of `host`, each with `port`. The system's resolver takes as long as its configuration says
/// (resolv.conf(5)) and can't be interrupted; a result after `patience` is dropped.
///
/// # Errors
/// The resolver's error, or `TimedOut`.
pub fn resolve(host: &str, port: u16, patience: Duration) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let name = host.to_owned();
    within(patience, move || (name.as_str(), port).to_socket_addrs().map(Iterator::collect))
}

/// The result of `look_up`, which a thread of its own runs.
fn within<T: Send + 'static>(
    patience: Duration,
    look_up: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().name("carrack-resolve".to_owned()).spawn(move || {
        // The receiver may have timed out.
        let _ = sender.send(look_up());
    })?;
    receiver
        .recv_timeout(patience)
        .unwrap_or_else(|_| Err(io::Error::new(ErrorKind::TimedOut, "no name server has answered")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_themselves_and_names_are_looked_up() {
        let long = Duration::from_secs(30);
        assert_eq!(resolve("::1", 7, Duration::ZERO).unwrap(), ["[::1]:7".parse().unwrap()]);
        assert!(resolve("localhost", 7, long).unwrap().iter().all(|address| address.ip().is_loopback()));
    }

    #[test]
    fn a_name_server_that_does_not_answer_is_not_waited_for() {
        let (answer, answered) = mpsc::channel::<()>();
        let found = within(Duration::from_millis(1), move || {
            let _ = answered.recv();
            Ok(())
        });
        assert_eq!(found.unwrap_err().kind(), ErrorKind::TimedOut);
        drop(answer);
    }
}
