//! Deserialization of single values, with their bounds and with hints for values outside of them.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;

use bytesize::ByteSize;
use carrack_model::ProtectionLevel;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::error::HINT;

/// Creates an error with a hint.
pub(super) fn error_with_hint<E: Error>(message: impl Display, hint: impl Display) -> E {
    E::custom(format!("{message}{HINT}{hint}"))
}

fn checked_absolute<E: Error>(path: PathBuf) -> Result<PathBuf, E> {
    if path.is_absolute() {
        return Ok(path);
    }
    Err(error_with_hint(
        format!("the path {path:?} is not absolute"),
        "begin it with a slash: a daemon has no place of its own",
    ))
}

pub(super) fn absolute_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    checked_absolute(PathBuf::deserialize(deserializer)?)
}

pub(super) fn optional_absolute_path<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<PathBuf>, D::Error> {
    absolute_path(deserializer).map(Some)
}

pub(super) fn absolute_paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    Vec::<PathBuf>::deserialize(deserializer)?.into_iter().map(checked_absolute).collect()
}

pub(super) fn nonempty_addresses<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<SocketAddr>, D::Error> {
    let addresses = Vec::<SocketAddr>::deserialize(deserializer)?;
    if addresses.is_empty() {
        return Err(error_with_hint(
            "nowhere to listen",
            "leave the key out for [::]:7512, or name an address",
        ));
    }
    Ok(addresses)
}

/// Reads a number from `MIN` to `MAX`.
pub(super) fn number_in_range<'de, const MIN: u64, const MAX: u64, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        number if (MIN..=MAX).contains(&number) => Ok(number),
        number => {
            Err(error_with_hint(format!("{number} is out of range"), format!("it may be {MIN} to {MAX}")))
        }
    }
}

/// The same, for an optional key.
pub(super) fn optional_number_in_range<'de, const MIN: u64, const MAX: u64, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    number_in_range::<MIN, MAX, D>(deserializer).map(Some)
}

/// Reads a lifetime up to a day: no daemon accepts tokens with longer ones.
pub(super) fn optional_lifetime<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    optional_number_in_range::<1, { carrack_trust::MAX_LIFETIME.as_secs() }, D>(deserializer)
}

/// Reads a text that is not empty.
pub(super) fn nonempty_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.trim().is_empty() {
        Err(error_with_hint("the text is empty", "write something"))
    } else {
        Ok(text)
    }
}

fn parsed_bytes<E: Error>(text: &str, hint: &str) -> Result<u64, E> {
    match text.trim().parse::<ByteSize>() {
        Ok(ByteSize(bytes)) if bytes > 0 => Ok(bytes),
        _ => Err(error_with_hint(format!("{text:?} is no amount of bytes above 0"), hint)),
    }
}

/// Reads a size such as `256MiB`.
pub(super) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    parsed_bytes(&String::deserialize(deserializer)?, "write a number and a unit, such as \"256MiB\"")
}

/// The same, for an optional key.
pub(super) fn optional_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    size(deserializer).map(Some)
}

/// Reads a rate such as `1 GB/s`.
pub(super) fn optional_rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let hint = "write a number and a unit for each second, such as \"1 GB/s\" or \"100MiB/s\"";
    match text.trim().strip_suffix("/s") {
        Some(bytes) => parsed_bytes(bytes, hint).map(Some),
        None => Err(error_with_hint(format!("{text:?} is no rate"), hint)),
    }
}

/// Reads `clear`, `safe` or `private`.
pub(super) fn protection<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ProtectionLevel, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        let hint =
            "write \"private\" (sealed), \"safe\" (readable, but no change goes unnoticed) or \"clear\"";
        error_with_hint(format!("{text:?} is no level of protection"), hint)
    })
}
