//! Checks of layouts files, alone and against machines.

use octavo_model::inventory::{Device, Inventory};
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{Layout, MigTarget, Targets, resolve};
use octavo_planner::plan::feasible;
use octavo_planner::plan::messages::PlanFormatter;

use super::NamedInventory;
use crate::diagnostics::Severity;
use crate::layout_source::LayoutSource;
use crate::settings::layouts::CheckSettings;
use crate::text::{count_noun, group_by_key};
use crate::{CliError, Exit, Report, devices};

/// Findings of the check.
#[derive(Debug, Default)]
struct CheckFindings {
    text: String,
    errors: usize,
    warnings: usize,
}

impl CheckFindings {
    fn error(&mut self, text: &str) {
        self.text.push_str(text);
        self.errors = self.errors.saturating_add(1);
    }

    fn warning(&mut self, text: &str) {
        self.text.push_str(text);
        self.warnings = self.warnings.saturating_add(1);
    }

    /// Formats the counts: `no errors`, `2 errors, 1 warning`.
    fn summary(&self) -> String {
        let errors = match self.errors {
            0 => "no errors".to_owned(),
            errors => count_noun(errors, "error", "errors"),
        };
        match self.warnings {
            0 => errors,
            warnings => format!("{errors}, {}", count_noun(warnings, "warning", "warnings")),
        }
    }
}

/// Runs `octavo layouts check`.
pub(crate) fn report(
    settings: &CheckSettings,
    machines: &[NamedInventory],
) -> Result<Report, CliError> {
    let mut output = String::new();
    let mut errors = 0_usize;
    for file in settings.files.inputs() {
        let found = match LayoutSource::parse(file)? {
            Err(refused) => {
                let name = crate::input::place(file);
                let count = count_noun(refused.count, "error", "errors");
                errors = errors.saturating_add(refused.count);
                output.push_str(&refused.text);
                output.extend([name, ": ".to_owned(), count, "\n".to_owned()]);
                continue;
            }
            Ok(source) => source,
        };
        let mut findings = CheckFindings::default();
        for warning in found.warnings() {
            findings.warning(&warning);
        }
        let layouts: Vec<&Layout> = match &settings.layout {
            Some(name) => vec![found.layout(name)?],
            None => found.layouts.layouts.iter().collect(),
        };
        let count = count_noun(found.layouts.layouts.len(), "layout", "layouts");
        let mut fits = Vec::new();
        for machine in machines {
            let good = layouts
                .iter()
                .filter(|layout| check_machine(&found, layout, machine, &mut findings));
            let good = good.count();
            fits.push(format!(
                "{}: {good} of {} layouts {} {}\n",
                found.name,
                layouts.len(),
                if good == 1 { "fits" } else { "fit" },
                machine.name
            ));
        }
        output.push_str(&findings.text);
        let line = format!("{}: {count}, {}\n", found.name, findings.summary());
        output.push_str(&line);
        output.extend(fits);
        errors = errors.saturating_add(findings.errors);
    }
    Ok(Report {
        output,
        notes: String::new(),
        exit: if errors == 0 { Exit::Done } else { Exit::Failed },
    })
}

/// Returns whether the machine can have the layout; the reasons against it are added to the findings.
fn check_machine(
    source: &LayoutSource,
    layout: &Layout,
    machine: &NamedInventory,
    findings: &mut CheckFindings,
) -> bool {
    let page = source.page();
    let on = |message: String| format!("{message} [on {}]", machine.name);
    let resolved = match resolve(layout, source.layouts.dialect, &machine.inventory) {
        Ok(resolved) => resolved,
        Err(errors) => {
            for error in errors {
                let message = on(error.to_string());
                findings.error(&page.at(Severity::Error, error.position, &message));
            }
            return false;
        }
    };
    for warning in &resolved.warnings {
        let message = on(warning.to_string());
        findings.warning(&page.at(Severity::Warning, warning.position, &message));
    }
    let impossible = impossible(&machine.inventory, &resolved.targets);
    for ((position, why), devices) in &impossible {
        let message = format!("layout {:?}: {}: {why}", layout.name, devices::range(devices));
        findings.error(&page.at(Severity::Error, *position, &on(message)));
    }
    impossible.is_empty()
}

/// Returns the devices that can never have their target, even when they are empty, grouped by the reason.
fn impossible<'a>(
    inventory: &'a Inventory,
    targets: &Targets,
) -> Vec<((SourcePosition, String), Vec<&'a Device>)> {
    group_by_key(targets.devices.iter().filter_map(|target| {
        let device = devices::find(inventory, target.pci)?;
        let Some(MigTarget::Enabled(instances)) = &target.mig else {
            return None;
        };
        let why = feasible(device, instances).err()?;
        let formatter = PlanFormatter::new(inventory, device.pci);
        let text = format!("{}: {}", formatter.list(instances), formatter.rule(&why.rule));
        let text = match formatter.alternatives(&why).first() {
            Some(nearest) => format!("{text}; nearest match: {nearest}"),
            None => text,
        };
        Some(((target.rule, text), device))
    }))
}
