//! A mover's answers about its file systems.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use carrack_engine::clear_shared_leftovers;
use carrack_model::{RelPath, TransferId, text_without_errno};
use carrack_storage::PathPurpose;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustix::fs::Dir;

use super::MoverContext;
use super::completion_proof::unseen_files;
use crate::mover_requests::{MoverReply, MoverRequest, PathReply};

/// Directories with more names count as equal.
const NAMES_MAX: usize = 20_000;

pub(super) fn answer(mover: Arc<MoverContext>, ask: MoverRequest) -> BoxFuture<'static, MoverReply> {
    let looking = tokio::task::spawn_blocking(move || match ask {
        MoverRequest::Look { path } => inspect_path(&mover, Path::new(&path)),
        MoverRequest::Make { path } => match make_directory(&mover, Path::new(&path)) {
            Ok(()) => MoverReply::Made,
            Err(error) => MoverReply::Failed(format!("{path}: {error}")),
        },
        MoverRequest::Names { path } => match names_digest(&mover, Path::new(&path)) {
            Ok(digest) => MoverReply::Names { digest },
            Err(error) => MoverReply::Failed(text_without_errno(&error)),
        },
        MoverRequest::Prove { directory, files } => {
            let directory = Path::new(&directory);
            match mover.reach.base_for(directory) {
                Ok(base) => MoverReply::Unseen { files: unseen_files(&base, directory, &files) },
                Err(error) => MoverReply::Failed(text_without_errno(&error)),
            }
        }
        MoverRequest::Clear { directory, transfer } => {
            match clear_transfer_leftovers(&mover, Path::new(&directory), &transfer) {
                Ok((journals, temporaries)) => MoverReply::Cleared { journals, temporaries },
                Err(reason) => MoverReply::Failed(reason),
            }
        }
        MoverRequest::LeftOut { reason, for_ms } => {
            mover.set_quarantine(reason, Duration::from_millis(for_ms));
            MoverReply::Noted
        }
    });
    looking
        .map(|answer| answer.unwrap_or_else(|error| MoverReply::Failed(text_without_errno(&error))))
        .boxed()
}

/// Makes a directory with the mover's umask; it may exist, as several movers may be asked for the same one.
fn make_directory(mover: &MoverContext, path: &Path) -> io::Result<()> {
    match mover.reach.base_for(path)?.make_directory(path, false) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes a transfer's leftovers from a directory. If the directory is gone, they are gone too.
fn clear_transfer_leftovers(
    mover: &MoverContext,
    directory: &Path,
    transfer: &str,
) -> Result<(u64, u64), String> {
    let id: TransferId = transfer.parse().map_err(|_| format!("{transfer:?} is no transfer's"))?;
    let base = mover.reach.base_for(directory).map_err(|error| text_without_errno(&error))?;
    let root = match base.open(directory, PathPurpose::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, 0)),
        opened => opened.map_err(|error| format!("{}: {error}", directory.display()))?,
    };
    clear_shared_leftovers(&root, id).map_err(|error| text_without_errno(&error))
}

/// Returns a digest of a directory's names, without those of carrack.
fn names_digest(mover: &MoverContext, path: &Path) -> io::Result<String> {
    let base = mover.reach.base_for(path)?;
    let looked = base.look(path, PathPurpose::ReadThrough)?;
    let mut hasher = blake3::Hasher::new();
    if !looked.is_directory {
        hasher.update(&looked.size.to_le_bytes());
        return Ok(hasher.finalize().to_hex().to_string());
    }
    let directory = base.open(path, PathPurpose::ReadThrough)?.enter_directory(&RelPath::root())?;
    let mut names = BTreeSet::new();
    for entry in Dir::read_from(&directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if !name.starts_with(b".carrack") {
            names.insert(name);
        }
        if names.len() > NAMES_MAX {
            return Ok(String::new());
        }
    }
    for name in names {
        hasher.update(&name).update(b"\0");
    }
    Ok(hasher.finalize().to_hex().to_string())
}

fn inspect_path(mover: &MoverContext, path: &Path) -> MoverReply {
    let base = match mover.reach.base_for(path) {
        Ok(base) => base,
        Err(error) => return MoverReply::Failed(text_without_errno(&error)),
    };
    let itself = base.look(path, PathPurpose::Read);
    let target = base.look(path, PathPurpose::ReadThrough);
    let parent = path.parent().map(|parent| base.look(parent, PathPurpose::ReadThrough));
    MoverReply::Looked(PathReply {
        exists: itself.is_ok(),
        is_directory: target.as_ref().is_ok_and(|found| found.is_directory),
        size: target.as_ref().map_or(0, |found| found.size),
        is_link: itself.is_ok_and(|found| found.is_symlink),
        parent_exists: parent.is_none_or(|parent| parent.is_ok_and(|found| found.is_directory)),
    })
}
