//! The messages of requests and results. Everything that the other end sends is checked here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use carrack_model::limits::PATH_BYTES_MAX;
use carrack_model::{Timestamp, check_name};
use carrack_storage::{BrowsedKind, ListedEntry};
use carrack_wire::message::{BrowsedEntriesMessage, BrowsedEntry, PathOperationMessage};

use super::operation::{BrowseItem, PathOperationRequest, RemotePathOperation};
use crate::error::SessionError;
use crate::session::entry_kind_codes::KINDS;

/// Entries of one message: with the longest names they take a third of the largest message.
pub(super) const ENTRIES_MAX: usize = 256;

const NANOSECONDS: u32 = 1_000_000_000;
const MODE_MAX: u32 = 0o7777;

/// `BrowsedEntry.kind` of an export.
const EXPORT: u32 = 7;

pub(super) fn request_to_message(browsing: &PathOperationRequest, token: &str) -> PathOperationMessage {
    let (operation, deep) = match browsing.operation {
        RemotePathOperation::List => (1, false),
        RemotePathOperation::Stat => (2, false),
        RemotePathOperation::MakeDirectory { parents } => (3, parents),
        RemotePathOperation::Remove { recursive } => (4, recursive),
    };
    PathOperationMessage {
        software: env!("CARGO_PKG_VERSION").into(),
        operation,
        path: browsing.path.as_os_str().as_bytes().to_vec(),
        deep,
        token: token.into(),
    }
}

pub(super) fn request_from_message(
    message: &PathOperationMessage,
) -> Result<PathOperationRequest, SessionError> {
    let operation = match message.operation {
        1 => RemotePathOperation::List,
        2 => RemotePathOperation::Stat,
        3 => RemotePathOperation::MakeDirectory { parents: message.deep },
        4 => RemotePathOperation::Remove { recursive: message.deep },
        other => return Err(SessionError::Protocol(format!("operation {other} is not known here"))),
    };
    if message.path.len() > PATH_BYTES_MAX {
        return Err(SessionError::Protocol("a path that is too long".into()));
    }
    Ok(PathOperationRequest { operation, path: PathBuf::from(OsStr::from_bytes(&message.path)) })
}

pub(super) fn entries_to_message(entries: Vec<ListedEntry>) -> BrowsedEntriesMessage {
    let entries = entries.into_iter().map(|entry| BrowsedEntry {
        kind: KINDS.iter().find(|(_, kind)| *kind == entry.kind).map_or(0, |(code, _)| *code),
        name: entry.name.into(),
        size: entry.size,
        mtime_s: entry.mtime.seconds,
        mtime_ns: entry.mtime.nanoseconds,
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
    });
    BrowsedEntriesMessage { entries: entries.collect() }
}

pub(super) fn exports_to_message(names: &[String]) -> BrowsedEntriesMessage {
    let entries = names.iter().map(|name| BrowsedEntry {
        name: name.clone().into_bytes(),
        kind: EXPORT,
        ..BrowsedEntry::default()
    });
    BrowsedEntriesMessage { entries: entries.collect() }
}

/// Decodes an entry. `asked` decides if it is valid: only the entry of [`RemotePathOperation::Stat`] may lack
/// a name.
pub(super) fn item_from_message(
    entry: BrowsedEntry,
    asked: RemotePathOperation,
) -> Result<BrowseItem, SessionError> {
    let is_nameless = entry.name.is_empty() && asked == RemotePathOperation::Stat;
    if !is_nameless {
        check_name(&entry.name).map_err(|problem| SessionError::Protocol(format!("an entry: {problem}")))?;
    }
    if entry.kind == EXPORT && asked == RemotePathOperation::List {
        return Ok(BrowseItem::Export(entry.name.into()));
    }
    if entry.mtime_ns >= NANOSECONDS || entry.mode > MODE_MAX {
        return Err(SessionError::Protocol("an entry with a time or mode out of range".into()));
    }
    Ok(BrowseItem::Entry(ListedEntry {
        kind: KINDS
            .iter()
            .find(|(code, _)| *code == entry.kind)
            .map_or(BrowsedKind::Other, |(_, kind)| *kind),
        name: entry.name.into(),
        size: entry.size,
        mtime: Timestamp { seconds: entry.mtime_s, nanoseconds: entry.mtime_ns },
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8]) -> BrowsedEntry {
        BrowsedEntry { name: name.to_vec(), kind: 1, ..BrowsedEntry::default() }
    }

    #[test]
    fn what_is_asked_for_arrives() {
        for operation in [
            RemotePathOperation::List,
            RemotePathOperation::Stat,
            RemotePathOperation::MakeDirectory { parents: true },
            RemotePathOperation::MakeDirectory { parents: false },
            RemotePathOperation::Remove { recursive: true },
            RemotePathOperation::Remove { recursive: false },
        ] {
            let browsing = PathOperationRequest { operation, path: OsStr::from_bytes(b"/a\xff/").into() };
            let message = request_to_message(&browsing, "t");
            assert_eq!((request_from_message(&message).unwrap(), &*message.token), (browsing, "t"));
        }
        for operation in [0, 5, u32::MAX] {
            assert!(
                request_from_message(&PathOperationMessage { operation, ..PathOperationMessage::default() })
                    .is_err()
            );
        }
        let path = vec![b'a'; PATH_BYTES_MAX + 1];
        assert!(
            request_from_message(&PathOperationMessage {
                operation: 1,
                path,
                ..PathOperationMessage::default()
            })
            .is_err()
        );
    }

    #[test]
    fn entries_survive_the_wire() {
        for (_, kind) in KINDS {
            let mtime = Timestamp { seconds: -1, nanoseconds: 999_999_999 };
            let (name, mode) = (b"\xff\n"[..].into(), 0o7777);
            let browsed = ListedEntry { name, kind, size: u64::MAX, mtime, mode, uid: 1, gid: 2 };
            let message = entries_to_message(vec![browsed.clone()]).entries.remove(0);
            assert_eq!(
                item_from_message(message, RemotePathOperation::List).unwrap(),
                BrowseItem::Entry(browsed)
            );
        }
        let export = exports_to_message(&["data".into()]).entries.remove(0);
        assert_eq!(
            item_from_message(export, RemotePathOperation::List).unwrap(),
            BrowseItem::Export(b"data"[..].into())
        );
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0", &[b'x'; 256]] {
            assert!(item_from_message(entry(name), RemotePathOperation::List).is_err(), "{name:?}");
            let export = BrowsedEntry { kind: EXPORT, ..entry(name) };
            assert!(item_from_message(export, RemotePathOperation::List).is_err(), "{name:?}");
        }
        assert!(item_from_message(entry(b""), RemotePathOperation::Stat).is_ok());
        assert!(
            item_from_message(BrowsedEntry { mode: 0o10000, ..entry(b"a") }, RemotePathOperation::List)
                .is_err()
        );
        assert!(
            item_from_message(
                BrowsedEntry { mtime_ns: NANOSECONDS, ..entry(b"a") },
                RemotePathOperation::List
            )
            .is_err()
        );
        let future =
            item_from_message(BrowsedEntry { kind: 99, ..entry(b"a") }, RemotePathOperation::List).unwrap();
        assert!(matches!(future, BrowseItem::Entry(ListedEntry { kind: BrowsedKind::Other, .. })));
    }

    #[test]
    fn a_batch_of_the_longest_names_fits_a_message() {
        let name: Box<[u8]> = [b'x'; carrack_model::limits::NAME_BYTES_MAX].into();
        let mtime = Timestamp { seconds: -1, nanoseconds: 999_999_999 };
        let (kind, size, mode) = (BrowsedKind::Other, u64::MAX, 0o7777);
        let longest = ListedEntry { name, kind, size, mtime, mode, uid: u32::MAX, gid: u32::MAX };
        let message =
            carrack_wire::message::ControlMessage::Entries(entries_to_message(vec![longest; ENTRIES_MAX]));
        assert!(message.to_body().len() < carrack_model::limits::CONTROL_BODY_BYTES_MAX / 2);
    }
}
