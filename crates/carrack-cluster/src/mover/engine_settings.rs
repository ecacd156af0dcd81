//! Conversion of a transfer's options to the engine's settings.

use std::time::Duration;

use carrack_engine::EndSettings;
use carrack_model::{AgreedTransferSpec, Durability, ObjectChecksumAlgorithm};
use carrack_options::{SubmissionExecutorKind, UserError};

use crate::transfer_records::{TransferOptions, is_name};

/// Silence of the other end after which a session ends: less than the time after which its chunks are
/// redelivered, and more than a connection may starve among many on a slow link (retransmissions back off to
/// 13 s, RFC 6298).
const STALL: Duration = Duration::from_secs(20);

/// Returns the values on which both ends of a pair agree, and the local ones.
///
/// # Errors
/// An option that a fleet does not have, or a value that it can't have there.
pub fn spec_and_settings(options: &TransferOptions) -> Result<(AgreedTransferSpec, EndSettings), UserError> {
    options.check(SubmissionExecutorKind::Fleet)?;
    let values = options.values()?;
    let (spec, settings) = (values.spec()?, values.settings()?);
    let checksum = match values.transfer().checksum() {
        Some(ObjectChecksumAlgorithm::Blake3) => {
            let message =
                "--checksum blake3 is assembled from all parts of a file, which several movers bring";
            return Err(UserError::new(message).hint("take xxh3, and `carrack verify` afterwards"));
        }
        Some(checksum) => checksum,
        // The seal checks sealed data.
        None if spec.protection.seals() => ObjectChecksumAlgorithm::None,
        None => ObjectChecksumAlgorithm::default(),
    };
    if settings.journal.durability == Durability::End {
        return Err(UserError::new("a fleet has no --durability end").hint("take each or group"));
    }
    let leaves_existing = spec.sync.as_ref().is_some_and(|sync| sync.ignore_existing);
    if settings.fidelity.kept.file_flags && leaves_existing {
        let message = "a fleet has no --file-flags with --ignore-existing: flags are set at the end, when nobody knows what was there before";
        return Err(UserError::new(message).hint("leave one of them out; a machine's queue has both"));
    }
    if !settings.class.is_empty() && !is_name(&settings.class) {
        let message = format!("{:?} can't name a class", settings.class);
        return Err(UserError::new(message).hint("letters, digits, '-' and '_' can"));
    }
    let settings = EndSettings {
        stall: STALL,
        // Modes are kept by default: otherwise new entries would have the umask of the mover that makes them.
        fidelity: values.transfer().fidelity().with_modes(),
        // The deadline is for the whole transfer; its manager keeps it.
        deadline: None,
        ..settings
    };
    Ok((AgreedTransferSpec { checksum, ..spec }, settings))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::{SystemTime, UNIX_EPOCH};

    use carrack_model::{
        KeptMetadata, MetadataFidelity, ProtectionLevel, RelPath, SchedulingOptions, SchedulingPolicyChoice,
        SinkIoMethod, SourceReadMethod,
    };
    use carrack_storage::{FilteredDirectory, ScanFilter};

    use super::*;

    #[test]
    fn what_is_not_said_is_as_with_cp() {
        let (spec, settings) = spec_and_settings(&TransferOptions::default()).unwrap();
        assert_eq!(
            (spec.protection, spec.checksum),
            (ProtectionLevel::Private, ObjectChecksumAlgorithm::None)
        );
        assert_eq!(settings.pool_bytes, EndSettings::default().pool_bytes);
        assert_eq!(
            spec_and_settings(&asking(&["--protection=clear"])).unwrap().0.checksum,
            ObjectChecksumAlgorithm::default()
        );
    }

    #[test]
    fn what_concerns_storage_is_carried_out() {
        let options = asking(&[
            "--policy=adaptive",
            "--nice",
            "--bwlimit=9",
            "--bwlimit-per-target=7",
            "--max-inflight-per-target=3",
            "--source-io=direct",
            "--sink-io=writeback",
            "--io-threads=5",
            "--class=urgent",
        ]);
        let (_, settings) = spec_and_settings(&options).unwrap();
        let policy = SchedulingPolicyChoice::Adaptive { nice: true };
        assert_eq!(
            settings.scheduling,
            SchedulingOptions { policy, rate: 9, target_rate: 7, in_flight_max: 3 }
        );
        assert_eq!(
            (settings.source_io, settings.sink_io, settings.io_threads, &*settings.class),
            (SourceReadMethod::Direct, SinkIoMethod::Writeback, 5, "urgent")
        );
    }

    /// The record has the timetable as text: each mover evaluates it by its own clock, when a session begins.
    #[test]
    fn a_timetable_is_followed_by_the_mover_that_reads() {
        let (_, settings) = spec_and_settings(&asking(&["--bwlimit=00:00-12:00 7, 12:00-24:00 9"])).unwrap();
        assert_eq!(settings.scheduling.rate, 9);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let rates = settings.timetable.unwrap();
        let half_days =
            (0..4).map(|half_days| rates.rate_at(now + half_days * Duration::from_secs(12 * 3_600)));
        assert!(half_days.collect::<BTreeSet<u64>>() == BTreeSet::from([7, 9]));
    }

    fn asking(words: &[&str]) -> TransferOptions {
        TransferOptions::from_words(words).unwrap()
    }

    fn kept(words: &[&str]) -> MetadataFidelity {
        spec_and_settings(&asking(words)).unwrap().1.fidelity
    }

    fn filter(words: &[&str]) -> Option<ScanFilter> {
        ScanFilter::new(&spec_and_settings(&asking(words)).unwrap().1.selection).unwrap()
    }

    #[test]
    fn files_keep_what_is_asked_for_and_their_modes() {
        assert_eq!(kept(&[]), MetadataFidelity { perms: true, ..MetadataFidelity::default() });
        assert_eq!(kept(&["--no-perms"]), MetadataFidelity::default());
        let archive = KeptMetadata { file_flags: false, ..KeptMetadata::ALL };
        assert_eq!(
            kept(&["--archive", "--strict"]),
            MetadataFidelity { kept: archive, perms: true, ..MetadataFidelity::default() }
        );
        let some = KeptMetadata { attributes: true, hard_links: true, ..KeptMetadata::default() };
        assert_eq!(kept(&["--xattrs", "--hard-links"]).kept, some);
    }

    #[test]
    fn what_is_left_out_is_no_part_of_a_scan() {
        assert!(filter(&["--archive"]).is_none());
        let patterns = filter(&["--exclude=*.o", "--include=keep.o", "--newer=@7"]).unwrap();
        let root = RelPath::root();
        let directory = FilteredDirectory { at_source: &root, at_sink: &root, rules: None };
        assert!(patterns.excludes(directory, b"a.o", false));
        assert!(!patterns.excludes(directory, b"keep.o", false));
        for option in ["--filter", "--rclone-filter"] {
            let rules = filter(&[&format!("{option}=+ keep.o"), &format!("{option}=- *.o")]).unwrap();
            assert!(rules.excludes(directory, b"a.o", false) && !rules.excludes(directory, b"keep.o", false));
        }
    }

    /// A new option needs a decision here about its treatment by a fleet.
    #[test]
    fn every_option_acts_or_is_refused_with_a_reason() {
        let plain = spec_and_settings(&TransferOptions::default()).unwrap();
        let mut idle = Vec::new();
        for (name, words) in carrack_options::samples() {
            if name == "from0" || name.ends_with("-from") && name != "connect-from" {
                // The submission turns it into patterns and paths.
                continue;
            }
            let (mut others, own) = (words.clone(), words.last().cloned().unwrap());
            others.pop();
            let Ok(asked) = TransferOptions::from_words(&words) else {
                assert!(
                    SubmissionExecutorKind::Fleet.refusal(name).is_some(),
                    "{own} is refused everywhere, and not said to be"
                );
                continue;
            };
            match (spec_and_settings(&asked), SubmissionExecutorKind::Fleet.refusal(name)) {
                (Err(trouble), Some(_)) => {
                    assert!(trouble.hint.is_some_and(|hint| !hint.is_empty()), "{own}")
                }
                (Err(trouble), None) => panic!("{own} is not in the table: {trouble}"),
                (Ok(_), Some(_)) => panic!("{own} should be refused"),
                (Ok(found), None) => {
                    let without = TransferOptions::from_words(&others).unwrap();
                    let base =
                        if others.is_empty() { plain.clone() } else { spec_and_settings(&without).unwrap() };
                    let is_idle = asked.pairs() == without.pairs()
                        && asked.chunk_bytes() == without.chunk_bytes()
                        && asked.is_strict() == without.is_strict()
                        && asked.deadline_ms() == without.deadline_ms();
                    if found == base && is_idle {
                        idle.push(own);
                    }
                }
            }
        }
        // A fleet keeps modes anyway.
        assert_eq!(idle, ["--perms"]);
    }

    #[test]
    fn what_a_fleet_does_not_have_is_refused() {
        for word in
            ["--checksum=blake3", "--durability=end", "--class=two words", "--delete-before", "--retry=3"]
        {
            let trouble = spec_and_settings(&asking(&[word])).unwrap_err();
            assert!(trouble.hint.is_some(), "{trouble}");
        }
        assert!(
            spec_and_settings(&asking(&["--file-flags", "--ignore-existing"])).unwrap_err().hint.is_some()
        );
        assert!(spec_and_settings(&asking(&["--file-flags", "--update"])).is_ok());
        for word in [
            "--policy=fifo",
            "--files-from=list",
            "--pairs=0",
            "--bwlimit=0",
            "--verify=never",
            "--exclude={a",
        ] {
            assert!(TransferOptions::from_words(&[word]).is_err(), "{word}");
        }
    }
}
