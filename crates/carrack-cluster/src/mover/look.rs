//! What a mover tells of its file systems.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::Mover;
use crate::asks::{Answer, Ask, Looked};

pub(super) fn answer(mover: Arc<Mover>, ask: Ask) -> BoxFuture<'static, Answer> {
    let looking = tokio::task::spawn_blocking(move || match ask {
        Ask::Look { path } => look(&mover, Path::new(&path)),
    });
    looking.map(|answer| answer.unwrap_or_else(|error| Answer::Failed(error.to_string()))).boxed()
}

fn look(mover: &Mover, path: &Path) -> Answer {
    if let Err(error) = mover.reach.place(path) {
        return Answer::Failed(error.to_string());
    }
    let itself = path.symlink_metadata();
    let target = path.metadata();
    Answer::Looked(Looked {
        exists: itself.is_ok(),
        is_directory: target.as_ref().is_ok_and(std::fs::Metadata::is_dir),
        size: target.as_ref().map_or(0, std::fs::Metadata::len),
        is_link: itself.is_ok_and(|found| found.is_symlink()),
        parent_exists: path.parent().is_none_or(Path::is_dir),
    })
}
