//! Between [`Selection`] and its message.

use carrack_model::{LinkPolicy, Selection, Timestamp};
use carrack_storage::Filter;
use carrack_wire::message::{self, MessageError};

/// Nothing where everything is copied.
pub(crate) fn selection_to_message(selection: &Selection) -> Option<message::Selection> {
    let names = selection.names.iter().flat_map(|names| names.iter());
    (!selection.is_everything()).then(|| message::Selection {
        patterns: selection.patterns.clone(),
        size_min: selection.size_min,
        size_max: selection.size_max,
        newer_s: selection.newer.map(|newer| newer.seconds),
        newer_ns: selection.newer.map_or(0, |newer| newer.nanoseconds),
        one_file_system: selection.one_file_system,
        skips_links: selection.links == LinkPolicy::Skipped,
        is_listed: selection.names.is_some(),
        names: names.map(|name| name.to_vec()).collect(),
        follows_links: selection.links == LinkPolicy::Followed,
        safe_links: selection.links == LinkPolicy::SafeOnly,
    })
}

pub(crate) fn selection_of(message: Option<&message::Selection>) -> Result<Selection, MessageError> {
    let Some(message) = message else { return Ok(Selection::default()) };
    if message.newer_ns > 999_999_999 {
        return Err(MessageError::OutOfRange("a time"));
    }
    let newer = |seconds| Timestamp { seconds, nanoseconds: message.newer_ns };
    let names = || message.names.iter().map(|name| name.as_slice().into()).collect();
    let selection = Selection {
        patterns: message.patterns.clone(),
        size_min: message.size_min,
        size_max: message.size_max,
        newer: message.newer_s.map(newer),
        one_file_system: message.one_file_system,
        links: links_of(message)?,
        names: message.is_listed.then(names),
    };
    match Filter::new(&selection) {
        Ok(_) => Ok(selection),
        Err(_) => Err(MessageError::OutOfRange("a pattern")),
    }
}

fn links_of(message: &message::Selection) -> Result<LinkPolicy, MessageError> {
    match (message.skips_links, message.safe_links, message.follows_links) {
        (false, false, false) => Ok(LinkPolicy::Copied),
        (true, false, false) => Ok(LinkPolicy::Skipped),
        (false, true, false) => Ok(LinkPolicy::SafeOnly),
        (false, false, true) => Ok(LinkPolicy::Followed),
        _ => Err(MessageError::OutOfRange("what becomes of links")),
    }
}
