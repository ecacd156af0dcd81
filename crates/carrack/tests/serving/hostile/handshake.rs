//! Messages of a known user before a session is established.

use std::io::Read;
use std::net::TcpListener;
use std::time::Duration;

use carrack_model::{AgreedTransferSpec, ProtectionLevel};
use carrack_wire::auth::RESPONSE_BYTES;
use carrack_wire::message::{
    ControlMessage, DestinationRootMessage, DialFailureMessage, HelloMessage, LaneCountProposal,
    ListenAddresses, WelcomeMessage,
};
use carrack_wire::to_json;
use carrack_wire::{FrameHeader, HEADER_BYTES, Preamble};

use super::Attack;
use super::arena::Arena;
use super::client::*;
use super::credentials::ask;
use super::strangers::leave;

pub const ATTACKS: &[Attack] = &[
    ("a protocol of the past", "closed", |arena| {
        preamble(arena, Preamble { version_min: 1, version_max: 4 })
    }),
    ("a protocol of the future", "closed", |arena| {
        preamble(arena, Preamble { version_min: 6, version_max: 9 })
    }),
    ("versions the wrong way round", "closed", |arena| {
        preamble(arena, Preamble { version_min: 9, version_max: 1 })
    }),
    (
        "a frame of another version",
        "refused: the peer broke the protocol: frame version 9 is not known here",
        |arena| header(arena, |raw| raw[4] = 9),
    ),
    (
        "a frame of another kind",
        "refused: the peer broke the protocol: frame kind 9 is not known here",
        |arena| header(arena, |raw| raw[5] = 9),
    ),
    (
        "a frame with a header of another length",
        "refused: the peer broke the protocol: a frame header of 79 bytes",
        |arena| header(arena, |raw| raw[6] = 79),
    ),
    (
        "a frame with a critical flag",
        "refused: the peer broke the protocol: frame flags 0x00010000 are not known here",
        |arena| header(arena, |raw| raw[10] = 1),
    ),
    (
        "a control frame of 4 GiB",
        "refused: the peer broke the protocol: a frame body of 4294967295 bytes, mor",
        |arena| header(arena, |raw| raw[12..16].fill(0xff)),
    ),
    (
        "a control frame that is a byte too long",
        "refused: the peer broke the protocol: a frame body of 262145 bytes, more th",
        |arena| header(arena, |raw| raw[12..16].copy_from_slice(&262_145u32.to_le_bytes())),
    ),
    (
        "a frame with another magic",
        "refused: the peer broke the protocol: garbage where a frame should begin",
        |arena| header(arena, |raw| raw[0] = b'X'),
    ),
    (
        "an object before the hello",
        "refused: the peer broke the protocol: an object without a credit",
        |arena| first(arena, |client| client.frame(&object(1, 1, 0, b"abc"))),
    ),
    (
        "a message that is none",
        "refused: the peer broke the protocol: a control message that can't be read:",
        |arena| first(arena, |client| client.say_body(&[0xff; 100])),
    ),
    (
        "a message of the future",
        "refused: the peer broke the protocol: a control message of a kind that is not known here",
        |arena| first(arena, |client| client.say_body(&[0xfa, 0x07, 0x00])),
    ),
    (
        "an empty message",
        "refused: the peer broke the protocol: a control message of a kind that is not known here",
        |arena| first(arena, |client| client.say_body(&[])),
    ),
    ("an end before the beginning", "refused: the peer broke the protocol: no hello", |arena| {
        first(arena, |client| client.say(finish()))
    }),
    ("a welcome from the caller", "refused: the peer broke the protocol: no hello", |arena| {
        first(arena, |client| client.say(ControlMessage::Welcome(WelcomeMessage::default())))
    }),
    ("a place before the hello", "refused: the peer broke the protocol: no hello", |arena| {
        first(arena, |client| {
            client.say(ControlMessage::Place(DestinationRootMessage {
                root: 0,
                ..DestinationRootMessage::default()
            }))
        })
    }),
    ("a hello twice", "refused: the peer broke the protocol: no place", |arena| {
        first(arena, |client| {
            client.say(ControlMessage::Hello(writing(b"/data/in")));
            client.say(ControlMessage::Hello(writing(b"/data/in")))
        })
    }),
    (
        "a hello for another export after the first",
        "refused: the peer broke the protocol: no place",
        |arena| {
            first(arena, |client| {
                client.say(ControlMessage::Hello(writing(b"/data/in")));
                client.say(ControlMessage::Hello(reading(&[b"/database/rows"], 4)))
            })
        },
    ),
    ("a place that does not fit", "refused: the peer broke the protocol: no place for the tree", |arena| {
        match calling_source(arena, &spec(), b"/data/in", 9) {
            Ok((mut client, _)) => client.end(),
            Err(end) => end,
        }
    }),
    (
        "a hello without a spec",
        "refused: the peer broke the protocol: a control message that can't be read: EOF",
        |arena| ask(arena, "mallory", HelloMessage { spec: String::new(), ..writing(b"/data/in") }),
    ),
    (
        "a hello without settings",
        "refused: the peer broke the protocol: a control message that can't be read: EOF",
        |arena| ask(arena, "mallory", HelloMessage { settings: String::new(), ..writing(b"/data/in") }),
    ),
    (
        "a key that is too short",
        "refused: the peer broke the protocol: a hello without what is to be done",
        |arena| ask(arena, "mallory", HelloMessage { session_key: vec![7; 31], ..writing(b"/data/in") }),
    ),
    (
        "slots of 4 GiB",
        "refused: the peer broke the protocol: a control message with the slot size out of range",
        |arena| with_spec(arena, |spec| spec.slot_bytes = u32::MAX),
    ),
    (
        "slots of nothing",
        "refused: the peer broke the protocol: a control message with the slot size out of range",
        |arena| with_spec(arena, |spec| spec.slot_bytes = 0),
    ),
    ("65 streams", "refused: the peer broke the protocol: a control message with the number of ", |arena| {
        with_spec(arena, |spec| spec.streams = 65)
    }),
    (
        "a checksum that there isn't",
        "refused: the peer broke the protocol: a control message that can't be read: unknown variant `Md5`",
        |arena| {
            let spec = to_json(&spec()).replacen("\"None\"", "\"Md5\"", 1);
            ask(arena, "mallory", HelloMessage { spec, ..writing(b"/data/in") })
        },
    ),
    (
        "an option that there isn't",
        "refused: the peer broke the protocol: a control message that can't be read: unknown field `of_the_future`",
        |arena| {
            let settings = r#"{"of_the_future":1}"#.into();
            ask(arena, "mallory", HelloMessage { settings, ..writing(b"/data/in") })
        },
    ),
    ("2^64 bytes of buffers", "it lasts", |arena| greedy(arena, r#"{"pool_bytes":18446744073709551615}"#)),
    ("a terabyte of buffers", "it lasts", |arena| greedy(arena, r#"{"pool_bytes":1099511627776}"#)),
    ("10,000 threads", "it lasts", |arena| greedy(arena, r#"{"pool_bytes":1048576,"io_threads":10000}"#)),
    ("64 streams, 8 lanes and the largest slots", "it lasts", |arena| {
        let settings = r#"{"pool_bytes":1099511627776,"lanes":8,"io_threads":64}"#.into();
        let spec = to_json(&AgreedTransferSpec { streams: 64, slot_bytes: 64 << 20, ..spec() });
        let lanes = Some(LaneCountProposal { wanted: u32::MAX, most: u32::MAX });
        modest(arena, HelloMessage { spec, settings, lanes, ..writing(b"/data/in") })
    }),
    ("ports and targets of the daemon's host", "it lasts", |arena| {
        greedy(
            arena,
            r#"{"pool_bytes":1048576,"ports":{"start":22,"end":22},"target_sets":["/etc","/"],"recall":true,"zone":"Hard"}"#,
        )
    }),
    ("10,000 sources", "refused: no export nowhere is open to you", |arena| {
        let paths: Vec<_> = (0..10_000).map(|number| format!("/nowhere/{number}")).collect();
        ask(arena, "mallory", reading(&paths.iter().map(String::as_bytes).collect::<Vec<_>>(), 4))
    }),
    ("a path of the daemon's host", "refused: no export etc is open to you", |arena| {
        read(arena, b"/etc/passwd")
    }),
    ("a path without an export", "refused: paths on a daemon are /EXPORT/sub/path", |arena| {
        read(arena, b"etc/passwd")
    }),
    ("no path", "refused: paths on a daemon are /EXPORT/sub/path", |arena| read(arena, b"")),
    ("the root of all exports", "refused: paths on a daemon are /EXPORT/sub/path", |arena| read(arena, b"/")),
    ("dots that lead out", "refused: /../outside/secret: '.' or '..' in the path", |arena| {
        read(arena, b"/data/../outside/secret")
    }),
    ("dots in front of the export", "refused: paths on a daemon are /EXPORT/sub/path", |arena| {
        read(arena, b"/../data/tree")
    }),
    (
        "dots that lead far out",
        "refused: /tree/../../../../../../../etc/passwd: '.' or '..' in the path",
        |arena| read(arena, b"/data/tree/../../../../../../../etc/passwd"),
    ),
    ("a NUL in a path", "refused: /tree", |arena| read(arena, b"/data/tree\0/../../outside")),
    (
        "a name of 300 bytes",
        "refused: /xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        |arena| read(arena, &[b"/data/", &[b'x'; 300][..]].concat()),
    ),
    (
        "a path of 60,000 bytes",
        "refused: /data/data/data/data/data/data/data/data/data/data/data/data/data/",
        |arena| read(arena, &b"/data".repeat(12_000)),
    ),
    ("a file behind a link that leads out", "refused: /out/secret: Invalid cross-device link", |arena| {
        read(arena, b"/data/out/secret")
    }),
    ("a link that leads out, as a directory", "refused: /out/: Invalid cross-device link", |arena| {
        read(arena, b"/data/out/")
    }),
    (
        "a link that leads out by its whole path",
        "refused: /in/absolute/secret: Invalid cross-device link",
        |arena| read(arena, b"/data/in/absolute/secret"),
    ),
    (
        "a destination behind a link that leads out",
        "refused: the destination /out/new can't be used: Too many levels of symboli",
        |arena| ask(arena, "mallory", writing(b"/data/out/new")),
    ),
    (
        "a link that leads out as the destination, written into",
        "refused: the peer broke the protocol: the source would write beside the destination",
        |arena| write_into(arena, b"/data/out/", 0),
    ),
    (
        "a link that leads out as the destination, to be made",
        "refused: the peer broke the protocol: the source would write beside the destination",
        |arena| write_into(arena, b"/data/out/", 1),
    ),
    (
        "a link that leads out as the destination, from above",
        "refused: the peer broke the protocol: the source would write beside the destination",
        |arena| write_into(arena, b"/data/out/", 2),
    ),
    (
        "dots in a destination",
        "refused: the destination /../outside/new can't be used: '.' or '..' in the path",
        |arena| ask(arena, "mallory", writing(b"/data/../outside/new")),
    ),
    (
        "a third party that would have less protection",
        "refused: the other end does not let data travel clear",
        |arena| {
            let spec = to_json(&AgreedTransferSpec { protection: ProtectionLevel::Clear, ..spec() });
            ask(arena, "mallory", HelloMessage { third_party: true, spec, ..writing(b"/data/in") })
        },
    ),
    (
        "a third party whose source sends what nobody asked for",
        "aborted: the peer broke the protocol: '.bashrc' was not asked for",
        third_party_beside,
    ),
    (
        "a third party whose source has no names",
        "aborted: the peer broke the protocol: a name that is refused: '.' or '..' in the path",
        third_party_upwards,
    ),
    ("an order to dial somebody else", "finished, 0 failed", dial_somebody_else),
    ("gone at every step of the handshake", "closed", gone_at_every_step),
];

/// Runs a whole session that writes a file below a destination.
pub fn write_into(arena: &Arena, destination: &[u8], root: u32) -> End {
    let attack = || {
        let (mut client, _) = calling_source(arena, &spec(), destination, root)?;
        client.say(ControlMessage::DialFailed(DialFailureMessage::default()));
        client.frame(&bundle(1, b"evil", &table("", &[(b"secret", 4)])));
        client.answer()?;
        Ok(client.finish())
    };
    attack().unwrap_or_else(|end: End| end)
}

fn preamble(arena: &Arena, preamble: Preamble) -> End {
    match Client::connect(arena.address(), arena.config_of("mallory")) {
        Ok(mut client) => {
            client.raw(&preamble.encode());
            end_of(&client.tls.sock)
        }
        Err(end) => end,
    }
}

/// Sends a first message, after the preambles.
fn first(arena: &Arena, say: impl FnOnce(&mut Client) -> bool) -> End {
    match Client::greeted(arena, "mallory") {
        Ok(mut client) => {
            say(&mut client);
            client.end()
        }
        Err(end) => end,
    }
}

/// Sends a hello with a changed frame header.
fn header(arena: &Arena, change: fn(&mut [u8; HEADER_BYTES])) -> End {
    let body = ControlMessage::Hello(writing(b"/data/in")).to_body();
    let mut raw = FrameHeader::control(body.len() as u32).encode();
    change(&mut raw);
    first(arena, |client| client.raw(&[&raw[..], &body].concat()))
}

fn with_spec(arena: &Arena, change: fn(&mut AgreedTransferSpec)) -> End {
    let mut spec = spec();
    change(&mut spec);
    ask(arena, "mallory", HelloMessage { spec: to_json(&spec), ..writing(b"/data/in") })
}

fn read(arena: &Arena, path: &[u8]) -> End {
    ask(arena, "mallory", reading(&[path], 4))
}

fn greedy(arena: &Arena, settings: &str) -> End {
    modest(arena, HelloMessage { settings: settings.into(), ..writing(b"/data/in") })
}

/// Large requests are no offence: the session is established, and its process takes no more than the daemon's
/// limits allow.
fn modest(arena: &Arena, hello: HelloMessage) -> End {
    let standing = || {
        let mut client = Client::greeted(arena, "mallory")?;
        client.say(ControlMessage::Hello(hello));
        let ControlMessage::Welcome(welcome) = client.message()? else { panic!("no welcome") };
        assert!(welcome.lanes <= 8);
        client.say(ControlMessage::Place(DestinationRootMessage {
            root: 0,
            ..DestinationRootMessage::default()
        }));
        client.say(ControlMessage::DialFailed(DialFailureMessage::default()));
        std::thread::sleep(Duration::from_millis(100));
        let threads = arena.most_threads_of_a_session();
        assert!(threads < 100, "{threads} threads in one process");
        Err(End::Lasts)
    };
    standing().unwrap_or_else(|end: End| end)
}

fn third_party(arena: &Arena, asked: &[u8]) -> Result<Client, End> {
    let mut client = Client::greeted(arena, "mallory")?;
    let hello = HelloMessage { third_party: true, sources: vec![asked.to_vec()], ..writing(b"/data/in") };
    client.say(ControlMessage::Hello(hello));
    let ControlMessage::Welcome(_) = client.message()? else { panic!("no welcome") };
    client
        .say(ControlMessage::Place(DestinationRootMessage { root: 0, ..DestinationRootMessage::default() }));
    client.say(ControlMessage::DialFailed(DialFailureMessage::default()));
    Ok(client)
}

fn third_party_beside(arena: &Arena) -> End {
    let attack = || {
        let mut client = third_party(arena, b"/data/run7")?;
        client.frame(&bundle(1, b"evil", &table("", &[(b".bashrc", 4)])));
        Ok(client.end())
    };
    attack().unwrap_or_else(|end: End| end)
}

fn third_party_upwards(arena: &Arena) -> End {
    let attack = || {
        let mut client = third_party(arena, b"/data/run7")?;
        client.frame(&bundle(1, b"evil", &table_in(b"run7/../../outside", &[(b"secret", 4)])));
        Ok(client.end())
    };
    attack().unwrap_or_else(|end: End| end)
}

/// Returns the first response that a dialler sends to `listener`, and the number of bytes that follow before
/// a reply. A dialler on a long path, which any path is to a machine under load, closes the connection by
/// which it measured that, unused.
fn first_response(listener: &TcpListener) -> ([u8; RESPONSE_BYTES], usize) {
    loop {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut response = [0; RESPONSE_BYTES];
        if stream.read(&mut response[..1]).expect("a response") == 0 {
            continue;
        }
        stream.read_exact(&mut response[1..]).expect("a response");
        stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
        return (response, stream.read(&mut [0; 1]).unwrap_or(0));
    }
}

/// A daemon dials the addresses of its client. The listener there gets the response of a data connection, and
/// no more.
fn dial_somebody_else(arena: &Arena) -> End {
    let attack = || {
        let somebody = TcpListener::bind("127.0.0.99:0").expect("an address");
        let port = somebody.local_addr().expect("an address").port().into();
        let heard = std::thread::spawn(move || first_response(&somebody));
        let (mut client, _) = calling_source(arena, &spec(), b"/data/in", 0)?;
        let addresses = vec!["127.0.0.99".into()];
        client.say(ControlMessage::Dial(ListenAddresses { port, addresses, nonce: vec![1; 32] }));
        let ControlMessage::DialFailed(_) = client.message()? else { panic!("it got through") };
        let heard = heard.join().expect("a listener");
        assert_eq!((&heard.0[..8], heard.1), (&b"carrackd"[..], 0), "a response and nothing else");
        Ok(client.finish())
    };
    attack().unwrap_or_else(|end: End| end)
}

fn gone_at_every_step(arena: &Arena) -> End {
    let frame = |message: ControlMessage| {
        let body = message.to_body();
        [&FrameHeader::control(body.len() as u32).encode()[..], &body].concat()
    };
    let pieces = [
        frame(ControlMessage::Hello(writing(b"/data/in"))),
        frame(ControlMessage::Place(DestinationRootMessage { root: 0, ..DestinationRootMessage::default() })),
        frame(ControlMessage::DialFailed(DialFailureMessage::default())),
        frame(open(1, table("", &[(b"never", 200_000)]))),
        [&object(1, 1, 0, &[]).0.encode()[..], &[7; 100]].concat(),
    ];
    for is_rude in [false, true] {
        for last in 0..pieces.len() {
            let Ok(mut client) = Client::greeted(arena, "mallory") else { return End::Lasts };
            pieces[..last].iter().for_each(|piece| assert!(client.raw(piece)));
            client.raw(&pieces[last][..pieces[last].len() / 2]);
            leave(&client.tls.sock, is_rude);
        }
    }
    End::Closed
}
