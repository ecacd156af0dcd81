//! A mover's answers about its file systems.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use carrack_engine::clear_shared_leftovers;
use carrack_model::{RelPath, TransferId};
use carrack_storage::Purpose;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustix::fs::Dir;

use super::Mover;
use super::witness::prove;
use crate::asks::{Answer, Ask, Looked};

/// Directories with more names count as equal.
const NAMES_MAX: usize = 20_000;

pub(super) fn answer(mover: Arc<Mover>, ask: Ask) -> BoxFuture<'static, Answer> {
    let looking = tokio::task::spawn_blocking(move || match ask {
        Ask::Look { path } => look(&mover, Path::new(&path)),
        Ask::Make { path } => match make(&mover, Path::new(&path)) {
            Ok(()) => Answer::Made,
            Err(error) => Answer::Failed(format!("{path}: {error}")),
        },
        Ask::Names { path } => match names(&mover, Path::new(&path)) {
            Ok(digest) => Answer::Names { digest },
            Err(error) => Answer::Failed(error.to_string()),
        },
        Ask::Prove { directory, files } => {
            let directory = Path::new(&directory);
            match mover.reach.base_for(directory) {
                Ok(base) => Answer::Unseen { files: prove(&base, directory, &files) },
                Err(error) => Answer::Failed(error.to_string()),
            }
        }
        Ask::Clear { directory, transfer } => match clear(&mover, Path::new(&directory), &transfer) {
            Ok((journals, temporaries)) => Answer::Cleared { journals, temporaries },
            Err(reason) => Answer::Failed(reason),
        },
        Ask::LeftOut { reason, for_ms } => {
            mover.is_left_out(reason, Duration::from_millis(for_ms));
            Answer::Noted
        }
    });
    looking.map(|answer| answer.unwrap_or_else(|error| Answer::Failed(error.to_string()))).boxed()
}

/// Makes a directory with the mover's umask; it may exist, as several movers may be asked for the same one.
fn make(mover: &Mover, path: &Path) -> io::Result<()> {
    match mover.reach.base_for(path)?.make_directory(path, false) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes a transfer's leftovers from a directory. If the directory is gone, they are gone too.
fn clear(mover: &Mover, directory: &Path, transfer: &str) -> Result<(u64, u64), String> {
    let id: TransferId = transfer.parse().map_err(|_| format!("{transfer:?} is no transfer's"))?;
    let base = mover.reach.base_for(directory).map_err(|error| error.to_string())?;
    let root = match base.open(directory, Purpose::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, 0)),
        opened => opened.map_err(|error| format!("{}: {error}", directory.display()))?,
    };
    clear_shared_leftovers(&root, id).map_err(|error| error.to_string())
}

/// Returns a digest of a directory's names, without those of carrack.
fn names(mover: &Mover, path: &Path) -> io::Result<String> {
    let base = mover.reach.base_for(path)?;
    let looked = base.look(path, Purpose::ReadThrough)?;
    let mut hasher = blake3::Hasher::new();
    if !looked.is_directory {
        hasher.update(&looked.size.to_le_bytes());
        return Ok(hasher.finalize().to_hex().to_string());
    }
    let directory = base.open(path, Purpose::ReadThrough)?.enter_directory(&RelPath::root())?;
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

fn look(mover: &Mover, path: &Path) -> Answer {
    let base = match mover.reach.base_for(path) {
        Ok(base) => base,
        Err(error) => return Answer::Failed(error.to_string()),
    };
    let itself = base.look(path, Purpose::Read);
    let target = base.look(path, Purpose::ReadThrough);
    let parent = path.parent().map(|parent| base.look(parent, Purpose::ReadThrough));
    Answer::Looked(Looked {
        exists: itself.is_ok(),
        is_directory: target.as_ref().is_ok_and(|found| found.is_directory),
        size: target.as_ref().map_or(0, |found| found.size),
        is_link: itself.is_ok_and(|found| found.is_symlink),
        parent_exists: parent.is_none_or(|parent| parent.is_ok_and(|found| found.is_directory)),
    })
}
