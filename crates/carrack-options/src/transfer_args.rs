//! All options of a transfer, without its paths: each with its default, unit, range and help, here and in
//! this crate's other files, and nowhere else.
//!
//! The help, the manual page, the completions, and the members of configuration files and submissions come
//! from here. Combinations of options ([`TransferArgs::spec`], [`TransferArgs::settings`]) are checked here
//! too.

use std::ffi::OsString;
use std::time::Duration;

use carrack_engine::EndSettings;
use carrack_model::limits::{IO_THREADS_MAX, RETRIES_DEFAULT, SLOT_BYTES_DEFAULT, STREAMS_MAX};
use carrack_model::{
    AgreedTransferSpec, CongestionControlChoice, DialingEnd, MetadataFidelity, ObjectChecksumAlgorithm,
    PartialCopyRange, ProtectionLevel, SealCipher,
};
use clap::{Args, ValueEnum};

use crate::fabric::FabricTransportArgs;
use crate::fidelity::FidelityArgs;
use crate::journal::JournalDurabilityArgs;
use crate::lifetime;
use crate::local_time;
use crate::machine::MachineUseArgs;
use crate::ports::PortRange;
use crate::selection::SelectArgs;
use crate::sharing::{MetaSchedulerChoice, SharingArgs};
use crate::size;
use crate::spill::SpillDirectoryArgs;
use crate::storage::StorageIoArgs;
use crate::user_error::UserError;

/// Heading of options about data.
pub const DATA: &str = "Data and checks";

/// Heading of options about the other host.
pub const CONNECTION: &str = "Connection";

const TUNING: &str = "Tuning";
const FAULTS: &str = "Retries and time limits";

#[expect(missing_docs, reason = "clap would take it for the command's")]
#[derive(Clone, Debug, Args)]
pub struct TransferArgs {
    /// Use DESTINATION as the copy's name, even if it is a directory
    ///
    /// The contents of a directory go into it; for a file it is refused. For one source. So the same command
    /// means the same each time.
    #[arg(short = 'T', long, help_heading = DATA)]
    pub no_target_directory: bool,

    /// Copy only the source's bytes from this offset on, to the same offset of the destination, whose other
    /// bytes stay as they are
    ///
    /// For one regular file; a part that begins behind its end is refused. The destination gets the part as a
    /// whole or not at all: its new version is put together under a temporary name. It keeps its mode, and
    /// its modification time is that of the copy; a new one has zeros before the part. Sizes as with
    /// --buffer.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_offset, help_heading = DATA)]
    offset: Option<u64>,

    /// Copy this number of bytes from --offset on, or from the beginning, and no more [default: all up to the
    /// end]
    ///
    /// Fewer if the source ends before.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = DATA)]
    length: Option<u64>,

    /// Check of the data between read and write [default: blake3 with --manifest; else xxh3, or no check in
    /// addition to the seal that each object has between hosts; xxh3 too if the program of --ssh is not named
    /// ssh]
    #[arg(long, value_enum, value_name = "KIND", help_heading = DATA)]
    checksum: Option<ChecksumName>,

    #[command(flatten)]
    fidelity: FidelityArgs,

    #[command(flatten)]
    selection: SelectArgs,

    /// Protection level of the data on its way to another host
    ///
    /// The control channel is encrypted at every level. A level below private must be allowed at the far end
    /// too: over ssh this option does that, a daemon's configuration may.
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = ProtectionName::Private, help_heading = CONNECTION)]
    protection: ProtectionName,

    /// The algorithm that seals the data
    #[arg(long, value_enum, value_name = "NAME", default_value_t = CipherName::Aes256Gcm, help_heading = CONNECTION)]
    cipher: CipherName,

    #[command(flatten)]
    fabric: FabricTransportArgs,

    /// TCP ports on which the end that does not dial may listen [default: any]
    #[arg(long, value_name = "LO-HI", help_heading = CONNECTION)]
    ports: Option<PortRange>,

    /// The end that dials the data connections
    #[arg(long, value_enum, value_name = "END", default_value_t = DialingEndChoice::Either, help_heading = CONNECTION)]
    connect_from: DialingEndChoice,

    /// Connections for the data: data connections, or, with ssh, the control channel (ssh's own connection, a
    /// daemon's TLS connection)
    ///
    /// If data connections are established and pass nothing, auto takes small segments first, and the control
    /// channel then. Between two far hosts ssh means --relay.
    #[arg(long, value_enum, value_name = "WAY", default_value_t = DataChannelOption::Auto, conflicts_with = "fabric", help_heading = CONNECTION)]
    via: DataChannelOption,

    /// Consecutive attempts without progress to continue after the network broke; 0 gives up at once
    ///
    /// Each attempt resolves names again and starts ssh again; the waits between them grow from 0.1 s to 30
    /// s. At the start a daemon that is full or about to end is waited for, and an address without a listener
    /// is tried for 10 s; an unknown name, and ssh that can't connect, are not tried again.
    #[arg(long, value_name = "N", default_value_t = RETRIES_DEFAULT, help_heading = FAULTS)]
    pub retry: u32,

    /// Time without a sign of the far host, or without progress, after which the connection counts as broken;
    /// at least 1
    ///
    /// Slow storage is waited for. A number alone is in seconds; 5m is five minutes.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = lifetime::parse_timeout, help_heading = FAULTS)]
    pub stall_timeout: Duration,

    /// End the transfer after this time, with exit code 124 [default: never]
    ///
    /// As Ctrl-C does. A number alone is in seconds; 5m is five minutes.
    #[arg(long, value_name = "SECONDS", value_parser = lifetime::parse_timeout, help_heading = FAULTS)]
    pub timeout: Option<Duration>,

    /// End the transfer at this time, with exit code 124 [default: never]
    ///
    /// The next 18:30 (local time), 2026-11-23T02:00:00Z, or a duration from now, 6h.
    #[arg(long, value_name = "TIME", value_parser = local_time::parse_moment, help_heading = FAULTS)]
    pub stop_at: Option<i64>,

    /// Data connections, up to 64; 0 chooses by the path
    ///
    /// With 0: 2 at first on a near path, 8 where a round trip takes 1 ms or more.
    #[arg(long, value_name = "N", default_value_t = AgreedTransferSpec::default().streams,
          value_parser = clap::value_parser!(u16).range(0..=STREAMS_MAX as i64), help_heading = TUNING)]
    streams: u16,

    /// Congestion control of the data connections at the source: auto, system, or a name as bbr
    ///
    /// system: net.ipv4.tcp_congestion_control on paths of 1 ms and more. auto: bbr in place of cubic or reno
    /// where packets are lost without congestion, if it brings more (needs tcp_bbr, and
    /// net.ipv4.tcp_allowed_congestion_control).
    #[arg(long, value_name = "NAME", default_value = "auto", help_heading = TUNING)]
    congestion: CongestionControlChoice,

    /// Memory for data in flight at each end; at least 4 objects
    ///
    /// Sizes: k, M, G are powers of 1,000; KiB, MiB, GiB powers of 1,024.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size::parse, help_heading = TUNING)]
    buffer: u64,

    /// Largest piece that is read, sent and written at once (an object): a power of two, 128KiB to 64MiB
    /// [default: by the storage of both ends, at least 1MiB]
    ///
    /// Without it objects of local disks have up to 1MiB, in memory 512KiB. To and from Lustre they have the
    /// size of its client's largest request, mostly 4MiB, but no more than a stripe, and as far as --buffer
    /// holds 64 of them.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_slot, help_heading = TUNING)]
    object_size: Option<u32>,

    /// Threads that read or write at each end, up to 256; 0 begins with a number for the kind of storage
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u16).range(0..=IO_THREADS_MAX as i64), help_heading = TUNING)]
    io_threads: u16,

    /// Adjust the numbers of threads and connections to their effect (`-v` shows it); --io-threads and
    /// --streams fix theirs
    #[arg(long, value_name = "on|off", value_enum, default_value = "on", hide_possible_values = true, help_heading = TUNING)]
    tune: TuneOptionValue,

    #[command(flatten)]
    journal: JournalDurabilityArgs,

    #[command(flatten)]
    storage: StorageIoArgs,

    #[command(flatten)]
    sharing: SharingArgs,

    #[command(flatten)]
    spill: SpillDirectoryArgs,

    #[command(flatten)]
    machine: MachineUseArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ChecksumName {
    /// XXH3 with 128 bits: fast, finds every accident
    Xxh3,
    /// BLAKE3: cryptographic, gives each file's digest too
    Blake3,
    /// No check but TCP's own
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProtectionName {
    /// Authenticated and encrypted
    Private,
    /// Authenticated: an observer of the network can read the data, but not change it
    Safe,
    /// Neither: only for networks that you trust
    Clear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CipherName {
    /// AES-GCM with a key of 256 bits
    #[value(name = "aes-256-gcm")]
    Aes256Gcm,
    /// AES-GCM with a key of 128 bits
    #[value(name = "aes-128-gcm")]
    Aes128Gcm,
    /// For machines without AES instructions
    #[value(name = "chacha20-poly1305")]
    ChaCha20Poly1305,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TuneOptionValue {
    /// From the second second on
    On,
    /// As at the start
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DataChannelOption {
    /// Data connections where they work
    Auto,
    /// The control channel
    Ssh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DialingEndChoice {
    /// This end first, then the far one
    Either,
    /// Only the end that reads
    Source,
    /// Only the end that writes
    Sink,
}

impl From<ChecksumName> for ObjectChecksumAlgorithm {
    fn from(name: ChecksumName) -> ObjectChecksumAlgorithm {
        match name {
            ChecksumName::Xxh3 => ObjectChecksumAlgorithm::Xxh3,
            ChecksumName::Blake3 => ObjectChecksumAlgorithm::Blake3,
            ChecksumName::None => ObjectChecksumAlgorithm::None,
        }
    }
}

impl From<ProtectionName> for ProtectionLevel {
    fn from(name: ProtectionName) -> ProtectionLevel {
        match name {
            ProtectionName::Private => ProtectionLevel::Private,
            ProtectionName::Safe => ProtectionLevel::Safe,
            ProtectionName::Clear => ProtectionLevel::Clear,
        }
    }
}

impl From<CipherName> for SealCipher {
    fn from(name: CipherName) -> SealCipher {
        match name {
            CipherName::Aes256Gcm => SealCipher::Aes256Gcm,
            CipherName::Aes128Gcm => SealCipher::Aes128Gcm,
            CipherName::ChaCha20Poly1305 => SealCipher::ChaCha20Poly1305,
        }
    }
}

impl From<DialingEndChoice> for DialingEnd {
    fn from(name: DialingEndChoice) -> DialingEnd {
        match name {
            DialingEndChoice::Either => DialingEnd::Either,
            DialingEndChoice::Source => DialingEnd::Source,
            DialingEndChoice::Sink => DialingEnd::Sink,
        }
    }
}

impl TransferArgs {
    /// Returns the protection level between hosts.
    pub fn protection(&self) -> ProtectionLevel {
        self.protection.into()
    }

    /// Returns the options of kept metadata.
    pub fn fidelity(&self) -> &FidelityArgs {
        &self.fidelity
    }

    /// Returns the choice of a meta-server.
    pub fn meta_scheduler(&self) -> &MetaSchedulerChoice {
        self.sharing.meta_scheduler()
    }

    /// Returns an option whose file can be read only once, standard input or a pipe: another process would
    /// read nothing there.
    pub fn single_read_option(&self) -> Option<&'static str> {
        self.selection.single_read_option()
    }

    /// Returns the check of the data, if it was given.
    pub fn checksum(&self) -> Option<ObjectChecksumAlgorithm> {
        self.checksum.map(ObjectChecksumAlgorithm::from)
    }

    /// Returns the range of the file to copy, if it is a part.
    pub fn partial_range(&self) -> Option<PartialCopyRange> {
        let is_asked = self.offset.is_some() || self.length.is_some();
        is_asked.then(|| PartialCopyRange { offset: self.offset.unwrap_or(0), length: self.length })
    }

    /// Checks that the other options are possible for a part of a file.
    ///
    /// # Errors
    /// The first option that is not.
    pub fn check_partial_transfer(&self, syncs: bool, recursive: bool) -> Result<(), UserError> {
        if self.partial_range().is_none() {
            return Ok(());
        }
        // If times are left out, they are as for a part.
        let fidelity =
            MetadataFidelity { omit_times: false, omit_dir_times: false, ..self.fidelity.fidelity() };
        let (message, hint) = if syncs {
            ("a sync compares whole files, and --offset and --length are for a part of one", "use carrack cp")
        } else if fidelity != MetadataFidelity::default() {
            (
                "with --offset and --length the destination keeps its own mode, owner and attributes, and takes none of the source",
                "leave -a out, and what else says which metadata are kept",
            )
        } else if recursive {
            (
                "-r is for directories, and --offset and --length are for a part of one regular file",
                "leave -r out",
            )
        } else {
            return Ok(());
        };
        Err(UserError::new(message).hint(hint))
    }

    /// Returns the size of slots that the user chose, or else the smallest that a session may agree on.
    fn slot_bytes(&self) -> u32 {
        self.object_size.unwrap_or(SLOT_BYTES_DEFAULT as u32)
    }

    /// Returns the values on which both ends agree.
    pub fn spec(&self) -> AgreedTransferSpec {
        AgreedTransferSpec {
            recursive: self.fidelity.archive,
            no_target_directory: self.no_target_directory,
            checksum: self.checksum().unwrap_or_default(),
            slot_bytes: self.slot_bytes(),
            has_chosen_object_size: self.object_size.is_some(),
            streams: self.streams,
            dial_from: self.connect_from.into(),
            stripe: self.storage.stripe.clone(),
            protection: self.protection(),
            cipher: self.cipher.into(),
            part: self.partial_range(),
            ..AgreedTransferSpec::default()
        }
    }

    /// Returns the local values of this end, for a copy of these sources.
    ///
    /// # Errors
    /// If two options contradict each other, or an option's file can't be read.
    pub fn settings(&self, sources: &[OsString]) -> Result<EndSettings, UserError> {
        size::check_pool(self.buffer, self.slot_bytes()).map_err(|error| {
            UserError::new(error).hint("choose a larger --buffer or a smaller --object-size")
        })?;
        Ok(self.machine.apply(EndSettings {
            pool_bytes: self.buffer,
            io_threads: self.io_threads.into(),
            ports: self.ports.clone().map(|ports| ports.0),
            source_io: self.storage.source_io(),
            sink_io: self.storage.sink_io(),
            scheduling: self.storage.scheduling()?,
            timetable: self.storage.timetable(),
            target_sets: self.storage.target_sets(),
            recall: self.storage.should_recall(),
            journal: self.journal.journal(),
            verify: self.journal.write_verification(),
            stall: self.stall_timeout,
            spill: self.spill.settings(),
            class: self.sharing.class().to_owned(),
            deadline: self.sharing.deadline(),
            fidelity: self.fidelity.fidelity(),
            selection: self.selection.selection(sources)?,
            tunes: self.tune == TuneOptionValue::On,
            congestion_control: self.congestion.clone(),
            fabric: self.fabric.wanted_fabric(),
            over_control: self.via == DataChannelOption::Ssh,
            ..EndSettings::default()
        }))
    }
}
