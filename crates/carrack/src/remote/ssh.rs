//! The system's own ssh: how it is started, how its end is read, and that it never outlives the transfer.
//!
//! The far side runs `carrack session`; its stdin and stdout are the control channel, its stderr and ssh's
//! own are this process's, so that questions and errors are seen. A program whose name is not `ssh` gets none
//! of carrack's options: `PROGRAM [ARGUMENT...] [user@]host carrack session`.
//!
//! With OpenSSH, a far host that has no carrack gets one ([`super::bootstrap`]).
//!
//! In the place of `carrack` there may be a command that starts it, such as `sudo -n carrack`.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carrack_engine::{FarProgramSource, PeerChannel};
use carrack_model::ProtectionLevel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::remote::bootstrap::{ProgramOffer, STATUS_NO_PLACE};
use crate::remote::location::{OBJECT_SCHEMES, SshHost};
use crate::user_error::UserError;

/// The options that scp passes to its ssh (scp.c): no forwarding, no terminal, and no setting of the user's
/// configuration that would replace the remote command.
const OPTIONS: [&str; 5] =
    ["-x", "-T", "-oPermitLocalCommand=no", "-oClearAllForwardings=yes", "-oRemoteCommand=none"];

/// Probes of ssh that may stay without an answer (ServerAliveCountMax, ssh_config(5)).
const PROBES: u32 = 3;

/// ssh's status for its own errors (ssh(1), EXIT STATUS).
const STATUS_SSH_FAILED: i32 = 255;
/// The shell's status for a command that can't be executed (POSIX, 2.8.2).
const STATUS_NOT_EXECUTABLE: i32 = 126;
/// The shell's status for a command that was not found.
pub const STATUS_NOT_FOUND: i32 = 127;

/// The user's choices about a session, which the far side gets in its arguments.
#[derive(Clone, Copy, Debug)]
pub struct FarSessionOptions {
    /// The lowest protection level for data.
    pub protection: ProtectionLevel,
    /// True if the far end asks its meta-scheduler for grants.
    pub shares: bool,
}

impl From<ProtectionLevel> for FarSessionOptions {
    fn from(protection: ProtectionLevel) -> FarSessionOptions {
        FarSessionOptions { protection, shares: true }
    }
}

/// The program that connects to the far host, with its first arguments; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshCommand {
    program: String,
    arguments: Vec<String>,
}

impl FromStr for SshCommand {
    type Err = String;

    fn from_str(text: &str) -> Result<SshCommand, String> {
        let mut words = shell_words::split(text).map_err(|error| error.to_string())?.into_iter();
        let program = words.next().filter(|program| !program.is_empty()).ok_or("a command is needed")?;
        Ok(SshCommand { program, arguments: words.collect() })
    }
}

impl SshCommand {
    /// Returns true if the program's name says that it takes OpenSSH's options.
    pub fn is_openssh(&self) -> bool {
        Path::new(&self.program).file_name().is_some_and(|name| name == "ssh")
    }

    /// Returns the command with these options before its own arguments: of an option that is given twice ssh
    /// takes the first.
    pub fn with_options(&self, options: &[&str]) -> SshCommand {
        let own = self.arguments.iter().cloned();
        let arguments = options.iter().map(|&option| option.to_owned()).chain(own).collect();
        SshCommand { program: self.program.clone(), arguments }
    }

    /// Returns the command with the host, as the user would type it.
    fn command_line_for(&self, host: &SshHost) -> String {
        let words = [&self.program].into_iter().chain(&self.arguments);
        let words: Vec<_> = words.map(|word| shell_words::quote(word)).collect();
        format!("{} {host}", words.join(" "))
    }

    /// Returns everything before the remote command.
    fn arguments_to(&self, host: &SshHost, options: &[&str]) -> Vec<String> {
        let mut arguments = self.arguments.clone();
        if self.is_openssh() {
            arguments.extend(options.iter().map(|&option| option.to_owned()));
            arguments.push("--".into());
        }
        arguments.push(host.to_string());
        arguments
    }

    /// Returns the options by which ssh ends within about `stall` when the far host has vanished. The user's
    /// options come first, and ssh takes the first value.
    fn keepalive_options(stall: Duration) -> [String; 2] {
        let interval_s = (stall / PROBES).as_secs().clamp(1, i32::MAX as u64);
        [format!("-oServerAliveInterval={interval_s}"), format!("-oServerAliveCountMax={PROBES}")]
    }

    /// Returns all arguments. A lower protection level than the default reaches the far side in its
    /// arguments: no message over the channel can lower it.
    fn session_arguments(
        &self,
        host: &SshHost,
        carrack: &FarCommand,
        offer: Option<&ProgramOffer>,
        terms: impl Into<FarSessionOptions>,
        stall: Duration,
    ) -> Vec<String> {
        let FarSessionOptions { protection, shares } = terms.into();
        let alive = SshCommand::keepalive_options(stall);
        let options: Vec<&str> = OPTIONS.into_iter().chain(alive.iter().map(String::as_str)).collect();
        let mut session = vec!["session".to_owned()];
        if protection < ProtectionLevel::default() {
            session.push(format!("--protection={protection}"));
        }
        if !shares {
            session.push("--sharing=off".to_owned());
        }
        let mut arguments = self.arguments_to(host, &options);
        match offer {
            Some(offer) => arguments.push(offer.start_command(&session)),
            None => arguments.extend(carrack.ssh_arguments().into_iter().chain(session)),
        }
        arguments
    }

    /// Returns the name for data connections: the host that the user's ssh configuration has for an alias,
    /// else the name as typed.
    fn dial_name(&self, host: &SshHost) -> String {
        self.configured_name(host).unwrap_or_else(|| host.name.clone())
    }

    fn configured_name(&self, host: &SshHost) -> Option<String> {
        if !self.is_openssh() {
            return None;
        }
        let mut command = Command::new(&self.program);
        command.args(self.arguments_to(host, &["-G"])).stdin(Stdio::null()).stderr(Stdio::null());
        parse_host_name(&command.output().ok()?.stdout)
    }
}

/// Parses the `hostname` line of `ssh -G`.
fn parse_host_name(output: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(output).ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("hostname "))?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// The command that starts carrack on the far host: its name or path, or a command whose last word it is, as
/// the far shell reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarCommand(String);

impl FromStr for FarCommand {
    type Err = String;

    fn from_str(text: &str) -> Result<FarCommand, String> {
        let words = shell_words::split(text).map_err(|error| error.to_string())?;
        let is_one = words.first().is_some_and(|word| !word.is_empty());
        if is_one { Ok(FarCommand(text.to_owned())) } else { Err("a command is needed".to_owned()) }
    }
}

impl fmt::Display for FarCommand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl FarCommand {
    /// Returns true for carrack by its name alone, which is the default.
    pub fn is_plain(&self) -> bool {
        self.0 == "carrack"
    }

    /// Returns the arguments for ssh. Words without a meaning to a shell are arguments of their own, as
    /// programs without a shell take them (`docker exec`). Any other text is one argument for the far shell.
    fn ssh_arguments(&self) -> Vec<String> {
        match shell_words::split(&self.0) {
            Ok(words) if words.iter().all(|word| is_shell_safe(word)) => words,
            _ => vec![self.0.clone()],
        }
    }
}

fn is_shell_safe(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "+-./:=@_,".contains(c))
}

/// The ssh process, which must not be left behind; shared with the thread that waits for signals.
#[derive(Clone, Default)]
pub struct ChildGuard(Arc<Mutex<Option<Child>>>);

impl ChildGuard {
    fn with_child<R>(&self, act: impl FnOnce(&mut Child) -> R) -> Option<R> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(act)
    }

    fn set_child(&self, child: Child) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    }

    /// Ends the process if it still runs.
    pub fn kill(&self) {
        self.with_child(|child| {
            let is_running = matches!(child.try_wait(), Ok(None));
            // This fails only for a process that has ended.
            let _ = if is_running { child.kill().and_then(|()| child.wait().map(drop)) } else { Ok(()) };
        });
    }

    /// Returns true if there was a process and it has ended.
    pub fn has_ended(&self) -> bool {
        self.with_child(|child| !matches!(child.try_wait(), Ok(None))).unwrap_or(false)
    }

    /// Waits up to `patience` for the process to end, then kills it. Returns its status unless it was killed.
    fn wait(&self, patience: Duration) -> Option<ExitStatus> {
        // The wait is not under the lock: the signal thread must be able to kill the process meanwhile. A
        // process that was reaped has no descriptor.
        if let Ok(handle) =
            self.with_child(|child| pidfd_open(Pid::from_child(child), PidfdFlags::empty()))?
        {
            sleep_until_ended(&handle, patience);
        }
        let status = self.with_child(Child::try_wait)?;
        if let Ok(Some(status)) = status {
            return Some(status);
        }
        self.kill();
        None
    }
}

/// Returns when the process of this pidfd has ended, or after `patience`.
fn sleep_until_ended(handle: &OwnedFd, patience: Duration) {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&timeout)) {
            Err(Errno::INTR) => {}
            _ => return,
        }
    }
}

/// A running ssh process.
pub struct RemoteProcess<'a> {
    command: SshCommand,
    host: &'a SshHost,
    carrack: &'a FarCommand,
    /// The program that is offered to a host without carrack, by a script that a restricted shell does not
    /// run.
    offer: Option<Arc<ProgramOffer>>,
    child_guard: ChildGuard,
}

impl Drop for RemoteProcess<'_> {
    fn drop(&mut self) {
        self.child_guard.kill();
    }
}

impl<'a> RemoteProcess<'a> {
    /// Starts `carrack session` at `host` on these terms; a connection that is silent for `stall` ends.
    /// `child_guard` holds the process from then on. With an `offer` a host without carrack gets one.
    pub fn start(
        command: SshCommand,
        host: &'a SshHost,
        carrack: &'a FarCommand,
        offer: Option<ProgramOffer>,
        terms: impl Into<FarSessionOptions>,
        stall: Duration,
        child_guard: ChildGuard,
    ) -> Result<(RemoteProcess<'a>, PeerChannel), UserError> {
        let arguments = command.session_arguments(host, carrack, offer.as_ref(), terms, stall);
        let (child, input, output) =
            spawn(&command.program, &arguments).map_err(|error| cannot_start(&command.program, &error))?;
        child_guard.set_child(child);
        let mut peer = PeerChannel::over_pipes(input, output, command.dial_name(host));
        let offer = offer.map(Arc::new);
        peer.programs = offer.clone().map(|offer| offer as Arc<dyn FarProgramSource>);
        Ok((RemoteProcess { command, host, carrack, offer, child_guard }, peer))
    }

    /// Returns the far host.
    pub fn host(&self) -> &'a SshHost {
        self.host
    }

    /// Waits for the end of ssh, after the engine has closed the pipes. Returns an explanation if its status
    /// is not 0.
    pub fn stop(self, patience: Duration) -> Option<UserError> {
        let status = self.child_guard.wait(patience);
        if status.is_some_and(|status| status.success()) {
            return None;
        }
        Some(self.explain(status.and_then(|status| status.code())))
    }

    /// Explains why a far side ended that never sent a message.
    fn explain(&self, status: Option<i32>) -> UserError {
        let (host, program, carrack) = (self.host, &self.command.program, self.carrack);
        let same_way = self.command.command_line_for(host);
        match status {
            Some(STATUS_SSH_FAILED) if self.offer.as_ref().is_some_and(|offer| offer.was_taken()) => {
                UserError::new(format!("the connection to {host} broke while a carrack was sent to it"))
                    .hint("the same command sends it again; nothing runs from an incomplete program")
            }
            Some(STATUS_SSH_FAILED) => {
                let other = if OBJECT_SCHEMES.contains(&host.name.as_str()) {
                    "; for objects there is rclone, and carrack moves files"
                } else {
                    ""
                };
                UserError::new(format!("{program} could not connect to {host}"))
                    .hint(format!("try `{same_way} true`; a local name with a colon is written ./NAME{other}"))
            }
            Some(STATUS_NOT_FOUND) => UserError::new(format!("{carrack} was not found on {host}"))
                .hint(if self.offer.is_some() {
                    "install carrack there, or say where it is with --remote-carrack PATH"
                } else {
                    "install carrack there, or say where it is with --remote-carrack PATH; `carrack` sends itself only \
                     if it is static, without --no-bootstrap and --remote-carrack, and over OpenSSH"
                }),
            Some(STATUS_NO_PLACE) => UserError::new(format!("{host} has no carrack, and did not keep one"))
                .hint("the lines above have the reason; install carrack there, or say where it is with --remote-carrack"),
            Some(STATUS_NOT_EXECUTABLE) => UserError::new(format!("{carrack} can't be executed on {host}"))
                .hint("it may be built for another kind of machine, or lack its x bit"),
            Some(status) => self.no_message_error(&format!("ended with status {status}")),
            None => self.no_message_error("was ended by a signal"),
        }
    }

    fn no_message_error(&self, how: &str) -> UserError {
        let (host, carrack) = (self.host, self.carrack);
        let version = match &*carrack.ssh_arguments() {
            [text] if *text == carrack.0 => shell_words::quote(&format!("{text} --version")).into_owned(),
            words => format!("{} --version", words.join(" ")),
        };
        UserError::new(format!("{carrack} on {host} {how} before it said anything")).hint(format!(
            "try `{} {version}`{}",
            self.command.command_line_for(host),
            if self.offer.is_some() { "; a restricted login shell may want --no-bootstrap" } else { "" }
        ))
    }
}

/// Explains a silent far side for which ssh's status gives no reason.
pub fn silent_far_side_error(host: &SshHost) -> UserError {
    UserError::new(format!("the far side on {host} said nothing"))
        .hint("something there, such as a shell's profile, may swallow or close the connection")
}

/// Starts the process; returns it with its stdout and its stdin.
fn spawn(program: &str, arguments: &[String]) -> io::Result<(Child, OwnedFd, OwnedFd)> {
    let mut child =
        Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    match (child.stdout.take(), child.stdin.take()) {
        (Some(input), Some(output)) => Ok((child, input.into(), output.into())),
        _ => Err(io::Error::other("it has no pipes")),
    }
}

fn cannot_start(program: &str, error: &io::Error) -> UserError {
    UserError::new(format!("can't start {program}: {error}"))
        .hint("install OpenSSH's client, or name another command with --ssh")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use carrack_engine::ControlChannel;

    use super::*;

    fn host() -> SshHost {
        SshHost { user: Some("me".into()), name: "::1".into(), port: None }
    }

    const STALL: Duration = Duration::from_secs(60);

    fn far(command: &str) -> FarCommand {
        command.parse().unwrap()
    }

    fn shim(script: &str) -> SshCommand {
        SshCommand { program: "/bin/sh".into(), arguments: vec!["-c".into(), script.into(), "shim".into()] }
    }

    fn end_of(script: &str) -> Option<UserError> {
        let (command, host, carrack) = (shim(script), host(), far("carrack"));
        let (remote, peer) = RemoteProcess::start(
            command.clone(),
            &host,
            &carrack,
            None,
            ProtectionLevel::Private,
            STALL,
            ChildGuard::default(),
        )
        .unwrap();
        drop(peer);
        remote.stop(Duration::from_secs(5))
    }

    #[test]
    fn openssh_gets_options_and_a_shim_does_not() {
        let command: SshCommand = "/usr/bin/ssh -p 22 -F 'my config'".parse().unwrap();
        let arguments = command.session_arguments(
            &host(),
            &far("'/opt/my carrack'"),
            None,
            ProtectionLevel::Private,
            STALL,
        );
        assert_eq!(arguments[..4], ["-p", "22", "-F", "my config"]);
        assert_eq!(arguments[4..9], OPTIONS);
        assert_eq!(arguments[9..11], ["-oServerAliveInterval=20", "-oServerAliveCountMax=3"]);
        assert_eq!(arguments[11..], ["--", "me@::1", "'/opt/my carrack'", "session"]);

        let command: SshCommand = "./shim -a".parse().unwrap();
        let arguments =
            command.session_arguments(&host(), &far("carrack"), None, ProtectionLevel::Private, STALL);
        assert_eq!(arguments, ["-a", "me@::1", "carrack", "session"]);
        let alone = FarSessionOptions { protection: ProtectionLevel::Private, shares: false };
        let arguments = command.session_arguments(&host(), &far("carrack"), None, alone, STALL);
        assert_eq!(arguments.last().unwrap(), "--sharing=off");
        let clear = ["-a", "me@::1", "carrack", "session", "--protection=clear"];
        let arguments =
            command.session_arguments(&host(), &far("carrack"), None, ProtectionLevel::Clear, STALL);
        assert_eq!(arguments, clear);
    }

    #[test]
    fn refuses_no_command() {
        for text in ["", "  ", "''", "ssh 'x"] {
            assert!(text.parse::<SshCommand>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_far_shell_reads_the_command() {
        for (command, words) in [
            ("carrack", &["carrack"][..]),
            ("sudo -n carrack", &["sudo", "-n", "carrack"]),
            ("env A=b  /opt/x/carrack", &["env", "A=b", "/opt/x/carrack"]),
            ("~/bin/carrack", &["~/bin/carrack"]),
            ("'/opt/my carrack'", &["'/opt/my carrack'"]),
            ("module load carrack && carrack", &["module load carrack && carrack"]),
        ] {
            assert_eq!(far(command).ssh_arguments(), words);
        }
        for text in ["", " ", "''", "sudo 'carrack"] {
            assert!(text.parse::<FarCommand>().is_err(), "{text}");
        }
    }

    #[test]
    fn reads_the_configured_name() {
        assert_eq!(parse_host_name(b"user me\nhostname 10.0.0.1\nport 22\n"), Some("10.0.0.1".into()));
        assert_eq!(parse_host_name(b"nothing"), None);
    }

    #[test]
    fn statuses_are_explained() {
        assert_eq!(end_of("exit 0"), None);
        for (script, words) in [
            ("exit 255", "/bin/sh could not connect to me@::1"),
            ("exit 127", "carrack was not found on me@::1"),
            ("exit 126", "can't be executed"),
            ("exit 2", "ended with status 2"),
            ("kill -9 $$", "ended by a signal"),
        ] {
            let trouble = end_of(script).unwrap();
            assert!(trouble.message.contains(words) && trouble.hint.is_some(), "{trouble}");
        }
    }

    #[test]
    fn a_missing_program_is_named() {
        let (command, host) = ("/nonexistent/ssh".parse::<SshCommand>().unwrap(), host());
        let carrack = far("carrack");
        let trouble = RemoteProcess::start(
            command.clone(),
            &host,
            &carrack,
            None,
            ProtectionLevel::Private,
            STALL,
            ChildGuard::default(),
        )
        .err()
        .unwrap();
        assert!(trouble.message.starts_with("can't start /nonexistent/ssh: "), "{trouble}");
    }

    #[test]
    fn pipes_carry_bytes_and_the_words_arrive() {
        let (command, host, carrack) = (shim("cat; echo \"$@\""), host(), far("carrack"));
        let (remote, peer) = RemoteProcess::start(
            command.clone(),
            &host,
            &carrack,
            None,
            ProtectionLevel::Private,
            STALL,
            ChildGuard::default(),
        )
        .unwrap();
        let ControlChannel::Pipes { input, output } = peer.channel else { panic!("no pipes") };
        std::fs::File::from(output).write_all(b"hello ").unwrap();
        let mut said = String::new();
        std::fs::File::from(input).read_to_string(&mut said).unwrap();
        assert_eq!((said.as_str(), peer.host.as_str()), ("hello me@::1 carrack session\n", "::1"));
        assert_eq!(remote.stop(Duration::from_secs(5)), None);
    }

    #[test]
    fn nothing_is_left_behind() {
        let (command, host, child_guard) = (shim("exec sleep 1000"), host(), ChildGuard::default());
        let carrack = far("carrack");
        let (remote, _peer) = RemoteProcess::start(
            command.clone(),
            &host,
            &carrack,
            None,
            ProtectionLevel::Private,
            STALL,
            child_guard.clone(),
        )
        .unwrap();
        let started = Instant::now();
        assert!(remote.stop(Duration::from_millis(50)).is_some());
        assert!(started.elapsed() < Duration::from_secs(5));
        assert!(child_guard.with_child(|child| child.try_wait().unwrap().is_some()).unwrap());
    }
}
