//! `octavo doctor`: diagnoses why accelerators are not available to pods, and what to do about it.
//!
//! ```text
//! facts.rs             facts: sysfs, device files, processes, kubelet, labels
//! octavo_node::doctor  findings
//! table.rs             findings for users
//! ```

mod facts;
mod table;

use octavo_node::doctor::{Diagnosis, Facts, count_verdicts, run_checks};

pub(super) use self::facts::collect;
use super::{CliError, Exit, Report, json, yaml};
use crate::settings::Colors;
use crate::settings::doctor::DoctorFormat;

/// Formats the findings as requested.
pub(super) fn report(
    facts: &Facts<'_>,
    format: DoctorFormat,
    colors: Colors,
) -> Result<Report, CliError> {
    let findings = run_checks(facts);
    let exit = match count_verdicts(&findings).failing {
        0 => Exit::Done,
        _ => Exit::Failed,
    };
    let output = match format {
        DoctorFormat::Table => table::table(&findings, colors),
        DoctorFormat::Json => json(&Diagnosis::new(findings))?,
        DoctorFormat::Yaml => yaml(&Diagnosis::new(findings))?,
    };
    Ok(Report { output, notes: String::new(), exit })
}
