//! The connection from a source's mover to a sink's.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use carrack_engine::PeerChannel;
use carrack_model::text_without_errno;
use carrack_transport::TlsChannel;
use carrack_trust::speaks_carrack;
use rustls::pki_types::ServerName;

use super::MoverContext;
use super::session_name::SessionName;
use crate::transfer_records::MoverRecord;

/// Timeout of an address, after which the next one is tried.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Connects to a mover for the session `name`; returns after the mover has proved to be the registered one.
///
/// # Errors
/// A text for people; every error may be temporary.
pub(super) fn dial(
    mover: &MoverContext,
    to: &MoverRecord,
    name: &SessionName,
) -> Result<PeerChannel, String> {
    let config =
        mover.tls.client(&to.ca_pem, &mover.authority.client).map_err(|error| text_without_errno(&error))?;
    let server = ServerName::try_from(to.id.clone()).map_err(|_| format!("{} is no host's name", to.id))?;
    let mut failure = format!("{} names no address", to.id);
    for address in &to.addresses {
        let socket = match connect(address) {
            Ok(socket) => socket,
            Err(error) => {
                failure = format!("{address} can't be reached: {error}");
                continue;
            }
        };
        let host =
            socket.peer_addr().map_err(|error| text_without_errno(&error))?.ip().to_canonical().to_string();
        let deadline = Instant::now() + ANSWER_WITHIN;
        let channel = TlsChannel::client(socket, config.clone(), server.clone(), deadline)
            .map_err(|error| format!("{address} is not {}: {error:?}", to.id))?;
        if !speaks_carrack(channel.protocol()) {
            return Err(format!("{address} speaks TLS, but is not a carrack"));
        }
        return Ok(PeerChannel::over_tls(channel, host, name.to_string()));
    }
    Err(failure)
}

fn connect(address: &str) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ANSWER_WITHIN) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}
