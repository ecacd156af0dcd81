//! Turns scanned entries into messages: chunks, entries of large files, and pages for the end. Memory is
//! bounded: the scan waits while too many messages are unpublished.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use carrack_model::{DirectorySection, EntryFailure, escape};
use carrack_plan::fleet::{
    ChunkEntries as Cut, ChunkLimits, CutTotals as Counts, FleetChunkBuilder, TransferWorkChunk,
};
use carrack_storage::ScannedItem;
use carrack_wire::EntryTableEncoder;
use tokio::sync::mpsc;

use super::held_chunk::{blames_source, failure_of};
use crate::error::BusError;
use crate::queue::{FilePartRange, ItemPublisher, TransferWorkStream, WorkItemHeader, WorkItemKind};
use crate::transfer_records::{EntryCopyFailure, FAILURES_KEPT, SITE_MARK, SkippedEntry};

/// Messages that are cut and not published yet: the scan waits for NATS.
const AHEAD: usize = 32;

/// A message to publish.
enum UnpublishedWorkItem {
    Chunk { number: u64, kind: WorkItemKind, entries: u64, bytes: u64, table: Vec<u8> },
    Large { file: u64, table: Vec<u8> },
    Dirs { number: u64, table: Vec<u8> },
}

/// The result of a scan.
#[derive(Default)]
pub struct ScanReport {
    /// Chunks, files, bytes.
    pub counts: Counts,
    /// Messages for the end.
    pub end_messages: u64,
    /// The first entries that could not be scanned.
    pub failures: Vec<EntryCopyFailure>,
    /// The number of failed entries.
    pub failed_entries: u64,
    /// The first left-out entries.
    pub skipped: Vec<SkippedEntry>,
    /// The number of left-out entries.
    pub skipped_entries: u64,
    /// The first failure that another mover may not have, for people.
    pub doubt: Option<String>,
}

/// The callback for scanned entries. Any thread may call it.
pub type ScannedItemCallback<'a> = dyn Fn(ScannedItem) -> ControlFlow<()> + Sync + 'a;

/// Cuts the entries that `walk` finds on a thread of its own, and publishes them. Returns the result of the
/// walk, and whether all messages are stored.
pub async fn cut_and_publish(
    queue: TransferWorkStream,
    attempt: u32,
    limits: ChunkLimits,
    walk: impl FnOnce(&ScannedItemCallback<'_>) -> io::Result<()> + Send + 'static,
) -> (io::Result<ScanReport>, Result<(), BusError>) {
    let (items, mut coming) = mpsc::channel(AHEAD);
    let is_over = Arc::new(AtomicBool::new(false));
    let walking = tokio::task::spawn_blocking({
        let is_over = Arc::clone(&is_over);
        move || ScanChunkCutter { limits, items, is_over: &is_over }.run(walk)
    });
    let mut publisher = queue.publisher();
    let mut published = Ok(());
    while let Some(item) = coming.recv().await {
        if published.is_ok() {
            published = publish(&mut publisher, attempt, item).await;
            is_over.store(published.is_err(), Relaxed);
        }
    }
    let published = published.and(publisher.flush().await);
    let walked = walking.await.map_err(io::Error::other).and_then(|walked| walked);
    (walked, published)
}

async fn publish(
    publisher: &mut ItemPublisher,
    attempt: u32,
    item: UnpublishedWorkItem,
) -> Result<(), BusError> {
    match item {
        UnpublishedWorkItem::Chunk { number, kind, entries, bytes, table } => {
            let head = WorkItemHeader::new(attempt, number, kind, entries, bytes);
            publisher.publish_chunk(&head, table).await
        }
        UnpublishedWorkItem::Large { file, table } => publisher.publish_large(attempt, file, table).await,
        UnpublishedWorkItem::Dirs { number, table } => publisher.publish_dirs(attempt, number, table).await,
    }
}

struct ScanChunkCutter<'a> {
    limits: ChunkLimits,
    items: mpsc::Sender<UnpublishedWorkItem>,
    /// True once the receiver of chunks is gone.
    is_over: &'a AtomicBool,
}

impl ScanChunkCutter<'_> {
    /// Runs the walk; when this returns, everything is cut and sent to the publisher.
    fn run(&self, walk: impl FnOnce(&ScannedItemCallback<'_>) -> io::Result<()>) -> io::Result<ScanReport> {
        let state = Mutex::new((FleetChunkBuilder::new(self.limits), ScanReport::default()));
        walk(&|found| {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let (cutter, report) = &mut *state;
            match found {
                ScannedItem::Section(section, _) => self.add_section(cutter, report, section),
                ScannedItem::Failed(failure) => report.record_failure(&failure),
                ScannedItem::Skipped { path, reason } => report.record_skipped(&path, reason),
            }
            if self.is_over.load(Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let (mut cutter, mut report) = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        cutter.finish();
        self.send_chunks(&mut cutter, &mut report);
        report.counts = cutter.totals();
        Ok(report)
    }

    fn add_section(
        &self,
        cutter: &mut FleetChunkBuilder,
        report: &mut ScanReport,
        mut section: DirectorySection,
    ) {
        section.entries.retain(|entry| *entry.name != *SITE_MARK.as_bytes());
        cutter.add(section);
        self.send_chunks(cutter, report);
    }

    fn send_chunks(&self, cutter: &mut FleetChunkBuilder, report: &mut ScanReport) {
        while let Some(chunk) = cutter.next_chunk() {
            for item in items_of(chunk, report) {
                // Without a receiver, `is_over` ends the scan.
                let _ = self.items.blocking_send(item);
            }
        }
    }
}

impl ScanReport {
    fn record_skipped(&mut self, path: &[u8], reason: String) {
        self.skipped_entries += 1;
        if self.skipped.len() < FAILURES_KEPT {
            self.skipped.push(SkippedEntry { path: escape(path), reason });
        }
    }

    /// Returns true if the scan found only the root.
    pub fn is_empty(&self) -> bool {
        self.counts.files == 0 && self.counts.directories <= 1 && self.failed_entries == 0
    }

    fn record_failure(&mut self, failure: &EntryFailure) {
        self.failed_entries += 1;
        if blames_source(failure.kind).is_some() {
            self.doubt.get_or_insert_with(|| failure.to_string());
        }
        if self.failures.len() < FAILURES_KEPT {
            self.failures.push(failure_of(failure));
        }
    }
}

/// Returns the messages of a chunk. A large file's first part comes with the file's entry, by which it is
/// finished.
fn items_of(chunk: TransferWorkChunk, report: &mut ScanReport) -> Vec<UnpublishedWorkItem> {
    let TransferWorkChunk { number, kind, entries, bytes } = chunk;
    let entries = entries as u64;
    match kind {
        Cut::Files { sections } => {
            vec![UnpublishedWorkItem::Chunk {
                number,
                kind: WorkItemKind::Files,
                entries,
                bytes,
                table: table_of(&sections),
            }]
        }
        Cut::End { sections } => {
            report.end_messages += 1;
            vec![UnpublishedWorkItem::Dirs { number, table: table_of(&sections) }]
        }
        Cut::Part { file, directory, entry, range, index, count } => {
            let mut alone =
                [DirectorySection { directory, metadata: None, extras: None, entries: vec![entry] }];
            // Only the first part carries attributes: the file gets them once.
            let large =
                (index == 0).then(|| UnpublishedWorkItem::Large { file: file.0, table: table_of(&alone) });
            alone[0].entries[0].extras = None;
            let table = table_of(&alone);
            let part = FilePartRange {
                file: file.0,
                index: index as u32,
                count: count as u32,
                offset: range.offset,
                len: range.len,
            };
            let chunk =
                UnpublishedWorkItem::Chunk { number, kind: WorkItemKind::Part(part), entries, bytes, table };
            large.into_iter().chain([chunk]).collect()
        }
    }
}

fn table_of(sections: &[DirectorySection]) -> Vec<u8> {
    let mut table = Vec::new();
    for section in sections {
        let mut writer = EntryTableEncoder::new(&mut table).with_extras(section.extras.as_deref());
        writer.begin_section(&section.directory.sink, section.metadata.as_ref());
        for entry in &section.entries {
            EntryTableEncoder::new(&mut table).with_extras(entry.extras.as_deref()).add_entry(entry);
        }
    }
    table
}
