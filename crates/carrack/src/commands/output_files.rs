//! Files that a copy writes beside its data: the manifest, the report, the log. None may be one of the copied
//! files, at either end.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use carrack_model::escape;

use crate::options::cp::CpArgs;
use crate::remote::route::TransferEndsAndPaths;
use crate::user_error::UserError;

/// A file that an option names.
struct OutputFile<'a> {
    option: &'static str,
    typed: &'a Path,
    /// Its directory is the real one, without links.
    path: PathBuf,
    /// True if it gets its name at the end, in place of another file.
    replaces: bool,
}

/// Refuses a file that is a source or the destination, or is named by two options; and a new one in a source
/// directory, which would be copied while it is written.
pub(super) fn check_output_files(args: &CpArgs, route: &TransferEndsAndPaths) -> Result<(), UserError> {
    let options = [
        ("--manifest", args.manifest.as_deref(), true),
        ("--report", args.report.as_deref(), true),
        ("--log-file", args.log_file.as_deref(), false),
    ];
    let (source_end, sink_end) = route.far.ends();
    let mut seen: Vec<OutputFile<'_>> = Vec::new();
    for (option, typed, replaces) in options {
        // A file whose directory does not exist is refused when it is created.
        let Some((typed, path)) = typed.and_then(|typed| Some((typed, real_path(typed)?))) else { continue };
        let file = OutputFile { option, typed, path, replaces };
        if let Some(other) = seen.iter().find(|other| other.is(&file.path)) {
            return Err(file.refused(&format!("is the file of {}, too", other.option)));
        }
        if source_end.is_none() {
            route.sources.iter().try_for_each(|source| file.check_source(source))?;
        }
        if sink_end.is_none() {
            file.check_destination(&route.destination, source_end.is_none(), &route.sources)?;
        }
        seen.push(file);
    }
    Ok(())
}

impl OutputFile<'_> {
    fn is(&self, path: &Path) -> bool {
        let [own, other] = [self.path.as_path(), path].map(|path| fs::metadata(path).ok());
        self.path == path
            || own.zip(other).is_some_and(|(own, other)| (own.dev(), own.ino()) == (other.dev(), other.ino()))
    }

    fn check_source(&self, source: &Path) -> Result<(), UserError> {
        let Ok(real) = fs::canonicalize(source) else { return Ok(()) };
        if !real.is_dir() && (self.is(&real) || real_path(source).is_some_and(|named| named == self.path)) {
            return Err(self.refused("is a source, and would be overwritten"));
        }
        if self.replaces && real.is_dir() && self.path.starts_with(&real) {
            return Err(self.refused("lies in a source, and would be copied while it is written"));
        }
        Ok(())
    }

    /// `has_sources` is true if the sources are here.
    fn check_destination(
        &self,
        destination: &Path,
        has_sources: bool,
        sources: &[PathBuf],
    ) -> Result<(), UserError> {
        let Some(real) = fs::canonicalize(destination).ok().or_else(|| real_path(destination)) else {
            return Ok(());
        };
        if !real.is_dir() && self.is(&real) {
            return Err(self.refused("is the destination"));
        }
        let Some(inner) = self.path.strip_prefix(&real).ok().filter(|_| has_sources) else { return Ok(()) };
        if sources.iter().any(|source| copies_to(source, inner)) {
            return Err(self.refused("is the copy of a source's file"));
        }
        Ok(())
    }

    fn refused(&self, why: &str) -> UserError {
        let typed = escape(self.typed.as_os_str().as_bytes());
        UserError::new(format!("{} {typed}: it {why}", self.option)).hint("name another file")
    }
}

/// Returns true if an entry of a source is copied to `inner` beneath the destination. That is the copy of the
/// source, or the directory in which the copy is.
fn copies_to(source: &Path, inner: &Path) -> bool {
    let name = fs::canonicalize(source).ok().and_then(|real| Some(real.file_name()?.to_owned()));
    let below = name.and_then(|name| inner.strip_prefix(name).ok());
    [Some(inner), below].into_iter().flatten().any(|inner| match inner.as_os_str().is_empty() {
        true => !source.is_dir(),
        false => source.join(inner).exists(),
    })
}

/// Returns the path of a file that need not exist: of one that does without links, of another with its real
/// directory.
fn real_path(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = fs::canonicalize(path) {
        return Some(real);
    }
    let name: &OsStr = path.file_name()?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(fs::canonicalize(parent).ok()?.join(name))
}
