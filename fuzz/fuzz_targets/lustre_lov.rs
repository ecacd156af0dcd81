//! The layout of a Lustre file. Input: a value of `lustre.lov`.
#![no_main]

use carrack_fuzz::layouts::LovWriter;
use carrack_layout::formats::{LovFile, LovStripes, parse_lov};
use libfuzzer_sys::fuzz_target;

/// `LOV_MAX_STRIPE_COUNT`.
const STRIPES_MAX: usize = 2_000;

/// Bytes of an object in a layout.
const OBJECT_BYTES: usize = 24;

fuzz_target!(|data: &[u8]| {
    let Ok(file) = parse_lov(data) else { return };
    check(&file, data);
    // A name that is not UTF-8, or that ends with half a character, can't be written again.
    if pools(&file).iter().all(|pool| pool.len() < 16 && !pool.contains('\u{FFFD}')) {
        for is_big in [false, true] {
            assert_eq!(parse_lov(&LovWriter { is_big }.file(&file)).as_ref(), Ok(&file));
        }
    }
});

fn check(file: &LovFile, data: &[u8]) {
    let mut objects = 0;
    if let LovFile::Composite(components) = file {
        // One behind the room for growth of a self-extending layout has no bytes until the file has grown.
        assert!(components.iter().all(|component| component.start <= component.end));
        assert!(components.len() * 48 <= data.len());
    }
    for stripes in all_stripes(file) {
        assert!(stripes.osts.len() <= STRIPES_MAX);
        assert!(stripes.osts.is_empty() || stripes.osts.len() == usize::from(stripes.stripe_count));
        assert!(stripes.osts.is_empty() || stripes.stripe_bytes > 0);
        objects += stripes.osts.len();
    }
    assert!(objects * OBJECT_BYTES <= data.len(), "more objects than the value has room for");
}

fn all_stripes(file: &LovFile) -> Vec<&LovStripes> {
    match file {
        LovFile::Plain(stripes) => vec![stripes],
        LovFile::Composite(parts) => parts.iter().filter_map(|part| part.stripes.as_ref()).collect(),
        LovFile::Foreign => Vec::new(),
    }
}

fn pools(file: &LovFile) -> Vec<&str> {
    all_stripes(file).into_iter().filter_map(|stripes| stripes.pool.as_deref()).collect()
}
