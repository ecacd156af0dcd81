//! A view of the storage targets of a fleet's site, over NATS: the answers of the site's meta-server, and the
//! requests for them.
//!
//! A site may have more targets than fit in a message: they are requested in pages, each of which begins
//! after the last name of the page before.

use std::time::Duration;

use async_nats::RequestErrorKind;
use carrack_model::text_without_errno;
use carrack_plan::grants::SharedTargetStatus;
use serde::{Deserialize, Serialize};

use crate::bus::NatsBus;
use crate::error::BusError;
use crate::mover_requests::VersionedMessage;
use crate::store::{read_record, write_record};
use crate::transfer_records::{RECORD_VERSION, is_name};
use carrack_sharing::MetaSchedulerServer;

/// Bytes of targets in a page, without its last target: a quarter of NATS's default limit. A target for which
/// every possible client waits takes the same size again, or twice that.
const PAGE_BYTES: usize = 256 << 10;

/// Upper bound of requested pages: for 65,536 targets with ten clients each.
const PAGES_MAX: usize = 512;

/// Timeout of an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A request for targets.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SiteTargetsRequest {
    /// A target's or a file system's name; all if empty.
    fs: String,
    /// The last name of the page before; empty at first.
    after: String,
}

/// An answer of a site's meta-server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TargetsPage {
    /// A page.
    Page {
        /// The targets, by name.
        targets: Vec<SharedTargetStatus>,
        /// True if there are more.
        goes_on: bool,
    },
    /// A refusal, worded for people.
    Refused(String),
}

/// An error of showing a site's targets.
#[derive(Debug, thiserror::Error)]
pub enum SiteTargetsRequestError {
    /// No manager shares them, or none that can be asked.
    #[error("nobody shares out the storage targets of site {0}")]
    Nobody(String),
    /// The meta-server refuses the request.
    #[error("the meta-server of site {site}: {reason}")]
    Refused {
        /// The site.
        site: String,
        /// The server's words.
        reason: String,
    },
    /// There are more than the limit of pages.
    #[error("site {0} has more targets than are listed at once")]
    TooMany(String),
    /// An error of NATS.
    #[error(transparent)]
    Bus(#[from] BusError),
}

impl SiteTargetsRequestError {
    /// Returns a hint for the operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            SiteTargetsRequestError::Nobody(site) => Some(format!(
                "`carrack manager --share {site}` has to run; after one has died another takes 9 s"
            )),
            SiteTargetsRequestError::Refused { .. } => None,
            SiteTargetsRequestError::TooMany(_) => Some("name a file system, such as lfs01".to_owned()),
            SiteTargetsRequestError::Bus(error) => error.hint(),
        }
    }
}

/// Answers a request. Clients appear under their own names.
pub(super) fn targets_page(server: &MetaSchedulerServer, payload: &[u8]) -> TargetsPage {
    let SiteTargetsRequest { fs, after } =
        match read_record::<VersionedMessage<SiteTargetsRequest>>("a question", payload) {
            Ok(question) => question.body,
            Err(error) => return TargetsPage::Refused(text_without_errno(&error)),
        };
    let (mut page, mut bytes) = (Vec::new(), 0);
    for mut target in server.targets(&fs).into_iter().filter(|target| target.target > after) {
        if bytes >= PAGE_BYTES {
            return TargetsPage::Page { targets: page, goes_on: true };
        }
        target.holders.iter_mut().for_each(|holder| remove_caller_prefix(&mut holder.client));
        target.waiting.iter_mut().for_each(|waiting| remove_caller_prefix(&mut waiting.client));
        bytes += serde_json::to_vec(&target).map_or(0, |written| written.len());
        page.push(target);
    }
    TargetsPage::Page { targets: page, goes_on: false }
}

/// Removes the caller's name: a host's clients begin with its name anyhow.
fn remove_caller_prefix(client: &mut String) {
    if let Some((_, own)) = client.split_once('/') {
        *client = own.to_owned();
    }
}

/// Returns the targets of `site` with clients or a known load, by name; `fs` is a target's or a file system's
/// name, all if it is empty.
///
/// # Errors
/// [`SiteTargetsRequestError`].
pub async fn site_targets(
    bus: &NatsBus,
    site: &str,
    fs: &str,
) -> Result<Vec<SharedTargetStatus>, SiteTargetsRequestError> {
    if !is_name(site) {
        return Err(BusError::BadName(site.to_owned()).into());
    }
    let mut all: Vec<SharedTargetStatus> = Vec::new();
    for _ in 0..PAGES_MAX {
        let after = all.last().map(|target| target.target.clone()).unwrap_or_default();
        match request_page(bus, site, SiteTargetsRequest { fs: fs.to_owned(), after: after.clone() }).await? {
            TargetsPage::Refused(reason) => {
                return Err(SiteTargetsRequestError::Refused { site: site.to_owned(), reason });
            }
            TargetsPage::Page { targets, goes_on } => {
                let is_over = !goes_on || targets.last().is_none_or(|last| last.target <= after);
                all.extend(targets);
                if is_over {
                    return Ok(all);
                }
            }
        }
    }
    Err(SiteTargetsRequestError::TooMany(site.to_owned()))
}

async fn request_page(
    bus: &NatsBus,
    site: &str,
    question: SiteTargetsRequest,
) -> Result<TargetsPage, SiteTargetsRequestError> {
    let body = write_record("a question", &VersionedMessage { version: RECORD_VERSION, body: question })?;
    let request = async_nats::Request::new().payload(body.into()).timeout(Some(ANSWER_WITHIN));
    let answer = bus.client().send_request(bus.names().target_state_subject(site), request).await;
    let message = answer.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => SiteTargetsRequestError::Nobody(site.to_owned()),
        _ => bus.no_answer_error("a site's targets", &error).into(),
    })?;
    Ok(read_record::<VersionedMessage<TargetsPage>>("an answer", &message.payload)?.body)
}

#[cfg(test)]
mod tests {
    use carrack_plan::grants::{GrantClientReport, GrantRequest, TargetComputeLoad};

    use super::*;
    use carrack_sharing::SharingSettings;

    fn question(fs: &str, after: &str) -> Vec<u8> {
        let body = SiteTargetsRequest { fs: fs.to_owned(), after: after.to_owned() };
        serde_json::to_vec(&VersionedMessage { version: RECORD_VERSION, body }).unwrap()
    }

    #[track_caller]
    fn page(server: &MetaSchedulerServer, fs: &str, after: &str) -> (Vec<SharedTargetStatus>, bool) {
        match targets_page(server, &question(fs, after)) {
            TargetsPage::Page { targets, goes_on } => (targets, goes_on),
            TargetsPage::Refused(reason) => panic!("{reason}"),
        }
    }

    #[test]
    fn many_targets_are_shown_in_pages_and_each_once() {
        let server = MetaSchedulerServer::start(SharingSettings::default());
        let names: Vec<String> = (0..9_000).map(|n| format!("lfs01/OST{n:04x}")).collect();
        names
            .iter()
            .for_each(|name| server.set_load(name, TargetComputeLoad { present: 0.25, expected: 0.5 }));
        server.set_load("lfs02/OST0000", TargetComputeLoad::default());
        let (mut seen, mut pages): (Vec<String>, _) = (Vec::new(), 0);
        loop {
            let after = seen.last().cloned().unwrap_or_default();
            let (targets, goes_on) = page(&server, "lfs01", &after);
            assert!(serde_json::to_vec(&targets).unwrap().len() < 2 * PAGE_BYTES);
            seen.extend(targets.into_iter().map(|target| target.target));
            pages += 1;
            if !goes_on {
                break;
            }
        }
        assert!(pages > 1 && seen == names, "{} targets in {pages} pages", seen.len());
        assert_eq!(page(&server, "lfs02", "").0.len(), 1);
    }

    #[test]
    fn clients_have_their_own_names_and_nonsense_is_refused() {
        let server = MetaSchedulerServer::start(SharingSettings::default());
        let asks = vec![GrantRequest { target: "fs/x".to_owned(), ..GrantRequest::default() }];
        let client = "dtn1:4711:1a2.0".to_owned();
        server
            .answer(
                "dtn1",
                GrantClientReport { client: client.clone(), number: 1, asks, ..GrantClientReport::default() },
            )
            .unwrap();
        assert_eq!(page(&server, "", "").0[0].waiting[0].client, client);
        assert!(matches!(targets_page(&server, b"{}"), TargetsPage::Refused(_)));
    }
}
