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

use carrack_model::{TransferEvent, escape};

use crate::lifetime::now_s;
use crate::user_error::UserError;
use crate::views::pending_file::TemporaryOutputFile;
use crate::views::report::{FinishedTransfer, TransferEventPresenter};
use record::HtmlReportData;

/// The command, its sources and its destination.
#[derive(Clone, Debug)]
pub struct PageHeadline {
    /// `cp` or `sync`.
    pub command: &'static str,
    pub sources: Vec<OsString>,
    pub destination: OsString,
}

/// Gathers events, and writes the page at the end.
pub struct HtmlReportView {
    file: Option<TemporaryOutputFile>,
    path: PathBuf,
    headline: PageHeadline,
    /// Seconds since 1970.
    started_s: i64,
    record: HtmlReportData,
}

impl HtmlReportView {
    /// Creates the page that will be at `path`.
    ///
    /// # Errors
    /// If nothing can be written there: an error before the transfer, not after it.
    pub fn new(path: &Path, headline: PageHeadline) -> io::Result<HtmlReportView> {
        Ok(HtmlReportView {
            file: Some(TemporaryOutputFile::create(path)?),
            path: path.to_owned(),
            headline,
            started_s: now_s(),
            record: HtmlReportData::default(),
        })
    }
}

impl TransferEventPresenter for HtmlReportView {
    fn show_event(&mut self, event: &TransferEvent, elapsed: Duration) -> io::Result<()> {
        self.record.add(event, elapsed.as_secs_f64());
        Ok(())
    }

    fn show_end(&mut self, ending: &FinishedTransfer) -> io::Result<()> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let page = html::HtmlPage {
            headline: &self.headline,
            started_s: self.started_s,
            record: &self.record,
            ending,
        };
        file.write_all(page.to_html().as_bytes())?;
        file.finish()
    }

    fn write_error(&self, error: &io::Error) -> UserError {
        let path = escape(self.path.as_os_str().as_bytes());
        UserError::new(format!("the report could not be written: {path}: {error}"))
    }
}
