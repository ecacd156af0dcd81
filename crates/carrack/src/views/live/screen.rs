//! The terminal: taken, drawn on, listened to, and given back, whatever ends the process.

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

use super::{Shared, lock};

/// How long a key is waited for; then the view is drawn anew. Counters come twice a second.
const TURN: Duration = Duration::from_millis(200);

/// Whether the terminal is the view's.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Draws until the transfer is over. A terminal that can't be used is left alone: the transfer goes on.
pub fn run(shared: &Mutex<Shared>) {
    if let Ok(mut terminal) = take() {
        // What can't be drawn or heard any more is a terminal that is gone.
        let _ = turn(shared, &mut terminal);
        restore();
    }
}

fn turn(shared: &Mutex<Shared>, terminal: &mut Terminal<CrosstermBackend<Stderr>>) -> io::Result<()> {
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
            && ends(key)
        {
            lock(shared).watch.is_ending = true;
            // As Ctrl-C does where the terminal makes a signal of it; a second one ends the process. Not SIGINT: what a script runs in the
            // background ignores it.
            let _ = kill_process(getpid(), Signal::TERM);
        }
    }
}

fn ends(key: KeyEvent) -> bool {
    let is_ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (is_ctrl_c || key.code == KeyCode::Char('q'))
}

fn take() -> io::Result<Terminal<CrosstermBackend<Stderr>>> {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        restore();
        before(info);
    }));
    enable_raw_mode()?;
    IS_TAKEN.store(true, SeqCst);
    let taken = execute!(io::stderr(), EnterAlternateScreen)
        .and_then(|()| Terminal::new(CrosstermBackend::new(io::stderr())));
    taken.inspect_err(|_| restore())
}

/// Gives the terminal back, if it was taken. Nobody can be told of an error there.
pub fn restore() {
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
        let key = |code, modifiers| ends(KeyEvent::new(code, modifiers));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE) && !key(KeyCode::Esc, KeyModifiers::NONE));
    }
}
