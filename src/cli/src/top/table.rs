//! The table of usage by pod.

use octavo_documents::usage::UsageRow;

use crate::fleet::format::{NONE, memory};
use crate::settings::top::{TopFormat, TopSettings};
use crate::settings::{Colors, Headers};
use crate::style::Style;
use crate::text::{Cell, columns};

const COLUMNS: [&str; 9] = [
    "NODE",
    "DEVICE",
    "PARTITION",
    "POD",
    "CONTAINER",
    "REPLICA",
    "MEMORY",
    "SHARE",
    "UTIL",
];
const WIDE_COLUMNS: [&str; 5] = ["RESOURCE", "SHARED BY", "TOTAL", "PIDS", "UUID"];

/// Output options.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableStyle {
    wide: bool,
    headers: bool,
    colors: Colors,
}

/// Formats one row per tenant, in the given order.
pub(super) fn table(rows: &[UsageRow], settings: &TopSettings, colors: Colors) -> String {
    let look = TableStyle {
        wide: settings.format == TopFormat::Wide,
        headers: settings.headers == Headers::Shown,
        colors,
    };
    drawn(rows, look)
}

fn drawn(rows: &[UsageRow], look: TableStyle) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let header = || {
        let more: &[&str] = if look.wide { &WIDE_COLUMNS } else { &[] };
        let names = COLUMNS.iter().chain(more);
        names.map(|name| Cell::new(name, Style::Strong)).collect()
    };
    let first = look.headers.then(header);
    let rows = rows.iter().map(|row| cells(row, look.wide));
    let all: Vec<Vec<Cell>> = first.into_iter().chain(rows).collect();
    columns(&all, look.colors)
}

fn cells(row: &UsageRow, wide: bool) -> Vec<Cell> {
    let tenant = &row.tenant;
    let ink = if tenant.over {
        Style::Bad
    } else {
        Style::Plain
    };
    let node = if row.stale {
        format!("{} (stale)", row.node)
    } else {
        row.node.clone()
    };
    let mut cells = vec![
        Cell::plain(&node),
        Cell::plain(&row.device),
        Cell::plain(row.profile.as_deref().unwrap_or(NONE)),
        Cell::plain(&pod(row)),
        Cell::plain(tenant.container.as_deref().unwrap_or(NONE)),
        Cell::plain(&replicas(row)),
        Cell::new(&amount(tenant.memory_mib), ink),
        share(row),
        Cell::plain(&percent(tenant.utilization_percent)),
    ];
    if wide {
        let shared = row.replicas.map(|count| count.to_string());
        let pids: Vec<String> = tenant.processes.iter().map(ToString::to_string).collect();
        let pids = if pids.is_empty() {
            NONE.to_owned()
        } else {
            pids.join(",")
        };
        cells.extend([
            Cell::plain(row.resource.as_deref().unwrap_or(NONE)),
            Cell::plain(shared.as_deref().unwrap_or(NONE)),
            Cell::plain(&amount(row.total_mib)),
            Cell::plain(&pids),
            Cell::plain(&row.uuid),
        ]);
    }
    cells
}

fn pod(row: &UsageRow) -> String {
    let tenant = &row.tenant;
    match (&tenant.namespace, &tenant.pod, &tenant.unnamed_pod) {
        (Some(namespace), Some(pod), _) => format!("{namespace}/{pod}"),
        (None, Some(pod), _) => pod.clone(),
        (_, None, Some(uid)) => format!("(unnamed pod: uid {uid})"),
        (_, None, None) => match tenant.processes.first() {
            Some(pid) => format!("(no pod: pid {pid})"),
            None => "(no pod)".to_owned(),
        },
    }
}

/// Formats the allocated replicas: `0,2`; `all` if the unit is allocated exclusively.
fn replicas(row: &UsageRow) -> String {
    let ids = row.tenant.ids.iter();
    let numbers: Vec<&str> = ids
        .filter_map(|id| id.split_once("::"))
        .map(|(_, number)| number)
        .collect();
    if !numbers.is_empty() {
        numbers.join(",")
    } else if row.tenant.ids.is_empty() {
        NONE.to_owned()
    } else {
        "all".to_owned()
    }
}

/// Formats the share of memory: `116% of 27Gi, over`.
fn share(row: &UsageRow) -> Cell {
    let Some(all) = row.total_fair_share_mib() else {
        return Cell::plain(NONE);
    };
    let part = row.tenant.memory_mib.and_then(|used| {
        let percent = used.saturating_mul(100).checked_div(all)?;
        Some(format!("{percent}% of "))
    });
    let text = format!("{}{}", part.unwrap_or_default(), memory(all));
    if row.tenant.over {
        Cell::new(&format!("{text}, over"), Style::Bad)
    } else if row.nearly_exhausted {
        Cell::new(&format!("{text}, hardly any left"), Style::Warning)
    } else {
        Cell::plain(&text)
    }
}

fn amount(mib: Option<u64>) -> String {
    mib.map_or_else(|| NONE.to_owned(), memory)
}

fn percent(percent: Option<u8>) -> String {
    percent.map_or_else(|| NONE.to_owned(), |percent| format!("{percent}%"))
}

#[cfg(test)]
mod tests {
    use octavo_documents::usage::TenantJson;

    use super::*;

    fn rows() -> Vec<UsageRow> {
        let uuid = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";
        let row = UsageRow {
            node: "gpu-07".to_owned(),
            device: "GPU 0".to_owned(),
            pci: "0000:07:00.0".to_owned(),
            uuid: uuid.to_owned(),
            resource: Some("nvidia.com/gpu".to_owned()),
            replicas: Some(3),
            fair_share_mib: Some(27_306),
            total_mib: Some(81_920),
            tenant: TenantJson {
                namespace: Some("team-a".to_owned()),
                pod: Some("greedy".to_owned()),
                container: Some("main".to_owned()),
                ids: vec![format!("{uuid}::2")],
                memory_mib: Some(31_744),
                utilization_percent: Some(60),
                processes: vec![4711, 4712],
                over: true,
                unnamed_pod: None,
            },
            ..UsageRow::default()
        };
        let modest = UsageRow {
            nearly_exhausted: true,
            tenant: TenantJson {
                pod: Some("modest\u{1b}[2J".to_owned()),
                ids: vec![format!("{uuid}::0"), format!("{uuid}::1")],
                memory_mib: Some(4096),
                over: false,
                ..row.tenant.clone()
            },
            ..row.clone()
        };
        let stray = UsageRow {
            stale: true,
            profile: Some("1g.10gb".to_owned()),
            replicas: None,
            fair_share_mib: None,
            tenant: TenantJson {
                processes: vec![99],
                ..TenantJson::default()
            },
            ..row.clone()
        };
        let unnamed = UsageRow {
            tenant: TenantJson {
                unnamed_pod: Some("7d1c5a3e".to_owned()),
                ..stray.tenant.clone()
            },
            ..stray.clone()
        };
        vec![row, modest, stray, unnamed]
    }

    #[test]
    fn pod_over_its_share_is_marked() {
        let look = TableStyle {
            wide: false,
            headers: true,
            colors: Colors::Off,
        };
        assert_eq!(
            drawn(&rows(), look),
            "\
NODE            DEVICE  PARTITION  POD                          CONTAINER  REPLICA  MEMORY  SHARE                        UTIL
gpu-07          GPU 0   -          team-a/greedy                main       2        31Gi    116% of 27Gi, over           60%
gpu-07          GPU 0   -          team-a/modest�[2J            main       0,1      4096Mi  7% of 53Gi, hardly any left  60%
gpu-07 (stale)  GPU 0   1g.10gb    (no pod: pid 99)             -          -        -       -                            -
gpu-07 (stale)  GPU 0   1g.10gb    (unnamed pod: uid 7d1c5a3e)  -          -        -       -                            -
"
        );
    }

    #[test]
    fn wide_table_has_resource_and_pids() {
        let look = TableStyle {
            wide: true,
            headers: false,
            colors: Colors::Off,
        };
        let text = drawn(&rows()[..1], look);
        assert_eq!(
            text,
            "gpu-07  GPU 0  -  team-a/greedy  main  2  31Gi  116% of 27Gi, over  60%  nvidia.com/gpu  3  80Gi  4711,4712  GPU-5fd4087b-86f3-7a43-b711-4771313afc50\n"
        );
    }
}
