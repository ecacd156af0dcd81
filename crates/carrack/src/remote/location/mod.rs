//! The place of a source or destination: `path`, `[user@]host:path` or `[user@][address]:path`, or a URL
//! ([`url`]): `carrack://host[:port]/EXPORT/path`, `ssh://[user@]host[:port]/path` or
//! `scp://[user@]host[:port]/path`.
//!
//! Paths are bytes and stay as they were typed (trailing slashes matter), with two exceptions: an empty
//! remote path is the home directory, and a leading `~/` is removed, since remote paths start there. A colon
//! that comes first or after a slash belongs to a local name (`./a:b`), as in scp.

mod url;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use carrack_model::escape;

/// The far host, as it is passed to ssh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshHost {
    /// The user to log in as; ssh's own choice without one.
    pub user: Option<String>,
    /// Name or address, an IPv6 address without its brackets.
    pub name: String,
    /// TCP port; ssh's own choice without one.
    pub port: Option<u16>,
}

impl fmt::Display for SshHost {
    /// `[user@]name`, which is also ssh's argument.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Some(user) => write!(f, "{user}@{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A daemon, as `carrack serve` runs on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonAddress {
    /// Name or address, an IPv6 address without its brackets.
    pub name: String,
    /// TCP port.
    pub port: u16,
}

impl DaemonAddress {
    /// The port if none is named.
    pub const PORT: u16 = 7512;
}

impl fmt::Display for DaemonAddress {
    /// `carrack://host[:port]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DaemonAddress { name, port } = self;
        f.write_str("carrack://")?;
        if name.contains(':') { write!(f, "[{name}]") } else { f.write_str(name) }?;
        if *port == DaemonAddress::PORT { Ok(()) } else { write!(f, ":{port}") }
    }
}

/// An end outside this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarEndAddress {
    /// A host that ssh reaches.
    Ssh(SshHost),
    /// A daemon.
    Daemon(DaemonAddress),
}

impl fmt::Display for FarEndAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FarEndAddress::Ssh(host) => host.fmt(f),
            FarEndAddress::Daemon(daemon) => daemon.fmt(f),
        }
    }
}

/// Returns a path for a message, with its host if it is of a far end.
pub fn path_text(far: Option<&FarEndAddress>, path: &[u8]) -> String {
    let path = escape(path);
    match far {
        Some(FarEndAddress::Ssh(host)) => format!("{}:{path}", escape(host.to_string().as_bytes())),
        Some(FarEndAddress::Daemon(daemon)) if path.starts_with('/') => {
            format!("{}{path}", escape(daemon.to_string().as_bytes()))
        }
        _ => path,
    }
}

/// The place of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndLocation {
    /// The far end; `None` for a local path.
    pub far: Option<FarEndAddress>,
    /// The path at that end: with a daemon `/EXPORT/path`, or `/` for its exports.
    pub path: PathBuf,
}

/// The reason why a text is not a location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// No text.
    #[error("an empty path")]
    Empty,
    /// The host or user is empty, not UTF-8, begins with `-` or holds a character that no host name has.
    #[error("{0:?} is not a host that ssh can be given")]
    BadHost(String),
    /// `[` without `]:`.
    #[error("{0:?} has no \"]:\" after its address")]
    OpenBracket(String),
    /// `scheme://`.
    #[error("carrack does not speak {0}://")]
    Scheme(&'static str),
    /// `scheme://` of an object store.
    #[error("{0}:// names objects, and carrack moves files")]
    Objects(&'static str),
    /// `ssh://` with an invalid host or port.
    #[error("{0:?} is not [user@]host[:port]")]
    BadSshUrl(String),
    /// `carrack://` with an invalid host or port.
    #[error("{0:?} is not the host of a daemon")]
    BadDaemon(String),
    /// `carrack://user@host`.
    #[error("{0:?} names a user, and a daemon knows you by your certificate or token")]
    UserInfo(String),
    /// `?` or `#` in a URL.
    #[error("{0:?} is not part of a path in a URL")]
    Query(char),
    /// `%` without two hexadecimal digits after it, or a byte that no file name holds.
    #[error("{0:?} can't stand in a path of a URL")]
    BadEscape(String),
    /// `carrack://host/` where a path is needed.
    #[error("{0} without an export names no file")]
    NoExport(String),
}

impl LocationError {
    /// Returns advice for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            LocationError::Empty => "write . for the current directory, host: for the far home directory",
            LocationError::BadHost(_) => "write [user@]host:path, or ./NAME for a local name with a colon",
            LocationError::OpenBracket(_) => {
                "write [user@][address]:path, such as [::1]:data, or ./NAME for a local name"
            }
            LocationError::Scheme("http" | "https") => {
                "curl fetches files from web servers; carrack goes to [user@]host:path over ssh, or to carrack://host/EXPORT/path"
            }
            LocationError::Scheme("file") => "write the path alone",
            LocationError::Scheme(_) => {
                "write [user@]host:path to go over ssh, carrack://host/EXPORT/path to a daemon"
            }
            LocationError::Objects(_) => {
                "rclone moves objects; a bucket that is mounted (rclone mount, s3fs) is a directory for carrack"
            }
            LocationError::BadSshUrl(_) => {
                "write ssh://[user@]host[:port]/path, such as ssh://me@[::1]:2222/data/x"
            }
            LocationError::BadDaemon(_) => {
                "write carrack://host[:port]/EXPORT/path, such as carrack://[::1]:7512/data/x"
            }
            LocationError::UserInfo(_) => {
                "write carrack://host/EXPORT/path, and say who you are with --identity"
            }
            LocationError::Query(_) => "in a name write %3F for ? and %23 for #",
            LocationError::BadEscape(_) => {
                "write %25 for %; a name holds neither / nor NUL, so that %2F and %00 are none"
            }
            LocationError::NoExport(_) => {
                "write carrack://host/EXPORT/path; `carrack ls carrack://host/` lists the exports"
            }
        }
    }
}

/// Schemes that people try; a host of such a name can still be reached as `NAME:./path`.
const SCHEMES: [&str; 9] = ["rsync", "file", "http", "https", "ftp", "ftps", "gsiftp", "dav", "davs"];

/// Schemes of object stores, which are also names of rclone's remotes.
pub const OBJECT_SCHEMES: [&str; 6] = ["s3", "gs", "gcs", "az", "b2", "swift"];

impl EndLocation {
    /// Parses the text that the user typed.
    pub fn parse(text: &OsStr) -> Result<EndLocation, LocationError> {
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            return Err(LocationError::Empty);
        }
        if let Some(rest) = url::without_scheme(bytes) {
            let (daemon, path) = url::parse_daemon_url(rest)?;
            return Ok(EndLocation { far: Some(FarEndAddress::Daemon(daemon)), path });
        }
        if let Some((rest, path_start)) = url::without_ssh_scheme(bytes) {
            let (host, path) = url::parse_ssh_url(rest, path_start)?;
            return Ok(EndLocation { far: Some(FarEndAddress::Ssh(host)), path: remote_path(&path) });
        }
        let Some(colon) = host_end(bytes)? else {
            return Ok(EndLocation { far: None, path: PathBuf::from(text) });
        };
        let (host, path) = (&bytes[..colon], &bytes[colon + 1..]);
        check_scheme(host, path)?;
        Ok(EndLocation { far: Some(FarEndAddress::Ssh(parse_host(host)?)), path: remote_path(path) })
    }

    /// Parses the location of something that can be read, written or removed: with a daemon it has an export.
    pub fn parse_path(text: &OsStr) -> Result<EndLocation, LocationError> {
        let location = EndLocation::parse(text)?;
        match &location.far {
            Some(FarEndAddress::Daemon(daemon))
                if location.path.as_os_str().as_bytes().iter().all(|&b| b == b'/') =>
            {
                Err(LocationError::NoExport(daemon.to_string()))
            }
            _ => Ok(location),
        }
    }
}

/// Returns the position of the colon that ends a host; `None` if the text is a local path.
fn host_end(text: &[u8]) -> Result<Option<usize>, LocationError> {
    if let Some(bracket) = address_start(text) {
        let end = text[bracket..].windows(2).position(|pair| pair == b"]:");
        let end = end.ok_or_else(|| LocationError::OpenBracket(carrack_model::escape(text)))?;
        return Ok(Some(bracket + end + 1));
    }
    let first = text.iter().position(|&b| b == b':' || b == b'/');
    Ok(first.filter(|&at| at > 0 && text[at] == b':'))
}

/// Returns the position of a bracketed address: at the start or after the user, and before any slash or
/// colon.
fn address_start(text: &[u8]) -> Option<usize> {
    let bracket = text.iter().position(|&b| matches!(b, b'[' | b'/' | b':'))?;
    let is_address = text[bracket] == b'['
        && (bracket == 0 || text[bracket - 1] == b'@')
        && text[bracket..].iter().take_while(|&&b| b != b'/').any(|&b| b == b':');
    is_address.then_some(bracket)
}

fn check_scheme(host: &[u8], path: &[u8]) -> Result<(), LocationError> {
    if !path.starts_with(b"//") {
        return Ok(());
    }
    if let Some(scheme) = OBJECT_SCHEMES.iter().find(|scheme| scheme.as_bytes() == host) {
        return Err(LocationError::Objects(scheme));
    }
    let scheme = SCHEMES.iter().find(|scheme| scheme.as_bytes() == host);
    scheme.map_or(Ok(()), |scheme| Err(LocationError::Scheme(scheme)))
}

fn bad_host(bytes: &[u8]) -> LocationError {
    LocationError::BadHost(carrack_model::escape(bytes))
}

fn parse_host(bytes: &[u8]) -> Result<SshHost, LocationError> {
    let text = std::str::from_utf8(bytes).map_err(|_| bad_host(bytes))?;
    let (user, name) = match text.rsplit_once('@') {
        Some((user, name)) => (Some(user), name),
        None => (None, text),
    };
    let name = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    if !is_safe_name(name) || user.is_some_and(|user| !is_safe_name(user)) {
        return Err(bad_host(bytes));
    }
    Ok(SshHost { user: user.map(str::to_owned), name: name.to_owned(), port: None })
}

/// Returns true for names that OpenSSH accepts for hosts since 9.6, for users too: none could become an
/// option or reach a shell.
fn is_safe_name(name: &str) -> bool {
    const SHELL: &str = "'`\"$\\;&<>|(){}/";
    !name.is_empty()
        && !name.starts_with('-')
        && !name.contains(|c: char| c.is_control() || c.is_whitespace() || SHELL.contains(c))
}

/// Returns the path that is sent to the far side: relative to its home directory unless absolute.
fn remote_path(bytes: &[u8]) -> PathBuf {
    let path = match bytes {
        b"~" => b"",
        [b'~', b'/', rest @ ..] => &rest[rest.iter().take_while(|&&b| b == b'/').count()..],
        path => path,
    };
    let path = if path.is_empty() { b"." } else { path };
    PathBuf::from(OsString::from_vec(path.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Result<(Option<String>, Vec<u8>), LocationError> {
        let location = EndLocation::parse(OsStr::from_bytes(text))?;
        let host = location.far.map(|far| far.to_string());
        Ok((host, location.path.as_os_str().as_bytes().to_vec()))
    }

    #[test]
    fn local_paths_stay_as_they_are() {
        for path in [
            &b"a"[..],
            b"a/",
            b"/a:b",
            b"./a:b",
            b"a/b:c",
            b":a",
            b"a@b",
            b"[x]",
            b"[x",
            b"[x]/y:z",
            b"\xff\xfe",
            b"new\nline",
            b"~/x",
            b"-",
        ] {
            assert_eq!(parse(path), Ok((None, path.to_vec())), "{path:?}");
        }
    }

    #[test]
    fn remote_paths() {
        for (text, host, path) in [
            (&b"host:a"[..], "host", &b"a"[..]),
            (b"host:", "host", b"."),
            (b"host:/", "host", b"/"),
            (b"host:/a/b/", "host", b"/a/b/"),
            (b"host:a:b", "host", b"a:b"),
            (b"me@host:a", "me@host", b"a"),
            (b"me@site.org@host:a", "me@site.org@host", b"a"),
            (b"host:~", "host", b"."),
            (b"host:~/", "host", b"."),
            (b"host:~//a/", "host", b"a/"),
            (b"host:~you/a", "host", b"~you/a"),
            (b"host:\xff", "host", b"\xff"),
            (b"host:[x]:y", "host", b"[x]:y"),
            (b"[::1]:a", "::1", b"a"),
            (b"[::1]:", "::1", b"."),
            (b"me@[fe80::1%eth0]:/a]:b", "me@fe80::1%eth0", b"/a]:b"),
            (b"[host]:a", "host", b"a"),
            (b"ssh:a", "ssh", b"a"),
            (b"10.0.0.1:a", "10.0.0.1", b"a"),
        ] {
            assert_eq!(parse(text), Ok((Some(host.into()), path.to_vec())), "{text:?}");
        }
    }

    #[test]
    fn urls_of_ssh() {
        let parse = |text: &[u8]| {
            let location = EndLocation::parse(OsStr::from_bytes(text))?;
            let Some(FarEndAddress::Ssh(host)) = location.far else { panic!("{:?}", location.far) };
            Ok((host.to_string(), host.port, location.path.as_os_str().as_bytes().to_vec()))
        };
        for (text, host, port, path) in [
            (&b"ssh://h/data/x"[..], "h", None, &b"/data/x"[..]),
            (b"SSH://me@h:2222/~/x", "me@h", Some(2222), b"x"),
            (b"ssh://h", "h", None, b"."),
            (b"ssh://h/", "h", None, b"/"),
            (b"scp://h/x%20y", "h", None, b"x y"),
            (b"scp://me@[::1]:22//data/", "me@::1", Some(22), b"/data/"),
            (b"sftp://h/", "h", None, b"."),
            (b"scp://h:/x", "h", None, b"x"),
        ] {
            assert_eq!(parse(text), Ok((host.to_owned(), port, path.to_vec())), "{text:?}");
        }
        for text in [
            &b"ssh:///x"[..],
            b"ssh://h:0/x",
            b"ssh://h:x/y",
            b"ssh://-o@h/x",
            b"scp://[::1/x",
            b"ssh://a b/x",
        ] {
            let error = parse(text).unwrap_err();
            assert!(matches!(error, LocationError::BadSshUrl(_) | LocationError::BadHost(_)), "{error:?}");
        }
        assert_eq!(parse(b"scp://h/a%zz"), Err(LocationError::BadEscape("%zz".into())));
    }

    #[test]
    fn refuses_what_is_no_place() {
        assert_eq!(parse(b""), Err(LocationError::Empty));
        assert_eq!(parse(b"rsync://host/a"), Err(LocationError::Scheme("rsync")));
        assert_eq!(parse(b"s3://bucket/a"), Err(LocationError::Objects("s3")));
        assert_eq!(parse(b"[::1:a"), Err(LocationError::OpenBracket("[::1:a".into())));
        for text in [
            &b"-oProxyCommand=x:a"[..],
            b"-oProxyCommand=x@host:a",
            b"me@-host:a",
            b"[-x]:a",
            b"@host:a",
            b"me@:a",
            b"[]:a",
            b"ho st:a",
            b"$(x):a",
            b"ho\xffst:a",
            b"ho\x1bst:a",
        ] {
            assert!(matches!(parse(text), Err(LocationError::BadHost(_))), "{text:?}");
        }
    }
}
