//! The configured capacity of targets.

use std::collections::BTreeMap;

use bytesize::ByteSize;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// The capacity of targets in bytes per second: one for all, or by name, or found from their histories.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetCapacity {
    all: Option<f64>,
    /// By the beginning of names; the longest match counts.
    each: BTreeMap<String, f64>,
}

/// Configured numbers are never NaN.
impl Eq for TargetCapacity {}

impl TargetCapacity {
    /// The same capacity for all, in the unit of the load.
    pub fn of_all(most: f64) -> TargetCapacity {
        TargetCapacity { all: Some(most), each: BTreeMap::new() }
    }

    /// A target's configured capacity; `None` to find it from its history.
    pub fn capacity_of(&self, target: &str) -> Option<f64> {
        let fitting = self.each.iter().filter(|(beginning, _)| target.starts_with(beginning.as_str()));
        fitting.max_by_key(|(beginning, _)| beginning.len()).map(|(_, most)| *most).or(self.all)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CapacitySetting {
    One(String),
    Each(BTreeMap<String, String>),
}

impl<'de> Deserialize<'de> for TargetCapacity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TargetCapacity, D::Error> {
        match CapacitySetting::deserialize(deserializer)? {
            CapacitySetting::One(text) if text == "auto" => Ok(TargetCapacity::default()),
            CapacitySetting::One(text) => Ok(TargetCapacity::of_all(parse_rate(&text)?)),
            CapacitySetting::Each(each) => {
                let each = each.into_iter().map(|(beginning, text)| Ok((beginning, parse_rate(&text)?)));
                Ok(TargetCapacity { all: None, each: each.collect::<Result<_, D::Error>>()? })
            }
        }
    }
}

/// Reads a rate such as `1 GB/s`, in bytes per second.
fn parse_rate<E: Error>(text: &str) -> Result<f64, E> {
    let bytes = text.trim().strip_suffix("/s").and_then(|bytes| bytes.trim().parse::<ByteSize>().ok());
    match bytes {
        Some(ByteSize(bytes)) if bytes > 0 => Ok(bytes as f64),
        _ => Err(E::custom(format!(
            "{text:?} is no capacity\nhint: write \"auto\", a rate such as \"1 GB/s\", or a table of beginnings of names and rates"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TargetCapacity, toml::de::Error> {
        #[derive(Deserialize)]
        struct TestCapacityConfig {
            capacity: TargetCapacity,
        }
        toml::from_str::<TestCapacityConfig>(text).map(|holder| holder.capacity)
    }

    #[test]
    fn one_for_all_or_by_the_longest_beginning() {
        assert_eq!(read("capacity = \"auto\"").unwrap().capacity_of("x"), None);
        assert_eq!(read("capacity = \"1 GB/s\"").unwrap().capacity_of("x"), Some(1e9));
        let each = read("capacity = { \"a/\" = \"2 kB/s\", \"a/OST1\" = \"3 kB/s\" }").unwrap();
        assert_eq!(
            (each.capacity_of("a/OST2"), each.capacity_of("a/OST10"), each.capacity_of("b/x")),
            (Some(2e3), Some(3e3), None)
        );
        for wrong in ["\"1 GB\"", "\"0 B/s\"", "\"fast\"", "{ a = \"auto\" }"] {
            let error = read(&format!("capacity = {wrong}")).unwrap_err();
            assert!(
                error.to_string().contains("capacity") || error.to_string().contains("Written"),
                "{error}"
            );
        }
        assert!(read("capacity = \"fast\"").unwrap_err().message().contains("hint: "));
    }
}
