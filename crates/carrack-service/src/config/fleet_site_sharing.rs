//! `[sharing]` of a fleet's site: a file for `carrack manager` with the same section as a daemon's, except
//! for keys that apply to a machine only.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::error::ConfigError;
use super::parsed;
use super::sharing::SharingConfig;

/// The file, which has no other section.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteSharingFile {
    sharing: SharingConfig,
}

/// Positions of the keys that apply to a machine only.
#[derive(Deserialize)]
struct MachineOnlyKeys {
    sharing: MachineOnlySharingKeys,
}

#[derive(Deserialize)]
struct MachineOnlySharingKeys {
    socket: Option<Spanned<IgnoredAny>>,
    #[serde(default)]
    classes: BTreeMap<String, MachineOnlyClassKeys>,
}

#[derive(Deserialize)]
struct MachineOnlyClassKeys {
    users: Option<Spanned<IgnoredAny>>,
    groups: Option<Spanned<IgnoredAny>>,
}

fn error_at(text: &str, place: &Spanned<IgnoredAny>, message: String, hint: &str) -> ConfigError {
    ConfigError::at_position(text, Some(place.span().start), message, hint.to_owned())
}

impl SharingConfig {
    /// Reads the file of a fleet's site.
    ///
    /// # Errors
    /// The first error, with its line. Keys without effect at a site are errors as well: its clients ask over
    /// NATS and not at a socket, and their messages prove no user.
    pub fn parse_site_file(text: &str) -> Result<SharingConfig, ConfigError> {
        let SiteSharingFile { sharing } = parsed(text)?;
        let MachineOnlyKeys { sharing: machine } = parsed(text)?;
        if let Some(socket) = &machine.socket {
            let message = "a site's targets are asked for over NATS, at no socket".to_owned();
            let hint = "take socket out; that of a machine belongs to `carrack serve`";
            return Err(error_at(text, socket, message, hint));
        }
        for (name, MachineOnlyClassKeys { users, groups }) in &machine.classes {
            if let Some(place) = users.as_ref().or(groups.as_ref()) {
                let message = format!("nobody proves over NATS that he may use the class {name}");
                let hint =
                    "take users and groups out: a site's classes are for all who may submit to the fleet";
                return Err(error_at(text, place, message, hint));
            }
        }
        Ok(sharing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MAX_CONFIG_BYTES;

    #[test]
    fn a_site_has_classes_and_a_feed_as_a_machine_does() {
        let text = "[sharing]\nusers = 2\n[sharing.classes.urgent]\nweight = 4\n\
                    [sharing.health]\nprometheus = \"http://m:9090\"\npreset = \"ceph\"\n";
        let site = SharingConfig::parse_site_file(text).unwrap();
        assert_eq!((site.settings().grants.users, site.settings().classes["urgent"].weight), (2, 4));
        assert_eq!(site.health.unwrap().prometheus.to_string(), "http://m:9090");
        assert_eq!(SharingConfig::parse_site_file("[sharing]\n").unwrap(), SharingConfig::default());
    }

    #[test]
    fn what_only_a_machine_has_is_refused_where_it_is_written() {
        for (text, line, said) in [
            ("[sharing]\nusers = 2\nsocket = \"/s\"\n", 3, "at no socket"),
            ("[sharing.classes.a]\nusers = [\"alice\"]\n", 2, "the class a"),
            ("[sharing]\nclasses = { b = { weight = 2, groups = [\"hpc\"] } }\n", 2, "the class b"),
            ("[sharing]\nburst = 5\n", 2, "unknown field `burst`"),
            ("[sharing]\n[queue]\ndirectory = \"/q\"\n", 2, "unknown field `queue`"),
            ("[sharing.health]\nprometheus = \"m\"\n", 2, "no address"),
            ("# nothing\n", 1, "missing field `sharing`"),
        ] {
            let error = SharingConfig::parse_site_file(text).unwrap_err();
            assert!(error.to_string().contains(said) && !error.hint().is_empty(), "{text}: {error}");
            assert_eq!(error.line(), Some(line), "{text}: {error}");
        }
        assert!(SharingConfig::parse_site_file(&"#\n".repeat(MAX_CONFIG_BYTES)).is_err());
    }
}
