//! Unique IDs.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Returns 16 hexadecimal digits from the kernel's random bytes.
pub fn new_id() -> String {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            // Without getrandom(2) there are the keys of the standard library's maps, for which it has a
            // fallback of its own.
            Err(_) => return format!("{:016x}", RandomState::new().build_hasher().finish()),
        }
    }
    format!("{:016x}", u64::from_be_bytes(bytes))
}

/// Returns true if `text` could be the beginning of an ID.
pub fn is_prefix(text: &str) -> bool {
    (1..=16).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_prefixes_of_themselves_and_differ() {
        let (one, two) = (new_id(), new_id());
        assert_ne!(one, two);
        assert!(is_prefix(&one) && one.len() == 16, "{one}");
        assert!(!is_prefix("") && !is_prefix("0123456789abcdef0") && !is_prefix("A") && !is_prefix("a*"));
    }
}
