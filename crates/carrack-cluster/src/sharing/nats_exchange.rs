//! A mover's exchange with the meta-server of its site.

use std::io;
use std::time::Duration;

use carrack_engine::GrantExchange;
use carrack_plan::grants::{GrantClientReport, GrantReply};
use tokio::runtime::Handle;

use super::site::MetaSchedulerReply;
use crate::bus::NatsBus;
use crate::mover_requests::VersionedMessage;
use crate::store::{read_record, write_record};
use crate::transfer_records::RECORD_VERSION;

/// Timeout of an answer: the next batch repeats everything.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// An exchange over NATS. Created by a task, used by a session's thread.
pub(crate) struct NatsGrantExchange {
    bus: NatsBus,
    subject: String,
    runtime: Handle,
}

impl NatsGrantExchange {
    /// Finds the meta-server of `site`; `None` if no manager shares its targets, or NATS does not answer.
    pub(crate) async fn find(bus: &NatsBus, site: &str) -> Option<NatsGrantExchange> {
        let (subject, runtime) = (bus.names().grant_subject(site), Handle::current());
        let way = NatsGrantExchange { bus: bus.clone(), subject, runtime };
        // An empty batch is refused by any meta-server, which proves its presence.
        way.request_grants(&GrantClientReport::default()).await.is_ok().then_some(way)
    }

    async fn request_grants(&self, batch: &GrantClientReport) -> io::Result<MetaSchedulerReply> {
        let asked = VersionedMessage { version: RECORD_VERSION, body: batch };
        let body = write_record("a request for targets", &asked).map_err(io::Error::other)?;
        let request = async_nats::Request::new().payload(body.into()).timeout(Some(ANSWER_WITHIN));
        let sent = self.bus.client().send_request(self.subject.clone(), request).await;
        let message = sent.map_err(io::Error::other)?;
        let reply = read_record::<VersionedMessage<MetaSchedulerReply>>("an answer", &message.payload);
        Ok(reply.map_err(io::Error::other)?.body)
    }
}

impl GrantExchange for NatsGrantExchange {
    fn exchange(&self, batch: &GrantClientReport) -> io::Result<GrantReply> {
        match self.runtime.block_on(self.request_grants(batch))? {
            MetaSchedulerReply::Granted(answer) => Ok(answer),
            MetaSchedulerReply::Refused(reason) => Err(io::Error::other(reason)),
        }
    }
}
