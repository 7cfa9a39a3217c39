//! `octavo policy`: previews, progress and changes of accelerator policies.
//!
//! ```text
//! change.rs  apply, pause, resume, approve and rollback, with the user's own credentials
//! table.rs   policies, nodes and revisions as tables
//! watch.rs   progress as it changes
//! ```

mod change;
mod table;
mod watch;

use octavo_client::{Client, RequestPath, segment};
use octavo_policy::document::{PolicyDetail, PolicyList, PolicyPlanDocument, PolicySource};
use serde_json::Value;

use super::output::render;
use super::{CliError, Exit, Report, input};
use crate::settings::fleet::OutputOptions;
use crate::settings::policy::{
    PolicyCommand, PolicyHistorySettings, PolicyPlanSettings, PolicyStatusSettings,
};
use crate::settings::{Colors, Input, OutputMode};

const PATH: &str = "/api/v1/policies";

/// Runs `octavo policy`.
pub(super) async fn run(
    command: &PolicyCommand,
    colors: Colors,
    screen: OutputMode,
) -> Result<Report, CliError> {
    match command {
        PolicyCommand::Plan(settings) => plan(settings, colors).await,
        PolicyCommand::Apply(settings) => change::apply(settings, colors).await,
        PolicyCommand::Status(settings) if settings.watch => {
            watch::watch(settings, colors, screen).await
        }
        PolicyCommand::Status(settings) => {
            let client = Client::connect(&settings.server).await?;
            status(&client, settings, colors).await
        }
        PolicyCommand::Pause(target) => change::set_paused(target, true).await,
        PolicyCommand::Resume(target) => change::set_paused(target, false).await,
        PolicyCommand::Approve(settings) => change::approve(settings).await,
        PolicyCommand::Rollback(settings) => change::rollback(settings).await,
        PolicyCommand::History(settings) => history(settings, colors).await,
    }
}

async fn plan(settings: &PolicyPlanSettings, colors: Colors) -> Result<Report, CliError> {
    let client = Client::connect(&settings.server).await?;
    let plan: PolicyPlanDocument = match (&settings.policy.file, &settings.policy.name) {
        (Some(file), _) => plan_of(&client, &manifest(file)?).await?,
        (None, name) => {
            let path = format!("{}/plan", path_of(name.as_deref().unwrap_or_default()));
            client.get(&RequestPath::new(&path)).await?
        }
    };
    let text = || table::plan(&plan, settings.output, colors);
    let output = render(settings.output.format, &plan, [plan.name.as_str()], text)?;
    Ok(Report::with_notes(output, plan.notice.as_slice(), exit(&plan)))
}

/// Requests the plan of a manifest.
async fn plan_of(client: &Client, manifest: &Value) -> Result<PolicyPlanDocument, CliError> {
    Ok(client.post(&RequestPath::new("/api/v1/policies/plan"), manifest).await?)
}

/// Reads a manifest in YAML or JSON.
fn manifest(file: &Input) -> Result<Value, CliError> {
    input::yaml(file, "a policy", "policy")
}

fn path_of(name: &str) -> String {
    format!("{PATH}/{}", segment(name))
}

fn exit(plan: &PolicyPlanDocument) -> Exit {
    let rollout = &plan.rollout;
    match (&rollout.refused, rollout.waves.is_empty(), rollout.waiting.is_empty()) {
        (Some(_), ..) => Exit::Infeasible,
        (None, true, true) => Exit::Done,
        (None, true, false) => Exit::Blocked,
        (None, false, _) => Exit::Changes,
    }
}

async fn status(
    client: &Client,
    settings: &PolicyStatusSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let printed = settings.output;
    if let Some(name) = &settings.name {
        let detail: PolicyDetail = client.get(&RequestPath::new(&path_of(name))).await?;
        let text = || table::detail(&detail, printed, colors);
        let output = render(printed.format, &detail, [detail.name.as_str()], text)?;
        return Ok(Report::with_notes(output, detail.notice.as_slice(), Exit::Done));
    }
    let list: PolicyList = client.get(&RequestPath::new(PATH)).await?;
    let names = list.items.iter().map(|row| row.name.as_str());
    let output = render(printed.format, &list, names, || table::list(&list, printed, colors))?;
    let mut notes: Vec<&str> = list.notice.iter().map(String::as_str).collect();
    if list.items.is_empty() {
        notes.extend(list.source.known().map(PolicySource::explanation));
    }
    Ok(Report::with_notes(output, &notes, Exit::Done))
}

async fn history(settings: &PolicyHistorySettings, colors: Colors) -> Result<Report, CliError> {
    let client = Client::connect(&settings.target.server).await?;
    let path = path_of(&settings.target.name);
    let detail: PolicyDetail = client.get(&RequestPath::new(&path)).await?;
    let printed: OutputOptions = settings.output;
    let revisions = &detail.status.revisions;
    let names = revisions.iter().map(|one| one.revision.as_str());
    let text = || table::history(&detail.status, printed, colors);
    let output = render(printed.format, revisions, names, text)?;
    Ok(Report::with_notes(output, detail.notice.as_slice(), Exit::Done))
}

#[cfg(test)]
mod tests {
    use octavo_fleet::node_plan::NodePlanTotals;
    use octavo_policy::document::RolloutCapacity;
    use octavo_policy::{PlannedNode, PolicyPlan, Stop, StopAction, StopReason};

    use super::*;
    use crate::settings::Headers;
    use crate::settings::fleet::FleetFormat;

    #[test]
    fn p5_plan_of_a_stopped_policy_names_the_reason_and_the_waiting_nodes() {
        let stop = Stop {
            reason: StopReason::TooManyFailures,
            action: StopAction::Pause,
            revision: "3f1c09ab42".to_owned(),
            message: "1 node failed; gpu-1: failed: -".to_owned(),
        };
        let waiting = PlannedNode { name: "gpu-2".to_owned(), layout: None, in_use: None };
        let mut plan = PolicyPlanDocument {
            api_version: String::new(),
            kind: String::new(),
            name: "a".to_owned(),
            exists: true,
            notice: None,
            rollout: PolicyPlan {
                stop: Some(stop),
                selected: 3,
                updating: vec!["gpu-0".to_owned()],
                waiting: vec![waiting],
                ..PolicyPlan::default()
            },
            infeasible: Vec::new(),
            totals: NodePlanTotals::default(),
            nodes: Vec::new(),
            more_nodes: 0,
            capacity: RolloutCapacity::default(),
            duration: None,
        };
        let printed = OutputOptions { format: FleetFormat::Table, headers: Headers::Shown };
        let text = table::plan(&plan, printed, Colors::Off);
        for expected in ["Stopped", "1 node failed; gpu-1", "Updating", "gpu-0", "gpu-2"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!(exit(&plan), Exit::Blocked);
        plan.rollout.stop.as_mut().unwrap().action = StopAction::RollBack;
        let text = table::plan(&plan, printed, Colors::Off);
        assert!(text.contains("Rolls back") && !text.contains("Stopped"), "{text}");
    }
}
