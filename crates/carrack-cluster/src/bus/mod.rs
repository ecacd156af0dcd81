//! The connection to NATS: made once, kept open, and shared by the rest of this crate.
//!
//! async-nats reconnects without help. Meanwhile published messages wait, and a request gets an error after
//! five seconds, which its caller handles.
//!
//! A client can't see whether a server syncs at once (`sync_interval: always`): only its system account can.
//! The samples in `docs/examples/nats` set it.

mod connect_failure;
mod link;
mod options;
mod prepare;
mod stream_identity;

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{AccountErrorKind, ContextBuilder};
use async_nats::jetstream::{Context, Message, publish::PublishAck};
use async_nats::{Client, HeaderMap, ServerInfo};
use tokio::sync::watch;

pub use options::{BusOptions, NatsLogin, NatsTls};
pub use prepare::{BusPreparationResult, LEASE};

use crate::error::BusError;
use crate::subjects::NatsSubjectNames;
use connect_failure::no_connection;
use link::NatsConnectionMonitor;
use options::ANSWER_WITHIN;

/// The connection. Clones share it.
#[derive(Clone)]
pub struct NatsBus {
    inner: Arc<NatsBusState>,
}

struct NatsBusState {
    client: Client,
    context: Context,
    names: NatsSubjectNames,
    link: Arc<NatsConnectionMonitor>,
}

/// The oldest server with limit markers, by which watchers see that a lease has ended.
const OLDEST: (u64, u64) = (2, 11);

/// Attempts of a request in all: servers lose requests while they elect a leader, as they do after one has
/// died.
const ASKED: u32 = 3;

/// Time limit for sending pending messages when a process ends.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

impl NatsBus {
    /// Connects, and checks that the server is suitable for a fleet.
    ///
    /// # Errors
    /// If none of the servers can be reached within five seconds, or if the server rejects the login, is
    /// older than 2.11, or has no JetStream.
    pub async fn connect(options: &BusOptions) -> Result<NatsBus, BusError> {
        let names = NatsSubjectNames::new(&options.prefix, options.domain.as_deref())?;
        let link = Arc::new(NatsConnectionMonitor::new());
        let hearing = Arc::clone(&link);
        let client = options
            .to_connect()?
            .event_callback(move |event| {
                hearing.handle_event(&event);
                std::future::ready(())
            })
            .connect(options.servers.clone())
            .await
            .map_err(|error| no_connection(options, &error))?;
        check_version(&client.server_info())?;
        let builder = ContextBuilder::new().api_prefix(names.api_prefix()).timeout(ANSWER_WITHIN);
        let context = builder.build(client.clone());
        let bus = NatsBus { inner: Arc::new(NatsBusState { client, context, names, link }) };
        bus.check_jetstream(options.domain.as_deref()).await?;
        Ok(bus)
    }

    /// Returns the time without a connection; `None` while there is one. A path that drops all packets is
    /// noticed after six seconds.
    pub fn disconnected_for(&self) -> Option<Duration> {
        self.inner.link.disconnected_for()
    }

    /// Returns the names of the fleet's subjects, streams and buckets.
    pub fn names(&self) -> &NatsSubjectNames {
        &self.inner.names
    }

    /// Returns the size limit of a message, headers included.
    pub fn max_payload(&self) -> usize {
        self.inner.client.max_payload()
    }

    /// Returns the name and version of the connected server, for people.
    pub fn server(&self) -> String {
        let info = self.inner.client.server_info();
        format!("{} (nats-server {})", info.server_name, info.version)
    }

    /// Sends pending messages, and closes the connection.
    pub async fn close(&self) {
        // Errors are of no use to the ending process, and the server may be gone.
        let closing = async { drop((self.inner.client.flush().await, self.inner.client.drain().await)) };
        let _ = tokio::time::timeout(CLOSE_WITHIN, closing).await;
    }

    pub(crate) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(crate) fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn times_connected(&self) -> watch::Receiver<u64> {
        self.inner.link.times_connected()
    }

    /// Wraps a message as JetStream's, so that its reply subject can be read.
    pub(crate) fn jetstream_message(&self, message: async_nats::Message) -> Message {
        Message { message, context: self.inner.context.clone() }
    }

    /// Publishes into a stream, and waits until the message is stored.
    pub(crate) async fn publish_to_stream(
        &self,
        what: &str,
        subject: String,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<PublishAck, BusError> {
        let sent = self.inner.context.publish_with_headers(subject, headers, body.into()).await;
        let ack = match sent {
            Ok(ack) => ack.await,
            Err(error) => Err(error),
        };
        ack.map_err(|error| self.with_server_refusal(BusError::of_publish(what, &error)))
    }

    /// Waits until the server has carried out all earlier commands, such as subscriptions: async-nats'
    /// `flush` only waits until they are sent.
    pub(crate) async fn wait_until_processed(&self, what: &str) -> Result<(), BusError> {
        let answer = self.inner.context.query_account().await;
        answer.map(|_| ()).map_err(|error| self.no_answer_error(what, &error))
    }

    /// Turns a missing answer into a refusal, if the server has just reported one.
    pub(crate) fn with_server_refusal(&self, error: BusError) -> BusError {
        match (error, self.inner.link.recent_server_error()) {
            (BusError::Away { what, .. }, Some(reason)) => BusError::Refused { what, reason },
            (error, _) => error,
        }
    }

    /// Returns the error for a missing answer.
    pub(crate) fn no_answer_error(&self, what: &str, reason: &dyn std::fmt::Display) -> BusError {
        self.with_server_refusal(BusError::no_answer(what, reason))
    }

    /// Checks JetStream. Its account information tells by the API level the version of the answering server,
    /// which may be another than the connected one.
    async fn check_jetstream(&self, domain: Option<&str>) -> Result<(), BusError> {
        let place = match domain {
            Some(domain) => format!("the domain {domain}"),
            None => self.server(),
        };
        let mut asked = 1;
        let account = loop {
            let answer = self.inner.context.query_account().await.map_err(|error| match error.kind() {
                AccountErrorKind::TimedOut => self.no_answer_error(&place, &error),
                _ => BusError::NoJetStream { place: place.clone(), reason: error.to_string() },
            });
            match answer {
                Err(error) if error.is_transient() && asked < ASKED => asked += 1,
                answer => break answer?,
            }
        };
        if account.requests.level == 0 {
            return Err(BusError::Old { name: place, version: "2.10 or older".to_owned() });
        }
        Ok(())
    }
}

fn check_version(info: &ServerInfo) -> Result<(), BusError> {
    if is_new_enough(&info.version) {
        return Ok(());
    }
    Err(BusError::Old { name: info.server_name.clone(), version: info.version.clone() })
}

/// Returns true for an unknown format as well: forks count their versions in other ways, and
/// [`NatsBus::check_jetstream`] checks once more.
fn is_new_enough(version: &str) -> bool {
    let mut parts = version.split('.').map(str::parse::<u64>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= OLDEST,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_before_2_11_are_too_old() {
        for (version, fits) in [
            ("2.9.10", false),
            ("2.10.27", false),
            ("1.4.1", false),
            ("2.11.0", true),
            ("2.11.0-RC.1", true),
            ("2.15.2", true),
            ("3.0.0", true),
            ("dev", true),
        ] {
            assert_eq!(is_new_enough(version), fits, "{version}");
        }
        let info: ServerInfo =
            serde_json::from_str(r#"{"server_name":"old","version":"2.9.10","max_payload":1}"#).unwrap();
        let error = check_version(&info).unwrap_err();
        assert!(error.to_string().contains("old is version 2.9.10"), "{error}");
        assert!(error.hint().unwrap().contains("go install"));
    }
}
