//! What a fleet needs on NATS, made if it is not there.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};

use super::Bus;
use crate::error::BusError;
use crate::records::RECORD_VERSION;
use crate::subjects::BucketName;

/// How long a mover's record and a manager's lease last unless they are renewed. A third of it passes between two renewals.
pub const LEASE: Duration = Duration::from_secs(6);

/// How long a marker stays that says that a key has ended.
const MARKER_STAYS: Duration = Duration::from_secs(60);

/// Servers that have just started to form a cluster know each other after so long. With one copy everything would end with
/// one of them, for good.
const PEERS_COME_WITHIN: Duration = Duration::from_secs(8);
const PEERS_LOOK_EVERY: Duration = Duration::from_millis(500);

/// A message that comes again within this time is known by its id.
const SAME_WITHIN: Duration = Duration::from_secs(120);

/// Streams say by this what they are.
const MARK: &str = "carrack-records";

/// What [`Bus::prepare`] has found or made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Copies that there are of everything; the fewest, if some was there.
    pub replicas: usize,
    /// What whoever operates the servers should know.
    pub warning: Option<String>,
}

impl Bus {
    /// Makes the buckets and streams that are not there. Many may do it at the same time. What is there stays as it is.
    /// Without `replicas` there are three copies where servers form a cluster, and one where they don't.
    ///
    /// # Errors
    /// If something else, or something of another version, is there by that name; if NATS refuses.
    pub async fn prepare(&self, replicas: Option<usize>) -> Result<Prepared, BusError> {
        let mut prepared = Prepared { replicas: usize::MAX, warning: None };
        let peers_until = Instant::now() + PEERS_COME_WITHIN;
        for config in self.configs() {
            let there = self.ensure(config, replicas, peers_until, &mut prepared.warning).await?;
            prepared.replicas = prepared.replicas.min(there);
        }
        Ok(prepared)
    }

    /// The names of all streams that [`Bus::prepare`] makes.
    pub(super) fn streams(&self) -> Vec<String> {
        self.configs().into_iter().map(|config| config.name).collect()
    }

    fn configs(&self) -> Vec<Config> {
        let names = self.names();
        let mut configs: Vec<Config> =
            BucketName::ALL.into_iter().map(|bucket| self.bucket_config(bucket)).collect();
        // No message of these two is ever thrown away for being old: a transfer may wait for weeks.
        configs.push(Config { name: names.work(), subjects: vec![names.work_of(None)], ..stream_config() });
        configs.push(Config { name: names.log(), subjects: vec![names.log_of("*")], ..stream_config() });
        configs
    }

    /// A bucket as every client of NATS makes them; made here to have the mark.
    fn bucket_config(&self, bucket: BucketName) -> Config {
        let names = self.names();
        let lease = matches!(bucket, BucketName::Movers | BucketName::Leases);
        Config {
            name: names.bucket_stream(bucket),
            subjects: vec![names.key(bucket, ">")],
            max_messages_per_subject: 1,
            max_age: if lease { LEASE } else { Duration::ZERO },
            duplicate_window: if lease { LEASE } else { SAME_WITHIN },
            allow_rollup: true,
            deny_delete: true,
            allow_message_ttl: true,
            subject_delete_marker_ttl: Some(if lease { LEASE } else { MARKER_STAYS }),
            ..stream_config()
        }
    }

    /// Copies that the stream has.
    async fn ensure(
        &self,
        mut config: Config,
        replicas: Option<usize>,
        peers_until: Instant,
        warning: &mut Option<String>,
    ) -> Result<usize, BusError> {
        if let Some(there) = self.find(&config).await? {
            return Ok(there);
        }
        config.num_replicas = replicas.unwrap_or(3);
        loop {
            let error = match self.context().create_stream(config.clone()).await {
                Ok(_) => return Ok(config.num_replicas),
                Err(error) => error,
            };
            let CreateStreamErrorKind::JetStream(refusal) = error.kind() else {
                return Err(self.explain(BusError::away(&config.name, &error)));
            };
            match refusal.error_code() {
                ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED if replicas.is_none() && config.num_replicas > 1 => {
                    config.num_replicas = 1;
                }
                ErrorCode::CLUSTER_NO_PEERS
                    if replicas.is_none() && config.num_replicas > 1 && Instant::now() < peers_until =>
                {
                    tokio::time::sleep(PEERS_LOOK_EVERY).await;
                }
                ErrorCode::CLUSTER_NO_PEERS if replicas.is_none() && config.num_replicas > 1 => {
                    config.num_replicas = 1;
                    *warning = Some(format!(
                        "the cluster has not three servers for {}: there is one copy of it, which ends with its \
                         server (`nats stream edit --replicas 3` later makes more)",
                        config.name
                    ));
                }
                // Another manager was faster.
                ErrorCode::STREAM_NAME_EXIST => match self.find(&config).await? {
                    Some(there) => return Ok(there),
                    None => return Err(BusError::refused(&config.name, &refusal)),
                },
                _ => return Err(BusError::refused(&config.name, &refusal)),
            }
        }
    }

    /// The copies of what is there by that name, if it is ours.
    async fn find(&self, config: &Config) -> Result<Option<usize>, BusError> {
        let stream = match self.context().get_stream(&config.name).await {
            Ok(stream) => stream,
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(refusal)
                    if refusal.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    return Ok(None);
                }
                GetStreamErrorKind::JetStream(refusal) => {
                    return Err(BusError::refused(&config.name, &refusal));
                }
                _ => return Err(self.explain(BusError::away(&config.name, &error))),
            },
        };
        let there = &stream.cached_info().config;
        match unlike(config, there) {
            Some(reason) => Err(BusError::Foreign { name: config.name.clone(), reason }),
            None => Ok(Some(there.num_replicas.max(1))),
        }
    }
}

fn stream_config() -> Config {
    Config {
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        duplicate_window: SAME_WITHIN,
        max_bytes: -1,
        max_messages: -1,
        allow_direct: true,
        metadata: HashMap::from([(MARK.to_owned(), RECORD_VERSION.to_string())]),
        ..Config::default()
    }
}

/// Why the stream that is there can't serve as the wanted one. How many copies it has, where they lie and how large they may become
/// is for whoever operates the servers.
fn unlike(wanted: &Config, there: &Config) -> Option<String> {
    match there.metadata.get(MARK) {
        None => return Some("it is there, but no carrack has made it".to_owned()),
        Some(version) if *version != RECORD_VERSION.to_string() => {
            return Some(format!("its records are of version {version}, and ours of {RECORD_VERSION}"));
        }
        Some(_) => {}
    }
    let same = there.subjects == wanted.subjects
        && there.retention == wanted.retention
        && there.max_age == wanted.max_age
        && there.allow_message_ttl == wanted.allow_message_ttl
        && there.allow_direct
        && (wanted.max_messages_per_subject == 0
            || there.max_messages_per_subject == wanted.max_messages_per_subject);
    (!same).then(|| "its subjects or limits were changed".to_owned())
}
