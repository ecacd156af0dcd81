//! Sizes on the command line, and the rules for buffers and objects.

use bytesize::ByteSize;
use carrack_model::limits::{SLOT_BYTES_MAX, SLOT_BYTES_MIN, SLOT_COUNT_MIN};
pub use carrack_model::parse_size as parse;

/// Parses an offset in a file, in bytes.
pub fn parse_offset(text: &str) -> Result<u64, String> {
    if text.trim() == "0" { Ok(0) } else { parse(text) }
}

/// Parses the size of a slot: a power of two within the limits.
pub fn parse_slot(text: &str) -> Result<u32, String> {
    let bytes = parse(text)?;
    let range = SLOT_BYTES_MIN as u64..=SLOT_BYTES_MAX as u64;
    let bytes_u32 = u32::try_from(bytes).ok().filter(|b| b.is_power_of_two() && range.contains(&bytes));
    bytes_u32.ok_or_else(|| {
        let (low, high) = (format_size(*range.start()), format_size(*range.end()));
        format!("the object size is a power of two from {low} to {high}, such as 1MiB")
    })
}

/// Checks that a pool of `pool_bytes` holds the necessary slots.
pub fn check_pool(pool_bytes: u64, slot_bytes: u32) -> Result<(), String> {
    let pool_bytes_min = u64::from(slot_bytes) * SLOT_COUNT_MIN as u64;
    if pool_bytes >= pool_bytes_min {
        return Ok(());
    }
    Err(format!(
        "--buffer {} is too small: {SLOT_COUNT_MIN} objects of {} need {}",
        format_size(pool_bytes),
        format_size(u64::from(slot_bytes)),
        format_size(pool_bytes_min)
    ))
}

/// Formats a size for people, in powers of 1,024.
pub fn format_size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

/// Formats a power of two without a fraction: `4 KiB`.
pub fn format_power_of_two(bytes: u128) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (bytes.max(1).ilog2() / 10).min(UNITS.len() as u32 - 1);
    format!("{} {}", bytes >> (10 * unit), UNITS[unit as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_powers_of_two_within_the_limits() {
        assert_eq!(parse_slot("128KiB"), Ok(128 << 10));
        assert_eq!(parse_slot("64MiB"), Ok(64 << 20));
        for text in ["64KiB", "128MiB", "3MiB", "1M", "8GiB"] {
            assert!(parse_slot(text).is_err_and(|e| e.contains("power of two")), "{text}");
        }
    }

    #[test]
    fn a_part_may_begin_at_the_beginning() {
        assert_eq!((parse_offset("0"), parse_offset("4KiB"), parse_offset("7")), (Ok(0), Ok(4_096), Ok(7)));
        assert!(parse("0").is_err() && parse_offset("-1").is_err() && parse_offset("x").is_err());
    }

    #[test]
    fn a_pool_holds_four_slots() {
        assert_eq!(check_pool(4 << 20, 1 << 20), Ok(()));
        let error = check_pool((4 << 20) - 1, 1 << 20).unwrap_err();
        assert!(error.contains("4.0 MiB"), "{error}");
    }
}
