//! Endpoint names, which come from a peer and which libfabric does not check.

/// The longest name in bytes: names of EFA and verbs have some dozens, and a name of shm is the last part of
/// a path.
pub(crate) const LIMIT_BYTES: usize = 256;

const FI_SOCKADDR: u32 = 1;
const FI_SOCKADDR_IN: u32 = 2;
const FI_SOCKADDR_IN6: u32 = 3;
const FI_ADDR_STR: u32 = 9;

/// Returns true if the library can take this name: it reads as many bytes as the format has, whatever the
/// length of the name. `ours` is a name of the same provider.
pub(crate) fn is_plausible(name: &[u8], ours: &[u8], format: u32) -> bool {
    if name.is_empty() || name.len() > LIMIT_BYTES {
        return false;
    }
    match format {
        FI_ADDR_STR => is_text(name),
        FI_SOCKADDR | FI_SOCKADDR_IN | FI_SOCKADDR_IN6 => {
            name.len() == ours.len() && name.get(..2) == ours.get(..2)
        }
        _ => name.len() == ours.len(),
    }
}

/// `fi_shm://1234:0:0` and a NUL. It becomes a file name in /dev/shm, so it must not be a path.
fn is_text(name: &[u8]) -> bool {
    let Some((0, characters)) = name.split_last() else { return false };
    let rest = characters.windows(3).position(|w| w == b"://").map_or(characters, |at| &characters[at + 3..]);
    !rest.is_empty() && rest.iter().all(|b| b.is_ascii_graphic() && *b != b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_library_would_read_beyond_are_refused() {
        let ours = [2, 0, 1, 2, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(is_plausible(&ours, &ours, FI_SOCKADDR_IN));
        assert!(!is_plausible(&ours[..15], &ours, FI_SOCKADDR_IN));
        let mut other_family = ours;
        other_family[0] = 10;
        assert!(!is_plausible(&other_family, &ours, FI_SOCKADDR_IN));
        assert!(!is_plausible(&[], &ours, 99));
    }

    #[test]
    fn names_of_shared_memory_are_no_paths() {
        assert!(is_plausible(b"fi_shm://77:0:0\0", b"", FI_ADDR_STR));
        for name in [&b"fi_shm://77"[..], b"fi_shm://../x\0", b"fi_shm://\0", b"a\0b\0", b"\0"] {
            assert!(!is_plausible(name, b"", FI_ADDR_STR), "{name:?}");
        }
    }
}
