//! What the library does to the process that loads it. The only test of its program: the first to load it.

use carrack_fabric::{ProviderOfferFilter, all_offers};

/// Signals that this process handles, as /proc/self/status says (proc(5)).
fn handled() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find(|line| line.starts_with("SigCgt")).expect("a mask");
    line.to_string()
}

#[test]
fn signals_stay_as_they_were() {
    let before = handled();
    if let Err(error) = all_offers(&ProviderOfferFilter::default()) {
        return eprintln!("skipped: {error}");
    }
    assert_eq!(handled(), before);
}
