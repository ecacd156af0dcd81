//! How the labels of a series become the name of a target. Pure.

use std::collections::BTreeMap;

/// The longest name of a target, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;

/// Text in which `{label}` stands for a label's value, `{label:host}` for what of it comes before a port, and `{label:path}` for it
/// with its last dash as a slash (Lustre calls `lfs01/OST0007` `lfs01-OST0007`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetName(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Label(String, Form),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Whole,
    Host,
    Path,
}

impl TargetName {
    /// # Errors
    /// What is wrong with the text, and what would be right.
    pub(super) fn parse(text: &str) -> Result<TargetName, String> {
        let wrong = || {
            format!(
                "{text:?} makes no names: write {{label}}, {{label:host}} or {{label:path}}, such as {{instance:host}}/{{device}}"
            )
        };
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            let (inside, after) = behind.split_once('}').ok_or_else(wrong)?;
            let (label, form) = match inside.split_once(':') {
                None => (inside, Form::Whole),
                Some((label, "host")) => (label, Form::Host),
                Some((label, "path")) => (label, Form::Path),
                Some(_) => return Err(wrong()),
            };
            let is_label = !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if !is_label || before.contains('}') {
                return Err(wrong());
            }
            parts.extend((!before.is_empty()).then(|| Part::Text(before.to_owned())));
            parts.push(Part::Label(label.to_owned(), form));
            rest = after;
        }
        if parts.is_empty() || rest.contains('}') {
            return Err(wrong());
        }
        parts.extend((!rest.is_empty()).then(|| Part::Text(rest.to_owned())));
        Ok(TargetName(parts))
    }

    /// The name of whatever has these labels; none if one of them is missing, or it makes no name.
    pub(super) fn of(&self, labels: &BTreeMap<String, String>) -> Option<String> {
        let mut name = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => name.push_str(text),
                Part::Label(label, form) => name.push_str(&form.of(labels.get(label)?)),
            }
        }
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
        is_name.then_some(name)
    }
}

impl Form {
    fn of(self, value: &str) -> String {
        match self {
            Form::Whole => value.to_owned(),
            Form::Host => match value.rsplit_once(':') {
                // An IPv6 address without a port has colons of its own.
                Some((host, port))
                    if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(':') =>
                {
                    host.trim_matches(['[', ']']).to_owned()
                }
                _ => value.to_owned(),
            },
            Form::Path => match value.rsplit_once('-') {
                Some((file_system, piece)) => format!("{file_system}/{piece}"),
                None => value.to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str, labels: &[(&str, &str)]) -> Option<String> {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        TargetName::parse(text).unwrap().of(&labels)
    }

    #[test]
    fn labels_become_names() {
        for (text, labels, expected) in [
            ("{target:path}", &[("target", "lfs01-OST0007")][..], Some("lfs01/OST0007")),
            ("{target:path}", &[("target", "my-fs-OST0007")], Some("my-fs/OST0007")),
            ("ceph/{ceph_daemon}", &[("ceph_daemon", "osd.3")], Some("ceph/osd.3")),
            ("{instance:host}/{device}", &[("instance", "n1:9100"), ("device", "sda")], Some("n1/sda")),
            ("{instance:host}", &[("instance", "[::1]:9100")], Some("::1")),
            ("{instance:host}", &[("instance", "n1")], Some("n1")),
            ("a{x}b{x}c", &[("x", "-")], Some("a-b-c")),
            ("{x}", &[("y", "1")], None),
            ("{x}", &[("x", "")], None),
            ("{x}", &[("x", "a\nb")], None),
        ] {
            assert_eq!(name(text, labels).as_deref(), expected, "{text}");
        }
        assert_eq!(name("{x}", &[("x", &"y".repeat(NAME_BYTES_MAX + 1))]), None);
    }

    #[test]
    fn what_makes_no_names_is_refused() {
        for text in ["", "sda", "{", "{}", "{a", "a}", "}{a}", "{a}}", "{a:port}", "{a b}"] {
            assert!(TargetName::parse(text).is_err(), "{text}");
        }
    }
}
