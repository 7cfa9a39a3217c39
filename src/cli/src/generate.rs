//! `octavo generate`: manifests for Git, from the nodes of the fleet.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use octavo_client::{Client, RequestPath};
use octavo_fleet::api::{ClusterNodeList, NodeList};
use octavo_generate::kueue::{KueueOptions, kueue};
use octavo_generate::manifest::ManifestFile;
use octavo_generate::quotas::{QuotaOptions, quotas};
use octavo_generate::{Note, Pools};
use octavo_toolkit::files::{self, ReadError};
use strum::Display;

use super::fleet::{self, stale_notes};
use super::text::{lines, printable};
use super::{CliError, Exit, Report, checkpoint, yaml};
use crate::settings::generate::{GenerateCommand, GenerateSettings};

/// Maximum size of a file to compare with, which is far more than any fleet needs.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Difference between a generated file and the existing one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
enum Change {
    #[strum(to_string = "written")]
    Written,
    #[strum(to_string = "differs")]
    Differs,
    #[strum(to_string = "is missing")]
    Missing,
    #[strum(to_string = "is no longer generated")]
    Obsolete,
}

/// Runs `octavo generate`.
pub(super) async fn generate(command: &GenerateCommand) -> Result<Report, CliError> {
    let settings = command.common();
    let client = Client::connect(&settings.server).await?;
    // Other filters could select some nodes of a flavor, whose labels would select all of them.
    let types = settings.types.iter().map(|name| ("type", name.as_str()));
    let parameters: Vec<(&str, &str)> = types.chain([("sort", "name")]).collect();
    let list = fleet::pages(&client, &parameters, None).await?;
    if let Some(progress) = list.starting {
        return Err(CliError::FleetIncomplete(progress));
    }
    let cluster: ClusterNodeList = client.get(&RequestPath::new("/api/v1/cluster-nodes")).await?;
    if let Some(notice) = cluster.notice {
        return Err(CliError::ClusterOutdated(notice));
    }
    let pools = Pools::new(&list.items, &cluster.items).map_err(CliError::Generate)?;
    let (namespaces, priorities) = (settings.namespaces.as_slice(), settings.priorities.as_slice());
    let generated = match command {
        GenerateCommand::Kueue(settings) => {
            let options = KueueOptions { api: settings.kueue_api, namespaces, priorities };
            kueue(&pools, &options).map_err(CliError::Generate)?
        }
        GenerateCommand::Quotas(_) => quotas(&pools, &QuotaOptions { namespaces, priorities }),
    };
    let mut notes = stale_notes(&list.items);
    notes.extend(generated.notes.iter().map(ToString::to_string));
    let header = header(command, &list, &generated.notes);
    deliver(settings, &header, &generated.files, notes)
}

/// Comment at the beginning of each file. It contains only what determines the manifests, so that unchanged nodes give
/// an unchanged file.
fn header(command: &GenerateCommand, list: &NodeList, notes: &[Note]) -> String {
    let cluster = list.cluster.as_deref().map(|name| format!(" of cluster {name}"));
    let mut comments = vec![
        format!("Generated from the nodes{}. Regenerate with:", cluster.unwrap_or_default()),
        format!("  {}", command.command_line()),
    ];
    let permanent = notes.iter().filter(|note| note.is_permanent());
    comments.extend(permanent.map(|note| format!("Note: {note}")));
    lines(comments.iter().map(|comment| format!("# {}", printable(comment))))
}

/// Manifests of a file; `None` without any.
fn documents(file: &ManifestFile) -> Result<Option<String>, CliError> {
    let manifests: Result<Vec<String>, CliError> = file.manifests.iter().map(yaml).collect();
    let manifests = manifests?.into_iter().map(|text| format!("---\n{text}"));
    Ok(Some(manifests.collect::<String>()).filter(|text| !text.is_empty()))
}

/// Prints, writes or compares the files.
fn deliver(
    settings: &GenerateSettings,
    header: &str,
    files: &[ManifestFile],
    mut notes: Vec<String>,
) -> Result<Report, CliError> {
    let Some(directory) = &settings.output_dir else {
        let mut output = header.to_owned();
        for file in files {
            output.extend(documents(file)?);
        }
        return Ok(Report::with_notes(output, &notes, Exit::Done));
    };
    let mut texts = Vec::new();
    for file in files {
        texts.push((file.name, documents(file)?.map(|text| format!("{header}{text}"))));
    }
    let output = write(directory, settings.check, texts, &mut notes)?;
    let exit = if settings.check && !output.is_empty() { Exit::Changes } else { Exit::Done };
    Ok(Report::with_notes(output, &notes, exit))
}

/// Writes files to a directory, or compares them with it. A file without a text must not exist. Returns one line per difference; files
/// that the user must delete are noted.
pub(super) fn write(
    directory: &Path,
    check: bool,
    files: impl IntoIterator<Item = (&'static str, Option<String>)>,
    notes: &mut Vec<String>,
) -> Result<String, CliError> {
    let mut output = String::new();
    if !check {
        fs::create_dir_all(directory)
            .map_err(|source| CliError::Directory { path: directory.to_owned(), source })?;
    }
    for (name, text) in files {
        let path = directory.join(name);
        let place = printable(&path.display().to_string());
        let change = match (text, existing(&path)?) {
            (text, existing) if text == existing => continue,
            (None, _) => Change::Obsolete,
            (Some(_), None) if check => Change::Missing,
            (Some(_), Some(_)) if check => Change::Differs,
            (Some(text), _) => {
                checkpoint::write_file(&path, &text)?;
                Change::Written
            }
        };
        if change == Change::Obsolete && !check {
            notes.push(format!("{place} {change}; delete it"));
        } else {
            // Writing to a string cannot fail.
            let _ = writeln!(output, "{place} {change}");
        }
    }
    Ok(output)
}

/// Text of a file; `None` if it does not exist.
fn existing(path: &Path) -> Result<Option<String>, CliError> {
    match files::text(path, MAX_FILE_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(ReadError::Missing(_)) => Ok(None),
        Err(error) => Err(CliError::Read {
            what: "a generated file",
            place: path.display().to_string(),
            source: error.into(),
        }),
    }
}
