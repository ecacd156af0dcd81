//! A sink that was let in and sends wrong replies, or none.

use std::time::Duration;

use carrack_wire::message::{ControlMessage, FileReference, ObjectAcksMessage};

use super::Attack;
use super::arena::Arena;
use super::client::*;

pub const ATTACKS: &[Attack] = &[
    (
        "an answer to an object that was never sent",
        "aborted: the peer broke the protocol: object 1152921504606846976 was never sent",
        |arena| attack(arena, 4, |sink| sink.say(done(vec![1 << 60], vec![]))),
    ),
    ("an answer twice", "aborted: the peer broke the protocol: object 1 was never sent", |arena| {
        attack(arena, 4, |sink| {
            while !matches!(sink.hear(), Heard::Object(_) | Heard::Ended(_)) {}
            sink.say(done(vec![1], vec![]));
            sink.say(done(vec![1], vec![]))
        })
    }),
    (
        "an object put aside that was never sent",
        "aborted: the peer broke the protocol: object 77 was put aside, and may not be",
        |arena| {
            let message = ObjectAcksMessage { written: vec![], corrupt: vec![], set_aside: vec![77] };
            attack(arena, 4, |sink| sink.say(ControlMessage::ObjectsDone(message)))
        },
    ),
    ("every object is damaged, for ever", "closed", always_damaged),
    (
        "a file that is done and was never committed",
        "aborted: the peer broke the protocol: file 1099511627776 was not committed",
        |arena| attack(arena, 4, |sink| sink.say(ControlMessage::FileDone(FileReference { id: 1 << 40 }))),
    ),
    (
        "a sink that says it is finished",
        "aborted: the peer broke the protocol: a message that a sink does not send",
        |arena| attack(arena, 4, |sink| sink.say(ControlMessage::Finished(Default::default()))),
    ),
    ("2^32 credits", "it lasts", |arena| greedy(arena, u32::MAX)),
    ("no credits", "it lasts", |arena| greedy(arena, 0)),
    (
        "objects from the sink",
        "aborted: the peer broke the protocol: an object that came to the source",
        |arena| attack(arena, 4, |sink| sink.frame(&object(1, 1, 0, b"abc"))),
    ),
    ("a client that stops reading", "it lasts", |arena| greedy(arena, 1000)),
    ("a client that only says it is alive", "it lasts", |arena| {
        attack(arena, 4, |sink| {
            for _ in 0..10 {
                sink.say(ControlMessage::Heartbeat(Default::default()));
                std::thread::sleep(Duration::from_millis(50));
            }
            let timeout = Some(Duration::from_millis(300));
            sink.tls.sock.set_read_timeout(timeout).expect("a socket");
            true
        })
    }),
];

fn done(written: Vec<u64>, corrupt: Vec<u64>) -> ControlMessage {
    ControlMessage::ObjectsDone(ObjectAcksMessage { written, corrupt, set_aside: vec![] })
}

/// Breaks a rule; returns the source's reaction.
fn attack(arena: &Arena, credits: u32, script: impl FnOnce(&mut Client) -> bool) -> End {
    match sink(arena, &[b"/data/tree"], credits) {
        Ok(mut sink) => {
            // The source may close the connection before all is sent.
            let _ = script(&mut sink);
            sink.end()
        }
        Err(end) => end,
    }
}

/// Damaged objects are read again, but not for ever: the session ends with failed entries.
fn always_damaged(arena: &Arena) -> End {
    let mut sink = match sink(arena, &[b"/data/tree"], 4) {
        Ok(sink) => sink,
        Err(end) => return end,
    };
    for _ in 0..100 {
        match sink.hear() {
            Heard::Object(id) => sink.say(done(vec![], vec![id.0])),
            Heard::Control(
                ControlMessage::AbandonFile(_)
                | ControlMessage::Failure(_)
                | ControlMessage::OpenFile(_)
                | ControlMessage::Leave(_),
            ) => true,
            Heard::Control(ControlMessage::Finish(_)) => {
                sink.say(ControlMessage::Finished(Default::default()))
            }
            Heard::Control(other) => panic!("{other:?}"),
            Heard::Ended(end) => return end,
        };
    }
    End::Lasts
}

/// Gives more credits than it takes objects, and reads nothing: the source's memory stays within its limits.
fn greedy(arena: &Arena, credits: u32) -> End {
    match sink(arena, &[b"/data/tree"], credits) {
        Ok(_unread) => {
            std::thread::sleep(Duration::from_millis(300));
            End::Lasts
        }
        Err(end) => end,
    }
}
