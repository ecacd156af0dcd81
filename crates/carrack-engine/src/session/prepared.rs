//! An end before the session is established: its storage was examined, and the place of the tree is decided.

use std::os::fd::AsFd;
use std::path::PathBuf;

use carrack_layout::FileSystems;
use carrack_model::{
    AgreedTransferSpec, FailureSide, KeptMetadata, LinkPolicy, RepeatEffect, ResolvedDestination,
    TransferEvent, UserNotice,
};
use carrack_storage::PathBase;
use carrack_transport::DataConnection;
use carrack_wire::message::{DestinationRootMessage, SinkHandshakeFacts};

use super::destination::{InspectedDestination, OpenDestinationRoot, SinkFacts};
use super::destination_place::DestinationBaseDirectory;
use super::sources::{TransferSources, resolve};
use super::wait_heartbeats::WaitHeartbeatRecipients;
use super::writable_names::confinement_of;
use crate::error::SessionError;
use crate::event_delivery::{TransferObserver, unsupported_metadata_notice};
use crate::placement::LanePlacementDemand;
use crate::role::SessionRole;
use crate::settings::EndSettings;
use crate::sink::{DestinationDirectory, SinkSetup};
use crate::source::{SinkObjectCapacity, SourceSetup, SourceStorageFacts};

/// The end of this process, if the other end is another process.
pub(super) enum PreparedEnd {
    Source(Box<PreparedSource>),
    Sink(Box<PreparedSink>),
}

/// A source whose roots are open.
pub(super) struct PreparedSource {
    pub(super) setup: SourceSetup,
    pub(super) arrival: ResolvedDestination,
    /// Notices about the sources, for the user.
    pub(super) notices: Vec<UserNotice>,
    place: DestinationBaseDirectory,
}

/// A sink with the place of the tree.
pub(super) struct PreparedSink {
    /// It has the destination's root after [`PreparedSink::open`].
    pub(super) setup: SinkSetup,
    destination: InspectedDestination,
    place: DestinationBaseDirectory,
}

impl PreparedSource {
    /// Examines the sources, and decides on their place at a destination like `sink`.
    pub(super) fn new(
        base: &PathBase,
        paths: &[PathBuf],
        spec: &AgreedTransferSpec,
        settings: &EndSettings,
        file_systems: FileSystems,
        sink: Option<&SinkHandshakeFacts>,
    ) -> Result<PreparedSource, SessionError> {
        let sink = sink.ok_or_else(|| SessionError::Protocol("nothing about the destination".into()))?;
        let sink = SinkFacts::from_message(sink)?;
        let follows = settings.selection.links == LinkPolicy::Followed;
        let mut sources = resolve(base, paths, spec, follows, &sink)?;
        sources.prepare_deletion_proof(spec, settings.begun)?;
        let looking = SessionError::local("looking at the source's storage");
        let storage = SourceStorageFacts::of(&file_systems, &sources.roots).map_err(looking)?;
        let TransferSources { roots, place, arrival, failures, notices, destination, record } = sources;
        let setup = SourceSetup {
            file_systems,
            storage,
            roots,
            record,
            feed: None,
            failures,
            destination,
            sink: SinkObjectCapacity {
                credits: sink.credits,
                open_files: sink.open_files,
                has_targets: sink.has_targets,
                object_bytes: sink.object_bytes,
                takes_confirmations: sink.takes_confirmations,
            },
            sink_resumes: sink.resumes,
            kept: settings.fidelity.kept.intersection(sink.kept),
        };
        Ok(PreparedSource { setup, arrival, notices, place })
    }

    pub(super) fn report_notices(&self, observer: &dyn TransferObserver) {
        self.notices.iter().for_each(|notice| observer.handle_event(&TransferEvent::Notice(notice.clone())));
    }

    /// Returns the place of the tree, for the sink.
    pub(super) fn place_message(&self) -> DestinationRootMessage {
        DestinationRootMessage {
            root: match self.place {
                DestinationBaseDirectory::Destination => 0,
                DestinationBaseDirectory::NewDestination => 1,
                DestinationBaseDirectory::Parent => 2,
            },
            name: self.arrival.name.as_deref().map(<[u8]>::to_vec),
            nesting: match self.arrival.nesting {
                RepeatEffect::Never => 0,
                RepeatEffect::Inside => 1,
                RepeatEffect::NextTime => 2,
            },
        }
    }
}

impl PreparedSink {
    /// Takes the place that the source names. `asked` are the sources as typed, if this end named them: a
    /// source may send nothing else.
    pub(super) fn new(
        destination: InspectedDestination,
        spec: &AgreedTransferSpec,
        place: &DestinationRootMessage,
        asked: Option<&[PathBuf]>,
    ) -> Result<PreparedSink, SessionError> {
        let place = match place.root {
            0 => DestinationBaseDirectory::Destination,
            1 => DestinationBaseDirectory::NewDestination,
            2 => DestinationBaseDirectory::Parent,
            _ => return Err(SessionError::Protocol("no place for the tree".into())),
        };
        if !destination.allows(place) {
            return Err(SessionError::Protocol("the source would write beside the destination".into()));
        }
        let setup = SinkSetup {
            place: DestinationDirectory {
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
    pub(super) fn open(
        &mut self,
        spec: &AgreedTransferSpec,
        wait: &mut WaitHeartbeatRecipients<'_>,
    ) -> Result<(), SessionError> {
        assert!(self.setup.place.root.is_none(), "a destination is opened once");
        if !spec.dry_run {
            let OpenDestinationRoot { root, records, warnings } = self.destination.open(self.place, wait)?;
            (self.setup.place.root, self.setup.records, self.setup.warnings) =
                (Some(root.into()), records, warnings);
        } else if spec.sync.is_some() {
            self.setup.place.seen = self.destination.open_existing_root(self.place)?.map(Into::into);
        }
        Ok(())
    }
}

impl PreparedEnd {
    /// Opens the destination of a sink.
    pub(super) fn open(
        &mut self,
        spec: &AgreedTransferSpec,
        wait: &mut WaitHeartbeatRecipients<'_>,
    ) -> Result<(), SessionError> {
        match self {
            PreparedEnd::Source(_) => Ok(()),
            PreparedEnd::Sink(sink) => sink.open(spec, wait),
        }
    }

    /// Returns the demand of its lanes.
    pub(super) fn demand<'a>(
        &'a self,
        settings: &EndSettings,
        streams: &'a [DataConnection],
        lane_count: usize,
    ) -> LanePlacementDemand<'a> {
        assert!(lane_count > 0, "an end has a lane");
        let (side, depth, directories) = match self {
            PreparedEnd::Source(source) => {
                let directories = source.setup.roots.iter().map(|root| root.root.as_ref().as_fd()).collect();
                (FailureSide::Source, source.setup.storage.depth, directories)
            }
            PreparedEnd::Sink(sink) => {
                let directories = sink.setup.place.root.iter().map(|root| root.as_fd()).collect();
                (FailureSide::Sink, sink.setup.place.storage.depth(), directories)
            }
        };
        let io_threads = settings.io_thread_count(depth).max(streams.len());
        LanePlacementDemand { side, lane_count, io_threads, streams, directories }
    }

    pub(super) fn role(&self) -> SessionRole {
        match self {
            PreparedEnd::Source(_) => SessionRole::Source,
            PreparedEnd::Sink(_) => SessionRole::Sink,
        }
    }
}

/// Returns the event for the place that the source names.
pub(super) fn placed_event(message: DestinationRootMessage) -> TransferEvent {
    TransferEvent::Placed(ResolvedDestination {
        name: message.name.map(Vec::into_boxed_slice),
        nesting: match message.nesting {
            1 => RepeatEffect::Inside,
            2 => RepeatEffect::NextTime,
            _ => RepeatEffect::Never,
        },
    })
}

/// Reports to the observer the metadata that a source at the other end does not send.
pub(super) fn report_unsupported_metadata(
    settings: &EndSettings,
    kept: u32,
    observer: &dyn TransferObserver,
) {
    let notice = unsupported_metadata_notice(settings.fidelity.kept, KeptMetadata::from_bits(kept), "source");
    notice.into_iter().for_each(|notice| observer.handle_event(&TransferEvent::Notice(notice)));
}
