//! A mover's exchange with the meta-server of its site.

use std::io;
use std::time::Duration;

use carrack_engine::GrantExchange;
use carrack_plan::grants::{Answer, Batch};
use tokio::runtime::Handle;

use super::site::Reply;
use crate::asks::Versioned;
use crate::bus::Bus;
use crate::records::RECORD_VERSION;
use crate::store::{read_record, write_record};

/// Timeout of an answer: the next batch repeats everything.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// An exchange over NATS. Created by a task, used by a session's thread.
pub(crate) struct OverNats {
    bus: Bus,
    subject: String,
    runtime: Handle,
}

impl OverNats {
    /// Finds the meta-server of `site`; `None` if no manager shares its targets, or NATS does not answer.
    pub(crate) async fn find(bus: &Bus, site: &str) -> Option<OverNats> {
        let (subject, runtime) = (bus.names().grants(site), Handle::current());
        let way = OverNats { bus: bus.clone(), subject, runtime };
        // An empty batch is refused by any meta-server, which proves its presence.
        way.ask(&Batch::default()).await.is_ok().then_some(way)
    }

    async fn ask(&self, batch: &Batch) -> io::Result<Reply> {
        let asked = Versioned { version: RECORD_VERSION, body: batch };
        let body = write_record("a request for targets", &asked).map_err(io::Error::other)?;
        let request = async_nats::Request::new().payload(body.into()).timeout(Some(ANSWER_WITHIN));
        let sent = self.bus.client().send_request(self.subject.clone(), request).await;
        let message = sent.map_err(io::Error::other)?;
        let reply = read_record::<Versioned<Reply>>("an answer", &message.payload);
        Ok(reply.map_err(io::Error::other)?.body)
    }
}

impl GrantExchange for OverNats {
    fn exchange(&self, batch: &Batch) -> io::Result<Answer> {
        match self.runtime.block_on(self.ask(batch))? {
            Reply::Granted(answer) => Ok(answer),
            Reply::Refused(reason) => Err(io::Error::other(reason)),
        }
    }
}
