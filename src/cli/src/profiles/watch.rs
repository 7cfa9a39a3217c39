//! `octavo profiles list --watch`: a table that is redrawn, or a line or an object for each change.
//!
//! The stream only reports that something changed. The aggregator applies the filter, so the list is requested again,
//! once for all changes of a batch.

use std::collections::BTreeMap;

use octavo_client::{Client, EventFeed, EventStream, FeedItem};
use octavo_fleet::hardware_profile::ProfileKind;
use octavo_fleet::hardware_profile::document::{ProfileEvent, ProfileList, ProfileRow};
use octavo_model::reported::Reported;

use super::{read_by, table};
use crate::output::{self, OutputState};
use crate::settings::fleet::FleetFormat;
use crate::settings::profiles::ProfileFilter;
use crate::settings::{Colors, OutputMode};
use crate::style::Style;
use crate::text::{count_noun, printable};
use crate::watch::screen::{AlternateScreen, height, over, status_line};
use crate::watch::{StopSignal, note_lost, now};
use crate::{CliError, Exit, Report, json_line, yaml};

/// Namespace, name and kind of object.
type ProfileKey = (String, String, Reported<ProfileKind>);

/// Watches until it is interrupted or the output is closed.
pub(super) async fn watch(
    settings: &ProfileFilter,
    colors: Colors,
    screen: OutputMode,
) -> Result<Report, CliError> {
    let mut stop = StopSignal::new().map_err(CliError::Runtime)?;
    let is_table = matches!(settings.output.format, FleetFormat::Table | FleetFormat::Wide);
    let view = ProfileWatcher {
        settings,
        colors,
        is_picture: is_table && screen == OutputMode::Redraw,
        canvas: None,
        known: BTreeMap::new(),
        notice: None,
    };
    let feed = EventFeed::new(Client::connect(&settings.server).await?);
    tokio::select! {
        done = follow(feed, view) => done?,
        () = stop.received() => {}
    }
    Ok(Report { exit: Exit::Done, ..Report::default() })
}

async fn follow(
    mut feed: EventFeed<ProfileEvent>,
    mut view: ProfileWatcher<'_>,
) -> Result<(), CliError> {
    let (is_picture, colors) = (view.is_picture, view.colors);
    let lost = move |why: &str| {
        if is_picture {
            // Shown immediately: the next redraw may take a while.
            let _ = output::out(&status_line(&Style::Bad.paint(&printable(why), colors)));
        } else {
            note_lost(why);
        }
    };
    loop {
        loop {
            match feed.next(lost).await? {
                FeedItem::Changed(event) if !event.is_synced() => {}
                FeedItem::Changed(_) | FeedItem::Connected => break,
            }
        }
        match read_by(feed.client(), view.settings).await {
            Ok(profiles) => {
                if view.show(profiles)? == OutputState::Closed {
                    return Ok(());
                }
            }
            Err(CliError::Client(error)) => feed.failed(error, &lost).await?,
            Err(error) => return Err(error),
        }
    }
}

/// State of the output.
struct ProfileWatcher<'a> {
    settings: &'a ProfileFilter,
    colors: Colors,
    is_picture: bool,
    canvas: Option<AlternateScreen>,
    known: BTreeMap<ProfileKey, ProfileRow>,
    /// The notice printed last: why the printed rows may be outdated.
    notice: Option<String>,
}

impl ProfileWatcher<'_> {
    fn show(&mut self, list: ProfileList) -> Result<OutputState, CliError> {
        if self.is_picture {
            if self.canvas.is_none() {
                self.canvas = Some(AlternateScreen::open()?);
            }
            return output::out(&over(&self.picture(&list), height()));
        }
        if list.notice != self.notice {
            print_notice(list.notice.as_deref());
            self.notice = list.notice;
        }
        let rows = list.items.into_iter();
        let current: BTreeMap<ProfileKey, ProfileRow> = rows.map(|row| (key(&row), row)).collect();
        let mut text = String::new();
        for event in changes(&self.known, &current) {
            text.push_str(&self.line(&event)?);
        }
        self.known = current;
        output::out(&text)
    }

    /// Formats the heading, then the table.
    fn picture(&self, list: &ProfileList) -> String {
        let note = list.notice.as_ref();
        let note = note.map(|notice| format!(" Note: {}", printable(notice)));
        let head = format!(
            "{}: {}, {}. Ctrl-C exits.{}",
            self.settings.server.place(),
            count_noun(list.items.len(), "profile", "profiles"),
            now(),
            note.unwrap_or_default()
        );
        let head = Style::Faint.paint(&head, self.colors);
        let table = table::list(&list.items, self.settings.output, self.colors);
        format!("{head}\n\n{table}")
    }

    fn line(&self, event: &ProfileEvent) -> Result<String, CliError> {
        let printed = self.settings.output;
        Ok(match (printed.format, event) {
            (FleetFormat::Json, _) => json_line(event)?,
            (FleetFormat::Yaml, _) => format!("---\n{}", yaml(event)?),
            (
                FleetFormat::Name,
                ProfileEvent::Profile { profile: ProfileRow { name, .. } }
                | ProfileEvent::Removed { name, .. },
            ) => {
                format!("{}\n", printable(name))
            }
            (FleetFormat::Table | FleetFormat::Wide | FleetFormat::Name, event) => {
                let words = words(event, &self.known);
                if printed.with_headers() {
                    format!("{}  {words}\n", now())
                } else {
                    format!("{words}\n")
                }
            }
        })
    }
}

/// Prints a notice to standard error, because programs may read the lines.
fn print_notice(notice: Option<&str>) {
    match notice {
        Some(why) => output::note(&format!("note: {}", printable(why))),
        None => output::note("note: the output is up to date again"),
    }
}

fn key(row: &ProfileRow) -> ProfileKey {
    (row.namespace.clone(), row.name.clone(), row.object_kind.clone())
}

/// Computes the events between two lists.
fn changes(
    before: &BTreeMap<ProfileKey, ProfileRow>,
    now: &BTreeMap<ProfileKey, ProfileRow>,
) -> Vec<ProfileEvent> {
    let changed = now.iter().filter(|(key, row)| before.get(*key) != Some(row));
    let changed = changed.map(|(_, row)| ProfileEvent::Profile { profile: row.clone() });
    let gone = before.keys().filter(|key| !now.contains_key(*key));
    let gone = gone.cloned().map(|(namespace, name, object_kind)| ProfileEvent::Removed {
        namespace,
        name,
        object_kind,
    });
    changed.chain(gone).collect()
}

/// Formats a change: `opendatahub/large  nvidia-h200-141gb  12 available, was 9; 1 finding`.
fn words(event: &ProfileEvent, known: &BTreeMap<ProfileKey, ProfileRow>) -> String {
    let row = match event {
        ProfileEvent::Profile { profile } => profile,
        ProfileEvent::Removed { namespace, name, .. } => {
            return format!("{}  deleted", named(namespace, name));
        }
        ProfileEvent::Synced { .. } => return String::new(),
    };
    let available = |row: &ProfileRow| {
        row.available.map_or_else(|| "unknown".to_owned(), |count| count.to_string())
    };
    let before = known.get(&key(row));
    let before = before.filter(|before| before.available != row.available);
    let was = before.map(|before| format!(", was {}", available(before)));
    let found = match row.findings.len() {
        0 => String::new(),
        count => format!("; {}", count_noun(count, "finding", "findings")),
    };
    format!(
        "{}  {}  {} available{}{found}",
        named(&row.namespace, &row.name),
        printable(&table::of_types(row)),
        available(row),
        was.unwrap_or_default()
    )
}

fn named(namespace: &str, name: &str) -> String {
    match namespace {
        "" => printable(name),
        namespace => printable(&format!("{namespace}/{name}")),
    }
}

#[cfg(test)]
mod tests {
    use octavo_fleet::hardware_profile::document::{SchedulingSummary, SchedulingTarget};

    use super::*;

    fn row(name: &str, available: Option<u64>) -> (ProfileKey, ProfileRow) {
        let row = ProfileRow {
            namespace: "a".to_owned(),
            name: name.to_owned(),
            object_kind: ProfileKind::Hardware.into(),
            display_name: name.to_owned(),
            description: None,
            enabled: true,
            type_name: None,
            types: vec!["nvidia-l4-24gb".parse().unwrap()],
            memory_mib: None,
            architecture: None,
            compute_capability: None,
            memory_bandwidth_gbs: None,
            identifiers: Vec::new(),
            scheduling: SchedulingSummary {
                to: SchedulingTarget::Anywhere.into(),
                node_selector: BTreeMap::new(),
                tolerates: Vec::new(),
                local_queue: None,
                priority_class: None,
            },
            reach: None,
            available,
            findings: Vec::new(),
        };
        (key(&row), row)
    }

    #[test]
    fn only_changes_are_printed_with_previous_availability() {
        let before =
            BTreeMap::from([row("gone", None), row("same", Some(1)), row("used", Some(4))]);
        let now = BTreeMap::from([row("new", None), row("same", Some(1)), row("used", Some(0))]);
        let changes = changes(&before, &now);
        let shown = changes.iter().map(|event| words(event, &before));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                "a/new  nvidia-l4-24gb  unknown available",
                "a/used  nvidia-l4-24gb  0 available, was 4",
                "a/gone  deleted",
            ]
        );
    }
}
