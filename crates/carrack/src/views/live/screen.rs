//! The terminal: takes it, draws on it, reads its keys, and restores it at every end of the process.

use std::io::{self, Stderr};
use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::process::{Signal, getpid, kill_process};

use super::{LiveViewState, lock};

/// Longest wait for a key before the view is drawn again. Counters come twice a second.
const TURN: Duration = Duration::from_millis(200);

/// True while the terminal belongs to the view.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Draws until the transfer is over. An unusable terminal is left alone, and the transfer continues.
pub fn run(shared: &Mutex<LiveViewState>) {
    if let Ok(mut terminal) = take_terminal() {
        // An error means that the terminal is gone.
        let _ = draw_until_over(shared, &mut terminal);
        restore_terminal();
    }
}

fn draw_until_over(
    shared: &Mutex<LiveViewState>,
    terminal: &mut Terminal<CrosstermBackend<Stderr>>,
) -> io::Result<()> {
    loop {
        let watch = {
            let shared = lock(shared);
            if shared.is_over || !IS_TAKEN.load(SeqCst) {
                return Ok(());
            }
            shared.watch.clone()
        };
        terminal.draw(|frame| frame.render_widget(&watch, frame.area()))?;
        if event::poll(TURN)?
            && let Event::Key(key) = event::read()?
            && is_quit_key(key)
        {
            lock(shared).watch.is_ending = true;
            // The key has the effect of Ctrl-C where the terminal makes a signal from that; a second signal
            // ends the process. The signal is not SIGINT, which background jobs of scripts ignore.
            let _ = kill_process(getpid(), Signal::TERM);
        }
    }
}

fn is_quit_key(key: KeyEvent) -> bool {
    let is_ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (is_ctrl_c || key.code == KeyCode::Char('q'))
}

fn take_terminal() -> io::Result<Terminal<CrosstermBackend<Stderr>>> {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        restore_terminal();
        before(info);
    }));
    enable_raw_mode()?;
    IS_TAKEN.store(true, SeqCst);
    let taken = execute!(io::stderr(), EnterAlternateScreen)
        .and_then(|()| Terminal::new(CrosstermBackend::new(io::stderr())));
    taken.inspect_err(|_| restore_terminal())
}

/// Restores the terminal, if it was taken. A failure can't be reported.
pub fn restore_terminal() {
    if IS_TAKEN.swap(false, SeqCst) {
        let _ = execute!(io::stderr(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_keys_end_it() {
        for (code, modifiers, is_end) in [
            (KeyCode::Char('q'), KeyModifiers::NONE, true),
            (KeyCode::Char('c'), KeyModifiers::CONTROL, true),
            (KeyCode::Char('c'), KeyModifiers::NONE, false),
            (KeyCode::Esc, KeyModifiers::NONE, false),
        ] {
            assert_eq!(is_quit_key(KeyEvent::new(code, modifiers)), is_end, "{code:?} {modifiers:?}");
        }
    }
}
