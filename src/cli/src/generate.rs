//! `octavo generate`: manifests for Git or the cluster, from the nodes of the fleet.

mod apply;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use octavo_client::{Client, RequestPath, ServerSettings};
use octavo_files::layouts::write;
use octavo_files::plugin_config::text as plugin_text;
use octavo_fleet::api::ClusterNodeList;
use octavo_fleet::cluster::ClusterNode;
use octavo_generate::access::{AccessRules, access};
use octavo_generate::argocd::argo_cd;
use octavo_generate::gpu_operator::{gpu_operator, partitioning, plugin_config};
use octavo_generate::karpenter::karpenter;
use octavo_generate::kueue::{KueueOptions, kueue};
use octavo_generate::manifest::{Generated, ManifestFile};
use octavo_generate::openshift::openshift;
use octavo_generate::quotas::{QuotaOptions, quotas};
use octavo_generate::{MachineSet, MachineSetList, Note, Pools};
use octavo_planner::layout::{Dialect, Layouts};
use octavo_toolkit::files::{self, ReadError};
use strum::Display;

use super::fleet::stale_notes;
use super::layout_source::LayoutSource;
use super::text::{lines, printable};
use super::{CliError, Exit, Report, checkpoint, input, yaml};
use crate::settings::Input;
use crate::settings::generate::{
    FileSettings, FleetSettings, GenerateCommand, GpuOperatorSettings, QueueSettings,
};

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

/// Nodes of the fleet.
struct FleetNodes {
    pools: Pools,
    /// Name of the cluster.
    cluster: Option<String>,
    notes: Vec<String>,
}

/// Runs `octavo generate`.
pub(super) async fn generate(command: &GenerateCommand) -> Result<Report, CliError> {
    let (mut found, mut warnings) = (None, String::new());
    let generated = match command {
        GenerateCommand::Kueue(settings) => {
            let QueueSettings { namespaces, priorities, fleet } = &settings.queues;
            let (api, preferred) = (settings.kueue_api, settings.preferred.as_slice());
            let options = KueueOptions { api, namespaces, priorities, preferred };
            kueue(&found.insert(fleet_nodes(&fleet.types, &fleet.server).await?).pools, &options)
        }
        GenerateCommand::Quotas(QueueSettings { namespaces, priorities, fleet }) => {
            let options = QuotaOptions { namespaces, priorities };
            Ok(quotas(
                &found.insert(fleet_nodes(&fleet.types, &fleet.server).await?).pools,
                &options,
            ))
        }
        GenerateCommand::Karpenter(settings) => {
            let FleetSettings { types, server, .. } = &settings.fleet;
            let nodes = found.insert(fleet_nodes(types, server).await?);
            karpenter(&nodes.pools, &settings.node_class)
        }
        GenerateCommand::OpenShift(settings) => {
            let existing = machine_sets(&settings.machine_sets)?;
            let FleetSettings { types, server, .. } = &settings.fleet;
            openshift(&found.insert(fleet_nodes(types, server).await?).pools, &existing)
        }
        GenerateCommand::Access(settings) => {
            let rules = access_rules(settings.file.input())?;
            // The types that offer a resource decide, so that all are needed.
            let nodes = found.insert(fleet_nodes(&[], &settings.server).await?);
            Ok(access(&nodes.pools, &rules, &settings.namespace))
        }
        GenerateCommand::GpuOperator(settings) => Ok(operator(settings, &mut warnings)?),
        GenerateCommand::ArgoCd(settings) => Ok(argo_cd(&settings.options())),
    };
    let generated = generated.map_err(CliError::Generate)?;
    let header = header(command, found.as_ref(), &generated.notes);
    let mut notes = found.map(|fleet| fleet.notes).unwrap_or_default();
    notes.extend(generated.notes.iter().map(ToString::to_string));
    let (settings, files) = (command.files(), &generated.files);
    let report = if settings.apply {
        apply::apply(&command.cluster(), settings.force_conflicts, files, &notes).await?
    } else {
        deliver(settings, &header, files, notes)?
    };
    Ok(report.after(warnings))
}

async fn fleet_nodes(types: &[String], server: &ServerSettings) -> Result<FleetNodes, CliError> {
    let client = Client::connect(server).await?;
    // Other filters could select some nodes of a flavor, whose labels would select all of them.
    let types = types.iter().map(|name| ("type", name.as_str()));
    let parameters: Vec<(&str, &str)> = types.chain([("sort", "name")]).collect();
    let list = client.nodes(&parameters, None).await?;
    if let Some(progress) = list.starting {
        return Err(CliError::FleetIncomplete(progress));
    }
    let cluster = cluster_nodes(&client).await?;
    let pools = Pools::new(&list.items, &cluster).map_err(CliError::Generate)?;
    let notes = stale_notes(&list.items);
    Ok(FleetNodes { pools, cluster: list.cluster, notes })
}

/// Nodes of the cluster with their labels and resources.
pub(super) async fn cluster_nodes(client: &Client) -> Result<Vec<ClusterNode>, CliError> {
    let list: ClusterNodeList = client.get(&RequestPath::new("/api/v1/cluster-nodes")).await?;
    match list.notice {
        Some(notice) => Err(CliError::ClusterOutdated(notice)),
        None => Ok(list.items),
    }
}

/// Reads machine sets of the cluster.
fn machine_sets(input: &Input) -> Result<Vec<MachineSet>, CliError> {
    let list: MachineSetList = input::yaml(input, "machine sets", "machine sets")?;
    Ok(list.items)
}

/// Reads rules of access.
pub(super) fn access_rules(input: &Input) -> Result<AccessRules, CliError> {
    let rules: AccessRules = input::yaml(input, "access rules", "access rules")?;
    let invalid = |source| CliError::document("access rules", input::place(input), source);
    rules.checked().map_err(invalid)
}

/// Configuration of NVIDIA's operator from the layouts of a file.
fn operator(settings: &GpuOperatorSettings, warnings: &mut String) -> Result<Generated, CliError> {
    let source = LayoutSource::read(settings.file.input())?;
    warnings.extend(source.warnings());
    let (mut plugin, mut layouts, mut omitted) = (BTreeMap::new(), Vec::new(), Vec::new());
    for layout in &source.layouts.layouts {
        match plugin_config(layout) {
            Ok(config) => {
                plugin.insert(layout.name.clone(), plugin_text(&config));
            }
            Err(gap) => omitted.push(format!("layout {:?}: {gap}", layout.name)),
        }
        let one = Layouts { dialect: Dialect::MigParted, layouts: vec![partitioning(layout)] };
        match write(&one, Dialect::MigParted) {
            Ok(_) => layouts.extend(one.layouts),
            Err(error) => omitted.push(error.to_string()),
        }
    }
    let mig = (!layouts.is_empty())
        .then(|| write(&Layouts { dialect: Dialect::MigParted, layouts }, Dialect::MigParted));
    let mig = mig.transpose().map_err(CliError::Dialect)?;
    let notes = omitted.into_iter().map(|why| Note::LayoutOmitted { why });
    Ok(gpu_operator(&settings.namespace, mig, plugin, notes.collect()))
}

/// Comment at the beginning of each file. It contains only what determines the manifests, so that unchanged nodes give
/// an unchanged file.
fn header(command: &GenerateCommand, fleet: Option<&FleetNodes>, notes: &[Note]) -> String {
    let source = fleet.map(|fleet| {
        let cluster = fleet.cluster.as_deref().map(|name| format!(" of cluster {name}"));
        format!(" from the nodes{}", cluster.unwrap_or_default())
    });
    let mut comments = vec![
        format!("Generated{}. Regenerate with:", source.unwrap_or_default()),
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
    settings: &FileSettings,
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
    let output = write_files(directory, settings.check, texts, &mut notes)?;
    let exit = if settings.check && !output.is_empty() { Exit::Changes } else { Exit::Done };
    Ok(Report::with_notes(output, &notes, exit))
}

/// Writes files to a directory, or compares them with it. A file without a text must not exist. Returns one line per difference; files
/// that the user must delete are noted.
pub(super) fn write_files(
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
