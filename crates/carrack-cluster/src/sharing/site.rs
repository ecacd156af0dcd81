//! The meta-server of a fleet's site: one manager runs it, by a lease, and answers the site's movers (L10),
//! and operators who look at the targets. While it has the lease it measures the load that computation puts
//! on them (L11).
//!
//! Its state is not stored on NATS: the next manager with the lease learns the grants from the movers, and
//! continues with its own settings.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Message;
use carrack_model::text_without_errno;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use carrack_plan::grants::{GrantClientReport, GrantReply};

use super::site_targets::targets_page;
use crate::bus::NatsBus;
use crate::error::BusError;
use crate::mover::UserMessageCallback;
use crate::mover_requests::VersionedMessage;
use crate::store::{read_record, write_record};
use crate::transfer_lease::{LeaseRenewError, RENEW_EVERY, TransferManagerLease};
use crate::transfer_records::RECORD_VERSION;
use carrack_sharing::health::LoadMonitorThread;
use carrack_sharing::{MetaSchedulerServer, SiteSharing};

/// Interval at which a manager tries to get a site's lease.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An answer of a site's meta-server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MetaSchedulerReply {
    /// The answer to a batch.
    Granted(GrantReply),
    /// A refusal, worded for people.
    Refused(String),
}

/// Returns the key of a site's lease. It can't be a transfer's, as those are hexadecimal.
fn lease_of(site: &str) -> String {
    format!("sharing-{site}")
}

/// Shares the targets of a site whenever no other manager does, until `stop` turns true.
pub(crate) async fn run(
    bus: NatsBus,
    share: SiteSharing,
    manager: String,
    say: UserMessageCallback,
    mut stop: watch::Receiver<bool>,
) {
    let site = &share.site;
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trouble = None;
    // `stop` may have turned true while it served, and does not change again.
    while !*stop.borrow() {
        tokio::select! {
            _ = looks.tick() => {}
            _ = stop.changed() => return,
        }
        let served = match TransferManagerLease::acquire(&bus, &lease_of(site), &manager).await {
            Ok(Some(lease)) => {
                say(format!("shares out the storage targets of {site}"));
                serve(&bus, &share, lease, &say, &mut stop).await
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        // A repeated error is reported once.
        let told = served.err().map(|error| text_without_errno(&error));
        if told != trouble {
            told.iter().for_each(|text| say(format!("sharing {site}: {text}")));
            trouble = told;
        }
    }
}

/// Answers as long as the lease is sure, or until `stop` turns true.
async fn serve(
    bus: &NatsBus,
    share: &SiteSharing,
    mut lease: TransferManagerLease,
    say: &UserMessageCallback,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), BusError> {
    let subscribed = bus.client().subscribe(bus.names().grant_subject(&share.site)).await;
    let mut batches = subscribed.map_err(|error| BusError::no_answer("requests for targets", &error))?;
    let subscribed = bus.client().subscribe(bus.names().target_state_subject(&share.site)).await;
    let mut questions = subscribed.map_err(|error| BusError::no_answer("questions about targets", &error))?;
    let server = Arc::new(MetaSchedulerServer::start(share.settings.clone()));
    let _measuring = start_load_monitor(share, &server, say);
    let mut renewals = tokio::time::interval(RENEW_EVERY);
    renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(batch) = batches.next() => answer(bus, batch, |payload| reply(&server, payload)).await,
            Some(question) = questions.next() => answer(bus, question, |payload| targets_page(&server, payload)).await,
            _ = renewals.tick() => match lease.renew().await {
                Err(LeaseRenewError::Lost(_)) => return Ok(()),
                Err(LeaseRenewError::Bus(error)) if !lease.is_certainly_held() => return Err(error),
                Err(LeaseRenewError::Bus(_)) | Ok(()) => {}
            },
            _ = stop.changed() => return lease.release().await,
        }
    }
}

fn start_load_monitor(
    share: &SiteSharing,
    server: &Arc<MetaSchedulerServer>,
    say: &UserMessageCallback,
) -> Option<LoadMonitorThread> {
    let settings = share.health.clone()?;
    let of_site = format!("sharing {}: ", share.site);
    say(format!("{of_site}computation's load is measured by {}", settings.prometheus));
    let (heard, telling) = (Arc::clone(say), of_site.clone());
    server
        .start_load_monitor(settings, move |words| heard(format!("{telling}{words}")))
        .inspect_err(|error| say(format!("{of_site}computation's load is not measured: {error}")))
        .ok()
}

/// Sends an answer. If it is lost, the client asks again.
async fn answer<T: Serialize>(bus: &NatsBus, message: Message, reply: impl Fn(&[u8]) -> T) {
    let Some(reply_to) = message.reply else { return };
    let reply = VersionedMessage { version: RECORD_VERSION, body: reply(&message.payload) };
    if let Ok(body) = write_record("an answer", &reply) {
        let _ = bus.client().publish(reply_to, body.into()).await;
    }
}

fn reply(server: &MetaSchedulerServer, payload: &[u8]) -> MetaSchedulerReply {
    let batch = match read_record::<VersionedMessage<GrantClientReport>>("a request for targets", payload) {
        Ok(batch) => batch.body,
        Err(error) => return MetaSchedulerReply::Refused(text_without_errno(&error)),
    };
    // A client's name begins with its host: no host can take all the places.
    let host = batch.client.split(':').next().unwrap_or_default().to_owned();
    match server.answer(&host, batch) {
        Ok(answer) => MetaSchedulerReply::Granted(answer),
        Err(refusal) => MetaSchedulerReply::Refused(refusal.to_string()),
    }
}
