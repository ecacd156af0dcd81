//! A walk at the speed of its caller: the scan's threads wait until the caller asks for the next step.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use carrack_model::{DirectorySection, KeptMetadata, MetadataFidelity, RelPath, text_without_errno};
use carrack_storage::{ExtraMetadataReader, RootDirectory, ScanRoot, ScanRootScope, ScannedItem, SourceScan};
use crossbeam_channel::{Receiver, bounded};

use super::examine_root::ExamineRoot;
use super::question::WalkStep;

/// Threads that list directories; on parallel file systems each waits for a server.
const THREADS: usize = 4;

/// Sections that wait for the caller.
const SECTIONS_MAX: usize = 8;

/// The walk of an end. There is one at a time.
pub(super) struct VerifyEndWalk {
    beneath: RelPath,
    /// `None` once it is over.
    found: Option<Receiver<ScannedItem>>,
    /// A step before the first section.
    first: Option<WalkStep>,
}

impl VerifyEndWalk {
    /// Begins a walk at the directory `beneath`.
    pub(super) fn begin(top: &ExamineRoot, beneath: &RelPath, specials: bool) -> VerifyEndWalk {
        let (found, first) = match top.open_root_at(beneath) {
            Ok(Some(root)) => start(root, specials),
            // A file or link.
            Ok(None) => {
                (None, Some(WalkStep::Names { directory: beneath.clone(), names: vec![[][..].into()] }))
            }
            Err(error) => {
                let path = full_path(top, beneath);
                (None, Some(WalkStep::Failed { path, detail: text_without_errno(&error) }))
            }
        };
        VerifyEndWalk { beneath: beneath.clone(), found, first }
    }

    /// Returns true if it is a walk through `beneath`.
    pub(super) fn starts_at(&self, beneath: &RelPath) -> bool {
        self.beneath == *beneath
    }

    /// Returns the next step.
    pub(super) fn next(&mut self) -> WalkStep {
        if let Some(first) = self.first.take() {
            return first;
        }
        match self.found.as_ref().and_then(|found| found.recv().ok()) {
            Some(found) => self.step_of_item(found),
            None => {
                self.found = None;
                WalkStep::Over
            }
        }
    }

    fn step_of_item(&self, found: ScannedItem) -> WalkStep {
        match found {
            ScannedItem::Section(section, _) => self.step_of_section(section),
            ScannedItem::Failed(failure) => WalkStep::Failed { path: failure.path, detail: failure.detail },
            ScannedItem::Skipped { path, reason } => WalkStep::Skipped { path, what: reason },
        }
    }

    fn step_of_section(&self, section: DirectorySection) -> WalkStep {
        let Some(directory) = joined(&self.beneath, &section.directory.source) else {
            let path = section.directory.source.as_bytes().into();
            return WalkStep::Failed { path, detail: "its path is too long".into() };
        };
        let itself = section.metadata.map(|_| Box::from(&b""[..]));
        let names = itself.into_iter().chain(section.entries.into_iter().map(|entry| entry.name)).collect();
        WalkStep::Names { directory, names }
    }
}

/// Starts the scan. Its threads end soon after the receiver is dropped.
fn start(root: Arc<RootDirectory>, specials: bool) -> (Option<Receiver<ScannedItem>>, Option<WalkStep>) {
    let (sender, receiver) = bounded(SECTIONS_MAX);
    let path = root.path().to_path_buf();
    let what = ScanRootScope::Tree { sink: RelPath::root() };
    let kept = KeptMetadata { devices: specials, specials, ..KeptMetadata::default() };
    // No other metadata is read, so the size limit does not matter.
    let extras = ExtraMetadataReader::new(MetadataFidelity { kept, ..MetadataFidelity::default() }, 0);
    let scan = SourceScan {
        roots: vec![ScanRoot { root, what }],
        threads: THREADS,
        destination: None,
        extras: extras.map(Arc::new),
        filter: None,
        record: None,
    };
    let started = thread::Builder::new().name("carrack-scan".into()).spawn(move || {
        scan.run(&|found| match sender.send(found) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        });
    });
    match started {
        Ok(_) => (Some(receiver), None),
        Err(error) => {
            let path = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).into();
            (None, Some(WalkStep::Failed { path, detail: format!("no thread to walk: {error}") }))
        }
    }
}

fn full_path(top: &ExamineRoot, beneath: &RelPath) -> Box<[u8]> {
    if beneath.is_root() {
        return top.path().into();
    }
    [top.path(), b"/", beneath.as_bytes()].concat().into()
}

/// Returns a path beneath a directory, or `None` if it is too long.
fn joined(directory: &RelPath, path: &RelPath) -> Option<RelPath> {
    match (directory.is_root(), path.is_root()) {
        (true, _) => Some(path.clone()),
        (_, true) => Some(directory.clone()),
        _ => RelPath::new(&[directory.as_bytes(), b"/", path.as_bytes()].concat()).ok(),
    }
}
