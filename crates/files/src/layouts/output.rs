//! A small tree that can be written as readable YAML or as JSON.

/// A value to write.
#[derive(Debug, Clone)]
pub(super) enum OutputValue {
    Text(String),
    Number(u64),
    Bool(bool),
    List(Vec<OutputValue>),
    Map(Vec<(String, OutputValue)>),
}

impl OutputValue {
    pub(super) fn text(text: &(impl ToString + ?Sized)) -> Self {
        Self::Text(text.to_string())
    }

    /// Writes YAML: block style down to `levels`, flow style below.
    pub(super) fn yaml(&self, levels: usize) -> String {
        let mut text = String::new();
        self.block(levels, 0, &mut text);
        text
    }

    pub(super) fn json(&self) -> String {
        let mut text = String::new();
        self.flow(true, &mut text);
        text.push('\n');
        text
    }

    fn block(&self, levels: usize, indent: usize, text: &mut String) {
        match self {
            Self::Map(entries) if levels > 0 && !entries.is_empty() => {
                for (index, (key, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        text.push_str(&" ".repeat(indent));
                    }
                    write_text(key, text);
                    text.push(':');
                    value.write_entry_value(levels - 1, indent, text);
                }
            }
            Self::List(items) if levels > 0 && !items.is_empty() => {
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        text.push_str(&" ".repeat(indent));
                    }
                    text.push_str("- ");
                    item.block(levels - 1, indent + 2, text);
                }
            }
            Self::Text(_) | Self::Number(_) | Self::Bool(_) | Self::List(_) | Self::Map(_) => {
                self.flow(false, text);
                text.push('\n');
            }
        }
    }

    /// Writes the value of a key, on the same line or on the following lines.
    fn write_entry_value(&self, levels: usize, indent: usize, text: &mut String) {
        let inner = match self {
            Self::Map(entries) if levels > 0 && !entries.is_empty() => indent + 2,
            Self::List(items) if levels > 0 && !items.is_empty() => indent,
            Self::Text(_) | Self::Number(_) | Self::Bool(_) | Self::List(_) | Self::Map(_) => {
                text.push(' ');
                return self.block(0, indent, text);
            }
        };
        text.push('\n');
        text.push_str(&" ".repeat(inner));
        self.block(levels, inner, text);
    }

    fn flow(&self, json: bool, text: &mut String) {
        match self {
            Self::Text(value) if json => quote(value, text),
            Self::Text(value) => write_text(value, text),
            Self::Number(number) => text.push_str(&number.to_string()),
            Self::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
            Self::List(items) => {
                let write = |item: &Self, text: &mut String| item.flow(json, text);
                write_joined(('[', ']'), items, text, write);
            }
            Self::Map(entries) => {
                let write = |(key, value): &(String, Self), text: &mut String| {
                    if json {
                        quote(key, text);
                    } else {
                        write_text(key, text);
                    }
                    text.push_str(": ");
                    value.flow(json, text);
                };
                write_joined(('{', '}'), entries, text, write);
            }
        }
    }
}

/// A mapping with these entries.
pub(super) fn map<'k>(entries: impl IntoIterator<Item = (&'k str, OutputValue)>) -> OutputValue {
    let entries = entries.into_iter();
    OutputValue::Map(entries.map(|(key, value)| (key.to_owned(), value)).collect())
}

fn write_joined<T>(
    (open, close): (char, char),
    items: &[T],
    text: &mut String,
    write: impl Fn(&T, &mut String),
) {
    text.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        write(item, text);
    }
    text.push(close);
}

/// Writes a text without quotes if every YAML 1.1 and 1.2 parser reads it as the same text.
fn write_text(value: &str, text: &mut String) {
    if is_safe(value) {
        text.push_str(value);
    } else {
        quote(value, text);
    }
}

fn is_safe(value: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '/');
    let letter_first = value.starts_with(|c: char| c.is_ascii_alphabetic());
    // `3g.40gb` or `0-3`: no number contains the letter g, and no date has only two parts.
    let profile = value.contains('g') && value.starts_with(|c: char| c.is_ascii_digit());
    let range = value.split_once('-').is_some_and(|(a, b)| {
        [a, b].iter().all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    });
    let word = value.to_ascii_lowercase();
    let meant = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"].contains(&&*word);
    value.chars().all(allowed) && (letter_first || profile || range) && !meant
}

/// Writes a text in double quotes as in JSON. Escapes everything that is not plainly visible.
fn quote(value: &str, text: &mut String) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            ' '..='~' => text.push(c),
            _ if c.is_alphanumeric() => text.push(c),
            _ => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    let escape = format!("\\u{unit:04x}");
                    text.push_str(&escape);
                }
            }
        }
    }
    text.push('"');
}
