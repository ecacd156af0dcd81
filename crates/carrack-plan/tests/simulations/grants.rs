//! The messages of grants as JSON: how large they are, and that what another version wrote is read.

use carrack_plan::grants::{GrantClientReport, GrantReply, GrantRequest, GrantUseReport, TargetGrant};

#[test]
fn a_batch_for_many_targets_is_small() {
    let target = |index: u64| format!("scratch-OST{index:04x}");
    let ask = |index| GrantRequest { target: target(index), objects: 64, bytes: 64 << 20, waits_us: 123_456 };
    let held = |index| GrantUseReport {
        id: 123_456 + index,
        target: target(index),
        ends_in_us: 456_789,
        objects: 32,
        bytes: 32 << 20,
        busy_us: 345_678,
        ..GrantUseReport::default()
    };
    let batch = GrantClientReport {
        client: "dtn07-4711-3-source".into(),
        number: 98_765,
        epoch: 1_700_000_000_000_000_000,
        threads: 16,
        asks: (0..64).map(ask).collect(),
        held: (0..16).map(held).collect(),
        ..GrantClientReport::default()
    };
    let text = serde_json::to_vec(&batch).unwrap();
    println!("{} bytes for 64 targets, 16 of them held", text.len());
    assert!(text.len() < 64 * 90 + 16 * 150 + 300, "{} bytes", text.len());
    assert_eq!(serde_json::from_slice::<GrantClientReport>(&text).unwrap(), batch);
}

#[test]
fn what_is_not_known_is_left_out() {
    let text = r#"{"epoch":7,"number":3,"mood":"good","grants":[{"id":1,"target":"x","ends_in_us":5,"colour":"red"}]}"#;
    let grant = TargetGrant { id: 1, target: "x".into(), ends_in_us: 5, ..TargetGrant::default() };
    let answer = GrantReply { epoch: 7, number: 3, grants: vec![grant], ..GrantReply::default() };
    assert_eq!(serde_json::from_str::<GrantReply>(text).unwrap(), answer);
}
