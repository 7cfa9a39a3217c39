//! Changes of policies with the credentials of the user's kubeconfig.

use std::io::{self, IsTerminal, Write};

use octavo_client::{Client, ServerSettings};
use octavo_kube::client::connect_user;
use octavo_kube::hardware_profiles::Outcome;
use octavo_kube::policies::{PolicyWriteError, PolicyWriter};
use octavo_model::text::count_noun;
use octavo_policy::{approvable, rollback_target};
use serde_json::Value;

use super::table;
use crate::error::PolicyChangeError;
use crate::output;
use crate::settings::fleet::{FleetFormat, OutputOptions};
use crate::settings::policy::{
    ApproveSettings, PolicyApplySettings, PolicyTarget, RollbackSettings,
};
use crate::settings::{Colors, Headers};
use crate::text::printable;
use crate::{CliError, Exit, Report};

/// Runs `octavo policy apply`: shows the plan, asks, and applies.
pub(super) async fn apply(
    settings: &PolicyApplySettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let manifest = super::manifest(&settings.file)?;
    let client = Client::connect(&settings.server).await?;
    let plan = super::plan_of(&client, &manifest).await?;
    let printed = OutputOptions { format: FleetFormat::Table, headers: Headers::Shown };
    let text = table::plan(&plan, printed, colors);
    if plan.rollout.refused.is_some() {
        let notes = [format!("policy {} was not applied", plan.name)];
        return Ok(Report::with_notes(text, &notes, Exit::Infeasible));
    }
    let _ = output::out(&format!("{text}\n"))?;
    if let Some(notice) = &plan.notice {
        output::note(&format!("note: {}", printable(notice)));
    }
    let name = manifest.pointer("/metadata/name").and_then(Value::as_str).unwrap_or(&plan.name);
    if !settings.yes && !confirm(&format!("Apply policy {}?", printable(name)))? {
        return Ok(Report::failed(format!("policy {} was not applied\n", printable(name))));
    }
    let outcome = writer(&settings.server).await?.apply(name, &manifest).await;
    let done = match outcome.map_err(failure)? {
        Outcome::Created => "created",
        Outcome::Replaced => "changed",
        Outcome::Unchanged => "unchanged",
    };
    Ok(done_report(name, done))
}

/// Asks on the terminal.
fn confirm(question: &str) -> Result<bool, CliError> {
    if !io::stdin().is_terminal() {
        return Err(PolicyChangeError::NotConfirmed.into());
    }
    let mut screen = io::stderr().lock();
    let shown = write!(screen, "{question} [y/N] ").and_then(|()| screen.flush());
    shown.map_err(CliError::Print)?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|source| CliError::Read {
        what: "the answer",
        place: "standard input".to_owned(),
        source,
    })?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Runs `octavo policy pause` and `octavo policy resume`.
pub(super) async fn set_paused(target: &PolicyTarget, is_paused: bool) -> Result<Report, CliError> {
    let writer = writer(&target.server).await?;
    let policy = writer.get(&target.name).await.map_err(failure)?;
    let word = if is_paused { "paused" } else { "resumed" };
    if policy.spec.as_ref().is_ok_and(|spec| spec.rollout.paused == is_paused) {
        let word = if is_paused { "already paused" } else { "not paused" };
        return Ok(done_report(&target.name, word));
    }
    // Any change of the spec ends a stop.
    if let Some(stop) = &policy.status.stop {
        let (name, why) = (printable(&target.name), printable(&stop.message));
        return Err(CliError::rejected(format!(
            "policy {name} is stopped, and this change would start the roll-out again: {why}\n  \
             try: apply a corrected manifest, or run `octavo policy rollback {name}`\n"
        )));
    }
    writer.set_paused(&target.name, is_paused).await.map_err(failure)?;
    Ok(done_report(&target.name, word))
}

/// Runs `octavo policy rollback`.
pub(super) async fn rollback(settings: &RollbackSettings) -> Result<Report, CliError> {
    let name = &settings.target.name;
    let writer = writer(&settings.target.server).await?;
    let policy = writer.get(name).await.map_err(failure)?;
    let refused = |source| PolicyChangeError::Rollback { policy: name.clone(), source };
    let revision = rollback_target(&policy, settings.to.as_deref()).map_err(refused)?;
    writer.request_rollback(&policy, revision).await.map_err(failure)?;
    let done = done_report(name, &format!("rolls back to revision {revision}"));
    let notes = "note: the spec is unchanged; apply the earlier manifest to retain this revision\n";
    Ok(Report { notes: notes.to_owned(), ..done })
}

/// Runs `octavo policy approve`.
pub(super) async fn approve(settings: &ApproveSettings) -> Result<Report, CliError> {
    let name = &settings.target.name;
    let writer = writer(&settings.target.server).await?;
    let policy = writer.get(name).await.map_err(failure)?;
    let refused = |source| PolicyChangeError::Approve { policy: name.clone(), source };
    let changes = approvable(&policy, &settings.nodes).map_err(refused)?;
    let lines: Vec<String> = changes.iter().map(|change| printable(&change.text())).collect();
    let _ = output::out(&format!("{}\n", lines.join("\n")))?;
    let count = count_noun(changes.len(), "change", "changes");
    let question = format!("Approve {count}?");
    if !settings.yes && !confirm(&question)? {
        return Ok(Report::failed("nothing was approved\n".to_owned()));
    }
    // Refused if the policy was changed since it was read, so only what was shown is approved.
    writer.approve(&policy, &changes).await.map_err(failure)?;
    let output = format!("{count} of policy {} approved\n", printable(name));
    Ok(Report { output, ..Report::default() })
}

async fn writer(server: &ServerSettings) -> Result<PolicyWriter, CliError> {
    let client = connect_user(&server.cluster()).await;
    Ok(PolicyWriter::new(client.map_err(PolicyChangeError::Connect)?))
}

fn failure(error: PolicyWriteError) -> CliError {
    PolicyChangeError::Write(Box::new(error)).into()
}

fn done_report(name: &str, done: &str) -> Report {
    Report { output: format!("policy {} {done}\n", printable(name)), ..Report::default() }
}
