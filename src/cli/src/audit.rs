//! `octavo audit`: exports the audit trail of the aggregator, and verifies an export without it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use octavo_client::{Client, RequestPath};
use octavo_ledger::audit::{ChainSummary, ChainVerifier};

use super::output;
use super::{CliError, Report, input, printable};
use crate::settings::Input;
use crate::settings::audit::{AuditCommand, AuditExportSettings, AuditVerifySettings};

/// Maximum length of a line in bytes. An entry has at most two states of an object, which are shorter.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Runs `octavo audit`.
pub(super) async fn run(command: &AuditCommand) -> Result<Report, CliError> {
    match command {
        AuditCommand::Export(settings) => export(settings).await,
        AuditCommand::Verify(settings) => verify(settings),
    }
}

/// Prints the entries as they arrive.
async fn export(settings: &AuditExportSettings) -> Result<Report, CliError> {
    let client = Client::connect(&settings.server).await?;
    let parameters = settings.parameters();
    let target = RequestPath::new("/api/v1/audit")
        .with(parameters.iter().map(|(name, value)| (*name, value.as_str())));
    output::download(&client, &target, "application/x-ndjson").await
}

fn verify(settings: &AuditVerifySettings) -> Result<Report, CliError> {
    let file = settings.file.input();
    let place = input::place(file);
    let failed = |source: io::Error| CliError::Read {
        what: "an audit export",
        place: place.clone(),
        source,
    };
    let mut reader: Box<dyn BufRead> = match file {
        Input::Stdin => Box::new(io::stdin().lock()),
        Input::File(path) => Box::new(BufReader::new(File::open(path).map_err(failed)?)),
    };
    let mut verifier = ChainVerifier::new(settings.hash.clone());
    let mut number = 0_u64;
    while let Some(line) = next_line(&mut reader).map_err(failed)? {
        number = number.saturating_add(1);
        if let Err(error) = verifier.verify_line(&line) {
            return Ok(Report::failed(format!(
                "{place}:{number}: error: {}\n",
                printable(&error.to_string())
            )));
        }
    }
    Ok(match verifier.finish() {
        Ok(summary) => Report { output: text(&summary, &place), ..Report::default() },
        Err(error) => {
            Report::failed(format!("{place}: error: {}\n", printable(&error.to_string())))
        }
    })
}

/// Reads the next line, without line feed. A line that is too long is no entry, and is truncated.
fn next_line(reader: &mut dyn BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    if reader.take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    line.pop_if(|last| *last == b'\n');
    // The replacement of invalid bytes differs from what was hashed.
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

fn text(summary: &ChainSummary, place: &str) -> String {
    let ChainSummary { entries, first, last, hash } = summary;
    format!(
        "{place}: {entries} entries, no errors\nfirst: entry {} at {}\nlast: entry {} at {}\nlast hash: {hash}\n",
        first.0, first.1, last.0, last.1
    )
}
