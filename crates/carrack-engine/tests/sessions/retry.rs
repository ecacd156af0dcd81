//! Networks that break and stall: a run continues in another session, and slow progress is not a stall.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use carrack_engine::{
    AbortHandle, FurthestSessionPoint, PeerChannel, SessionError, SessionRole, TransferOutcome,
    TransferRequest, copy_with_peer, run_with_retries,
};
use carrack_model::{ProtectionLevel, TransferEvent, UserNotice};

use crate::common::tap::{Attack, serve_tapped};
use crate::common::*;

const LIMIT_S: u64 = 120;

/// The smallest stall timeout.
const STALL: Duration = Duration::from_secs(1);

/// A source, and a destination for its contents.
struct World {
    root: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let root = tempfile::tempdir().unwrap();
        rich_tree(&root.path().join("src"));
        fs::create_dir(root.path().join("dst")).unwrap();
        World { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Returns the transfer of the source's contents.
    fn transfer(&self) -> TransferRequest {
        let mut transfer = transfer(&[&self.path("src/")], &self.path("dst/"));
        transfer.settings.stall = STALL;
        transfer
    }

    fn assert_copied(&self, outcome: &TransferOutcome) {
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        assert_same(&self.path("src"), &self.path("dst"));
        assert_clean(&self.path("dst"));
    }
}

fn role(way: Way) -> SessionRole {
    if way == Way::Push { SessionRole::Source } else { SessionRole::Sink }
}

/// Returns a far end behind a control channel that carries `bytes` bytes in each direction, and then closes
/// or, with `stalls`, forwards nothing more.
fn breaking(bytes: Option<usize>, stalls: bool) -> PeerChannel {
    let (caller, caller_side) = channel();
    let (served, served_side) = channel();
    for (from, to) in [(caller_side.0, served_side.1), (served_side.0, caller_side.1)] {
        thread::spawn(move || pass(from, to, bytes.unwrap_or(usize::MAX), stalls));
    }
    thread::spawn(move || serve_any(served, &AbortHandle::new().unwrap()));
    peer(caller)
}

fn pass(from: OwnedFd, to: OwnedFd, bytes: usize, stalls: bool) {
    let (mut from, mut to) = (fs::File::from(from), fs::File::from(to));
    let mut left = bytes;
    let mut buffer = [0; 4096];
    while left > 0 {
        let most = left.min(buffer.len());
        match from.read(&mut buffer[..most]) {
            Ok(count @ 1..) if to.write_all(&buffer[..count]).is_ok() => left -= count,
            _ => return,
        }
    }
    if stalls {
        let _ = std::io::copy(&mut from, &mut std::io::sink());
    }
}

/// Runs a transfer with one far end for each session; returns the number of sessions as well.
fn run(
    way: Way,
    transfer: &TransferRequest,
    retries: u32,
    mut far_end: impl FnMut(usize) -> PeerChannel,
) -> (TransferOutcome, usize, Recorder) {
    let (recorder, abort, mut count) = (Recorder::default(), AbortHandle::new().unwrap(), 0);
    let outcome = run_with_retries(retries, &recorder, &abort, &mut |_| {
        let peer = far_end(count);
        count += 1;
        copy_with_peer(transfer, role(way), peer, &recorder, &abort)
    });
    (outcome, count, recorder)
}

fn warnings(recorder: &Recorder) -> Vec<String> {
    let text = |event: &TransferEvent| match event {
        TransferEvent::Notice(UserNotice::Warning(text)) => Some(text.clone()),
        _ => None,
    };
    recorder.events().iter().filter_map(text).collect()
}

#[test]
fn a_control_channel_that_is_cut_anywhere_is_followed_by_another() {
    for way in [Way::Push, Way::Pull] {
        // The limits are in the hello, in the welcome, in the setup of the data connections, and later.
        for bytes in [40, 200, 700, 1_000, 1_500, 2_500] {
            within(LIMIT_S, move || {
                let world = World::new();
                let far_end = |count| breaking((count < 2).then_some(bytes), false);
                let (outcome, _, recorder) = run(way, &world.transfer(), 3, far_end);
                world.assert_copied(&outcome);
                let told = warnings(&recorder);
                assert!(
                    told.iter().all(|text| text.contains("trying again in")),
                    "{way:?} {bytes}: {told:?}"
                );
            });
        }
    }
}

#[test]
fn objects_over_the_control_channel_go_on_too() {
    for way in [Way::Push, Way::Pull] {
        within(LIMIT_S, move || {
            let world = World::new();
            let mut transfer = world.transfer();
            // The only allowed port is taken: the control channel carries the objects.
            let taken = std::net::TcpListener::bind("[::]:0").unwrap();
            let port = taken.local_addr().unwrap().port();
            transfer.settings.ports = Some(port..=port);
            let (outcome, count, recorder) =
                run(way, &transfer, 3, |count| breaking((count < 2).then_some(3_000_000), false));
            world.assert_copied(&outcome);
            assert_eq!(count, 3, "{:?}", warnings(&recorder));
        });
    }
}

#[test]
fn data_connections_that_break_are_followed_by_others() {
    for way in [Way::Push, Way::Pull] {
        for attack in
            [Attack::CutWithin { frame: 1 }, Attack::CutAfter { frames: 1 }, Attack::FlipLast { frame: 1 }]
        {
            within(LIMIT_S, move || {
                let world = World::new();
                let transfer = world.transfer();
                let (outcome, count, recorder) = run(way, &transfer, 3, |count| {
                    serve_tapped(way, &transfer, if count == 0 { attack } else { Attack::None }).0
                });
                world.assert_copied(&outcome);
                assert_eq!(count, 2, "{way:?} {attack:?}: {:?}", warnings(&recorder));
            });
        }
    }
}

#[test]
fn gives_up_after_tries_that_moved_nothing() {
    within(LIMIT_S, || {
        let world = World::new();
        let (outcome, count, recorder) = run(Way::Push, &world.transfer(), 2, |_| breaking(Some(40), false));
        assert!(outcome.result.as_ref().is_err_and(SessionError::is_retryable), "{:?}", outcome.result);
        assert_eq!((count, warnings(&recorder).len(), outcome.advance), (3, 2, FurthestSessionPoint::None));
        let (outcome, count, _) = run(Way::Push, &world.transfer(), 0, |_| breaking(Some(40), false));
        assert!(outcome.result.is_err());
        assert_eq!(count, 1);
    });
}

#[test]
fn what_would_be_the_same_again_is_not_tried_again() {
    within(LIMIT_S, || {
        let world = World::new();
        let nowhere = TransferRequest { destination: world.path("no/such/place"), ..world.transfer() };
        for (way, transfer) in [(Way::Push, &nowhere), (Way::Pull, &nowhere)] {
            let (outcome, count, _) = run(way, transfer, 8, |_| breaking(None, false));
            assert!(matches!(outcome.result, Err(SessionError::Refused { .. })), "{:?}", outcome.result);
            assert_eq!(count, 1);
        }
        let mut weaker = world.transfer();
        weaker.spec.protection = ProtectionLevel::Safe;
        let strict = |_| {
            let (here, (input, output)) = channel();
            thread::spawn(move || {
                let access_policy =
                    carrack_engine::ProcessOwnerAccessPolicy::over_ssh(ProtectionLevel::Private);
                carrack_engine::serve(
                    carrack_engine::ControlChannel::Pipes { input, output },
                    &access_policy,
                    &AbortHandle::new().unwrap(),
                )
            });
            peer(here)
        };
        let (outcome, count, _) = run(Way::Push, &weaker, 8, strict);
        assert!(matches!(outcome.result, Err(SessionError::Refused { .. })), "{:?}", outcome.result);
        assert_eq!(count, 1);
    });
}

/// Returns the error of one session with this far end, and its duration.
fn timed(way: Way, transfer: &TransferRequest, peer: PeerChannel) -> (SessionError, Duration) {
    let began = Instant::now();
    let outcome =
        copy_with_peer(transfer, role(way), peer, &Recorder::default(), &AbortHandle::new().unwrap());
    (outcome.result.unwrap_err(), began.elapsed())
}

/// Twice the timeout, and the time in which a busy machine begins a session.
const NOTICED: Duration = Duration::from_secs(2 * STALL.as_secs() + 3);

#[test]
fn an_end_that_is_silent_is_dead() {
    for way in [Way::Push, Way::Pull] {
        within(LIMIT_S, move || {
            let world = World::new();
            // The file exceeds the buffers, so that the session is established when the channel falls silent.
            write(&world.path("src/large"), &noise(40_000_000, 9));
            let mut transfer = world.transfer();
            transfer.settings.scheduling.rate = 2_000_000;
            let (error, elapsed) = timed(way, &transfer, breaking(Some(6_000), true));
            assert!(matches!(error, SessionError::PeerStalled(1)), "{way:?}: {error:?}");
            assert!(elapsed >= STALL && elapsed < NOTICED + Duration::from_secs(10), "{way:?}: {elapsed:?}");
        });
    }
}

#[test]
fn data_that_stops_on_its_way_is_a_stall_and_the_next_session_brings_it() {
    for way in [Way::Push, Way::Pull] {
        for attack in [Attack::StallWithin { frame: 0 }, Attack::StallBefore { frame: 1 }] {
            within(LIMIT_S, move || {
                let world = World::new();
                let transfer = world.transfer();
                let (error, elapsed) = timed(way, &transfer, serve_tapped(way, &transfer, attack).0);
                let is_it = matches!(error, SessionError::Stalled(1) | SessionError::PeerLeft { .. });
                assert!(is_it && error.to_string().contains("nothing has moved on the data"), "{error:?}");
                assert!(elapsed >= STALL && elapsed < NOTICED, "{way:?} {attack:?}: {elapsed:?}");
                let (outcome, count, _) = run(way, &transfer, 3, |count| {
                    serve_tapped(way, &transfer, if count == 0 { attack } else { Attack::None }).0
                });
                world.assert_copied(&outcome);
                assert_eq!(count, 2);
            });
        }
    }
}

#[test]
fn slow_storage_is_waited_for() {
    for way in [Way::Push, Way::Pull] {
        within(LIMIT_S, move || {
            let world = World::new();
            let transfer = world.transfer();
            let peer = serve_tapped(way, &transfer, Attack::StallBusy { frame: 1 }).0;
            let abort = AbortHandle::new().unwrap();
            let ending = abort.clone();
            let waiting = thread::spawn(move || {
                assert!(!ending.wait(4 * STALL), "nobody else ends it");
                ending.interrupt();
            });
            let outcome = copy_with_peer(&transfer, role(way), peer, &Recorder::default(), &abort);
            waiting.join().unwrap();
            assert!(outcome.result.as_ref().is_err_and(SessionError::is_interrupted), "{:?}", outcome.result);
        });
    }
}

#[test]
fn an_end_that_has_to_go_says_that_one_may_come_again() {
    within(LIMIT_S, || {
        let world = World::new();
        write(&world.path("src/large"), &noise(40_000_000, 9));
        let mut transfer = world.transfer();
        transfer.settings.scheduling.rate = 4_000_000;
        let (here, there) = channel();
        let abort = AbortHandle::new().unwrap();
        let going = abort.clone();
        let serving = thread::spawn(move || serve_any(there, &abort));
        let leaving = thread::spawn(move || {
            thread::sleep(Duration::from_secs(1));
            going.interrupt_locally();
        });
        let (error, _) = timed(Way::Push, &transfer, peer(here));
        leaving.join().unwrap();
        assert!(matches!(error, SessionError::PeerLeft { .. }) && error.is_retryable(), "{error:?}");
        assert!(matches!(serving.join().unwrap().result, Err(SessionError::Dismissed)));
    });
}
