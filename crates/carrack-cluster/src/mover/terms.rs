//! From what a transfer's record says to what the engine works by.

use std::str::FromStr;
use std::time::Duration;

use carrack_engine::{JournalSettings, Settings};
use carrack_model::limits::{IO_THREADS_MAX, SLOT_BYTES_DEFAULT, STREAMS_MAX};
use carrack_model::{
    Checksum, Durability, Fidelity, FidelityOptions, PolicyChoice, Protection, Scheduling, SinkIo, SourceIo,
    TransferSpec, Verify,
};

use crate::records::{Options, is_name};

/// A session whose other end is silent for so long ends: within the time after which its chunks would be delivered again, and longer
/// than a connection may starve among many on a slow link (retransmissions back off to 13 s, RFC 6298).
const STALL: Duration = Duration::from_secs(20);

/// What both ends of a pair agree on, and what they need not.
///
/// # Errors
/// An option with a value that it can't have, in words.
pub fn terms(options: &Options) -> Result<(TransferSpec, Settings), String> {
    let protection = parsed("protection", options.protection.as_deref())?.unwrap_or(Protection::Private);
    let checksum = match parsed("checksum", options.checksum.as_deref())? {
        Some(Checksum::Blake3) => {
            return Err(
                "checksum: blake3 is assembled from all parts of a file, which several movers bring; \
                        take xxh3, and `carrack verify` afterwards"
                    .to_owned(),
            );
        }
        Some(checksum) => checksum,
        // What is sealed is checked by its seal.
        None if protection.seals() => Checksum::None,
        None => Checksum::default(),
    };
    let streams = options.streams.unwrap_or(0);
    if usize::from(streams) > STREAMS_MAX {
        return Err(format!("streams: {streams} are more than {STREAMS_MAX}"));
    }
    let spec = TransferSpec {
        recursive: true,
        checksum,
        protection,
        cipher: parsed("cipher", options.cipher.as_deref())?.unwrap_or_default(),
        slot_bytes: options.object_bytes.unwrap_or(SLOT_BYTES_DEFAULT as u32),
        streams,
        ..TransferSpec::default()
    };
    for (option, most) in [
        ("pairs_max", options.pairs_max.map(u64::from)),
        ("chunk_bytes", options.chunk_bytes),
        ("limit_bytes_per_s", options.limit_bytes_per_s),
        ("limit_bytes_per_s_per_target", options.limit_bytes_per_s_per_target),
    ] {
        if most == Some(0) {
            return Err(format!("{option}: with 0 nothing moves; leave it out, or pause the transfer"));
        }
    }
    let io_threads = usize::from(options.io_threads.unwrap_or(0));
    if io_threads > IO_THREADS_MAX {
        return Err(format!("io_threads: {io_threads} are more than {IO_THREADS_MAX}"));
    }
    if options.deadline_ms.is_some() {
        return Err("deadline_ms: a pair does not know what is left of the whole, and can't claim a rate for it; a class can, \
                    and --when=best finds a start"
            .to_owned());
    }
    if options.timetable.is_some() {
        return Err("timetable: pairs come and go, and none follows one; limit_bytes_per_s is of each pair"
            .to_owned());
    }
    let defaults = Settings::default();
    let settings = Settings {
        pool_bytes: options.buffer_bytes.unwrap_or(defaults.pool_bytes),
        io_threads,
        source_io: source_io(options)?,
        sink_io: sink_io(options)?,
        scheduling: scheduling(options)?,
        journal: JournalSettings { durability: durability(options)?, ..JournalSettings::default() },
        verify: verify(options)?,
        stall: STALL,
        fidelity: fidelity(&options.copy_options)?,
        class: class(options)?,
        // What one pair tries, the fleet's tuner would see as a change of the path.
        tunes: false,
        ..defaults
    };
    Ok((spec, settings))
}

fn parsed<T: FromStr>(name: &str, value: Option<&str>) -> Result<Option<T>, String>
where
    T::Err: std::fmt::Display,
{
    value.map(|value| value.parse().map_err(|error| format!("{name}: {error}"))).transpose()
}

/// What of files is kept: modes, unless that is said to be otherwise, and what is asked for.
fn fidelity(words: &[String]) -> Result<Fidelity, String> {
    let mut options = FidelityOptions { perms: Some(true), ..FidelityOptions::default() };
    for word in words {
        if !options.take(word).map_err(|error| format!("copy_options: {error}"))? {
            return Err(format!(
                "copy_options: {word}: movers copy everything that they find; `carrack cp` and a machine's queue leave things out"
            ));
        }
    }
    if options.file_flags {
        return Err(
            "copy_options: --file-flags: what is immutable can't be finished by another session; `carrack cp` and a machine's \
                    queue have it"
                .to_owned(),
        );
    }
    Ok(options.fidelity())
}

fn scheduling(options: &Options) -> Result<Scheduling, String> {
    let policy = match (parsed("policy", options.policy.as_deref())?.unwrap_or_default(), options.nice) {
        (PolicyChoice::Adaptive { .. }, nice) => PolicyChoice::Adaptive { nice },
        (policy, false) => policy,
        (policy, true) => return Err(format!("nice: it needs the policy adaptive, not {policy}")),
    };
    Ok(Scheduling {
        policy,
        rate: options.limit_bytes_per_s.unwrap_or(0),
        target_rate: options.limit_bytes_per_s_per_target.unwrap_or(0),
        in_flight_max: options.max_inflight_per_target.unwrap_or(0),
    })
}

fn class(options: &Options) -> Result<String, String> {
    match options.class.as_deref() {
        None => Ok(String::new()),
        Some(name) if is_name(name) => Ok(name.to_owned()),
        Some(other) => Err(format!("class: {other:?} can't name one; letters, digits, '-' and '_' can")),
    }
}

fn source_io(options: &Options) -> Result<SourceIo, String> {
    match options.source_io.as_deref() {
        None | Some("auto") => Ok(SourceIo::Auto),
        Some("buffered") => Ok(SourceIo::Buffered),
        Some("direct") => Ok(SourceIo::Direct),
        Some(other) => Err(format!("source_io: {other} is neither auto, buffered nor direct")),
    }
}

fn sink_io(options: &Options) -> Result<SinkIo, String> {
    match options.sink_io.as_deref() {
        None | Some("auto") => Ok(SinkIo::Auto),
        Some("buffered") => Ok(SinkIo::Buffered),
        Some("direct") => Ok(SinkIo::Direct),
        Some("writeback") => Ok(SinkIo::Writeback),
        Some(other) => Err(format!("sink_io: {other} is neither auto, buffered, direct nor writeback")),
    }
}

fn durability(options: &Options) -> Result<Durability, String> {
    match options.durability.as_deref() {
        None | Some("group") => Ok(Durability::Group),
        Some("each") => Ok(Durability::Each),
        Some(other) => Err(format!("durability: {other} is neither each nor group, which a fleet has")),
    }
}

fn verify(options: &Options) -> Result<Verify, String> {
    match options.verify.as_deref() {
        None | Some("object") => Ok(Verify::Object),
        Some("readback") => Ok(Verify::Readback),
        Some(other) => Err(format!("verify: {other} is neither object nor readback")),
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::Kept;

    use super::*;

    #[test]
    fn what_is_not_said_is_as_with_cp() {
        let (spec, settings) = terms(&Options::default()).unwrap();
        assert_eq!((spec.protection, spec.checksum), (Protection::Private, Checksum::None));
        assert_eq!(settings.pool_bytes, Settings::default().pool_bytes);
        let clear = Options { protection: Some("clear".into()), ..Options::default() };
        assert_eq!(terms(&clear).unwrap().0.checksum, Checksum::default());
    }

    #[test]
    fn what_concerns_storage_is_carried_out() {
        let options = Options {
            policy: Some("adaptive".into()),
            nice: true,
            limit_bytes_per_s: Some(9),
            limit_bytes_per_s_per_target: Some(7),
            max_inflight_per_target: Some(3),
            source_io: Some("direct".into()),
            sink_io: Some("writeback".into()),
            io_threads: Some(5),
            class: Some("urgent".into()),
            ..Options::default()
        };
        let (_, settings) = terms(&options).unwrap();
        let policy = PolicyChoice::Adaptive { nice: true };
        assert_eq!(settings.scheduling, Scheduling { policy, rate: 9, target_rate: 7, in_flight_max: 3 });
        assert_eq!(
            (settings.source_io, settings.sink_io, settings.io_threads, &*settings.class),
            (SourceIo::Direct, SinkIo::Writeback, 5, "urgent")
        );
    }

    fn copying(words: &[&str]) -> Options {
        Options { copy_options: words.iter().map(|&word| word.to_owned()).collect(), ..Options::default() }
    }

    #[test]
    fn files_keep_what_is_asked_for_and_their_modes() {
        let kept = |words: &[&str]| terms(&copying(words)).unwrap().1.fidelity;
        assert_eq!(kept(&[]), Fidelity { perms: true, ..Fidelity::default() });
        assert_eq!(kept(&["--no-perms"]), Fidelity::default());
        let archive = Kept { file_flags: false, ..Kept::ALL };
        assert_eq!(
            kept(&["--archive", "--strict"]),
            Fidelity { kept: archive, perms: true, ..Fidelity::default() }
        );
        let some = Kept { attributes: true, hard_links: true, ..Kept::default() };
        assert_eq!(kept(&["--xattrs", "--hard-links"]).kept, some);
    }

    #[test]
    fn what_a_fleet_does_not_have_is_refused() {
        for options in [
            Options { policy: Some("fifo".into()), ..Options::default() },
            Options { policy: Some("round-robin".into()), nice: true, ..Options::default() },
            Options { source_io: Some("writeback".into()), ..Options::default() },
            Options { sink_io: Some("mmap".into()), ..Options::default() },
            Options { io_threads: Some(1000), ..Options::default() },
            Options { class: Some("two words".into()), ..Options::default() },
            Options { deadline_ms: Some(1_795_399_200_000), ..Options::default() },
            Options { timetable: Some("sat-sun off, 1GB".into()), ..Options::default() },
            copying(&["--file-flags"]),
            copying(&["--archive", "--exclude=*.o"]),
            copying(&["--copy-links"]),
            copying(&["--chown=:"]),
            copying(&["--chown=a", "--usermap=a:b"]),
            copying(&["archive"]),
            Options { pairs_max: Some(0), ..Options::default() },
            Options { chunk_bytes: Some(0), ..Options::default() },
            Options { limit_bytes_per_s: Some(0), ..Options::default() },
            Options { checksum: Some("blake3".into()), ..Options::default() },
            Options { protection: Some("none".into()), ..Options::default() },
            Options { durability: Some("end".into()), ..Options::default() },
            Options { verify: Some("never".into()), ..Options::default() },
            Options { streams: Some(1000), ..Options::default() },
        ] {
            assert!(terms(&options).is_err(), "{options:?}");
        }
    }
}
