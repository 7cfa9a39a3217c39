//! Replacement of names: each name of a node, pod, namespace or user has one replacement in the whole archive.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameKind {
    /// Name of a Node.
    Node,
    /// Name of a pod.
    Pod,
    /// Name of a namespace.
    Namespace,
    /// Name of a user.
    User,
}

/// Fields of documents and logs that have a name.
const FIELDS: [(&str, NameKind); 10] = [
    ("node", NameKind::Node),
    ("nodeName", NameKind::Node),
    ("node_name", NameKind::Node),
    ("kubernetes.io/hostname", NameKind::Node),
    ("pod", NameKind::Pod),
    ("podName", NameKind::Pod),
    ("namespace", NameKind::Namespace),
    ("user", NameKind::User),
    ("username", NameKind::User),
    ("requester", NameKind::User),
];

/// Names that are found in the files.
#[derive(Debug, Default)]
pub(crate) struct Names {
    found: BTreeMap<NameKind, BTreeSet<String>>,
}

/// Names with their replacements.
#[derive(Debug)]
pub(crate) struct Replacements {
    by_name: BTreeMap<String, String>,
    longest: usize,
}

impl NameKind {
    fn word(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Pod => "pod",
            Self::Namespace => "namespace",
            Self::User => "user",
        }
    }
}

impl Names {
    /// Adds a name.
    pub(crate) fn add(&mut self, kind: NameKind, name: &str) {
        if !name.is_empty() {
            self.found.entry(kind).or_default().insert(name.to_owned());
        }
    }

    /// Adds the names in the fields of a document.
    pub(crate) fn add_from_document(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add_from_document(item)),
            Value::Object(fields) => {
                for (key, field) in fields {
                    match (kind_of(key), field) {
                        (Some(kind), Value::String(name)) => self.add(kind, name),
                        _ => self.add_from_document(field),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Adds the names in the fields of log lines: JSON, or `key=value`.
    pub(crate) fn add_from_log(&mut self, text: &str) {
        for line in text.lines() {
            let document = line.find('{').and_then(|start| line.get(start..));
            if let Some(Ok(value)) = document.map(serde_json::from_str::<Value>) {
                self.add_from_document(&value);
                continue;
            }
            for (key, kind) in FIELDS {
                let fields = line.match_indices(&format!("{key}=")).collect::<Vec<_>>();
                for (at, found) in fields {
                    let is_start = line.get(..at).is_some_and(|before| {
                        !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
                    });
                    let value = line.get(at.saturating_add(found.len())..).unwrap_or_default();
                    if is_start {
                        self.add(kind, field_value(value));
                    }
                }
            }
        }
    }

    /// Numbers the names of each kind in their order.
    pub(crate) fn replacements(self) -> Replacements {
        let mut by_name = BTreeMap::new();
        for (kind, names) in self.found {
            for (name, number) in names.into_iter().zip(1_usize..) {
                by_name.entry(name).or_insert_with(|| format!("{}-{number}", kind.word()));
            }
        }
        let longest = by_name.keys().map(String::len).max().unwrap_or_default();
        Replacements { by_name, longest }
    }
}

fn kind_of(key: &str) -> Option<NameKind> {
    FIELDS.iter().find(|(field, _)| *field == key).map(|(_, kind)| *kind)
}

/// Returns the value at the start of a text, without its quotes.
fn field_value(text: &str) -> &str {
    match text.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next().unwrap_or_default(),
        None => text.split([' ', ',', ';', '}', ')', ']']).next().unwrap_or_default(),
    }
}

impl Replacements {
    /// Replaces all names in a text. A name inside of a longer word is not replaced, except between separators.
    pub(crate) fn replace(&self, text: &str) -> String {
        let mut result = String::with_capacity(text.len());
        let mut is_boundary = true;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if is_boundary && let Some((name, replacement)) = self.longest_at(rest) {
                result.push_str(replacement);
                rest = rest.get(name.len()..).unwrap_or_default();
                is_boundary = false;
                continue;
            }
            result.push(first);
            is_boundary = !first.is_alphanumeric();
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
        result
    }

    /// Returns the longest name at the start of a text.
    fn longest_at(&self, text: &str) -> Option<(&str, &str)> {
        let ends = text.char_indices().take_while(|(at, _)| *at <= self.longest);
        let mut previous_is_word = false;
        let mut found = None;
        for (at, c) in ends.chain([(text.len(), ' ')]) {
            let is_word = c.is_alphanumeric();
            if previous_is_word
                && !is_word
                && let Some(name) = text.get(..at).filter(|name| name.len() <= self.longest)
                && let Some((name, replacement)) = self.by_name.get_key_value(name)
            {
                found = Some((name.as_str(), replacement.as_str()));
            }
            // Names do not contain blanks.
            if c.is_whitespace() {
                break;
            }
            previous_is_word = is_word;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_name_is_replaced_at_word_boundaries_only() {
        let mut names = Names::default();
        for name in ["gpu", "gpu-1", "gpu-1.example.com"] {
            names.add(NameKind::Node, name);
        }
        names.add(NameKind::User, "system:serviceaccount:ns:sa");
        names.add(NameKind::Namespace, "");
        let all = names.replacements();
        assert_eq!(
            all.replace("gpu-1.example.com, gpu-1: gpu/gpus gpu-12 gpux-gpu-1 é gpu"),
            "node-3, node-2: node-1/gpus node-1-12 gpux-node-2 é node-1"
        );
        assert_eq!(all.replace("by \"system:serviceaccount:ns:sa\""), "by \"user-1\"");
    }

    #[test]
    fn names_are_found_in_log_fields() {
        let mut names = Names::default();
        names.add_from_log(
            "2026 INFO drained node=n1 pod=\"a b\" mynode=no\n\
             2026 {\"fields\":{\"namespace\":\"team\"}}\n",
        );
        let found: Vec<(NameKind, Vec<&str>)> = (names.found.iter())
            .map(|(kind, names)| (*kind, names.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(
            found,
            [
                (NameKind::Node, vec!["n1"]),
                (NameKind::Pod, vec!["a b"]),
                (NameKind::Namespace, vec!["team"]),
            ]
        );
    }
}
