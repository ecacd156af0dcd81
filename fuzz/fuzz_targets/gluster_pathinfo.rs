//! The place of a GlusterFS file, and of its shards. Input: a value of `glusterfs.pathinfo`; for shards a
//! volume's description, a zero byte, and the value of its root.
#![no_main]

use carrack_layout::formats::{GlusterShardRanges, parse_pathinfo, parse_volfile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    place_shards(&String::from_utf8_lossy(data));
    let Ok(place) = parse_pathinfo(data) else { return };
    assert!(!place.host.is_empty() && !place.brick.is_empty() && !place.label().is_empty());
    // Whatever a file is called, it can't say where it lies.
    let with_lie = [data, b"<POSIX(/evil):evil:/evil/f> <EC:evil>"].concat();
    assert_eq!(parse_pathinfo(&with_lie), Ok(place.clone()));
    let kind = if place.is_replicated { "REPLICATE" } else { "EC" };
    let set = place.set.as_ref().map(|set| format!("<{kind}:{set}> ")).unwrap_or_default();
    let (host, brick) = (&place.host, &place.brick);
    let again = format!("{set}<POSIX({brick}):{host}:{brick}/f>");
    // Replaced characters are another name than the bytes were, but one that is read the same.
    if !again.contains('\u{FFFD}') {
        assert_eq!(parse_pathinfo(again.as_bytes()), Ok(place));
    }
});

fn place_shards(text: &str) {
    let (description, root) = text.split_once('\0').unwrap_or((text, text));
    let volume = parse_volfile(description);
    if let Some(ranges) = GlusterShardRanges::of_root(&volume, root) {
        assert!(ranges.subvolume_of("4a0b3f6e-3f0c-4c0b-9a53-1c0a9f2f7f11", 1) < volume.subvolumes.len());
    }
}
