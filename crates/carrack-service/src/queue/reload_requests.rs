//! Requests to the process of the queue and the meta-server from outside: to end, or to read its
//! configuration again.

use std::io::{self, Read};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};

use super::service::{QueueProcessStopTrigger, QueueServiceError, system_error};

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueSignalRequest {
    /// End.
    End,
    /// Read the configuration again.
    ReadAgain,
}

/// Signals, and the bytes of standard input if the daemon controls this process by it.
pub(super) struct ServiceProcessSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// An item for each byte; closed at the end of standard input.
    stop_control: Option<Receiver<()>>,
}

impl ServiceProcessSignals {
    pub fn install(ends: QueueProcessStopTrigger) -> Result<ServiceProcessSignals, QueueServiceError> {
        Ok(ServiceProcessSignals {
            terminate: signal_stream(SignalKind::terminate())?,
            interrupt: signal_stream(SignalKind::interrupt())?,
            hangup: signal_stream(SignalKind::hangup())?,
            stop_control: (ends == QueueProcessStopTrigger::Stdin).then(watch_stdin).transpose()?,
        })
    }

    /// Waits for the next request.
    pub async fn next(&mut self) -> QueueSignalRequest {
        let of_reins = async {
            match &mut self.stop_control {
                Some(stop_control) => stop_control.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => QueueSignalRequest::End,
            _ = self.interrupt.recv() => QueueSignalRequest::End,
            _ = self.hangup.recv() => QueueSignalRequest::ReadAgain,
            word = of_reins => if word.is_some() { QueueSignalRequest::ReadAgain } else { QueueSignalRequest::End },
        }
    }
}

fn signal_stream(kind: SignalKind) -> Result<Signal, QueueServiceError> {
    signal(kind).map_err(system_error("watching for signals"))
}

fn watch_stdin() -> Result<Receiver<()>, QueueServiceError> {
    // One pending request is enough.
    let (told, hears) = channel(1);
    // The thread is not joined: the process ends with or without it.
    std::thread::Builder::new()
        .name("carrack-reload".into())
        .spawn(move || {
            while matches!(io::stdin().read(&mut [0; 64]), Ok(1..)) {
                let _ = told.try_send(());
            }
        })
        .map_err(system_error("starting a thread"))?;
    Ok(hears)
}
