//! The reference page of the API, made of the `OpenAPI` document that is served and of the table of who may ask.

use std::fmt::Write;

use octavo_fleet::access::{Method, RouteRule};
use serde_json::Value;

use super::fleet::{Aggregator, Machines};
use crate::golden::golden;

const HEAD: &str = "# API reference

Made of `/openapi.json` and of the table of who may ask; `make golden` rewrites it. [rest.md](rest.md) tells what it means, with examples.
Who may ask counts where `--http-auth` is not `none`: [aggregator.md](aggregator.md).
";

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// What stands in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// The type of a schema, in a word.
fn kind(document: &Value, schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#'));
        let words = target.and_then(|target| target["enum"].as_array());
        return match words {
            Some(words) => words
                .iter()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
                .join(", "),
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
    let mut page = format!(
        "\n## {} {path}\n\n{}.\n",
        method.to_uppercase(),
        text(operation, "summary")
    );
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
                "\nFor who may `{question}`; who may get single types is told of those.\n"
            )
            .unwrap();
        }
        Some(question) => write!(page, "\nFor who may `{question}`.\n").unwrap(),
        None => page.push_str("\nFor everybody.\n"),
    }
    let parameters = operation["parameters"].as_array();
    if let Some(parameters) = parameters.filter(|all| !all.is_empty()) {
        page.push_str("\n| parameter | in | type | meaning |\n|---|---|---|---|\n");
        for one in parameters {
            let (name, place) = (text(one, "name"), text(one, "in"));
            let (kind, meaning) = (
                kind(document, &one["schema"]),
                cell(text(one, "description")),
            );
            writeln!(page, "| `{name}` | {place} | {kind} | {meaning} |").unwrap();
        }
    }
    page.push_str("\n| status | body | meaning |\n|---|---|---|\n");
    for (status, answer) in operation["responses"].as_object().unwrap() {
        let content = answer["content"].as_object().into_iter().flatten();
        let bodies = content.map(|(media, of)| {
            let named = of["schema"]["$ref"]
                .as_str()
                .and_then(|name| name.rsplit('/').next());
            named.map_or_else(|| format!("`{media}`"), |name| format!("`{name}`"))
        });
        let bodies = bodies.collect::<Vec<_>>().join(", ");
        writeln!(
            page,
            "| {status} | {bodies} | {} |",
            cell(text(answer, "description"))
        )
        .unwrap();
    }
    page
}

#[tokio::test]
async fn the_reference_has_every_path_that_is_served_and_who_may_ask() {
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
    golden("../../docs/api.md", &page);
}
