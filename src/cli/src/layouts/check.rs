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
use crate::text::counted;
use crate::{CliError, Exit, Report, devices};

/// Findings of the check.
#[derive(Debug, Default)]
struct CheckFindings {
    said: String,
    errors: usize,
    warnings: usize,
}

impl CheckFindings {
    fn error(&mut self, said: &str) {
        self.said.push_str(said);
        self.errors = self.errors.saturating_add(1);
    }

    fn warning(&mut self, said: &str) {
        self.said.push_str(said);
        self.warnings = self.warnings.saturating_add(1);
    }

    /// Formats the counts: `no errors`, `2 errors, 1 warning`.
    fn summary(&self) -> String {
        let errors = match self.errors {
            0 => "no errors".to_owned(),
            errors => counted(errors, "error", "errors"),
        };
        match self.warnings {
            0 => errors,
            warnings => format!("{errors}, {}", counted(warnings, "warning", "warnings")),
        }
    }
}

pub(super) fn report(
    settings: &CheckSettings,
    machines: &[NamedInventory],
) -> Result<Report, CliError> {
    let mut output = String::new();
    let mut errors = 0_usize;
    for file in &settings.files {
        let found = match LayoutSource::read(file)? {
            Err(refused) => {
                let name = crate::input::place(file);
                let count = counted(refused.errors, "error", "errors");
                errors = errors.saturating_add(refused.errors);
                output.push_str(&refused.said);
                output.extend([name, ": ".to_owned(), count, "\n".to_owned()]);
                continue;
            }
            Ok(sheet) => sheet,
        };
        let mut findings = CheckFindings::default();
        for warning in found.warnings() {
            findings.warning(&warning);
        }
        let layouts: Vec<&Layout> = match &settings.layout {
            Some(name) => vec![found.layout(name)?],
            None => found.layouts.layouts.iter().collect(),
        };
        let count = counted(found.layouts.layouts.len(), "layout", "layouts");
        let mut fits = Vec::new();
        for machine in machines {
            let good = layouts
                .iter()
                .filter(|layout| check_machine(&found, layout, machine, &mut findings));
            let good = good.count();
            fits.push(format!(
                "{}: {good} of {} can be had on {}\n",
                found.name,
                counted(layouts.len(), "layout", "layouts"),
                machine.name
            ));
        }
        output.push_str(&findings.said);
        let line = format!("{}: {count}, {}\n", found.name, findings.summary());
        output.push_str(&line);
        output.extend(fits);
        errors = errors.saturating_add(findings.errors);
    }
    Ok(Report {
        output,
        notes: String::new(),
        exit: if errors == 0 {
            Exit::Done
        } else {
            Exit::Failed
        },
    })
}

/// Returns whether the machine can have the layout; the reasons against it are added to the findings.
fn check_machine(
    sheet: &LayoutSource,
    layout: &Layout,
    machine: &NamedInventory,
    findings: &mut CheckFindings,
) -> bool {
    let page = sheet.page();
    let on = |message: String| format!("{message} [on {}]", machine.name);
    let resolved = match resolve(layout, sheet.layouts.dialect, &machine.inventory) {
        Ok(resolved) => resolved,
        Err(errors) => {
            for error in errors {
                let message = on(error.to_string());
                findings.error(&page.at(Severity::Error, error.place(), &message));
            }
            return false;
        }
    };
    for warning in &resolved.warnings {
        let message = on(warning.to_string());
        findings.warning(&page.at(Severity::Warning, warning.place(), &message));
    }
    let impossible = impossible(&machine.inventory, &resolved.targets);
    for (place, devices, why) in &impossible {
        let message = format!(
            "layout {:?}: {}: {why}",
            layout.name,
            devices::range(devices)
        );
        findings.error(&page.at(Severity::Error, *place, &on(message)));
    }
    impossible.is_empty()
}

/// Returns the devices that can never have their target, even when they are empty, grouped by the reason.
fn impossible<'a>(
    inventory: &'a Inventory,
    targets: &Targets,
) -> Vec<(SourcePosition, Vec<&'a Device>, String)> {
    let mut all: Vec<(SourcePosition, Vec<&Device>, String)> = Vec::new();
    for target in &targets.devices {
        let mut devices = inventory.devices.iter();
        let device = devices.find(|device| device.pci == target.pci);
        let (Some(device), Some(MigTarget::Enabled(instances))) = (device, &target.mig) else {
            continue;
        };
        let Err(why) = feasible(device, instances) else {
            continue;
        };
        let words = PlanFormatter::new(inventory, device.pci);
        let text = format!("{}: {}", words.list(instances), words.rule(&why.rule));
        let text = match words.alternatives(&why).first() {
            Some(nearest) => format!("{text}; nearest that fits: {nearest}"),
            None => text,
        };
        let same = all
            .iter_mut()
            .find(|(place, _, known)| *place == target.rule && *known == text);
        match same {
            Some((_, devices, _)) => devices.push(device),
            None => all.push((target.rule, vec![device], text)),
        }
    }
    all
}
