//! Programs for far hosts that have no carrack, or one of another protocol: the near end sends one over the
//! ssh that is open, and the far shell keeps it in the user's cache.
//!
//! The far login shell runs `start.sh`. If neither an installed carrack nor a program in the cache answers,
//! that script prints a line and waits; the engine asks [`ProgramOffer`] for the bytes that the line asks
//! for: `store.sh`, and the program. Every program is checked by its SHA-256 before it runs, and the
//! directories in which it is kept belong to the user alone.

mod programs;

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use carrack_engine::{FarProgramSource, RetryChance, SessionError};
use carrack_model::escape;
use carrack_transport::random;
use flate2::Compression;
use flate2::write::GzEncoder;

use programs::{BootstrapProgram, ProgramBytes};

pub use programs::BootstrapPrograms;

use crate::exit::ExitStatus;
use crate::remote::location::SshHost;
use crate::remote::ssh::STATUS_NOT_FOUND;
use crate::user_error::{UserError, note};
use crate::views::json::hex;

/// The start script's status if there is no place for the program.
pub const STATUS_NO_PLACE: i32 = 125;

const VERSION: &str = env!("CARGO_PKG_VERSION");

const START: &str = include_str!("start.sh");
const STORE: &str = include_str!("store.sh");

/// The offer of programs to one far host.
pub struct ProgramOffer {
    host: SshHost,
    programs: BootstrapPrograms,
    is_quiet: bool,
    /// The word that begins the near end's answer, so that no other input is taken for it.
    token: String,
    /// Set when a program is sent.
    was_taken: AtomicBool,
}

impl fmt::Debug for ProgramOffer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ProgramOffer").field("host", &self.host).finish_non_exhaustive()
    }
}

impl ProgramOffer {
    /// Creates an offer; `None` without random bytes. If `is_quiet`, nothing is printed when a program is
    /// sent.
    pub fn new(host: &SshHost, programs: BootstrapPrograms, is_quiet: bool) -> Option<ProgramOffer> {
        let token = hex(&random::<16>().ok()?);
        Some(ProgramOffer {
            host: host.clone(),
            programs,
            is_quiet,
            token,
            was_taken: AtomicBool::new(false),
        })
    }

    /// Returns true if the far host has taken a program.
    pub fn was_taken(&self) -> bool {
        self.was_taken.load(Relaxed)
    }

    /// Returns the command for the far login shell, which starts carrack with these arguments; they have no
    /// meaning to a shell.
    pub fn start_command(&self, arguments: &[String]) -> String {
        let digests: Vec<_> = self.programs.iter().map(BootstrapProgram::shell_case).collect();
        let script = one_line(START)
            .replace("@OTHER_VERSION@", &(ExitStatus::OtherVersion as u8).to_string())
            .replace("@NOT_FOUND@", &STATUS_NOT_FOUND.to_string())
            .replace("@NO_PLACE@", &STATUS_NO_PLACE.to_string())
            .replace("@DIGESTS@", &digests.concat())
            .replace("@VERSION@", VERSION)
            .replace("@TOKEN@", &self.token);
        assert!(!script.contains(['\'', '!', '\\', '\n']), "the script is one word for every shell");
        format!("exec sh -c '{script}' carrack {}", arguments.join(" "))
    }

    /// Returns the bytes for the far shell: a line with the length of the script, the script, the program.
    fn answer(&self, program: &BootstrapProgram, packs: bool) -> Result<Vec<u8>, UserError> {
        let ProgramBytes { plain, packed } = program.read_checked()?;
        let plain_bytes = plain.len();
        let sent = if packs { packed.unwrap_or_else(|| pack(&plain)) } else { plain };
        let script = STORE
            .replace("@KIB@", &plain_bytes.div_ceil(1 << 10).to_string())
            .replace("@BYTES@", &plain_bytes.to_string())
            .replace("@SENT@", &sent.len().to_string())
            .replace("@PACKING@", if packs { "gzip" } else { "plain" })
            .replace("@NO_PLACE@", &STATUS_NO_PLACE.to_string());
        let mut bytes = format!("\n{} {}\n{script}", self.token, script.len()).into_bytes();
        bytes.extend_from_slice(&sent);
        self.was_taken.store(true, Relaxed);
        if !self.is_quiet {
            let kib = sent.len().div_ceil(1 << 10);
            note(&format!(
                "{} has no carrack {VERSION}, and gets one now, for later too: {kib} KiB",
                self.host
            ));
        }
        Ok(bytes)
    }
}

impl FarProgramSource for ProgramOffer {
    fn program_for(&self, line: &[u8]) -> Result<Vec<u8>, SessionError> {
        let line = String::from_utf8_lossy(line);
        let mut words = line.split(' ').skip(1);
        let (token, packing) = (words.next(), words.next());
        let platform = words.collect::<Vec<_>>().join(" ");
        if token != Some(self.token.as_str()) {
            return Err(SessionError::NotCarrack(escape(line.as_bytes())));
        }
        let found = self.programs.for_platform(&platform).ok_or_else(|| self.no_program_error(&platform));
        let answer = found.and_then(|program| self.answer(program, packing == Some("gzip")));
        answer.map_err(|UserError { message, hint, .. }| SessionError::Unreachable {
            message,
            hint,
            again: RetryChance::Never,
        })
    }
}

impl ProgramOffer {
    fn no_program_error(&self, platform: &str) -> UserError {
        let (host, platform) = (&self.host, escape(platform.as_bytes()));
        UserError::new(format!("{host} has no carrack, and there is no program for {platform} here to send"))
            .hint("install carrack there, or name a directory with programs: --bootstrap-dir DIR")
    }
}

/// Returns a script as one line, without its comments.
fn one_line(script: &str) -> String {
    let lines = script.lines().filter(|line| !line.starts_with('#'));
    lines.collect::<Vec<_>>().join(" ")
}

fn pack(plain: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    // Writes to memory don't fail.
    packer.write_all(plain).and_then(|()| packer.finish()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
