//! Both ends in this process: the same engine at each, joined by a socket pair and in-process endpoints.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use carrack_model::limits::STREAMS_NEAR;
use carrack_model::{Event, TransferSpec};
use carrack_transport::{Link, ReceiveEndpoint, SendEndpoint, loopback_pair};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::confine::Confinement;
use super::destination::{Destination, SinkFacts};
use super::sources::resolve;
use super::{Ended, new_pool, open_root, report_notices};
use crate::abort::Abort;
use crate::counters::BothEnds;
use crate::error::SessionError;
use crate::report::Observer;
use crate::settings::Transfer;
use crate::sink::{self, SinkStart};
use crate::source::{self, SourceStart};

pub(super) fn run(
    transfer: &Transfer,
    observer: &dyn Observer,
    abort: &Abort,
) -> Result<Ended, SessionError> {
    let (spec, settings) = (&transfer.spec, &transfer.settings);
    let pool = new_pool(spec, settings)?;
    let destination = Destination::look(&transfer.destination, settings)?;
    let sink_facts = SinkFacts::from_message(&destination.to_message(pool.slot_count() as u32))?;
    let sources = resolve(&transfer.sources, spec.recursive, &sink_facts)?;
    let root = open_root(&destination, sources.place, spec)?;
    let (source_link, sink_link) = local_links(spec.slot_bytes)?;
    let (senders, receivers) = local_endpoints(spec)?;
    observer.event(&Event::Connected { streams: 0, transport: "local" });
    report_notices(&sources, Some(observer));
    let sink_start = SinkStart {
        link: sink_link,
        endpoints: receivers,
        spec: spec.clone(),
        settings,
        root: root.map(Arc::new),
        storage: destination.storage(),
        confinement: Confinement::of(destination.facts(), sources.place, Some(&transfer.sources)),
        pool,
        observer: None,
    };
    let source_start = SourceStart {
        link: source_link,
        endpoints: senders,
        spec: spec.clone(),
        settings,
        pool: new_pool(spec, settings)?,
        roots: sources.roots,
        failures: sources.failures,
        destination: sources.destination,
        credits: sink_facts.credits,
        sink_has_targets: sink_facts.has_targets,
        observer: Some(observer),
    };
    Ok(thread::scope(|scope| {
        let sinking = scope.spawn(|| sink::run(sink_start, abort));
        let (both, source_result) = source::run(source_start, abort);
        let (_, sink_result) = sinking.join().unwrap_or((BothEnds::default(), Err(SessionError::Internal)));
        (both, first_cause(source_result, sink_result))
    }))
}

/// Of two ends that failed, one did so because the other had.
fn first_cause(source: Result<(), SessionError>, sink: Result<(), SessionError>) -> Result<(), SessionError> {
    match (source, sink) {
        (Err(SessionError::PeerAborted { .. } | SessionError::PeerGone), Err(cause)) => Err(cause),
        (Err(cause), _) | (Ok(()), Err(cause)) => Err(cause),
        (Ok(()), Ok(())) => Ok(()),
    }
}

fn local_links(slot_bytes: u32) -> Result<(Link, Link), SessionError> {
    let make = || -> std::io::Result<(Link, Link)> {
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let link = |fd: OwnedFd| Link::new(fd.try_clone()?, fd, slot_bytes);
        Ok((link(here)?, link(there)?))
    };
    make().map_err(SessionError::local("connecting both ends"))
}

type Endpoints = (Vec<Box<dyn SendEndpoint>>, Vec<Box<dyn ReceiveEndpoint>>);

fn local_endpoints(spec: &TransferSpec) -> Result<Endpoints, SessionError> {
    let mut endpoints: Endpoints = Default::default();
    let stream_count = if spec.streams == 0 { STREAMS_NEAR } else { spec.streams };
    for _ in 0..stream_count {
        let (sender, receiver) = loopback_pair().map_err(SessionError::local("connecting both ends"))?;
        endpoints.0.push(Box::new(sender));
        endpoints.1.push(Box::new(receiver));
    }
    Ok(endpoints)
}
