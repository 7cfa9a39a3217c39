//! `octavo validate`: proves with one pod per node and resource that accelerators can be allocated and used.
//!
//! ```text
//! octavo_kube::validation  the pods
//! octavo_node::validation  comparison of a container with the labels of the Node
//! table.rs                 results for users
//! ```

mod table;

use octavo_kube::validation::{
    PlannedPod, PlannedStep, PodOptions, ValidationClient, ValidationError, ValidationRun,
    plan_node,
};
use octavo_node::validation::{Outcome, Validation};
use octavo_toolkit::error::chain;
use serde::Serialize;

use super::watch::StopSignal;
use super::{CliError, Exit, Report, json, output, yaml};
use crate::settings::Colors;
use crate::settings::validate::{ValidateFormat, ValidateSettings};
use crate::text::{count_noun, printable};

/// Results of all nodes.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Results {
    validations: Vec<Validation>,
}

/// Reason why the run ended.
#[derive(Debug)]
enum RunEnd {
    Complete,
    Interrupted,
    Failed(ValidationError),
}

/// Validates the nodes, and removes all pods.
pub(super) async fn validate(
    settings: &ValidateSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    // From here on, these signals do not end the process, so that the pods are removed.
    let mut stop = StopSignal::new().map_err(CliError::Runtime)?;
    let client = ValidationClient::connect(&settings.cluster(), settings.timeout).await?;
    let agents = client.agents().await?;
    let namespace = settings.namespace.clone();
    let namespace = namespace.or_else(|| Some(agents.values().next()?.namespace.clone()));
    let namespace = namespace.ok_or(ValidationError::NoAgent("namespace"))?;
    if settings.image.is_none() && agents.is_empty() {
        return Err(ValidationError::NoAgent("image").into());
    }
    let options = PodOptions {
        namespace,
        image: settings.image.clone(),
        runtime_class: settings.runtime_class.clone(),
        timeout: settings.timeout,
    };
    let run = ValidationRun::new(&client, &options, &agents);
    if !settings.dry_run {
        remove_expired(&client, &options.namespace).await?;
    }
    let (planned, mut results) = plan(&client, settings).await?;
    if settings.dry_run {
        return dry_run(&run, &planned, &results);
    }
    output::note(&format!(
        "note: {} in the namespace {}; each has a time limit of {} s",
        count_noun(planned.len(), "pod", "pods"),
        printable(&options.namespace),
        options.timeout.as_secs()
    ));
    let (all, mut count) = (planned.len(), 0_usize);
    let done = |validation: Validation| {
        count = count.saturating_add(1);
        output::note(&format!("{count} of {all}: {}", table::title(&validation)));
        results.validations.push(validation);
    };
    let end = tokio::select! {
        ended = run.run(planned, done) => ended.map_or_else(RunEnd::Failed, |()| RunEnd::Complete),
        () = stop.received() => RunEnd::Interrupted,
    };
    let removed = tokio::select! {
        removed = run.clean_up() => removed,
        () = stop.received() => Err(ValidationError::NotRemoved(run.id().to_owned())),
    };
    finish(results, (end, removed), (settings.format, colors))
}

/// Removes pods of earlier runs that were killed.
async fn remove_expired(client: &ValidationClient, namespace: &str) -> Result<(), CliError> {
    let Some(removed) = client.remove_expired(namespace).await? else {
        output::note(
            "note: the API server reports no time, so pods of earlier runs were not removed",
        );
        return Ok(());
    };
    if !removed.is_empty() {
        let pods = count_noun(removed.len(), "pod", "pods");
        output::note(&format!("note: removed {pods} of an earlier run that did not end"));
    }
    Ok(())
}

/// Reads the nodes and their pods, and decides which pods are created.
async fn plan(
    client: &ValidationClient,
    settings: &ValidateSettings,
) -> Result<(Vec<PlannedPod>, Results), CliError> {
    let nodes = match &settings.selector {
        Some(selector) => client.selected_nodes(selector).await?,
        None => client.named_nodes(&settings.nodes).await?,
    };
    let (mut planned, mut results) = (Vec::new(), Results::default());
    for node in &nodes {
        let pods = client.pods_of(&node.name).await?;
        for step in plan_node(node, &pods, &settings.resources) {
            match step {
                PlannedStep::Pod(pod) => planned.push(*pod),
                PlannedStep::Done(validation) => results.validations.push(validation),
            }
        }
    }
    Ok((planned, results))
}

/// Prints the pods that would be created, and notes about the resources without one.
fn dry_run(
    run: &ValidationRun<'_>,
    planned: &[PlannedPod],
    results: &Results,
) -> Result<Report, CliError> {
    let mut output = String::new();
    for pod in planned {
        output = format!("{output}---\n{}", yaml(&run.pod(pod))?);
    }
    let notes = results.validations.iter().map(|validation| {
        let evidence = validation.steps.iter().map(|step| step.evidence.as_str());
        format!("no pod for {}: {}", table::title(validation), evidence.collect::<String>())
    });
    let notes: Vec<String> = notes.collect();
    Ok(Report::with_notes(output, &notes, Exit::Done))
}

/// Prints the results. The command succeeds if at least one resource passed and none failed.
fn finish(
    mut results: Results,
    (end, removed): (RunEnd, Result<(), ValidationError>),
    (format, colors): (ValidateFormat, Colors),
) -> Result<Report, CliError> {
    results.validations.sort_by(|a, b| (&a.node, &a.resource).cmp(&(&b.node, &b.resource)));
    let mut notes = Vec::new();
    let of = |outcome| results.validations.iter().filter(|one| one.outcome == outcome).count();
    let is_valid = of(Outcome::Failed) == 0 && of(Outcome::Passed) > 0;
    if of(Outcome::Failed) == 0 && of(Outcome::Passed) == 0 {
        notes.push("no resource was validated, so the exit code is 1".to_owned());
    }
    match &end {
        RunEnd::Complete => {}
        RunEnd::Interrupted => {
            notes.push("interrupted: the results are incomplete".to_owned());
        }
        RunEnd::Failed(error) => notes.push(format!("{}; {}", chain(error), error.advice())),
    }
    let is_complete = matches!(end, RunEnd::Complete);
    let is_removed = removed.is_ok();
    if let Err(error) = removed {
        notes.push(format!("{}; {}", chain(&error), error.advice()));
    }
    let output = match format {
        ValidateFormat::Table => table::table(&results.validations, colors),
        ValidateFormat::Json => json(&results)?,
        ValidateFormat::Yaml => yaml(&results)?,
    };
    let exit = if is_valid && is_complete && is_removed { Exit::Done } else { Exit::Failed };
    Ok(Report::with_notes(output, &notes, exit))
}
