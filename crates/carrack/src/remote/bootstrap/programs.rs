//! The programs that may be sent: this one if it is static, and files of a directory.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use flate2::read::GzDecoder;

use crate::user_error::UserError;
use crate::views::json::hex;

/// The directory of programs beside an installed carrack, from the directory of its program.
const INSTALLED_DIRECTORY: &str = "../lib/carrack/bootstrap";

/// The platforms with programs: the output of `uname -sm`, and the end of the program's file name.
const PLATFORMS: [(&str, &str); 2] = [("Linux x86_64", "linux-x86_64"), ("Linux aarch64", "linux-aarch64")];

/// A program for one platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapProgram {
    /// As `uname -sm` prints it.
    platform: &'static str,
    path: PathBuf,
    /// SHA-256 of the program, in hexadecimal.
    digest: String,
}

/// The programs that are at hand, at most one for a platform.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootstrapPrograms(Vec<BootstrapProgram>);

impl BootstrapProgram {
    fn new(platform: &'static str, path: PathBuf) -> Result<BootstrapProgram, UserError> {
        // The digest is needed before anything is sent, and a packed program takes its time.
        let named =
            is_packed(&path).then(|| fs::read_to_string(path.with_extension("sha256")).ok()).flatten();
        let known = named.and_then(|text| first_digest(&text));
        let program = BootstrapProgram { platform, path, digest: String::new() };
        let digest = known.map_or_else(|| program.read().map(|bytes| bytes.digest()), Ok)?;
        Ok(BootstrapProgram { digest, ..program })
    }

    /// Returns the program's bytes, if they have the digest that the far shell gets.
    pub fn read_checked(&self) -> Result<ProgramBytes, UserError> {
        let bytes = self.read()?;
        if bytes.digest() == self.digest {
            return Ok(bytes);
        }
        let message =
            format!("{}: the program has another digest than the file beside it says", self.path.display());
        Err(UserError::new(message).hint("build both anew with `make static`"))
    }

    fn read(&self) -> Result<ProgramBytes, UserError> {
        ProgramBytes::read(&self.path).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &io::Error) -> UserError {
        UserError::new(format!("{}: the program for far hosts can't be read: {error}", self.path.display()))
    }

    /// Returns the branch of `case $(uname -sm)` that sets `d`.
    pub fn shell_case(&self) -> String {
        format!("\"{}\") d={};; ", self.platform, self.digest)
    }
}

fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// A program's bytes.
#[derive(Debug)]
pub struct ProgramBytes {
    /// Unpacked.
    pub plain: Vec<u8>,
    /// As gzip has packed them, if they come from such a file.
    pub packed: Option<Vec<u8>>,
}

impl ProgramBytes {
    fn read(path: &Path) -> io::Result<ProgramBytes> {
        let bytes = fs::read(path)?;
        if !is_packed(path) {
            return Ok(ProgramBytes { plain: bytes, packed: None });
        }
        let mut plain = Vec::new();
        GzDecoder::new(bytes.as_slice()).read_to_end(&mut plain)?;
        Ok(ProgramBytes { plain, packed: Some(bytes) })
    }

    fn digest(&self) -> String {
        hex(digest(&SHA256, &self.plain).as_ref())
    }
}

/// Returns the digest at the beginning of a line of sha256sum.
fn first_digest(text: &str) -> Option<String> {
    let digest = text.split_whitespace().next()?;
    (digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| digest.to_lowercase())
}

impl BootstrapPrograms {
    /// Returns the programs of `directory`, which the user named, or of the directory beside the installed
    /// carrack; and this program, if it is static.
    ///
    /// # Errors
    /// If `directory` has no program, or one that can't be read.
    pub fn find(directory: Option<&Path>) -> Result<BootstrapPrograms, UserError> {
        let mut programs = BootstrapPrograms(directory.map_or_else(|| Ok(Vec::new()), named_programs)?);
        // What was not named by the user is used if it can be.
        if let Some(platform) = own_platform().filter(|platform| programs.for_platform(platform).is_none()) {
            // The file that runs, even if another has its name by now.
            programs.0.extend(BootstrapProgram::new(platform, "/proc/self/exe".into()).ok());
        }
        for program in installed_programs() {
            if programs.for_platform(program.platform).is_none() {
                programs.0.push(program);
            }
        }
        Ok(programs)
    }

    /// Returns true if there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the programs.
    pub fn iter(&self) -> impl Iterator<Item = &BootstrapProgram> {
        self.0.iter()
    }

    /// Returns the program for a host whose `uname -sm` prints this.
    pub fn for_platform(&self, platform: &str) -> Option<&BootstrapProgram> {
        self.0.iter().find(|program| program.platform == platform)
    }
}

/// Returns the name of a program's file, which may also end with `.gz`.
fn program_name(platform: &str) -> String {
    format!("carrack-{}-{platform}", env!("CARGO_PKG_VERSION"))
}

/// Returns the programs of the directory that the user named.
fn named_programs(directory: &Path) -> Result<Vec<BootstrapProgram>, UserError> {
    let found = programs_in(directory)?;
    if !found.is_empty() {
        return Ok(found);
    }
    let names = PLATFORMS.map(|(_, name)| program_name(name)).join(" or ");
    let message = format!("{}: no program for far hosts is there", directory.display());
    Err(UserError::new(message).hint(format!("put {names} there, see docs/bootstrap.md")))
}

/// Returns the platform that this program runs on, if it needs nothing else there.
fn own_platform() -> Option<&'static str> {
    let own = PLATFORMS.iter().find(|(_, name)| name.ends_with(std::env::consts::ARCH));
    own.map(|(platform, _)| *platform).filter(|_| cfg!(target_feature = "crt-static"))
}

/// Returns the programs beside the installed carrack.
fn installed_programs() -> Vec<BootstrapProgram> {
    let own = std::env::current_exe().ok();
    let installed = own.as_deref().and_then(Path::parent).map(|place| place.join(INSTALLED_DIRECTORY));
    installed.and_then(|place| programs_in(&place).ok()).unwrap_or_default()
}

fn programs_in(directory: &Path) -> Result<Vec<BootstrapProgram>, UserError> {
    let mut found = Vec::new();
    for (platform, name) in PLATFORMS {
        let plain = directory.join(program_name(name));
        let packed = directory.join(program_name(name) + ".gz");
        if let Some(path) = [plain, packed].into_iter().find(|path| path.is_file()) {
            found.push(BootstrapProgram::new(platform, path)?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_programs_of_this_version() {
        let place = tempfile::tempdir().unwrap();
        let error = BootstrapPrograms::find(Some(place.path())).unwrap_err();
        assert!(error.message.contains("no program") && error.hint.unwrap().contains("linux-x86_64"));
        fs::write(place.path().join("carrack-0.0.1-linux-x86_64"), "old").unwrap();
        assert!(BootstrapPrograms::find(Some(place.path())).is_err());

        fs::write(place.path().join(program_name("linux-aarch64")), "abc").unwrap();
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packer, b"abc").unwrap();
        let packed = packer.finish().unwrap();
        fs::write(place.path().join(program_name("linux-x86_64") + ".gz"), packed).unwrap();
        let found = BootstrapPrograms::find(Some(place.path())).unwrap();
        // FIPS 180-2, B.1.
        let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        for (platform, _) in PLATFORMS {
            let program = found.for_platform(platform).unwrap();
            assert_eq!(
                (program.digest.as_str(), program.read().unwrap().plain.as_slice()),
                (of_abc, &b"abc"[..])
            );
        }
        assert_eq!(found.for_platform("Linux ppc64le"), None);

        // A digest of another program is noticed before anything is sent.
        let named = place.path().join(program_name("linux-x86_64") + ".sha256");
        fs::write(named, format!("{}  other\n", of_abc.replace('b', "c"))).unwrap();
        let found = BootstrapPrograms::find(Some(place.path())).unwrap();
        let error = found.for_platform("Linux x86_64").unwrap().read_checked().unwrap_err();
        assert!(error.message.contains("another digest"), "{}", error.message);
        assert!(found.for_platform("Linux aarch64").unwrap().read_checked().is_ok());
    }
}
