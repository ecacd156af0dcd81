//! Both ends in this process: the same engine at each, every lane joined by a link and endpoints of its own.

use std::sync::Arc;
use std::thread;

use carrack_model::limits::STREAMS_NEAR;
use carrack_model::{Event, Side, TransferSpec};
use carrack_transport::{Link, ReceiveEndpoint, SendEndpoint, loopback_pair};

use super::confine::Confinement;
use super::destination::{Destination, SinkFacts};
use super::lanes::{agree, link_pair, wish};
use super::sources::resolve;
use super::{Ended, lane_pools, lane_starts, open_root, report_notices};
use crate::abort::Abort;
use crate::counters::BothEnds;
use crate::error::SessionError;
use crate::ground::{Ground, Load};
use crate::lanes::cause;
use crate::report::Observer;
use crate::settings::Transfer;
use crate::sink::{self, SinkStart};
use crate::source::{self, RootStorage, SourceStart};

pub(super) fn run(
    transfer: &Transfer,
    observer: &dyn Observer,
    abort: &Abort,
) -> Result<Ended, SessionError> {
    let (spec, settings) = (&transfer.spec, &transfer.settings);
    settings.check_pool()?;
    let destination = Destination::look(&transfer.destination, settings)?;
    let slot_count = settings.slot_count(spec.slot_bytes);
    let sink_facts = SinkFacts::from_message(&destination.to_message(slot_count))?;
    let sources = resolve(&transfer.sources, spec.recursive, &sink_facts)?;
    let root = open_root(&destination, sources.place, spec)?;
    let ground = Ground::look(settings);
    let file_systems = settings.file_systems()?;
    let storage = RootStorage::of(&file_systems, &sources.roots)
        .map_err(SessionError::local("looking at the source's storage"))?;
    let wish = |depth| wish(settings, ground.places(), depth, spec.slot_bytes);
    let lane_count = agree(wish(storage.depth), wish(destination.storage().depth()));
    // Both ends stand on one machine: one camp serves the two, lane by lane.
    let io_threads = settings.io_thread_count(storage.depth.max(destination.storage().depth()));
    let load = Load { side: Side::Source, lane_count, io_threads, streams: &[], directories: Vec::new() };
    let camp = ground.settle(&load)?;
    let pools = || lane_pools(&camp, settings, spec, lane_count);
    let (source_links, sink_links) = local_links(spec.slot_bytes, lane_count)?;
    let (senders, receivers) = local_endpoints(spec, lane_count)?;
    observer.event(&Event::Connected { streams: 0, lanes: lane_count as u32, transport: "local" });
    report_notices(&sources, Some(observer));
    let sink_start = SinkStart {
        lanes: lane_starts(sink_links, pools()?, &camp, receivers.into_iter()),
        camp: &camp,
        spec: spec.clone(),
        settings,
        root: root.map(Arc::new),
        storage: destination.storage(),
        confinement: Confinement::of(destination.facts(), sources.place, Some(&transfer.sources)),
        observer: None,
    };
    let source_start = SourceStart {
        lanes: lane_starts(source_links, pools()?, &camp, senders.into_iter()),
        camp: &camp,
        spec: spec.clone(),
        settings,
        file_systems,
        storage,
        roots: sources.roots,
        failures: sources.failures,
        destination: sources.destination,
        credits: sink_facts.credits / lane_count as u32,
        sink_has_targets: sink_facts.has_targets,
        observer: Some(observer),
    };
    let both_ends = || {
        thread::scope(|scope| {
            let sinking = scope.spawn(|| sink::run(sink_start, abort));
            let (both, source_result) = source::run(source_start, abort);
            let (_, sink_result) =
                sinking.join().unwrap_or((BothEnds::default(), Err(SessionError::Internal)));
            (both, cause(source_result, sink_result))
        })
    };
    Ok(camp.watched(both_ends))
}

fn local_links(slot_bytes: u32, lane_count: usize) -> Result<(Vec<Link>, Vec<Link>), SessionError> {
    let pairs = (0..lane_count).map(|_| link_pair(slot_bytes));
    Ok(pairs.collect::<Result<Vec<_>, _>>()?.into_iter().unzip())
}

type Endpoints = (Vec<Box<dyn SendEndpoint>>, Vec<Box<dyn ReceiveEndpoint>>);

fn local_endpoints(spec: &TransferSpec, lane_count: usize) -> Result<Endpoints, SessionError> {
    let mut endpoints: Endpoints = Default::default();
    let for_lane =
        if spec.streams == 0 { STREAMS_NEAR.into() } else { usize::from(spec.streams).div_ceil(lane_count) };
    for _ in 0..for_lane * lane_count {
        let (sender, receiver) = loopback_pair().map_err(SessionError::local("connecting both ends"))?;
        endpoints.0.push(Box::new(sender));
        endpoints.1.push(Box::new(receiver));
    }
    Ok(endpoints)
}
