//! A daemon's configuration. Input: its text.
#![no_main]

use carrack_service::DaemonConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = str::from_utf8(data) else { return };
    let config = match DaemonConfig::parse(text) {
        Ok(config) => config,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert_eq!(
        DaemonConfig::parse(&format!("{text}\n# the end\n")).as_ref(),
        Ok(&config),
        "a remark changes nothing"
    );
    assert!(!config.exports.is_empty() && !config.listen.is_empty());
    for (index, export) in config.exports.iter().enumerate() {
        assert!(export.path.is_absolute() && !export.name.is_empty() && !export.name.contains('/'));
        assert!(config.exports[..index].iter().all(|other| other.name != export.name), "two of one name");
        for rule in &export.allow {
            // The first rule counts, and what is open is what has one.
            if let Some((found, first)) = config.rule(&export.name, &rule.identity) {
                assert_eq!(found, export);
                assert!(export.allow.contains(first));
                assert!(config.open_to(&rule.identity).any(|name| name == export.name));
            }
        }
    }
    for path in
        [Some(&config.tls.certificate), Some(&config.tls.key), config.audit.as_ref()].into_iter().flatten()
    {
        assert!(path.is_absolute());
    }
    assert!(config.limits.handshake_timeout().as_secs() > 0 && config.limits.sessions > 0);
    assert!(config.rule("..", "x").is_none() && config.rule("", "x").is_none());
});
