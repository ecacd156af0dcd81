//! Wildcards in the last name of a far location: `ls`, `stat` and `verify` list its directory to expand them.
//! A copy leaves that to the far end, which also knows those of other names.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use carrack_engine::{BrowseItem, RemotePathOperation};
use carrack_storage::SourceNameWildcard;

use crate::remote::browser::{BrowseStop, RemoteBrowser};
use crate::remote::location::EndLocation;
use crate::user_error::UserError;

/// Bound of the matches of one location, each of which costs a session.
const MATCHES_MAX: usize = 10_000;

/// Returns the directory and the wildcard of a far location whose last name is one. On this host the shell
/// has expanded it.
pub fn last_wildcard(location: &EndLocation) -> Option<(EndLocation, SourceNameWildcard)> {
    let wildcard = SourceNameWildcard::new(location.path.file_name()?.as_bytes())?;
    let parent = location.path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let path = parent.unwrap_or(Path::new(".")).to_path_buf();
    location.far.is_some().then(|| (EndLocation { path, ..location.clone() }, wildcard))
}

/// Returns the locations that `typed` matches, sorted by name: `typed` itself if it has no wildcard, if an
/// entry has this very name, or if nothing matches.
pub fn expand(browser: &RemoteBrowser<'_>, typed: EndLocation) -> Result<Vec<EndLocation>, BrowseStop> {
    let Some((directory, wildcard)) = last_wildcard(&typed) else { return Ok(vec![typed]) };
    let literal = typed.path.file_name().map(OsStr::as_bytes).unwrap_or_default();
    let (mut names, mut is_literal) = (Vec::new(), false);
    browser.run(&directory, RemotePathOperation::List, &mut |item| {
        let name: Box<[u8]> = match item {
            BrowseItem::Entry(entry) => entry.name,
            BrowseItem::Export(name) => name,
            // What can't be examined is not left out: the command says so.
            BrowseItem::Failed { path, .. } => {
                path.rsplit(|&byte| byte == b'/').next().unwrap_or(&path).into()
            }
        };
        is_literal |= *name == *literal;
        if wildcard.matches(&name) {
            names.push(name);
        }
        if names.len() > MATCHES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if names.len() > MATCHES_MAX {
        let message = format!("more than {MATCHES_MAX} names match");
        return Err(BrowseStop::Trouble(UserError::new(message).hint("name their directory")));
    }
    if is_literal || names.is_empty() {
        return Ok(vec![typed]);
    }
    names.sort();
    // A slash behind the wildcard stays.
    let has_slash = typed.path.as_os_str().as_bytes().ends_with(b"/");
    let located = names.into_iter().map(|name| {
        let path = typed.path.with_file_name(OsStr::from_bytes(&name));
        EndLocation { path: if has_slash { path.join("") } else { path }, ..typed.clone() }
    });
    Ok(located.collect())
}
