//! Queries of the kernel over rtnetlink (rtnetlink(7), include/uapi/linux/rtnetlink.h): addresses and
//! queueing disciplines.
//!
//! Blocks for at most [`PATIENCE`]. Truncated messages from the kernel are ignored.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// Timeout: the kernel answers at once, and a faulty one must not block the caller.
const PATIENCE: Duration = Duration::from_secs(2);

/// Larger than any message of a dump (the kernel fills up to 32 KiB).
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Limit of messages in one dump: more addresses or queues than any host has.
const MESSAGES_MAX: usize = 100_000;

const HEADER_BYTES: usize = 16;
const REQUEST_DUMP: u16 = 0x301; // NLM_F_REQUEST | NLM_F_DUMP
const ERROR: u16 = 2;
const DONE: u16 = 3;

const GET_ADDRESSES: u16 = 22;
const NEW_ADDRESS: u16 = 20;
const ADDRESS_BODY_BYTES: usize = 8; // struct ifaddrmsg
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

const GET_QDISCS: u16 = 38;
const NEW_QDISC: u16 = 36;
const QDISC_BODY_BYTES: usize = 20; // struct tcmsg
const TCA_KIND: u16 = 1;
const ROOT: u32 = u32::MAX; // TC_H_ROOT

/// A queueing discipline of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// Index of the interface.
    pub interface: u32,
    /// True for the interface's root discipline, false for those of its queues and classes.
    pub is_root: bool,
    /// "fq", "mq", "fq_codel".
    pub kind: String,
}

/// The queueing disciplines of all interfaces in this network namespace.
pub fn qdiscs() -> io::Result<Vec<Qdisc>> {
    let messages = dump(GET_QDISCS, QDISC_BODY_BYTES)?;
    Ok(messages.iter().filter(|message| message.kind == NEW_QDISC).filter_map(qdisc_of).collect())
}

/// The local addresses and the indexes of their interfaces in this network namespace.
pub fn addresses() -> io::Result<Vec<(IpAddr, u32)>> {
    let messages = dump(GET_ADDRESSES, ADDRESS_BODY_BYTES)?;
    Ok(messages.iter().filter(|message| message.kind == NEW_ADDRESS).filter_map(address_of).collect())
}

#[derive(Debug, PartialEq, Eq)]
struct NetlinkMessage {
    kind: u16,
    payload: Vec<u8>,
}

fn qdisc_of(message: &NetlinkMessage) -> Option<Qdisc> {
    let (body, attributes) = message.payload.split_at_checked(QDISC_BODY_BYTES)?;
    let kind = attribute(attributes, TCA_KIND)?;
    let kind = kind.split(|&byte| byte == 0).next().unwrap_or_default();
    Some(Qdisc {
        interface: u32_at(body, 4)?,
        is_root: u32_at(body, 12)? == ROOT,
        kind: String::from_utf8_lossy(kind).into_owned(),
    })
}

/// On a point-to-point link `IFA_ADDRESS` is the peer's address.
fn address_of(message: &NetlinkMessage) -> Option<(IpAddr, u32)> {
    let (body, attributes) = message.payload.split_at_checked(ADDRESS_BODY_BYTES)?;
    let bytes = attribute(attributes, IFA_LOCAL).or_else(|| attribute(attributes, IFA_ADDRESS))?;
    let address = match bytes.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into(),
        16 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into(),
        _ => return None,
    };
    Some((address, u32_at(body, 4)?))
}

fn dump(kind: u16, body_bytes: usize) -> io::Result<Vec<NetlinkMessage>> {
    let socket = open()?;
    sendto(&socket, &request(kind, body_bytes), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let mut messages = Vec::new();
    while messages.len() < MESSAGES_MAX {
        let (_, length) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        let is_last = append_messages(&buffer[..length.min(MESSAGE_BYTES_MAX)], &mut messages)?;
        if is_last || length == 0 {
            break;
        }
    }
    Ok(messages)
}

fn open() -> io::Result<OwnedFd> {
    // No protocol is NETLINK_ROUTE, which is 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    Ok(socket)
}

/// `struct nlmsghdr` and a body of zeros, which requests all entries of all families.
fn request(kind: u16, body_bytes: usize) -> Vec<u8> {
    let length = (HEADER_BYTES + body_bytes) as u32;
    let mut request = Vec::with_capacity(HEADER_BYTES + body_bytes);
    request.extend(length.to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(REQUEST_DUMP.to_ne_bytes());
    request.resize(HEADER_BYTES + body_bytes, 0);
    request
}

/// Appends the messages of one datagram; returns true at the end of the dump.
fn append_messages(mut datagram: &[u8], messages: &mut Vec<NetlinkMessage>) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (u32_at(datagram, 0), u16_at(datagram, 4)) {
        let length = length as usize;
        let Some(payload) = datagram.get(HEADER_BYTES..length) else { break };
        match kind {
            DONE => return Ok(true),
            ERROR => return Err(error_of(payload)),
            _ => messages.push(NetlinkMessage { kind, payload: payload.to_vec() }),
        }
        datagram = datagram.get(align_length(length)..).unwrap_or_default();
    }
    Ok(false)
}

/// `struct nlmsgerr` begins with a negative error number.
fn error_of(payload: &[u8]) -> io::Error {
    let number = u32_at(payload, 0).map_or(0, |number| number as i32);
    io::Error::from_raw_os_error(number.saturating_neg())
}

/// The value of the first attribute (`struct rtattr`) of this kind.
fn attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(attributes, 0)?);
        let value = attributes.get(4..length)?;
        if u16_at(attributes, 2)? == kind {
            return Some(value);
        }
        attributes = attributes.get(align_length(length)..)?;
    }
}

fn align_length(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + payload.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend(payload);
        bytes.resize(align_length(bytes.len()), 0);
        bytes
    }

    fn attribute_of(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(align_length(bytes.len()), 0);
        bytes
    }

    fn qdisc(interface: u32, parent: u32, kind: &str) -> Vec<u8> {
        let mut body = vec![0; QDISC_BODY_BYTES];
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        body[12..16].copy_from_slice(&parent.to_ne_bytes());
        body.extend(attribute_of(9, b"other"));
        body.extend(attribute_of(TCA_KIND, format!("{kind}\0").as_bytes()));
        message(NEW_QDISC, &body)
    }

    #[test]
    fn a_dump_is_split_into_its_messages() {
        let datagram = [qdisc(2, ROOT, "mq"), qdisc(2, 1, "fq"), message(DONE, &[0; 4])].concat();
        let mut messages = Vec::new();
        assert!(append_messages(&datagram, &mut messages).unwrap());
        let qdiscs: Vec<_> = messages.iter().filter_map(qdisc_of).collect();
        let found: Vec<_> = qdiscs.iter().map(|q| (q.interface, q.is_root, &*q.kind)).collect();
        assert_eq!(found, [(2, true, "mq"), (2, false, "fq")]);
    }

    #[test]
    fn an_address_is_the_local_one() {
        let mut payload = vec![2, 24, 0, 0, 7, 0, 0, 0];
        payload[4..8].copy_from_slice(&7u32.to_ne_bytes());
        payload.extend(attribute_of(IFA_ADDRESS, &[10, 0, 0, 2]));
        payload.extend(attribute_of(IFA_LOCAL, &[10, 0, 0, 1]));
        let found = address_of(&NetlinkMessage { kind: NEW_ADDRESS, payload });
        assert_eq!(found, Some((Ipv4Addr::new(10, 0, 0, 1).into(), 7)));
    }

    #[test]
    fn what_is_cut_short_harms_nobody() {
        let whole = [qdisc(2, ROOT, "mq"), qdisc(3, ROOT, "fq")].concat();
        for length in 0..whole.len() {
            let mut messages = Vec::new();
            assert!(!append_messages(&whole[..length], &mut messages).unwrap());
            assert!(messages.len() < 2, "{length}");
            for end in 0..length.min(60) {
                let _ = qdisc_of(&NetlinkMessage { kind: NEW_QDISC, payload: whole[..end].to_vec() });
            }
        }
        assert_eq!(attribute(&[0, 0, 1, 0, 0, 0], 9), None);
        // A message that claims to be shorter than its header.
        assert!(!append_messages(&[4, 0, 0, 0, 36, 0, 0, 0], &mut Vec::new()).unwrap());
    }

    #[test]
    fn a_refusal_is_an_error() {
        let refused = message(ERROR, &(-1i32).to_ne_bytes());
        let error = append_messages(&refused, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(1));
    }

    #[test]
    fn this_machine_has_a_loopback_address() {
        let Ok(addresses) = addresses() else {
            println!("skipped: no netlink");
            return;
        };
        assert!(addresses.iter().any(|(address, _)| address.is_loopback()), "{addresses:?}");
        assert!(qdiscs().is_ok());
    }
}
