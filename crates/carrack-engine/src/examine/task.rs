//! A question in progress: the units that threads take, and the answer from their results.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_journal::hash_subtrees;
use carrack_machine::Slot;
use carrack_model::{ByteRange, KeptMetadata, SourceReadMethod, text_without_errno};
use carrack_storage::{BrowsedKind, FileStamp, SourceError, SourceFile, link_text, read_entry_state};

use super::examine_root::{ExaminedPlace, entry_kind_of_error};
use super::metadata::ComparedEntryMetadata;
use super::question::{
    ComparisonAnswer, ExamineQuestion, ExaminedEntryFacts, ExaminedEntryKind, PIECE_BYTES_MAX,
    PieceDigestRequest, WHOLE_BYTES_MAX,
};
use super::tools::ExamineTools;
use super::walk::VerifyEndWalk;

/// Bytes of a large file that a thread reads at a time.
const UNIT_BYTES: u64 = PIECE_BYTES_MAX as u64;

/// Bytes of an error's text.
const DETAIL_BYTES_MAX: usize = 200;

/// The alignment of direct reads.
const ALIGNMENT: usize = 4_096;

/// A question with the results so far.
pub(super) struct ExaminerQuestionTask {
    question: ExamineQuestion,
    /// The results of the units, by their numbers.
    parts: Mutex<Vec<Option<ComparisonAnswer>>>,
    /// The open directory of an [`ExamineQuestion::Look`].
    directory: LazySharedHandle<io::Result<OwnedFd>>,
    /// The open file of an [`ExamineQuestion::Pieces`].
    file: LazySharedHandle<Result<SourceFile, String>>,
}

/// A value that the first unit opens and the last unit closes: an answer that waits must hold no descriptor.
struct LazySharedHandle<T>(Mutex<Option<Arc<T>>>);

impl<T> LazySharedHandle<T> {
    fn new() -> LazySharedHandle<T> {
        LazySharedHandle(Mutex::new(None))
    }

    fn get_or_open(&self, open: impl FnOnce() -> T) -> Arc<T> {
        Arc::clone(self.lock().get_or_insert_with(|| Arc::new(open())))
    }

    fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExaminerQuestionTask {
    pub(super) fn new(question: ExamineQuestion) -> ExaminerQuestionTask {
        let mut task = ExaminerQuestionTask {
            question,
            parts: Mutex::new(Vec::new()),
            directory: LazySharedHandle::new(),
            file: LazySharedHandle::new(),
        };
        task.parts = Mutex::new(vec![None; task.unit_count()]);
        task
    }

    /// The number of units, which any threads may do at once.
    pub(super) fn unit_count(&self) -> usize {
        match &self.question {
            ExamineQuestion::Look { names, digests: true, .. } => names.len(),
            ExamineQuestion::Pieces(of) => of.range.len.div_ceil(UNIT_BYTES) as usize,
            ExamineQuestion::WalkOn { .. } | ExamineQuestion::Look { .. } => 1,
        }
    }

    /// Returns true if the task waits for the scan. Such tasks run one after the other.
    pub(super) fn is_walk(&self) -> bool {
        matches!(self.question, ExamineQuestion::WalkOn { .. })
    }

    /// Does one unit.
    pub(super) fn run_unit(&self, unit: usize, tools: &ExamineTools) {
        let part = match &self.question {
            ExamineQuestion::WalkOn { beneath, specials } => {
                let mut walk = tools.walk.lock().unwrap_or_else(PoisonError::into_inner);
                if walk.as_ref().is_none_or(|walk| !walk.starts_at(beneath)) {
                    *walk = Some(VerifyEndWalk::begin(&tools.top, beneath, *specials));
                }
                walk.as_mut().map(|walk| ComparisonAnswer::Walked(walk.next()))
            }
            ExamineQuestion::Look { names, digests: true, .. } => {
                Some(ComparisonAnswer::Seen(vec![self.examine_name(&names[unit], tools)]))
            }
            ExamineQuestion::Look { names, .. } => Some(ComparisonAnswer::Seen(
                names.iter().map(|name| self.examine_name(name, tools)).collect(),
            )),
            ExamineQuestion::Pieces(of) => Some(ComparisonAnswer::Pieces(self.hash(of, unit as u64, tools))),
        };
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(parts[unit].is_none(), "each unit is done once");
        parts[unit] = part;
    }

    /// Closes descriptors after the last unit.
    pub(super) fn close(&self) {
        self.directory.close();
        self.file.close();
    }

    /// Returns the answer after the last unit.
    pub(super) fn answer(&self) -> Option<ComparisonAnswer> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let parts: Vec<ComparisonAnswer> = parts.drain(..).collect::<Option<_>>()?;
        match &self.question {
            ExamineQuestion::WalkOn { .. } => parts.into_iter().next(),
            ExamineQuestion::Look { .. } => Some(ComparisonAnswer::Seen(
                parts.into_iter().filter_map(ComparisonAnswer::into_entry_facts).flatten().collect(),
            )),
            ExamineQuestion::Pieces(_) => {
                let values: Result<Vec<Vec<[u8; 32]>>, String> =
                    parts.into_iter().filter_map(ComparisonAnswer::into_pieces).collect();
                Some(ComparisonAnswer::Pieces(values.map(|values| values.concat())))
            }
        }
    }

    fn examine_name(&self, name: &[u8], tools: &ExamineTools) -> ExaminedEntryFacts {
        let ExamineQuestion::Look { directory, digests, metadata, .. } = &self.question else {
            return ExaminedEntryFacts::without_facts(ExaminedEntryKind::Nothing);
        };
        let asked = (*digests, *metadata);
        if name.is_empty() {
            return match tools.top.locate_entry(directory) {
                Ok(ExaminedPlace { holder, name }) => {
                    examine_entry(holder.as_fd(), name.as_deref(), asked, tools)
                }
                Err(error) => ExaminedEntryFacts::without_facts(entry_kind_of_error(&error)),
            };
        }
        match &*self.directory.get_or_open(|| tools.top.open_directory(directory)) {
            Ok(handle) => examine_entry(handle.as_fd(), Some(name), asked, tools),
            Err(error) => ExaminedEntryFacts::without_facts(entry_kind_of_error(error)),
        }
    }

    fn hash(
        &self,
        of: &PieceDigestRequest,
        unit: u64,
        tools: &ExamineTools,
    ) -> Result<Vec<[u8; 32]>, String> {
        let file = self.file.get_or_open(|| open_whole(of, tools));
        let file = (*file).as_ref().map_err(Clone::clone)?;
        let start = unit * UNIT_BYTES;
        assert!(start < of.range.len, "a unit lies in its range");
        let range = ByteRange::new(of.range.offset + start, UNIT_BYTES.min(of.range.len - start));
        tools.wait_for_rate_limit(range.len);
        let mut slot = tools.lease()?;
        let data = read(file, range, &mut slot)?;
        let pieces =
            (range.offset..).step_by(of.piece_bytes as usize).zip(data.chunks(of.piece_bytes as usize));
        let values = pieces.map(|(offset, piece)| {
            if of.by_itself {
                return Ok(*blake3::hash(piece).as_bytes());
            }
            let first = hash_subtrees(offset, piece, of.file_size).ok().and_then(|mut found| found.next());
            first.map(|subtree| subtree.value).ok_or_else(|| "a piece that is no subtree".to_owned())
        });
        values.collect()
    }
}

impl ComparisonAnswer {
    fn into_entry_facts(self) -> Option<Vec<ExaminedEntryFacts>> {
        if let ComparisonAnswer::Seen(sights) = self { Some(sights) } else { None }
    }

    fn into_pieces(self) -> Option<Result<Vec<[u8; 32]>, String>> {
        if let ComparisonAnswer::Pieces(values) = self { Some(values) } else { None }
    }
}

fn examine_entry(
    directory: BorrowedFd<'_>,
    name: Option<&[u8]>,
    (digests, metadata): (bool, Option<KeptMetadata>),
    tools: &ExamineTools,
) -> ExaminedEntryFacts {
    let glance = match read_entry_state(directory, name) {
        Ok(glance) => glance,
        Err(error) => return ExaminedEntryFacts::without_facts(entry_kind_of_error(&error)),
    };
    let is_file = glance.kind == BrowsedKind::File;
    let digest = match (glance.kind, name) {
        (BrowsedKind::Symlink, Some(name)) => link_text(directory, name)
            .map(|text| Some(*blake3::hash(&text).as_bytes()))
            .map_err(|error| entry_kind_of_error(&error)),
        (BrowsedKind::File, Some(name)) if digests && glance.stamp.size <= WHOLE_BYTES_MAX => {
            hash_small(directory, name, glance.stamp, tools).map(Some).map_err(ExaminedEntryKind::Unreadable)
        }
        _ => Ok(None),
    };
    let metadata = metadata.map(|kept| {
        ComparedEntryMetadata::read(&glance, directory, name, tools.extras_reader(kept).as_deref())
    });
    let metadata = metadata.transpose().map_err(|error| entry_kind_of_error(&error));
    match (digest, metadata) {
        (Ok(digest), Ok(metadata)) => ExaminedEntryFacts {
            standing: ExaminedEntryKind::Is(glance.kind),
            size: if is_file { glance.stamp.size } else { 0 },
            stamp: stamp_number(&glance.stamp),
            digest,
            special: glance.special,
            metadata: metadata.map(Box::new),
        },
        (Err(ExaminedEntryKind::Unreadable(detail)), _) | (_, Err(ExaminedEntryKind::Unreadable(detail))) => {
            ExaminedEntryFacts::without_facts(ExaminedEntryKind::Unreadable(truncate_detail(&detail)))
        }
        (Err(standing), _) | (_, Err(standing)) => ExaminedEntryFacts::without_facts(standing),
    }
}

/// Hashes a file that fits into a slot.
fn hash_small(
    directory: BorrowedFd<'_>,
    name: &[u8],
    stamp: FileStamp,
    tools: &ExamineTools,
) -> Result<[u8; 32], String> {
    let file = open(directory, name, tools).map_err(|error| text_without_errno(&error))?;
    if file.stamp() != stamp {
        return Err(CHANGED.into());
    }
    tools.wait_for_rate_limit(stamp.size);
    let mut slot = tools.lease()?;
    let data = read(&file, ByteRange::new(0, stamp.size), &mut slot)?;
    Ok(*blake3::hash(data).as_bytes())
}

const CHANGED: &str = "it changed while it was read";

fn open(directory: BorrowedFd<'_>, name: &[u8], tools: &ExamineTools) -> Result<SourceFile, SourceError> {
    let io = if tools.past_cache { SourceReadMethod::Direct } else { SourceReadMethod::Auto };
    let file = SourceFile::open(directory, name, false, io)?;
    if tools.past_cache {
        file.drop_cached();
    }
    Ok(file)
}

fn open_whole(of: &PieceDigestRequest, tools: &ExamineTools) -> Result<SourceFile, String> {
    let file = if of.name.is_empty() {
        let ExaminedPlace { holder, name } = tools
            .top
            .locate_entry(&of.directory)
            .map_err(|error| truncate_detail(&text_without_errno(&error)))?;
        let name = name.ok_or("it is a directory")?;
        open(holder.as_fd(), &name, tools)
    } else {
        let directory = tools
            .top
            .open_directory(&of.directory)
            .map_err(|error| truncate_detail(&text_without_errno(&error)))?;
        open(directory.as_fd(), &of.name, tools)
    };
    let file = file.map_err(|error| truncate_detail(&text_without_errno(&error)))?;
    let size = file.stamp().size;
    let has_all = size == of.file_size || of.by_itself && size > of.file_size;
    if has_all { Ok(file) } else { Err("its size changed".into()) }
}

/// Reads a range that fits into the slot.
fn read<'s>(file: &SourceFile, range: ByteRange, slot: &'s mut Slot) -> Result<&'s [u8], String> {
    let len = range.len as usize;
    let buffer = slot.bytes_mut();
    assert!(len <= buffer.len(), "a range fits into the slot");
    let wanted = len.next_multiple_of(ALIGNMENT).min(buffer.len());
    let got = file
        .read_at(&mut buffer[..wanted], range.offset)
        .map_err(|error| truncate_detail(&text_without_errno(&error)))?;
    let is_unchanged = file.is_unchanged().map_err(|error| truncate_detail(&text_without_errno(&error)))?;
    if got < len || !is_unchanged {
        return Err(CHANGED.into());
    }
    Ok(&slot.bytes()[..len])
}

/// Returns a number for a file's version. Device numbers may change at a restart and are left out.
fn stamp_number(stamp: &FileStamp) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&stamp.ino.to_le_bytes()).update(&stamp.size.to_le_bytes());
    for time in [stamp.mtime, stamp.ctime] {
        hasher.update(&time.seconds.to_le_bytes()).update(&time.nanoseconds.to_le_bytes());
    }
    let mut number = [0; 8];
    hasher.finalize_xof().fill(&mut number);
    u64::from_le_bytes(number)
}

fn truncate_detail(detail: &str) -> String {
    let end = (0..=DETAIL_BYTES_MAX.min(detail.len())).rev().find(|&at| detail.is_char_boundary(at));
    detail[..end.unwrap_or(0)].to_owned()
}
