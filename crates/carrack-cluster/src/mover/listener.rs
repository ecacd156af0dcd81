//! The sink's side of pairs: registered movers are accepted, and served on a thread each.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use carrack_engine::{AbortHandle, ControlChannel, TlsHandshakeError, serve};
use carrack_model::text_without_errno;
use carrack_transport::{ConnectionEvictionOrder, PeerAddressPrefix, TlsChannel};
use carrack_trust::{AuthorizedKeys, ProvedIdentity, TlsServerCredentials, speaks_carrack};
use tokio::runtime::Handle;

use super::MoverContext;
use super::access_policy::MoverAccessPolicy;
use super::session_name::SessionName;
use crate::log::{FleetTransferLog, TransferLogEntry};

/// Timeout of a mover's handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Attempts to report the bytes written by a session, if NATS is away, and their pause. The report is for
/// people only.
const TELL_TRIES: u32 = 10;
const TELL_AGAIN: Duration = Duration::from_secs(2);

/// Simultaneous sessions for each pair that the mover takes: old ones end while new ones begin.
const SESSIONS_FOR_A_PAIR: usize = 4;

/// Limit of connections in their handshake. Beyond it the holder of most of them loses its oldest.
const STRANGERS_MAX: usize = 64;

/// Accepts movers until the process ends. Needs a Tokio runtime.
pub(super) fn start(mover: &Arc<MoverContext>, listener: TcpListener) -> io::Result<()> {
    let mover = Arc::clone(mover);
    let runtime = Handle::current();
    let acceptor = thread::Builder::new().name("carrack-accept".to_owned());
    acceptor.spawn(move || accept_all(&mover, &runtime, &listener)).map(|_| ())
}

fn accept_all(mover: &Arc<MoverContext>, runtime: &Handle, listener: &TcpListener) {
    let strangers = Arc::new(OpenHandshakes::default());
    let sessions = Arc::new(AtomicUsize::new(0));
    loop {
        match listener.accept() {
            Ok((connection, peer)) => {
                let Ok(stranger) = OpenHandshakes::register(&strangers, &connection, peer) else { continue };
                let (mover, sessions, runtime) = (Arc::clone(mover), Arc::clone(&sessions), runtime.clone());
                // Without a thread the connection closes, and the peer tries again.
                let _ = thread::Builder::new().name("carrack-pair".to_owned()).spawn(move || {
                    if let Err(reason) =
                        serve_connection(&mover, &runtime, connection, peer, stranger, &sessions)
                    {
                        mover.notify_user(format!("{peer}: {reason}"));
                    }
                });
            }
            // Probably out of descriptors: the holder of most connections makes room.
            Err(_) => {
                strangers.close_one();
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Connections in their handshake, each with a thread that waits for it.
#[derive(Default)]
struct OpenHandshakes(Mutex<HandshakeTable>);

#[derive(Default)]
struct HandshakeTable {
    shares: ConnectionEvictionOrder<u64>,
    connections: HashMap<u64, TcpStream>,
    next: u64,
}

/// One of these connections, until it is dropped.
struct HandshakeGuard {
    strangers: Arc<OpenHandshakes>,
    place: PeerAddressPrefix,
    number: u64,
}

impl OpenHandshakes {
    fn lock_table(&self) -> MutexGuard<'_, HandshakeTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection; beyond the limit another connection is closed for it.
    fn register(
        strangers: &Arc<OpenHandshakes>,
        connection: &TcpStream,
        peer: SocketAddr,
    ) -> io::Result<HandshakeGuard> {
        let connection = connection.try_clone()?;
        let place = PeerAddressPrefix::of(peer);
        let mut met = strangers.lock_table();
        if met.connections.len() >= STRANGERS_MAX {
            met.close_one();
        }
        let number = met.next;
        met.next += 1;
        met.shares.add(place, number);
        met.connections.insert(number, connection);
        Ok(HandshakeGuard { strangers: Arc::clone(strangers), place, number })
    }

    fn close_one(&self) {
        self.lock_table().close_one();
    }
}

impl HandshakeTable {
    /// Closes the oldest connection of the largest holder; the thread that waits for it gets an error.
    fn close_one(&mut self) {
        let Some((place, number)) = self.shares.eviction_candidate() else { return };
        self.shares.remove(place, number);
        if let Some(connection) = self.connections.remove(&number) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for HandshakeGuard {
    fn drop(&mut self) {
        let mut met = self.strangers.lock_table();
        met.shares.remove(self.place, self.number);
        met.connections.remove(&self.number);
    }
}

/// A place among the sessions, until it is dropped.
struct SessionPermit<'a>(&'a AtomicUsize);

impl SessionPermit<'_> {
    fn try_acquire(sessions: &AtomicUsize, most: usize) -> Option<SessionPermit<'_>> {
        let taken = sessions.fetch_add(1, Ordering::AcqRel);
        // Dropping it gives the place back.
        let place = SessionPermit(sessions);
        (taken < most).then_some(place)
    }
}

impl Drop for SessionPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn serve_connection(
    mover: &MoverContext,
    runtime: &Handle,
    connection: TcpStream,
    peer: SocketAddr,
    stranger: HandshakeGuard,
    sessions: &AtomicUsize,
) -> Result<(), String> {
    let here = connection.local_addr().map_err(|error| text_without_errno(&error))?.ip();
    let config = mover.tls.server(server_credentials(mover)).map_err(|error| text_without_errno(&error))?;
    let channel = TlsChannel::server(connection, config, Instant::now() + HANDSHAKE);
    let channel = channel.map_err(|error| match error {
        TlsHandshakeError::Io(error) => format!("no TLS session came to stand: {error}"),
        TlsHandshakeError::Tls(error) => format!("no TLS session came to stand: {error}"),
    })?;
    if !speaks_carrack(channel.protocol()) {
        return Err("it speaks TLS, and not carrack's protocol".to_owned());
    }
    let chain = channel.peer_certificates().unwrap_or_default();
    let who = ProvedIdentity::of_peer(chain, &AuthorizedKeys::default())
        .map_err(|error| text_without_errno(&error))?
        .name;
    if mover.movers.get(&who).is_none() {
        return Err(format!("{who} is no mover that is registered"));
    }
    drop(stranger);
    let options = &mover.options;
    let most = SESSIONS_FOR_A_PAIR * options.pairs_max as usize;
    let _place = SessionPermit::try_acquire(sessions, most)
        .ok_or_else(|| format!("there are {most} sessions already, {who} comes again"))?;
    let abort = AbortHandle::new().map_err(|error| text_without_errno(&error))?;
    let access_policy = MoverAccessPolicy {
        reach: &mover.reach,
        protection_min: options.protection_min,
        keep_owners: options.keep_owners,
        allows_fabric: options.allows_fabric,
        ports: options.ports.clone(),
        here,
        caller: peer.ip(),
        sharing: runtime.block_on(mover.grant_exchange()),
        spill: mover.options.spill.clone(),
        name: OnceLock::new(),
    };
    let serving = mover.count_writing_session();
    let outcome = serve(ControlChannel::Tls(Box::new(channel)), &access_policy, &abort);
    drop(serving);
    // A session without an error is reported by its source.
    if let (Some(name), Err(_)) = (access_policy.name.get(), &outcome.result) {
        runtime.block_on(report_received_bytes(mover, name, outcome.summary.bytes_done));
    }
    outcome.result.map_err(|error| format!("the session with {who} ended: {error}"))
}

/// Reports to the manager the bytes that a broken session has written: its source may be dead.
async fn report_received_bytes(mover: &MoverContext, name: &SessionName, bytes: u64) {
    let SessionName { transfer, session } = name;
    let Ok(log) = FleetTransferLog::open(&mover.bus, transfer) else { return };
    let entry = TransferLogEntry::Received { by: mover.id.clone(), session: session.clone(), bytes };
    for _ in 0..TELL_TRIES {
        match mover.transfers.get(transfer).await {
            // Its log is gone, or will be.
            Ok(record) if record.state.is_over() || bytes == 0 => return,
            Ok(_) if log.append(&entry).await.is_ok() => return,
            _ => tokio::time::sleep(TELL_AGAIN).await,
        }
    }
}

/// Returns the trust in all movers that are registered now.
fn server_credentials(mover: &MoverContext) -> TlsServerCredentials {
    let authorities: Vec<u8> =
        mover.movers.all().iter().flat_map(|other| other.ca_pem.bytes().chain([b'\n'])).collect();
    TlsServerCredentials {
        chain: mover.authority.server_chain.clone(),
        key: mover.authority.server_key.clone(),
        client_cas: authorities,
        ..TlsServerCredentials::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn one_address_that_says_nothing_keeps_no_other_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let strangers = Arc::new(OpenHandshakes::default());
        let mut met = Vec::new();
        for number in 0..STRANGERS_MAX + 11 {
            let from = if number == 0 { "192.0.2.1:1" } else { "198.51.100.1:1" };
            let client = TcpStream::connect(address).unwrap();
            let (connection, _) = listener.accept().unwrap();
            let stranger = OpenHandshakes::register(&strangers, &connection, from.parse().unwrap()).unwrap();
            met.push((client, connection, stranger));
        }
        let mut many = met.split_off(1);
        let mut one = met.remove(0);
        assert_eq!(strangers.lock_table().connections.len(), STRANGERS_MAX);
        for (client, ..) in &mut many[..11] {
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "the oldest of whoever holds most are closed");
        }
        for client in [&mut one.0, &mut many[11].0] {
            client.set_nonblocking(true).unwrap();
            assert_eq!(client.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        drop((one, many));
        assert!(
            strangers.lock_table().connections.is_empty()
                && strangers.lock_table().shares.eviction_candidate().is_none()
        );
    }

    #[test]
    fn places_are_given_back() {
        let sessions = AtomicUsize::new(0);
        let first = SessionPermit::try_acquire(&sessions, 1);
        assert!(first.is_some() && SessionPermit::try_acquire(&sessions, 1).is_none());
        drop(first);
        assert!(SessionPermit::try_acquire(&sessions, 1).is_some());
        assert_eq!(sessions.load(Ordering::Acquire), 0);
    }
}
