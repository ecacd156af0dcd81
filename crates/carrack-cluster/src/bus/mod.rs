//! The connection to NATS: made once, kept for ever, and asked by everything else here.
//!
//! async-nats reconnects by itself. What it was told meanwhile waits with it; what waits for an answer gets an error after
//! five seconds, and whoever asked decides.
//!
//! Whether a server syncs at once (`sync_interval: always`) can't be seen by a client: only its system account is told.
//! The samples in `docs/examples/nats` set it.

mod link;
mod options;
mod prepare;
mod refusal;
mod standing;

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{AccountErrorKind, ContextBuilder};
use async_nats::jetstream::{Context, Message, publish::PublishAck};
use async_nats::{Client, HeaderMap, ServerInfo};
use tokio::sync::watch;

pub use options::{BusOptions, Login, Tls};
pub use prepare::{LEASE, Prepared};

use crate::error::BusError;
use crate::subjects::Names;
use link::Link;
use options::ANSWER_WITHIN;
use refusal::no_connection;

/// The connection. Clones are the same one.
#[derive(Clone)]
pub struct Bus {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    context: Context,
    names: Names,
    link: Arc<Link>,
}

/// The oldest server that has limit markers, which tell watchers that a lease has ended.
const OLDEST: (u64, u64) = (2, 11);

/// Servers that choose a leader, as they do after one has died, lose what they are asked meanwhile: they are asked again, so
/// often in all.
const ASKED: u32 = 3;

/// What is still to be sent when a process ends may take so long.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

impl Bus {
    /// Connects, and sees whether the server is one that a fleet can use.
    ///
    /// # Errors
    /// If none of the servers can be reached within five seconds, doesn't let us in, is older than 2.11, or has no JetStream.
    pub async fn connect(options: &BusOptions) -> Result<Bus, BusError> {
        let names = Names::new(&options.prefix, options.domain.as_deref())?;
        let link = Arc::new(Link::new());
        let hearing = Arc::clone(&link);
        let client = options
            .to_connect()?
            .event_callback(move |event| {
                hearing.hear(&event);
                std::future::ready(())
            })
            .connect(options.servers.clone())
            .await
            .map_err(|error| no_connection(options, &error))?;
        check_version(&client.server_info())?;
        let builder = ContextBuilder::new().api_prefix(names.api()).timeout(ANSWER_WITHIN);
        let context = builder.build(client.clone());
        let bus = Bus { inner: Arc::new(Inner { client, context, names, link }) };
        bus.check_jetstream(options.domain.as_deref()).await?;
        Ok(bus)
    }

    /// How long there has been no connection; `None` while there is one. A path that swallows everything is noticed after six
    /// seconds.
    pub fn silent_for(&self) -> Option<Duration> {
        self.inner.link.silent_for()
    }

    /// The names of what this fleet has.
    pub fn names(&self) -> &Names {
        &self.inner.names
    }

    /// The most bytes that a message may have, headers and all.
    pub fn max_payload(&self) -> usize {
        self.inner.client.max_payload()
    }

    /// The server that we are connected to: its name and version, for people.
    pub fn server(&self) -> String {
        let info = self.inner.client.server_info();
        format!("{} (nats-server {})", info.server_name, info.version)
    }

    /// Sends what is waiting to be sent, and ends.
    pub async fn close(&self) {
        // There is nobody left to tell what did not work, and perhaps nobody to send to.
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

    /// A message as JetStream's, so that its reply subject can be read.
    pub(crate) fn jetstream_message(&self, message: async_nats::Message) -> Message {
        Message { message, context: self.inner.context.clone() }
    }

    /// Publishes into a stream, and waits until it is kept there.
    pub(crate) async fn store(
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
        ack.map_err(|error| self.explain(BusError::of_publish(what, &error)))
    }

    /// Waits until the server has done everything that it was told before, such as to send us what we subscribed to: async-nats'
    /// `flush` waits until it has been sent.
    pub(crate) async fn settle(&self, what: &str) -> Result<(), BusError> {
        let answer = self.inner.context.query_account().await;
        answer.map(|_| ()).map_err(|error| self.explain(BusError::away(what, &error)))
    }

    /// No answer is a refusal if the server has just said so.
    pub(crate) fn explain(&self, error: BusError) -> BusError {
        match (error, self.inner.link.refusal()) {
            (BusError::Away { what, .. }, Some(reason)) => BusError::Refused { what, reason },
            (error, _) => error,
        }
    }

    /// The account's information says by its API level how old the server is that answers, which may be another one than ours.
    async fn check_jetstream(&self, domain: Option<&str>) -> Result<(), BusError> {
        let place = match domain {
            Some(domain) => format!("the domain {domain}"),
            None => self.server(),
        };
        let ask = || async {
            self.inner.context.query_account().await.map_err(|error| match error.kind() {
                AccountErrorKind::TimedOut => self.explain(BusError::away(&place, &error)),
                _ => BusError::NoJetStream { place: place.clone(), reason: error.to_string() },
            })
        };
        let mut answer = ask().await;
        for _ in 1..ASKED {
            if !answer.as_ref().is_err_and(BusError::may_pass) {
                break;
            }
            answer = ask().await;
        }
        let account = answer?;
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

/// A version that is not understood is tried: forks count in their own way, and [`Bus::check_jetstream`] asks once more.
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
