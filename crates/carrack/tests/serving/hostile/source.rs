//! A source that was let in and writes outside its rights.

use std::fs;
use std::os::unix::fs::MetadataExt;

use carrack_model::{AgreedTransferSpec, ObjectChecksumAlgorithm, RelPath};
use carrack_wire::message::{ControlMessage, FileReference, ObjectAcksMessage};
use carrack_wire::{EntryTableEncoder, FrameHeader};

use super::Attack;
use super::arena::Arena;
use super::client::*;

const SLOT: usize = 128 << 10;

pub const ATTACKS: &[Attack] = &[
    (
        "an entry's name is two dots",
        "aborted: the peer broke the protocol: a name that is refused: '.' or '..' in the path",
        |arena| entry(arena, b".."),
    ),
    (
        "an entry's name is a dot",
        "aborted: the peer broke the protocol: a name that is refused: '.' or '..' in the path",
        |arena| entry(arena, b"."),
    ),
    (
        "an entry's name is a path",
        "aborted: the peer broke the protocol: a name that is refused: a slash in the name",
        |arena| entry(arena, b"out/secret"),
    ),
    (
        "an entry's name leads out",
        "aborted: the peer broke the protocol: a name that is refused: a slash in the name",
        |arena| entry(arena, b"../../outside/secret"),
    ),
    (
        "an entry's name is a whole path",
        "aborted: the peer broke the protocol: a name that is refused: a slash in the name",
        |arena| entry(arena, b"/etc/cron.d/x"),
    ),
    (
        "an entry's name has a NUL",
        "aborted: the peer broke the protocol: a name that is refused: a NUL byte in the name",
        |arena| entry(arena, b"a\0b"),
    ),
    (
        "an entry's name is empty",
        "aborted: the peer broke the protocol: a name that is refused: an empty name in the path",
        |arena| entry(arena, b""),
    ),
    (
        "an entry's name has 256 bytes",
        "aborted: the peer broke the protocol: a name that is refused: a name longer than 255 bytes",
        |arena| entry(arena, &[b'x'; 256]),
    ),
    (
        "a section leads out",
        "aborted: the peer broke the protocol: a name that is refused: '.' or '..' in the path",
        |arena| section(arena, b"../../outside"),
    ),
    (
        "a section leads out in the middle",
        "aborted: the peer broke the protocol: a name that is refused: '.' or '..' in the path",
        |arena| section(arena, b"a/../../../outside"),
    ),
    (
        "a section is a whole path",
        "aborted: the peer broke the protocol: a name that is refused: an empty name in the path",
        |arena| section(arena, b"/etc"),
    ),
    (
        "a section with an empty name",
        "aborted: the peer broke the protocol: a name that is refused: an empty name in the path",
        |arena| section(arena, b"a//b"),
    ),
    (
        "an announced file's name leads out",
        "aborted: the peer broke the protocol: a name that is refused: a slash in the name",
        |arena| attack(arena, |source| source.say(open(1, table("", &[(b"../x", 9)])))),
    ),
    ("a file behind a link that stands there", "finished, 1 failed", |arena| {
        answered(arena, &[bundle(1, b"abc", &table("out", &[(b"secret", 3)]))])
    }),
    ("a file behind a link by its whole path", "finished, 1 failed", |arena| {
        answered(arena, &[bundle(1, b"abc", &table("absolute", &[(b"secret", 3)]))])
    }),
    ("a directory behind a link", "finished, 1 failed", |arena| {
        answered(arena, &[bundle(1, b"abc", &table("out/deep/new", &[(b"secret", 3)]))])
    }),
    ("a link, then a file through it", "finished, 1 failed", |arena| {
        answered(
            arena,
            &[
                bundle(1, b"", &link_table("way", b"../../outside")),
                bundle(2, b"abc", &table("way", &[(b"secret", 3)])),
            ],
        )
    }),
    ("a link and a file through it in one bundle", "finished, 2 failed", |arena| {
        let mut way = link_table("way2", b"../../outside");
        let mut writer = EntryTableEncoder::new(&mut way);
        writer.begin_section(&RelPath::new(b"way2").expect("a path"), Some(&METADATA));
        writer.add_regular(b"new", 3, &METADATA, 0, None);
        answered(arena, &[bundle(1, b"abc", &way)])
    }),
    ("a link of an earlier session, then a file through it", "finished, 1 failed", |arena| {
        let end = answered(arena, &[bundle(1, b"", &link_table("earlier", b"../../outside"))]);
        assert_eq!(end, End::Finished(0), "links are data");
        answered(arena, &[bundle(1, b"abc", &table("earlier", &[(b"secret", 3)]))])
    }),
    (
        "a link of an earlier session as the destination",
        "refused: the peer broke the protocol: the source would write beside the destination",
        |arena| {
            answered(arena, &[bundle(1, b"", &link_table("door", b"../../outside"))]);
            super::handshake::write_into(arena, b"/data/in/door/", 0)
        },
    ),
    ("a link of an earlier session, written over", "finished, 0 failed", |arena| {
        answered(arena, &[bundle(1, b"", &link_table("swap", b"../../outside/secret"))]);
        let end = answered(arena, &[bundle(1, b"abc", &table("", &[(b"swap", 3)]))]);
        let status = fs::symlink_metadata(arena.site.path().join("data/in/swap")).expect("a file");
        assert!(status.is_file(), "it is replaced, not followed");
        end
    }),
    ("a link to the process's own directory", "finished, 1 failed", |arena| {
        answered(
            arena,
            &[
                bundle(1, b"", &link_table("proc", b"/proc/self/root")),
                bundle(2, b"abc", &table("proc/tmp", &[(b"x", 3)])),
            ],
        )
    }),
    ("a hard link to a file outside, written over", "finished, 0 failed", |arena| {
        let end = answered(arena, &[bundle(1, b"evil", &table("", &[(b"hard", 4)]))]);
        assert_eq!(linked_count(arena, "hard"), 1, "it is another file now");
        end
    }),
    ("a hard link to a file outside, written over in pieces", "finished, 0 failed", |arena| {
        let end = large(arena, "hard-large");
        assert_eq!(linked_count(arena, "hard-large"), 1, "it is another file now");
        end
    }),
    (
        "a table that is longer than its bundle",
        "aborted: the peer broke the protocol: an entry table of 66 bytes in a body of 65",
        |arena| {
            let (mut header, body) = bundle(1, b"", &table("", &[(b"x", 0)]));
            header.table_len = body.len() as u32 + 1;
            attack(arena, |source| source.frame(&(header, body)))
        },
    ),
    (
        "a table that is cut off",
        "aborted: the peer broke the protocol: an entry table ends within a record",
        |arena| {
            let table = table("", &[(b"x", 0)]);
            attack(arena, |source| source.frame(&bundle(1, b"", &table[..table.len() - 1])))
        },
    ),
    (
        "a table of 128 KiB of records of nothing",
        "aborted: the peer broke the protocol: an entry table ends within a record",
        |arena| attack(arena, |source| source.frame(&bundle(1, b"", &[0; SLOT]))),
    ),
    (
        "a table without a section",
        "aborted: the peer broke the protocol: an entry without a directory",
        |arena| {
            let whole = table("", &[(b"x", 0)]);
            attack(arena, |source| source.frame(&bundle(1, b"", &whole[32..])))
        },
    ),
    (
        "a record with a critical extra that there isn't",
        "aborted: the peer broke the protocol: entry attribute 255 is not known here",
        |arena| {
            let mut table = table("", &[(b"x", 0)]);
            table[32] += 4;
            table.extend(0x0000_00ffu32.to_le_bytes());
            attack(arena, |source| source.frame(&bundle(1, b"", &table)))
        },
    ),
    (
        "modes beyond all bits",
        "aborted: the peer broke the protocol: a record with a value out of range",
        |arena| {
            let mut table = table("", &[(b"x", 0)]);
            table[32 + 8..32 + 12].fill(0xff);
            attack(arena, |source| source.frame(&bundle(1, b"", &table)))
        },
    ),
    (
        "a bundle that is longer than a slot",
        "aborted: the peer broke the protocol: a frame body of 131137 bytes, more th | closed",
        |arena| {
            attack(arena, |source| source.frame(&bundle(1, &[7; SLOT], &table("", &[(b"x", SLOT as u64)]))))
        },
    ),
    (
        "a bundle that promises more than it holds",
        "aborted: the peer broke the protocol: a bundle's table promises more than its contents",
        |arena| attack(arena, |source| source.frame(&bundle(1, b"abc", &table("", &[(b"x", 1 << 40)])))),
    ),
    (
        "a bundle that holds more than it promises",
        "aborted: the peer broke the protocol: a bundle's contents are longer than its table says",
        |arena| attack(arena, |source| source.frame(&bundle(1, b"abcdef", &table("", &[(b"x", 3)])))),
    ),
    (
        "sizes that add up to more than 2^64",
        "aborted: the peer broke the protocol: a bundle's table promises more than its contents",
        |arena| {
            attack(arena, |source| {
                source.frame(&bundle(1, b"abc", &table("", &[(b"x", u64::MAX), (b"y", 4)])))
            })
        },
    ),
    (
        "a frame that says it has 4 GiB",
        "aborted: the peer broke the protocol: a frame body of 4294967295 bytes, mor",
        |arena| {
            attack(arena, |source| {
                let header = FrameHeader { body_len: u32::MAX, ..object(1, 1, 0, b"").0 };
                source.raw(&header.encode())
            })
        },
    ),
    (
        "an announcement of two files",
        "aborted: the peer broke the protocol: an open-file message is about one file",
        |arena| attack(arena, |source| source.say(open(1, table("", &[(b"x", 9), (b"y", 9)])))),
    ),
    (
        "an announcement of nothing",
        "aborted: the peer broke the protocol: an empty file or a link announced as a large file",
        |arena| attack(arena, |source| source.say(open(1, table("", &[(b"x", 0)])))),
    ),
    (
        "an object beyond the size of its file",
        "aborted: the peer broke the protocol: bytes 8+3 of file 1 do not fit into i",
        |arena| announced(arena, 10, |source| source.frame(&object(1, 1, 8, b"abc"))),
    ),
    (
        "an object at the end of all numbers",
        "aborted: the peer broke the protocol: bytes 18446744073709551614+3 of file ",
        |arena| announced(arena, 10, |source| source.frame(&object(1, 1, u64::MAX - 1, b"abc"))),
    ),
    (
        "an object of nothing",
        "aborted: the peer broke the protocol: bytes 0+0 of file 1 do not fit into i",
        |arena| announced(arena, 10, |source| source.frame(&object(1, 1, 0, b""))),
    ),
    (
        "objects that overlap",
        "aborted: the peer broke the protocol: bytes 4+3 of file 1 do not fit into i",
        |arena| {
            announced(arena, 10, |source| {
                source.frame(&object(1, 1, 0, b"abcde"));
                source.frame(&object(2, 1, 4, b"efg"))
            })
        },
    ),
    (
        "a file that is whole before its bytes are there",
        "aborted: the peer broke the protocol: file 1 was closed before it was whole",
        |arena| {
            announced(arena, 10, |source| {
                source.frame(&object(1, 1, 0, b"abc"));
                source.say(ControlMessage::CommitFile(FileReference { id: 1 }))
            })
        },
    ),
    (
        "the end of a file that was never announced",
        "aborted: the peer broke the protocol: file 7 is not open",
        |arena| attack(arena, |source| source.say(ControlMessage::CommitFile(FileReference { id: 7 }))),
    ),
    (
        "a file given up that was never announced",
        "aborted: the peer broke the protocol: file 7 is not open",
        |arena| attack(arena, |source| source.say(ControlMessage::AbandonFile(FileReference { id: 7 }))),
    ),
    (
        "objects of a file that was never announced, and the end",
        "aborted: the peer broke the protocol: the source ended before its objects were answered",
        |arena| {
            attack(arena, |source| {
                source.frame(&object(1, 7, 0, b"abc"));
                source.say(finish())
            })
        },
    ),
    (
        "an end with a file open",
        "aborted: the peer broke the protocol: the source ended with files still open",
        |arena| announced(arena, 10, |source| source.say(finish())),
    ),
    ("a file twice", "aborted: the peer broke the protocol: file 1 was announced out of order", |arena| {
        announced(arena, 10, |source| source.say(open(1, table("", &[(b"again", 10)]))))
    }),
    ("129 open files", "aborted: the peer broke the protocol: more than 128 files open at once", |arena| {
        attack(arena, |source| {
            (1..=129u64).all(|id| source.say(open(id, table("", &[(format!("f{id}").as_bytes(), 10)]))))
        })
    }),
    (
        "more objects than there are credits",
        "aborted: the peer broke the protocol: an object without a credit | closed",
        |arena| attack(arena, |source| (1..=1000).all(|id| source.frame(&object(id, 7, id * 8, b"abc")))),
    ),
    (
        "answers from the source",
        "aborted: the peer broke the protocol: a message that a source does not send",
        |arena| {
            attack(arena, |source| {
                source.say(ControlMessage::ObjectsDone(ObjectAcksMessage {
                    written: vec![1],
                    corrupt: vec![],
                    set_aside: vec![],
                }))
            })
        },
    ),
    (
        "a hello in the middle",
        "aborted: the peer broke the protocol: a message that a source does not send",
        |arena| attack(arena, |source| source.say(ControlMessage::Hello(writing(b"/data/in")))),
    ),
    (
        "a lane that there isn't",
        "aborted: the peer broke the protocol: a message for a lane that there isn't",
        |arena| {
            attack(arena, |source| {
                let body = finish().to_body();
                let header = FrameHeader { lane: 7, ..FrameHeader::control(body.len() as u32) };
                source.frame(&(header, body))
            })
        },
    ),
    ("a check that does not fit", "finished, 0 failed", |arena| {
        let spec = AgreedTransferSpec { checksum: ObjectChecksumAlgorithm::Xxh3, ..spec() };
        let attack = || {
            let mut source = source_with(arena, &spec)?;
            source.frame(&bundle(1, b"damaged", &table("", &[(b"damaged", 7)])));
            let ControlMessage::ObjectsDone(done) = source.message()? else { panic!("no answer") };
            assert_eq!((done.written, done.corrupt), (vec![], vec![1]));
            Ok(source.finish())
        };
        let end = attack().unwrap_or_else(|end: End| end);
        assert!(!fs::exists(arena.site.path().join("data/in/damaged")).expect("a directory"));
        end
    }),
    ("a file of 2^63 bytes", "finished, 1 failed", |arena| {
        let attack = || {
            let mut source = source(arena)?;
            source.say(open(1, table("", &[(b"huge", (1 << 63) - 1)])));
            source.frame(&object(1, 1, (1 << 63) - 4, b"abc"));
            // The file's failure comes first, then the reply to the object.
            while !matches!(source.message()?, ControlMessage::FileFailed(_)) {}
            source.answer()?;
            source.say(ControlMessage::AbandonFile(FileReference { id: 1 }));
            Ok(source.finish())
        };
        attack().unwrap_or_else(|end: End| end)
    }),
];

/// Breaks a rule; returns the sink's reaction.
fn attack(arena: &Arena, script: impl FnOnce(&mut Client) -> bool) -> End {
    match source(arena) {
        Ok(mut source) => {
            // The sink may close the connection before all is sent.
            let _ = script(&mut source);
            source.end()
        }
        Err(end) => end,
    }
}

fn announced(arena: &Arena, size: u64, script: impl FnOnce(&mut Client) -> bool) -> End {
    attack(arena, |source| {
        source.say(open(1, table("", &[(b"never", size)])));
        script(source)
    })
}

fn entry(arena: &Arena, name: &[u8]) -> End {
    attack(arena, |source| source.frame(&bundle(1, b"abc", &table("", &[(name, 3)]))))
}

fn section(arena: &Arena, directory: &[u8]) -> End {
    attack(arena, |source| source.frame(&bundle(1, b"abc", &table_in(directory, &[(b"secret", 3)]))))
}

/// Keeps the rules except for the names.
fn answered(arena: &Arena, bundles: &[(FrameHeader, Vec<u8>)]) -> End {
    let attack = || {
        let mut source = source(arena)?;
        for bundle in bundles {
            source.frame(bundle);
            source.answer()?;
        }
        Ok(source.finish())
    };
    attack().unwrap_or_else(|end: End| end)
}

/// Sends a file of several objects.
fn large(arena: &Arena, name: &str) -> End {
    let attack = || {
        let mut source = source(arena)?;
        source.say(open(1, table("", &[(name.as_bytes(), 2 * SLOT as u64)])));
        for number in 0..2 {
            source.frame(&object(number + 1, 1, number * SLOT as u64, &[7; SLOT]));
            source.answer()?;
        }
        source.say(ControlMessage::CommitFile(FileReference { id: 1 }));
        while !matches!(source.message()?, ControlMessage::FileDone(_)) {}
        Ok(source.finish())
    };
    attack().unwrap_or_else(|end: End| end)
}

/// Returns the number of names of a file in the export.
fn linked_count(arena: &Arena, name: &str) -> u64 {
    fs::metadata(arena.site.path().join("data/in").join(name)).expect("a file").nlink()
}
