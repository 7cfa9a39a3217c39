//! `octavo support-bundle`: status, diagnosis, logs and versions of a node or of the fleet in one archive.
//!
//! ```text
//! fleet.rs        files of the fleet: from the aggregator and the API server
//! support-bundle  (a crate) the archive, without secrets and, on request, with replaced names
//! ```
//!
//! Secrets, environment variables and specifications of pods are never requested. Texts may contain a secret
//! nevertheless, such as the arguments of a process, so every text is searched for them.

mod fleet;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use octavo_engine::durable::{self, DurableError};
use octavo_engine::store::history;
use octavo_node::doctor::Diagnosis;
use octavo_support_bundle::Contents;
use octavo_toolkit::error::chain;

use super::doctor::NodeDiagnosis;
use super::output::note;
use super::text::{count_noun, lines, printable};
use super::watch::StopSignal;
use super::{CliError, Exit, Report, version};
use crate::settings::support_bundle::SupportBundleSettings;

/// Mode of the archive: readable by its owner only.
const MODE: u32 = 0o600;

/// Collects the files and writes the archive. `here` diagnoses this node.
pub(super) async fn collect(
    settings: &SupportBundleSettings,
    here: &impl AsyncFn() -> Result<NodeDiagnosis, CliError>,
) -> Result<Report, CliError> {
    // From here on, these signals do not end the process, so that the archive is written completely or not at all.
    let mut stop = StopSignal::new().map_err(CliError::Runtime)?;
    let name = format!("octavo-support-{}", Timestamp::now().strftime("%Y%m%d-%H%M%S"));
    let file = settings.file.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
    let collected = async {
        if settings.here {
            this_node(settings, here).await
        } else {
            fleet::contents(settings).await
        }
    };
    let contents = tokio::select! {
        contents = collected => contents?,
        () = stop.received() => return Err(CliError::Interrupted { file }),
    };
    let missing = contents.missing();
    let (archive, files) = contents.pack(settings.redact, &name).map_err(|source| {
        let path = file.clone();
        CliError::Write(DurableError { action: "create the archive", path, source })
    })?;
    write(&archive, &file)?;
    Ok(report(&files, missing, &file))
}

async fn this_node(
    settings: &SupportBundleSettings,
    here: &impl AsyncFn() -> Result<NodeDiagnosis, CliError>,
) -> Result<Contents, CliError> {
    let mut contents = Contents::new()?;
    note("Reading this node");
    let NodeDiagnosis { inventory, findings } = here().await?;
    contents.add_document("inventory.json", &*inventory)?;
    contents.add_document("doctor.json", &Diagnosis::new(findings))?;
    match history(&settings.sources.state_dir) {
        Ok(attempts) => contents.add_document("history.json", &attempts)?,
        Err(error) => contents.add_error("history.json", &chain(&error)),
    }
    contents.add_document("versions.json", &version::client_only())?;
    Ok(contents)
}

fn write(archive: &[u8], file: &Path) -> Result<(), CliError> {
    let mut draft = file.as_os_str().to_owned();
    draft.push(".part");
    let draft = PathBuf::from(draft);
    durable::replace(file, &draft, archive, MODE).map_err(|error| {
        // The first error is the one to report.
        let _ = durable::remove(&draft);
        CliError::Write(error)
    })
}

/// Lists the files of the archive.
fn report(files: &[(String, usize)], missing: usize, file: &Path) -> Report {
    let rows = files.iter().map(|(path, bytes)| format!("  {}  {}", size(*bytes), printable(path)));
    let head =
        format!("Wrote {} with {}:", file.display(), count_noun(files.len(), "file", "files"));
    let output = lines([head].into_iter().chain(rows));
    let mut notes: Vec<String> = Vec::new();
    if missing > 0 {
        let missing = count_noun(missing, "part", "parts");
        notes.push(format!("{missing} could not be read; errors.txt has the reasons"));
    }
    notes.push("check the content before you share the archive".to_owned());
    Report::with_notes(output, &notes, Exit::Done)
}

fn size(bytes: usize) -> String {
    format!("{:>6} KiB", bytes.div_ceil(1024))
}
