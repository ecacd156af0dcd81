//! Copies in the background (`--background`): processes outside the session of their terminal.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, setsid};

use super::copies::{CopyStore, LocalCopyRecord, no_register_error};
use super::process::RecordedProcessLiveness;
use crate::exit::ExitStatus;
use crate::user_error::UserError;

/// The option that marks the process in the background.
pub const INSIDE: &str = "--in-background";

/// Interval at which other processes read the state of a copy.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The longest wait for the handshake; after it the copy is left alone in the background.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);

/// The time for the last messages of a process that has recorded its end.
const LAST_MESSAGES: Duration = Duration::from_secs(5);

/// Bytes of the end of a log that are shown, if it is longer.
const SHOWN_MOST: usize = 16 << 10;

/// Starts the same command in the background, and waits until it has met the other end, or has ended.
pub fn launch(id: &str) -> Result<ExitStatus, UserError> {
    let copies = CopyStore::of_user().ok_or_else(no_register_error)?;
    if copies
        .find(id)?
        .is_some_and(|copy| copy.is_running() && copy.process_liveness() == RecordedProcessLiveness::Running)
    {
        let trouble = UserError::new(format!("this copy runs already: {id}"));
        return Err(trouble.hint(format!("`carrack status {id}` shows it, `carrack cancel {id}` ends it")));
    }
    let child = spawn(&copies, id).map_err(|error| background_error(&error))?;
    let ended = await_session_start(&copies, id, child).map_err(|error| background_error(&error))?;
    writeln!(io::stdout(), "{id}").map_err(|error| background_error(&error))?;
    match ended {
        Some(exit) => {
            let log = copies.log_path(id);
            let has_said = show_log(&log);
            if exit != ExitStatus::Complete && !has_said {
                let log = carrack_model::escape(log.as_os_str().as_bytes());
                let message = format!("the copy ended at once, and nothing is in its log {log}");
                return Err(UserError::new(message).hint("is that file system full?"));
            }
            Ok(exit)
        }
        None => {
            eprintln!(
                "carrack: goes on in the background: `carrack status {id}`, `carrack wait {id}`, `carrack cancel {id}`"
            );
            Ok(ExitStatus::Complete)
        }
    }
}

fn spawn(copies: &CopyStore, id: &str) -> io::Result<Child> {
    copies.make_directory()?;
    // The log of an earlier run is overwritten.
    let log =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(copies.log_path(id))?;
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    Command::new(std::env::current_exe()?)
        .args(with_background_marker(&words))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
}

fn background_error(error: &io::Error) -> UserError {
    UserError::new(format!("--background: {error}"))
}

/// Returns the exit code, if the process ends before both ends have met.
fn await_session_start(copies: &CopyStore, id: &str, mut child: Child) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now() + BEGINS_WITHIN;
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(Some(code.and_then(ExitStatus::from_code).unwrap_or(ExitStatus::Nothing)));
        }
        if let Ok(Some(copy)) = copies.find(id)
            && copy.pid() == child.id()
            && copy.standing.has_begun
        {
            break;
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(None)
}

/// Inserts the option that marks the background process: before `--`, after which there are only paths.
fn with_background_marker(words: &[OsString]) -> Vec<OsString> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (options, paths) = words.split_at(end);
    [options, &[INSIDE.into()], paths].concat()
}

/// Returns true if there is something in the log.
fn show_log(path: &Path) -> bool {
    let said = fs::read(path).unwrap_or_default();
    let from = said.len().saturating_sub(SHOWN_MOST);
    // A failure can't be reported: stderr is where it would go.
    let _ = io::stderr().write_all(&said[from..]);
    !said.is_empty()
}

/// Leaves the terminal's session, so that its end doesn't end this process.
pub fn leave_terminal() {
    // It fails if the process leads a session already.
    let _ = setsid();
}

fn unknown_copy_error(id: &str) -> UserError {
    UserError::new(format!("nothing is known of the copy {id} any more"))
}

/// Waits until a copy is over, prints its log if it ran in the background, and returns its exit code.
pub fn wait(copy: &LocalCopyRecord) -> Result<ExitStatus, UserError> {
    let id = &copy.id;
    let copies = CopyStore::of_user().ok_or_else(|| unknown_copy_error(id))?;
    if copy.exit_status().is_none() && copy.process_liveness() == RecordedProcessLiveness::Elsewhere {
        let trouble = UserError::new(format!(
            "the copy {id} was begun on {}: whether it runs is not seen here",
            copy.host()
        ));
        return Err(trouble.hint("wait for it there"));
    }
    while copies.reload(copy).map_err(|_| unknown_copy_error(id))?.is_running() {
        thread::sleep(LOOK_EVERY);
    }
    // The process may have written its last state just before it ended.
    let copy = copies.reload(copy).map_err(|_| unknown_copy_error(id))?;
    if copy.standing.in_background {
        let deadline = Instant::now() + LAST_MESSAGES;
        while copy.process_liveness() == RecordedProcessLiveness::Running && Instant::now() < deadline {
            thread::sleep(LOOK_EVERY);
        }
        show_log(&copies.log_path(id));
    }
    copy.exit_status().ok_or_else(|| {
        UserError::new(format!("the copy {id} was killed")).hint(format!("`carrack resume {id}` goes on"))
    })
}

/// Ends a copy as Ctrl-C does.
pub fn cancel(copy: &LocalCopyRecord) -> Result<(), UserError> {
    let id = &copy.id;
    let pid = i32::try_from(copy.pid()).ok().and_then(Pid::from_raw);
    match (copy.process_liveness(), pid) {
        (RecordedProcessLiveness::Running, Some(pid)) if copy.is_running() => kill_process(pid, Signal::TERM)
            .map_err(|errno| UserError::new(format!("ending the copy {id}: {errno}"))),
        (RecordedProcessLiveness::Elsewhere, _) => {
            let trouble = UserError::new(format!("the copy {id} runs on {}", copy.host()));
            Err(trouble.hint("cancel it there"))
        }
        _ => Err(UserError::new(format!("the copy {id} is over"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_word_for_the_background_stands_before_the_paths() {
        assert_eq!(
            with_background_marker(&words("cp --background a b")),
            words("cp --background a b --in-background")
        );
        assert_eq!(
            with_background_marker(&words("cp --background -- a --")),
            words("cp --background --in-background -- a --")
        );
    }
}
