//! Bytes in JSON, for `#[serde(with = "…")]`: a text if they are UTF-8, otherwise a list of numbers.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name or a path: bytes that need not be UTF-8.
pub trait ByteString: Sized {
    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// Creates a value from its bytes.
    fn from_bytes(bytes: Vec<u8>) -> Self;
}

impl ByteString for PathBuf {
    fn bytes(&self) -> &[u8] {
        self.as_os_str().as_bytes()
    }

    fn from_bytes(bytes: Vec<u8>) -> PathBuf {
        OsString::from_vec(bytes).into()
    }
}

impl ByteString for Box<[u8]> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn from_bytes(bytes: Vec<u8>) -> Box<[u8]> {
        bytes.into()
    }
}

impl ByteString for Arc<[u8]> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn from_bytes(bytes: Vec<u8>) -> Arc<[u8]> {
        bytes.into()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum TextOrNumbers<'a> {
    Text(Cow<'a, str>),
    Numbers(Cow<'a, [u8]>),
}

/// Serializes one value.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<T: ByteString, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    let bytes = value.bytes();
    let text = std::str::from_utf8(bytes).map(|text| TextOrNumbers::Text(text.into()));
    text.unwrap_or_else(|_| TextOrNumbers::Numbers(bytes.into())).serialize(serializer)
}

/// Deserializes one value.
///
/// # Errors
/// The value is neither a text nor a list of numbers below 256.
pub fn deserialize<'de, T: ByteString, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(T::from_bytes(match TextOrNumbers::deserialize(deserializer)? {
        TextOrNumbers::Text(text) => text.into_owned().into(),
        TextOrNumbers::Numbers(bytes) => bytes.into_owned(),
    }))
}

struct JsonBytesSerializer<'a, T>(&'a T);

impl<T: ByteString> Serialize for JsonBytesSerializer<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(self.0, serializer)
    }
}

struct DeserializedByteString<T>(T);

impl<'de, T: ByteString> Deserialize<'de> for DeserializedByteString<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DeserializedByteString<T>, D::Error> {
        deserialize(deserializer).map(DeserializedByteString)
    }
}

/// Optional values.
pub mod option {
    use super::{
        ByteString, Deserialize, DeserializedByteString, Deserializer, JsonBytesSerializer, Serialize,
        Serializer,
    };

    /// Serializes as [`serialize`](super::serialize()).
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<T: ByteString, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(JsonBytesSerializer).serialize(serializer)
    }

    /// Deserializes as [`deserialize`](super::deserialize()).
    ///
    /// # Errors
    /// Those of [`deserialize`](super::deserialize()).
    pub fn deserialize<'de, T: ByteString, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        Ok(Option::<DeserializedByteString<T>>::deserialize(deserializer)?
            .map(|DeserializedByteString(value)| value))
    }
}

/// Lists of values.
pub mod list {
    use super::{
        ByteString, Deserialize, DeserializedByteString, Deserializer, JsonBytesSerializer, Serializer,
    };

    /// Serializes as [`serialize`](super::serialize()).
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<T: ByteString, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(JsonBytesSerializer))
    }

    /// Deserializes as [`deserialize`](super::deserialize()).
    ///
    /// # Errors
    /// Those of [`deserialize`](super::deserialize()).
    pub fn deserialize<'de, T: ByteString, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().map(|DeserializedByteString(value)| value).collect())
    }
}

/// Optional lists of names.
pub mod names {
    use super::{
        Deserialize, DeserializedByteString, Deserializer, JsonBytesSerializer, Serialize, Serializer,
    };
    use crate::SelectedPaths;

    /// Serializes as [`serialize`](super::serialize()).
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(value: &Option<SelectedPaths>, serializer: S) -> Result<S::Ok, S::Error> {
        let names = value.as_ref().map(|names| names.iter().map(JsonBytesSerializer).collect::<Vec<_>>());
        names.serialize(serializer)
    }

    /// Deserializes as [`deserialize`](super::deserialize()).
    ///
    /// # Errors
    /// Those of [`deserialize`](super::deserialize()).
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SelectedPaths>, D::Error> {
        let names = Option::<Vec<DeserializedByteString<Box<[u8]>>>>::deserialize(deserializer)?;
        Ok(names.map(|names| names.into_iter().map(|DeserializedByteString(name)| name).collect()))
    }
}
