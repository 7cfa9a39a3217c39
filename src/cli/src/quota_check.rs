//! `octavo quota-check`: virtual CPUs of instances against EC2 quotas.

use octavo_client::Client;
use octavo_generate::ec2_quotas::{Limits, QuotaNeed, QuotaReport, check_quotas};

use super::generate::cluster_nodes;
use super::output::render;
use super::style::Style;
use super::text::{self, Cell};
use super::{CliError, Exit, Report, input};
use crate::settings::Colors;
use crate::settings::fleet::OutputOptions;
use crate::settings::quota_check::QuotaCheckSettings;

const COLUMNS: [&str; 6] = ["CODE", "QUOTA", "LIMIT", "USED", "ADDED", "STATUS"];

/// Runs `octavo quota-check`.
pub(super) async fn quota_check(
    settings: &QuotaCheckSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let text = input::text(&settings.limits, "limits")?;
    let limits: Limits = serde_json::from_str(&text)
        .map_err(|source| CliError::document("limits", input::place(&settings.limits), source))?;
    let client = Client::connect(&settings.server).await?;
    let nodes = cluster_nodes(&client).await?;
    let report = check_quotas(&nodes, &settings.additions(), &limits).map_err(|error| {
        CliError::rejected(format!("error: cannot check the quotas: {error}\n"))
    })?;
    let names = report.items.iter().map(|need| need.name.as_str());
    let table = || table(&report, settings.output, colors);
    let output = render(settings.output.format, &report, names, table)?;
    let missing: Vec<String> = report.items.iter().filter_map(remedy).collect();
    let exit = if missing.is_empty() { Exit::Done } else { Exit::Changes };
    Ok(Report::with_notes(output, &missing, exit))
}

fn table(report: &QuotaReport, printed: OutputOptions, colors: Colors) -> String {
    let rows = report.items.iter().map(|need| {
        let status = if need.sufficient {
            Cell::new("sufficient", Style::Good)
        } else {
            Cell::new("insufficient", Style::Bad)
        };
        vec![
            Cell::optional(need.code.as_deref()),
            Cell::plain(&need.name),
            Cell::optional(need.limit),
            Cell::plain(&need.used),
            Cell::plain(&need.added),
            status,
        ]
    });
    text::table(&[&COLUMNS], rows, printed.headers, colors)
}

/// Request that makes an insufficient quota sufficient.
fn remedy(need: &QuotaNeed) -> Option<String> {
    let (name, needed) = (&need.name, need.needed());
    match (&need.code, need.limit) {
        _ if need.sufficient => None,
        (Some(code), Some(limit)) => Some(format!(
            "{name}: {needed} virtual CPUs are needed, but the limit is {limit}; request it with `aws \
             service-quotas request-service-quota-increase --service-code ec2 --quota-code {code} \
             --desired-value {needed}`"
        )),
        (_, _) => Some(format!(
            "{name}: {needed} virtual CPUs are needed, but the limits do not contain this quota; check it \
             in the Service Quotas console"
        )),
    }
}
