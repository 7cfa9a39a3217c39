//! `octavo doctor`: diagnoses why accelerators are not available to pods, and what to do about it.
//!
//! ```text
//! facts.rs             facts: sysfs, device files, processes, kubelet, labels
//! octavo_node::doctor  findings
//! table.rs             findings for users
//! remote.rs            facts about another node: from the aggregator and the API server
//! ```

mod facts;
mod remote;
mod table;

use std::sync::Arc;

use octavo_model::inventory::Inventory;
pub(super) use octavo_node::doctor::run_checks as run;
use octavo_node::doctor::{Diagnosis, Finding, count_verdicts};

pub(super) use self::facts::collect;
pub(super) use self::remote::{RemoteNode, connect_cluster, diagnose};
use self::table::Detail;
use super::{CliError, Exit, Report, json, yaml};
use crate::settings::Colors;
use crate::settings::doctor::{DoctorFormat, DoctorSettings};

/// Diagnosis of a node that this process can read.
#[derive(Debug)]
pub(super) struct NodeDiagnosis {
    pub(super) inventory: Arc<Inventory>,
    pub(super) findings: Vec<Finding>,
}

/// Formats findings as requested.
pub(super) fn format_findings(
    findings: Vec<Finding>,
    settings: &DoctorSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let exit = match count_verdicts(&findings).failing {
        0 => Exit::Done,
        _ => Exit::Failed,
    };
    let detail = if settings.verbose { Detail::All } else { Detail::Problems };
    let output = match settings.format {
        DoctorFormat::Table => table::table(&findings, detail, colors),
        DoctorFormat::Json => json(&Diagnosis::new(findings))?,
        DoctorFormat::Yaml => yaml(&Diagnosis::new(findings))?,
    };
    Ok(Report { output, notes: String::new(), exit })
}
