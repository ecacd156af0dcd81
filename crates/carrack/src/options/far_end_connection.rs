//! The options of every command that may reach another host: the ssh command, and those for a daemon.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use carrack_options::CONNECTION;
use clap::{Args, ValueHint};

use crate::options::daemon_connection::DaemonConnectionArgs;
use crate::remote::bootstrap::{BootstrapPrograms, ProgramOffer};
use crate::remote::location::SshHost;
use crate::remote::ssh::{FarCommand, SshCommand};
use crate::user_error::UserError;

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Args)]
pub struct FarArgs {
    /// The command that logs in to the far host, with arguments if need be
    ///
    /// A program named `ssh` gets some of OpenSSH's options from carrack, any other only `[user@]host` and
    /// the command to run.
    #[arg(short = 'e', long, alias = "rsh", value_name = "COMMAND", env = "CARRACK_SSH", default_value = "ssh", help_heading = CONNECTION)]
    pub ssh: SshCommand,

    /// Port of ssh at the far host, as `scp -P` [default: ssh's own]
    #[arg(short = 'P', long, value_name = "PORT", value_parser = parse_port, help_heading = CONNECTION)]
    ssh_port: Option<u16>,

    /// File with the private key for ssh, as `ssh -i`
    #[arg(short = 'i', long, value_name = "FILE", value_parser = parse_identity, value_hint = ValueHint::FilePath, help_heading = CONNECTION)]
    ssh_identity: Option<String>,

    /// Hosts through which ssh connects, as `ssh -J`
    #[arg(short = 'J', long, value_name = "HOST", help_heading = CONNECTION)]
    ssh_jump: Option<String>,

    /// Name or path of carrack on the far host, or a command that starts it, such as 'sudo -n carrack'
    ///
    /// The far shell reads it: a path with blanks needs quotes of its own.
    #[arg(long, value_name = "COMMAND", default_value = "carrack", help_heading = CONNECTION)]
    pub remote_carrack: FarCommand,

    /// Send no program to a far host that has no carrack
    ///
    /// A far host without carrack, or with one of another protocol, gets a static program over ssh, which it
    /// keeps in the user's cache directory. Only with OpenSSH, and not with --remote-carrack.
    #[arg(long, help_heading = CONNECTION)]
    no_bootstrap: bool,

    /// Directory with static programs to send to far hosts that have no carrack
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, env = "CARRACK_BOOTSTRAP_DIR", help_heading = CONNECTION)]
    bootstrap_dir: Option<PathBuf>,

    #[command(flatten)]
    pub daemon: DaemonConnectionArgs,
}

/// Parses the port of `-P`, which rsync users type for something else.
fn parse_port(text: &str) -> Result<u16, String> {
    let port = text.parse::<u16>().ok().filter(|port| *port > 0);
    port.ok_or_else(|| {
        "a port of ssh is needed, as with `scp -P`; rsync's -P (--partial --progress) is not needed here: \
         progress is shown on a terminal, and the same command resumes"
            .to_owned()
    })
}

/// The bytes of a key file that show what it is.
const KEY_BEGIN_BYTES: u64 = 16;

/// Parses the key of `-i`, which rsync users type for something else: a source in its place would not be
/// copied.
fn parse_identity(text: &str) -> Result<String, String> {
    // ssh expands these, and a public key stands for one that an agent has.
    let is_for_ssh =
        text.starts_with('~') || text.contains('%') || Path::new(&format!("{text}.pub")).is_file();
    if is_for_ssh || starts_as_key(Path::new(text)) {
        return Ok(text.to_owned());
    }
    Err("a file with a key of ssh is needed, as with `scp -i`; rsync's -i (--itemize-changes) is `-n` here, \
         which lists what would be copied"
        .to_owned())
}

/// Returns true for a file that begins as a private key, or as a public one. No more of it is read: it may be
/// data.
fn starts_as_key(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let begin = path.is_file().then(|| File::open(path).ok()).flatten();
    begin.is_some_and(|file| file.take(KEY_BEGIN_BYTES).read_to_end(&mut bytes).is_ok())
        && [&b"-----BEGIN "[..], b"ssh-", b"ecdsa-", b"sk-", b"PuTTY-"]
            .iter()
            .any(|begin| bytes.starts_with(begin))
}

impl FarArgs {
    /// Returns the command that logs in to this host, with the port, the key and the jump hosts. `--ssh-port`
    /// goes before the port of a URL.
    ///
    /// # Errors
    /// If the program is not OpenSSH's and would not know these options.
    pub fn ssh_command(&self, host: &SshHost) -> Result<SshCommand, UserError> {
        let port = self.ssh_port.or(host.port).map(|port| port.to_string());
        let port_name = if self.ssh_port.is_some() { "--ssh-port" } else { "the port of a URL" };
        let options = [
            (port_name, "-p", port.as_ref()),
            ("--ssh-identity", "-i", self.ssh_identity.as_ref()),
            ("--ssh-jump", "-J", self.ssh_jump.as_ref()),
        ];
        let mut words = Vec::new();
        for (name, letter, value) in options {
            let Some(value) = value else { continue };
            if !self.ssh.is_openssh() {
                let message = format!("{name} is an option of OpenSSH, and --ssh names another program");
                return Err(UserError::new(message)
                    .hint("write it into the command of --ssh, as that program takes it"));
            }
            words.extend([letter, value.as_str()]);
        }
        Ok(self.ssh.with_options(&words))
    }

    /// Returns the offer of programs to this host; none if the user wants none, has named the far carrack, or
    /// has nothing to send, and where there may be no shell.
    ///
    /// # Errors
    /// If the directory of programs that the user named has none.
    pub fn program_offer(&self, host: &SshHost, is_quiet: bool) -> Result<Option<ProgramOffer>, UserError> {
        if self.no_bootstrap || !self.remote_carrack.is_plain() || !self.ssh.is_openssh() {
            return Ok(None);
        }
        let programs = BootstrapPrograms::find(self.bootstrap_dir.as_deref())?;
        Ok(if programs.is_empty() { None } else { ProgramOffer::new(host, programs, is_quiet) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn command(words: &[&str]) -> Result<SshCommand, UserError> {
        command_for(words, None)
    }

    fn command_for(words: &[&str], port: Option<u16>) -> Result<SshCommand, UserError> {
        let host = SshHost { user: None, name: "host".into(), port };
        crate::options::tests::parse::<FarArgs>(words).unwrap().ssh_command(&host)
    }

    #[test]
    fn the_port_of_a_url_reaches_ssh() {
        assert_eq!(command_for(&["-e", "ssh -4"], Some(2222)), Ok("ssh -p 2222 -4".parse().unwrap()));
        assert_eq!(command_for(&["-P", "22"], Some(2222)), Ok("ssh -p 22".parse().unwrap()));
        let refused = command_for(&["-e", "docker exec -i"], Some(22)).unwrap_err();
        assert!(refused.message.contains("port of a URL") && refused.hint.unwrap().contains("--ssh"));
    }

    #[test]
    fn options_of_scp_reach_ssh() {
        assert_eq!(command(&["-e", "ssh -4"]), Ok("ssh -4".parse().unwrap()));
        let words = ["-P", "2222", "-i", "~/k y", "-J", "gate", "--ssh", "/opt/ssh -4"];
        assert_eq!(command(&words), Ok("/opt/ssh -p 2222 -i '~/k y' -J gate -4".parse().unwrap()));
        let refused = command(&["-P", "22", "-e", "docker exec -i"]).unwrap_err();
        assert!(refused.message.contains("--ssh-port") && refused.hint.unwrap().contains("--ssh"));
    }

    #[test]
    fn a_source_is_no_key() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name).display().to_string();
        for (name, content) in
            [("key", "-----BEGIN OPENSSH PRIVATE KEY-----\n"), ("key.pub", "ssh-ed25519 AAAA\n")]
        {
            fs::write(path(name), content).unwrap();
            assert_eq!(parse_identity(&path(name)), Ok(path(name)));
        }
        fs::write(path("agent.pub"), "sk-ssh-ed25519@openssh.com AAAA\n").unwrap();
        assert!(parse_identity(&path("agent")).is_ok());
        fs::write(path("data"), "1 2 3\n").unwrap();
        for wrong in
            [place.path().display().to_string(), path("data"), path("nothing"), "host:data".to_owned()]
        {
            assert!(parse_identity(&wrong).unwrap_err().contains("--itemize-changes"), "{wrong}");
        }
    }

    #[test]
    fn a_port_is_a_number_and_the_error_explains_both_meanings() {
        for wrong in ["src", "0", "65536", "host:data"] {
            let error = crate::options::tests::parse::<FarArgs>(&["-P", wrong]).unwrap_err().to_string();
            assert!(error.contains("scp -P") && error.contains("--partial --progress"), "{error}");
        }
    }
}
