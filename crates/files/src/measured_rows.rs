//! Files with measured rows: flat rows, or a response of a model catalog, in which each value is wrapped.
//!
//! Open Data Hub's catalog responds with `{"items": [...]}`. Each item has `customProperties`, whose values are objects
//! such as `{"double_value": 98.1, "metadataType": "MetadataDoubleValue"}`. Source: Kubeflow model-registry, catalog
//! API. Items without hardware are not performance measurements and are skipped.

use octavo_fleet::slo::MeasuredRow;
use serde_json::{Map, Number, Value};
use thiserror::Error;

/// Rows read from a file.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredRows {
    /// The rows in the order of the file.
    pub rows: Vec<MeasuredRow>,
    /// Number of catalog items that are not measurements on hardware.
    pub skipped: usize,
    /// Whether the catalog has more pages after the last one in the file.
    pub has_more: bool,
}

impl MeasuredRows {
    /// Returns a notice if some pages were not read.
    pub fn unread_pages_notice(&self) -> Option<&'static str> {
        const MORE: &str = "the catalog has more pages, which were not read: request them with nextPageToken, and \
         pass all pages one after another";
        self.has_more.then_some(MORE)
    }
}

/// Error while reading rows.
#[derive(Debug, Error)]
pub enum RowsError {
    /// The text is not JSON.
    #[error("it is not JSON")]
    Json(#[source] serde_json::Error),
    /// The text has no rows.
    #[error(
        "it has no rows: expected an array of rows, one row per line, or an object with rows or items"
    )]
    Empty,
    /// A row is not an object.
    #[error("row {0} is not an object")]
    NotAnObject(usize),
    /// A row cannot be parsed.
    #[error("row {at} cannot be read")]
    Row {
        /// Number of the row, from 1.
        at: usize,
        /// The parse error.
        source: serde_json::Error,
    },
}

/// Reads the rows in `text`: an array, a sequence of JSON documents, or objects, such as pages, with rows in `rows` or
/// `items`.
pub fn parse(text: &str) -> Result<MeasuredRows, RowsError> {
    let documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let all: Vec<Value> = documents.collect::<Result<_, _>>().map_err(RowsError::Json)?;
    let has_more = all.last().is_some_and(has_next_page);
    let is_alone = all.len() == 1;
    let rows = all.into_iter().flat_map(|document| {
        if is_alone || is_page(&document) { rows_of(document) } else { vec![document] }
    });
    let all: Vec<Value> = rows.collect();
    if all.is_empty() {
        return Err(RowsError::Empty);
    }
    let mut found = MeasuredRows { rows: Vec::new(), skipped: 0, has_more };
    for (at, value) in (1..).zip(all) {
        let Value::Object(item) = value else {
            return Err(RowsError::NotAnObject(at));
        };
        let is_wrapped = item.contains_key("customProperties");
        let row = unwrap_properties(item);
        if is_wrapped && !row.contains_key("hardware_type") {
            found.skipped = found.skipped.saturating_add(1);
            continue;
        }
        let row = serde_json::from_value(Value::Object(row));
        found.rows.push(row.map_err(|source| RowsError::Row { at, source })?);
    }
    Ok(found)
}

/// Reports whether a document in a sequence is a page with rows instead of a row itself.
fn is_page(document: &Value) -> bool {
    let has = |name| document.get(name).is_some();
    (has("rows") || has("items")) && !has("hardware_type")
}

/// Reports whether another page follows this one.
fn has_next_page(page: &Value) -> bool {
    let token = page.get("nextPageToken").and_then(Value::as_str);
    token.is_some_and(|token| !token.is_empty())
}

/// Returns the rows of a single document.
fn rows_of(document: Value) -> Vec<Value> {
    match document {
        Value::Array(rows) => rows,
        Value::Object(mut object) => {
            let mut names = ["rows", "items"].into_iter();
            match names.find_map(|name| object.remove(name)) {
                Some(Value::Array(rows)) => rows,
                Some(other) => vec![other],
                None if object.contains_key("hardware_type") => vec![Value::Object(object)],
                None => Vec::new(),
            }
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            vec![other]
        }
    }
}

/// Flattens a catalog item. A flat row is returned unchanged.
fn unwrap_properties(mut item: Map<String, Value>) -> Map<String, Value> {
    let Some(Value::Object(wrapped)) = item.remove("customProperties") else {
        return item;
    };
    let values =
        wrapped.into_iter().filter_map(|(name, value)| Some((name, unwrap_value(&value)?)));
    values.collect()
}

fn unwrap_value(value: &Value) -> Option<Value> {
    let kinds = ["string_value", "double_value", "int_value"];
    match kinds.into_iter().find_map(|name| value.get(name)) {
        // The catalog's schema represents integers as strings.
        Some(Value::String(text)) if value.get("int_value").is_some() => {
            let number = text.parse::<i64>().ok().map(Number::from);
            Some(number.map_or_else(|| Value::String(text.clone()), Value::Number))
        }
        Some(value) => Some(value.clone()),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_rows_are_read_from_all_containers() {
        let row = r#"{"hardware_type": "H100", "hardware_count": 2, "ttft_p90": 180.5}"#;
        for text in [
            format!("[{row}, {row}]"),
            format!("{row}\n{row}\n"),
            format!(r#"{{"rows": [{row}, {row}]}}"#),
            format!(r#"{{"items": [{row}, {row}], "size": 2}}"#),
        ] {
            let found = parse(&text).unwrap();
            assert_eq!(found.rows.len(), 2, "{text}");
            assert_eq!(found.rows[1].hardware_type, "H100");
            assert_eq!(found.rows[1].more["ttft_p90"], 180.5);
        }
        assert_eq!(parse(row).unwrap().rows.len(), 1);
    }

    #[test]
    fn catalog_response_is_unwrapped_and_other_items_are_counted() {
        let text = r#"{"items": [
            {"artifactType": "metrics-artifact", "metricsType": "performance-metrics", "customProperties": {
                "hardware_type": {"string_value": "H100", "metadataType": "MetadataStringValue"},
                "hardware_count": {"int_value": "4", "metadataType": "MetadataIntValue"},
                "requests_per_second": {"double_value": 7.5, "metadataType": "MetadataDoubleValue"},
                "ttft_p95": {"double_value": 98.15, "metadataType": "MetadataDoubleValue"},
                "validated": {"bool_value": true, "metadataType": "MetadataBoolValue"}}},
            {"artifactType": "metrics-artifact", "metricsType": "accuracy-metrics", "customProperties": {
                "overall_average": {"double_value": 0.6}}},
            {"artifactType": "model-artifact", "uri": "oci://x", "customProperties": {}}
        ], "nextPageToken": ""}"#;
        let found = parse(text).unwrap();
        assert_eq!((found.rows.len(), found.skipped), (1, 2));
        let row = &found.rows[0];
        assert_eq!((row.hardware_type.as_str(), row.hardware_count), ("H100", 4));
        assert_eq!(row.requests_per_second, Some(7.5));
        assert_eq!(row.more["ttft_p95"], 98.15);
        assert!(!row.more.contains_key("validated"));
    }

    #[test]
    fn concatenated_pages_are_read_and_missing_pages_reported() {
        let page = |token: &str| {
            format!(
                r#"{{"items": [{{"hardware_type": "H100", "hardware_count": 2}}], "nextPageToken": "{token}"}}"#
            )
        };
        for (text, rows, has_more) in [
            (page(""), 1, false),
            (page("b"), 1, true),
            (page("b") + &page(""), 2, false),
            (page("b") + "\n" + &page("c"), 2, true),
        ] {
            let found = parse(&text).unwrap();
            assert_eq!((found.rows.len(), found.has_more), (rows, has_more), "{text}");
            assert_eq!(found.unread_pages_notice().is_some(), has_more);
        }
    }

    #[test]
    fn invalid_row_is_reported_with_its_number() {
        let row = r#"{"hardware_type": "H100", "hardware_count": 2}"#;
        for (text, message) in [
            (String::new(), "it has no rows"),
            ("[]".to_owned(), "it has no rows"),
            ("{}".to_owned(), "it has no rows"),
            ("hello".to_owned(), "it is not JSON"),
            (format!("[{row}, 3]"), "row 2 is not an object"),
            (r#"{"items": 3}"#.to_owned(), "row 1 is not an object"),
            (format!("[{row}, {{}}]"), "row 2 cannot be read"),
            (row.replace('2', "-2"), "row 1 cannot be read"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{text}: {error}");
        }
    }
}
