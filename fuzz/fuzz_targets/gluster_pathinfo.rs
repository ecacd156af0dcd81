//! The place of a GlusterFS file. Input: a value of `glusterfs.pathinfo`.
#![no_main]

use carrack_layout::formats::parse_pathinfo;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
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
