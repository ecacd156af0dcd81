//! Requests to one mover, answered at once and not stored.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Message, RequestErrorKind};
use carrack_model::text_without_errno;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::bus::NatsBus;
use crate::error::BusError;
use crate::store::{read_record, write_record};
use crate::transfer_records::{RECORD_VERSION, is_name};

/// Requests that a mover handles at the same time. Others wait: a hanging file system would take threads
/// without end.
const AT_ONCE: usize = 16;

/// A request to a mover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MoverRequest {
    /// Describe this path.
    Look {
        /// Absolute path.
        path: String,
    },
    /// Make this directory, if it is missing.
    Make {
        /// Absolute path.
        path: String,
    },
    /// Digest the names in this directory, for a comparison with another mover's.
    Names {
        /// Absolute path.
        path: String,
    },
    /// Check which of these files are missing.
    Prove {
        /// Absolute path.
        directory: String,
        /// Files beneath it.
        files: Vec<CompletionProofFile>,
    },
    /// Remove the leftovers of a transfer's sessions from this directory: journals, and the temporary files
    /// that they name.
    Clear {
        /// Absolute path.
        directory: String,
        /// ID of the journals, in hexadecimal digits.
        transfer: String,
    },
    /// A notice: a manager leaves the mover out for this time, or ends that with an empty reason.
    LeftOut {
        /// The reason, for people.
        reason: String,
        /// The time in milliseconds.
        for_ms: u64,
    },
}

/// A file that should exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionProofFile {
    /// Its path, percent-encoded, as names need not be UTF-8.
    pub path: String,
    /// Its size at the scan.
    pub size: u64,
    /// Its modification time at the scan, in seconds since 1970.
    pub mtime_s: i64,
}

/// The properties of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathReply {
    /// True if it exists.
    pub exists: bool,
    /// True for a directory, or a link to one.
    #[serde(default)]
    pub is_directory: bool,
    /// Size of a file in bytes.
    #[serde(default)]
    pub size: u64,
    /// True if the path itself is a symbolic link.
    #[serde(default)]
    pub is_link: bool,
    /// True if its parent directory exists.
    #[serde(default)]
    pub parent_exists: bool,
}

/// A mover's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MoverReply {
    /// The answer to [`MoverRequest::Look`].
    Looked(PathReply),
    /// The answer to [`MoverRequest::Make`]: the directory exists.
    Made,
    /// The answer to [`MoverRequest::Prove`].
    Unseen {
        /// Paths of missing files and of older versions.
        files: Vec<String>,
    },
    /// The answer to [`MoverRequest::Names`].
    Names {
        /// Digest of the names, or of a file's size, in hexadecimal digits; empty if there are too many
        /// names.
        digest: String,
    },
    /// The answer to [`MoverRequest::Clear`], with the numbers of removed files.
    Cleared {
        /// Journals.
        journals: u64,
        /// Temporary files.
        temporaries: u64,
    },
    /// The answer to [`MoverRequest::LeftOut`].
    Noted,
    /// The request failed, with a reason for people.
    Failed(String),
}

/// An error of a request.
#[derive(Debug, thiserror::Error)]
pub enum MoverRequestError {
    /// There is no such mover.
    #[error("the mover {0} is not there")]
    Nobody(String),
    /// It has not answered in time.
    #[error("the mover {mover} has not answered within {within:?}")]
    Silent {
        /// The mover.
        mover: String,
        /// The timeout.
        within: Duration,
    },
    /// It reports a failure.
    #[error("the mover {mover}: {reason}")]
    Failed {
        /// The mover.
        mover: String,
        /// The reason.
        reason: String,
    },
    /// An error of NATS.
    #[error(transparent)]
    Bus(#[from] BusError),
}

#[derive(Serialize, Deserialize)]
pub(crate) struct VersionedMessage<T> {
    pub(crate) version: u32,
    #[serde(flatten)]
    pub(crate) body: T,
}

/// Sends a request to a mover, and waits for its answer.
///
/// # Errors
/// [`MoverRequestError`].
pub async fn send_mover_request(
    bus: &NatsBus,
    mover: &str,
    ask: &MoverRequest,
    within: Duration,
) -> Result<MoverReply, MoverRequestError> {
    if !is_name(mover) {
        return Err(BusError::BadName(mover.to_owned()).into());
    }
    let body = write_record("a question", &VersionedMessage { version: RECORD_VERSION, body: ask })?;
    let request = async_nats::Request::new().payload(body.into()).timeout(Some(within));
    let answer = bus.client().send_request(bus.names().mover_request_subject(mover), request).await;
    let message = answer.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => MoverRequestError::Nobody(mover.to_owned()),
        RequestErrorKind::TimedOut => match bus.no_answer_error(mover, &error) {
            BusError::Away { .. } => MoverRequestError::Silent { mover: mover.to_owned(), within },
            refused => refused.into(),
        },
        _ => BusError::no_answer(mover, &error).into(),
    })?;
    match read_record::<VersionedMessage<MoverReply>>("an answer", &message.payload)?.body {
        MoverReply::Failed(reason) => Err(MoverRequestError::Failed { mover: mover.to_owned(), reason }),
        answer => Ok(answer),
    }
}

/// Answers requests as long as it lives.
pub struct MoverRequestServer {
    task: JoinHandle<()>,
}

impl Drop for MoverRequestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers the requests to a mover by `handler`, several at the same time.
///
/// # Errors
/// If the ID is no valid name, or NATS can't be reached.
pub async fn serve_requests<H>(bus: &NatsBus, mover: &str, handler: H) -> Result<MoverRequestServer, BusError>
where
    H: Fn(MoverRequest) -> BoxFuture<'static, MoverReply> + Send + Sync + 'static,
{
    if !is_name(mover) {
        return Err(BusError::BadName(mover.to_owned()));
    }
    let subscribed = bus.client().subscribe(bus.names().mover_request_subject(mover)).await;
    let mut questions = subscribed.map_err(|error| BusError::no_answer("questions", &error))?;
    // After this answer the server knows the subscription, so that requests don't fail for lack of a mover.
    bus.wait_until_processed("questions").await?;
    let (bus, handler) = (bus.clone(), Arc::new(handler));
    let seats = Arc::new(Semaphore::new(AT_ONCE));
    let task = tokio::spawn(async move {
        while let Some(question) = questions.next().await {
            let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
            let (bus, handler) = (bus.clone(), Arc::clone(&handler));
            tokio::spawn(async move {
                answer(&bus, &*handler, question).await;
                drop(seat);
            });
        }
    });
    Ok(MoverRequestServer { task })
}

async fn answer<H>(bus: &NatsBus, handler: &H, question: Message)
where
    H: Fn(MoverRequest) -> BoxFuture<'static, MoverReply>,
{
    let Some(reply) = question.reply else { return };
    let answer = match read_record::<VersionedMessage<MoverRequest>>("a question", &question.payload) {
        Ok(ask) => handler(ask.body).await,
        Err(error) => MoverReply::Failed(text_without_errno(&error)),
    };
    if let Ok(body) = write_record("an answer", &VersionedMessage { version: RECORD_VERSION, body: answer }) {
        // The sender's request times out then.
        let _ = bus.client().publish(reply, body.into()).await;
    }
}
