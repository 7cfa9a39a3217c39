//! The reference page of the API, generated from the `OpenAPI` document and the permission table.

use std::fmt::Write;

use octavo_fleet::access::{Method, RouteRule};
use serde_json::Value;

use super::fleet::{Aggregator, Machines};
use crate::golden::golden;

const HEAD: &str = "# API reference

This page lists every path of the aggregator's HTTP API with its permission, parameters and responses. It is generated from
`/openapi.json` and the permission table; `make golden` rewrites it. [REST API](rest.md) explains the resources, with examples.
Permissions are checked unless `--http-auth` is `none`: [Run the aggregator](../operations/aggregator.md#read-access).
";

/// Maximum length of a table row.
const MAX_ROW: usize = 160;

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Text as the content of a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// The name of a schema's type.
fn kind(document: &Value, schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#'));
        let words = target.and_then(|target| target["enum"].as_array());
        return match words {
            Some(words) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            None => target.map_or_else(String::new, |target| kind(document, target)),
        };
    }
    if let Some(one) = schema["type"].as_str() {
        return one.to_owned();
    }
    let several = schema["type"].as_array().into_iter().flatten();
    let several = several.filter_map(Value::as_str);
    let several: Vec<&str> = several.filter(|one| *one != "null").collect();
    several.join(" or ")
}

fn operation(document: &Value, path: &str, method: &str, operation: &Value) -> String {
    let mut page =
        format!("\n## {} {path}\n\n{}.\n", method.to_uppercase(), text(operation, "summary"));
    let more = text(operation, "description");
    if !more.is_empty() {
        write!(page, "\n{more}\n").unwrap();
    }
    let known = Method::from_name(&method.to_uppercase()).unwrap();
    let row =
        RouteRule::find(known, path).unwrap_or_else(|| panic!("{method} {path} is in no row"));
    match row.review(path, None) {
        Some(question) if row.allows_by_type() => {
            write!(
                page,
                "\nRequired permission: `{question}`. With `get` on single types, the response contains only those types.\n"
            )
            .unwrap();
        }
        Some(question) => write!(page, "\nRequired permission: `{question}`.\n").unwrap(),
        None => page.push_str("\nRequired permission: none.\n"),
    }
    let parameters = operation["parameters"].as_array();
    if let Some(parameters) = parameters.filter(|all| !all.is_empty()) {
        let mut values: Vec<String> = Vec::new();
        page.push_str("\n| parameter | in | type | meaning |\n|---|---|---|---|\n");
        for one in parameters {
            let (name, place) = (text(one, "name"), text(one, "in"));
            let (kind, meaning) = (kind(document, &one["schema"]), cell(text(one, "description")));
            let row = format!("| `{name}` | {place} | {kind} | {meaning} |\n");
            if row.len() <= MAX_ROW {
                page.push_str(&row);
            } else {
                writeln!(page, "| `{name}` | {place} | string | {meaning} |").unwrap();
                values.push(format!("\nValues of `{name}`: {kind}.\n"));
            }
        }
        page.push_str(&values.concat());
    }
    page.push_str("\n| status | body | meaning |\n|---|---|---|\n");
    for (status, answer) in operation["responses"].as_object().unwrap() {
        let content = answer["content"].as_object().into_iter().flatten();
        let bodies = content.map(|(media, of)| {
            let named = of["schema"]["$ref"].as_str().and_then(|name| name.rsplit('/').next());
            let media = media.split(';').next().unwrap_or_default();
            named.map_or_else(|| format!("`{media}`"), |name| format!("`{name}`"))
        });
        let bodies = bodies.collect::<Vec<_>>().join(", ");
        writeln!(page, "| {status} | {bodies} | {} |", cell(text(answer, "description"))).unwrap();
    }
    page
}

#[tokio::test]
async fn api_reference_lists_every_path_with_its_permission() {
    let aggregator = Aggregator::of(&Machines::default());
    let document = aggregator.get("/openapi.json").await.json();
    let mut page = HEAD.to_owned();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 10, "{paths:?}");
    for (path, operations) in paths {
        for (method, one) in operations.as_object().unwrap() {
            page.push_str(&operation(&document, path, method, one));
        }
    }
    for line in page.lines().filter(|line| line.starts_with('|')) {
        assert!(line.len() <= MAX_ROW, "{line}");
    }
    golden("../../docs/reference/api.md", &page);
}
