//! Files of the archive. They wait in a temporary file: those of a large fleet would fill the memory, and names can be
//! replaced only when all of them are known. Documents are parsed again for that, so that a changed text cannot break
//! their syntax.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use octavo_model::text::printable;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use crate::archive::Archive;
use crate::names::{NameKind, Names};
use crate::secrets;

/// File with the parts that could not be read.
const ERRORS: &str = "errors.txt";

/// Format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Document,
    Log,
}

/// A file within the temporary file.
#[derive(Debug, Clone, Copy)]
struct StoredFile {
    format: Format,
    start: u64,
    bytes: usize,
}

/// A file cannot be added to the contents.
#[derive(Debug, Error)]
pub enum ContentsError {
    /// The temporary file cannot be created or written.
    #[error("cannot use a temporary file")]
    TemporaryFile(#[source] io::Error),
    /// A document has no form in JSON.
    #[error("cannot write a document as JSON")]
    Serialize(#[source] serde_json::Error),
}

/// An archive, and the paths and sizes of its files.
pub type PackedBundle = (Vec<u8>, Vec<(String, usize)>);

/// Files of the archive.
#[derive(Debug)]
pub struct Contents {
    /// Without a name in the file system, so that it disappears with the process.
    storage: File,
    files: BTreeMap<String, StoredFile>,
    errors: Vec<String>,
    names: Names,
}

impl Contents {
    /// Creates the temporary file.
    pub fn new() -> Result<Self, ContentsError> {
        let storage = tempfile::tempfile().map_err(ContentsError::TemporaryFile)?;
        Ok(Self { storage, files: BTreeMap::new(), errors: Vec::new(), names: Names::default() })
    }

    /// Adds a document, without its secrets.
    pub fn add_document(
        &mut self,
        path: &str,
        document: &impl Serialize,
    ) -> Result<(), ContentsError> {
        let value = serde_json::to_value(document);
        let mut value = value.map_err(ContentsError::Serialize)?;
        self.names.add_from_document(&value);
        change_value(&mut value, &secrets::remove);
        remove_secret_values(&mut value);
        self.store(path, Format::Document, &value.to_string())
    }

    /// Adds a log, without its secrets.
    pub fn add_log(&mut self, path: &str, text: &str) -> Result<(), ContentsError> {
        self.names.add_from_log(text);
        self.store(path, Format::Log, &secrets::remove(text))
    }

    /// Adds the reason why a part cannot be read.
    pub fn add_error(&mut self, path: &str, reason: &str) {
        self.errors.push(secrets::remove(&format!("{path}: {}", printable(reason))));
    }

    /// Adds a name to replace.
    pub fn add_name(&mut self, kind: NameKind, name: &str) {
        self.names.add(kind, name);
    }

    fn store(&mut self, path: &str, format: Format, text: &str) -> Result<(), ContentsError> {
        let written = self.storage.stream_position().and_then(|start| {
            self.storage.write_all(text.as_bytes())?;
            Ok(start)
        });
        let start = written.map_err(ContentsError::TemporaryFile)?;
        self.files.insert(path.to_owned(), StoredFile { format, start, bytes: text.len() });
        Ok(())
    }

    /// Returns the number of parts that could not be read.
    pub fn missing(&self) -> usize {
        self.errors.len()
    }

    /// Creates the archive, in which all files are in the directory `name`; with `redact`, with replaced names.
    pub fn pack(self, redact: bool, name: &str) -> io::Result<PackedBundle> {
        let mut archive = Archive::new(name);
        let mut files = Vec::new();
        self.write_files(redact, |path, text| {
            files.push((path.to_owned(), text.len()));
            archive.add(path, text)
        })?;
        Ok((archive.finish()?, files))
    }

    /// Passes the path and text of each file to `write`, one after the other; with `redact`, with replaced names.
    fn write_files(
        mut self,
        redact: bool,
        mut write: impl FnMut(&str, &str) -> io::Result<()>,
    ) -> io::Result<()> {
        let replacements = redact.then(|| self.names.replacements());
        let change = |text: &str| {
            replacements.as_ref().map_or_else(|| text.to_owned(), |names| names.replace(text))
        };
        for (path, StoredFile { format, start, bytes }) in self.files {
            self.storage.seek(SeekFrom::Start(start))?;
            let mut text = vec![0; bytes];
            self.storage.read_exact(&mut text)?;
            let text = String::from_utf8(text).map_err(io::Error::other)?;
            let text = match format {
                Format::Log => change(&text),
                Format::Document => {
                    let mut value: Value = serde_json::from_str(&text)?;
                    change_value(&mut value, &change);
                    format!("{value:#}\n")
                }
            };
            write(&change(&path), &text)?;
        }
        if self.errors.is_empty() {
            return Ok(());
        }
        write(ERRORS, &change(&format!("{}\n", self.errors.join("\n"))))
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
        let mut contents = Contents::new().unwrap();
        contents.add_name(NameKind::Node, "gpu-a.example.com");
        let status = json!({
            "name": "gpu-a.example.com", "state": "ok", "count": 3, "token": "t0psecret",
            "labels": {"kubernetes.io/hostname": "gpu-a", "team-vision/owner": "x"},
            "password": 12345, "secret": ["s1cret"],
            "holders": [{"namespace": "team-vision", "pod": "train-0", "command": "run --api-key k3y"}],
        });
        contents.add_document("nodes/gpu-a.example.com/status.json", &status).unwrap();
        let log =
            "INFO blocked node=gpu-a.example.com pod=\"train-0\" user=\"eve\" PASSWORD=hunter2\n";
        contents.add_log("logs/agent.log", log).unwrap();
        contents.add_error("x", "Node gpu-a.example.com: Authorization: Bearer abc.def");
        let mut files = BTreeMap::new();
        let written = contents.write_files(true, |path, text| {
            files.insert(path.to_owned(), text.to_owned());
            Ok(())
        });
        written.unwrap();
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
