//! `octavo generate --apply`: applies the manifests to the cluster.

use std::error::Error;

use octavo_generate::manifest::ManifestFile;
use octavo_kube::apply::{ApplyError, ManifestApplier};
use octavo_kube::client::{ClusterSelection, connect_user};
use octavo_kube::hardware_profiles::Outcome;

use crate::text::{lines, printable};
use crate::{CliError, Exit, Report, output};

/// Field manager of the applied objects.
const FIELD_MANAGER: &str = "octavo-generate";

/// Applies the manifests one after the other, and prints each result. A refused object does not prevent the others. Without a response,
/// the rest is not tried.
pub(super) async fn apply(
    cluster: &ClusterSelection,
    is_forced: bool,
    files: &[ManifestFile],
    notes: &[String],
) -> Result<Report, CliError> {
    let client = connect_user(cluster).await.map_err(CliError::ApplyConnect)?;
    let mut applier = ManifestApplier::new(client, FIELD_MANAGER, is_forced);
    let mut errors = String::new();
    for manifest in files.iter().flat_map(|file| &file.manifests) {
        let manifest =
            serde_json::to_value(manifest).map_err(|error| CliError::Serialize(Box::new(error)))?;
        match applier.apply(&manifest).await {
            Ok((object, outcome)) => {
                let done = match outcome {
                    Outcome::Created => "created",
                    Outcome::Replaced => "configured",
                    Outcome::Unchanged => "unchanged",
                };
                let _ = output::out(&format!("{} {done}\n", printable(&object)))?;
            }
            Err(error) => {
                errors.push_str(&explained(&error));
                if error.is_unreachable() {
                    break;
                }
            }
        }
    }
    let exit = if errors.is_empty() { Exit::Done } else { Exit::Failed };
    Ok(Report::with_notes(String::new(), notes, exit).after(errors))
}

/// The error with its cause and advice. The cause of the cause has the same text.
fn explained(error: &ApplyError) -> String {
    let cause = error.source().map(|cause| format!("  because: {}", printable(&cause.to_string())));
    let advice = advice(error).map(|advice| format!("  try: {advice}"));
    lines(
        [Some(format!("error: {}", printable(&error.to_string()))), cause, advice]
            .into_iter()
            .flatten(),
    )
}

fn advice(error: &ApplyError) -> Option<&'static str> {
    match error {
        ApplyError::NoKind { .. } => Some("install the program that defines the kind"),
        ApplyError::Conflict { .. } => Some(
            "change the fields with the client that manages them, or take them over with \
             --force-conflicts",
        ),
        ApplyError::Unnamed | ApplyError::Refused { .. } => None,
    }
}
