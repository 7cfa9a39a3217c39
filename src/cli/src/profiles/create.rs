//! Creates a profile: the aggregator, which has the nodes, drafts it, and the user, who has the permission, creates
//! it.

use octavo_client::{Client, RequestPath};
use octavo_files::hardware_profiles::yaml;
use octavo_fleet::hardware_profile::create_request::ProfileOrder;
use octavo_fleet::hardware_profile::document::ProfileDraft;
use octavo_fleet::hardware_profile::object::annotate;
use octavo_fleet::hardware_profile::{CREATED_BY_ANNOTATION, REASON_ANNOTATION};
use octavo_kube::client::connect_user;
use octavo_kube::hardware_profiles::{DryRun, Existing, Outcome, ProfileWriter};
use serde_json::Value;

use crate::settings::profiles::{CreateSettings, DryRunMode};
use crate::{CliError, Exit, Report};

/// Runs `octavo profiles create`.
pub(super) async fn create(settings: &CreateSettings) -> Result<Report, CliError> {
    let client = Client::connect(&settings.server).await?;
    let target = RequestPath::new("/api/v1/profile-draft");
    let draft: ProfileDraft = client.post(&target, &order(settings)).await?;
    let mut object = draft.profile;
    let mut notes = draft.notes;
    if let Some(reason) = &settings.reason {
        annotate(&mut object, REASON_ANNOTATION, reason);
    }
    let name = named(&object);
    let dry = match settings.dry_run {
        DryRunMode::Client => {
            notes.push(format!("{name} was not created; this is a preview"));
            return Ok(Report::with_notes(yaml(&object), &notes, Exit::Done));
        }
        DryRunMode::Server => DryRun::Server,
        DryRunMode::None => DryRun::No,
    };
    if text(&object, "namespace").is_empty() {
        return Err(CliError::NoNamespace);
    }
    let client = connect_user(&settings.server.cluster()).await;
    let writer = ProfileWriter::new(client.map_err(CliError::Connect)?);
    if let Some(user) = writer.user().await {
        annotate(&mut object, CREATED_BY_ANNOTATION, &user);
    }
    let existing = if settings.replace { Existing::Replace } else { Existing::Keep };
    let made = writer.apply(&object, dry, existing).await;
    let made = made.map_err(|error| CliError::Profile(Box::new(error)))?;
    let done = match (dry, made.outcome) {
        (_, Outcome::Unchanged) => "is up to date",
        (DryRun::Server, Outcome::Created) => "can be created: accepted by the API server",
        (DryRun::Server, Outcome::Replaced) => "can be replaced: accepted by the API server",
        (DryRun::No, Outcome::Created) => "created",
        (DryRun::No, Outcome::Replaced) => "replaced",
    };
    let lines = made.differences.iter();
    let changed: Vec<String> = lines.map(|line| format!("  {line}\n")).collect();
    let changed = changed.concat();
    let output = format!("profile {name} {done}\n{changed}");
    Ok(Report::with_notes(output, &notes, Exit::Done))
}

/// Builds the request as a document: a URL has no room for the names of many nodes.
fn order(settings: &CreateSettings) -> ProfileOrder {
    let counts = settings.counts.iter().cloned();
    ProfileOrder {
        nodes: settings.basis.from_nodes.clone(),
        type_name: settings.basis.type_name.clone(),
        resource: settings.resource.clone(),
        name: settings.name.clone(),
        namespace: settings.namespace.clone(),
        display_name: settings.display_name.clone(),
        counts: counts.collect(),
        tolerations: (!settings.tolerate.is_empty()).then(|| settings.tolerate.clone()),
        ..ProfileOrder::default()
    }
}

fn named(object: &Value) -> String {
    let (namespace, name) = (text(object, "namespace"), text(object, "name"));
    if namespace.is_empty() {
        return name.to_owned();
    }
    format!("{namespace}/{name}")
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    let metadata = object.get("metadata");
    let text = metadata.and_then(|metadata| metadata.get(field)?.as_str());
    text.unwrap_or_default()
}
