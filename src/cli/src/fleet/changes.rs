//! Latest changes of a node.

use octavo_fleet::changes::document::{ChangeList, ChangeRow};

use super::format;
use crate::settings::Colors;
use crate::settings::fleet::OutputOptions;
use crate::style::Style;
use crate::text::{self, Cell, count_noun, printable};

const COLUMNS: [&str; 4] = ["TIME", "COUNT", "CHANGE", "DETAILS"];

/// Formats one row per change, newest first.
pub(super) fn table(list: &ChangeList, printed: OutputOptions, colors: Colors) -> String {
    if list.items.is_empty() {
        return String::new();
    }
    text::table(&[&COLUMNS], list.items.iter().map(cells), printed.headers, colors)
}

fn cells(row: &ChangeRow) -> Vec<Cell> {
    let style = if row.change.needs_attention { Style::Warning } else { Style::Plain };
    vec![
        Cell::plain(&format::second(&row.time)),
        Cell::plain(&row.count),
        Cell::new(&row.change.summary(), style),
        Cell::optional(row.change.message.as_deref()),
    ]
}

/// Returns notes about the start of the record and about changes that it no longer contains.
pub(super) fn notes(list: &ChangeList) -> Vec<String> {
    let Some(since) = &list.since else {
        return vec!["no agent reports this node, so its changes are not recorded".to_owned()];
    };
    let since = printable(&format::second(since));
    let start = if list.items.is_empty() {
        format!("no changes since {since}, when the aggregator began to record them")
    } else {
        format!("the record begins at {since}")
    };
    let mut notes = vec![start];
    if list.dropped > 0 {
        let count = usize::try_from(list.dropped).unwrap_or(usize::MAX);
        let older = count_noun(count, "older change is", "older changes are");
        notes.push(format!("{older} no longer recorded"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::settings::Headers;
    use crate::settings::fleet::FleetFormat;

    fn list(items: &serde_json::Value, dropped: u64) -> ChangeList {
        let list = json!({
            "apiVersion": "octavo.dev/v1", "kind": "ChangeList", "node": "gpu-1",
            "since": "2026-11-27T01:02:03.4Z", "dropped": dropped, "items": items,
        });
        serde_json::from_value(list).unwrap()
    }

    #[test]
    fn changes_are_listed_with_count_and_details() {
        let items = json!([
            {"time": "2026-11-27T02:00:00.1Z", "firstTime": "2026-11-27T02:00:00.1Z", "count": 1,
             "kind": "device-health", "object": "GPU 3", "from": "ok", "to": "failing",
             "message": "GPU is\u{1b} lost", "needsAttention": true},
            {"time": "2026-11-27T01:30:00Z", "firstTime": "2026-11-27T01:20:00Z", "count": 2,
             "kind": "agent", "object": "Agent", "to": "restarted", "needsAttention": false},
        ]);
        let printed = OutputOptions { format: FleetFormat::Table, headers: Headers::Shown };
        let list = list(&items, 7);
        let expected = "\
TIME                  COUNT  CHANGE                  DETAILS
2026-11-27T02:00:00Z  1      GPU 3: ok -> failing    GPU is\u{fffd} lost
2026-11-27T01:30:00Z  2      Agent: restarted        -
";
        let table = table(&list, printed, Colors::Off);
        let spaces = |text: &str| {
            text.lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        assert_eq!(spaces(&table), spaces(expected));
        assert_eq!(
            notes(&list),
            ["the record begins at 2026-11-27T01:02:03Z", "7 older changes are no longer recorded"]
        );
    }

    #[test]
    fn absent_changes_are_explained() {
        let mut list = list(&json!([]), 0);
        assert_eq!(
            notes(&list),
            ["no changes since 2026-11-27T01:02:03Z, when the aggregator began to record them"]
        );
        list.since = None;
        assert_eq!(notes(&list), ["no agent reports this node, so its changes are not recorded"]);
    }
}
