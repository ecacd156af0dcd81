//! The ends of chunks and of the session: links, metadata of directories, modes, and the last commit.
//!
//! One I/O thread ends a lane. The thread of the first lane ends last, and does the work that concerns all
//! lanes.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use carrack_model::{RelPath, TransferEvent, UserNotice};
use carrack_storage::{HardLinkCreationContext, RestoredDirectorySelection};
use carrack_wire::message::{ChunkNumberMessage, ControlMessage};

use super::committer::GroupCommitter;
use super::context::SinkContext;
use super::directory_access::{grant_access, restore_modes_and_report};
use super::entry_replacement::EntryReplacement;
use super::lane::{SinkCommThreadRequest, SinkLane};
use crate::counters::ThreadActivity;
use crate::error::SessionError;

/// Ends a chunk after the acks of all its objects: returns when it is durable and recorded. The report of
/// lost metadata comes before the message that ends the chunk.
pub(super) fn finish_chunk(lane: &SinkLane<'_>, number: u64) -> Result<(), SessionError> {
    lane.counters.time(ThreadActivity::Storage, || lane.sink.committer()?.commit_and_wait())?;
    report_metadata_losses(lane);
    lane.send_message(ControlMessage::Settled(ChunkNumberMessage { number }));
    Ok(())
}

/// Ends a lane after its last write. `is_complete`: no entry failed.
pub(super) fn finish(lane: &SinkLane<'_>, is_complete: bool) -> Result<(), SessionError> {
    let done = if lane.leads { finish_session(lane, is_complete)? } else { 0 };
    if let Some(committer) = &lane.sink.committer {
        lane.counters.time(ThreadActivity::Storage, || committer.finish(done > 0))?;
    }
    let _ = lane.mail.post(SinkCommThreadRequest::Finished);
    Ok(())
}

/// Returns the number of links and directories that were done.
fn finish_session(lane: &SinkLane<'_>, is_complete: bool) -> Result<u64, SessionError> {
    assert!(lane.leads, "the first lane ends what is all lanes'");
    if let (true, Some(past), Some(root)) =
        (is_complete, &lane.sink.history.past, &lane.sink.destination.root)
    {
        past.remove_unresumed_files(root);
    }
    let links = make_links(lane, is_complete)?;
    // Other modes are restored after the directories have their metadata.
    restore_modes_and_report(lane, RestoredDirectorySelection::Open)?;
    let directories = set_directories(lane)?;
    restore_modes_and_report(lane, RestoredDirectorySelection::All)?;
    report_metadata_losses(lane);
    report_time_problems(lane);
    Ok(links + directories)
}

/// Makes the hard links to files.
fn make_links(lane: &SinkLane<'_>, is_complete: bool) -> Result<u64, SessionError> {
    let sink = lane.sink;
    let Some(links) = sink.spools.take_links() else { return Ok(0) };
    let (mut failures, mut ended) = (Vec::new(), Ok(()));
    let ways = HardLinkCreationContext {
        scratch: &sink.destination.scratch,
        times: &sink.attributes.times,
        losses: sink.attributes.keeper.losses(),
        grant: &|directory| grant_access(sink, directory),
        syncs: sink.committer.as_ref().is_some_and(GroupCommitter::syncs_before_naming),
        has_all: is_complete,
    };
    let counts = links.finish(
        &ways,
        |held, directory, name| {
            let made = EntryReplacement::new(lane).remove_blocking_directory(held, directory, name);
            made.unwrap_or_else(|error| {
                ended = Err(error);
                false
            })
        },
        |failure| failures.push(failure),
    );
    lane.counters.files_done.fetch_add(counts.made, Relaxed);
    lane.counters.entries_kept.fetch_add(counts.present, Relaxed);
    ended.and(failures.into_iter().try_for_each(|failure| lane.fail(failure)))?;
    Ok(counts.made)
}

/// Sets the metadata of directories and the flags of files.
fn set_directories(lane: &SinkLane<'_>) -> Result<u64, SessionError> {
    lane.sink.history.check_takeover()?;
    let Some(spool) = lane.sink.spools.take_directories() else { return Ok(0) };
    let mut failures = Vec::new();
    let done = spool.finish(&lane.sink.attributes.times, |failure| failures.push(failure));
    lane.counters.directories_done.fetch_add(done, Relaxed);
    failures.into_iter().try_for_each(|failure| lane.fail(failure))?;
    Ok(done)
}

/// Reports metadata that the destination can't keep, each kind once.
fn report_metadata_losses(lane: &SinkLane<'_>) {
    for loss in lane.sink.attributes.keeper.losses().take() {
        lane.report(TransferEvent::Notice(UserNotice::Loss(loss)));
    }
}

/// Reports times that the destination does not store as announced.
fn report_time_problems(lane: &SinkLane<'_>) {
    let SinkContext { attributes, destination, .. } = lane.sink;
    if attributes.times.has_refused() {
        let text = "the destination's file system sets no times: files that are later there and have the source's size were taken as equal; -c compares contents";
        lane.report(TransferEvent::Notice(UserNotice::Warning(text.to_owned())));
    }
    let looked = destination.root.as_ref().filter(|_| attributes.keeper.losses().cuts_times());
    let held = looked.and_then(|root| root.open_directory(&RelPath::root()).ok());
    if let Some(granularity) = held.and_then(|held| attributes.times.coarse_granularity(held.as_fd())) {
        let text = format!("the destination's file system stores times to {granularity}");
        lane.report(TransferEvent::Notice(UserNotice::Text(text)));
    }
}
