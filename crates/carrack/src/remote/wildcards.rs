//! Wildcards in far locations: `ls`, `stat` and `verify` list directories to expand them, as any end can. A
//! copy leaves that to the far end.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use carrack_engine::{BrowseItem, RemotePathOperation};
use carrack_storage::SourceNameWildcard;

use crate::remote::browser::{BrowseStop, RemoteBrowser};
use crate::remote::location::EndLocation;
use crate::user_error::UserError;

/// Bound of the matches of one location, each of which costs a session.
const MATCHES_MAX: usize = 10_000;

/// Returns the locations that `typed` matches, sorted by path: `typed` itself if it is of this host, whose
/// shell has expanded it, or has no wildcards, or if nothing matches. An entry of the literal name comes
/// first.
pub fn expand(browser: &RemoteBrowser<'_>, typed: EndLocation) -> Result<Vec<EndLocation>, BrowseStop> {
    let has_wildcards = typed.path.iter().any(|name| SourceNameWildcard::new(name.as_bytes()).is_some());
    if typed.far.is_none() || !has_wildcards {
        return Ok(vec![typed]);
    }
    let at = EndLocation { path: PathBuf::new(), ..typed.clone() };
    let mut found = vec![PathBuf::new()];
    for component in typed.path.components() {
        let Component::Normal(name) = component else {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        };
        let Some(wildcard) = SourceNameWildcard::new(name.as_bytes()) else {
            found.iter_mut().for_each(|path| path.push(name));
            continue;
        };
        let mut next = Vec::new();
        for directory in &found {
            let names = match list_matches(browser, &at, directory, name, &wildcard) {
                // A match of another wildcard may be no directory.
                Err(BrowseStop::Trouble(_)) if found.len() > 1 => continue,
                names => names?,
            };
            next.extend(names.into_iter().map(|name| directory.join(OsStr::from_bytes(&name))));
            if next.len() > MATCHES_MAX {
                let message = format!("more than {MATCHES_MAX} names match");
                return Err(BrowseStop::Trouble(UserError::new(message).hint("name their directory")));
            }
        }
        found = next;
    }
    if found.is_empty() {
        return Ok(vec![typed]);
    }
    if typed.path.as_os_str().as_bytes().ends_with(b"/") {
        found.iter_mut().for_each(|path| path.push(""));
    }
    found.sort();
    Ok(found.into_iter().map(|path| EndLocation { path, ..typed.clone() }).collect())
}

/// Returns the names of a directory's entries that match, or only the literal name if there is such an entry.
fn list_matches(
    browser: &RemoteBrowser<'_>,
    at: &EndLocation,
    directory: &Path,
    literal: &OsStr,
    wildcard: &SourceNameWildcard,
) -> Result<Vec<Box<[u8]>>, BrowseStop> {
    let shown = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let listed = EndLocation { path: shown.to_path_buf(), ..at.clone() };
    let (mut names, mut is_literal) = (Vec::new(), false);
    browser.run(&listed, RemotePathOperation::List, &mut |item| {
        let name = match item {
            BrowseItem::Entry(entry) => entry.name,
            BrowseItem::Export(name) => name,
            BrowseItem::Failed { .. } => return ControlFlow::Continue(()),
        };
        is_literal |= *name == *literal.as_bytes();
        if wildcard.matches(&name) {
            names.push(name);
        }
        if names.len() > MATCHES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(if is_literal { vec![literal.as_bytes().into()] } else { names })
}
