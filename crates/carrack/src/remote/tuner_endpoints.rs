//! The names of a transfer's two ends in records of its performance: this host by its own name, a far one as
//! the user has typed it.

use std::net::{IpAddr, Ipv6Addr};

use rustix::system::uname;

use crate::remote::location::{DaemonAddress, FarEndAddress};
use crate::remote::route::{RemoteEnds, TransferEndsAndPaths};

/// The name of a caller with an unknown address.
const UNKNOWN: &str = "unknown";

/// The names of both ends, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferEndNames {
    /// The end that reads.
    pub source: String,
    /// The end that writes.
    pub sink: String,
}

impl TransferEndNames {
    /// Returns the names for a copy of which this process is an end; `None` if both ends are elsewhere.
    pub fn of_route(route: &TransferEndsAndPaths) -> Option<TransferEndNames> {
        let (source, sink) = match &route.far {
            RemoteEnds::Neither => (local_site_name(), local_site_name()),
            RemoteEnds::Source(far) => (far_site_name(far), local_site_name()),
            RemoteEnds::Sink(far) => (local_site_name(), far_site_name(far)),
            RemoteEnds::Both(..) => return None,
        };
        Some(TransferEndNames { source, sink })
    }

    /// Returns the names for a session in which the caller reads from this host.
    pub fn of_session(caller: Option<IpAddr>) -> TransferEndNames {
        let sink = caller.map_or_else(|| UNKNOWN.to_owned(), |caller| caller.to_canonical().to_string());
        TransferEndNames { source: local_site_name(), sink }
    }
}

/// Returns the name of a site from a text with the form of a far end: `[user@]host`, `[address]`,
/// `carrack://host[:port]`.
pub fn site_name_from_text(word: &str) -> String {
    let word = word.to_ascii_lowercase();
    let host = word.strip_prefix("carrack://").unwrap_or(&word).trim_end_matches('/');
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let usual = format!(":{}", DaemonAddress::PORT);
    let host = match host.strip_suffix(&usual) {
        Some(name) if name.ends_with(']') || !name.contains(':') => name,
        _ => host,
    };
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host).to_owned()
}

fn local_site_name() -> String {
    uname().nodename().to_string_lossy().to_lowercase()
}

/// Returns the name without the user: the account changes nothing about the path. Another port may lead to
/// another host behind it.
fn far_site_name(far: &FarEndAddress) -> String {
    let name = match far {
        FarEndAddress::Ssh(host) => host.name.clone(),
        FarEndAddress::Daemon(DaemonAddress { name, port: DaemonAddress::PORT }) => name.clone(),
        FarEndAddress::Daemon(DaemonAddress { name, port }) if name.parse::<Ipv6Addr>().is_ok() => {
            format!("[{name}]:{port}")
        }
        FarEndAddress::Daemon(DaemonAddress { name, port }) => format!("{name}:{port}"),
    };
    name.to_lowercase()
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};

    use super::*;

    fn sites(source: &str, sink: &str) -> Option<TransferEndNames> {
        TransferEndNames::of_route(
            &TransferEndsAndPaths::parse(&[OsString::from(source)], OsStr::new(sink)).unwrap(),
        )
    }

    #[test]
    fn far_ends_are_called_as_they_were_typed() {
        for (typed, name) in [
            ("Me@DTN1.Site.org:/a", "dtn1.site.org"),
            ("dtn1:a", "dtn1"),
            ("me@[2001:DB8::7]:a", "2001:db8::7"),
            ("carrack://Dtn1/data/a", "dtn1"),
            ("carrack://dtn1:7512/data/a", "dtn1"),
            ("carrack://dtn1:99/data/a", "dtn1:99"),
            ("carrack://[::1]/data/a", "::1"),
            ("carrack://[::1]:99/data/a", "[::1]:99"),
        ] {
            assert_eq!(
                sites("a", typed),
                Some(TransferEndNames { source: local_site_name(), sink: name.into() }),
                "{typed}"
            );
            assert_eq!(
                sites(typed, "a"),
                Some(TransferEndNames { source: name.into(), sink: local_site_name() }),
                "{typed}"
            );
            assert_eq!(sites(typed, "other:a"), None, "{typed}");
        }
        assert_eq!(
            sites("a", "b"),
            Some(TransferEndNames { source: local_site_name(), sink: local_site_name() })
        );
    }

    #[test]
    fn callers_are_called_by_their_addresses() {
        for (caller, name) in
            [(Some("10.0.0.1"), "10.0.0.1"), (Some("::ffff:10.0.0.1"), "10.0.0.1"), (None, "unknown")]
        {
            let caller = caller.map(|caller| caller.parse().unwrap());
            assert_eq!(
                TransferEndNames::of_session(caller),
                TransferEndNames { source: local_site_name(), sink: name.into() }
            );
        }
    }

    #[test]
    fn what_is_asked_for_is_named_alike() {
        for (word, name) in [
            ("dtn1", "dtn1"),
            ("Me@DTN1", "dtn1"),
            ("[::1]", "::1"),
            ("::1", "::1"),
            ("fe80::7512", "fe80::7512"),
            ("::1:7512", "::1:7512"),
            ("[::1]:99", "[::1]:99"),
            ("[::1]:7512", "::1"),
            ("dtn1:7512", "dtn1"),
            ("carrack://dtn1:99/", "dtn1:99"),
            ("CARRACK://dtn1", "dtn1"),
            ("", ""),
        ] {
            assert_eq!(site_name_from_text(word), name, "{word}");
            assert_eq!(site_name_from_text(name), name, "{word}");
        }
    }
}
