//! A value of a YAML or JSON file, with its source position.

use std::rc::Rc;

use octavo_model::source_position::SourcePosition;

/// A value and its position.
#[derive(Debug)]
pub(super) struct YamlNode {
    pub(super) position: SourcePosition,
    pub(super) value: Value,
    /// Number of values, including this one and those behind aliases.
    pub(super) weight: usize,
}

/// Content of a node.
#[derive(Debug)]
pub(super) enum Value {
    Scalar(Scalar),
    List(Vec<Rc<YamlNode>>),
    Map(Vec<Entry>),
}

/// A scalar.
#[derive(Debug)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// Unquoted, so that it may be a number, a boolean or null.
    pub(super) plain: bool,
}

/// A key, unique in its mapping, and its value.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) position: SourcePosition,
    pub(super) key: Rc<str>,
    /// Whether the key is unquoted.
    pub(super) plain: bool,
    pub(super) value: Rc<YamlNode>,
}

impl YamlNode {
    /// Describes the value for messages.
    pub(super) fn describe(&self) -> String {
        match &self.value {
            Value::Scalar(scalar) if scalar.plain && scalar.is_null() => "nothing".to_owned(),
            Value::Scalar(scalar) if scalar.plain => quoted_if_needed(&scalar.text),
            Value::Scalar(scalar) => format!("the string {}", quoted(&scalar.text)),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        }
    }

    /// Returns the entries of a mapping.
    pub(super) fn entries(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            Value::Scalar(_) | Value::List(_) => None,
        }
    }

    /// Returns the items of a list.
    pub(super) fn items(&self) -> Option<&[Rc<YamlNode>]> {
        match &self.value {
            Value::List(items) => Some(items),
            Value::Scalar(_) | Value::Map(_) => None,
        }
    }

    /// Reports whether the value is null.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar) if scalar.plain && scalar.is_null())
    }
}

impl Scalar {
    fn is_null(&self) -> bool {
        matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }
}

/// Quotes a text from the file, escaped and shortened.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = format!("{:?}", text.chars().take(MAX_QUOTED_CHARS).collect::<String>());
    if text.chars().nth(MAX_QUOTED_CHARS).is_some() {
        quoted.push('…');
    }
    quoted
}

/// Quotes a text only if necessary.
fn quoted_if_needed(text: &str) -> String {
    let simple = text.chars().all(|c| c.is_ascii_graphic()) && text.len() <= MAX_QUOTED_CHARS;
    if simple { text.to_owned() } else { quoted(text) }
}

/// Maximum number of characters of a text that are repeated in a message.
const MAX_QUOTED_CHARS: usize = 60;
