//! Changes of policies with the credentials of the user's kubeconfig.

use std::io::{self, IsTerminal, Write};

use octavo_client::{Client, ServerSettings};
use octavo_kube::client::connect_user;
use octavo_kube::hardware_profiles::Outcome;
use octavo_kube::policies::{PolicyWriteError, PolicyWriter};
use octavo_policy::Policy;
use serde_json::Value;

use super::table;
use crate::output;
use crate::settings::fleet::{FleetFormat, OutputOptions};
use crate::settings::policy::{PolicyApplySettings, PolicyTarget, RollbackSettings};
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
    if !settings.yes && !confirm(name)? {
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
fn confirm(name: &str) -> Result<bool, CliError> {
    if !io::stdin().is_terminal() {
        return Err(CliError::NotConfirmed);
    }
    let mut screen = io::stderr().lock();
    let question = format!("Apply policy {}? [y/N] ", printable(name));
    let shown = screen.write_all(question.as_bytes()).and_then(|()| screen.flush());
    shown.map_err(CliError::Print)?;
    let mut answer = String::new();
    let place = || "standard input".to_owned();
    io::stdin()
        .read_line(&mut answer)
        .map_err(|source| CliError::Read { what: "the answer", place: place(), source })?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Runs `octavo policy pause` and `octavo policy resume`.
pub(super) async fn set_paused(
    target: &PolicyTarget,
    is_paused: bool,
) -> Result<Report, CliError> {
    let writer = writer(&target.server).await?;
    let policy = writer.get(&target.name).await.map_err(failure)?;
    let word = if is_paused { "paused" } else { "resumed" };
    if policy.spec.as_ref().is_ok_and(|spec| spec.rollout.paused == is_paused) {
        let word = if is_paused { "already paused" } else { "not paused" };
        return Ok(done_report(&target.name, word));
    }
    writer.set_paused(&target.name, is_paused).await.map_err(failure)?;
    Ok(done_report(&target.name, word))
}

/// Runs `octavo policy rollback`.
pub(super) async fn rollback(settings: &RollbackSettings) -> Result<Report, CliError> {
    let name = &settings.target.name;
    let writer = writer(&settings.target.server).await?;
    let policy = writer.get(name).await.map_err(failure)?;
    let revision = earlier(&policy, settings.to.as_deref())?;
    writer.request_rollback(&policy, revision).await.map_err(failure)?;
    let mut report = done_report(name, &format!("rolls back to revision {revision}"));
    report.notes = "note: the spec is unchanged; apply the earlier manifest to retain this revision\n"
        .to_owned();
    Ok(report)
}

/// The requested revision, or the one before the current one.
fn earlier<'a>(policy: &'a Policy, requested: Option<&str>) -> Result<&'a str, CliError> {
    let (name, status) = (|| policy.name.clone(), &policy.status);
    let mut known = status.revisions.iter().map(|one| one.revision.as_str());
    let found = match requested {
        Some(requested) => known.find(|known| *known == requested),
        None => known.skip_while(|known| *known != status.revision).nth(1),
    };
    let revision = found.ok_or_else(|| CliError::NoRevision {
        policy: name(),
        revision: requested.map(str::to_owned),
    })?;
    if revision == status.revision {
        return Err(CliError::CurrentRevision { policy: name(), revision: revision.to_owned() });
    }
    // The controller carries out a value of the annotation once.
    if policy.rollback_to.as_deref() == Some(revision) {
        return Err(CliError::RollbackRequested { policy: name(), revision: revision.to_owned() });
    }
    Ok(revision)
}

async fn writer(server: &ServerSettings) -> Result<PolicyWriter, CliError> {
    let client = connect_user(&server.cluster()).await;
    Ok(PolicyWriter::new(client.map_err(CliError::ConnectCluster)?))
}

fn failure(error: PolicyWriteError) -> CliError {
    CliError::Policy(Box::new(error))
}

fn done_report(name: &str, done: &str) -> Report {
    Report { output: format!("policy {} {done}\n", printable(name)), ..Report::default() }
}

#[cfg(test)]
mod tests {
    use octavo_policy::{Content, PolicyStatus, Revision};

    use super::*;

    fn policy(revisions: &[&str], current: &str, requested: Option<&str>) -> Policy {
        let time = "2026-01-01T00:00:00Z".parse().unwrap();
        let revision = |name: &&str| Revision {
            revision: (*name).to_owned(),
            time,
            content: Content::default(),
        };
        Policy {
            name: "a".to_owned(),
            uid: "u".to_owned(),
            version: "1".to_owned(),
            generation: 1,
            created: None,
            is_deleting: false,
            has_finalizer: true,
            rollback_to: requested.map(str::to_owned),
            spec: Err("not needed".to_owned()),
            status: PolicyStatus {
                revision: current.to_owned(),
                revisions: revisions.iter().map(revision).collect(),
                ..PolicyStatus::default()
            },
        }
    }

    #[test]
    fn p5_rollback_needs_a_retained_revision_that_is_not_the_current_one() {
        let all = ["c", "b", "a"];
        assert_eq!(earlier(&policy(&all, "c", None), None).unwrap(), "b");
        assert_eq!(earlier(&policy(&all, "b", None), None).unwrap(), "a");
        assert_eq!(earlier(&policy(&all, "c", None), Some("a")).unwrap(), "a");
        for (policy, requested, expected) in [
            (policy(&all, "a", None), None, "policy a has no earlier revision"),
            (policy(&all, "c", None), Some("x"), "policy a has no revision x"),
            (policy(&all, "c", None), Some("c"), "policy a already has revision c"),
            (policy(&all, "c", Some("b")), None, "already requests revision b"),
        ] {
            let error = earlier(&policy, requested).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
