//! Between [`TransferSpec`] and its message: numbers from a peer become values that this build knows, or an error.

use carrack_model::limits::{SLOT_BYTES_MAX, SLOT_BYTES_MIN, STREAMS_MAX};
use carrack_model::{
    Backup, Checksum, Cipher, Deletion, DialFrom, ModifyWindow, PartialRange, Protection, StripeChoice, Sync,
    TransferSpec,
};

use crate::PROTOCOL_VERSION;
use crate::message::{self, MessageError, Part, Spec, Stripes};

/// Everything that the ends of a session agreed on, as bytes that are the same at both: what their keys are bound to.
pub fn agreed_terms(spec: &TransferSpec, lanes: u32) -> Vec<u8> {
    let mut terms = PROTOCOL_VERSION.to_le_bytes().to_vec();
    terms.extend(lanes.to_le_bytes());
    terms.extend(Spec::from(spec).to_bytes());
    terms
}

impl From<&TransferSpec> for Spec {
    fn from(spec: &TransferSpec) -> Spec {
        Spec {
            recursive: spec.recursive,
            dry_run: spec.dry_run,
            checksum: match spec.checksum {
                Checksum::None => 0,
                Checksum::Xxh3 => 1,
                Checksum::Blake3 => 2,
            },
            report_digests: spec.report_digests,
            slot_bytes: spec.slot_bytes,
            streams: u32::from(spec.streams),
            dial_from: match spec.dial_from {
                DialFrom::Either => 0,
                DialFrom::Source => 1,
                DialFrom::Sink => 2,
            },
            stripe: match spec.stripe {
                StripeChoice::Default => 0,
                StripeChoice::Preserve => 1,
                StripeChoice::Auto => 2,
                StripeChoice::Fixed { .. } => 3,
            },
            stripes: match spec.stripe.clone() {
                StripeChoice::Fixed { count, stripe_bytes, pool } => {
                    Some(Stripes { count, stripe_bytes, pool })
                }
                _ => None,
            },
            protection: match spec.protection {
                Protection::Private => 0,
                Protection::Safe => 1,
                Protection::Clear => 2,
            },
            cipher: match spec.cipher {
                Cipher::Aes256Gcm => 0,
                Cipher::Aes128Gcm => 1,
                Cipher::ChaCha20Poly1305 => 2,
            },
            sync: spec.sync.as_ref().map(message::Sync::from),
            no_target_directory: spec.no_target_directory,
            part: spec.part.map(|PartialRange { offset, length }| Part { offset, length }),
        }
    }
}

impl From<&Sync> for message::Sync {
    fn from(sync: &Sync) -> message::Sync {
        let copied = message::Sync {
            by_contents: sync.by_contents,
            update: sync.update,
            existing: sync.existing,
            ignore_existing: sync.ignore_existing,
            modify_window_ns: match sync.modify_window {
                ModifyWindow::Stored => None,
                ModifyWindow::Exact => Some(-1),
                ModifyWindow::Within { nanoseconds } => i64::try_from(nanoseconds).ok().or(Some(i64::MAX)),
            },
            ..message::Sync::default()
        };
        let Some(deletion) = &sync.deletion else { return copied };
        let backup_directory = match &deletion.backup {
            Some(Backup::Directory(path)) => Some(path.to_vec()),
            Some(Backup::Trash) | None => None,
        };
        message::Sync {
            deletes: true,
            delete_most: deletion.most,
            deletes_first: deletion.first,
            by_empty_sources: deletion.by_empty_sources,
            deletes_excluded: deletion.excluded,
            deletes_mounts: deletion.mounts,
            delete_percent: deletion.most_percent,
            backup_directory,
            uses_trash: deletion.backup == Some(Backup::Trash),
            ..copied
        }
    }
}

impl From<&message::Sync> for Sync {
    fn from(message: &message::Sync) -> Sync {
        let backup = message.backup_directory.as_deref().map(|path| Backup::Directory(path.into()));
        let deletion = Deletion {
            most: message.delete_most,
            most_percent: message.delete_percent,
            first: message.deletes_first,
            by_empty_sources: message.by_empty_sources,
            excluded: message.deletes_excluded,
            mounts: message.deletes_mounts,
            backup: backup.or(message.uses_trash.then_some(Backup::Trash)),
        };
        Sync {
            by_contents: message.by_contents,
            modify_window: match message.modify_window_ns.map(u64::try_from) {
                None => ModifyWindow::Stored,
                Some(Err(_)) => ModifyWindow::Exact,
                Some(Ok(nanoseconds)) => ModifyWindow::Within { nanoseconds },
            },
            update: message.update,
            existing: message.existing,
            ignore_existing: message.ignore_existing,
            deletion: message.deletes.then_some(deletion),
        }
    }
}

impl TryFrom<&Spec> for TransferSpec {
    type Error = MessageError;

    fn try_from(message: &Spec) -> Result<TransferSpec, MessageError> {
        let slot_bytes = message.slot_bytes as usize;
        if !(SLOT_BYTES_MIN..=SLOT_BYTES_MAX).contains(&slot_bytes) || !slot_bytes.is_power_of_two() {
            return Err(MessageError::OutOfRange("the slot size"));
        }
        if message.streams > STREAMS_MAX as u32 {
            return Err(MessageError::OutOfRange("the number of streams"));
        }
        if message.report_digests && message.checksum != 2 {
            return Err(MessageError::OutOfRange("digests without BLAKE3"));
        }
        if let Some(part) = &message.part
            && (part.length == Some(0)
                || message.recursive
                || message.report_digests
                || message.sync.is_some())
        {
            return Err(MessageError::OutOfRange("the part of a file"));
        }
        Ok(TransferSpec {
            recursive: message.recursive,
            no_target_directory: message.no_target_directory,
            dry_run: message.dry_run,
            checksum: match message.checksum {
                0 => Checksum::None,
                1 => Checksum::Xxh3,
                2 => Checksum::Blake3,
                _ => return Err(MessageError::OutOfRange("the checksum")),
            },
            report_digests: message.report_digests,
            slot_bytes: message.slot_bytes,
            streams: message.streams as u16,
            dial_from: match message.dial_from {
                0 => DialFrom::Either,
                1 => DialFrom::Source,
                2 => DialFrom::Sink,
                _ => return Err(MessageError::OutOfRange("the dialling end")),
            },
            stripe: match (message.stripe, message.stripes.clone()) {
                (0, _) => StripeChoice::Default,
                (1, _) => StripeChoice::Preserve,
                (2, _) => StripeChoice::Auto,
                (3, Some(Stripes { count, stripe_bytes, pool })) => {
                    StripeChoice::Fixed { count, stripe_bytes, pool }
                }
                _ => return Err(MessageError::OutOfRange("the striping")),
            },
            protection: match message.protection {
                0 => Protection::Private,
                1 => Protection::Safe,
                2 => Protection::Clear,
                _ => return Err(MessageError::OutOfRange("the protection")),
            },
            cipher: match message.cipher {
                0 => Cipher::Aes256Gcm,
                1 => Cipher::Aes128Gcm,
                2 => Cipher::ChaCha20Poly1305,
                _ => return Err(MessageError::OutOfRange("the cipher")),
            },
            sync: message.sync.as_ref().map(Sync::from),
            part: message.part.map(|Part { offset, length }| PartialRange { offset, length }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_survives_the_wire() {
        let spec = TransferSpec {
            recursive: true,
            no_target_directory: true,
            streams: 7,
            dial_from: DialFrom::Sink,
            ..Default::default()
        };
        assert_eq!(TransferSpec::try_from(&Spec::from(&spec)), Ok(spec.clone()));
        let fixed = StripeChoice::Fixed { count: 4, stripe_bytes: 1 << 20, pool: "flash".into() };
        for stripe in [fixed, StripeChoice::Auto, StripeChoice::Preserve] {
            let spec = TransferSpec { stripe, ..spec.clone() };
            assert_eq!(TransferSpec::try_from(&Spec::from(&spec)), Ok(spec));
        }
        let all = Sync {
            by_contents: true,
            modify_window: ModifyWindow::Stored,
            update: true,
            existing: true,
            ignore_existing: true,
            deletion: None,
        };
        for modify_window in [ModifyWindow::Exact, ModifyWindow::Within { nanoseconds: 7 }] {
            let spec = TransferSpec { sync: Some(Sync { modify_window, ..all.clone() }), ..spec.clone() };
            assert_eq!(TransferSpec::try_from(&Spec::from(&spec)), Ok(spec));
        }
        let backup = Some(Backup::Directory(b"old"[..].into()));
        for deletion in [
            Deletion::default(),
            Deletion { most: Some(0), first: true, backup, ..Deletion::default() },
            Deletion { most: Some(7), excluded: true, backup: Some(Backup::Trash), ..Deletion::default() },
            Deletion { most_percent: Some(9), by_empty_sources: true, mounts: true, ..Deletion::default() },
        ] {
            let sync = Some(Sync { deletion: Some(deletion), ..all.clone() });
            let spec = TransferSpec { sync, ..spec.clone() };
            assert_eq!(TransferSpec::try_from(&Spec::from(&spec)), Ok(spec));
        }
        for length in [None, Some(1), Some(u64::MAX)] {
            let part = Some(PartialRange { offset: 7, length });
            let spec = TransferSpec { recursive: false, part, ..spec.clone() };
            assert_eq!(TransferSpec::try_from(&Spec::from(&spec)), Ok(spec));
        }
        for protection in [Protection::Clear, Protection::Safe, Protection::Private] {
            for cipher in [Cipher::Aes256Gcm, Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
                let spec = TransferSpec { protection, cipher, ..spec.clone() };
                assert_eq!(TransferSpec::try_from(&Spec::from(&spec)), Ok(spec));
            }
        }
    }

    /// A message in which nothing is said must not lower the protection.
    #[test]
    fn what_is_not_said_is_private() {
        let said_nothing = Spec { slot_bytes: 1 << 20, ..Spec::default() };
        assert_eq!(TransferSpec::try_from(&said_nothing).unwrap().protection, Protection::Private);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let good = Spec::from(&TransferSpec::default());
        for bad in [
            Spec { slot_bytes: 0, ..good.clone() },
            Spec { slot_bytes: 1 << 30, ..good.clone() },
            Spec { slot_bytes: (1 << 20) + 1, ..good.clone() },
            Spec { streams: 1000, ..good.clone() },
            Spec { checksum: 3, ..good.clone() },
            Spec { dial_from: 3, ..good.clone() },
            Spec { stripe: 3, ..good.clone() },
            Spec { stripe: 4, ..good.clone() },
            Spec { protection: 3, ..good.clone() },
            Spec { cipher: 3, ..good.clone() },
            Spec { report_digests: true, ..good.clone() },
            Spec { part: Some(Part { offset: 0, length: Some(0) }), ..good.clone() },
            Spec { part: Some(Part::default()), recursive: true, ..good.clone() },
            Spec { part: Some(Part::default()), report_digests: true, checksum: 2, ..good.clone() },
            Spec { part: Some(Part::default()), sync: Some(message::Sync::default()), ..good.clone() },
        ] {
            assert!(TransferSpec::try_from(&bad).is_err(), "{bad:?}");
        }
    }
}
