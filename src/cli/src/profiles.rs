//! `octavo profiles`: hardware profiles with the aggregator's findings, and creation of a new one with the user's
//! credentials.
//!
//! ```text
//! table.rs    profiles as rows, and one in detail
//! watch.rs    rows as they change
//! create.rs   a draft from the aggregator, created with the user's own credentials
//! ```

mod create;
mod table;
mod watch;

use octavo_documents::hardware_profiles::document::{ProfileDetail, ProfileList, ProfileRow};

use super::client::{Client, RequestPath, segment};
use super::text::{lines, printable};
use super::{CliError, Exit, Report, json, yaml};
use crate::settings::fleet::FleetFormat;
use crate::settings::profiles::{CheckSettings, ProfileFilter, ProfilesCommand, ShowSettings};
use crate::settings::{Colors, OutputMode};

/// Runs `octavo profiles`.
pub(super) async fn run(
    command: &ProfilesCommand,
    colors: Colors,
    screen: OutputMode,
) -> Result<Report, CliError> {
    match command {
        ProfilesCommand::List(settings) if settings.watch => {
            watch::watch(&settings.filter, colors, screen).await
        }
        ProfilesCommand::List(settings) => list(&settings.filter, colors).await,
        ProfilesCommand::Show(settings) => show(settings, colors).await,
        ProfilesCommand::Check(settings) => check(settings, colors).await,
        ProfilesCommand::Create(settings) => create::create(settings).await,
    }
}

async fn list(settings: &ProfileFilter, colors: Colors) -> Result<Report, CliError> {
    let list = read(settings).await?;
    let printed = settings.output;
    let output = match printed.format {
        FleetFormat::Json => json(&list)?,
        FleetFormat::Yaml => yaml(&list)?,
        FleetFormat::Name => names(&list.items),
        FleetFormat::Table | FleetFormat::Wide => table::list(&list.items, printed, colors),
    };
    let mut notes: Vec<String> = list.notice.iter().cloned().collect();
    let troubled = list.items.iter().filter(|row| is_troubled(row)).count();
    match troubled {
        0 => {}
        1 => notes
            .push("one profile has something wrong with it: `octavo profiles check`".to_owned()),
        _ => notes.push(format!(
            "{troubled} profiles have something wrong with them: `octavo profiles check`"
        )),
    }
    if list.items.is_empty() {
        notes.push(nothing(&list).to_owned());
    }
    Ok(report(output, &notes, Exit::Done))
}

async fn show(settings: &ShowSettings, colors: Colors) -> Result<Report, CliError> {
    let client = Client::new(&settings.server)?;
    let target = target(settings.namespace.as_deref(), &settings.name);
    let detail: ProfileDetail = client.get(&target).await?;
    let printed = settings.output;
    let output = match printed.format {
        FleetFormat::Json => json(&detail)?,
        FleetFormat::Yaml => yaml(&detail)?,
        FleetFormat::Name => lines([printable(&detail.row.name)]),
        FleetFormat::Table | FleetFormat::Wide => table::whole(&detail, colors),
    };
    let notes: Vec<String> = detail.notice.into_iter().collect();
    Ok(report(output, &notes, Exit::Done))
}

/// Returns the path of a profile. The name may include its namespace, as `octavo match` prints it:
/// `opendatahub/large-gpu`.
pub(super) fn target(namespace: Option<&str>, name: &str) -> RequestPath {
    let (namespace, name) = match name.split_once('/') {
        Some((of, name)) if namespace.is_none_or(|said| said == of) => (Some(of), name),
        Some(_) | None => (namespace, name),
    };
    let name = segment(name);
    RequestPath::new(&match namespace {
        Some(namespace) => format!("/api/v1/profiles/{}/{name}", segment(namespace)),
        None => format!("/api/v1/profiles/{name}"),
    })
}

async fn check(settings: &CheckSettings, colors: Colors) -> Result<Report, CliError> {
    let mut list = read(&settings.filter).await?;
    let names = &settings.names;
    let is_wanted = |row: &ProfileRow| names.iter().any(|name| is_named(row, name));
    list.items.retain(|row| names.is_empty() || is_wanted(row));
    let mut notes: Vec<String> = list.notice.iter().cloned().collect();
    let missing: Vec<&String> = names
        .iter()
        .filter(|name| !list.items.iter().any(|row| is_named(row, name)))
        .collect();
    for name in &missing {
        notes.push(format!("there is no profile {}", printable(name)));
    }
    let is_missing = !missing.is_empty();
    let checked = list.items.len();
    let is_troubled = list.items.iter().any(is_troubled);
    list.items.retain(|row| !row.findings.is_empty());
    let output = match settings.filter.output.format {
        FleetFormat::Json => json(&list)?,
        FleetFormat::Yaml => yaml(&list)?,
        FleetFormat::Name => self::names(&list.items),
        FleetFormat::Table | FleetFormat::Wide => table::findings(&list.items, colors),
    };
    if checked == 0 {
        notes.push(nothing(&list).to_owned());
    } else if !is_troubled {
        let word = if checked == 1 { "profile" } else { "profiles" };
        notes.push(format!("nothing is wrong with {checked} {word}"));
    }
    let exit = match (is_missing, is_troubled) {
        (true, _) => Exit::Failed,
        (false, true) => Exit::Changes,
        (false, false) => Exit::Done,
    };
    Ok(report(output, &notes, exit))
}

async fn read(settings: &ProfileFilter) -> Result<ProfileList, CliError> {
    read_by(&Client::new(&settings.server)?, settings).await
}

async fn read_by(client: &Client, settings: &ProfileFilter) -> Result<ProfileList, CliError> {
    let target = RequestPath::new("/api/v1/profiles").with(settings.parameters());
    Ok(client.get(&target).await?)
}

/// Returns whether a name, with or without a namespace, refers to this profile.
fn is_named(row: &ProfileRow, name: &str) -> bool {
    let (namespace, name) = name
        .split_once('/')
        .map_or((None, name), |(namespace, name)| (Some(namespace), name));
    row.name == name && namespace.is_none_or(|of| row.namespace == of)
}

/// Returns whether the profile has findings other than notes.
fn is_troubled(row: &ProfileRow) -> bool {
    row.findings.iter().any(|one| one.gravity != "note")
}

fn nothing(list: &ProfileList) -> &'static str {
    if list.source == "nowhere" {
        "the aggregator knows no profiles: start it with --follow-cluster, or with a file of them in --profiles"
    } else {
        "no profile matches"
    }
}

fn names(rows: &[ProfileRow]) -> String {
    lines(rows.iter().map(|row| printable(&row.name)))
}

fn report(output: String, notes: &[String], exit: Exit) -> Report {
    let notes = notes
        .iter()
        .map(|note| format!("note: {}", printable(note)));
    Report {
        output,
        notes: lines(notes),
        exit,
    }
}
