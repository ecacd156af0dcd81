//! `--tui`: the live view. A thread of its own draws it on stderr, like the progress line, so that a slow
//! terminal delays nothing. Lines that stay on the terminal are held back, and written when the view has left
//! it.

mod held_output;
mod live_state;
mod render;
mod screen;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use carrack_model::{TransferEvent, escape};
use carrack_options::colour;

use crate::remote::route::RemoteEnds;
use crate::views::report::{FinishedTransfer, StderrTextView, TalkVolume, TransferEventPresenter};
use held_output::HeldOutput;
use live_state::LiveViewTransfer;
pub use screen::restore_terminal;

/// The state that the threads of the view share.
#[derive(Default)]
struct LiveViewState {
    watch: LiveViewTransfer,
    is_over: bool,
}

/// Shows a transfer while it runs.
pub struct LiveView {
    shared: Arc<Mutex<LiveViewState>>,
    /// The drawing thread, from the first data on: before that, ssh may ask questions.
    drawing: Option<JoinHandle<()>>,
    talk: StderrTextView<HeldOutput<io::Stderr>>,
}

impl LiveView {
    /// Creates the view of a copy of these sources.
    pub fn new(command: &str, sources: &[OsString], destination: &OsStr, volume: TalkVolume) -> LiveView {
        let sources: Vec<String> = sources.iter().map(|source| escape(source.as_bytes())).collect();
        let title = format!("carrack {command}  {} → {}", sources.join(" "), escape(destination.as_bytes()));
        let shared = LiveViewState { watch: LiveViewTransfer::new(title), is_over: false };
        LiveView {
            shared: Arc::new(Mutex::new(shared)),
            drawing: None,
            talk: StderrTextView::new(HeldOutput::new(io::stderr()), volume, None)
                .in_colour(colour::wants_colour(&io::stderr())),
        }
    }

    /// Returns the view with the hosts of paths on other hosts, in the messages that stay.
    #[must_use]
    pub fn with_ends(self, far: RemoteEnds) -> LiveView {
        LiveView { talk: self.talk.with_ends(far), ..self }
    }

    fn start_drawing(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let started = thread::Builder::new().name("view".into()).spawn(move || screen::run(&shared))?;
        self.drawing = Some(started);
        Ok(())
    }
}

impl TransferEventPresenter for LiveView {
    fn show_event(&mut self, event: &TransferEvent, elapsed: Duration) -> io::Result<()> {
        lock(&self.shared).watch.update(event, elapsed);
        if self.drawing.is_none()
            && matches!(event, TransferEvent::Connected { .. } | TransferEvent::Progress(_))
        {
            self.start_drawing()?;
        }
        self.talk.show_event(event, elapsed)
    }

    fn show_end(&mut self, ending: &FinishedTransfer) -> io::Result<()> {
        lock(&self.shared).is_over = true;
        // A panic of the thread has restored the terminal.
        self.drawing.take().into_iter().for_each(|drawing| drop(drawing.join()));
        self.talk.out().release();
        self.talk.show_end(ending)
    }
}

fn lock(shared: &Mutex<LiveViewState>) -> MutexGuard<'_, LiveViewState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
