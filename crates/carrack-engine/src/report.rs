//! Events on their way to the user: straight to the observer at the end that the user started, as control messages
//! from the other.

use std::sync::Arc;
use std::time::Duration;

use carrack_model::{EntryFailure, Event, FailureKind, Kept, Notice, Side, TargetId, TargetReport, escape};
use carrack_plan::{TargetQueues, TargetState, Verdict};
use carrack_wire::message::{self, Control};

/// Targets that one report tells: a message of them stays far below the largest control message.
const TARGETS_TOLD_MAX: usize = 1_000;

/// Whoever watches a transfer. Called from several threads; what it takes long is taken from the transfer.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn event(&self, event: &Event);
}

/// To the observer if this end has one, else with `say` to the end that has.
pub(crate) fn deliver(event: Event, observer: Option<&dyn Observer>, say: impl FnOnce(Control)) {
    match observer {
        Some(observer) => observer.event(&event),
        None => {
            if let Some(message) = to_message(event) {
                say(message);
            }
        }
    }
}

/// An event as a message to the end that the user started; nothing if it stays here.
pub(crate) fn to_message(event: Event) -> Option<Control> {
    Some(match event {
        Event::Failed(failure) => Control::Failure(message::Failure {
            path: failure.path.into(),
            kind: failure.kind as u32,
            detail: failure.detail,
        }),
        Event::Notice(notice) => Control::Notice(notice_to_message(notice)),
        Event::FileDigest { path, size, digest } => {
            Control::Digest(message::Digest { path: path.into(), size, blake3: digest.into() })
        }
        Event::WouldCopy { path, size } => {
            Control::WouldCopy(message::WouldCopy { path: path.into(), size, goes: false })
        }
        Event::WouldDelete { path } => {
            Control::WouldCopy(message::WouldCopy { path: path.into(), size: 0, goes: true })
        }
        Event::Targets { targets, .. } => Control::Targets(message::Targets {
            targets: targets.into_iter().map(target_to_message).collect(),
        }),
        Event::Connected { .. } | Event::Progress(_) => return None,
    })
}

/// What of the wanted is not kept, as the carrack at the `end` does not know it.
pub(crate) fn lacking(wanted: Kept, known: Kept, end: &str) -> Option<Notice> {
    let lacking = wanted.lacking_in(known);
    let text = || format!("not kept, as the carrack at the {end} is too old for it: {lacking}");
    (!lacking.is_empty()).then(|| Notice::Warning(text()))
}

fn notice_to_message(notice: Notice) -> message::Notice {
    match notice {
        Notice::Text(text) | Notice::Detail(text) => message::Notice { kind: 0, text, path: Vec::new() },
        Notice::Warning(text) => message::Notice { kind: 1, text, path: Vec::new() },
        Notice::Skipped { path, reason } => message::Notice { kind: 2, text: reason, path: path.into() },
    }
}

fn target_to_message(report: TargetReport) -> message::Target {
    let TargetReport {
        label,
        bytes,
        waiting,
        in_flight,
        limit,
        normal_us,
        recent_us,
        is_avoided,
        avoided_count,
    } = report;
    message::Target {
        label,
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

fn target_to_report(target: &message::Target) -> TargetReport {
    TargetReport {
        label: printable(&target.label),
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

/// What the queues say of the targets that were used, for people. `label` names a target.
pub(crate) fn target_reports<T>(
    (queues, now): (&TargetQueues<T>, Duration),
    label: impl Fn(TargetId) -> Option<Arc<str>>,
) -> Vec<TargetReport> {
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let used = queues.verdicts(now).filter(|(state, _, bytes)| *bytes > 0 || state.waiting > 0);
    let report = |(state, verdict, bytes): (&TargetState, Verdict, u64)| TargetReport {
        label: label(state.target)
            .map_or_else(|| format!("target {}", state.target.0), |label| label.to_string()),
        bytes,
        waiting: state.waiting as u64,
        in_flight: state.in_service,
        limit: verdict.limit,
        normal_us: us(verdict.normal),
        recent_us: us(verdict.recent),
        is_avoided: verdict.is_avoided,
        avoided_count: verdict.avoided_count,
    };
    used.take(TARGETS_TOLD_MAX).map(report).collect()
}

/// The targets of several lanes, each told once.
pub(crate) fn together(lanes: impl Iterator<Item = Vec<TargetReport>>) -> Vec<TargetReport> {
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

/// The event that a message from the other end, which is `side`, carries; nothing if it carries none.
pub(crate) fn to_event(message: &Control, side: Side) -> Option<Event> {
    Some(match message {
        Control::Failure(failure) => Event::Failed(EntryFailure {
            path: failure.path.clone().into(),
            kind: FailureKind::from_code(failure.kind).unwrap_or(FailureKind::WriteError),
            detail: printable(&failure.detail),
        }),
        Control::Notice(notice) => Event::Notice(notice_to_event(notice)),
        Control::Digest(digest) => Event::FileDigest {
            path: digest.path.clone().into(),
            size: digest.size,
            digest: digest.blake3.as_slice().try_into().ok()?,
        },
        Control::Targets(message) => {
            Event::Targets { side, targets: message.targets.iter().map(target_to_report).collect() }
        }
        Control::WouldCopy(line) if line.goes => Event::WouldDelete { path: line.path.clone().into() },
        Control::WouldCopy(line) => Event::WouldCopy { path: line.path.clone().into(), size: line.size },
        _ => return None,
    })
}

fn notice_to_event(notice: &message::Notice) -> Notice {
    let text = printable(&notice.text);
    match notice.kind {
        2 => Notice::Skipped { path: notice.path.clone().into(), reason: text },
        1 => Notice::Warning(text),
        _ => Notice::Text(text),
    }
}

/// What another machine sends must not drive this one's terminal.
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
            Event::Failed(EntryFailure {
                path: path.clone(),
                kind: FailureKind::Changed,
                detail: "x".into(),
            }),
            Event::Notice(Notice::Skipped { path: path.clone(), reason: "a socket".into() }),
            Event::Notice(Notice::Warning("slow".into())),
            Event::FileDigest { path: path.clone(), size: 3, digest: [9; 32] },
            Event::WouldCopy { path: path.clone(), size: 7 },
            Event::WouldDelete { path },
            Event::Targets {
                side: Side::Sink,
                targets: vec![TargetReport { label: "OST0007".into(), bytes: 9, ..TargetReport::default() }],
            },
        ] {
            let message = to_message(event.clone()).unwrap();
            assert_eq!(to_event(&message, Side::Sink), Some(event));
        }
    }

    #[test]
    fn a_peer_cannot_drive_the_terminal() {
        let message = Control::Notice(message::Notice { kind: 0, text: "\x1b[2J".into(), path: vec![] });
        assert_eq!(to_event(&message, Side::Sink), Some(Event::Notice(Notice::Text("\\u{1b}[2J".into()))));
    }
}
