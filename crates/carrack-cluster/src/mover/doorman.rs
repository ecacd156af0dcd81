//! The sink's side of pairs: who comes is let in if the registry knows it as a mover, and is served on a thread of its own.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use carrack_engine::{Abort, Channel, TlsError, serve};
use carrack_transport::TlsChannel;
use carrack_trust::{Identity, PublicKeys, ServerTrust, server_config, speaks_carrack};
use tokio::runtime::Handle;

use super::Mover;
use super::house::MoverHouse;
use super::session_name::SessionName;
use crate::log::{Log, LogEntry};

/// A mover shows who it is within this time.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What a session has written is told so often, if NATS is away. It is for people only.
const TELL_TRIES: u32 = 10;
const TELL_AGAIN: Duration = Duration::from_secs(2);

/// Connections at the same time for each pair that the mover takes: old sessions end while new ones begin.
const CONNECTIONS_FOR_A_PAIR: usize = 4;

/// Lets movers in until the process ends. To be called where tokio's runtime is.
pub(super) fn start(mover: &Arc<Mover>, listener: TcpListener) -> io::Result<()> {
    let mover = Arc::clone(mover);
    let runtime = Handle::current();
    let door = move || {
        let open = Arc::new(AtomicUsize::new(0));
        let most = CONNECTIONS_FOR_A_PAIR * mover.options.pairs_max as usize;
        loop {
            match listener.accept() {
                Ok((connection, peer)) => {
                    if open.fetch_add(1, Ordering::AcqRel) >= most {
                        open.fetch_sub(1, Ordering::AcqRel);
                        continue;
                    }
                    let (mover, open, runtime) = (Arc::clone(&mover), Arc::clone(&open), runtime.clone());
                    let serving = move || {
                        answer(&mover, &runtime, connection, peer);
                        open.fetch_sub(1, Ordering::AcqRel);
                    };
                    // Where no thread can be had the connection closes, and comes again.
                    let _ = thread::Builder::new().name("carrack-pair".to_owned()).spawn(serving);
                }
                // Out of descriptors, say: some will be closed.
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    };
    thread::Builder::new().name("carrack-door".to_owned()).spawn(door).map(|_| ())
}

fn answer(mover: &Mover, runtime: &Handle, connection: TcpStream, peer: SocketAddr) {
    if let Err(reason) = served(mover, runtime, connection, peer) {
        mover.say(format!("{peer}: {reason}"));
    }
}

fn served(mover: &Mover, runtime: &Handle, connection: TcpStream, peer: SocketAddr) -> Result<(), String> {
    let here = connection.local_addr().map_err(|error| error.to_string())?.ip();
    let config = server_config(&trust(mover)).map_err(|error| error.to_string())?;
    let channel = TlsChannel::server(connection, config, Instant::now() + HANDSHAKE);
    let channel = channel.map_err(|error| match error {
        TlsError::Io(error) => format!("no TLS session came to stand: {error}"),
        TlsError::Tls(error) => format!("no TLS session came to stand: {error}"),
    })?;
    if !speaks_carrack(channel.protocol()) {
        return Err("it speaks TLS, and not carrack's protocol".to_owned());
    }
    let chain = channel.peer_certificates().unwrap_or_default();
    let who = Identity::of_peer(chain, &PublicKeys::default()).map_err(|error| error.to_string())?.name;
    if mover.movers.get(&who).is_none() {
        return Err(format!("{who} is no mover that is registered"));
    }
    let abort = Abort::new().map_err(|error| error.to_string())?;
    let options = &mover.options;
    let house = MoverHouse {
        reach: &mover.reach,
        protection_min: options.protection_min,
        ports: options.ports.clone(),
        here,
        caller: peer.ip(),
        sharing: runtime.block_on(mover.sharing()),
        spill: mover.options.spill.clone(),
        name: OnceLock::new(),
    };
    let serving = mover.serving();
    let outcome = serve(Channel::Tls(Box::new(channel)), &house, &abort);
    drop(serving);
    // Else its source tells everything.
    if let (Some(name), Err(_)) = (house.name.get(), &outcome.result) {
        runtime.block_on(tell(mover, name, outcome.summary.bytes_done));
    }
    outcome.result.map_err(|error| format!("the session with {who} ended: {error}"))
}

/// Has the manager know what a session has written that broke: nobody else may be left who does.
async fn tell(mover: &Mover, name: &SessionName, bytes: u64) {
    let SessionName { transfer, session } = name;
    let Ok(log) = Log::open(&mover.bus, transfer) else { return };
    let entry = LogEntry::Received { by: mover.id.clone(), session: session.clone(), bytes };
    for _ in 0..TELL_TRIES {
        match mover.transfers.get(transfer).await {
            // Its log is gone, or goes.
            Ok(record) if record.state.is_over() || bytes == 0 => return,
            Ok(_) if log.append(&entry).await.is_ok() => return,
            _ => tokio::time::sleep(TELL_AGAIN).await,
        }
    }
}

/// All that are registered, now.
fn trust(mover: &Mover) -> ServerTrust {
    let authorities: Vec<u8> =
        mover.movers.all().iter().flat_map(|other| other.ca_pem.bytes().chain([b'\n'])).collect();
    ServerTrust {
        chain: mover.authority.server_chain.clone(),
        key: mover.authority.server_key.clone(),
        client_cas: authorities,
        ..ServerTrust::default()
    }
}
