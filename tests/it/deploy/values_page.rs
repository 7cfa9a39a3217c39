//! The reference page of the chart's values: descriptions and defaults from the comments and values of `values.yaml`,
//! types from `values.schema.json`.

use std::fmt::Write;
use std::fs;

use serde_json::Value;

use crate::golden::golden;
use crate::manifests::chart::path;

const HEAD: &str = "# Chart values

All values of the Helm chart `octavo`, for administrators who install or configure it. Set them with `--values FILE` or
`--set KEY=VALUE`. The chart rejects unknown keys and invalid values.

`make golden` generates this page from `values.yaml` and `values.schema.json` of the chart.
";

/// Maps that the page shows as one value.
const WHOLE: &[&str] = &["resources", "updateStrategy"];

/// Maximum length of a line of prose.
const WIDTH: usize = 118;

/// Key of `values.yaml` with its comment.
struct Entry {
    /// Position: `["agent", "drain", "policy"]`.
    place: Vec<String>,
    comment: Vec<String>,
    /// Default as written in the file; `None` for a map whose keys are described one by one.
    default: Option<String>,
}

impl Entry {
    fn key(&self) -> String {
        self.place.join(".")
    }
}

/// Reads all keys of `text` in order.
fn entries(text: &str) -> Vec<Entry> {
    let mut found: Vec<Entry> = Vec::new();
    let mut comment: Vec<String> = Vec::new();
    let mut place: Vec<String> = Vec::new();
    // Depth of a map that is shown as one value.
    let mut whole: Option<usize> = None;
    for line in text.lines() {
        let content = line.trim_start();
        let depth = (line.len() - content.len()) / 2;
        if let Some(inside) = whole.filter(|whole| depth > *whole && !content.is_empty()) {
            assert_eq!(depth, inside + 1, "{line:?} is nested too deeply for the page");
            let default = found.last_mut().unwrap().default.as_mut().unwrap();
            write!(default, "{content}, ").unwrap();
            continue;
        }
        whole = None;
        if let Some(text) = content.strip_prefix('#') {
            comment.push(text.strip_prefix(' ').unwrap_or(text).to_owned());
            continue;
        }
        let Some((key, value)) = content.split_once(':') else {
            assert!(content.is_empty(), "{line:?} is not a key");
            comment.clear();
            continue;
        };
        place.truncate(depth);
        place.push(key.to_owned());
        let value = value.trim();
        let default = match value {
            "" if WHOLE.contains(&key) => {
                whole = Some(depth);
                Some(String::new())
            }
            "" => None,
            value => Some(value.to_owned()),
        };
        found.push(Entry { place: place.clone(), comment: std::mem::take(&mut comment), default });
    }
    for one in &mut found {
        if let Some(list) = one.default.as_mut().filter(|text| text.ends_with(", ")) {
            *list = format!("{{{}}}", list.trim_end_matches(", "));
        }
    }
    found
}

/// Schema of the value at `place`.
fn schema_of<'a>(schema: &'a Value, place: &[String]) -> &'a Value {
    place.iter().fold(schema, |at, key| {
        let found = &resolve(schema, at)["properties"][key.as_str()];
        assert!(found.is_object(), "the schema has no {place:?}");
        found
    })
}

fn resolve<'a>(schema: &'a Value, at: &'a Value) -> &'a Value {
    match at["$ref"].as_str() {
        Some(reference) => schema.pointer(reference.trim_start_matches('#')).unwrap(),
        None => at,
    }
}

fn code(value: &Value) -> String {
    match value.as_str() {
        Some("") => "`\"\"`".to_owned(),
        Some(text) => format!("`{text}`"),
        None => format!("`{value}`"),
    }
}

/// Joins `a`, `b` or `c`.
fn alternatives(all: &[String]) -> String {
    match all {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Type of a value: its constants, or the name of its type.
fn kind(schema: &Value, at: &Value) -> String {
    if at["$ref"] == "#/$defs/duration" {
        return "duration".to_owned();
    }
    let at = resolve(schema, at);
    let parts = |name: &str| at[name].as_array().map(Vec::as_slice).unwrap_or_default();
    if at.get("const").is_some() {
        return code(&at["const"]);
    }
    match (parts("enum"), parts("anyOf"), parts("allOf")) {
        (all @ [_, ..], _, _) => return alternatives(&all.iter().map(code).collect::<Vec<_>>()),
        (_, all @ [_, ..], _) => {
            let all: Vec<String> = all.iter().map(|one| kind(schema, one)).collect();
            return alternatives(&all);
        }
        (_, _, [first, ..]) => return kind(schema, first),
        ([], [], []) => {}
    }
    match at["type"].as_str().unwrap_or_else(|| panic!("{at} has no type")) {
        "array" => match resolve(schema, &at["items"])["type"].as_str() {
            Some(of) => format!("list of {of}s"),
            None => format!("list of {}", kind(schema, &at["items"])),
        },
        "object" if at["additionalProperties"]["type"] == "string" => "map of strings".to_owned(),
        one => one.to_owned(),
    }
}

/// Replaces `docs/tasks/sharing.md` by a link from the page.
fn linked(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let Some(target) = word.strip_prefix("docs/") else {
            return word.to_owned();
        };
        let end = target.find(".md").map_or(0, |at| at + ".md".len());
        let (page, rest) = target.split_at(end);
        let link =
            page.strip_prefix("reference/").map_or_else(|| format!("../{page}"), str::to_owned);
        format!("[{}]({link}){rest}", page.rsplit('/').next().unwrap())
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Breaks `text` into lines that begin with `indent`.
fn wrapped(page: &mut String, indent: &str, text: &str) {
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        let is_first = line.trim_matches([' ', '-']).is_empty();
        if !is_first && line.len() + 1 + word.len() > WIDTH {
            writeln!(page, "{line}").unwrap();
            line = " ".repeat(indent.len());
        }
        let is_separated = line.is_empty() || line.ends_with(' ');
        line.push_str(if is_separated { "" } else { " " });
        line.push_str(word);
    }
    writeln!(page, "{line}").unwrap();
}

/// Writes a comment: paragraphs, lists (`- `) and examples (indented by two more spaces).
fn describe(page: &mut String, indent: &str, comment: &[String]) {
    let is_example = |line: &&String| line.starts_with("  ");
    let is_item = |line: &&String| line.starts_with("- ");
    let mut lines = comment.iter().peekable();
    while let Some(line) = lines.next() {
        if is_example(&line) {
            writeln!(page, "\n{indent}```yaml\n{indent}{}", &line[2..]).unwrap();
            while let Some(line) = lines.next_if(is_example) {
                writeln!(page, "{indent}{}", &line[2..]).unwrap();
            }
            writeln!(page, "{indent}```").unwrap();
        } else if let Some(item) = line.strip_prefix("- ") {
            wrapped(page, &format!("{indent}- "), &linked(item));
        } else {
            let mut text = line.clone();
            while let Some(line) = lines.next_if(|line| !is_example(line) && !is_item(line)) {
                write!(text, " {line}").unwrap();
            }
            wrapped(page, indent, &linked(&text));
            if lines.peek().is_some_and(is_item) {
                page.push('\n');
            }
        }
    }
}

#[test]
fn chart_values_page_lists_every_value_with_type_and_default() {
    let text = fs::read_to_string(path().join("values.yaml")).unwrap();
    let schema = fs::read_to_string(path().join("values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let mut page = HEAD.to_owned();
    let all = entries(&text);
    assert!(all.len() > 100, "{}", all.len());
    for one in &all {
        let key = one.key();
        if one.place.len() == 1 {
            writeln!(page, "\n## {key}").unwrap();
        }
        let Some(default) = &one.default else {
            if !one.comment.is_empty() {
                let indent = if one.place.len() == 1 {
                    page.push('\n');
                    ""
                } else {
                    writeln!(page, "\n- **`{key}`**\n").unwrap();
                    "  "
                };
                describe(&mut page, indent, &one.comment);
            }
            continue;
        };
        assert!(!one.comment.is_empty(), "{key} in values.yaml has no comment that describes it");
        let kind = kind(&schema, schema_of(&schema, &one.place));
        writeln!(page, "\n- **`{key}`**: {kind}; default `{default}`\n").unwrap();
        describe(&mut page, "  ", &one.comment);
    }
    for line in page.lines() {
        assert!(line.chars().count() <= 160, "{line}");
    }
    golden("../../docs/reference/chart-values.md", &page);
}
