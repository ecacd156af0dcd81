//! Admission of a session by the quotas. No I/O.

use crate::config::DaemonConfig;

/// An admitted session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedSession {
    /// The client's identity.
    pub identity: String,
    /// The name of the export.
    pub export: String,
}

/// A refusal for lack of room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionQuotaRefusal {
    /// The reason, for people.
    pub message: String,
    /// A hint for the client.
    pub hint: &'static str,
    /// True if there will be room when other sessions have ended.
    pub may_pass: bool,
}

/// Returns the bytes per second that a session of `wanted` may move while `running` ones are there; 0 for no
/// limit.
///
/// # Errors
/// [`SessionQuotaRefusal`] if there is no room for the session.
pub fn admit<'a>(
    config: &DaemonConfig,
    running: impl Iterator<Item = &'a AdmittedSession> + Clone,
    wanted: &AdmittedSession,
) -> Result<u64, SessionQuotaRefusal> {
    let AdmittedSession { identity, export } = wanted;
    let Some((_, rule)) = config.rule(export, identity) else {
        // The session has checked the same configuration, or that of before a reload.
        let message = format!("the daemon's configuration has changed, {export} is no longer open to you");
        return Err(SessionQuotaRefusal { message, hint: "", may_pass: false });
    };
    let later = "wait until one of them has ended, and run the same command again";
    let limits = &config.limits;
    if running.clone().count() as u64 >= limits.sessions {
        return full(format!("the daemon has as many sessions as it takes, {}", limits.sessions), later);
    }
    let own = running.filter(|held| held.identity == *identity);
    if own.clone().count() as u64 >= limits.sessions_per_identity {
        return full(
            format!("you have as many sessions as one may have, {}", limits.sessions_per_identity),
            later,
        );
    }
    match rule.sessions {
        Some(most) if own.filter(|held| held.export == *export).count() as u64 >= most => {
            full(format!("you have as many sessions on {export} as you may have, {most}"), later)
        }
        _ => Ok(rule.session_rate()),
    }
}

fn full(message: String, hint: &'static str) -> Result<u64, SessionQuotaRefusal> {
    Err(SessionQuotaRefusal { message, hint, may_pass: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"
[tls]
certificate = "/c"
key = "/k"
[limits]
sessions = 4
sessions_per_identity = 3
[[export]]
name = "data"
path = "/data"
allow = [{ identity = "alice", read = true, sessions = 2, rate = "10 MB/s" }, { identity = "*", read = true }]
[[export]]
name = "more"
path = "/more"
allow = [{ identity = "*", read = true }]
"#;

    fn held(identity: &str, export: &str) -> AdmittedSession {
        AdmittedSession { identity: identity.into(), export: export.into() }
    }

    fn said(running: &[&AdmittedSession], wanted: &AdmittedSession) -> Result<u64, String> {
        let config = DaemonConfig::parse(CONFIG).unwrap();
        admit(&config, running.iter().copied(), wanted).map_err(|full| full.message)
    }

    #[test]
    fn there_is_room_until_there_is_none() {
        let (on_data, on_more) = (held("alice", "data"), held("alice", "more"));
        let bob = held("bob", "data");
        assert_eq!(said(&[], &on_data), Ok(5_000_000));
        assert_eq!(said(&[], &bob), Ok(0));
        assert_eq!(said(&[&on_data, &bob, &bob], &on_data), Ok(5_000_000));
        assert!(said(&[&on_data, &on_data], &on_data).unwrap_err().contains("on data as you may have, 2"));
        assert_eq!(said(&[&on_data, &on_data], &on_more), Ok(0));
        assert!(said(&[&on_data, &on_data, &on_more], &on_more).unwrap_err().contains("one may have, 3"));
        assert!(said(&[&bob, &bob, &bob, &on_more], &on_data).unwrap_err().contains("it takes, 4"));
        assert!(said(&[], &held("alice", "gone")).unwrap_err().contains("no longer open"));
    }
}
