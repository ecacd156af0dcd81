//! The list that a dry run writes to stdout: one path a line; `deleting ` precedes the path of an entry that
//! would be deleted.
//!
//! A terminal gets the paths escaped, a file or pipe gets their bytes. `--json` keeps names that hold
//! newlines apart.

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use carrack_model::{TransferEvent, escape};

use super::{FinishedTransfer, TransferEventPresenter};

/// Writes the list.
pub struct DryRunListView<W: Write + Send> {
    out: BufWriter<W>,
    is_escaped: bool,
}

impl<W: Write + Send> DryRunListView<W> {
    /// Creates a view; `is_escaped` for a terminal.
    pub fn new(out: W, is_escaped: bool) -> DryRunListView<W> {
        DryRunListView { out: BufWriter::new(out), is_escaped }
    }
}

impl<W: Write + Send> TransferEventPresenter for DryRunListView<W> {
    fn show_event(&mut self, event: &TransferEvent, _elapsed: Duration) -> io::Result<()> {
        let path = match event {
            TransferEvent::WouldCopy { path, .. } => path,
            TransferEvent::WouldDelete { path } => {
                self.out.write_all(b"deleting ")?;
                path
            }
            _ => return Ok(()),
        };
        if self.is_escaped {
            return writeln!(self.out, "{}", escape(path));
        }
        self.out.write_all(path)?;
        self.out.write_all(b"\n")
    }

    fn show_end(&mut self, _ending: &FinishedTransfer) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(is_escaped: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut view = DryRunListView::new(&mut out, is_escaped);
        view.show_event(
            &TransferEvent::WouldCopy { path: b"a/\x1b\xff"[..].into(), size: 1 },
            Duration::ZERO,
        )
        .unwrap();
        view.show_event(&TransferEvent::WouldDelete { path: b"d"[..].into() }, Duration::ZERO).unwrap();
        drop(view);
        out
    }

    #[test]
    fn bytes_for_pipes_and_escapes_for_terminals() {
        assert_eq!(listed(false), b"a/\x1b\xff\ndeleting d\n");
        assert_eq!(listed(true), b"a/\\u{1b}\\xff\ndeleting d\n");
    }
}
