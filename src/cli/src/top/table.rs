//! The table of usage by pod.

use octavo_fleet::usage::UsageRow;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::Percent;
use octavo_model::resource::ShareId;
use octavo_model::text::format_memory;
use octavo_node::sharing::usage::Tenant;

use crate::fleet::format::memory;
use crate::settings::{Colors, Headers};
use crate::style::Style;
use crate::text::{self, Cell, NONE};

const COLUMNS: [&str; 9] =
    ["NODE", "DEVICE", "PARTITION", "POD", "CONTAINER", "REPLICA", "MEMORY", "SHARE", "UTIL"];
/// Further columns of the wide table.
const WIDE_COLUMNS: [&str; 6] = ["RESOURCE", "CLAIM", "SHARED BY", "TOTAL", "PIDS", "UUID"];

/// Formats one row per tenant, in the given order.
pub(super) fn table(rows: &[UsageRow], is_wide: bool, headers: Headers, colors: Colors) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let wide: &[&str] = if is_wide { &WIDE_COLUMNS } else { &[] };
    text::table(&[&COLUMNS, wide], rows.iter().map(cells), headers, colors)
}

fn cells(row: &UsageRow) -> Vec<Cell> {
    let tenant = &row.tenant;
    let style = if tenant.is_over_share { Style::Bad } else { Style::Plain };
    let node = if row.stale { format!("{} (stale)", row.node) } else { row.node.clone() };
    let pids: Vec<String> = tenant.processes.iter().map(ToString::to_string).collect();
    vec![
        Cell::plain(&node),
        Cell::plain(&row.device),
        Cell::optional(row.profile.as_deref()),
        Cell::plain(&row.tenant),
        Cell::optional(tenant.container.as_deref()),
        Cell::plain(&replicas(row)),
        Cell::new(&amount(used(tenant)), style),
        share(row),
        Cell::optional(tenant.utilization.map(|Percent(percent)| format!("{percent}%"))),
        Cell::optional(row.resource.as_deref()),
        Cell::optional(tenant.claim.as_deref()),
        Cell::optional(row.replicas),
        Cell::plain(&amount(row.total)),
        Cell::optional(Some(pids.join(",")).filter(|pids| !pids.is_empty())),
        Cell::plain(&row.uuid),
    ]
}

/// Formats the allocated replicas: `0,2`; `all` if the unit is allocated exclusively.
fn replicas(row: &UsageRow) -> String {
    let ids = row.tenant.ids.iter();
    let numbers: Vec<String> =
        ids.filter_map(ShareId::number).map(|number| number.to_string()).collect();
    if !numbers.is_empty() {
        numbers.join(",")
    } else if row.tenant.ids.is_empty() {
        NONE.to_owned()
    } else {
        "all".to_owned()
    }
}

/// Formats the share of memory: `116% of 26.6 GiB, over`.
fn share(row: &UsageRow) -> Cell {
    let Some(all) = row.total_fair_share().map(Mebibytes::get) else {
        return Cell::plain(NONE);
    };
    let part = used(&row.tenant).and_then(|used| {
        let percent = used.get().saturating_mul(100).checked_div(all)?;
        Some(format!("{percent}% of "))
    });
    let text = format!("{}{}", part.unwrap_or_default(), memory(all));
    if row.tenant.is_over_share {
        Cell::new(&format!("{text}, over"), Style::Bad)
    } else if row.nearly_exhausted {
        Cell::new(&format!("{text}, nearly exhausted"), Style::Warning)
    } else {
        Cell::plain(&text)
    }
}

/// Returns the used memory; `None` if it is unknown, or there is no process that could use any.
fn used(tenant: &Tenant) -> Option<Mebibytes> {
    tenant.memory.filter(|_| !tenant.is_without_process())
}

fn amount(amount: Option<Mebibytes>) -> String {
    amount.map_or_else(|| NONE.to_owned(), format_memory)
}

#[cfg(test)]
mod tests {
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
            fair_share: Some(Mebibytes::new(27_306)),
            total: Some(Mebibytes::new(81_920)),
            tenant: Tenant {
                namespace: Some("team-a".to_owned()),
                pod: Some("greedy".to_owned()),
                container: Some("main".to_owned()),
                ids: vec![ShareId::replica(uuid, 2)],
                memory: Some(Mebibytes::new(31_744)),
                utilization: Some(Percent(60)),
                processes: vec![4711, 4712],
                is_over_share: true,
                ..Tenant::default()
            },
            ..UsageRow::default()
        };
        let modest = UsageRow {
            nearly_exhausted: true,
            tenant: Tenant {
                pod: Some("modest\u{1b}[2J".to_owned()),
                ids: [0, 1].map(|number| ShareId::replica(uuid, number)).to_vec(),
                memory: Some(Mebibytes::new(4096)),
                is_over_share: false,
                ..row.tenant.clone()
            },
            ..row.clone()
        };
        let stray = UsageRow {
            stale: true,
            profile: Some("1g.10gb".to_owned()),
            replicas: None,
            fair_share: None,
            tenant: Tenant { processes: vec![99], ..Tenant::default() },
            ..row.clone()
        };
        let unnamed = UsageRow {
            tenant: Tenant { unnamed_pod: Some("7d1c5a3e".to_owned()), ..stray.tenant.clone() },
            ..stray.clone()
        };
        vec![row, modest, stray, unnamed]
    }

    #[test]
    fn pod_over_its_share_is_marked() {
        assert_eq!(
            table(&rows(), false, Headers::Shown, Colors::Off),
            "\
NODE            DEVICE  PARTITION  POD                          CONTAINER  REPLICA  MEMORY  SHARE                             UTIL
gpu-07          GPU 0   -          team-a/greedy                main       2        31 GiB  116% of 26.6 GiB, over            60%
gpu-07          GPU 0   -          team-a/modest�[2J            main       0,1      4 GiB   7% of 53.3 GiB, nearly exhausted  60%
gpu-07 (stale)  GPU 0   1g.10gb    (no pod: pid 99)             -          -        -       -                                 -
gpu-07 (stale)  GPU 0   1g.10gb    (unnamed pod: uid 7d1c5a3e)  -          -        -       -                                 -
"
        );
    }

    #[test]
    fn tenant_without_process_has_a_share_but_no_memory() {
        let mut idle = rows().remove(0);
        idle.tenant.is_over_share = false;
        idle.tenant.memory = Some(Mebibytes::new(0));
        let shown = |row: &UsageRow| {
            let table = table(std::slice::from_ref(row), false, Headers::Hidden, Colors::Off);
            let cells: Vec<&str> = table.trim_end().split("  ").collect();
            cells[6..8].join("|")
        };
        assert_eq!(shown(&idle), "0 MiB|0% of 26.6 GiB");
        idle.tenant.processes.clear();
        assert_eq!(shown(&idle), "-|26.6 GiB");
        idle.tenant.memory = None;
        assert_eq!(shown(&idle), "-|26.6 GiB");
    }

    #[test]
    fn wide_table_has_resource_and_pids() {
        let text = table(&rows()[..1], true, Headers::Hidden, Colors::Off);
        assert_eq!(
            text,
            "gpu-07  GPU 0  -  team-a/greedy  main  2  31 GiB  116% of 26.6 GiB, over  60%  nvidia.com/gpu  -  3  80 GiB  4711,4712  GPU-5fd4087b-86f3-7a43-b711-4771313afc50\n"
        );
    }
}
