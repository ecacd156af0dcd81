//! The streams and buckets of a fleet on NATS, created if they are missing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};

use super::NatsBus;
use crate::error::BusError;
use crate::subjects::NatsBucketName;
use crate::transfer_records::RECORD_VERSION;

/// Lifetime of a mover's record and of a manager's lease. They are renewed after a third of this time.
pub const LEASE: Duration = Duration::from_secs(6);

/// Lifetime of the marker for the end of a key.
const MARKER_STAYS: Duration = Duration::from_secs(60);

/// Time after which newly started servers of a cluster know each other. With one copy everything would be
/// lost with one of the servers, for good.
const PEERS_COME_WITHIN: Duration = Duration::from_secs(8);
const PEERS_LOOK_EVERY: Duration = Duration::from_millis(500);

/// Time within which a repeated message is recognized by its ID.
const SAME_WITHIN: Duration = Duration::from_secs(120);

/// Metadata key by which a stream is recognized as carrack's.
const MARK: &str = "carrack-records";

/// The result of [`NatsBus::create_missing_streams`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusPreparationResult {
    /// Number of copies of every stream; the lowest, if some streams existed.
    pub replicas: usize,
    /// A warning for the operator of the servers.
    pub warning: Option<String>,
}

impl NatsBus {
    /// Creates the missing buckets and streams; several processes may do it at the same time. Existing ones
    /// stay as they are. Without `replicas` there are three copies on a cluster, and one on a single server.
    ///
    /// # Errors
    /// If a foreign stream, or a stream of another version, has one of the names; if NATS refuses.
    pub async fn create_missing_streams(
        &self,
        replicas: Option<usize>,
    ) -> Result<BusPreparationResult, BusError> {
        let mut prepared = BusPreparationResult { replicas: usize::MAX, warning: None };
        let peers_until = Instant::now() + PEERS_COME_WITHIN;
        for config in self.configs() {
            let there = self.ensure(config, replicas, peers_until, &mut prepared.warning).await?;
            prepared.replicas = prepared.replicas.min(there);
        }
        Ok(prepared)
    }

    /// Returns the names of all streams that [`NatsBus::create_missing_streams`] creates.
    pub(super) fn streams(&self) -> Vec<String> {
        self.configs().into_iter().map(|config| config.name).collect()
    }

    fn configs(&self) -> Vec<Config> {
        let names = self.names();
        let mut configs: Vec<Config> =
            NatsBucketName::ALL.into_iter().map(|bucket| self.bucket_config(bucket)).collect();
        // Messages of these two streams never expire: a transfer may wait for weeks.
        configs.push(Config {
            name: names.work_stream(),
            subjects: vec![names.work_subjects(None)],
            ..stream_config()
        });
        configs.push(Config {
            name: names.log_stream(),
            subjects: vec![names.log_subject("*")],
            ..stream_config()
        });
        configs
    }

    /// Returns the configuration of a bucket, like that of other NATS clients, with the mark.
    fn bucket_config(&self, bucket: NatsBucketName) -> Config {
        let names = self.names();
        let lease = matches!(bucket, NatsBucketName::Movers | NatsBucketName::Leases);
        Config {
            name: names.bucket_stream(bucket),
            subjects: vec![names.key_subject(bucket, ">")],
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

    /// Creates a stream if it is missing; returns the number of its copies.
    async fn ensure(
        &self,
        mut config: Config,
        replicas: Option<usize>,
        peers_until: Instant,
        warning: &mut Option<String>,
    ) -> Result<usize, BusError> {
        if let Some(there) = self.existing_replica_count(&config).await? {
            return Ok(there);
        }
        config.num_replicas = replicas.unwrap_or(3);
        loop {
            let error = match self.context().create_stream(config.clone()).await {
                Ok(_) => return Ok(config.num_replicas),
                Err(error) => error,
            };
            let CreateStreamErrorKind::JetStream(refusal) = error.kind() else {
                return Err(self.no_answer_error(&config.name, &error));
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
                ErrorCode::STREAM_NAME_EXIST => match self.existing_replica_count(&config).await? {
                    Some(there) => return Ok(there),
                    None => return Err(BusError::refused(&config.name, &refusal)),
                },
                _ => return Err(BusError::refused(&config.name, &refusal)),
            }
        }
    }

    /// Returns the number of copies of an existing stream, if it is carrack's.
    async fn existing_replica_count(&self, config: &Config) -> Result<Option<usize>, BusError> {
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
                _ => return Err(self.no_answer_error(&config.name, &error)),
            },
        };
        let there = &stream.cached_info().config;
        match stream_mismatch(config, there) {
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

/// Returns the reason for which an existing stream can't serve as the wanted one. Its copies, their placement
/// and its size limit are the operator's decision.
fn stream_mismatch(wanted: &Config, there: &Config) -> Option<String> {
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
