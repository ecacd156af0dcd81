//! Every transport passes the one suite, sealed and not.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use carrack_model::{ProtectionLevel, SealCipher};
use carrack_transport::conformance::{TestEndpointPair, run};
use carrack_transport::seal::{ConnectionCipherState, TrafficSecret};
use carrack_transport::{TcpReceiver, TcpSender, loopback_pair, prepare_stream};

const SLOT_BYTES: u32 = 64 << 10;

fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    for stream in [&near, &far] {
        prepare_stream(stream, Duration::ZERO).unwrap();
    }
    (near, far)
}

fn tcp(protection: ProtectionLevel, cipher: SealCipher) -> TestEndpointPair {
    let (near, far) = connected();
    let seal = || ConnectionCipherState::new(TrafficSecret::new([1; 32]), protection, cipher);
    let receiver = TcpReceiver::with_seal(far, SLOT_BYTES, seal());
    (Box::new(TcpSender::with_seal(near, seal())), Box::new(receiver))
}

#[test]
fn loopback() {
    run(&|| {
        let (sender, receiver) = loopback_pair().unwrap();
        (Box::new(sender), Box::new(receiver))
    });
}

#[test]
fn tcp_clear() {
    run(&|| tcp(ProtectionLevel::Clear, SealCipher::Aes256Gcm));
}

#[test]
fn tcp_safe() {
    run(&|| tcp(ProtectionLevel::Safe, SealCipher::Aes256Gcm));
}

#[test]
fn tcp_private() {
    for cipher in [SealCipher::Aes256Gcm, SealCipher::Aes128Gcm, SealCipher::ChaCha20Poly1305] {
        run(&|| tcp(ProtectionLevel::Private, cipher));
    }
}
