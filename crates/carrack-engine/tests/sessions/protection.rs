//! The guarantees of each protection level against the owner of the network, with real ends on an attacker's
//! network.

use std::fs;
use std::path::Path;
use std::thread;

use carrack_engine::{
    AbortHandle, ControlChannel, ProcessOwnerAccessPolicy, SessionError, SessionRole, TransferRequest,
    copy_with_peer, serve,
};
use carrack_model::{
    AgreedTransferSpec, ObjectChecksumAlgorithm, ProtectionLevel, SealCipher, TransferEvent,
};
use carrack_transport::TransportError;

use crate::common::tap::{Attack, Seen, copy_tapped};
use crate::common::*;

const LIMIT_S: u64 = 120;
const LEVELS: [ProtectionLevel; 3] =
    [ProtectionLevel::Clear, ProtectionLevel::Safe, ProtectionLevel::Private];
const CIPHERS: [SealCipher; 3] = [SealCipher::Aes256Gcm, SealCipher::Aes128Gcm, SealCipher::ChaCha20Poly1305];
const WAYS: [Way; 2] = [Way::Push, Way::Pull];
const SLOT_BYTES: u32 = 128 << 10;
const SECRET: &[u8] = b"the position of the wreck, to the metre: 39.4N 20.6W";

fn sealed(level: ProtectionLevel, cipher: SealCipher, source: &Path, destination: &Path) -> TransferRequest {
    let mut transfer = transfer(&[source], destination);
    transfer.spec = AgreedTransferSpec {
        protection: level,
        cipher,
        slot_bytes: SLOT_BYTES,
        checksum: if level.seals() { ObjectChecksumAlgorithm::None } else { ObjectChecksumAlgorithm::Xxh3 },
        ..transfer.spec
    };
    transfer
}

#[test]
fn every_level_and_cipher_moves_the_same_tree() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    rich_tree(&source);
    for way in WAYS {
        for level in LEVELS {
            for cipher in CIPHERS {
                let destination = dir.path().join(format!("{way:?} {level} {cipher}"));
                let mut transfer = sealed(level, cipher, &source, &destination);
                // The pool has the minimal number of slots: objects wait for credits.
                transfer.settings.pool_bytes = 0;
                let (outcome, recorder) = copy(way, &transfer);
                assert!(outcome.result.is_ok(), "{:?}", outcome.result);
                assert_same(&source, &destination);
                let connected = recorder.events().into_iter().find_map(|event| match event {
                    TransferEvent::Connected { protection, cipher, .. } => Some((protection, cipher)),
                    _ => None,
                });
                assert_eq!(connected, Some((Some(level), level.seals().then_some(cipher))));
            }
        }
    }
}

#[test]
fn the_seal_goes_with_the_checks_of_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    rich_tree(&source);
    let destination = dir.path().join("dst");
    let mut transfer = sealed(ProtectionLevel::Private, SealCipher::Aes256Gcm, &source, &destination);
    (transfer.spec.checksum, transfer.spec.report_digests) = (ObjectChecksumAlgorithm::Blake3, true);
    let (outcome, recorder) = copy(Way::Push, &transfer);
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_same(&source, &destination);
    let digests =
        recorder.events().into_iter().filter(|event| matches!(event, TransferEvent::FileDigest { .. }));
    assert_eq!(digests.count() as u64, outcome.summary.files_done);
}

/// The responder decides the least protection that it accepts; the initiator's request can't lower it.
#[test]
fn less_protection_needs_a_word_at_both_ends() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("src/f"), b"abc");
    for (least, asked, is_let) in [
        (ProtectionLevel::Private, ProtectionLevel::Private, true),
        (ProtectionLevel::Private, ProtectionLevel::Safe, false),
        (ProtectionLevel::Private, ProtectionLevel::Clear, false),
        (ProtectionLevel::Safe, ProtectionLevel::Private, true),
        (ProtectionLevel::Safe, ProtectionLevel::Safe, true),
        (ProtectionLevel::Safe, ProtectionLevel::Clear, false),
        (ProtectionLevel::Clear, ProtectionLevel::Clear, true),
    ] {
        for role in [SessionRole::Source, SessionRole::Sink] {
            let destination = dir.path().join(format!("{least} {asked} {role:?}"));
            let transfer = sealed(asked, SealCipher::Aes256Gcm, &dir.path().join("src"), &destination);
            let (here, (input, output)) = channel();
            let serving = thread::spawn(move || {
                let access_policy = ProcessOwnerAccessPolicy::over_ssh(least);
                serve(ControlChannel::Pipes { input, output }, &access_policy, &AbortHandle::new().unwrap())
            });
            let recorder = Recorder::default();
            let outcome =
                copy_with_peer(&transfer, role, peer(here), &recorder, &AbortHandle::new().unwrap());
            let served = serving.join().unwrap();
            assert_eq!(outcome.result.is_ok(), is_let, "{least} {asked}: {:?}", outcome.result);
            assert_eq!(served.result.is_ok(), is_let);
            assert_eq!(destination.exists(), is_let, "a refusal touches nothing");
            if let Err(SessionError::Refused { message, hint }) = outcome.result {
                assert!(message.contains(asked.name()) && message.contains(least.name()), "{message}");
                assert!(hint.unwrap().contains("--protection"));
            }
        }
    }
}

/// Makes a file of several frames on each connection, and small files.
fn secrets(root: &Path) {
    write(&root.join("large"), &SECRET.repeat(40_000));
    for i in 0..50 {
        write(&root.join(format!("a telling name {i}")), SECRET);
    }
}

fn tapped(way: Way, level: ProtectionLevel, attack: Attack) -> (Result<(), SessionError>, bool, Seen) {
    within(LIMIT_S, move || {
        let dir = tempfile::tempdir().unwrap();
        let (source, destination) = (dir.path().join("src"), dir.path().join("dst"));
        secrets(&source);
        let mut transfer = sealed(level, SealCipher::Aes256Gcm, &source, &destination);
        transfer.spec.streams = 2;
        let (outcome, _, seen) = copy_tapped(way, &transfer, attack);
        // After any attack, a file with its final name has its content.
        let found = if destination.exists() { snapshot(&destination) } else { Default::default() };
        for (path, kept) in found {
            if source.join(&path).is_file() {
                assert!(
                    fs::read(source.join(&path)).unwrap() == fs::read(destination.join(&path)).unwrap(),
                    "{kept}"
                );
            }
        }
        assert_clean(&destination);
        let is_complete = outcome.result.is_ok() && outcome.summary.entries_failed == 0;
        (outcome.result, is_complete, seen)
    })
}

fn holds(seen: &Seen, words: &[u8]) -> bool {
    seen.bytes.windows(words.len()).any(|window| window == words)
}

#[test]
fn private_shows_nothing_and_the_others_do() {
    for way in WAYS {
        for level in LEVELS {
            let (result, is_complete, seen) = tapped(way, level, Attack::None);
            assert!(is_complete, "{result:?}");
            assert!(seen.frames > 8 && seen.bytes.len() > 40_000 * SECRET.len(), "the wire was tapped");
            let is_readable = level != ProtectionLevel::Private;
            assert_eq!(holds(&seen, SECRET), is_readable, "{level}: contents");
            assert_eq!(holds(&seen, b"a telling name"), is_readable, "{level}: names");
        }
    }
}

#[test]
fn whatever_the_network_does_to_sealed_frames_is_refused() {
    let mut attacks = vec![
        Attack::FlipLast { frame: 0 },
        Attack::FlipLast { frame: 3 },
        Attack::Drop { frame: 0 },
        Attack::Drop { frame: 1 },
        Attack::Repeat { frame: 0 },
        Attack::Repeat { frame: 2 },
        Attack::Swap { frame: 0 },
        Attack::Swap { frame: 2 },
        Attack::CutAfter { frames: 1 },
        Attack::CutWithin { frame: 1 },
        Attack::Cross,
    ];
    // All fields of the header, the tag, and the first byte of the body.
    let bytes = [0, 4, 5, 6, 8, 12, 16, 24, 32, 40, 44, 48, 79, 80, 95, 96];
    attacks.extend(bytes.map(|byte| Attack::Flip { frame: 1, byte }));
    // Some attacks end by a timeout: all run at the same time.
    thread::scope(|scope| {
        for (number, &attack) in attacks.iter().enumerate() {
            for level in [ProtectionLevel::Safe, ProtectionLevel::Private] {
                scope.spawn(move || refuses(WAYS[number % 2], level, attack));
            }
        }
    });
}

fn refuses(way: Way, level: ProtectionLevel, attack: Attack) {
    // One of the two connections may carry too few frames for the attack.
    let mut tries = (0..20).map(|_| tapped(way, level, attack));
    let (result, ..) = tries.find(|(_, _, seen)| seen.attacked).expect("an attack");
    let error = result.expect_err(&format!("{level} {attack:?} went unnoticed"));
    let is_seal = matches!(error, SessionError::Transport(TransportError::Seal(_)))
        || error.to_string().contains("seal of an object");
    // A damaged header and a cut have errors of their own.
    let may_be_another = matches!(
        attack,
        Attack::Flip { byte: ..80, .. } | Attack::CutAfter { .. } | Attack::CutWithin { .. }
    );
    assert!(is_seal || may_be_another, "{way:?} {level} {attack:?}: {error}");
}

/// Seals protect from a network that computes the check: in clear, it can repeat small files unnoticed, for
/// example.
#[test]
fn in_clear_a_network_may_repeat_what_it_likes() {
    let (result, _, _) = tapped(Way::Push, ProtectionLevel::Clear, Attack::FlipLast { frame: 0 });
    assert!(result.is_ok(), "an accident is read again: {result:?}");
}
