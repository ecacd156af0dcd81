//! A range of TCP ports on the command line: `50000-50100`, or one port.

use std::ops::RangeInclusive;

/// From the first to the last port, both included; never empty, never port 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRange(pub RangeInclusive<u16>);

impl std::str::FromStr for PortRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<PortRange, Self::Err> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        match (low.trim().parse::<u16>(), high.trim().parse::<u16>()) {
            (Ok(low), Ok(high)) if 0 < low && low <= high => Ok(PortRange(low..=high)),
            _ => Err("ports are LO-HI with 1 <= LO <= HI <= 65535, such as 50000-50100"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ranges_and_single_ports() {
        assert_eq!("50000-50100".parse(), Ok(PortRange(50000..=50100)));
        assert_eq!("4711".parse(), Ok(PortRange(4711..=4711)));
        for text in ["", "-", "0-5", "5-4", "1-65536", "a-b", "1-2-3", "1:2"] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }
}
