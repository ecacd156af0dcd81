//! Events on their way to the user: directly to the observer at the end that the user started, and as control
//! messages from the other end.

use std::time::Duration;

use carrack_layout::FileSystems;
use carrack_model::limits::LANES_MAX;
use carrack_model::{
    EntryFailure, FailureKind, FailureSide, KeptMetadata, LaneReport, LargeFileProgress, MetadataLoss,
    MetadataLossKind, SIZE_CLASSES, SourceReport, StageFill, StorageDelay, TargetReport, TransferEvent,
    UserNotice, escape,
};
use carrack_plan::TargetQueues;
use carrack_wire::message::{self, ControlMessage};

/// Targets in one report: the message is far smaller than the largest control message.
const TARGETS_TOLD_MAX: usize = 1_000;

/// Large files of a kind in one report: enough to see the files that delay a transfer, and small compared
/// with an object.
pub(crate) const FILES_TOLD_MAX: usize = 10;

/// The observer of a transfer. Called from several threads; a call that takes long delays the transfer.
pub trait TransferObserver: Send + Sync {
    /// Handles an event.
    fn handle_event(&self, event: &TransferEvent);
}

/// Delivers an event to the observer if this end has one, and otherwise by `say` to the end that has one.
pub(crate) fn deliver(
    event: TransferEvent,
    observer: Option<&dyn TransferObserver>,
    say: impl FnOnce(ControlMessage),
) {
    match observer {
        Some(observer) => observer.handle_event(&event),
        None => {
            if let Some(message) = to_message(event) {
                say(message);
            }
        }
    }
}

/// Returns the message for an event to the end that the user started, or `None` if it stays here.
pub(crate) fn to_message(event: TransferEvent) -> Option<ControlMessage> {
    Some(match event {
        TransferEvent::Failed(failure) => ControlMessage::Failure(message::FailureMessage {
            path: failure.path.into(),
            kind: failure.kind as u32,
            detail: failure.detail,
        }),
        TransferEvent::Notice(notice) => ControlMessage::Notice(notice_to_message(notice)),
        TransferEvent::FileDigest { path, size, digest } => {
            ControlMessage::Digest(message::DigestMessage { path: path.into(), size, blake3: digest.into() })
        }
        TransferEvent::WouldCopy { path, size } => {
            ControlMessage::WouldCopy(message::DryRunLine { path: path.into(), size, goes: false })
        }
        TransferEvent::WouldDelete { path } => {
            ControlMessage::WouldCopy(message::DryRunLine { path: path.into(), size: 0, goes: true })
        }
        TransferEvent::Targets { targets, .. } => ControlMessage::Targets(message::TargetsMessage {
            targets: targets.into_iter().map(target_to_message).collect(),
        }),
        TransferEvent::Source(report) => ControlMessage::SourceDetail(source_to_message(report)),
        TransferEvent::Placed(_) | TransferEvent::Connected { .. } | TransferEvent::Progress(_) => {
            return None;
        }
    })
}

/// Returns a notice of the wanted metadata that the carrack at the `end` does not support.
pub(crate) fn unsupported_metadata_notice(
    wanted: KeptMetadata,
    known: KeptMetadata,
    end: &str,
) -> Option<UserNotice> {
    let lacking = wanted.kinds_missing_in(known);
    if lacking.is_empty() {
        return None;
    }
    Some(UserNotice::Warning(format!("not kept, as the carrack at the {end} is too old for it: {lacking}")))
}

fn notice_to_message(notice: UserNotice) -> message::NoticeMessage {
    match notice {
        UserNotice::Text(text) | UserNotice::Detail(text) => {
            message::NoticeMessage { text, ..Default::default() }
        }
        UserNotice::Warning(text) => message::NoticeMessage { kind: 1, text, ..Default::default() },
        UserNotice::Decision(text) => message::NoticeMessage { kind: 3, text, ..Default::default() },
        UserNotice::Loss(loss) => loss_to_message(loss),
        UserNotice::StorageDelay(delay) => delay_to_message(delay),
        UserNotice::Skipped { path, reason } => {
            message::NoticeMessage { kind: 2, text: reason, path: path.into(), ..Default::default() }
        }
    }
}

fn delay_to_message(delay: StorageDelay) -> message::NoticeMessage {
    let text = delay.to_string();
    let StorageDelay { target, requests, seconds, .. } = delay;
    message::NoticeMessage { kind: 5, text, count: requests, what: target, seconds, ..Default::default() }
}

fn loss_to_message(loss: MetadataLoss) -> message::NoticeMessage {
    let text = loss.to_string();
    let MetadataLoss { lost, reason, count } = loss;
    let (lost, what) = match lost {
        MetadataLossKind::Part(what) => (1, what),
        MetadataLossKind::Several(what) => (2, what),
        MetadataLossKind::Whole(noun) => (3, noun),
    };
    message::NoticeMessage { kind: 4, text, count, lost, what, reason, ..Default::default() }
}

fn target_to_message(report: TargetReport) -> message::TargetReportMessage {
    let TargetReport {
        label,
        server,
        bytes,
        waiting,
        in_flight,
        limit,
        normal_us,
        recent_us,
        is_avoided,
        avoided_count,
    } = report;
    message::TargetReportMessage {
        label,
        server,
        bytes,
        waiting,
        in_flight,
        limit,
        normal_us,
        recent_us,
        is_avoided,
        avoided_count,
    }
}

fn target_to_report(target: &message::TargetReportMessage) -> TargetReport {
    TargetReport {
        label: printable(&target.label),
        server: target.server.as_deref().map(printable),
        bytes: target.bytes,
        waiting: target.waiting,
        in_flight: target.in_flight,
        limit: target.limit,
        normal_us: target.normal_us,
        recent_us: target.recent_us,
        is_avoided: target.is_avoided,
        avoided_count: target.avoided_count,
    }
}

fn source_to_message(report: SourceReport) -> message::SourceDetail {
    let lanes = report.lanes.into_iter().map(|lane| message::LaneDetail {
        bytes_sent: lane.bytes_sent,
        objects_sent: lane.objects_sent,
        send_waiting: lane.to_send.waiting,
        send_room: lane.to_send.room,
        readers: lane.readers,
        streams: lane.streams,
    });
    message::SourceDetail {
        lanes: lanes.collect(),
        size_counts: report.size_counts,
        open: report.open.into_iter().map(file_to_message).collect(),
        slowest: report.slowest.into_iter().map(file_to_message).collect(),
    }
}

fn file_to_message(file: LargeFileProgress) -> message::LargeFileProgressMessage {
    message::LargeFileProgressMessage {
        path: file.path.into(),
        bytes: file.bytes,
        bytes_done: file.bytes_done,
        open_ms: file.open_ms,
    }
}

/// Decodes a report, with no more items than an honest source sends.
fn source_to_report(detail: &message::SourceDetail) -> SourceReport {
    let lanes = detail.lanes.iter().take(LANES_MAX).map(|lane| LaneReport {
        bytes_sent: lane.bytes_sent,
        objects_sent: lane.objects_sent,
        to_send: StageFill { waiting: lane.send_waiting, room: lane.send_room },
        readers: lane.readers,
        streams: lane.streams,
    });
    SourceReport {
        lanes: lanes.collect(),
        size_counts: detail.size_counts.iter().take(SIZE_CLASSES).copied().collect(),
        open: detail.open.iter().take(FILES_TOLD_MAX).map(file_to_report).collect(),
        slowest: detail.slowest.iter().take(FILES_TOLD_MAX).map(file_to_report).collect(),
    }
}

fn file_to_report(file: &message::LargeFileProgressMessage) -> LargeFileProgress {
    LargeFileProgress {
        path: file.path.as_slice().into(),
        bytes: file.bytes,
        bytes_done: file.bytes_done,
        open_ms: file.open_ms,
    }
}

/// Returns reports of the targets in use.
pub(crate) fn target_reports<T>(
    (queues, now): (&TargetQueues<T>, Duration),
    file_systems: &FileSystems,
) -> Vec<TargetReport> {
    let used = queues.verdicts(now).filter(|(state, _, bytes)| *bytes > 0 || state.waiting > 0);
    let reports = used.take(TARGETS_TOLD_MAX).map(|(state, verdict, bytes)| {
        let target = file_systems.target(state.target);
        TargetReport {
            label: target
                .as_ref()
                .map_or_else(|| format!("target {}", state.target.0), |target| target.label.to_string()),
            server: target.and_then(|target| target.server).map(|server| server.name.to_string()),
            bytes,
            waiting: state.waiting as u64,
            in_flight: state.in_service,
            limit: verdict.limit,
            normal_us: microseconds(verdict.normal),
            recent_us: microseconds(verdict.recent),
            is_avoided: verdict.is_avoided,
            avoided_count: verdict.avoided_count,
        }
    });
    reports.collect()
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Merges the targets of several lanes.
pub(crate) fn merge_target_reports(lanes: impl Iterator<Item = Vec<TargetReport>>) -> Vec<TargetReport> {
    let mut all: Vec<TargetReport> = Vec::new();
    for report in lanes.flatten() {
        match all.iter_mut().find(|known| known.label == report.label) {
            Some(known) => add(known, &report),
            None => all.push(report),
        }
    }
    all.truncate(TARGETS_TOLD_MAX);
    all
}

fn add(known: &mut TargetReport, more: &TargetReport) {
    known.bytes += more.bytes;
    known.waiting += more.waiting;
    known.in_flight += more.in_flight;
    known.limit = known.limit.saturating_add(more.limit);
    known.normal_us = known.normal_us.max(more.normal_us);
    known.recent_us = known.recent_us.max(more.recent_us);
    known.is_avoided |= more.is_avoided;
    known.avoided_count += more.avoided_count;
}

/// Returns the event of a message from the other end, which is `side`, or `None` if it has none.
pub(crate) fn to_event(message: &ControlMessage, side: FailureSide) -> Option<TransferEvent> {
    Some(match message {
        ControlMessage::Failure(failure) => TransferEvent::Failed(EntryFailure {
            path: failure.path.clone().into(),
            kind: FailureKind::from_code(failure.kind).unwrap_or(FailureKind::WriteError),
            detail: printable(&failure.detail),
        }),
        ControlMessage::Notice(notice) => TransferEvent::Notice(notice_to_event(notice, side)),
        ControlMessage::Digest(digest) => TransferEvent::FileDigest {
            path: digest.path.clone().into(),
            size: digest.size,
            digest: digest.blake3.as_slice().try_into().ok()?,
        },
        ControlMessage::Targets(message) => {
            TransferEvent::Targets { side, targets: message.targets.iter().map(target_to_report).collect() }
        }
        ControlMessage::SourceDetail(detail) => TransferEvent::Source(source_to_report(detail)),
        ControlMessage::WouldCopy(line) if line.goes => {
            TransferEvent::WouldDelete { path: line.path.clone().into() }
        }
        ControlMessage::WouldCopy(line) => {
            TransferEvent::WouldCopy { path: line.path.clone().into(), size: line.size }
        }
        _ => return None,
    })
}

fn notice_to_event(notice: &message::NoticeMessage, side: FailureSide) -> UserNotice {
    let text = printable(&notice.text);
    match notice.kind {
        2 => UserNotice::Skipped { path: notice.path.clone().into(), reason: text },
        1 => UserNotice::Warning(text),
        3 => UserNotice::Decision(text),
        4 => loss_of(notice).map_or(UserNotice::Warning(text), UserNotice::Loss),
        5 => UserNotice::StorageDelay(StorageDelay {
            side,
            target: printable(&notice.what),
            requests: notice.count,
            seconds: notice.seconds,
        }),
        _ => UserNotice::Text(text),
    }
}

/// Returns `None` if the message does not name the loss.
fn loss_of(notice: &message::NoticeMessage) -> Option<MetadataLoss> {
    let what = printable(&notice.what);
    let lost = match notice.lost {
        1 => MetadataLossKind::Part(what),
        2 => MetadataLossKind::Several(what),
        3 => MetadataLossKind::Whole(what),
        _ => return None,
    };
    Some(MetadataLoss { lost, reason: printable(&notice.reason), count: notice.count })
}

/// Escapes text of another machine, which must not control the terminal of this machine.
fn printable(text: &str) -> String {
    escape(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_the_wire() {
        let path: Box<[u8]> = Box::from(&b"a/\xff"[..]);
        for event in [
            TransferEvent::Failed(EntryFailure {
                path: path.clone(),
                kind: FailureKind::Changed,
                detail: "x".into(),
            }),
            TransferEvent::Notice(UserNotice::Skipped { path: path.clone(), reason: "a socket".into() }),
            TransferEvent::Notice(UserNotice::Warning("slow".into())),
            lost(MetadataLossKind::Part("the mode".into())),
            lost(MetadataLossKind::Several("ACLs".into())),
            lost(MetadataLossKind::Whole("device".into())),
            TransferEvent::FileDigest { path: path.clone(), size: 3, digest: [9; 32] },
            TransferEvent::WouldCopy { path: path.clone(), size: 7 },
            TransferEvent::WouldDelete { path },
            TransferEvent::Targets {
                side: FailureSide::Sink,
                targets: vec![TargetReport {
                    label: "OST0007".into(),
                    server: Some("oss1".into()),
                    bytes: 9,
                    ..TargetReport::default()
                }],
            },
            TransferEvent::Notice(UserNotice::Decision("readers 2 → 4".into())),
            TransferEvent::Notice(UserNotice::StorageDelay(StorageDelay {
                side: FailureSide::Sink,
                target: "OST0007".into(),
                requests: 3,
                seconds: 20,
            })),
            TransferEvent::Source(source()),
        ] {
            let message = to_message(event.clone()).unwrap();
            assert_eq!(to_event(&message, FailureSide::Sink), Some(event));
        }
    }

    fn lost(lost: MetadataLossKind) -> TransferEvent {
        TransferEvent::Notice(UserNotice::Loss(MetadataLoss {
            lost,
            reason: "not permitted".into(),
            count: 7,
        }))
    }

    fn source() -> SourceReport {
        let to_send = StageFill { waiting: 1, room: 9 };
        let lane = LaneReport { bytes_sent: 7, objects_sent: 1, to_send, readers: 4, streams: 2 };
        let file = LargeFileProgress { path: b"a/\xff"[..].into(), bytes: 9, bytes_done: 5, open_ms: 11 };
        SourceReport {
            lanes: vec![lane],
            size_counts: vec![1, 0, 2],
            open: vec![file.clone()],
            slowest: vec![file],
        }
    }

    #[test]
    fn a_peer_cannot_tell_more_than_is_kept() {
        let mut flood = source_to_message(source());
        flood.lanes = vec![flood.lanes[0]; LANES_MAX + 1];
        flood.size_counts = vec![1; SIZE_CLASSES + 1];
        flood.open = vec![flood.open[0].clone(); FILES_TOLD_MAX + 1];
        flood.slowest = flood.open.clone();
        let kept = source_to_report(&flood);
        assert_eq!((kept.lanes.len(), kept.size_counts.len()), (LANES_MAX, SIZE_CLASSES));
        assert_eq!((kept.open.len(), kept.slowest.len()), (FILES_TOLD_MAX, FILES_TOLD_MAX));
    }

    #[test]
    fn a_peer_cannot_drive_the_terminal() {
        let message = ControlMessage::Notice(message::NoticeMessage {
            kind: 0,
            text: "\x1b[2J".into(),
            ..Default::default()
        });
        assert_eq!(
            to_event(&message, FailureSide::Sink),
            Some(TransferEvent::Notice(UserNotice::Text("\\u{1b}[2J".into())))
        );
    }
}
