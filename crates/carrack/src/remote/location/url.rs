//! `carrack://host[:port]/EXPORT/path` as in RFC 3986, without user, query and fragment; and URLs of ssh.
//!
//! The path of `scp://` and `sftp://` is relative to the home directory, and a second slash makes it
//! absolute, as with scp(1) and sftp(1); that of `ssh://` is absolute unless it begins with `~`, as with
//! git(1).
//!
//! Percent-encoded bytes are decoded once, within names. Bytes that RFC 3986 wants encoded may stand
//! unencoded, except for `?`, `#` and `%`: a path that was typed or completed by a shell works as long as it
//! has none of these.

use std::ffi::OsString;
use std::net::Ipv6Addr;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use carrack_model::escape;

use super::{DaemonAddress, LocationError, SshHost, parse_host};

const SCHEME: &[u8] = b"carrack://";

/// Returns the text after `carrack://`; `None` if the text begins otherwise. Upper and lower case are equal
/// (§3.1).
pub(super) fn without_scheme(text: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = text.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(rest)
}

/// Returns the text after a scheme of ssh, and the slashes in front of its path that count for nothing;
/// `None` if the text begins otherwise.
pub(super) fn without_ssh_scheme(text: &[u8]) -> Option<(&[u8], &'static [u8])> {
    let known: [(&[u8], &[u8]); 3] = [(b"ssh://", b""), (b"scp://", b"/"), (b"sftp://", b"/")];
    known.into_iter().find_map(|(scheme, skipped)| {
        let (begin, rest) = text.split_at_checked(scheme.len())?;
        begin.eq_ignore_ascii_case(scheme).then_some((rest, skipped))
    })
}

fn bad_ssh_url(authority: &[u8]) -> LocationError {
    LocationError::BadSshUrl(escape(authority))
}

/// Returns the host, and the path there as it is typed after `host:`.
pub(super) fn parse_ssh_url(rest: &[u8], skipped: &[u8]) -> Result<(SshHost, Vec<u8>), LocationError> {
    let slash = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let path = decode(path.strip_prefix(skipped).unwrap_or(path))?;
    let path = if path.starts_with(b"/~") { path[1..].to_vec() } else { path };
    let bracket = authority.iter().rposition(|&b| b == b']').unwrap_or(0);
    let colon = authority[bracket..].iter().position(|&b| b == b':').map(|at| bracket + at);
    let (host, port) = authority.split_at(colon.unwrap_or(authority.len()));
    let digits =
        std::str::from_utf8(port.strip_prefix(b":").unwrap_or(b"")).map_err(|_| bad_ssh_url(authority))?;
    let port = if digits.is_empty() {
        None
    } else {
        Some(parse_port(digits).ok_or_else(|| bad_ssh_url(authority))?)
    };
    if host.is_empty() || host.contains(&b'[') != host.contains(&b']') {
        return Err(bad_ssh_url(authority));
    }
    Ok((SshHost { port, ..parse_host(host)? }, path))
}

/// Returns the daemon, and the path there, which begins with a slash.
pub(super) fn parse_daemon_url(rest: &[u8]) -> Result<(DaemonAddress, PathBuf), LocationError> {
    let slash = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let daemon = parse_authority(authority)?;
    let path = if path.is_empty() { b"/".to_vec() } else { decode(path)? };
    Ok((daemon, PathBuf::from(OsString::from_vec(path))))
}

fn parse_authority(authority: &[u8]) -> Result<DaemonAddress, LocationError> {
    if authority.contains(&b'@') {
        return Err(LocationError::UserInfo(escape(authority)));
    }
    parse_host_and_port(authority).ok_or_else(|| LocationError::BadDaemon(escape(authority)))
}

fn parse_host_and_port(authority: &[u8]) -> Option<DaemonAddress> {
    let text = std::str::from_utf8(authority).ok()?;
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (address, port)
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    if !is_ip_address(name) && !is_host_name(name) {
        return None;
    }
    let port = match port.strip_prefix(':') {
        Some(digits) => parse_port(digits)?,
        None if port.is_empty() => DaemonAddress::PORT,
        None => return None,
    };
    Some(DaemonAddress { name: name.to_owned(), port })
}

fn is_ip_address(name: &str) -> bool {
    name.parse::<std::net::IpAddr>().is_ok()
}

/// Accepts letters, digits, hyphens, dots and underscores, as in DNS names and certificates.
fn is_host_name(name: &str) -> bool {
    (1..=253).contains(&name.len())
        && !name.starts_with(['-', '.'])
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

/// Parses a port. An empty port is the default (§6.2.3).
fn parse_port(digits: &str) -> Option<u16> {
    if digits.is_empty() {
        return Some(DaemonAddress::PORT);
    }
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?.filter(|&port| port > 0)
}

/// Decodes percent-encoded bytes (§2.1) within names.
fn decode(path: &[u8]) -> Result<Vec<u8>, LocationError> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        decoded.push(match byte {
            b'%' => {
                let (digits, after) = after.split_at(after.len().min(2));
                rest = after;
                decode_byte(digits)
                    .filter(|byte| !matches!(byte, b'/' | b'\0'))
                    .ok_or_else(|| LocationError::BadEscape(escape(&[b"%", digits].concat())))?
            }
            b'?' | b'#' => return Err(LocationError::Query(char::from(byte))),
            b'\0' => return Err(LocationError::BadEscape(escape(b"\0"))),
            byte => byte,
        });
    }
    Ok(decoded)
}

fn decode_byte(digits: &[u8]) -> Option<u8> {
    let &[high, low] = digits else { return None };
    let [high, low] = [high, low].map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? << 4 | low?).ok()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::super::{EndLocation, FarEndAddress};
    use super::*;

    fn parse(text: &[u8]) -> Result<(String, u16, Vec<u8>), LocationError> {
        let location = EndLocation::parse(OsStr::from_bytes(text))?;
        let Some(FarEndAddress::Daemon(daemon)) = location.far else { panic!("{:?}", location.far) };
        Ok((daemon.name, daemon.port, location.path.as_os_str().as_bytes().to_vec()))
    }

    #[test]
    fn places_on_daemons() {
        for (text, name, port, path) in [
            (&b"carrack://dtn1/data/a"[..], "dtn1", 7512, &b"/data/a"[..]),
            (b"carrack://dtn1.site.org:99/data/", "dtn1.site.org", 99, b"/data/"),
            (b"CARRACK://dtn1/data", "dtn1", 7512, b"/data"),
            (b"carrack://dtn1:/data", "dtn1", 7512, b"/data"),
            (b"carrack://10.0.0.1/data//a/", "10.0.0.1", 7512, b"/data//a/"),
            (b"carrack://[::1]/data", "::1", 7512, b"/data"),
            (b"carrack://[2001:db8::7]:8000/d", "2001:db8::7", 8000, b"/d"),
            (b"carrack://h", "h", 7512, b"/"),
            (b"carrack://h/", "h", 7512, b"/"),
            (b"carrack://h/a%20b%3f%23%25", "h", 7512, b"/a b?#%"),
            (b"carrack://h/a b/%FF%0a\xfe", "h", 7512, b"/a b/\xff\n\xfe"),
            (b"carrack://h/%2e%2E/x:y@z", "h", 7512, b"/../x:y@z"),
            (b"carrack://h/%2525", "h", 7512, b"/%25"),
        ] {
            assert_eq!(parse(text), Ok((name.into(), port, path.to_vec())), "{}", escape(text));
        }
    }

    #[test]
    fn what_is_no_place_on_a_daemon() {
        for text in [
            &b"carrack:///a"[..],
            b"carrack://",
            b"carrack://h:0/a",
            b"carrack://h:65536/a",
            b"carrack://h:+1/a",
            b"carrack://h:x/a",
            b"carrack://::1/a",
            b"carrack://[::1/a",
            b"carrack://[::1]x/a",
            b"carrack://[h]/a",
            b"carrack://[fe80::1%eth0]/a",
            b"carrack://-h/a",
            b"carrack://h h/a",
            b"carrack://h\xff/a",
            b"carrack://h?x/a",
            b"carrack://h%41/a",
        ] {
            assert!(matches!(parse(text), Err(LocationError::BadDaemon(_))), "{}", escape(text));
        }
        assert!(matches!(parse(b"carrack://me@h/a"), Err(LocationError::UserInfo(_))));
        assert_eq!(parse(b"carrack://h/a?b"), Err(LocationError::Query('?')));
        assert_eq!(parse(b"carrack://h/a#b"), Err(LocationError::Query('#')));
        for text in ["%2F", "%2f", "%00", "%", "%1", "%g0", "%0g", "%+1", "%\u{e9}"] {
            let url = format!("carrack://h/a{text}");
            assert!(matches!(parse(url.as_bytes()), Err(LocationError::BadEscape(_))), "{text}");
        }
        assert!(matches!(parse(b"carrack://h/a\0"), Err(LocationError::BadEscape(_))));
    }

    #[test]
    fn a_daemon_is_shown_as_it_is_written() {
        for (text, shown) in [
            ("carrack://h:7512/a", "carrack://h"),
            ("carrack://h:99/a", "carrack://h:99"),
            ("carrack://[::1]/a", "carrack://[::1]"),
        ] {
            let far = EndLocation::parse(OsStr::new(text)).unwrap().far.unwrap();
            assert_eq!(far.to_string(), shown);
        }
    }

    #[test]
    fn other_places_stay_what_they_are() {
        for text in ["carrack:a", "carrack:/a", "./carrack://h/a"] {
            let location = EndLocation::parse(OsStr::new(text)).unwrap();
            assert!(!matches!(location.far, Some(FarEndAddress::Daemon(_))), "{text}");
        }
    }
}
