//! Questions to one mover, answered while one waits: nothing of this is kept.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Message, RequestErrorKind};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::bus::Bus;
use crate::error::BusError;
use crate::records::{RECORD_VERSION, is_name};
use crate::store::{read_record, write_record};

/// Questions that a mover works on at the same time. More wait: a file system that hangs would take threads without end.
const AT_ONCE: usize = 16;

/// What a mover can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ask {
    /// What is at this path?
    Look {
        /// Absolute.
        path: String,
    },
    /// Make this directory, if nothing is there.
    Make {
        /// Absolute.
        path: String,
    },
    /// Which names are in this directory? The answer is a digest, to be compared with another mover's.
    Names {
        /// Absolute.
        path: String,
    },
    /// Which of these files are not there?
    Prove {
        /// Absolute.
        directory: String,
        /// Beneath it.
        files: Vec<Expected>,
    },
    /// Remove what the sessions of a transfer have left in this directory: journals, and the temporary files that they name.
    Clear {
        /// Absolute.
        directory: String,
        /// What the journals are known by, in hexadecimal digits.
        transfer: String,
    },
    /// No question: a manager leaves it out for so long, or, with no reason, does so no longer.
    LeftOut {
        /// For people.
        reason: String,
        /// In milliseconds.
        for_ms: u64,
    },
}

/// A file that should be there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// Percent-encoded, as names need not be text.
    pub path: String,
    /// Its bytes when it was scanned.
    pub size: u64,
    /// Its time then, in seconds since 1970.
    pub mtime_s: i64,
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// Whether there is anything.
    pub exists: bool,
    /// Whether it is a directory; a link to one is one.
    #[serde(default)]
    pub is_directory: bool,
    /// Bytes, of a file.
    #[serde(default)]
    pub size: u64,
    /// Whether the path itself is a symbolic link.
    #[serde(default)]
    pub is_link: bool,
    /// Whether the directory that it is in is there.
    #[serde(default)]
    pub parent_exists: bool,
}

/// What a mover says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// To [`Ask::Look`].
    Looked(Looked),
    /// To [`Ask::Make`]: a directory is there.
    Made,
    /// To [`Ask::Prove`].
    Unseen {
        /// The paths of those that are not there, or are an older version.
        files: Vec<String>,
    },
    /// To [`Ask::Names`].
    Names {
        /// Of the names, in hexadecimal digits; of a file of its size; empty where there are too many to tell.
        digest: String,
    },
    /// To [`Ask::Clear`]: how many were removed.
    Cleared {
        /// Journals.
        journals: u64,
        /// Temporary files.
        temporaries: u64,
    },
    /// To [`Ask::LeftOut`].
    Noted,
    /// It can't: the words are for people.
    Failed(String),
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No such mover is there.
    #[error("the mover {0} is not there")]
    Nobody(String),
    /// It has not answered in time.
    #[error("the mover {mover} has not answered within {within:?}")]
    Silent {
        /// Which.
        mover: String,
        /// How long was waited.
        within: Duration,
    },
    /// It can't answer.
    #[error("the mover {mover}: {reason}")]
    Failed {
        /// Which.
        mover: String,
        /// Why.
        reason: String,
    },
    /// NATS does not carry it.
    #[error(transparent)]
    Bus(#[from] BusError),
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Versioned<T> {
    pub(crate) version: u32,
    #[serde(flatten)]
    pub(crate) body: T,
}

/// Asks a mover, and waits for its answer.
///
/// # Errors
/// [`AskError`].
pub async fn ask(bus: &Bus, mover: &str, ask: &Ask, within: Duration) -> Result<Answer, AskError> {
    if !is_name(mover) {
        return Err(BusError::BadName(mover.to_owned()).into());
    }
    let body = write_record("a question", &Versioned { version: RECORD_VERSION, body: ask })?;
    let request = async_nats::Request::new().payload(body.into()).timeout(Some(within));
    let answer = bus.client().send_request(bus.names().ask(mover), request).await;
    let message = answer.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => AskError::Nobody(mover.to_owned()),
        RequestErrorKind::TimedOut => match bus.explain(BusError::away(mover, &error)) {
            BusError::Away { .. } => AskError::Silent { mover: mover.to_owned(), within },
            refused => refused.into(),
        },
        _ => BusError::away(mover, &error).into(),
    })?;
    match read_record::<Versioned<Answer>>("an answer", &message.payload)?.body {
        Answer::Failed(reason) => Err(AskError::Failed { mover: mover.to_owned(), reason }),
        answer => Ok(answer),
    }
}

/// Answers questions for as long as it lives.
pub struct AskServer {
    task: JoinHandle<()>,
}

impl Drop for AskServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Has `handler` answer what the mover is asked, several questions at the same time.
///
/// # Errors
/// If the id is no name, or NATS can't be reached.
pub async fn serve_asks<H>(bus: &Bus, mover: &str, handler: H) -> Result<AskServer, BusError>
where
    H: Fn(Ask) -> BoxFuture<'static, Answer> + Send + Sync + 'static,
{
    if !is_name(mover) {
        return Err(BusError::BadName(mover.to_owned()));
    }
    let subscribed = bus.client().subscribe(bus.names().ask(mover)).await;
    let mut questions = subscribed.map_err(|error| BusError::away("questions", &error))?;
    // Once this is answered the server knows of the subscription, and nobody is told that there is no such mover.
    bus.settle("questions").await?;
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
    Ok(AskServer { task })
}

async fn answer<H>(bus: &Bus, handler: &H, question: Message)
where
    H: Fn(Ask) -> BoxFuture<'static, Answer>,
{
    let Some(reply) = question.reply else { return };
    let answer = match read_record::<Versioned<Ask>>("a question", &question.payload) {
        Ok(ask) => handler(ask.body).await,
        Err(error) => Answer::Failed(error.to_string()),
    };
    if let Ok(body) = write_record("an answer", &Versioned { version: RECORD_VERSION, body: answer }) {
        // Whoever asked hears nothing then, and says so.
        let _ = bus.client().publish(reply, body.into()).await;
    }
}
