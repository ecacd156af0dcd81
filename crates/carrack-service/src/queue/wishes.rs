//! What the process of the queue and the meta-server is asked for from outside: to end, or to read its configuration again.

use std::io::{self, Read};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};

use super::service::{EndsWith, QueueError, system};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// To come to an end.
    End,
    /// To go by what the configuration says now.
    ReadAgain,
}

/// Signals, and what comes on standard input where that is another process's reins.
pub(super) struct Wishes {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// A word for each byte, and its end at the end of standard input.
    reins: Option<Receiver<()>>,
}

impl Wishes {
    pub fn hear(ends: EndsWith) -> Result<Wishes, QueueError> {
        let caught = |kind| signal(kind).map_err(system("watching for signals"));
        Ok(Wishes {
            terminate: caught(SignalKind::terminate())?,
            interrupt: caught(SignalKind::interrupt())?,
            hangup: caught(SignalKind::hangup())?,
            reins: (ends == EndsWith::Stdin).then(hear_stdin).transpose()?,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> Wish {
        let of_reins = async {
            match &mut self.reins {
                Some(reins) => reins.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Wish::End,
            _ = self.interrupt.recv() => Wish::End,
            _ = self.hangup.recv() => Wish::ReadAgain,
            word = of_reins => if word.is_some() { Wish::ReadAgain } else { Wish::End },
        }
    }
}

fn hear_stdin() -> Result<Receiver<()>, QueueError> {
    // Of several words that were not heeded yet one is enough.
    let (told, hears) = channel(1);
    let hear = move || {
        while matches!(io::stdin().read(&mut [0; 64]), Ok(1..)) {
            let _ = told.try_send(());
        }
    };
    // Nothing keeps it: the process ends with it or without.
    std::thread::Builder::new()
        .name("carrack-reins".into())
        .spawn(hear)
        .map_err(system("starting a thread"))?;
    Ok(hears)
}
