//! The template of target names from the labels of a series. Pure.

use std::collections::BTreeMap;

/// The longest name of a target, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;

/// A text in which `{label}` stands for a label's value, `{label:host}` for the value without a port, and
/// `{label:path}` for the value with a slash for its last dash (Lustre calls `lfs01/OST0007`
/// `lfs01-OST0007`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetNameFromLabels(Vec<TargetTemplatePart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TargetTemplatePart {
    Text(String),
    Label(String, LabelForm),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LabelForm {
    Whole,
    Host,
    Path,
}

impl TargetNameFromLabels {
    /// # Errors
    /// A text with the problem and the right form.
    pub(super) fn parse(text: &str) -> Result<TargetNameFromLabels, String> {
        parts_of(text).map(TargetNameFromLabels).ok_or_else(|| {
            format!(
                "{text:?} makes no names: write {{label}}, {{label:host}} or {{label:path}}, such as {{instance:host}}/{{device}}"
            )
        })
    }

    /// The name for these labels; `None` if a label is missing, or the name is invalid.
    pub(super) fn render(&self, labels: &BTreeMap<String, String>) -> Option<String> {
        let mut name = String::new();
        for part in &self.0 {
            match part {
                TargetTemplatePart::Text(text) => name.push_str(text),
                TargetTemplatePart::Label(label, form) => name.push_str(&form.apply(labels.get(label)?)),
            }
        }
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
        is_name.then_some(name)
    }
}

fn parts_of(text: &str) -> Option<Vec<TargetTemplatePart>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let (inside, after) = behind.split_once('}')?;
        let (label, form) = match inside.split_once(':') {
            None => (inside, LabelForm::Whole),
            Some((label, "host")) => (label, LabelForm::Host),
            Some((label, "path")) => (label, LabelForm::Path),
            Some(_) => return None,
        };
        let is_label = !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_label || before.contains('}') {
            return None;
        }
        parts.extend((!before.is_empty()).then(|| TargetTemplatePart::Text(before.to_owned())));
        parts.push(TargetTemplatePart::Label(label.to_owned(), form));
        rest = after;
    }
    if parts.is_empty() || rest.contains('}') {
        return None;
    }
    parts.extend((!rest.is_empty()).then(|| TargetTemplatePart::Text(rest.to_owned())));
    Some(parts)
}
impl LabelForm {
    fn apply(self, value: &str) -> String {
        match self {
            LabelForm::Whole => value.to_owned(),
            LabelForm::Host => match value.rsplit_once(':') {
                // An IPv6 address without a port also has colons.
                Some((host, port))
                    if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(':') =>
                {
                    host.trim_matches(['[', ']']).to_owned()
                }
                _ => value.to_owned(),
            },
            LabelForm::Path => match value.rsplit_once('-') {
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
        TargetNameFromLabels::parse(text).unwrap().render(&labels)
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
            assert!(TargetNameFromLabels::parse(text).is_err(), "{text}");
        }
    }
}
