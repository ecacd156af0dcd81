//! The values that the ends of a session agree on, as JSON texts of a `Hello`. Unknown members are refused.

use carrack_model::AgreedTransferSpec;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::PROTOCOL_VERSION;
use crate::message::MessageError;

/// Encodes a value as JSON.
pub fn to_json(value: &impl Serialize) -> String {
    // Texts, numbers and lists: serde_json fails only for maps whose keys are no texts.
    serde_json::to_string(value).expect("every value of the handshake has a JSON form")
}

/// Decodes a value. Its ranges are not checked.
///
/// # Errors
/// [`MessageError::Malformed`] if the text is no such value, or has an unknown member.
pub fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, MessageError> {
    serde_json::from_str(text).map_err(|error| MessageError::Malformed(error.to_string()))
}

/// Decodes and checks a peer's specification.
///
/// # Errors
/// Malformed text, or values that no session can have.
pub fn spec_from_json(text: &str) -> Result<AgreedTransferSpec, MessageError> {
    let spec: AgreedTransferSpec = from_json(text)?;
    spec.check().map_err(MessageError::OutOfRange)?;
    Ok(spec)
}

/// Encodes everything that the ends agreed on, byte for byte the same at both: input of the key derivation.
pub fn agreed_terms(spec: &AgreedTransferSpec, lanes: u32) -> Vec<u8> {
    let mut terms = PROTOCOL_VERSION.to_le_bytes().to_vec();
    terms.extend(lanes.to_le_bytes());
    terms.extend(to_json(spec).into_bytes());
    terms
}

#[cfg(test)]
mod tests {
    use carrack_model::{
        DeletionBackup, DeletionRules, DialingEnd, ModifyWindow, PartialCopyRange, ProtectionLevel,
        SealCipher, StripeChoice, SyncRules,
    };

    use super::*;

    #[test]
    fn a_specification_survives_the_wire() {
        let spec = AgreedTransferSpec {
            recursive: true,
            no_target_directory: true,
            streams: 7,
            dial_from: DialingEnd::Sink,
            ..Default::default()
        };
        let mut specs = vec![spec.clone()];
        let fixed = StripeChoice::Fixed { count: 4, stripe_bytes: 1 << 20, pool: "flash".into() };
        for stripe in [fixed, StripeChoice::Auto, StripeChoice::Preserve] {
            specs.push(AgreedTransferSpec { stripe, ..spec.clone() });
        }
        let all = SyncRules {
            by_contents: true,
            update: true,
            existing: true,
            ignore_existing: true,
            ..SyncRules::default()
        };
        for modify_window in [ModifyWindow::Exact, ModifyWindow::Within { nanoseconds: 7 }] {
            specs.push(AgreedTransferSpec {
                sync: Some(SyncRules { modify_window, ..all.clone() }),
                ..spec.clone()
            });
        }
        for backup in [
            DeletionBackup::Directory(b"old"[..].into()),
            DeletionBackup::Directory(b"\xff"[..].into()),
            DeletionBackup::Trash,
        ] {
            let deletion = DeletionRules {
                most: Some(0),
                most_percent: Some(9),
                first: true,
                by_empty_sources: true,
                excluded: true,
                mounts: true,
                backup: Some(backup),
            };
            let sync = Some(SyncRules { deletion: Some(deletion), ..all.clone() });
            specs.push(AgreedTransferSpec { sync, ..spec.clone() });
        }
        for length in [None, Some(1), Some(u64::MAX)] {
            let part = Some(PartialCopyRange { offset: 7, length });
            specs.push(AgreedTransferSpec { recursive: false, part, ..spec.clone() });
        }
        for protection in [ProtectionLevel::Clear, ProtectionLevel::Safe, ProtectionLevel::Private] {
            for cipher in [SealCipher::Aes256Gcm, SealCipher::Aes128Gcm, SealCipher::ChaCha20Poly1305] {
                specs.push(AgreedTransferSpec { protection, cipher, ..spec.clone() });
            }
        }
        for spec in specs {
            assert_eq!(spec_from_json(&to_json(&spec)), Ok(spec));
        }
    }

    #[test]
    fn what_is_not_known_or_out_of_range_is_refused() {
        let good = to_json(&AgreedTransferSpec::default());
        for bad in ["", "{}"] {
            assert!(spec_from_json(bad).is_err(), "{bad}");
        }
        for (from, to) in [
            ("\"slot_bytes\":1048576", "\"slot_bytes\":0"),
            ("\"slot_bytes\":1048576", "\"slot_bytes\":1073741824"),
            ("\"slot_bytes\":1048576", "\"slot_bytes\":1048577"),
            ("\"streams\":0", "\"streams\":1000"),
            ("\"streams\":0", "\"streams\":-1"),
            ("\"Xxh3\"", "\"Md5\""),
            ("\"Private\"", "\"None\""),
            ("\"report_digests\":false", "\"report_digests\":true"),
            ("\"part\":null", "\"part\":{\"offset\":0,\"length\":0}"),
            ("\"part\":null", "\"part\":null,\"of_the_future\":1"),
            // A missing value must not lower the protection.
            ("\"protection\":\"Private\",", ""),
        ] {
            assert!(good.contains(from), "{good}");
            let bad = good.replacen(from, to, 1);
            assert!(spec_from_json(&bad).is_err(), "{bad}");
        }
    }
}
