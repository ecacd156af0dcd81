//! The leg of a transfer: source and destination directories, determined once by a look at both ends, with
//! the meaning that `carrack cp -r` gives to paths (decision 18).

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use carrack_model::{FilterLanguage, LinkPolicy, text_without_errno};
use carrack_plan::fleet::{MoverFault, MoverFaultKind};
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::FleetManager;
use super::eligible_movers::{TransferEndRole, eligible_movers, ids};
use super::wait_reasons::no_mover_reason;
use crate::mover::journal_id;
use crate::mover_requests::{MoverReply, MoverRequest, MoverRequestError, PathReply, send_mover_request};
use crate::transfer_records::{ResolvedTransferPaths, SiteLocation, TransferRecord};

/// Timeout of a look: a busy parallel file system takes its time.
const LOOK_WITHIN: Duration = Duration::from_secs(20);

/// Time to wait for the other movers once one has found the source.
const OTHERS_LOOK_WITHIN: Duration = Duration::from_millis(500);

/// The reason why the leg could not be determined.
pub(super) enum DestinationResolutionFailure {
    /// It may be possible later, for example when a mover is there.
    Later(String),
    /// Movers see different storage there, which may change.
    AtOdds(String),
    /// It is impossible.
    Never(String),
}

/// Returns the leg, and true if an earlier transfer has left journals.
pub(super) async fn resolve_destination(
    manager: &Arc<FleetManager>,
    record: &TransferRecord,
) -> Result<(ResolvedTransferPaths, bool), DestinationResolutionFailure> {
    let values = record
        .submission
        .options
        .values()
        .map_err(|trouble| DestinationResolutionFailure::Never(trouble.line()))?;
    let becomes_it = values.transfer().no_target_directory;
    let syncs =
        values.sync_rules().map_err(|trouble| DestinationResolutionFailure::Never(trouble.line()))?.is_some();
    let mut sink = record.submission.destination.clone();
    if syncs && !becomes_it && !sink.path.ends_with('/') {
        // Always a directory: so the same command has the same meaning once it exists.
        sink.path.push('/');
    }
    let (source, sink) = (&record.submission.source, &sink);
    let mut from = query_source_at_movers(manager, record).await?;
    // A followed link counts as its target.
    let settings =
        values.settings().map_err(|trouble| DestinationResolutionFailure::Never(trouble.line()))?;
    from.is_link &= settings.selection.links != LinkPolicy::Followed;
    let journals = carrack_engine::shared_journal_directory(journal_id(&record.submission));
    let has_journals = async |directory: &str| {
        let path = format!("{}/{journals}", directory.trim_end_matches('/'));
        query_path(manager, &record.id, sink, &path).await.is_ok_and(|looked| looked.exists)
    };
    let mut to = query_path(manager, &record.id, sink, &sink.path).await?;
    let is_there = to.exists;
    if is_there && has_journals(&sink.path).await {
        // An earlier transfer between the same places made it: the path has the same meaning as for that
        // transfer.
        to.exists = sink.path.ends_with('/') || source.path.ends_with('/');
    }
    let leg =
        resolve_paths(source, &from, sink, &to, becomes_it).map_err(DestinationResolutionFailure::Never)?;
    if source.site == sink.site && Path::new(&leg.sink).starts_with(&leg.source) && leg.only.is_none() {
        return Err(DestinationResolutionFailure::Never(format!(
            "{sink} is, or lies within, the directory {source}"
        )));
    }
    let is_named_at_sink = leg.only.is_none() && leg.sink != without_trailing_slashes(&sink.path);
    if is_named_at_sink && settings.selection.language == FilterLanguage::Rsync {
        let message = format!(
            "in a fleet the paths of rsync's filter rules begin in the copied directory, and not with its name: give the \
             source {source} with a slash behind it, and {} as the destination",
            leg.sink
        );
        return Err(DestinationResolutionFailure::Never(message));
    }
    if record.submission.options.deletes() && destination_contains_source(source, sink, &leg) {
        let message =
            format!("the source {source} lies in {sink}, a directory where something is to be deleted");
        return Err(DestinationResolutionFailure::Never(message));
    }
    if !is_there && leg.sink != without_trailing_slashes(&sink.path) && leg.only.is_none() {
        make_directory(manager, &record.id, sink).await?;
    }
    // A new directory has no journals; those of a new file are in its parent.
    let is_new = !is_there && (leg.only.is_none() || leg.sink == without_trailing_slashes(&sink.path));
    let resumes = !is_new && has_journals(&leg.sink).await;
    Ok((leg, resumes))
}

/// Returns true if a deletion in the destination would remove the source, too. Links or mounts may hide this
/// here: then the deleting session notices it, if both ends are on one host.
fn destination_contains_source(
    source: &SiteLocation,
    sink: &SiteLocation,
    leg: &ResolvedTransferPaths,
) -> bool {
    source.site == sink.site && leg.only.is_none() && Path::new(&leg.source).starts_with(&leg.sink)
}

/// Writes the leg into the record; returns true if it had none. An existing leg stays: a manager that was
/// stopped during its look would find entries that others have made since, such as a directory of the copy's
/// name.
pub(super) fn set_leg_if_missing(
    record: &mut TransferRecord,
    leg: &ResolvedTransferPaths,
    resumes: bool,
    manager: &str,
) -> bool {
    if record.leg.is_some() {
        return false;
    }
    record.leg = Some(leg.clone());
    record.resumes = resumes;
    record.waits_for.clear();
    manager.clone_into(&mut record.manager);
    true
}

/// Returns the source's properties, as seen by the movers that have it. Movers without it are left out of the
/// transfer.
async fn query_source_at_movers(
    manager: &Arc<FleetManager>,
    record: &TransferRecord,
) -> Result<PathReply, DestinationResolutionFailure> {
    let source = &record.submission.source;
    let reaching =
        reaching_movers(manager, &record.id, TransferEndRole::Sink, source, &source.path)?.reaching;
    let looks = reaching
        .iter()
        .map(|mover| query_path_at_mover(manager, mover, &source.path).map(move |looked| (mover, looked)));
    let mut looks: FuturesUnordered<_> = looks.collect();
    let (mut found, mut lacking, mut unanswered) = (None, Vec::new(), None);
    let mut until = None;
    loop {
        let next = async {
            match until {
                Some(until) => tokio::time::timeout_at(until, looks.next()).await.unwrap_or_default(),
                None => looks.next().await,
            }
        };
        match next.await {
            Some((_, Ok(looked))) if looked.exists => {
                until.get_or_insert_with(|| tokio::time::Instant::now() + OTHERS_LOOK_WITHIN);
                found = Some(looked);
            }
            Some((mover, Ok(_))) => lacking.push((mover, None)),
            Some((mover, Err(DestinationResolutionFailure::Never(why)))) => lacking.push((mover, Some(why))),
            Some((_, Err(later))) => unanswered = Some(later),
            None => break,
        }
    }
    let Some(found) = found else {
        // A mover without an answer may have it.
        let why = lacking.into_iter().find_map(|(_, why)| why);
        let why = why.unwrap_or_else(|| format!("{source} does not exist"));
        return Err(unanswered.unwrap_or(DestinationResolutionFailure::Never(why)));
    };
    for (mover, why) in lacking {
        let reason = why.unwrap_or_else(|| format!("{} does not exist there", source.path));
        let (transfer, mover) = (record.id.clone(), mover.clone());
        let kind = MoverFaultKind::Refused;
        manager.handle_fault(&MoverFault { transfer, mover, other: String::new(), kind, reason });
    }
    match reaching_movers(manager, &record.id, TransferEndRole::Sink, source, &source.path)?
        .into_usable_movers()
    {
        Err(DestinationResolutionFailure::AtOdds(why)) => check_same_names(manager, record, why).await?,
        able => drop(able?),
    }
    Ok(found)
}

/// Checks movers of which no majority sees the same storage: all can be used if they have the same names at
/// the source.
async fn check_same_names(
    manager: &FleetManager,
    record: &TransferRecord,
    why: String,
) -> Result<(), DestinationResolutionFailure> {
    let source = &record.submission.source;
    let able = reaching_movers(manager, &record.id, TransferEndRole::Source, source, &source.path)?;
    let able = able.into_usable_movers()?;
    let question = MoverRequest::Names { path: source.path.clone() };
    let answers =
        join_all(able.iter().map(|mover| send_mover_request(&manager.bus, mover, &question, LOOK_WITHIN)))
            .await;
    let digests: Option<HashSet<String>> = answers
        .into_iter()
        .map(|answer| match answer {
            Ok(MoverReply::Names { digest }) => Some(digest),
            _ => None,
        })
        .collect();
    if digests.is_some_and(|digests| digests.len() == 1) {
        Ok(())
    } else {
        Err(DestinationResolutionFailure::Later(why))
    }
}

/// The movers that reach a path, by their IDs.
struct ReachingMovers {
    /// All of them, independent of their health.
    reaching: Vec<String>,
    /// Those that can be used.
    able: Vec<String>,
    at_odds: String,
    /// Their illnesses.
    ill: String,
}

impl ReachingMovers {
    fn into_usable_movers(self) -> Result<Vec<String>, DestinationResolutionFailure> {
        if !self.able.is_empty() {
            Ok(self.able)
        } else if !self.at_odds.is_empty() {
            Err(DestinationResolutionFailure::AtOdds(self.at_odds))
        } else {
            Err(DestinationResolutionFailure::Later(self.ill))
        }
    }
}

fn reaching_movers(
    manager: &FleetManager,
    transfer: &str,
    which: TransferEndRole,
    location: &SiteLocation,
    path: &str,
) -> Result<ReachingMovers, DestinationResolutionFailure> {
    let movers = manager.movers.all();
    let end =
        eligible_movers(&movers, &manager.health(), manager.now(), transfer, (which, &location.site, path));
    if end.reaching.is_empty() {
        let somebody_is_there = !manager.movers.at_site(&location.site).is_empty();
        return Err(DestinationResolutionFailure::Later(no_mover_reason(
            &location.site,
            path,
            somebody_is_there,
        )));
    }
    let (reaching, able) = (ids(&movers, &end.reaching), ids(&movers, &end.able));
    Ok(ReachingMovers { reaching, able, at_odds: end.at_odds, ill: end.ill })
}

/// Returns the properties of a path, as the first answering mover sees them.
async fn query_path(
    manager: &FleetManager,
    transfer: &str,
    location: &SiteLocation,
    path: &str,
) -> Result<PathReply, DestinationResolutionFailure> {
    let mut reason = None;
    for mover in
        reaching_movers(manager, transfer, TransferEndRole::Sink, location, path)?.into_usable_movers()?
    {
        match query_path_at_mover(manager, &mover, path).await {
            Ok(looked) => return Ok(looked),
            Err(why) => reason = Some(why),
        }
    }
    Err(reason.unwrap_or_else(|| DestinationResolutionFailure::Later(format!("nobody looks at {location}"))))
}

async fn query_path_at_mover(
    manager: &FleetManager,
    mover: &str,
    path: &str,
) -> Result<PathReply, DestinationResolutionFailure> {
    match send_mover_request(&manager.bus, mover, &MoverRequest::Look { path: path.to_owned() }, LOOK_WITHIN)
        .await
    {
        Ok(MoverReply::Looked(looked)) => Ok(looked),
        Ok(MoverReply::Failed(why)) => Err(DestinationResolutionFailure::Never(why)),
        Ok(_) => Err(DestinationResolutionFailure::Later(format!("{mover} answers something else"))),
        Err(error @ MoverRequestError::Failed { .. }) => {
            Err(DestinationResolutionFailure::Never(text_without_errno(&error)))
        }
        Err(error) => Err(DestinationResolutionFailure::Later(text_without_errno(&error))),
    }
}

/// Makes the directory of a destination with a trailing slash, if it is missing.
async fn make_directory(
    manager: &FleetManager,
    transfer: &str,
    sink: &SiteLocation,
) -> Result<(), DestinationResolutionFailure> {
    let path = without_trailing_slashes(&sink.path);
    let mut reason = format!("nobody makes {sink}");
    for mover in
        reaching_movers(manager, transfer, TransferEndRole::Sink, sink, &path)?.into_usable_movers()?
    {
        match send_mover_request(
            &manager.bus,
            &mover,
            &MoverRequest::Make { path: path.clone() },
            LOOK_WITHIN,
        )
        .await
        {
            Ok(MoverReply::Made) => return Ok(()),
            Ok(MoverReply::Failed(why)) => reason = format!("{mover}: {why}"),
            Ok(_) => reason = format!("{mover} answers something else"),
            Err(error) => reason = text_without_errno(&error),
        }
    }
    Err(DestinationResolutionFailure::Later(reason))
}

/// Removes trailing slashes, except the root's.
fn name(path: &str) -> String {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned()
}

fn join_path(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.trim_end_matches('/'))
}

fn parent(path: &str) -> String {
    let path = without_trailing_slashes(path);
    let parent = Path::new(&path).parent().unwrap_or(Path::new("/"));
    parent.to_string_lossy().into_owned()
}

fn without_trailing_slashes(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" => "/".to_owned(),
        path => path.to_owned(),
    }
}

/// Returns the leg as cp(1) does: into an existing directory, or under the given name; a trailing slash
/// stands for the contents of a directory. With `becomes_it` only the contents of the source go into an
/// existing directory.
fn resolve_paths(
    source: &SiteLocation,
    from: &PathReply,
    sink: &SiteLocation,
    to: &PathReply,
    becomes_it: bool,
) -> Result<ResolvedTransferPaths, String> {
    let is_contents = source.path.ends_with('/') || becomes_it && from.is_directory && !from.is_link;
    let wants_directory = sink.path.ends_with('/');
    let follows = !from.is_link || is_contents;
    if from.is_directory && follows {
        let root = match (to.exists, to.is_directory, is_contents || name(&source.path).is_empty()) {
            (true, false, _) => return Err(format!("{sink} is in the way: it is no directory")),
            (true, true, false) => join_path(&sink.path, &name(&source.path)),
            (true, true, true) => without_trailing_slashes(&sink.path),
            (false, ..) if !to.parent_exists => {
                return Err(format!("the directory that is to hold {sink} does not exist"));
            }
            (false, _, false) if wants_directory && !becomes_it => join_path(&sink.path, &name(&source.path)),
            (false, ..) => without_trailing_slashes(&sink.path),
        };
        return Ok(ResolvedTransferPaths {
            source: without_trailing_slashes(&source.path),
            sink: root,
            only: None,
        });
    }
    if becomes_it && (to.exists && to.is_directory || wants_directory) {
        return Err(format!(
            "{sink} is a directory, and --no-target-directory leaves no place in it for a file"
        ));
    }
    let own = name(&source.path);
    let (root, new) = match (to.exists && to.is_directory, wants_directory) {
        (true, _) => (without_trailing_slashes(&sink.path), own.clone()),
        (false, true) if to.exists => return Err(format!("{sink} is no directory")),
        (false, _) if !to.parent_exists => {
            return Err(format!("the directory that is to hold {sink} does not exist"));
        }
        (false, true) => (without_trailing_slashes(&sink.path), own.clone()),
        (false, false) => (parent(&sink.path), name(&sink.path)),
    };
    Ok(ResolvedTransferPaths { source: parent(&source.path), sink: root, only: Some((own, new)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> PathReply {
        PathReply { is_directory: true, ..file() }
    }

    fn file() -> PathReply {
        PathReply { exists: true, is_directory: false, size: 5, is_link: false, parent_exists: true }
    }

    fn nothing() -> PathReply {
        PathReply { exists: false, ..file() }
    }

    fn leg(
        source: &str,
        from: PathReply,
        sink: &str,
        to: PathReply,
    ) -> Result<(String, String, Option<String>), String> {
        placed(source, from, sink, to, false)
    }

    fn placed(
        source: &str,
        from: PathReply,
        sink: &str,
        to: PathReply,
        becomes_it: bool,
    ) -> Result<(String, String, Option<String>), String> {
        let [source, sink] = [source, sink].map(|path| SiteLocation { site: "s".into(), path: path.into() });
        let leg = resolve_paths(&source, &from, &sink, &to, becomes_it)?;
        Ok((leg.source, leg.sink, leg.only.map(|(from, to)| format!("{from}>{to}"))))
    }

    fn told(
        source: &str,
        sink: &str,
        only: Option<&str>,
    ) -> Result<(String, String, Option<String>), String> {
        Ok((source.to_owned(), sink.to_owned(), only.map(str::to_owned)))
    }

    #[test]
    fn paths_mean_what_they_mean_to_cp() {
        assert_eq!(leg("/d/a", directory(), "/e", directory()), told("/d/a", "/e/a", None));
        assert_eq!(leg("/d/a/", directory(), "/e/", directory()), told("/d/a", "/e", None));
        assert_eq!(leg("/d/a", directory(), "/e/new", nothing()), told("/d/a", "/e/new", None));
        assert_eq!(leg("/d/f", file(), "/e", directory()), told("/d", "/e", Some("f>f")));
        assert_eq!(leg("/d/f", file(), "/e/g", nothing()), told("/d", "/e", Some("f>g")));
        assert_eq!(leg("/d/f", file(), "/e/g", file()), told("/d", "/e", Some("f>g")));
        assert_eq!(leg("/f", file(), "/g", nothing()), told("/", "/", Some("f>g")));
        assert_eq!(placed("/d/a", directory(), "/e", directory(), true), told("/d/a", "/e", None));
        assert_eq!(placed("/d/a", directory(), "/e/new", nothing(), true), told("/d/a", "/e/new", None));
        assert!(placed("/d/f", file(), "/e", directory(), true).is_err());
        assert_eq!(placed("/d/f", file(), "/e/g", file(), true), told("/d", "/e", Some("f>g")));
        assert!(leg("/d/a", directory(), "/e/f", file()).is_err());
        // As in `carrack cp`, for missing directories as well.
        assert_eq!(leg("/d/f", file(), "/e/new/", nothing()), told("/d", "/e/new", Some("f>f")));
        assert_eq!(leg("/d/a", directory(), "/e/new/", nothing()), told("/d/a", "/e/new/a", None));
        assert_eq!(leg("/d/a/", directory(), "/e/new/", nothing()), told("/d/a", "/e/new", None));
        assert_eq!(placed("/d/a", directory(), "/e/new/", nothing(), true), told("/d/a", "/e/new", None));
        assert!(leg("/d/f", file(), "/e/f/", file()).is_err());
        assert!(leg("/d/f", file(), "/e/x/new/", PathReply { parent_exists: false, ..nothing() }).is_err());
        assert!(leg("/d/a", directory(), "/e/x", PathReply { parent_exists: false, ..nothing() }).is_err());
    }

    /// A manager that was stopped during its look finds the directory that the copy has made meanwhile.
    #[test]
    fn where_a_transfer_goes_is_settled_once() {
        let leg = ResolvedTransferPaths { source: "/s/run".into(), sink: "/d/run".into(), only: None };
        let second = ResolvedTransferPaths { sink: "/d/run/run".into(), ..leg.clone() };
        let submission = serde_json::from_str(r#"{"source":"a:/s/run","destination":"b:/d/run"}"#).unwrap();
        let mut record = TransferRecord::queued("t".into(), "u", submission, 1);
        assert!(set_leg_if_missing(&mut record, &leg, false, "m1"));
        assert!(!set_leg_if_missing(&mut record, &second, true, "m2"));
        assert_eq!((record.leg, record.resumes, &*record.manager), (Some(leg), false, "m1"));
    }
}
