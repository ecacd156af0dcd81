//! The options of every command that may reach another host: the ssh command, and those for a daemon.

use carrack_options::CONNECTION;
use clap::{Args, ValueHint};

use crate::options::daemon_connection::DaemonConnectionArgs;
use crate::remote::ssh::{FarCommand, SshCommand};
use crate::user_error::UserError;

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Args)]
pub struct FarArgs {
    /// The command that logs in to the far host, with arguments if need be
    ///
    /// A program named `ssh` gets some of OpenSSH's options from carrack, any other only `[user@]host` and
    /// the command to run.
    #[arg(short = 'e', long, value_name = "COMMAND", env = "CARRACK_SSH", default_value = "ssh", help_heading = CONNECTION)]
    pub ssh: SshCommand,

    /// Port of ssh at the far host, as `scp -P` [default: ssh's own]
    #[arg(short = 'P', long, value_name = "PORT", value_parser = parse_port, help_heading = CONNECTION)]
    ssh_port: Option<u16>,

    /// File with the private key for ssh, as `ssh -i`
    #[arg(short = 'i', long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = CONNECTION)]
    ssh_identity: Option<String>,

    /// Hosts through which ssh connects, as `ssh -J`
    #[arg(short = 'J', long, value_name = "HOST", help_heading = CONNECTION)]
    ssh_jump: Option<String>,

    /// Name or path of carrack on the far host, or a command that starts it, such as 'sudo -n carrack'
    ///
    /// The far shell reads it: a path with blanks needs quotes of its own.
    #[arg(long, value_name = "COMMAND", default_value = "carrack", help_heading = CONNECTION)]
    pub remote_carrack: FarCommand,

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

impl FarArgs {
    /// Returns the command that logs in to the far host, with the port, the key and the jump hosts.
    ///
    /// # Errors
    /// If the program is not OpenSSH's and would not know these options.
    pub fn ssh_command(&self) -> Result<SshCommand, UserError> {
        let port = self.ssh_port.map(|port| port.to_string());
        let options = [
            ("--ssh-port", "-p", port.as_ref()),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> Result<SshCommand, UserError> {
        crate::options::tests::parse::<FarArgs>(words).unwrap().ssh_command()
    }

    #[test]
    fn options_of_scp_reach_ssh() {
        assert_eq!(command(&["-e", "ssh -4"]), Ok("ssh -4".parse().unwrap()));
        let words = ["-P", "2222", "-i", "/k y", "-J", "gate", "--ssh", "/opt/ssh -4"];
        assert_eq!(command(&words), Ok("/opt/ssh -p 2222 -i '/k y' -J gate -4".parse().unwrap()));
        let refused = command(&["-P", "22", "-e", "docker exec -i"]).unwrap_err();
        assert!(refused.message.contains("--ssh-port") && refused.hint.unwrap().contains("--ssh"));
    }

    #[test]
    fn a_port_is_a_number_and_the_error_explains_both_meanings() {
        for wrong in ["src", "0", "65536", "host:data"] {
            let error = crate::options::tests::parse::<FarArgs>(&["-P", wrong]).unwrap_err().to_string();
            assert!(error.contains("scp -P") && error.contains("--partial --progress"), "{error}");
        }
    }
}
