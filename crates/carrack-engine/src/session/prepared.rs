//! An end before the session is established: its storage was examined, and the place of the tree is decided.

use std::os::fd::AsFd;
use std::path::PathBuf;

use carrack_layout::FileSystems;
use carrack_model::{Arrival, Event, Kept, LinkPolicy, Nesting, Notice, Side, TransferSpec};
use carrack_storage::Base;
use carrack_transport::Stream;
use carrack_wire::message::{Place, SinkState};

use super::confine::confinement_of;
use super::destination::{Destination, OpenDestination, SinkFacts};
use super::place::PlaceRoot;
use super::sources::{Sources, resolve};
use super::wait::Wait;
use crate::error::SessionError;
use crate::placement::LaneDemand;
use crate::report::{Observer, lacking};
use crate::role::Role;
use crate::settings::Settings;
use crate::sink::{SinkPlace, SinkSetup};
use crate::source::{RootStorage, SinkCapacity, SourceSetup};

/// The end of this process, if the other end is another process.
pub(super) enum PreparedEnd {
    Source(Box<PreparedSource>),
    Sink(Box<PreparedSink>),
}

/// A source whose roots are open.
pub(super) struct PreparedSource {
    pub(super) setup: SourceSetup,
    pub(super) arrival: Arrival,
    /// Notices about the sources, for the user.
    pub(super) notices: Vec<Notice>,
    place: PlaceRoot,
}

/// A sink with the place of the tree.
pub(super) struct PreparedSink {
    /// It has the destination's root after [`PreparedSink::open`].
    pub(super) setup: SinkSetup,
    destination: Destination,
    place: PlaceRoot,
}

impl PreparedSource {
    /// Examines the sources, and decides on their place at a destination like `sink`.
    pub(super) fn new(
        base: &Base,
        paths: &[PathBuf],
        spec: &TransferSpec,
        settings: &Settings,
        file_systems: FileSystems,
        sink: Option<&SinkState>,
    ) -> Result<PreparedSource, SessionError> {
        let sink = sink.ok_or_else(|| SessionError::Protocol("nothing about the destination".into()))?;
        let sink = SinkFacts::from_message(sink)?;
        let follows = settings.selection.links == LinkPolicy::Followed;
        let mut sources = resolve(base, paths, spec, follows, &sink)?;
        sources.keep_record(spec, settings.begun)?;
        let looking = SessionError::local("looking at the source's storage");
        let storage = RootStorage::of(&file_systems, &sources.roots).map_err(looking)?;
        let Sources { roots, place, arrival, failures, notices, destination, record } = sources;
        let setup = SourceSetup {
            file_systems,
            storage,
            roots,
            record,
            feed: None,
            failures,
            destination,
            sink: SinkCapacity {
                credits: sink.credits,
                open_files: sink.open_files,
                has_targets: sink.has_targets,
            },
            sink_resumes: sink.resumes,
            kept: settings.fidelity.kept.and(sink.kept),
        };
        Ok(PreparedSource { setup, arrival, notices, place })
    }

    pub(super) fn report_notices(&self, observer: &dyn Observer) {
        self.notices.iter().for_each(|notice| observer.event(&Event::Notice(notice.clone())));
    }

    /// Returns the place of the tree, for the sink.
    pub(super) fn place_message(&self) -> Place {
        Place {
            root: match self.place {
                PlaceRoot::Destination => 0,
                PlaceRoot::NewDestination => 1,
                PlaceRoot::Parent => 2,
            },
            name: self.arrival.name.as_deref().map(<[u8]>::to_vec),
            nesting: match self.arrival.nesting {
                Nesting::Never => 0,
                Nesting::Inside => 1,
                Nesting::NextTime => 2,
            },
        }
    }
}

impl PreparedSink {
    /// Takes the place that the source names. `asked` are the sources as typed, if this end named them: a
    /// source may send nothing else.
    pub(super) fn new(
        destination: Destination,
        spec: &TransferSpec,
        place: &Place,
        asked: Option<&[PathBuf]>,
    ) -> Result<PreparedSink, SessionError> {
        let place = match place.root {
            0 => PlaceRoot::Destination,
            1 => PlaceRoot::NewDestination,
            2 => PlaceRoot::Parent,
            _ => return Err(SessionError::Protocol("no place for the tree".into())),
        };
        if !destination.allows(place) {
            return Err(SessionError::Protocol("the source would write beside the destination".into()));
        }
        let setup = SinkSetup {
            place: SinkPlace {
                root: None,
                seen: None,
                storage: destination.storage(),
                confinement: confinement_of(destination.facts(), place, asked, spec.no_target_directory),
            },
            resumes: destination.resumes(),
            records: None,
            warnings: Vec::new(),
        };
        Ok(PreparedSink { setup, destination, place })
    }

    /// Opens the destination, and creates it if necessary; a dry run reads at most. Called when the data has
    /// a connection.
    pub(super) fn open(&mut self, spec: &TransferSpec, wait: &mut Wait<'_>) -> Result<(), SessionError> {
        assert!(self.setup.place.root.is_none(), "a destination is opened once");
        if !spec.dry_run {
            let OpenDestination { root, records, warnings } = self.destination.open(self.place, wait)?;
            (self.setup.place.root, self.setup.records, self.setup.warnings) =
                (Some(root.into()), records, warnings);
        } else if spec.sync.is_some() {
            self.setup.place.seen = self.destination.glance(self.place)?.map(Into::into);
        }
        Ok(())
    }
}

impl PreparedEnd {
    /// Opens the destination of a sink.
    pub(super) fn open(&mut self, spec: &TransferSpec, wait: &mut Wait<'_>) -> Result<(), SessionError> {
        match self {
            PreparedEnd::Source(_) => Ok(()),
            PreparedEnd::Sink(sink) => sink.open(spec, wait),
        }
    }

    /// Returns the demand of its lanes.
    pub(super) fn demand<'a>(
        &'a self,
        settings: &Settings,
        streams: &'a [Stream],
        lane_count: usize,
    ) -> LaneDemand<'a> {
        assert!(lane_count > 0, "an end has a lane");
        let (side, depth, directories) = match self {
            PreparedEnd::Source(source) => {
                let directories = source.setup.roots.iter().map(|root| root.root.as_ref().as_fd()).collect();
                (Side::Source, source.setup.storage.depth, directories)
            }
            PreparedEnd::Sink(sink) => {
                let directories = sink.setup.place.root.iter().map(|root| root.as_fd()).collect();
                (Side::Sink, sink.setup.place.storage.depth(), directories)
            }
        };
        let io_threads = settings.io_thread_count(depth).max(streams.len());
        LaneDemand { side, lane_count, io_threads, streams, directories }
    }

    pub(super) fn role(&self) -> Role {
        match self {
            PreparedEnd::Source(_) => Role::Source,
            PreparedEnd::Sink(_) => Role::Sink,
        }
    }
}

/// Returns the event for the place that the source names.
pub(super) fn placed(message: Place) -> Event {
    Event::Placed(Arrival {
        name: message.name.map(Vec::into_boxed_slice),
        nesting: match message.nesting {
            1 => Nesting::Inside,
            2 => Nesting::NextTime,
            _ => Nesting::Never,
        },
    })
}

/// Reports to the observer the metadata that a source at the other end does not send.
pub(super) fn tell_lacking(settings: &Settings, kept: u32, observer: &dyn Observer) {
    let notice = lacking(settings.fidelity.kept, Kept::from_bits(kept), "source");
    notice.into_iter().for_each(|notice| observer.event(&Event::Notice(notice)));
}
