//! Parsing of label sets in several formats: the output of `octavo labels`, a feature file of Node Feature Discovery,
//! or a Node from `kubectl get node -o json`.
//!
//! Writing labels is implemented by the label sinks. A Node also carries labels of other owners; the caller has to
//! filter them.

use std::collections::BTreeMap;

use octavo_model::label::LabelKey;
use serde_json::Value;
use thiserror::Error;

/// Error while parsing a label set.
#[derive(Debug, Error)]
pub enum LabelsError {
    /// The text starts with `{` but is not JSON.
    #[error("not JSON, but it starts with a brace")]
    Json(#[source] serde_json::Error),
    /// The text looks like YAML but is not.
    #[error("not YAML, but it has a line with a key and a colon")]
    Yaml(#[source] Box<serde_saphyr::Error>),
    /// A line that is neither empty nor a comment nor a label.
    #[error("line {line}: {text:?} is not a label like key=value")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// A label whose value is not a string.
    #[error("the value of {key:?} is not a string; quote it in JSON and YAML")]
    NotText {
        /// Key of the label.
        key: String,
    },
    /// An object that is neither a label set nor a Node with labels.
    #[error("neither an object of labels nor a Node with metadata.labels")]
    NoLabels,
    /// Two lines have the same key.
    #[error("line {line}: duplicate key {key:?}")]
    DuplicateKey {
        /// Number of the second line, from 1.
        line: usize,
        /// Key of the label.
        key: String,
    },
}

/// Parses a label set, detecting the format.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, LabelsError> {
    // Some editors prepend a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with('{') {
        return from_object(serde_json::from_str(text).map_err(LabelsError::Json)?);
    }
    let first = text.lines().map(str::trim).find(|line| is_content(line));
    if first.is_some_and(|line| line.contains(": ") || line.ends_with(':')) {
        let value = serde_saphyr::from_str(text);
        return from_object(value.map_err(|error| LabelsError::Yaml(Box::new(error)))?);
    }
    from_lines(text)
}

fn is_content(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#')
}

/// Parses `key=value` lines with comments. A key without a value means `true`, as in Node Feature Discovery.
fn from_lines(text: &str) -> Result<BTreeMap<String, String>, LabelsError> {
    let mut labels = BTreeMap::new();
    for (number, line) in text.lines().map(str::trim).enumerate() {
        if !is_content(line) {
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        let line_number = number.saturating_add(1);
        if key.parse::<LabelKey>().is_err() {
            return Err(LabelsError::Line { line: line_number, text: line.to_owned() });
        }
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(LabelsError::DuplicateKey { line: line_number, key: key.to_owned() });
        }
    }
    Ok(labels)
}

fn from_object(value: Value) -> Result<BTreeMap<String, String>, LabelsError> {
    let Value::Object(mut object) = value else {
        return Err(LabelsError::NoLabels);
    };
    let labels = match object.remove("metadata") {
        Some(mut metadata) => {
            metadata.get_mut("labels").map(Value::take).ok_or(LabelsError::NoLabels)?
        }
        None => Value::Object(object),
    };
    let Value::Object(labels) = labels else {
        return Err(LabelsError::NoLabels);
    };
    labels
        .into_iter()
        .map(|(key, value)| match value {
            Value::String(text) => Ok((key, text)),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => Err(LabelsError::NotText { key }),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, expected: &[(&str, &str)]) {
        let expected: BTreeMap<String, String> =
            expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn feature_file_lines_are_parsed() {
        reads(
            "# +expiry-time=2026-11-21T10:00:00Z\n\noctavo.dev/count=8\nnvidia.com/mig.capable\n",
            &[("nvidia.com/mig.capable", "true"), ("octavo.dev/count", "8")],
        );
        reads("", &[]);
    }

    #[test]
    fn label_objects_and_nodes_are_parsed() {
        let expected = [("a.dev/b", "8")];
        reads(r#"{"a.dev/b": "8"}"#, &expected);
        reads("a.dev/b: \"8\"\n", &expected);
        reads(
            r#"{"kind": "Node", "metadata": {"name": "n", "labels": {"a.dev/b": "8"}}, "spec": {}}"#,
            &expected,
        );
        reads("kind: Node\nmetadata:\n  labels:\n    a.dev/b: \"8\"\n", &expected);
    }

    #[test]
    fn invalid_label_set_is_rejected_with_its_line() {
        let error_of = |text| parse(text).unwrap_err().to_string();
        assert_eq!(
            error_of("a=1\nfoo bar=2\n"),
            "line 2: \"foo bar=2\" is not a label like key=value"
        );
        for nonsense in ["[[[[", "[]", "octavo.dev/count:3", "-a", "=1"] {
            assert_eq!(
                error_of(nonsense),
                format!("line 1: {nonsense:?} is not a label like key=value")
            );
        }
        assert_eq!(error_of("a=1\n#\na=2\n"), "line 3: duplicate key \"a\"");
        assert_eq!(
            error_of("{\"a\": 1}"),
            "the value of \"a\" is not a string; quote it in JSON and YAML"
        );
        assert_eq!(
            error_of("a: 1\n"),
            "the value of \"a\" is not a string; quote it in JSON and YAML"
        );
        assert_eq!(
            error_of("{\"metadata\": {}}"),
            "neither an object of labels nor a Node with metadata.labels"
        );
        assert_eq!(error_of("{"), "not JSON, but it starts with a brace");
    }
}
