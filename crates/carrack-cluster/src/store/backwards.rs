//! Reading a stream from its end: the latest messages first, without a consumer.
//!
//! NATS reads forwards only. So windows of sequence numbers before the known ones are read, each twice as
//! wide as the last: removed messages leave gaps.

use async_nats::jetstream::message::StreamMessage;

use super::JetStreamPageReader;
use super::stream_pages::last_matching_message;
use crate::bus::NatsBus;
use crate::error::BusError;

/// Returns up to `most` messages before the number `before` (with `None`, of all) that `keep` accepts, the
/// latest first.
pub(super) async fn latest(
    bus: &NatsBus,
    stream: &str,
    filter: &str,
    before: Option<u64>,
    most: usize,
    keep: impl Fn(&StreamMessage) -> bool,
) -> Result<Vec<StreamMessage>, BusError> {
    let mut end = match before {
        Some(before) => before,
        None => last_matching_message(bus, stream, filter).await?.map_or(0, |last| last.sequence + 1),
    };
    let mut found = Vec::new();
    let mut width = most as u64;
    while found.len() < most && end > 1 {
        let begin = end.saturating_sub(width).max(1);
        let mut window = read_range(bus, stream, filter, begin, end).await?;
        window.retain(&keep);
        found.extend(window.into_iter().rev());
        (end, width) = (begin, width.saturating_mul(2));
    }
    found.truncate(most);
    Ok(found)
}

/// Returns the messages from `begin` to before `end`.
async fn read_range(
    bus: &NatsBus,
    stream: &str,
    filter: &str,
    begin: u64,
    end: u64,
) -> Result<Vec<StreamMessage>, BusError> {
    let mut pages = JetStreamPageReader::new(bus, stream.to_owned(), filter.to_owned()).starting(begin);
    let mut window = Vec::new();
    while let Some(page) = pages.next().await? {
        let is_last = page.last().is_some_and(|last| last.sequence >= end);
        window.extend(page.into_iter().take_while(|message| message.sequence < end));
        if is_last {
            break;
        }
    }
    Ok(window)
}
