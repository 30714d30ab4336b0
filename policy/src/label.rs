//! Labels and label selectors with the syntax and the semantics of Kubernetes.
//!
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/>

use std::collections::BTreeMap;
use std::str::FromStr;

use proto::cluster::is_dns_label;

/// Longest value of a label, and longest name in its key, in bytes.
pub const LABEL_BYTES_MAX: usize = 63;

/// Longest DNS name in front of a label's name, in bytes (RFC 1035, section 2.3.4).
const PREFIX_BYTES_MAX: usize = 253;

/// All of these must hold. Without a requirement everything is selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

/// A condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    pub(crate) key: String,
    pub(crate) operator: Operator,
}

/// The comparison of a label with values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operator {
    /// The label is there and has one of these values.
    In(Vec<String>),
    /// It has none of these values, or is not there.
    NotIn(Vec<String>),
    /// The label is there, with any value.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

/// The text is not a selector as `kubectl get -l` takes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotALabelSelector {
    /// A condition has none of the known forms.
    #[error(
        "{0:?} is no condition on a label: use stage=live, stage!=live, 'stage in (live,test)', 'stage notin (live)', stage or '!stage', \
         with commas between several"
    )]
    Form(String),
    /// The key of a condition is not the name of a label.
    #[error("{0:?} is not the name of a label: use a name such as stage or example.com/stage")]
    Key(String),
    /// A value cannot be the value of a label.
    #[error(
        "{0:?} is not the value of a label: use letters, digits, '-', '_' and '.', at most {LABEL_BYTES_MAX}"
    )]
    Value(String),
}

impl LabelSelector {
    /// Selects where all of these hold.
    #[must_use]
    pub fn new(requirements: Vec<Requirement>) -> Self {
        Self(requirements)
    }

    /// Returns true if something with these labels is selected.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|Requirement { key, operator }| {
            let value = labels.get(key);
            match operator {
                Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                Operator::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }
}

impl Requirement {
    /// A condition on the label `key`.
    ///
    /// # Errors
    ///
    /// [`NotALabelSelector::Key`], [`NotALabelSelector::Value`]: no label can have that name or one of the values.
    pub fn new(key: String, operator: Operator) -> Result<Self, NotALabelSelector> {
        if !is_label_name(&key) {
            return Err(NotALabelSelector::Key(key));
        }
        let values = match &operator {
            Operator::In(values) | Operator::NotIn(values) => values.as_slice(),
            Operator::Exists | Operator::DoesNotExist => &[],
        };
        match values.iter().find(|value| !is_label_value(value)) {
            Some(value) => Err(NotALabelSelector::Value(value.clone())),
            None => Ok(Self { key, operator }),
        }
    }
}

impl FromStr for LabelSelector {
    type Err = NotALabelSelector;

    fn from_str(text: &str) -> Result<Self, NotALabelSelector> {
        let conditions = conditions(text);
        // kubectl takes an empty text as a selector that selects everything.
        if let [only] = conditions.as_slice()
            && only.trim().is_empty()
        {
            return Ok(Self(Vec::new()));
        }
        conditions.into_iter().map(requirement).collect::<Result<_, _>>().map(Self)
    }
}

/// Splits at the commas that are not between parentheses.
fn conditions(text: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0_u32, 0, Vec::new());
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(&text[begin..]);
    found
}

fn requirement(condition: &str) -> Result<Requirement, NotALabelSelector> {
    let condition = condition.trim();
    let form = || NotALabelSelector::Form(condition.to_owned());
    let (raw_key, operator) = if let Some(raw_key) = condition.strip_prefix('!') {
        (raw_key, Operator::DoesNotExist)
    } else if let Some((raw_key, raw_value)) = condition.split_once("!=") {
        (raw_key, Operator::NotIn(vec![trimmed(raw_value)]))
    } else if let Some((raw_key, raw_value)) = condition.split_once('=') {
        (raw_key, Operator::In(vec![trimmed(raw_value.strip_prefix('=').unwrap_or(raw_value))]))
    } else if let Some((raw_key, set)) = condition.split_once(char::is_whitespace) {
        let (word, list) = set.split_once('(').ok_or_else(form)?;
        let list = list.strip_suffix(')').ok_or_else(form)?;
        let values = list.split(',').map(trimmed).collect();
        match word.trim() {
            "in" => (raw_key, Operator::In(values)),
            "notin" => (raw_key, Operator::NotIn(values)),
            _ => return Err(form()),
        }
    } else if condition.is_empty() {
        return Err(form());
    } else {
        (condition, Operator::Exists)
    };
    Requirement::new(trimmed(raw_key), operator)
}

fn trimmed(text: &str) -> String {
    text.trim().to_owned()
}

/// Returns true for the name of a label, perhaps behind a DNS name and a slash.
#[must_use]
pub fn is_label_name(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let is_prefix = |prefix: &str| prefix.len() <= PREFIX_BYTES_MAX && prefix.split('.').all(is_dns_label);
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_prefix)
}

/// Returns true for the value of a label, which may be empty.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let end = |character: char| character.is_ascii_alphanumeric();
    text.len() <= LABEL_BYTES_MAX
        && text.bytes().all(fits)
        && (text.is_empty() || text.starts_with(end) && text.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every form of a selector that kubectl knows: <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#api>.
    #[test]
    fn a_selector_of_kubectl_selects_as_kubectl_does() {
        let clusters: [(&str, &[(&str, &str)]); 4] = [
            ("none", &[]),
            ("live", &[("stage", "live")]),
            ("test", &[("stage", "test"), ("example.com/tier", "1")]),
            ("empty", &[("stage", "")]),
        ];
        for (text, selected) in [
            ("", "none live test empty"),
            ("stage=live", "live"),
            ("stage==live", "live"),
            ("stage = live", "live"),
            ("stage=", "empty"),
            ("stage!=live", "none test empty"),
            ("stage", "live test empty"),
            ("!stage", "none"),
            ("stage in (live,test)", "live test"),
            ("stage in ( live , test )", "live test"),
            ("stage in(live)", "live"),
            ("stage notin (live,test)", "none empty"),
            ("stage in (live,test),example.com/tier", "test"),
            ("stage, example.com/tier!=1", "live empty"),
            ("stage in ()", "empty"),
        ] {
            let selector: LabelSelector = text.parse().unwrap();
            let is_selected = |labels: &[(&str, &str)]| {
                let owned = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
                selector.selects(&owned.collect())
            };
            let names: Vec<&str> =
                clusters.iter().filter(|(_, labels)| is_selected(labels)).map(|(name, _)| *name).collect();
            assert_eq!(names.join(" "), selected, "{text:?}");
        }
    }

    #[test]
    fn a_text_that_is_no_selector_is_refused_with_the_part_that_is_wrong() {
        for (text, part) in [
            ("stage=live,", "\"\""),
            ("stage in live", "stage in live"),
            ("stage in (live", "stage in (live"),
            ("stage like (live)", "stage like (live)"),
            ("stage live", "stage live"),
            ("stage=li ve", "li ve"),
            ("-stage", "-stage"),
            ("a/b/c=1", "a/b/c"),
            ("stage>1", "stage>1"),
            ("=live", "\"\""),
            ("!", "\"\""),
        ] {
            let refused = text.parse::<LabelSelector>().unwrap_err().to_string();
            assert!(refused.contains(part), "{text:?}: {refused}");
        }
    }

    #[test]
    fn label_names_and_values_are_those_of_kubernetes() {
        let long = "x".repeat(LABEL_BYTES_MAX);
        let domain = [long.as_str(), &long, &long, &long[2..]].join(".");
        assert_eq!(domain.len(), PREFIX_BYTES_MAX);
        for name in ["a", "A.b-c_d", "example.com/site", "0", &format!("{domain}/{long}")] {
            assert!(is_label_name(name), "{name:?}");
        }
        let (name, prefix) = (format!("{long}x"), format!("{domain}x/a"));
        for name in ["", "-a", "a-", "a/b/c", "Example.com/a", "/a", "a/", "a b", "ä", &name, &prefix] {
            assert!(!is_label_name(name), "{name:?}");
        }
        assert!(
            is_label_value("") && is_label_value(&long) && !is_label_value("-a") && !is_label_value(&name)
        );
    }
}
