//! Both ends in this process: the same engine at each, every lane joined by a link and endpoints of its own.

use std::thread;

use carrack_model::limits::STREAMS_NEAR;
use carrack_model::{Event, LinkPolicy, Side, TransferSpec};
use carrack_storage::Base;
use carrack_transport::{Link, ReceiveEndpoint, SendEndpoint, loopback_pair};

use super::confine::Confinement;
use super::destination::{Destination, SinkFacts};
use super::keeping::Keeping;
use super::lanes::{agree, link_pair, wish};
use super::sources::resolve;
use super::wait::Wait;
use super::{Ended, SinkPart, SourcePart, Terms, Way, fabric, lane_pools, lane_starts, report_notices};
use crate::abort::Abort;
use crate::counters::BothEnds;
use crate::error::{STARTING_A_THREAD, SessionError};
use crate::ground::{Ground, Load};
use crate::lanes::cause;
use crate::report::Observer;
use crate::settings::Transfer;
use crate::sharing::Share;

pub(super) fn run(
    transfer: &Transfer,
    observer: &dyn Observer,
    abort: &Abort,
) -> Result<Ended, SessionError> {
    let spec = &transfer.spec;
    let settings = &transfer.settings.within_memory(2, spec.slot_bytes)?;
    settings.tell_smaller_pool(observer);
    fabric::refuse(settings, "both ends are in this process, where objects are not copied at all")?;
    let kept = Keeping::of(settings, transfer.identity.as_ref());
    let mut destination = Destination::look(&Base::Anywhere, &transfer.destination, settings, kept)?;
    let slot_count = settings.slot_count(spec.slot_bytes);
    let sink_facts = SinkFacts::from_message(&destination.to_message(slot_count))?;
    let follows = settings.selection.links == LinkPolicy::Followed;
    let mut sources = resolve(&Base::Anywhere, &transfer.sources, spec, follows, &sink_facts)?;
    sources.keep_record(spec, transfer.settings.begun)?;
    let place = sources.place;
    observer.event(&Event::Placed(sources.arrival.clone()));
    let asked = Some(&*transfer.sources);
    let confinement = Confinement::of(destination.facts(), place, asked, spec.no_target_directory);
    let storage = destination.storage();
    let (root, records, warnings) = match spec.dry_run {
        true => (None, None, Vec::new()),
        false => {
            let opened = destination.open(place, &mut Wait::new(None, Some(observer), abort))?;
            (Some(opened.root), opened.records, opened.warnings)
        }
    };
    let glances = spec.dry_run && spec.sync.is_some();
    let seen = if glances { destination.glance(place)? } else { None };
    let sink = SinkPart { root, seen, records, warnings, destination, place, confinement, storage };
    let source = SourcePart::new(sources, sink_facts, settings.file_systems(&Base::Anywhere)?)?;

    let ground = Ground::look(settings);
    let (reads, writes) = (source.storage.depth, sink.storage.depth());
    let wish = |depth| wish(settings, ground.places(), depth, spec.slot_bytes);
    let lane_count = agree(wish(reads), wish(writes));
    // Both ends stand on one machine: one camp serves the two, lane by lane.
    let io_threads = settings.io_thread_count(reads.max(writes));
    let load = Load { side: Side::Source, lane_count, io_threads, streams: &[], directories: Vec::new() };
    let camp = ground.settle(&load)?;
    let pools = || lane_pools(&camp, settings, spec, lane_count);
    let (source_links, sink_links) = local_links(spec.slot_bytes, lane_count)?;
    let (senders, receivers) = local_endpoints(spec, lane_count)?;
    let sink_lanes = lane_starts(sink_links, pools()?, &camp, Way::deal(receivers, lane_count));
    let source_lanes = lane_starts(source_links, pools()?, &camp, Way::deal(senders, lane_count));
    observer.event(&Event::Connected {
        streams: 0,
        lanes: lane_count as u32,
        transport: "local",
        protection: None,
        cipher: None,
    });
    report_notices(&source.sources, Some(observer));
    // Both ends take their turns as one.
    let share = Share::begin(settings)?;
    let terms = |observer| {
        let (feed, share) = (transfer.feed.clone(), share.clone());
        Terms { spec: spec.clone(), settings, observer, abort, feed, share }
    };
    let both_ends = || {
        thread::scope(|scope| {
            let sinking = thread::Builder::new()
                .name("carrack-comm".into())
                .spawn_scoped(scope, || sink.run(sink_lanes, &camp, &terms(None)))
                .map_err(SessionError::local(STARTING_A_THREAD))?;
            let (told, source_result) = source.run(source_lanes, &camp, &terms(Some(observer)));
            let (counted, sink_result) = sinking.join().unwrap_or((told, Err(SessionError::Internal)));
            // What the sink counted itself is complete, also when the session failed.
            Ok((BothEnds { sink: counted.sink, ..told }, cause(source_result, sink_result)))
        })
    };
    camp.watched(both_ends)
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
