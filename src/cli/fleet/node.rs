//! One node: what the fleet knows of it, then its devices as `octavo inspect` shows them on the node itself.

use super::words;
use crate::cli::inspect::{self, Columns};
use crate::cli::paint::Ink;
use crate::cli::text::{folded, lines, printable};
use crate::config::octavo::Colors;
use crate::config::octavo::fleet::{FleetFormat, Printed};
use crate::domain::inventory::Inventory;
use crate::wire::api::NodeDetail;

pub(super) fn text(
    detail: &NodeDetail,
    inventory: &Inventory,
    printed: Printed,
    colors: Colors,
) -> String {
    let columns = if printed.format == FleetFormat::Wide {
        Columns::All
    } else {
        Columns::Few
    };
    let devices = inspect::people(inventory, columns, printed.headers, colors);
    if !printed.with_headers() {
        return devices;
    }
    format!("{}\n{devices}", facts(detail, colors))
}

fn facts(detail: &NodeDetail, colors: Colors) -> String {
    let row = &detail.row;
    let age = words::age(row.age_seconds);
    let mut said = vec![
        format!("Node: {}", Ink::Strong.paint(&printable(&row.name), colors)),
        format!(
            "State: {}",
            words::ink(&row.state).paint(&printable(&row.state), colors)
        ),
    ];
    if words::is_stale(row) {
        let warning = folded(
            &format!(
                "STALE: last heard of {age} ago. All below was so then; nobody knows how it is now."
            ),
            2,
        );
        said.push(Ink::Notice.paint(&warning, colors));
    }
    let agent = if row.connected { "connected" } else { "away" };
    said.push(format!(
        "Agent: {} {agent}, confirmed {age} ago",
        printable(&row.agent_version)
    ));
    said.push(format!(
        "Last change: {}",
        printable(&words::second(&detail.last_changed))
    ));
    lines(said)
}
