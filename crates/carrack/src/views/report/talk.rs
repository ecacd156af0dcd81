//! The text on stderr for people: failures and notices at once, progress on a terminal, the summary at the
//! end.
//!
//! Text from another machine never reaches the terminal unchanged: paths are escaped, texts lose their
//! control characters. Each failure is reported once; a flood of failures is cut at the limit and counted.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use carrack_model::limits::FAILURES_LISTED_MAX;
use carrack_model::{EntryFailure, FailureSide, TransferEvent, TransferProgress, UserNotice};
use carrack_options::colour::{TextColour, paint};

use super::progress::{ProgressLine, SmoothedRate};
use super::{FinishedTransfer, TransferEventPresenter, progress, summary, targets};
use crate::exit::ExitStatus;
use crate::remote::route::RemoteEnds;
use crate::user_error::escape_control_characters;
use crate::views::quantity::clock;

/// The amount of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TalkVolume {
    /// Only the reason why the transfer as a whole ended; `--json` reports the rest.
    Errors,
    /// Failures too (`--quiet`).
    Quiet,
    /// Warnings and the summary too.
    Normal,
    /// Everything (`--verbose`).
    Verbose,
}

/// Writes to stderr.
pub struct StderrTextView<W: Write + Send> {
    out: W,
    volume: TalkVolume,
    bar: Option<ProgressLine>,
    failures_listed: usize,
    /// True if the first words of a line may have a colour.
    in_colour: bool,
    /// The ends on other hosts, for the paths in messages.
    far: RemoteEnds,
    /// The status, if this view shows it.
    status: Option<TransferStatus>,
    /// True if SIGUSR2 has asked for all messages.
    is_verbose: bool,
}

/// The last counters and the rate, for a line on request.
#[derive(Default)]
struct TransferStatus {
    progress: Option<TransferProgress>,
    pace: SmoothedRate,
}

impl TransferStatus {
    fn update(&mut self, progress: &TransferProgress, elapsed: Duration) {
        self.pace.update(progress, elapsed);
        self.progress = Some(*progress);
    }

    fn line(&self, elapsed: Duration) -> String {
        let after = clock(elapsed.as_secs());
        match &self.progress {
            Some(progress) => format!("carrack: after {after}: {}", progress::text(progress, &self.pace)),
            None => format!("carrack: after {after}: no data yet"),
        }
    }
}

impl<W: Write + Send> StderrTextView<W> {
    /// Creates a view: with a bar on a terminal, without elsewhere.
    pub fn new(out: W, volume: TalkVolume, bar: Option<ProgressLine>) -> StderrTextView<W> {
        StderrTextView {
            out,
            volume,
            bar,
            failures_listed: 0,
            in_colour: false,
            far: RemoteEnds::Neither,
            status: None,
            is_verbose: false,
        }
    }

    /// Returns the view with lines about the status, and a volume that can be changed.
    #[must_use]
    pub fn with_status(self) -> StderrTextView<W> {
        StderrTextView { status: Some(TransferStatus::default()), ..self }
    }

    /// Returns the amount of text at present.
    fn volume(&self) -> TalkVolume {
        if self.is_verbose { TalkVolume::Verbose } else { self.volume }
    }

    /// Returns the view with the first words of errors and warnings in colour, if a terminal wants it.
    #[must_use]
    pub fn in_colour(self, in_colour: bool) -> StderrTextView<W> {
        StderrTextView { in_colour, ..self }
    }

    /// Returns the view with the hosts of paths on other hosts.
    #[must_use]
    pub fn with_ends(self, far: RemoteEnds) -> StderrTextView<W> {
        StderrTextView { far, ..self }
    }

    /// Returns the writer.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes a line. An error on stderr can't be reported and is ignored.
    fn write_line(&mut self, line: &str) {
        let line = &coloured(line, self.in_colour);
        let out = &mut self.out;
        match &self.bar {
            Some(bar) => bar.suspend(|| drop(writeln!(out, "{line}"))),
            None => drop(writeln!(out, "{line}")),
        }
    }

    fn event_text(&mut self, event: &TransferEvent) -> Option<String> {
        let is_watched = self.bar.is_some() || self.volume() >= TalkVolume::Verbose;
        match event {
            TransferEvent::Failed(failure) => self.failure_words(failure),
            TransferEvent::Notice(UserNotice::Warning(text)) if self.volume() >= TalkVolume::Normal => {
                Some(format!("carrack: warning: {}", escape_control_characters(text)))
            }
            TransferEvent::Notice(UserNotice::Loss(loss)) if self.volume() >= TalkVolume::Normal => {
                Some(format!("carrack: warning: {}", escape_control_characters(&loss.to_string())))
            }
            TransferEvent::Notice(UserNotice::StorageDelay(delay)) if is_watched => {
                Some(format!("carrack: {}", escape_control_characters(&delay.to_string())))
            }
            TransferEvent::Notice(UserNotice::Skipped { path, reason }) if is_watched => {
                let path = self.far.path_text(FailureSide::Source, path);
                Some(format!("carrack: left out: {path}: {}", escape_control_characters(reason)))
            }
            TransferEvent::Notice(UserNotice::Text(text) | UserNotice::Decision(text)) if is_watched => {
                Some(format!("carrack: {}", escape_control_characters(text)))
            }
            TransferEvent::Notice(UserNotice::Detail(text)) if self.volume() >= TalkVolume::Verbose => {
                Some(format!("carrack: {}", escape_control_characters(text)))
            }
            TransferEvent::Connected { streams, lanes, transport, .. }
                if self.volume() >= TalkVolume::Verbose =>
            {
                Some(format!("carrack: connected: {transport}, data connections: {streams}, lanes: {lanes}"))
            }
            _ => None,
        }
    }

    fn failure_words(&mut self, failure: &EntryFailure) -> Option<String> {
        if self.volume() < TalkVolume::Quiet {
            return None;
        }
        self.failures_listed += 1;
        match self.failures_listed {
            n if n <= FAILURES_LISTED_MAX || self.volume() >= TalkVolume::Verbose => Some(format!(
                "carrack: failed: {}: {}",
                self.far.path_text(failure.kind.side(), &failure.path),
                escape_control_characters(&failure.detail)
            )),
            n if n == FAILURES_LISTED_MAX + 1 => Some(
                "carrack: further failures are counted, not listed (--verbose and --json list all)".into(),
            ),
            _ => None,
        }
    }
}

impl<W: Write + Send> TransferEventPresenter for StderrTextView<W> {
    fn show_event(&mut self, event: &TransferEvent, elapsed: Duration) -> io::Result<()> {
        if let TransferEvent::Progress(progress) = event {
            self.bar.iter_mut().for_each(|bar| bar.show(progress, elapsed));
            self.status.iter_mut().for_each(|status| status.update(progress, elapsed));
        }
        if let Some(line) = self.event_text(event) {
            self.write_line(&line);
        }
        Ok(())
    }

    fn show_status(&mut self, elapsed: Duration, is_requested: bool) -> io::Result<()> {
        let is_wanted = is_requested && self.volume > TalkVolume::Errors || self.volume >= TalkVolume::Normal;
        if let Some(line) = self.status.as_ref().filter(|_| is_wanted).map(|status| status.line(elapsed)) {
            self.write_line(&line);
        }
        Ok(())
    }

    fn toggle_verbosity(&mut self) {
        if self.status.is_none() || matches!(self.volume, TalkVolume::Errors | TalkVolume::Verbose) {
            return;
        }
        self.is_verbose = !self.is_verbose;
        let state = if self.is_verbose { "all messages are shown (as with -v)" } else { "as before" };
        self.write_line(&format!("carrack: SIGUSR2: {state}"));
    }

    fn show_end(&mut self, ending: &FinishedTransfer) -> io::Result<()> {
        // Dropping the bar removes it from the terminal.
        self.bar = None;
        if self.volume() >= TalkVolume::Normal && !is_summary_redundant(ending) {
            summary::lines(ending).iter().for_each(|line| self.write_line(line));
        }
        if self.volume() >= TalkVolume::Verbose {
            for (side, targets) in &ending.tally.targets {
                targets::lines(*side, targets).iter().for_each(|line| self.write_line(line));
            }
        }
        for trouble in &ending.troubles {
            self.write_line(&format!("carrack: error: {}", escape_control_characters(&trouble.message)));
            if let Some(hint) = &trouble.hint {
                self.write_line(&format!("hint: {}", escape_control_characters(hint)));
            }
        }
        Ok(())
    }
}

/// The first words of lines that get a colour.
const COLOURED: [(&str, &str, TextColour); 4] = [
    ("carrack: ", "error:", TextColour::Red),
    ("carrack: ", "failed:", TextColour::Red),
    ("carrack: ", "warning:", TextColour::Yellow),
    ("", "hint:", TextColour::Cyan),
];

/// Returns the line with its first word in colour.
fn coloured(line: &str, in_colour: bool) -> Cow<'_, str> {
    for (before, word, colour) in COLOURED.into_iter().filter(|_| in_colour) {
        if let Some(rest) = line.strip_prefix(before).and_then(|rest| rest.strip_prefix(word)) {
            return format!("{before}{}{rest}", paint(word, colour, true)).into();
        }
    }
    line.into()
}

/// Returns true if a summary would only repeat that nothing was copied.
fn is_summary_redundant(ending: &FinishedTransfer) -> bool {
    ending.exit == ExitStatus::Nothing && !ending.troubles.is_empty() && ending.summary.entries_failed == 0
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use carrack_model::{FailureKind, TransferProgress, TransferSummary};

    use super::*;
    use crate::remote::route::TransferEndsAndPaths;
    use crate::user_error::UserError;
    use crate::views::report::summary::tests::ending;

    fn failure() -> TransferEvent {
        let path = b"a\x1b[2J"[..].into();
        TransferEvent::Failed(EntryFailure { path, kind: FailureKind::Missing, detail: "no\n".into() })
    }

    fn told(volume: TalkVolume, events: &[TransferEvent], ending: Option<&FinishedTransfer>) -> Vec<String> {
        let mut out = Vec::new();
        let mut view = StderrTextView::new(&mut out, volume, None);
        events.iter().for_each(|event| view.show_event(event, Duration::ZERO).unwrap());
        ending.iter().for_each(|ending| view.show_end(ending).unwrap());
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn only_the_first_word_gets_a_colour() {
        let painted = "carrack: \u{1b}[1;31merror:\u{1b}[0m error: x";
        assert_eq!(coloured("carrack: error: error: x", true), painted);
        assert_eq!(coloured("carrack: copied 4 files", true), "carrack: copied 4 files");
        assert_eq!(coloured("hint: x", false), "hint: x");
    }

    #[test]
    fn each_volume_tells_its_part() {
        let events = [
            TransferEvent::Connected {
                streams: 2,
                lanes: 1,
                transport: "tcp",
                protection: None,
                cipher: None,
            },
            TransferEvent::Progress(TransferProgress::default()),
            TransferEvent::Notice(UserNotice::Skipped { path: b"s"[..].into(), reason: "a socket".into() }),
            TransferEvent::Notice(UserNotice::Text("text".into())),
            TransferEvent::Notice(UserNotice::Warning("slow".into())),
            failure(),
        ];
        let failed = "carrack: failed: a\\u{1b}[2J: no\\n";
        assert!(told(TalkVolume::Errors, &events, None).is_empty());
        assert_eq!(told(TalkVolume::Quiet, &events, None), [failed]);
        assert_eq!(told(TalkVolume::Normal, &events, None), ["carrack: warning: slow", failed]);
        assert_eq!(told(TalkVolume::Verbose, &events, None).len(), 5);
    }

    #[test]
    fn paths_at_a_far_end_have_its_host() {
        let far = TransferEndsAndPaths::parse(&["h:src".into()], OsStr::new("carrack://d/data")).unwrap().far;
        let mut view = StderrTextView::new(Vec::new(), TalkVolume::Normal, None).with_ends(far);
        for (path, kind) in [("src/a", FailureKind::Missing), ("/data/b", FailureKind::NoSpace)] {
            let failure = EntryFailure { path: path.as_bytes().into(), kind, detail: "x".into() };
            view.show_event(&TransferEvent::Failed(failure), Duration::ZERO).unwrap();
        }
        let told = String::from_utf8(view.out).unwrap();
        assert_eq!(told, "carrack: failed: h:src/a: x\ncarrack: failed: carrack://d/data/b: x\n");
    }

    #[test]
    fn a_flood_is_cut() {
        let flood = vec![failure(); FAILURES_LISTED_MAX + 10];
        assert_eq!(told(TalkVolume::Normal, &flood, None).len(), FAILURES_LISTED_MAX + 1);
        assert_eq!(told(TalkVolume::Verbose, &flood, None).len(), FAILURES_LISTED_MAX + 10);
    }

    #[test]
    fn the_end_is_a_summary_and_then_the_error() {
        let mut end = ending(TransferSummary { files_done: 1, ..TransferSummary::default() });
        end.troubles = vec![UserError::new("cut").hint("again")];
        let lines = told(TalkVolume::Normal, &[], Some(&end));
        assert!(lines[0].starts_with("carrack: copied 1 file"), "{lines:?}");
        assert_eq!(lines[2..], ["carrack: error: cut", "hint: again"]);
        assert_eq!(told(TalkVolume::Quiet, &[], Some(&end)).len(), 2);

        (end.exit, end.summary) = (ExitStatus::Nothing, TransferSummary::default());
        assert_eq!(told(TalkVolume::Normal, &[], Some(&end)), ["carrack: error: cut", "hint: again"]);
    }
}
