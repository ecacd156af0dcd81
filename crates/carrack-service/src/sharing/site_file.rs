//! The file by which a fleet's manager shares the storage targets of a site.

use std::path::Path;

use carrack_sharing::SiteSharing;

use crate::config::SharingConfig;
use crate::parent::{ServeError, read_config};

/// Reads the sharing of `site` from a file's `[sharing]`, in the form of a daemon's configuration.
///
/// # Errors
/// The first error in the file, with its line.
pub fn site_sharing(site: &str, path: &Path) -> Result<SiteSharing, ServeError> {
    let config = SharingConfig::parse_site_file(&read_config(path)?)
        .map_err(|error| ServeError::Config { path: path.to_path_buf(), error })?;
    Ok(SiteSharing { site: site.to_owned(), settings: config.settings(), health: config.health })
}
