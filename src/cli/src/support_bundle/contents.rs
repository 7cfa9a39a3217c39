//! Files of the archive. Documents remain values until they are written, so that a changed text cannot break their
//! syntax.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::CliError;
use crate::text::printable;
use octavo_client::redaction::names::{NameKind, Names};
use octavo_client::redaction::secrets;

/// File with the parts that could not be read.
const ERRORS: &str = "errors.txt";

/// Content of a file.
#[derive(Debug, Clone, PartialEq)]
enum Content {
    Document(Value),
    Text(String),
}

/// Files of the archive.
#[derive(Debug, Default)]
pub(super) struct Contents {
    files: BTreeMap<String, Content>,
    errors: Vec<String>,
    names: Names,
}

impl Contents {
    /// Adds a document.
    pub(super) fn add_document(
        &mut self,
        path: &str,
        document: &impl Serialize,
    ) -> Result<(), CliError> {
        let value = serde_json::to_value(document);
        let value = value.map_err(|error| CliError::Serialize(Box::new(error)))?;
        self.names.add_from_document(&value);
        self.files.insert(path.to_owned(), Content::Document(value));
        Ok(())
    }

    /// Adds a log.
    pub(super) fn add_log(&mut self, path: &str, text: String) {
        self.names.add_from_log(&text);
        self.files.insert(path.to_owned(), Content::Text(text));
    }

    /// Adds the reason why a part cannot be read.
    pub(super) fn add_error(&mut self, path: &str, reason: &str) {
        self.errors.push(format!("{path}: {}", printable(reason)));
    }

    /// Adds a name to replace.
    pub(super) fn add_name(&mut self, kind: NameKind, name: &str) {
        self.names.add(kind, name);
    }

    /// Removes secrets from all texts.
    pub(super) fn remove_secrets(&mut self) {
        self.change_texts(&secrets::remove);
        for content in self.files.values_mut() {
            if let Content::Document(value) = content {
                remove_secret_values(value);
            }
        }
    }

    /// Replaces names in all texts and paths.
    pub(super) fn replace_names(&mut self) {
        let replacements = std::mem::take(&mut self.names).replacements();
        self.change_texts(&|text| replacements.replace(text));
        let files = std::mem::take(&mut self.files).into_iter();
        self.files = files.map(|(path, content)| (replacements.replace(&path), content)).collect();
    }

    fn change_texts(&mut self, change: &impl Fn(&str) -> String) {
        for content in self.files.values_mut() {
            match content {
                Content::Text(text) => *text = change(text),
                Content::Document(value) => change_value(value, change),
            }
        }
        for error in &mut self.errors {
            *error = change(error);
        }
    }

    /// Returns the parts that could not be read, with the reasons.
    pub(super) fn errors(&self) -> &[String] {
        &self.errors
    }

    /// Returns the paths and texts of the files.
    pub(super) fn files(&self) -> Vec<(String, String)> {
        let files = self.files.iter().map(|(path, content)| {
            let text = match content {
                Content::Text(text) => text.clone(),
                Content::Document(value) => format!("{value:#}\n"),
            };
            (path.clone(), text)
        });
        let errors = (!self.errors.is_empty()).then(|| {
            let mut text = self.errors.join("\n");
            text.push('\n');
            (ERRORS.to_owned(), text)
        });
        files.chain(errors).collect()
    }
}

/// Changes all strings and all keys of a value. Keys may be names, such as labels or namespaces.
fn change_value(value: &mut Value, change: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| change_value(item, change)),
        Value::Object(fields) => {
            let changed = std::mem::take(fields).into_iter().map(|(key, mut field)| {
                change_value(&mut field, change);
                (change(&key), field)
            });
            *fields = changed.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Removes the values of fields that are named like a secret.
fn remove_secret_values(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(remove_secret_values),
        Value::Object(fields) => {
            for (key, field) in fields {
                let is_value = field.is_string() || field.is_number() || field.is_array();
                if is_value && secrets::is_secret_key(key) {
                    *field = Value::from(secrets::REMOVED);
                } else {
                    remove_secret_values(field);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_and_names_disappear_from_documents_logs_paths_and_errors() {
        let mut contents = Contents::default();
        contents.add_name(NameKind::Node, "gpu-a.example.com");
        let status = json!({
            "name": "gpu-a.example.com", "state": "ok", "count": 3, "token": "t0psecret",
            "labels": {"kubernetes.io/hostname": "gpu-a", "team-vision/owner": "x"},
            "password": 12345, "secret": ["s1cret"],
            "holders": [{"namespace": "team-vision", "pod": "train-0", "command": "run --api-key k3y"}],
        });
        contents.add_document("nodes/gpu-a.example.com/status.json", &status).unwrap();
        contents.add_log(
            "logs/agent.log",
            "INFO blocked node=gpu-a.example.com pod=\"train-0\" user=\"eve\" PASSWORD=hunter2\n"
                .to_owned(),
        );
        contents.add_error("x", "Node gpu-a.example.com: Authorization: Bearer abc.def");
        contents.remove_secrets();
        contents.replace_names();
        let files: BTreeMap<String, String> = contents.files().into_iter().collect();
        let all = format!("{files:?}");
        for gone in [
            "gpu-a",
            "team-vision",
            "train-0",
            "eve",
            "t0psecret",
            "k3y",
            "hunter2",
            "abc.def",
            "12345",
            "s1cret",
        ] {
            assert!(!all.contains(gone), "{gone}: {all}");
        }
        let paths: Vec<&str> = files.keys().map(String::as_str).collect();
        assert_eq!(paths, ["errors.txt", "logs/agent.log", "nodes/node-2/status.json"]);
        let status: Value = serde_json::from_str(&files["nodes/node-2/status.json"]).unwrap();
        assert_eq!(status["name"], "node-2");
        assert_eq!(status["labels"]["kubernetes.io/hostname"], "node-1");
        assert_eq!((&status["state"], &status["count"]), (&json!("ok"), &json!(3)));
        assert_eq!(status["holders"][0]["pod"], "pod-1");
        assert!(files["logs/agent.log"].contains("node=node-2 pod=\"pod-1\" user=\"user-1\""));
    }
}
