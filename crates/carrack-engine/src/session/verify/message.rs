//! The messages of questions and answers. Everything that the other end sends is checked here.

use carrack_model::limits::NAME_BYTES_MAX;
use carrack_model::{
    ByteRange, FileFlags, KeptMetadata, Metadata, RelPath, SpecialFile, Timestamp, UserOrGroup, check_name,
    escape,
};
use carrack_storage::BrowsedKind;
use carrack_wire::message::{
    ControlMessage, ExaminedAttribute, ExaminedEntriesMessage, ExaminedMetadata, ExaminedOwner,
    FailureMessage, HashPiecesRequest, LookRequest, PieceDigestsMessage, VerifyEntryMessage, WalkRequest,
    WalkedNamesMessage,
};

use crate::error::SessionError;
use crate::examine::{
    ACCOUNT_NAME_BYTES_MAX, ATTRIBUTE_DIGEST_BYTES, ATTRIBUTES_MAX, AttributeDigest, ComparedEntryMetadata,
    ComparisonAnswer, ExamineQuestion, ExaminedEntryFacts, ExaminedEntryKind, NAMES_MAX, PieceDigestRequest,
    WalkStep,
};
use crate::session::entry_kind_codes::KINDS;

const DIGEST_BYTES: usize = 32;

/// `ExaminedEntryFacts.kind` of a missing entry, and of an unreadable entry.
const NOTHING: u32 = 8;
const UNREADABLE: u32 = 9;

fn wrong(what: impl Into<String>) -> SessionError {
    SessionError::Protocol(what.into())
}

fn to_path(bytes: &[u8]) -> Result<RelPath, SessionError> {
    RelPath::new(bytes).map_err(|problem| wrong(format!("a path: {problem}")))
}

/// Decodes names. An empty name is the directory itself.
fn to_names(names: Vec<Vec<u8>>) -> Result<Vec<Box<[u8]>>, SessionError> {
    if names.len() > NAMES_MAX {
        return Err(wrong(format!("{} names, where {NAMES_MAX} are the most", names.len())));
    }
    names.into_iter().map(to_name).collect()
}

fn to_name(name: Vec<u8>) -> Result<Box<[u8]>, SessionError> {
    if !name.is_empty() {
        check_name(&name).map_err(|problem| wrong(format!("a name: {problem}")))?;
    }
    Ok(name.into())
}

pub(super) fn question_to_message(question: &ExamineQuestion) -> ControlMessage {
    match question {
        ExamineQuestion::WalkOn { beneath, specials } => {
            ControlMessage::WalkOn(WalkRequest { beneath: beneath.as_bytes().to_vec(), specials: *specials })
        }
        ExamineQuestion::Look { directory, names, digests, metadata } => ControlMessage::Look(LookRequest {
            directory: directory.as_bytes().to_vec(),
            names: names.iter().map(|name| name.to_vec()).collect(),
            digests: *digests,
            metadata: metadata.is_some(),
            kept: metadata.unwrap_or_default().bits(),
        }),
        ExamineQuestion::Pieces(of) => ControlMessage::HashPieces(HashPiecesRequest {
            directory: of.directory.as_bytes().to_vec(),
            name: of.name.to_vec(),
            file_size: of.file_size,
            offset: of.range.offset,
            len: of.range.len,
            piece_bytes: of.piece_bytes,
            by_itself: of.by_itself,
        }),
    }
}

pub(super) fn to_question(message: ControlMessage) -> Result<ExamineQuestion, SessionError> {
    match message {
        ControlMessage::WalkOn(WalkRequest { beneath, specials }) => {
            Ok(ExamineQuestion::WalkOn { beneath: to_path(&beneath)?, specials })
        }
        ControlMessage::Look(LookRequest { directory, names, digests, metadata, kept }) => {
            Ok(ExamineQuestion::Look {
                directory: to_path(&directory)?,
                names: to_names(names)?,
                digests,
                metadata: metadata.then(|| KeptMetadata::from_bits(kept)),
            })
        }
        ControlMessage::HashPieces(of) => {
            let of = PieceDigestRequest {
                directory: to_path(&of.directory)?,
                name: to_name(of.name)?,
                file_size: of.file_size,
                range: ByteRange::new(of.offset, of.len),
                piece_bytes: of.piece_bytes,
                by_itself: of.by_itself,
            };
            if of.is_sound() { Ok(ExamineQuestion::Pieces(of)) } else { Err(wrong("pieces that are none")) }
        }
        _ => Err(wrong("no question")),
    }
}

pub(super) fn answer_to_message(answer: ComparisonAnswer) -> ControlMessage {
    match answer {
        ComparisonAnswer::Walked(walked) => ControlMessage::Walked(walk_step_to_message(walked)),
        ComparisonAnswer::Seen(sights) => ControlMessage::Seen(ExaminedEntriesMessage {
            sights: sights.into_iter().map(entry_to_message).collect(),
        }),
        ComparisonAnswer::Pieces(Ok(values)) => {
            ControlMessage::Pieces(PieceDigestsMessage { values: values.concat(), problem: String::new() })
        }
        ComparisonAnswer::Pieces(Err(problem)) => {
            ControlMessage::Pieces(PieceDigestsMessage { values: Vec::new(), problem })
        }
    }
}

fn walk_step_to_message(walked: WalkStep) -> WalkedNamesMessage {
    match walked {
        WalkStep::Names { directory, names } => WalkedNamesMessage {
            directory: directory.as_bytes().to_vec(),
            names: names.into_iter().map(Into::into).collect(),
            ..WalkedNamesMessage::default()
        },
        WalkStep::Failed { path, detail } => WalkedNamesMessage {
            failure: Some(failure_to_message(path, detail)),
            ..WalkedNamesMessage::default()
        },
        WalkStep::Skipped { path, what } => WalkedNamesMessage {
            skipped: Some(failure_to_message(path, what)),
            ..WalkedNamesMessage::default()
        },
        WalkStep::Over => WalkedNamesMessage { is_over: true, ..WalkedNamesMessage::default() },
    }
}

fn entry_to_message(sight: ExaminedEntryFacts) -> VerifyEntryMessage {
    let (kind, detail) = match sight.standing {
        ExaminedEntryKind::Nothing => (NOTHING, String::new()),
        ExaminedEntryKind::Unreadable(detail) => (UNREADABLE, detail),
        ExaminedEntryKind::Is(kind) => {
            (KINDS.iter().find(|(_, known)| *known == kind).map_or(0, |(code, _)| *code), String::new())
        }
    };
    let digest = sight.digest.map(Vec::from).unwrap_or_default();
    let special = sight.special.map(|special| special.to_bytes().to_vec()).unwrap_or_default();
    let metadata = sight.metadata.map(|metadata| metadata_to_message(*metadata));
    VerifyEntryMessage { kind, size: sight.size, stamp: sight.stamp, digest, detail, special, metadata }
}

fn failure_to_message(path: Box<[u8]>, detail: String) -> FailureMessage {
    FailureMessage { path: path.into(), kind: 0, detail }
}

fn account_to_message(account: UserOrGroup) -> ExaminedOwner {
    ExaminedOwner { number: account.number, name: account.name.to_vec() }
}

fn metadata_to_message(seen: ComparedEntryMetadata) -> ExaminedMetadata {
    let attributes = seen.attributes.into_iter().map(|attribute| ExaminedAttribute {
        name: attribute.name.into(),
        digest: attribute.digest.to_vec(),
    });
    ExaminedMetadata {
        mode: seen.metadata.mode,
        mtime_s: seen.metadata.mtime.seconds,
        mtime_ns: seen.metadata.mtime.nanoseconds,
        time_unit_ns: seen.time_unit_ns,
        names: seen.names,
        identity: seen.identity,
        allocated_bytes: seen.allocated_bytes,
        user: seen.user.map(account_to_message),
        group: seen.group.map(account_to_message),
        attributes: attributes.collect(),
        attributes_problem: seen.attributes_problem.unwrap_or_default(),
        has_privileged: seen.has_privileged,
        flags: seen.flags.map(|flags| flags.to_bytes().to_vec()).unwrap_or_default(),
    }
}

fn to_metadata(message: ExaminedMetadata) -> Result<ComparedEntryMetadata, SessionError> {
    if message.mode > 0o7777 || message.mtime_ns > 999_999_999 || message.attributes.len() > ATTRIBUTES_MAX {
        return Err(wrong("metadata out of range"));
    }
    let flags = match &*message.flags {
        [] => None,
        bytes => Some(FileFlags::from_bytes(bytes).ok_or_else(|| wrong("file flags"))?),
    };
    let problem = escape(message.attributes_problem.as_bytes());
    Ok(ComparedEntryMetadata {
        metadata: Metadata {
            mode: message.mode,
            mtime: Timestamp { seconds: message.mtime_s, nanoseconds: message.mtime_ns },
        },
        time_unit_ns: message.time_unit_ns,
        names: message.names,
        identity: message.identity,
        allocated_bytes: message.allocated_bytes,
        user: message.user.map(to_account).transpose()?,
        group: message.group.map(to_account).transpose()?,
        attributes: message.attributes.into_iter().map(to_attribute).collect::<Result<_, _>>()?,
        attributes_problem: Some(problem).filter(|problem| !problem.is_empty()),
        has_privileged: message.has_privileged,
        flags,
    })
}

fn to_account(ExaminedOwner { number, name }: ExaminedOwner) -> Result<UserOrGroup, SessionError> {
    if name.len() > ACCOUNT_NAME_BYTES_MAX {
        return Err(wrong("the name of an account"));
    }
    Ok(UserOrGroup { number, name: name.into() })
}

fn to_attribute(
    ExaminedAttribute { name, digest }: ExaminedAttribute,
) -> Result<AttributeDigest, SessionError> {
    let digest = digest.try_into().ok().filter(|_| (1..=NAME_BYTES_MAX).contains(&name.len()));
    let digest: [u8; ATTRIBUTE_DIGEST_BYTES] = digest.ok_or_else(|| wrong("an attribute"))?;
    Ok(AttributeDigest { name: name.into(), digest })
}

/// Decodes an answer, which must match its question.
pub(super) fn to_answer(
    message: ControlMessage,
    question: &ExamineQuestion,
) -> Result<ComparisonAnswer, SessionError> {
    match (message, question) {
        (ControlMessage::Walked(walked), ExamineQuestion::WalkOn { beneath, .. }) => {
            to_walked(walked, beneath)
        }
        (ControlMessage::Seen(seen), ExamineQuestion::Look { names, digests, metadata, .. }) => {
            if seen.sights.len() != names.len() {
                return Err(wrong(format!("{} sights of {} names", seen.sights.len(), names.len())));
            }
            let sights =
                seen.sights.into_iter().map(|sight| to_entry_facts(sight, *digests, metadata.is_some()));
            Ok(ComparisonAnswer::Seen(sights.collect::<Result<_, _>>()?))
        }
        (ControlMessage::Pieces(pieces), ExamineQuestion::Pieces(of)) => {
            if !pieces.problem.is_empty() {
                return Ok(ComparisonAnswer::Pieces(Err(escape(pieces.problem.as_bytes()))));
            }
            let (values, rest) = pieces.values.as_chunks::<DIGEST_BYTES>();
            if values.len() as u64 != of.piece_count() || !rest.is_empty() {
                return Err(wrong("digests of other pieces than were asked for"));
            }
            Ok(ComparisonAnswer::Pieces(Ok(values.to_vec())))
        }
        _ => Err(wrong("an answer to another question")),
    }
}

fn to_walked(message: WalkedNamesMessage, beneath: &RelPath) -> Result<ComparisonAnswer, SessionError> {
    Ok(ComparisonAnswer::Walked(match message {
        WalkedNamesMessage { is_over: true, .. } => WalkStep::Over,
        WalkedNamesMessage { failure: Some(failure), .. } => {
            WalkStep::Failed { path: failure.path.into(), detail: escape(failure.detail.as_bytes()) }
        }
        WalkedNamesMessage { skipped: Some(skipped), .. } => {
            WalkStep::Skipped { path: skipped.path.into(), what: escape(skipped.detail.as_bytes()) }
        }
        message => {
            let directory = to_path(&message.directory)?;
            if !is_beneath(&directory, beneath) {
                return Err(wrong("a directory beside the one that is walked"));
            }
            WalkStep::Names { directory, names: to_names(message.names)? }
        }
    }))
}

fn is_beneath(path: &RelPath, directory: &RelPath) -> bool {
    let rest = path.as_bytes().strip_prefix(directory.as_bytes());
    rest.is_some_and(|rest| directory.is_root() || rest.is_empty() || rest[0] == b'/')
}

fn to_entry_facts(
    message: VerifyEntryMessage,
    digests: bool,
    has_metadata: bool,
) -> Result<ExaminedEntryFacts, SessionError> {
    let standing = match message.kind {
        NOTHING => ExaminedEntryKind::Nothing,
        UNREADABLE => ExaminedEntryKind::Unreadable(escape(message.detail.as_bytes())),
        kind => {
            let known = KINDS.iter().find(|(code, _)| *code == kind);
            ExaminedEntryKind::Is(known.map_or(BrowsedKind::Other, |(_, kind)| *kind))
        }
    };
    let may_have_digest = match standing {
        ExaminedEntryKind::Is(BrowsedKind::Symlink) => true,
        ExaminedEntryKind::Is(BrowsedKind::File) => digests,
        _ => false,
    };
    let digest = match &*message.digest {
        [] => None,
        bytes => Some(bytes.try_into().ok().filter(|_| may_have_digest).ok_or_else(|| wrong("a digest"))?),
    };
    let special = match &*message.special {
        [] => None,
        bytes => Some(SpecialFile::from_bytes(bytes).ok_or_else(|| wrong("a special file"))?),
    };
    let metadata = match (message.metadata, &standing) {
        (Some(metadata), ExaminedEntryKind::Is(_)) if has_metadata => Some(Box::new(to_metadata(metadata)?)),
        (Some(_), _) => return Err(wrong("metadata that were not asked for")),
        (None, ExaminedEntryKind::Is(_)) if has_metadata => return Err(metadata_unsupported_error()),
        (None, _) => None,
    };
    Ok(ExaminedEntryFacts { standing, size: message.size, stamp: message.stamp, digest, special, metadata })
}

/// The error of an end that does not support questions about metadata.
fn metadata_unsupported_error() -> SessionError {
    SessionError::refused(
        "the far end's carrack is too old to tell modes and times",
        "compare contents alone, with --no-times and without the other options about metadata",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).unwrap()
    }

    fn names(names: &[&[u8]]) -> Vec<Box<[u8]>> {
        names.iter().map(|&name| name.into()).collect()
    }

    fn pieces() -> PieceDigestRequest {
        let (directory, name, range) = (path("a"), b"f"[..].into(), ByteRange::new(0, 1 << 20));
        PieceDigestRequest {
            directory,
            name,
            file_size: 1 << 20,
            range,
            piece_bytes: 1 << 10,
            by_itself: false,
        }
    }

    fn look(digests: bool, metadata: Option<KeptMetadata>) -> ExamineQuestion {
        ExamineQuestion::Look { directory: path("a"), names: names(&[b"", b"\xff"]), digests, metadata }
    }

    fn questions() -> [ExamineQuestion; 5] {
        [
            ExamineQuestion::WalkOn { beneath: path("a/b"), specials: true },
            look(true, None),
            look(false, None),
            ExamineQuestion::Pieces(pieces()),
            look(false, Some(KeptMetadata { users: true, acls: true, ..KeptMetadata::default() })),
        ]
    }

    /// The longest possible metadata.
    fn metadata() -> ComparedEntryMetadata {
        let account = UserOrGroup { number: u32::MAX, name: b"n"[..].repeat(ACCOUNT_NAME_BYTES_MAX).into() };
        let names = (0..ATTRIBUTES_MAX).map(|n| format!("user.{n:021}").into_bytes());
        ComparedEntryMetadata {
            metadata: Metadata { mode: 0o7777, mtime: Timestamp { seconds: -1, nanoseconds: 999_999_999 } },
            time_unit_ns: 2_000_000_000,
            names: u32::MAX,
            identity: u64::MAX,
            allocated_bytes: u64::MAX,
            user: Some(account.clone()),
            group: Some(account),
            attributes: names.map(|name| AttributeDigest { name: name.into(), digest: [9; 16] }).collect(),
            attributes_problem: Some("x".repeat(200)),
            has_privileged: true,
            flags: Some(FileFlags::new(u32::MAX, u32::MAX)),
        }
    }

    #[test]
    fn questions_arrive() {
        for question in questions() {
            assert_eq!(to_question(question_to_message(&question)).unwrap(), question);
        }
    }

    #[test]
    fn answers_arrive_at_their_question_and_at_no_other() {
        let [walk, look, _, hash, _] = questions();
        let sights =
            [(BrowsedKind::File, Some([7; 32]), None), (BrowsedKind::Pipe, None, Some(SpecialFile::Fifo))]
                .map(|(kind, digest, special)| ExaminedEntryFacts {
                    size: 7,
                    stamp: u64::MAX,
                    digest,
                    special,
                    ..ExaminedEntryFacts::without_facts(ExaminedEntryKind::Is(kind))
                });
        let answers = [
            (
                ComparisonAnswer::Walked(WalkStep::Names {
                    directory: path("a/b/c"),
                    names: names(&[b"", b"x"]),
                }),
                &walk,
            ),
            (
                ComparisonAnswer::Walked(WalkStep::Failed { path: b"x"[..].into(), detail: "no".into() }),
                &walk,
            ),
            (
                ComparisonAnswer::Walked(WalkStep::Skipped { path: b"x"[..].into(), what: "a pipe".into() }),
                &walk,
            ),
            (ComparisonAnswer::Walked(WalkStep::Over), &walk),
            (ComparisonAnswer::Seen(sights.into()), &look),
            (ComparisonAnswer::Pieces(Ok(vec![[9; 32]; 1_024])), &hash),
            (ComparisonAnswer::Pieces(Err("no".into())), &hash),
        ];
        for (answer, question) in answers {
            for asked in [&walk, &look, &hash] {
                let heard = to_answer(answer_to_message(answer.clone()), asked);
                if asked == question {
                    assert_eq!(heard.unwrap(), answer);
                } else {
                    assert!(heard.is_err(), "{answer:?} to {asked:?}");
                }
            }
        }
    }

    #[test]
    fn metadata_arrive_where_they_are_asked_for() {
        let [_, look, .., with_metadata] = questions();
        let file = ExaminedEntryFacts {
            metadata: Some(Box::new(metadata())),
            ..ExaminedEntryFacts::without_facts(ExaminedEntryKind::Is(BrowsedKind::File))
        };
        let seen =
            ComparisonAnswer::Seen(vec![file, ExaminedEntryFacts::without_facts(ExaminedEntryKind::Nothing)]);
        assert_eq!(to_answer(answer_to_message(seen.clone()), &with_metadata).unwrap(), seen);
        assert!(to_answer(answer_to_message(seen), &look).is_err());
        // An older version leaves them out.
        let none = ComparisonAnswer::Seen(vec![
            ExaminedEntryFacts::without_facts(ExaminedEntryKind::Is(
                BrowsedKind::File
            ));
            2
        ]);
        let refused = to_answer(answer_to_message(none.clone()), &with_metadata);
        assert!(matches!(refused, Err(SessionError::Refused { .. })), "{refused:?}");
        assert!(to_answer(answer_to_message(none), &look).is_ok());
        let wrong: [fn(&mut ExaminedMetadata); 7] = [
            |message| message.mode = 0o10_000,
            |message| message.mtime_ns = 1_000_000_000,
            |message| message.flags = vec![1],
            |message| message.attributes[0].digest = vec![0; 15],
            |message| message.attributes[0].name.clear(),
            |message| message.attributes.push(message.attributes[0].clone()),
            |message| message.user.iter_mut().for_each(|user| user.name.push(b'n')),
        ];
        for change in wrong {
            let mut message = metadata_to_message(metadata());
            assert!(to_metadata(message.clone()).is_ok());
            change(&mut message);
            assert!(to_metadata(message.clone()).is_err(), "{message:?}");
        }
    }

    fn seen(count: usize, digest: &[u8]) -> ControlMessage {
        let sight = VerifyEntryMessage { kind: 1, digest: digest.to_vec(), ..VerifyEntryMessage::default() };
        ControlMessage::Seen(ExaminedEntriesMessage { sights: vec![sight; count] })
    }

    fn values(count: usize) -> ControlMessage {
        ControlMessage::Pieces(PieceDigestsMessage { values: vec![0; count], problem: String::new() })
    }

    fn walked(directory: &[u8], name: &[u8], count: usize) -> ControlMessage {
        let names = vec![name.to_vec(); count];
        ControlMessage::Walked(WalkedNamesMessage {
            directory: directory.into(),
            names,
            ..Default::default()
        })
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let [walk, look, stat, hash, _] = questions();
        assert!(to_answer(seen(2, &[0; 32]), &look).is_ok());
        assert!(to_answer(seen(3, &[0; 32]), &look).is_err());
        assert!(to_answer(seen(2, &[0; 31]), &look).is_err());
        assert!(to_answer(seen(2, &[0; 32]), &stat).is_err(), "nothing was to be read");
        assert!(to_answer(values(32 * 1_024), &hash).is_ok());
        assert!([0, 32, 32 * 1_024 + 1, 32 * 1_025].iter().all(|&n| to_answer(values(n), &hash).is_err()));
        assert!(to_answer(walked(b"a/b", b"x", NAMES_MAX), &walk).is_ok());
        for (directory, name, count) in [
            (&b"a/b"[..], &b"x"[..], NAMES_MAX + 1),
            (b"a/b", b"..", 1),
            (b"a/b", b"x/y", 1),
            (b"a/bc", b"x", 1),
            (b"", b"x", 1),
            (b"a/b/../..", b"x", 1),
            (b"/a/b", b"x", 1),
        ] {
            let heard = to_answer(walked(directory, name, count), &walk);
            assert!(heard.is_err(), "{directory:?} {name:?}");
        }
        for unsound in [
            ControlMessage::HashPieces(HashPiecesRequest {
                piece_bytes: 1 << 10,
                len: 2,
                file_size: 1,
                ..Default::default()
            }),
            ControlMessage::HashPieces(HashPiecesRequest { len: 1, file_size: 1, ..Default::default() }),
            ControlMessage::Look(LookRequest { directory: b"..".to_vec(), ..Default::default() }),
            ControlMessage::Look(LookRequest { names: vec![b"../x".to_vec()], ..Default::default() }),
            ControlMessage::Look(LookRequest {
                names: vec![b"x".to_vec(); NAMES_MAX + 1],
                ..Default::default()
            }),
            ControlMessage::WalkOn(WalkRequest { beneath: b"/".to_vec(), specials: false }),
        ] {
            assert!(to_question(unsound.clone()).is_err(), "{unsound:?}");
        }
    }

    #[test]
    fn the_largest_messages_fit() {
        use carrack_model::limits::{CONTROL_BODY_BYTES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX};
        let deep = vec![b'd'; NAME_BYTES_MAX];
        let deep = RelPath::new(&vec![deep; PATH_BYTES_MAX / 256].join(&b'/')).unwrap();
        let names = vec![Box::from(vec![b'x'; NAME_BYTES_MAX]); NAMES_MAX];
        let look = ExamineQuestion::Look {
            directory: deep.clone(),
            names: names.clone(),
            digests: true,
            metadata: Some(KeptMetadata::ALL),
        };
        let walked = ComparisonAnswer::Walked(WalkStep::Names { directory: deep, names });
        let unreadable = ExaminedEntryFacts::without_facts(ExaminedEntryKind::Unreadable("x".repeat(200)));
        // An existing entry has no reason for being unreadable.
        let sight = ExaminedEntryFacts {
            size: u64::MAX,
            stamp: u64::MAX,
            digest: Some([0; 32]),
            special: Some(SpecialFile::Fifo),
            metadata: Some(Box::new(metadata())),
            ..ExaminedEntryFacts::without_facts(ExaminedEntryKind::Is(BrowsedKind::Device))
        };
        let [unread, seen] = [unreadable, sight].map(|sight| ComparisonAnswer::Seen(vec![sight; NAMES_MAX]));
        for message in [
            question_to_message(&look),
            answer_to_message(walked),
            answer_to_message(unread),
            answer_to_message(seen),
        ] {
            assert!(message.to_body().len() < CONTROL_BODY_BYTES_MAX);
        }
    }
}
