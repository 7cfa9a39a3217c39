//! Trace files: requests, or usage that the ledger exports.

use std::time::Duration;

use octavo_model::text::group_thousands;
use serde::Deserialize;
use thiserror::Error;

use super::ledger_rows::{COLUMNS, LedgerRow, LedgerRows};
use super::trace::Job;

/// Maximum number of rows of a trace file.
const MAX_ROWS: usize = 1_000_000;
/// Longest time in a trace file, in seconds: 100 years.
const MAX_SECONDS: f64 = 3_155_760_000.0;

/// Requests of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// The requests in the order of their arrival. The first one arrives at time 0.
    pub jobs: Vec<Job>,
    /// Usage that is not an allocation of a MIG instance.
    pub omitted: OmittedRows,
}

/// Numbers of rows of the ledger that are not part of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OmittedRows {
    /// Rows without a MIG partition: whole and time-sliced GPUs, and usage whose partition is not known.
    pub without_partition: usize,
    /// Allocations of compute instances that share a MIG instance.
    pub compute_instances: usize,
}

/// Reason why a trace file cannot be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// It is no CSV with the columns of a trace.
    #[error(
        "it is not a CSV file with the columns arrival, duration and profile, or with those of the ledger's export"
    )]
    Csv(#[from] csv::Error),
    /// It has other columns of the ledger's export, but not this one.
    #[error("the column {0} of the ledger's export is missing")]
    MissingColumn(&'static str),
    /// A value is invalid.
    #[error("line {line}: {reason}")]
    Value {
        /// Line in the file, from 1.
        line: u64,
        /// Explanation.
        reason: String,
    },
    /// It has no requests.
    #[error("it has no requests")]
    Empty,
    /// It has usage, but not of MIG instances.
    #[error("it has no allocations of MIG instances")]
    NoAllocations,
    /// It has too many requests.
    #[error("it has more than {} rows; select fewer days", group_thousands(&MAX_ROWS.to_string()))]
    TooLong,
}

/// Row of a file with requests.
#[derive(Debug, Deserialize)]
struct Row {
    arrival: f64,
    duration: f64,
    profile: String,
}

type Reader<'a> = csv::Reader<&'a [u8]>;

/// Parses a trace: a CSV file with the columns `arrival` and `duration` in seconds and `profile`, or usage of the ledger with the columns of
/// its export. Lines that begin with `#` are comments.
pub fn parse_trace(text: &str) -> Result<Trace, TraceError> {
    let mut reader = csv::ReaderBuilder::new();
    let mut reader = reader.comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
    let headers = reader.headers()?;
    let has = |column: &str| headers.iter().any(|header| header == column);
    match COLUMNS.into_iter().find(|column| !has(column)) {
        None => usage(&mut reader),
        Some(missing) if !has("arrival") && (has("start_time") || has("partition_uuid")) => {
            Err(TraceError::MissingColumn(missing))
        }
        Some(_) => requests(&mut reader),
    }
}

fn requests(reader: &mut Reader<'_>) -> Result<Trace, TraceError> {
    let mut jobs: Vec<Job> = Vec::new();
    for_each_row(reader, |row: Row| {
        jobs.push(job(&row)?);
        Ok(())
    })?;
    jobs.sort_by_key(|job| job.arrival);
    let Some(first) = jobs.first().map(|job| job.arrival) else {
        return Err(TraceError::Empty);
    };
    // Recorded arrivals are often Unix timestamps, and samples begin at time 0.
    for job in &mut jobs {
        job.arrival = job.arrival.saturating_sub(first);
    }
    Ok(Trace { jobs, omitted: OmittedRows::default() })
}

fn usage(reader: &mut Reader<'_>) -> Result<Trace, TraceError> {
    let mut rows = LedgerRows::default();
    for_each_row(reader, |row: LedgerRow| rows.add(row))?;
    let omitted = OmittedRows {
        without_partition: rows.without_partition,
        compute_instances: rows.compute_instances,
    };
    let jobs = rows.jobs();
    if jobs.is_empty() { Err(TraceError::NoAllocations) } else { Ok(Trace { jobs, omitted }) }
}

fn for_each_row<T: for<'a> Deserialize<'a>>(
    reader: &mut Reader<'_>,
    mut add: impl FnMut(T) -> Result<(), String>,
) -> Result<(), TraceError> {
    let headers = reader.headers()?.clone();
    for (number, record) in reader.records().enumerate() {
        if number >= MAX_ROWS {
            return Err(TraceError::TooLong);
        }
        let record = record?;
        let line = record.position().map_or(0, csv::Position::line);
        let row = record.deserialize(Some(&headers))?;
        add(row).map_err(|reason| TraceError::Value { line, reason })?;
    }
    Ok(())
}

fn job(row: &Row) -> Result<Job, String> {
    let seconds = |name: &str, value: f64| {
        if (0.0..=MAX_SECONDS).contains(&value) {
            return Ok(Duration::from_secs_f64(value));
        }
        Err(format!("{name} must be a number of seconds from 0 to {MAX_SECONDS}"))
    };
    Ok(Job {
        arrival: seconds("arrival", row.arrival)?,
        duration: seconds("duration", row.duration)?,
        profile: row.profile.parse().map_err(|error| format!("profile: {error}"))?,
    })
}
