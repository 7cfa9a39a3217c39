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

use octavo_client::{Client, RequestPath, segment};
use octavo_fleet::hardware_profile::FindingSeverity;
use octavo_fleet::hardware_profile::document::{
    ProfileDetail, ProfileList, ProfileRow, ProfileSource,
};

use super::fleet::{self, absent_types};
use super::output::render;
use super::text::{count_noun, printable};
use super::{CliError, Exit, Report};
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
    let client = Client::connect(&settings.server).await?;
    let list = read_by(&client, settings).await?;
    let printed = settings.output;
    let text = || table::list(&list.items, printed, colors);
    let output = render(printed.format, &list, names(&list.items), text)?;
    let mut notes: Vec<String> = list.notice.iter().cloned().collect();
    let troubled = list.items.iter().filter(|row| is_troubled(row)).count();
    match troubled {
        0 => {}
        1 => notes.push("1 profile has problems; see `octavo profiles check`".to_owned()),
        _ => notes.push(format!("{troubled} profiles have problems; see `octavo profiles check`")),
    }
    let mut unknown = Ok(Vec::new());
    if list.items.is_empty() {
        notes.push(nothing(&list).to_owned());
        // A profile can be for a type that the fleet does not have.
        unknown = absent_types::unknown(&client, settings.type_name.as_slice(), []).await;
    }
    Ok(fleet::report(output, notes, unknown))
}

async fn show(settings: &ShowSettings, colors: Colors) -> Result<Report, CliError> {
    let client = Client::connect(&settings.server).await?;
    let target = target(settings.namespace.as_deref(), &settings.name);
    let detail: ProfileDetail = client.get(&target).await?;
    let text = || table::whole(&detail, colors);
    let output = render(settings.output.format, &detail, [detail.row.name.as_str()], text)?;
    Ok(Report::with_notes(output, detail.notice.as_slice(), Exit::Done))
}

/// Returns the path of a profile. The name may include its namespace, as `octavo match` prints it:
/// `opendatahub/large-gpu`.
pub(super) fn target(namespace: Option<&str>, name: &str) -> RequestPath {
    let (namespace, name) = match name.split_once('/') {
        Some((of, name)) if namespace.is_none_or(|given| given == of) => (Some(of), name),
        Some(_) | None => (namespace, name),
    };
    let name = segment(name);
    RequestPath::new(&match namespace {
        Some(namespace) => format!("/api/v1/profiles/{}/{name}", segment(namespace)),
        None => format!("/api/v1/profiles/{name}"),
    })
}

async fn check(settings: &CheckSettings, colors: Colors) -> Result<Report, CliError> {
    let client = Client::connect(&settings.filter.server).await?;
    let mut list = read_by(&client, &settings.filter).await?;
    let names = &settings.names;
    let is_wanted = |row: &ProfileRow| names.iter().any(|name| is_named(row, name));
    list.items.retain(|row| names.is_empty() || is_wanted(row));
    let mut notes: Vec<String> = list.notice.iter().cloned().collect();
    let missing: Vec<&String> =
        names.iter().filter(|name| !list.items.iter().any(|row| is_named(row, name))).collect();
    for name in &missing {
        notes.push(format!("profile {} does not exist", printable(name)));
    }
    let is_missing = !missing.is_empty();
    let checked = list.items.len();
    let is_troubled = list.items.iter().any(is_troubled);
    list.items.retain(|row| !row.findings.is_empty());
    let text = || table::findings(&list.items, colors);
    let output = render(settings.filter.output.format, &list, self::names(&list.items), text)?;
    if checked == 0 {
        notes.push(nothing(&list).to_owned());
    } else if !is_troubled {
        let checked = count_noun(checked, "profile", "profiles");
        notes.push(format!("no problems in {checked}"));
    }
    let exit = match (is_missing, is_troubled) {
        (true, _) => Exit::Failed,
        (false, true) => Exit::Changes,
        (false, false) => Exit::Done,
    };
    Ok(Report::with_notes(output, &notes, exit))
}

async fn read_by(client: &Client, settings: &ProfileFilter) -> Result<ProfileList, CliError> {
    let target = RequestPath::new("/api/v1/profiles").with(settings.parameters());
    Ok(client.get(&target).await?)
}

/// Returns whether a name, with or without a namespace, refers to this profile.
fn is_named(row: &ProfileRow, name: &str) -> bool {
    let (namespace, name) =
        name.split_once('/').map_or((None, name), |(namespace, name)| (Some(namespace), name));
    row.name == name && namespace.is_none_or(|of| row.namespace == of)
}

/// Returns whether the profile has findings other than notes.
fn is_troubled(row: &ProfileRow) -> bool {
    row.findings.iter().any(|one| one.severity != FindingSeverity::Note)
}

fn nothing(list: &ProfileList) -> &'static str {
    if list.source == ProfileSource::Nowhere {
        "the aggregator has no profiles: start it with --follow-cluster, or specify a file with \
         --profiles"
    } else {
        "no matching profiles"
    }
}

fn names(rows: &[ProfileRow]) -> impl Iterator<Item = &str> {
    rows.iter().map(|row| row.name.as_str())
}
