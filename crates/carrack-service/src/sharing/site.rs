//! The file by which a fleet's manager shares out the storage targets of a site.

use std::path::Path;

use carrack_sharing::SiteSharing;

use crate::config::SharingConfig;
use crate::parent::{ServeError, read_config};

/// How the targets of `site` are shared out: what the file's `[sharing]` says, as that of a daemon's configuration does.
///
/// # Errors
/// What is wrong with the file, in which line.
pub fn site_sharing(site: &str, path: &Path) -> Result<SiteSharing, ServeError> {
    let config = SharingConfig::of_site(&read_config(path)?)
        .map_err(|error| ServeError::Config { path: path.to_path_buf(), error })?;
    Ok(SiteSharing { site: site.to_owned(), settings: config.settings(), health: config.health })
}
