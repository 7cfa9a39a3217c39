//! A line, or an object, for each change.

use std::collections::BTreeMap;

use octavo_client::{EventFeed, FeedItem};
use octavo_fleet::api::{Event, NodeRow};

use super::{node_diff, note_lost, now};
use crate::output::{self, OutputState};
use crate::settings::fleet::{FleetFormat, WatchSettings};
use crate::settings::{Colors, Headers};
use crate::text::printable;
use crate::{CliError, fleet, json_line, yaml};

/// State of the output.
#[derive(Debug)]
struct LinePrinter<'a> {
    settings: &'a WatchSettings,
    colors: Colors,
    known: BTreeMap<String, NodeRow>,
}

/// Follows the stream until the output is closed.
pub(super) async fn follow(
    mut feed: EventFeed,
    settings: &WatchSettings,
    colors: Colors,
) -> Result<(), CliError> {
    let mut printer = LinePrinter { settings, colors, known: BTreeMap::new() };
    loop {
        let item = feed.next(note_lost).await?;
        let output = match item {
            FeedItem::Connected => printer.catch_up(&feed).await,
            FeedItem::Changed(event) => printer.follow(&feed, *event).await,
        };
        match output {
            Ok(OutputState::Open) => {}
            Ok(OutputState::Closed) => return Ok(()),
            Err(CliError::Client(error)) => feed.failed(error, &note_lost).await?,
            Err(error) => return Err(error),
        }
    }
}

impl LinePrinter<'_> {
    /// Prints the differences from the printed state.
    async fn catch_up(&mut self, feed: &EventFeed) -> Result<OutputState, CliError> {
        let filter = (&self.settings.filter, self.settings.order);
        let list = fleet::list(feed.client(), filter, None).await?;
        let names: Vec<String> = self.known.keys().cloned().collect();
        let gone = names
            .into_iter()
            .filter(|name| list.items.iter().all(|row| row.name != *name))
            .collect::<Vec<_>>();
        for name in gone {
            if self.print(&Event::Removed { name })? == OutputState::Closed {
                return Ok(OutputState::Closed);
            }
        }
        for node in list.items {
            if self.print(&Event::Node { node })? == OutputState::Closed {
                return Ok(OutputState::Closed);
            }
        }
        let revision = list.revision;
        self.print(&Event::Synced { revision })
    }

    /// Prints a change, if the node passes the filter or did before.
    async fn follow(&mut self, feed: &EventFeed, event: Event) -> Result<OutputState, CliError> {
        let Event::Node { node } = event else {
            return self.print(&event);
        };
        let name = node.name.clone();
        let event = match fleet::matching(feed.client(), &self.settings.filter, node).await? {
            Some(node) => Event::Node { node },
            None => Event::Removed { name },
        };
        self.print(&event)
    }

    /// Prints an event, unless it changes nothing.
    fn print(&mut self, event: &Event) -> Result<OutputState, CliError> {
        let before = match event {
            Event::Node { node } => self.known.insert(node.name.clone(), node.clone()),
            Event::Removed { name } => {
                let before = self.known.remove(name);
                if before.is_none() {
                    return Ok(OutputState::Open);
                }
                before
            }
            Event::Synced { .. } => None,
        };
        let printed = self.settings.output;
        let text = match (printed.format, event) {
            (FleetFormat::Json, _) => json_line(event)?,
            (FleetFormat::Yaml, _) => format!("---\n{}", yaml(event)?),
            (_, Event::Synced { .. }) => return Ok(OutputState::Open),
            (FleetFormat::Name, Event::Node { node }) => format!("{}\n", printable(&node.name)),
            (FleetFormat::Name, Event::Removed { name }) => format!("{}\n", printable(name)),
            (FleetFormat::Table | FleetFormat::Wide, event) => {
                let Some(change) = node_diff::words(before.as_ref(), event, self.colors) else {
                    return Ok(OutputState::Open);
                };
                if printed.headers == Headers::Hidden {
                    format!("{change}\n")
                } else {
                    format!("{}  {change}\n", now())
                }
            }
        };
        output::out(&text)
    }
}
