//! The choice of a fabric for a session's objects (L5), and the exchange of its endpoints.
//!
//! The initiator names the networks that it could use, and the responder chooses. When the data connections
//! are established, both ends open an endpoint for each lane, register its slots and exchange the endpoints'
//! names. If one end can't, both use TCP, or, if the user named the provider, the session ends. Without data
//! connections there is no fabric: they carry the values from which the seals are made.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use carrack_machine::SlotPool;
use carrack_model::{ProtectionLevel, TransferEvent, UserNotice, escape, text_without_errno};
use carrack_transport::fabric::{
    FabricProviderDomain, FabricRequirements, FabricStreamTcpConnection, SEALED_SLOTS, UnconnectedFabricLane,
    is_installed_device, usable_offers,
};
use carrack_transport::{DataConnection, ReceiveEndpoint, SessionControlLink, TransportSendEndpoint};
use carrack_wire::message::{
    ControlMessage, FabricChoice, FabricEndpointsMessage, FabricNetwork, InitiatorFabricList,
};

use super::handshake::{control_only_pool, receive_message, send_message};
use crate::context::SessionContext;
use crate::error::SessionError;
use crate::event_delivery::TransferObserver;
use crate::lanes::{LaneDataTransport, deal};
use crate::placement::PlacedLanes;
use crate::role::SessionRole;
use crate::settings::{EndSettings, FabricWanted};

/// The provider between two processes of a host.
const WITHIN_HOST: &str = "shm";

/// Providers whose reads cost the other end no CPU time, the best first.
const BEAT_TCP: [&str; 5] = ["cxi", "opx", "efa", "verbs;ofi_rxm", "psm2"];

/// Bytes of a name, more than any provider's or network's.
const NAME_BYTES_MAX: usize = 128;

const HINT: &str = "leave --fabric out, and what is best is taken; `carrack fabric` shows what there is";

/// The fabric that both ends have agreed to try.
#[derive(Debug)]
pub(super) struct AgreedFabric {
    network: FabricNetwork,
    is_forced: bool,
}

/// Returns the initiator's request for a fabric; `None` if it wants none.
pub(super) fn requested_fabrics(
    settings: &EndSettings,
    dry_run: bool,
    observer: &dyn TransferObserver,
) -> Result<Option<InitiatorFabricList>, SessionError> {
    let (networks, is_forced) = match &settings.fabric {
        _ if dry_run => return Ok(None),
        FabricWanted::Off => return Ok(None),
        FabricWanted::Auto => (best_networks(), false),
        FabricWanted::Preferred(provider) => match networks_of(provider) {
            Ok(networks) => (networks, false),
            Err(problem) => {
                report_fabric_unused(observer, &format!("{}: {problem}", escape(provider.as_bytes())));
                return Ok(None);
            }
        },
        FabricWanted::Provider(provider) => (networks_of(provider).map_err(unusable(provider))?, true),
    };
    Ok(Some(InitiatorFabricList { networks, is_forced, host: memory_identity() }))
}

fn report_fabric_unused(observer: &dyn TransferObserver, why: &str) {
    observer.handle_event(&TransferEvent::Notice(UserNotice::Detail(format!("fabric: not used: {why}"))));
}

fn unusable(provider: &str) -> impl FnOnce(String) -> SessionError {
    let shown = escape(provider.as_bytes());
    move |problem| SessionError::refused(format!("--fabric {shown}: {problem}"), HINT)
}

/// Refuses a session that can't have a fabric, if the user named a provider.
pub(super) fn refuse_if_required(settings: &EndSettings, problem: &str) -> Result<(), SessionError> {
    match &settings.fabric {
        FabricWanted::Provider(provider) => Err(unusable(provider)(problem.to_owned())),
        FabricWanted::Off | FabricWanted::Auto | FabricWanted::Preferred(_) => Ok(()),
    }
}

/// Returns the networks that beat TCP. Without hardware the library, which takes time to load, is not loaded.
fn best_networks() -> Vec<FabricNetwork> {
    let has_devices = ["/sys/class/infiniband", "/sys/class/cxi"]
        .iter()
        .any(|class| fs::read_dir(class).is_ok_and(|mut devices| devices.next().is_some()));
    let offers = if has_devices { usable_offers(None).unwrap_or_default() } else { Vec::new() };
    let mut networks = Vec::new();
    for provider in BEAT_TCP {
        let of_it = offers.iter().filter(|offer| offer.provider == provider && beats_tcp(offer));
        of_it.for_each(|offer| add(&mut networks, network(provider, &offer.network)));
    }
    networks
}

/// Returns true if [`FabricWanted::Auto`] takes this offer, if the other end has it too: hardware that moves
/// bytes without the CPU. libfabric's providers over sockets, those that emulate hardware, and `shm` (more
/// CPU time than TCP takes in our measurements) are used only by name.
pub fn beats_tcp(offer: &FabricProviderDomain) -> bool {
    offer.is_usable && BEAT_TCP.contains(&&*offer.provider) && is_installed_device(&offer.domain)
}

fn networks_of(provider: &str) -> Result<Vec<FabricNetwork>, String> {
    let mut networks = Vec::new();
    for offer in usable_offers(Some(provider))? {
        add(&mut networks, network(&offer.provider, ""));
    }
    Ok(networks)
}

fn network(provider: &str, network: &str) -> FabricNetwork {
    FabricNetwork { provider: provider.to_owned(), network: network.to_owned() }
}

fn add(networks: &mut Vec<FabricNetwork>, network: FabricNetwork) {
    if !networks.contains(&network) {
        networks.push(network);
    }
}

/// Returns a value that is the same for two processes of one user that see the same shared memory and each
/// other; empty if it is unknown.
fn memory_identity() -> Vec<u8> {
    read_memory_identity().map(String::into_bytes).unwrap_or_default()
}

fn read_memory_identity() -> std::io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let memory = fs::metadata("/dev/shm")?;
    let processes = fs::read_link("/proc/self/ns/pid")?;
    let user = rustix::process::geteuid().as_raw();
    Ok(format!("{boot} {} {} {processes:?} {user}", memory.dev(), memory.ino()))
}

/// Returns the responder's choice for an initiator's request.
pub(super) fn choose(wish: Option<&InitiatorFabricList>, is_allowed: bool) -> Option<FabricChoice> {
    let wish = wish?;
    let chosen = if is_allowed { choose_network(wish) } else { Err("it is not allowed there".to_owned()) };
    Some(match chosen {
        Ok(network) => FabricChoice { network: Some(network), problem: String::new() },
        Err(problem) => FabricChoice { network: None, problem },
    })
}

fn choose_network(wish: &InitiatorFabricList) -> Result<FabricNetwork, String> {
    match wish.networks.first() {
        // An initiator that names a provider leaves the network to the library.
        Some(first) if first.network.is_empty() => check_named_provider(first, wish),
        _ if wish.is_forced => Err("no provider was named".to_owned()),
        _ => {
            let known = best_networks().into_iter().find(|network| wish.networks.contains(network));
            known.ok_or_else(|| "no RDMA network that both ends are on".to_owned())
        }
    }
}

fn check_named_provider(first: &FabricNetwork, wish: &InitiatorFabricList) -> Result<FabricNetwork, String> {
    if !is_plausible(first) {
        return Err("no provider was named".to_owned());
    }
    if first.provider == WITHIN_HOST && (wish.host.is_empty() || wish.host != memory_identity()) {
        return Err("it is for two processes of one user on one host".to_owned());
    }
    networks_of(&first.provider).map(|_| first.clone())
}

fn is_plausible(network: &FabricNetwork) -> bool {
    let FabricNetwork { provider, network } = network;
    (1..=NAME_BYTES_MAX).contains(&provider.len())
        && provider.bytes().all(|byte| byte.is_ascii_graphic())
        && network.len() <= NAME_BYTES_MAX
}

/// Returns the agreed fabric at the responder.
pub(super) fn agreed_at_responder(
    wish: Option<&InitiatorFabricList>,
    choice: Option<&FabricChoice>,
) -> Option<AgreedFabric> {
    let network = choice?.network.clone()?;
    Some(AgreedFabric { network, is_forced: wish.is_some_and(|wish| wish.is_forced) })
}

/// Returns the agreed fabric at the initiator.
pub(super) fn agreed_at_initiator(
    wish: Option<&InitiatorFabricList>,
    choice: Option<&FabricChoice>,
    observer: &dyn TransferObserver,
) -> Result<Option<AgreedFabric>, SessionError> {
    let Some(wish) = wish else { return Ok(None) };
    let problem = match choice {
        None => "the carrack at the other end knows none".to_owned(),
        Some(FabricChoice { network: None, problem }) => escape(problem.as_bytes()),
        Some(FabricChoice { network: Some(network), .. }) => {
            if !wish.networks.contains(network) {
                return Err(SessionError::Protocol("a fabric that was not offered".into()));
            }
            return Ok(Some(AgreedFabric { network: network.clone(), is_forced: wish.is_forced }));
        }
    };
    match wish.networks.first().filter(|_| wish.is_forced) {
        Some(forced) => Err(unusable(&forced.provider)(format!("at the other end: {problem}"))),
        None => {
            report_fabric_unused(observer, &problem);
            Ok(None)
        }
    }
}

/// Checks that a fabric has data connections too.
pub(super) fn check_streams(
    agreed: &mut Option<AgreedFabric>,
    streams: &[DataConnection],
) -> Result<(), SessionError> {
    match agreed {
        Some(AgreedFabric { network, is_forced: true }) if streams.is_empty() => {
            let problem = "it needs data connections beside it, and none could be made";
            Err(unusable(&network.provider)(problem.to_owned()))
        }
        agreed if streams.is_empty() => {
            *agreed = None;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The resources for which an end opens its endpoints.
pub(super) struct EndpointOpeningResources<'a> {
    pub(super) role: SessionRole,
    pub(super) streams: &'a [DataConnection],
    pub(super) placement: &'a PlacedLanes,
    /// One for each lane.
    pub(super) pools: &'a [SlotPool],
    pub(super) context: &'a SessionContext<'a>,
}

/// A lane's endpoint, and the name of the other end's.
pub(super) struct UnconnectedLaneAndPeer {
    lane: UnconnectedFabricLane,
    peer: Vec<u8>,
}

impl AgreedFabric {
    /// Marks an error as the fabric's, if a retry may help; other errors are unrelated to it.
    pub(super) fn mark_fabric_error(&self, error: SessionError) -> SessionError {
        if !error.is_retryable() || error.is_storage_fault() {
            return error;
        }
        let provider = self.network.provider.clone();
        SessionError::Over { provider, is_forced: self.is_forced, error: Box::new(error) }
    }

    /// Opens the lanes' endpoints and receives the names of the other end's; `None` if one of the ends can't.
    pub(super) fn exchange_endpoints(
        &self,
        link: &mut SessionControlLink,
        resources: &EndpointOpeningResources<'_>,
    ) -> Result<Option<Vec<UnconnectedLaneAndPeer>>, SessionError> {
        let (lanes, problem) = match self.open(resources) {
            Ok(lanes) => (lanes, String::new()),
            Err(problem) => (Vec::new(), problem),
        };
        let names = lanes.iter().map(|lane| lane.name().to_vec()).collect();
        let said = FabricEndpointsMessage { names, problem: problem.clone() };
        let heard = exchange(link, said, resources.context.settings.stall)
            .map_err(|error| self.mark_fabric_error(error))?;
        let ControlMessage::Fabric(theirs) = heard else {
            return Err(SessionError::Protocol("no word of its endpoints".into()));
        };
        let problem = match (problem.is_empty(), theirs.problem.is_empty()) {
            (true, true) if theirs.names.len() == lanes.len() => {
                if let Some(observer) = resources.context.observer {
                    let words = format!("fabric: {}", self.network.provider);
                    observer.handle_event(&TransferEvent::Notice(UserNotice::Detail(words)));
                }
                let peered = lanes
                    .into_iter()
                    .zip(theirs.names)
                    .map(|(lane, peer)| UnconnectedLaneAndPeer { lane, peer });
                return Ok(Some(peered.collect()));
            }
            (true, true) => return Err(SessionError::Protocol("endpoints for other lanes".into())),
            (false, _) => problem,
            (true, false) => format!("at the other end: {}", escape(theirs.problem.as_bytes())),
        };
        if self.is_forced {
            return Err(unusable(&self.network.provider)(problem));
        }
        if let Some(observer) = resources.context.observer {
            report_fabric_unused(observer, &format!("{}: {problem}", self.network.provider));
        }
        Ok(None)
    }

    fn open(&self, resources: &EndpointOpeningResources<'_>) -> Result<Vec<UnconnectedFabricLane>, String> {
        let address = resources.streams.first().and_then(|stream| stream.socket().local_addr().ok());
        (0..resources.pools.len())
            .map(|lane| self.open_lane(lane, resources, address.map(|at| at.ip().to_canonical())))
            .collect()
    }

    fn open_lane(
        &self,
        lane: usize,
        resources: &EndpointOpeningResources<'_>,
        source: Option<IpAddr>,
    ) -> Result<UnconnectedFabricLane, String> {
        let nodes = resources.placement.lane(lane).placement().memory;
        let FabricNetwork { provider, network } = &self.network;
        let wanted = FabricRequirements { provider, network, source, nodes: &nodes };
        let (pool, spec) = (&resources.pools[lane], &resources.context.spec);
        match resources.role {
            SessionRole::Sink => UnconnectedFabricLane::open_sink(&wanted, pool.clone()),
            // An observer of a key can read all slots that it opens: sealed objects are in a separate pool.
            SessionRole::Source if spec.protection == ProtectionLevel::Private => {
                let streams = resources.streams.len() / resources.pools.len();
                let slots = (streams * SEALED_SLOTS).min(pool.slot_count());
                let sealed = resources
                    .placement
                    .allocate_pool(lane, spec, slots)
                    .map_err(|error| text_without_errno(&error))?;
                UnconnectedFabricLane::open_source(&wanted, sealed)
            }
            SessionRole::Source => UnconnectedFabricLane::open_source(&wanted, pool.clone()),
        }
    }
}

/// Sends the outcome of opening this end's endpoints, and receives that of the other end, which opens its own
/// meanwhile.
fn exchange(
    link: &mut SessionControlLink,
    said: FabricEndpointsMessage,
    stall: Duration,
) -> Result<ControlMessage, SessionError> {
    send_message(link, ControlMessage::Fabric(said))?;
    loop {
        match receive_message(link, &control_only_pool()?, Instant::now() + stall)? {
            // It waits for an earlier session to end.
            ControlMessage::Heartbeat(_) | ControlMessage::Notice(_) => {}
            heard => return Ok(heard),
        }
    }
}

fn into_standby_connections(
    streams: Vec<DataConnection>,
    lane_count: usize,
    context: &SessionContext<'_>,
) -> Vec<Vec<FabricStreamTcpConnection>> {
    let (protection, cipher) = (context.spec.protection, context.spec.cipher);
    deal(streams.into_iter().map(|stream| stream.into_aside(protection, cipher)), lane_count)
}

/// Returns the source's progress engines, and the endpoints of their connections.
pub(super) fn source_transports(
    peered: Vec<UnconnectedLaneAndPeer>,
    streams: Vec<DataConnection>,
    context: &SessionContext<'_>,
) -> Result<Vec<LaneDataTransport<Box<dyn TransportSendEndpoint>>>, SessionError> {
    let asides = into_standby_connections(streams, peered.len(), context);
    let transports = peered.into_iter().zip(asides).map(|(UnconnectedLaneAndPeer { lane, peer }, asides)| {
        let (hub, endpoints) = lane.into_source(&peer, asides, context.settings.stall)?;
        Ok(LaneDataTransport { endpoints, hub: Some(hub) })
    });
    transports.collect()
}

/// Returns the sink's progress engines, and the endpoints of their connections.
pub(super) fn sink_transports(
    peered: Vec<UnconnectedLaneAndPeer>,
    streams: Vec<DataConnection>,
    context: &SessionContext<'_>,
) -> Result<Vec<LaneDataTransport<Box<dyn ReceiveEndpoint>>>, SessionError> {
    let asides = into_standby_connections(streams, peered.len(), context);
    let transports = peered.into_iter().zip(asides).map(|(UnconnectedLaneAndPeer { lane, peer }, asides)| {
        let (hub, endpoints) = lane.into_sink(&peer, asides, context.settings.stall)?;
        Ok(LaneDataTransport { endpoints, hub: Some(hub) })
    });
    transports.collect()
}

#[cfg(test)]
mod tests {
    use carrack_transport::ControlChannel;

    use super::*;

    fn forced(provider: &str) -> InitiatorFabricList {
        InitiatorFabricList {
            networks: vec![network(provider, "")],
            is_forced: true,
            host: memory_identity(),
        }
    }

    struct NoObserver;

    impl TransferObserver for NoObserver {
        fn handle_event(&self, _event: &TransferEvent) {}
    }

    fn told(
        wish: &InitiatorFabricList,
        choice: Option<&FabricChoice>,
    ) -> Result<Option<AgreedFabric>, SessionError> {
        agreed_at_initiator(Some(wish), choice, &NoObserver)
    }

    #[test]
    fn an_end_that_knows_no_fabric_means_tcp_or_the_end() {
        let auto = InitiatorFabricList { is_forced: false, ..forced("shm") };
        assert!(told(&auto, None).is_ok_and(|agreed| agreed.is_none()));
        let refused = told(&forced("shm"), None).unwrap_err();
        assert!(refused.to_string().contains("--fabric shm: at the other end") && refused.hint().is_some());
        assert!(choose(None, true).is_none(), "a caller that says nothing is told nothing");
    }

    #[test]
    fn what_was_not_wished_for_is_no_answer() {
        let choice = FabricChoice { network: Some(network("sockets", "")), problem: String::new() };
        assert!(matches!(told(&forced("shm"), Some(&choice)), Err(SessionError::Protocol(_))));
    }

    fn problem(wish: &InitiatorFabricList, is_allowed: bool) -> String {
        choose(Some(wish), is_allowed).unwrap().problem
    }

    #[test]
    fn the_called_end_refuses_what_it_does_not_allow_or_have() {
        assert!(problem(&forced("shm"), false).contains("not allowed"));
        assert!(!problem(&forced("no-such-provider"), true).is_empty());
        assert!(!problem(&forced("a b"), true).is_empty());
        assert!(!problem(&InitiatorFabricList { networks: Vec::new(), ..forced("shm") }, true).is_empty());
        let elsewhere = InitiatorFabricList { host: b"another".to_vec(), ..forced("shm") };
        assert!(problem(&elsewhere, true).contains("one host"));
    }

    #[test]
    fn who_prefers_a_provider_goes_on_without() {
        let fabric = FabricWanted::Preferred("no-such-provider".into());
        let preferred = EndSettings { fabric, ..EndSettings::default() };
        assert!(requested_fabrics(&preferred, false, &NoObserver).unwrap().is_none());
        assert!(refuse_if_required(&preferred, "it is within a process").is_ok());
        let auto =
            InitiatorFabricList { networks: vec![network("efa", "efa")], is_forced: false, host: Vec::new() };
        assert!(choose_network(&auto).unwrap_err().contains("both ends"), "what is not named needs hardware");
        let elsewhere = InitiatorFabricList { is_forced: false, host: b"another".to_vec(), ..forced("shm") };
        assert!(choose_network(&elsewhere).unwrap_err().contains("one host"), "what is named is looked for");
    }

    fn agreed(is_forced: bool) -> AgreedFabric {
        AgreedFabric { network: network("efa", "efa"), is_forced }
    }

    #[test]
    fn an_end_that_stands_still_while_endpoints_are_opened_is_noticed_in_time() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let channel = ControlChannel::Pipes { input: ours.try_clone().unwrap().into(), output: ours.into() };
        let mut link = SessionControlLink::new(channel, 1 << 20).unwrap();
        let ended = exchange(&mut link, FabricEndpointsMessage::default(), Duration::from_millis(300));
        let error = agreed(false).mark_fabric_error(ended.unwrap_err());
        assert!(error.is_retryable() && error.should_retry_over_tcp(), "{error}");
        assert!(error.to_string().starts_with("over efa: the other end has been silent"), "{error}");
        assert!(!agreed(true).mark_fabric_error(SessionError::PeerGone).should_retry_over_tcp());
        let full = SessionError::NoSpace { path: "x".into(), detail: "full".into() };
        assert!(
            matches!(agreed(false).mark_fabric_error(full), SessionError::NoSpace { .. }),
            "no fault of the fabric's"
        );
    }

    #[test]
    fn without_data_connections_there_is_none() {
        let mut auto = Some(agreed(false));
        assert!(check_streams(&mut auto, &[]).is_ok() && auto.is_none());
        assert!(check_streams(&mut Some(agreed(true)), &[]).is_err());
    }
}
