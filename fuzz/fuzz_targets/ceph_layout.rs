//! The layout of a CephFS file. Input: an offset in the file (8 bytes), then a value of `ceph.file.layout`.
#![no_main]

use carrack_fuzz::Input;
use carrack_layout::formats::parse_ceph_layout;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let Some(offset) = input.take() else { return };
    let offset = u64::from_le_bytes(offset);
    let Ok(layout) = parse_ceph_layout(input.0) else { return };

    let object = layout.object_of(offset);
    if let Some(first) = layout.first_byte_of(object) {
        assert!(first <= offset && layout.object_of(first) == object);
    }
    assert!(layout.objects(offset).take(64).eq((0..64).map_while(|block| {
        let at = block * layout.block_bytes();
        (block == 0 || at < offset).then(|| layout.object_of(at))
    })));

    let pool = layout.pool.as_ref().map(|pool| format!("pool={pool} ")).unwrap_or_default();
    let (unit, count, object) = (layout.stripe_unit, layout.stripe_count, layout.object_bytes);
    let again = format!("{pool}object_size={object} stripe_count={count} stripe_unit={unit}");
    assert_eq!(parse_ceph_layout(again.as_bytes()), Ok(layout));
});
