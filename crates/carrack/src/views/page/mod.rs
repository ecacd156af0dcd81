//! `--report FILE.html`: a page about a transfer. It is self-contained: it holds its style and pictures, has
//! no script, and loads nothing from anywhere.

mod bins;
mod html;
mod markup;
mod plots;
mod record;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carrack_model::{Event, escape};

use crate::lifetime::now_s;
use crate::trouble::Trouble;
use crate::views::pending_file::PendingFile;
use crate::views::report::{Ending, View};
use record::Record;

/// The command, its sources and its destination.
#[derive(Clone, Debug)]
pub struct Headline {
    /// `cp` or `sync`.
    pub command: &'static str,
    pub sources: Vec<OsString>,
    pub destination: OsString,
}

/// Gathers events, and writes the page at the end.
pub struct PageView {
    file: Option<PendingFile>,
    path: PathBuf,
    headline: Headline,
    /// Seconds since 1970.
    started_s: i64,
    record: Record,
}

impl PageView {
    /// Creates the page that will be at `path`.
    ///
    /// # Errors
    /// If nothing can be written there: an error before the transfer, not after it.
    pub fn new(path: &Path, headline: Headline) -> io::Result<PageView> {
        Ok(PageView {
            file: Some(PendingFile::create(path)?),
            path: path.to_owned(),
            headline,
            started_s: now_s(),
            record: Record::default(),
        })
    }
}

impl View for PageView {
    fn event(&mut self, event: &Event, elapsed: Duration) -> io::Result<()> {
        self.record.add(event, elapsed.as_secs_f64());
        Ok(())
    }

    fn end(&mut self, ending: &Ending) -> io::Result<()> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let page =
            html::Page { headline: &self.headline, started_s: self.started_s, record: &self.record, ending };
        file.write_all(page.text().as_bytes())?;
        file.finish()
    }

    fn lost(&self, error: &io::Error) -> Trouble {
        let path = escape(self.path.as_os_str().as_bytes());
        Trouble::new(format!("the report could not be written: {path}: {error}"))
    }
}
