//! Whole transfers between two ends in this process: the copies equal the sources.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use carrack_model::{
    AgreedTransferSpec, DialingEnd, ObjectChecksumAlgorithm, ProtectionLevel, SealCipher, TransferEvent,
    TransferSummary,
};

use crate::common::*;

#[test]
fn a_rich_tree_arrives_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    rich_tree(&source);
    for way in WAYS {
        for checksum in
            [ObjectChecksumAlgorithm::None, ObjectChecksumAlgorithm::Xxh3, ObjectChecksumAlgorithm::Blake3]
        {
            let destination = dir.path().join(format!("{way:?}-{checksum}"));
            let mut transfer = transfer(&[&source], &destination);
            transfer.spec.checksum = checksum;
            let outcome = copy_well(way, &transfer);
            assert_same(&source, &destination);
            assert_eq!(outcome.summary.files_done, 318);
            assert_eq!(outcome.summary.symlinks_done, 3);
            assert_eq!(outcome.summary.directories_done, 13);
        }
    }
}

/// Where the holes of the last files no longer fit into a bundle's table, the next bundle takes these files.
#[test]
fn small_files_keep_their_holes_in_full_bundles() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let source = dir.path().join("src");
    fs::create_dir(&source).unwrap();
    for number in 0..3_000_u64 {
        let file = File::create(source.join(format!("f{number}"))).unwrap();
        file.set_len(8_192 + number * 7 % 1_000).unwrap();
        file.write_all_at(b"data", 0).unwrap();
    }
    if fs::metadata(source.join("f0")).unwrap().blocks() * 512 >= 8_192 {
        println!("skipped: no holes on the file system of {}", source.display());
        return;
    }
    for way in WAYS {
        let destination = dir.path().join(format!("{way:?}"));
        let mut transfer = transfer(&[&source.join("")], &destination);
        transfer.spec.slot_bytes = 128 << 10;
        copy_well(way, &transfer);
        assert_same(&source, &destination);
        for number in 0..3_000 {
            let found = fs::metadata(destination.join(format!("f{number}"))).unwrap();
            assert!(found.blocks() * 512 < found.len(), "f{number}: {} blocks", found.blocks());
        }
    }
}

#[test]
fn small_slots_and_few_of_them_suffice() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    rich_tree(&source);
    for (number, (way, streams)) in [(Way::Push, 1), (Way::Pull, 5), (Way::Local, 3)].into_iter().enumerate()
    {
        let destination = dir.path().join(format!("dst{number}"));
        let mut transfer = transfer(&[&source], &destination);
        transfer.spec = AgreedTransferSpec { slot_bytes: 128 << 10, streams, ..transfer.spec };
        transfer.settings.pool_bytes = 0;
        transfer.settings.io_threads = 6;
        copy_well(way, &transfer);
        assert_same(&source, &destination);
    }
}

#[test]
fn every_way_of_connecting_moves_the_data() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    rich_tree(&source);
    for way in [Way::Push, Way::Pull] {
        for dial_from in [DialingEnd::Either, DialingEnd::Source, DialingEnd::Sink] {
            let destination = dir.path().join(format!("{way:?}-{dial_from:?}"));
            let mut transfer = transfer(&[&source], &destination);
            transfer.spec.dial_from = dial_from;
            let (outcome, recorder) = copy(way, &transfer);
            assert!(outcome.result.is_ok(), "{:?}", outcome.result);
            assert_same(&source, &destination);
            assert!(recorder.events().contains(&TransferEvent::Connected {
                streams: 2,
                lanes: 1,
                transport: "tcp",
                protection: Some(ProtectionLevel::Private),
                cipher: Some(SealCipher::Aes256Gcm),
            }));
        }
    }
}

#[test]
fn without_a_port_the_data_takes_the_control_channel() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    rich_tree(&source);
    let taken =
        std::net::TcpListener::bind("[::]:0").or_else(|_| std::net::TcpListener::bind("0.0.0.0:0")).unwrap();
    let port = taken.local_addr().unwrap().port();
    for way in [Way::Push, Way::Pull] {
        let destination = dir.path().join(format!("{way:?}"));
        let mut transfer = transfer(&[&source], &destination);
        transfer.settings.ports = Some(port..=port);
        let (outcome, recorder) = copy(way, &transfer);
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        assert_same(&source, &destination);
        let events = recorder.events();
        assert!(events.contains(&TransferEvent::Connected {
            streams: 0,
            lanes: 1,
            transport: "ssh pipe",
            protection: Some(ProtectionLevel::Private),
            cipher: None,
        }));
        let warned = |event: &TransferEvent| matches!(event, TransferEvent::Notice(carrack_model::UserNotice::Warning(text)) if text.contains("ssh pipe"));
        assert!(events.iter().any(warned), "{events:?}");
    }
}

#[test]
fn digests_are_those_of_the_contents() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    rich_tree(&source);
    for way in WAYS {
        let destination = dir.path().join(format!("{way:?}"));
        let mut transfer = transfer(&[&source], &destination);
        transfer.spec.checksum = ObjectChecksumAlgorithm::Blake3;
        transfer.spec.report_digests = true;
        let (outcome, recorder) = copy(way, &transfer);
        assert!(outcome.result.is_ok());
        let mut count = 0;
        for event in recorder.events() {
            let TransferEvent::FileDigest { path, size, digest } = event else { continue };
            let content = fs::read(
                destination
                    .join(std::ffi::OsStr::new(std::str::from_utf8(&path).unwrap_or("names/\u{fffd}"))),
            );
            let Ok(content) = content else { continue };
            assert_eq!((content.len() as u64, *blake3::hash(&content).as_bytes()), (size, digest));
            count += 1;
        }
        assert_eq!(count, 317, "all but the name that is not UTF-8");
    }
}

#[test]
fn what_stands_there_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    rich_tree(&source);
    for way in WAYS {
        let destination = dir.path().join(format!("{way:?}"));
        fs::create_dir(&destination).unwrap();
        copy_well(way, &transfer(&[&source.join("")], &destination));
        write(&destination.join("sizes/1"), b"something longer than before");
        write(&destination.join("sizes/5000000"), b"short");
        fs::remove_file(destination.join("link")).unwrap();
        write(&destination.join("link"), b"not a link");
        copy_well(way, &transfer(&[&source.join("")], &destination));
        assert_same(&source, &destination);
        assert_clean(&destination);
    }
}

#[test]
fn a_dry_run_lists_and_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    rich_tree(&source);
    for way in WAYS {
        let destination = dir.path().join("dst");
        let mut transfer = transfer(&[&source], &destination);
        transfer.spec.dry_run = true;
        let (outcome, recorder) = copy(way, &transfer);
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        assert_eq!(outcome.summary, TransferSummary::default());
        assert!(!destination.exists());
        let lines =
            recorder.events().iter().filter(|event| matches!(event, TransferEvent::WouldCopy { .. })).count();
        assert_eq!(lines, 318 + 3 + 12);
    }
}

#[test]
fn several_sources_and_single_files() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("a/one"), b"1");
    write(&dir.path().join("b"), b"22");
    write(&dir.path().join("big"), &noise(3_000_000, 3));
    for way in WAYS {
        let into = dir.path().join(format!("{way:?}"));
        let (a, b, big) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("big"));
        copy_well(way, &transfer(&[&a, &b, &big, &b], &into));
        assert_eq!(fs::read(into.join("a/one")).unwrap(), b"1");
        assert_eq!(fs::read(into.join("b")).unwrap(), b"22");
        assert_eq!(fs::read(into.join("big")).unwrap(), noise(3_000_000, 3));
        let renamed = dir.path().join(format!("{way:?}-renamed"));
        copy_well(way, &transfer(&[&big], &renamed));
        assert_eq!(fs::read(renamed).unwrap(), noise(3_000_000, 3));
    }
}
