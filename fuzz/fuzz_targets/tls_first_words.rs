//! What a session's process hears first, from a stranger who has no key: never a channel, never a panic, and an end in time.
//! Input: whether the client closes or stays (1 byte), then what it says.
#![no_main]

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use carrack_fuzz::site::Site;
use carrack_transport::TlsChannel;
use carrack_trust::{TlsServerCredentials, server_config};
use libfuzzer_sys::fuzz_target;

/// The time that a handshake gets; many inputs use all of it.
const PATIENCE: Duration = Duration::from_millis(5);

static CONFIG: LazyLock<Arc<rustls::ServerConfig>> = LazyLock::new(|| {
    let site = Site::new();
    let trust = TlsServerCredentials {
        chain: site.read("server.pem"),
        key: site.read("server-key.pem"),
        client_cas: site.read("authority/ca.pem"),
        tokens: true,
        ..TlsServerCredentials::default()
    };
    server_config(&trust).expect("a configuration")
});

static LISTENER: LazyLock<TcpListener> =
    LazyLock::new(|| TcpListener::bind("127.0.0.1:0").expect("a port of this host"));

fuzz_target!(|data: &[u8]| {
    let Some((&stays, said)) = data.split_first() else { return };
    let config = CONFIG.clone();
    let mut client = TcpStream::connect(LISTENER.local_addr().expect("an address")).expect("a connection");
    let (socket, _) = LISTENER.accept().expect("a connection");
    client.write_all(said).expect("it fits into the socket");
    if stays & 1 == 0 {
        client.shutdown(std::net::Shutdown::Write).expect("a socket");
    }
    let began = Instant::now();
    let channel = TlsChannel::server(socket, config, began + PATIENCE);
    assert!(channel.is_err(), "a channel with somebody who has no key: {channel:?}");
    assert!(began.elapsed() < PATIENCE + Duration::from_secs(1), "{:?}", began.elapsed());
});
