//! `octavo migrate`: configuration for Git that continues the configuration of another program.

use octavo_client::{Client, ClientError, RequestError, RequestPath, segment};
use octavo_files::layouts;
use octavo_generate::migration::{
    DEFAULT_NAMESPACE, Migration, NO_CHANGE, NodeMigration, OperatorObjects, PlannedChange, migrate,
};
use octavo_kube::gpu_operator;
use octavo_planner::layout::Layouts;
use serde_json::Value;

use super::text::{self, Cell, lines, printable};
use super::{CliError, Exit, Report, generate, input, yaml};
use crate::settings::migration::{MigrateCommand, OperatorSettings};
use crate::settings::{Colors, Headers};

const COLUMNS: [&str; 6] = ["NODE", "MIG CONFIG", "PLUGIN CONFIG", "RESOURCES", "POLICY", "LAYOUT"];

/// Place of objects that are not read from files.
const CLUSTER: &str = "the cluster";

/// Runs `octavo migrate`.
pub(super) async fn run(command: &MigrateCommand, colors: Colors) -> Result<Report, CliError> {
    let MigrateCommand::GpuOperator(settings) = command;
    let objects = read(settings).await?;
    let migration = migrate(&objects, &parse).map_err(|error| {
        let places: Vec<String> = settings.files.iter().map(input::place).collect();
        let place = if places.is_empty() { CLUSTER.to_owned() } else { places.join(", ") };
        CliError::document("objects", place, error)
    })?;
    let mut notes: Vec<String> = migration.notes.iter().cloned().collect();
    let is_planned = settings.asks_aggregator();
    let changes = if is_planned {
        plans(settings, &migration, &mut notes).await?
    } else {
        let managed = migration.nodes.iter().map(|node| node.managed.as_ref());
        managed.map(|managed| Some(managed?.comparison.to_string())).collect()
    };
    let files = files(&migration)?;
    let written = generate::write_files(&settings.output_dir, settings.check, files, &mut notes)?;
    let is_unchanged = migration.findings.is_empty()
        && changes.iter().flatten().all(|change| change == NO_CHANGE)
        && (written.is_empty() || !settings.check);
    let rows = migration.nodes.iter().zip(&changes);
    let rows = rows.map(|(node, change)| row(node, change.as_deref()));
    let last = if is_planned { "CHANGES IN PLAN" } else { "CHANGES BY LABELS" };
    let mut output = text::table(&[&COLUMNS, &[last]], rows, Headers::Shown, colors);
    if !migration.findings.is_empty() {
        let findings = migration.findings.iter().map(|one| printable(&one.to_string()));
        output += "\nneeds attention:\n";
        output += &lines(findings.map(|one| format!("  {one}")));
    }
    if !written.is_empty() {
        output = format!("{output}\n{written}");
    }
    let exit = if is_unchanged { Exit::Done } else { Exit::Changes };
    Ok(Report::with_notes(output, &notes, exit))
}

/// Reads the objects from files or from the API server.
async fn read(settings: &OperatorSettings) -> Result<OperatorObjects, CliError> {
    let mut found = Vec::new();
    for file in &settings.files {
        let (text, place) = (input::text(file, "objects")?, input::place(file));
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
            .map_err(|error| CliError::document("objects", place.clone(), error))?;
        found.extend(documents.into_iter().map(|document| (place.clone(), document)));
    }
    if settings.files.is_empty() {
        let cluster = gpu_operator::read(&settings.server.cluster(), DEFAULT_NAMESPACE).await;
        let documents = cluster.map_err(ClientError::Access)?.into_iter();
        found.extend(documents.map(|document| (CLUSTER.to_owned(), document)));
    }
    let mut objects = OperatorObjects::default();
    for (place, document) in found {
        objects.add(document).map_err(|error| CliError::document("objects", place, error))?;
    }
    Ok(objects)
}

/// Parses a configuration of mig-parted or of NVIDIA's device plugin.
fn parse(text: &str) -> Result<(Layouts, Vec<String>), Vec<String>> {
    let parsed = layouts::parse(text).map_err(|errors| {
        let errors = errors.iter().map(|one| format!("line {}: {one}", one.position()));
        errors.collect::<Vec<_>>()
    })?;
    let warnings = parsed.warnings.iter().map(|one| format!("line {}: {one}", one.position()));
    Ok((parsed.layouts, warnings.collect()))
}

/// Contents of the files; `None` for a file that is not needed.
fn files(migration: &Migration) -> Result<[(&'static str, Option<String>); 3], CliError> {
    let file = |comment: &str, text: String| {
        let source = printable(&migration.source);
        let header = format!("# {comment} Generated from ClusterPolicy {source}. Regenerate with:");
        (!text.is_empty())
            .then(|| format!("{header}\n#   octavo migrate gpu-operator --output-dir DIR\n{text}"))
    };
    let (all, dialect) = (&migration.layouts, migration.layouts.dialect);
    let layouts = match all.layouts.as_slice() {
        [] => String::new(),
        _ => layouts::write(all, dialect).map_err(CliError::Dialect)?,
    };
    let mut policies = String::new();
    for policy in &migration.policies {
        policies.push_str("---\n");
        policies.push_str(&yaml(policy)?);
    }
    Ok([
        ("layouts.yaml", file("Layouts: the value `layouts` of the Helm chart.", layouts)),
        ("policies.yaml", file("Policies that select the layouts of nodes.", policies)),
        ("values.yaml", file("Values of the Helm chart.", migration.values.clone())),
    ])
}

/// Changes that the aggregator plans, for each node with a layout.
async fn plans(
    settings: &OperatorSettings,
    migration: &Migration,
    notes: &mut Vec<String>,
) -> Result<Vec<Option<String>>, CliError> {
    let client = Client::connect(&settings.server).await?;
    let mut all = Vec::new();
    for node in &migration.nodes {
        let Some(managed) = &node.managed else {
            all.push(None);
            continue;
        };
        let path = format!("/api/v1/nodes/{}/plan", segment(&node.name));
        let target = RequestPath::new(&path).with([("layout", managed.layout.as_str())]);
        all.push(Some(match client.get::<PlannedChange>(&target).await {
            Ok(plan) => {
                notes.extend(plan.warnings.iter().map(|one| format!("{}: {one}", node.name)));
                plan.to_string()
            }
            Err(ClientError::Request { source, .. })
                if matches!(*source, RequestError::Problem(_)) =>
            {
                format!("unknown: {source}")
            }
            Err(error) => return Err(error.into()),
        }));
    }
    Ok(all)
}

fn row(node: &NodeMigration, change: Option<&str>) -> Vec<Cell> {
    let managed = node.managed.as_ref();
    let cells = [
        Some(node.name.as_str()),
        node.mig_config.as_deref(),
        node.plugin_config.as_deref(),
        Some(node.resources.as_str()).filter(|text| !text.is_empty()),
        managed.map(|managed| managed.policy.as_str()),
        managed.map(|managed| managed.layout.as_str()),
        change,
    ];
    cells.into_iter().map(Cell::optional).collect()
}
