//! Copies that go on by themselves (`--background`), and how they stand: for `carrack status`, `wait` and `cancel`.
//!
//! Such a copy is a process out of its terminal's session. It keeps a small file of how it stands, written anew each second and at
//! its end; what it says to people goes to a log beside it. Both lie in `$XDG_STATE_HOME/carrack/background` under the
//! transfer's ID, until 30 days after the end.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use carrack_model::{Event, Progress, escape};
use rustix::process::{Pid, Signal, kill_process, setsid};
use serde::{Deserialize, Serialize};
use std::os::unix::ffi::OsStrExt;

use crate::exit::Exit;
use crate::lifetime::{now_s, show_moment};
use crate::process::{Life, Process};
use crate::report::{Ending, View};
use crate::size;
use crate::state;
use crate::trouble::{Trouble, tame};

/// The option that says that this process is the one in the background.
pub const INSIDE: &str = "--in-background";

/// How often the file is written anew.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// How often others look at it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A copy that has not met the other end after so long is left to itself.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);

/// Files of copies that ended before are removed.
const KEPT_S: i64 = 30 * 24 * 3600;

/// The fewest digits that may stand for all of an ID.
const PREFIX_MIN: usize = 4;

/// A log that is longer is shown from so near to its end, in bytes.
const SHOWN_MOST: usize = 16 << 10;

/// How a copy stands, as its file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The transfer's: 32 hexadecimal digits.
    pub id: String,
    /// What is copied, as it was typed.
    sources: Vec<String>,
    /// Where to.
    destination: String,
    /// When it began, in seconds since 1970.
    started: i64,
    /// When this was written.
    updated: i64,
    /// Whether both ends have met.
    has_begun: bool,
    entries_found: u64,
    bytes_found: u64,
    /// Whether the two above are totals.
    scan_done: bool,
    entries_done: u64,
    bytes_done: u64,
    entries_failed: u64,
    /// The exit code, once it has ended.
    exit: Option<u8>,
    process: Process,
}

/// Where a user's copies note how they stand.
#[derive(Clone, Debug)]
pub struct Background {
    directory: PathBuf,
}

impl Background {
    /// Of this process's user; nothing if there is no home.
    pub fn of_user() -> Option<Background> {
        Some(Background { directory: state::directory("background")? })
    }

    fn log(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.log"))
    }

    fn read(&self, id: &str) -> io::Result<Standing> {
        let standing: Standing = serde_json::from_slice(&fs::read(self.directory.join(file_name(id)))?)?;
        if standing.id == id { Ok(standing) } else { Err(ErrorKind::InvalidData.into()) }
    }

    fn write(&self, standing: &Standing) -> io::Result<()> {
        state::write(&self.directory, &file_name(&standing.id), &serde_json::to_vec_pretty(standing)?)
            .map(drop)
    }

    /// The IDs of all copies.
    fn ids(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let files = paths.filter(|path| path.extension() == Some("json".as_ref()));
        files.filter_map(|path| path.file_stem()?.to_str().map(str::to_owned)).collect()
    }

    /// The copy with this ID or the only one that begins so; nothing if there is none.
    pub fn find(&self, id: &str) -> Option<Standing> {
        let mut matching =
            self.ids().into_iter().filter(|known| id.len() >= PREFIX_MIN && known.starts_with(id));
        match (matching.next(), matching.next()) {
            (Some(only), None) => self.read(&only).ok(),
            _ => None,
        }
    }

    /// Copies that run, the oldest first.
    pub fn running(&self) -> Vec<Standing> {
        let mut running: Vec<Standing> =
            self.ids().iter().filter_map(|id| self.read(id).ok()).filter(Standing::runs).collect();
        running.sort_by(|one, other| (one.started, &one.id).cmp(&(other.started, &other.id)));
        running
    }

    /// Removes what is over for long.
    fn prune(&self) {
        for id in self.ids() {
            let is_old = |standing: &Standing| !standing.runs() && standing.updated < now_s() - KEPT_S;
            if self.read(&id).is_ok_and(|standing| is_old(&standing)) {
                // What stays is tried again the next time.
                let _ = fs::remove_file(self.log(&id));
                let _ = fs::remove_file(self.directory.join(file_name(&id)));
            }
        }
    }
}

fn file_name(id: &str) -> String {
    format!("{id}.json")
}

impl Standing {
    /// Whether it is under way.
    pub fn runs(&self) -> bool {
        self.exit.is_none() && self.process.life() != Life::Ended
    }

    fn state(&self) -> &'static str {
        match self.exit {
            None if !self.runs() => "killed",
            None if self.has_begun => "running",
            None => "starting",
            Some(code) if code == Exit::Complete.code() => "done",
            Some(code) if code == Exit::Partial.code() => "done in part",
            Some(code) if code == Exit::Interrupted.code() => "interrupted",
            Some(code) if code == Exit::TimedOut.code() => "out of time",
            Some(_) => "failed",
        }
    }

    fn exit(&self) -> Option<Exit> {
        self.exit.map(|code| Exit::of_code(code).unwrap_or(Exit::Nothing))
    }

    /// In a line.
    pub fn line(&self) -> String {
        let sources = self.sources.join(" ");
        let (done, found) = (size::show(self.bytes_done), size::show(self.bytes_found));
        tame(&format!("{}  {}  {done} of {found}  {sources} to {}", self.id, self.state(), self.destination))
    }

    fn show(&self, log: &Path, out: &mut impl Write) -> io::Result<()> {
        let so_far = if self.scan_done { "" } else { " found so far" };
        writeln!(out, "{}  {}", self.id, self.state())?;
        let mut line = |label: &str, words: String| writeln!(out, "  {label:<12} {}", tame(&words));
        line("from", self.sources.join(" "))?;
        line("to", self.destination.clone())?;
        line("process", format!("{} on {}", self.process.pid, self.process.host))?;
        line("started", show_moment(self.started))?;
        line(if self.runs() { "seen" } else { "ended" }, show_moment(self.updated))?;
        line("entries", format!("{} of {}{so_far}", self.entries_done, self.entries_found))?;
        line(
            "bytes",
            format!("{} of {}{so_far}", size::show(self.bytes_done), size::show(self.bytes_found)),
        )?;
        if self.entries_failed > 0 {
            line("failed", self.entries_failed.to_string())?;
        }
        line("log", escape(log.as_os_str().as_bytes()))
    }
}

/// Starts the same command in the background, and waits until it has met the other end, or has ended.
pub fn launch(id: &str) -> Result<Exit, Trouble> {
    let nowhere = || {
        Trouble::new("--background: there is no place to note the copy").hint("set HOME or XDG_STATE_HOME")
    };
    let background = Background::of_user().ok_or_else(nowhere)?;
    let failed = |error: io::Error| Trouble::new(format!("--background: {error}"));
    if let Ok(standing) = background.read(id)
        && standing.runs()
    {
        let trouble = Trouble::new(format!("this copy runs in the background already: {id}"));
        return Err(trouble.hint(format!("`carrack status {id}` shows it, `carrack cancel {id}` ends it")));
    }
    background.prune();
    let child = background.spawn(id).map_err(failed)?;
    let ended = background.await_begin(id, child).map_err(failed)?;
    writeln!(io::stdout(), "{id}").map_err(failed)?;
    match ended {
        Some(exit) => {
            show_log(&background.log(id));
            Ok(exit)
        }
        None => {
            eprintln!(
                "carrack: goes on in the background: `carrack status {id}`, `carrack wait {id}`, `carrack cancel {id}`"
            );
            Ok(Exit::Complete)
        }
    }
}

impl Background {
    fn spawn(&self, id: &str) -> io::Result<Child> {
        // An earlier copy's is over.
        let _ = fs::remove_file(self.directory.join(file_name(id)));
        fs::create_dir_all(&self.directory)?;
        let log =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(self.log(id))?;
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        Command::new(std::env::current_exe()?)
            .args(inside(&words))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
    }

    /// Its exit code, if it ends that soon.
    fn await_begin(&self, id: &str, mut child: Child) -> io::Result<Option<Exit>> {
        let until = Instant::now() + BEGINS_WITHIN;
        while Instant::now() < until {
            if let Some(status) = child.try_wait()? {
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                return Ok(Some(code.and_then(Exit::of_code).unwrap_or(Exit::Nothing)));
            }
            if self.read(id).is_ok_and(|standing| standing.has_begun) {
                break;
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(None)
    }
}

/// The command's words, with the one that says where it runs: before `--`, behind which there are paths only.
fn inside(words: &[OsString]) -> Vec<OsString> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (options, paths) = words.split_at(end);
    [options, &[INSIDE.into()], paths].concat()
}

fn show_log(path: &Path) {
    let said = fs::read(path).unwrap_or_default();
    let from = said.len().saturating_sub(SHOWN_MOST);
    // Nobody can be told if that fails.
    let _ = io::stderr().write_all(&said[from..]);
}

/// Leaves the terminal's session: what ends there does not end this.
pub fn leave_terminal() {
    // It fails for who leads a session already.
    let _ = setsid();
}

/// Shows a copy; its exit code is that of showing.
pub fn show(standing: &Standing, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        serde_json::to_writer(&mut out, standing)?;
        return out.write_all(b"\n");
    }
    let log = Background::of_user().map(|background| background.log(&standing.id)).unwrap_or_default();
    standing.show(&log, &mut out)
}

/// Waits until a copy is over, tells what it has said, and ends as it did.
pub fn wait(id: &str) -> Result<Exit, Trouble> {
    let gone = || Trouble::new(format!("nothing is known of the copy {id} any more"));
    let background = Background::of_user().ok_or_else(gone)?;
    loop {
        let runs = background.read(id).map_err(|_| gone())?.runs();
        if !runs {
            // It may have written its last word just before it ended.
            let standing = background.read(id).map_err(|_| gone())?;
            show_log(&background.log(id));
            return standing.exit().ok_or_else(|| {
                Trouble::new(format!("the copy {id} was killed"))
                    .hint(format!("`carrack resume {id}` goes on"))
            });
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Ends a copy as Ctrl-C does.
pub fn cancel(standing: &Standing) -> Result<(), Trouble> {
    let id = &standing.id;
    let pid = i32::try_from(standing.process.pid).ok().and_then(Pid::from_raw);
    match (standing.process.life(), pid) {
        (Life::Running, Some(pid)) if standing.runs() => kill_process(pid, Signal::TERM)
            .map_err(|errno| Trouble::new(format!("ending the copy {id}: {errno}"))),
        (Life::Elsewhere, _) => {
            let trouble = Trouble::new(format!("the copy {id} runs on {}", standing.process.host));
            Err(trouble.hint("cancel it there"))
        }
        _ => Err(Trouble::new(format!("the copy {id} is over"))),
    }
}

/// Keeps the file of how this process's copy stands.
pub struct StandingView {
    background: Background,
    standing: Standing,
    written: Option<Instant>,
}

impl StandingView {
    /// Of a copy that begins.
    pub fn new(id: String, sources: &[OsString], destination: &OsStr) -> io::Result<StandingView> {
        let text = |word: &OsStr| word.to_string_lossy().into_owned();
        let background =
            Background::of_user().ok_or_else(|| io::Error::other("there is no place to note the copy"))?;
        let now = now_s();
        let standing = Standing {
            id,
            sources: sources.iter().map(|source| text(source)).collect(),
            destination: text(destination),
            started: now,
            updated: now,
            has_begun: false,
            entries_found: 0,
            bytes_found: 0,
            scan_done: false,
            entries_done: 0,
            bytes_done: 0,
            entries_failed: 0,
            exit: None,
            process: Process::own().ok_or_else(|| io::Error::other("/proc tells nothing"))?,
        };
        let mut view = StandingView { background, standing, written: None };
        view.write()?;
        Ok(view)
    }

    fn write(&mut self) -> io::Result<()> {
        self.standing.updated = now_s();
        self.written = Some(Instant::now());
        self.background.write(&self.standing)
    }

    fn note(&mut self, progress: &Progress) {
        let standing = &mut self.standing;
        standing.entries_found = progress.entries_found;
        standing.bytes_found = progress.bytes_found;
        standing.scan_done = progress.scan_done;
        standing.entries_done = progress.entries_done;
        standing.bytes_done = progress.bytes_done;
        standing.entries_failed = progress.entries_failed;
    }
}

impl View for StandingView {
    fn event(&mut self, event: &Event, _elapsed: Duration) -> io::Result<()> {
        match event {
            Event::Connected { .. } => {
                self.standing.has_begun = true;
                self.write()
            }
            Event::Progress(progress) => {
                self.note(progress);
                let is_due = self.written.is_none_or(|written| written.elapsed() >= WRITE_EVERY);
                if is_due { self.write() } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, ending: &Ending) -> io::Result<()> {
        let summary = &ending.summary;
        let standing = &mut self.standing;
        standing.exit = Some(ending.exit.code());
        standing.entries_done = standing.entries_done.max(summary.entries_done());
        standing.entries_failed = summary.entries_failed;
        self.write()
    }

    fn lost(&self, error: &io::Error) -> Trouble {
        Trouble::new(format!("how the copy stands can't be noted: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(id: &str, process: Process) -> Standing {
        Standing {
            id: id.into(),
            sources: vec!["a".into(), "b\x1b".into()],
            destination: "dtn:/c".into(),
            started: 1_700_000_000,
            updated: 1_700_000_001,
            has_begun: true,
            entries_found: 3,
            bytes_found: 3 << 20,
            scan_done: false,
            entries_done: 1,
            bytes_done: 1 << 20,
            entries_failed: 1,
            exit: None,
            process,
        }
    }

    fn home() -> (tempfile::TempDir, Background) {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("background");
        (home, Background { directory })
    }

    #[test]
    fn a_copy_is_found_by_its_first_digits() {
        let (_home, background) = home();
        let own = Process::own().unwrap();
        let (one, other) = ("ab12".repeat(8), "ab13".repeat(8));
        assert_eq!(background.find(&one), None);
        background.write(&standing(&one, own.clone())).unwrap();
        background.write(&Standing { exit: Some(0), ..standing(&other, own.clone()) }).unwrap();
        assert_eq!(background.find(&one), Some(standing(&one, own)));
        assert_eq!(background.find("ab13").map(|found| found.state()), Some("done"));
        assert_eq!((background.find("ab1"), background.find("ab14")), (None, None));
        assert_eq!(background.running().len(), 1);
        // Long over.
        background.prune();
        assert_eq!(background.ids(), [one]);
    }

    #[test]
    fn how_it_stands_is_told_in_words() {
        let own = Process::own().unwrap();
        let copy = standing(&"7".repeat(32), own);
        let mut out = Vec::new();
        copy.show(Path::new("/l"), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for words in
            ["777  running\n", "from         a b\\u{1b}\n", "2023-11-14T22:13:20Z", "1 of 3 found so far"]
        {
            assert!(text.contains(words), "{words} is not in {text}");
        }
        for (exit, state) in
            [(0, "done"), (1, "done in part"), (3, "failed"), (124, "out of time"), (130, "interrupted")]
        {
            assert_eq!(Standing { exit: Some(exit), ..copy.clone() }.state(), state);
        }
        let mut gone = copy;
        gone.process.pid = 1;
        assert_eq!((gone.state(), gone.runs()), ("killed", false));
        assert!(cancel(&gone).is_err());
    }

    #[test]
    fn the_word_for_the_background_stands_before_the_paths() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(inside(&words("cp --background a b")), words("cp --background a b --in-background"));
        assert_eq!(
            inside(&words("cp --background -- a --")),
            words("cp --background --in-background -- a --")
        );
    }
}
