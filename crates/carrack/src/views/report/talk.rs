//! The text on stderr for people: failures and notices at once, progress on a terminal, the summary at the
//! end.
//!
//! Text from another machine never reaches the terminal unchanged: paths are escaped, texts lose their
//! control characters. Each failure is reported once; a flood of failures is cut at the limit and counted.

use std::io::{self, Write};
use std::time::Duration;

use carrack_model::limits::FAILURES_LISTED_MAX;
use carrack_model::{EntryFailure, Event, Notice, escape};

use super::progress::Bar;
use super::{Ending, View, summary, targets};
use crate::exit::Exit;
use crate::trouble::tame;

/// The amount of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volume {
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
pub struct TalkView<W: Write + Send> {
    out: W,
    volume: Volume,
    bar: Option<Bar>,
    failures_listed: usize,
}

impl<W: Write + Send> TalkView<W> {
    /// Creates a view: with a bar on a terminal, without elsewhere.
    pub fn new(out: W, volume: Volume, bar: Option<Bar>) -> TalkView<W> {
        TalkView { out, volume, bar, failures_listed: 0 }
    }

    /// Returns the writer.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes a line. An error on stderr can't be reported and is ignored.
    fn say(&mut self, line: &str) {
        let out = &mut self.out;
        match &self.bar {
            Some(bar) => bar.above(|| drop(writeln!(out, "{line}"))),
            None => drop(writeln!(out, "{line}")),
        }
    }

    fn words(&mut self, event: &Event) -> Option<String> {
        let is_watched = self.bar.is_some() || self.volume >= Volume::Verbose;
        match event {
            Event::Failed(failure) => self.failure_words(failure),
            Event::Notice(Notice::Warning(text)) if self.volume >= Volume::Normal => {
                Some(format!("carrack: warning: {}", tame(text)))
            }
            Event::Notice(Notice::Loss(loss)) if self.volume >= Volume::Normal => {
                Some(format!("carrack: warning: {}", tame(&loss.to_string())))
            }
            Event::Notice(Notice::Skipped { path, reason }) if is_watched => {
                Some(format!("carrack: left out: {}: {}", escape(path), tame(reason)))
            }
            Event::Notice(Notice::Text(text) | Notice::Decision(text)) if is_watched => {
                Some(format!("carrack: {}", tame(text)))
            }
            Event::Notice(Notice::Detail(text)) if self.volume >= Volume::Verbose => {
                Some(format!("carrack: {}", tame(text)))
            }
            Event::Connected { streams, lanes, transport, .. } if self.volume >= Volume::Verbose => {
                Some(format!("carrack: connected: {transport}, data connections: {streams}, lanes: {lanes}"))
            }
            _ => None,
        }
    }

    fn failure_words(&mut self, failure: &EntryFailure) -> Option<String> {
        if self.volume < Volume::Quiet {
            return None;
        }
        self.failures_listed += 1;
        match self.failures_listed {
            n if n <= FAILURES_LISTED_MAX || self.volume >= Volume::Verbose => {
                Some(format!("carrack: failed: {}: {}", escape(&failure.path), tame(&failure.detail)))
            }
            n if n == FAILURES_LISTED_MAX + 1 => Some(
                "carrack: further failures are counted, not listed (--verbose and --json list all)".into(),
            ),
            _ => None,
        }
    }
}

impl<W: Write + Send> View for TalkView<W> {
    fn event(&mut self, event: &Event, elapsed: Duration) -> io::Result<()> {
        if let (Event::Progress(progress), Some(bar)) = (event, &mut self.bar) {
            bar.show(progress, elapsed);
        }
        if let Some(line) = self.words(event) {
            self.say(&line);
        }
        Ok(())
    }

    fn end(&mut self, ending: &Ending) -> io::Result<()> {
        // Dropping the bar removes it from the terminal.
        self.bar = None;
        if self.volume >= Volume::Normal && !is_told_by_troubles(ending) {
            summary::lines(ending).iter().for_each(|line| self.say(line));
        }
        if self.volume >= Volume::Verbose {
            for (side, targets) in &ending.tally.targets {
                targets::lines(*side, targets).iter().for_each(|line| self.say(line));
            }
        }
        for trouble in &ending.troubles {
            self.say(&format!("carrack: error: {}", tame(&trouble.message)));
            if let Some(hint) = &trouble.hint {
                self.say(&format!("hint: {}", tame(hint)));
            }
        }
        Ok(())
    }
}

/// Returns true if a summary would only repeat that nothing was copied.
fn is_told_by_troubles(ending: &Ending) -> bool {
    ending.exit == Exit::Nothing && !ending.troubles.is_empty() && ending.summary.entries_failed == 0
}

#[cfg(test)]
mod tests {
    use carrack_model::{FailureKind, Progress, Summary};

    use super::*;
    use crate::trouble::Trouble;
    use crate::views::report::summary::tests::ending;

    fn failure() -> Event {
        let path = b"a\x1b[2J"[..].into();
        Event::Failed(EntryFailure { path, kind: FailureKind::Missing, detail: "no\n".into() })
    }

    fn told(volume: Volume, events: &[Event], ending: Option<&Ending>) -> Vec<String> {
        let mut out = Vec::new();
        let mut view = TalkView::new(&mut out, volume, None);
        events.iter().for_each(|event| view.event(event, Duration::ZERO).unwrap());
        ending.iter().for_each(|ending| view.end(ending).unwrap());
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_volume_tells_its_part() {
        let events = [
            Event::Connected { streams: 2, lanes: 1, transport: "tcp", protection: None, cipher: None },
            Event::Progress(Progress::default()),
            Event::Notice(Notice::Skipped { path: b"s"[..].into(), reason: "a socket".into() }),
            Event::Notice(Notice::Text("text".into())),
            Event::Notice(Notice::Warning("slow".into())),
            failure(),
        ];
        let failed = "carrack: failed: a\\u{1b}[2J: no\\n";
        assert!(told(Volume::Errors, &events, None).is_empty());
        assert_eq!(told(Volume::Quiet, &events, None), [failed]);
        assert_eq!(told(Volume::Normal, &events, None), ["carrack: warning: slow", failed]);
        assert_eq!(told(Volume::Verbose, &events, None).len(), 5);
    }

    #[test]
    fn a_flood_is_cut() {
        let flood = vec![failure(); FAILURES_LISTED_MAX + 10];
        assert_eq!(told(Volume::Normal, &flood, None).len(), FAILURES_LISTED_MAX + 1);
        assert_eq!(told(Volume::Verbose, &flood, None).len(), FAILURES_LISTED_MAX + 10);
    }

    #[test]
    fn the_end_is_a_summary_and_then_the_error() {
        let mut end = ending(Summary { files_done: 1, ..Summary::default() });
        end.troubles = vec![Trouble::new("cut").hint("again")];
        let lines = told(Volume::Normal, &[], Some(&end));
        assert!(lines[0].starts_with("carrack: copied 1 file"), "{lines:?}");
        assert_eq!(lines[2..], ["carrack: error: cut", "hint: again"]);
        assert_eq!(told(Volume::Quiet, &[], Some(&end)).len(), 2);

        (end.exit, end.summary) = (Exit::Nothing, Summary::default());
        assert_eq!(told(Volume::Normal, &[], Some(&end)), ["carrack: error: cut", "hint: again"]);
    }
}
