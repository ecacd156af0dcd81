//! From where to where a transfer goes: settled once, by a look at both ends, with the meaning that `carrack cp -r` gives to
//! paths (decision 18).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::Manager;
use super::claims::reaching;
use super::owning::{Stop, current};
use super::waiting::nobody;
use crate::asks::{Answer, Ask, AskError, Looked, ask};
use crate::error::BusError;
use crate::lease::{Lease, RENEW_EVERY, RenewError};
use crate::mover::journal_id;
use crate::records::{Leg, Location, Submission, TransferRecord, TransferState, now_ms};

/// A look at a parallel file system that is busy takes its time.
const LOOK_WITHIN: Duration = Duration::from_secs(20);

/// Why it could not be settled.
enum Unsettled {
    /// It may be later: no mover is there, say.
    Later(String),
    /// It can't be.
    Never(String),
}

/// Settles where the transfer goes; waits for movers if it has to.
pub(super) async fn settle_leg(
    manager: &Arc<Manager>,
    lease: &mut Lease,
    record: &TransferRecord,
    stop: &mut watch::Receiver<bool>,
) -> Result<Option<Stop>, BusError> {
    let id = &record.id;
    loop {
        let settled = settle(manager, &record.submission).await;
        match settled {
            Ok((leg, resumes)) => {
                let change = |record: &mut TransferRecord| {
                    record.leg = Some(leg.clone());
                    record.resumes = resumes;
                    record.waits_for.clear();
                    record.manager.clone_from(&manager.id);
                };
                let _ = manager.transfers.update(id, change).await;
                return Ok(None);
            }
            Err(Unsettled::Later(reason)) => {
                let change = |record: &mut TransferRecord| {
                    record.manager.clone_from(&manager.id);
                    if record.state == TransferState::Queued {
                        record.waits_for.clone_from(&reason);
                    }
                };
                let _ = manager.transfers.update(id, change).await;
            }
            Err(Unsettled::Never(reason)) => {
                let change = |record: &mut TransferRecord| {
                    if !record.state.is_over() {
                        record.state = TransferState::Failed;
                        record.reason.clone_from(&reason);
                        record.waits_for.clear();
                        record.ended_ms = Some(now_ms());
                    }
                };
                let _ = manager.transfers.update(id, change).await;
                return Ok(Some(Stop::Over));
            }
        }
        tokio::select! {
            () = tokio::time::sleep(RENEW_EVERY) => {}
            _ = stop.changed() => return Ok(Some(Stop::Told)),
        }
        if let Err(RenewError::Lost(_)) = lease.renew().await {
            return Ok(Some(Stop::Lost));
        }
        match current(manager, id).await? {
            None => return Ok(Some(Stop::Over)),
            Some(record) if record.state == TransferState::Cancelled => return Ok(None),
            Some(_) => {}
        }
    }
}

/// The leg, and whether an earlier transfer has left journals.
async fn settle(manager: &Manager, submission: &Submission) -> Result<(Leg, bool), Unsettled> {
    let (source, sink) = (&submission.source, &submission.destination);
    let from = look(manager, source, &source.path).await?;
    if !from.exists {
        return Err(Unsettled::Never(format!("{source} does not exist")));
    }
    let journals = carrack_engine::shared_journals(journal_id(&source.to_string(), &sink.to_string()));
    let has_journals = async |directory: &str| {
        let path = format!("{}/{journals}", directory.trim_end_matches('/'));
        look(manager, sink, &path).await.is_ok_and(|looked| looked.exists)
    };
    let mut to = look(manager, sink, &sink.path).await?;
    if to.exists && has_journals(&sink.path).await {
        // An earlier transfer between the same places made it: it means the same now as it did then.
        to.exists = sink.path.ends_with('/') || source.path.ends_with('/');
    }
    let leg = leg_of(source, &from, sink, &to).map_err(Unsettled::Never)?;
    if source.site == sink.site && Path::new(&leg.sink).starts_with(&leg.source) && leg.only.is_none() {
        return Err(Unsettled::Never(format!("{sink} is, or lies within, the directory {source}")));
    }
    let resumes = has_journals(&leg.sink).await;
    Ok((leg, resumes))
}

async fn look(manager: &Manager, location: &Location, path: &str) -> Result<Looked, Unsettled> {
    let movers = manager.movers.all();
    let able = reaching(&movers, &location.site, path);
    let Some(&first) = able.first() else {
        let somebody_is_there = !manager.movers.at(&location.site).is_empty();
        return Err(Unsettled::Later(nobody(&location.site, path, somebody_is_there)));
    };
    let mut reason = Unsettled::Later(format!("{} does not answer", movers[first].id));
    for index in able {
        match ask(&manager.bus, &movers[index].id, &Ask::Look { path: path.to_owned() }, LOOK_WITHIN).await {
            Ok(Answer::Looked(looked)) => return Ok(looked),
            Ok(Answer::Failed(why)) => reason = Unsettled::Never(why),
            Err(error @ AskError::Failed { .. }) => reason = Unsettled::Never(error.to_string()),
            Err(error) => reason = Unsettled::Later(error.to_string()),
        }
    }
    Err(reason)
}

/// As cp(1) has it: into a directory that is there, or under the name that is given; a trailing slash means what is in a
/// directory.
fn leg_of(source: &Location, from: &Looked, sink: &Location, to: &Looked) -> Result<Leg, String> {
    let name = |path: &str| path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    let trimmed = |path: &str| match path.trim_end_matches('/') {
        "" => "/".to_owned(),
        path => path.to_owned(),
    };
    let beneath = |directory: &str, name: &str| format!("{}/{name}", directory.trim_end_matches('/'));
    let is_contents = source.path.ends_with('/');
    let wants_directory = sink.path.ends_with('/');
    let follows = !from.is_link || is_contents;
    if from.is_directory && follows {
        let root = match (to.exists, to.is_directory, is_contents || name(&source.path).is_empty()) {
            (true, false, _) => return Err(format!("{sink} is in the way: it is no directory")),
            (true, true, false) => beneath(&sink.path, &name(&source.path)),
            (true, true, true) => trimmed(&sink.path),
            (false, ..) if !to.parent_exists => {
                return Err(format!("the directory that is to hold {sink} does not exist"));
            }
            (false, ..) => trimmed(&sink.path),
        };
        return Ok(Leg { source: trimmed(&source.path), sink: root, only: None });
    }
    let own = name(&source.path);
    let parent = |path: &str| {
        let path = trimmed(path);
        let parent = Path::new(&path).parent().unwrap_or(Path::new("/"));
        parent.to_string_lossy().into_owned()
    };
    let (root, new) = match (to.exists && to.is_directory, wants_directory) {
        (true, _) => (trimmed(&sink.path), own.clone()),
        (false, true) => return Err(format!("{sink} is no directory")),
        (false, false) if !to.parent_exists => {
            return Err(format!("the directory that is to hold {sink} does not exist"));
        }
        (false, false) => (parent(&sink.path), name(&sink.path)),
    };
    Ok(Leg { source: parent(&source.path), sink: root, only: Some((own, new)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> Looked {
        Looked { is_directory: true, ..file() }
    }

    fn file() -> Looked {
        Looked { exists: true, is_directory: false, size: 5, is_link: false, parent_exists: true }
    }

    fn nothing() -> Looked {
        Looked { exists: false, ..file() }
    }

    fn leg(
        source: &str,
        from: Looked,
        sink: &str,
        to: Looked,
    ) -> Result<(String, String, Option<String>), String> {
        let location = |path: &str| Location { site: "s".into(), path: path.into() };
        let leg = leg_of(&location(source), &from, &location(sink), &to)?;
        Ok((leg.source, leg.sink, leg.only.map(|(from, to)| format!("{from}>{to}"))))
    }

    #[test]
    fn paths_mean_what_they_mean_to_cp() {
        let told = |source: &str, sink: &str, only: Option<&str>| {
            Ok((source.to_owned(), sink.to_owned(), only.map(str::to_owned)))
        };
        assert_eq!(leg("/d/a", directory(), "/e", directory()), told("/d/a", "/e/a", None));
        assert_eq!(leg("/d/a/", directory(), "/e/", directory()), told("/d/a", "/e", None));
        assert_eq!(leg("/d/a", directory(), "/e/new", nothing()), told("/d/a", "/e/new", None));
        assert_eq!(leg("/d/f", file(), "/e", directory()), told("/d", "/e", Some("f>f")));
        assert_eq!(leg("/d/f", file(), "/e/g", nothing()), told("/d", "/e", Some("f>g")));
        assert_eq!(leg("/d/f", file(), "/e/g", file()), told("/d", "/e", Some("f>g")));
        assert_eq!(leg("/f", file(), "/g", nothing()), told("/", "/", Some("f>g")));
        assert!(leg("/d/a", directory(), "/e/f", file()).is_err());
        assert!(leg("/d/f", file(), "/e/", nothing()).is_err());
        assert!(leg("/d/a", directory(), "/e/x", Looked { parent_exists: false, ..nothing() }).is_err());
    }
}
