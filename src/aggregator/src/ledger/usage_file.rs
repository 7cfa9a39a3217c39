//! Parquet file with the intervals of a day.
//!
//! The columns are those of `docs/tasks/cost.md`. Numbers are whole or decimal, so that sums over files are exact.

use std::io::{self, Write};
use std::sync::Arc;

use octavo_ledger::{Container, Interval};
use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::ChunkReader;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

/// Intervals of a row group, which are in memory at the same time.
const ROW_GROUP: usize = 50_000;
/// Key of the metadata that contains the sum of `device_seconds`, in parts per million. It ends with the version of the columns: a file
/// with another version is written again.
const TOTAL_KEY: &str = "octavo.usage.ppm-seconds/v1";

/// Type and values of a column.
enum Column {
    /// Text; null if it is absent or empty.
    Text(for<'a> fn(&'a Interval) -> Option<&'a str>),
    /// Time in seconds since 1970.
    Time(fn(&Interval) -> i64),
    /// Number in parts per million.
    Ppm(fn(&Interval) -> i64),
    /// Whole number.
    Integer(fn(&Interval) -> i64),
    /// True or false.
    Flag(fn(&Interval) -> bool),
}

/// The columns and their names.
const COLUMNS: [(&str, Column); 25] = [
    ("node", Column::Text(|one| Some(one.device.node.as_str()))),
    ("device", Column::Text(|one| Some(&one.device.id))),
    ("type", Column::Text(|one| Some(one.device.price_key.as_ref()?.type_name.as_str()))),
    ("instance_type", Column::Text(|one| one.device.price_key.as_ref()?.instance_type.as_deref())),
    ("region", Column::Text(|one| one.device.price_key.as_ref()?.region.as_deref())),
    ("purchase_option", Column::Text(|one| Some(one.device.price_key.as_ref()?.option.into()))),
    ("namespace", Column::Text(|one| Some(&container(one)?.namespace))),
    ("pod", Column::Text(|one| Some(&container(one)?.pod))),
    ("pod_uid", Column::Text(|one| Some(&container(one)?.uid))),
    ("container", Column::Text(|one| Some(&container(one)?.container))),
    ("claim", Column::Text(|one| container(one)?.claim.as_deref())),
    ("workload_kind", Column::Text(|one| Some(&container(one)?.owner.as_ref()?.kind))),
    ("workload_name", Column::Text(|one| Some(&container(one)?.owner.as_ref()?.name))),
    ("team", Column::Text(|one| container(one)?.team.as_deref())),
    ("state", Column::Text(|one| Some(one.part.state().into()))),
    ("method", Column::Text(|one| Some(one.part.method.into()))),
    ("profile", Column::Text(|one| one.part.profile.as_deref())),
    ("partition_uuid", Column::Text(|one| one.part.partition.as_deref())),
    ("start_time", Column::Time(|one| one.start)),
    ("end_time", Column::Time(|one| one.end)),
    ("share", Column::Ppm(|one| one.part.ppm.into())),
    ("device_seconds", Column::Ppm(ppm_seconds)),
    ("inferred", Column::Flag(|one| one.inferred)),
    ("utilization_percent_seconds", Column::Integer(|one| one.utilization.percent_seconds)),
    ("utilization_seconds", Column::Integer(|one| one.utilization.seconds)),
];

/// Writer of a file.
pub(super) struct UsageFileWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    waiting: Vec<Interval>,
    ppm_seconds: i64,
}

impl<W: Write + Send> UsageFileWriter<W> {
    /// Begins a file.
    pub(super) fn new(output: W) -> io::Result<Self> {
        let columns = COLUMNS.iter().map(|(name, column)| match column {
            Column::Text(_) => format!("OPTIONAL BYTE_ARRAY {name} (STRING);"),
            Column::Time(_) => format!("REQUIRED INT64 {name} (TIMESTAMP(MICROS,true));"),
            Column::Ppm(_) => format!("REQUIRED INT64 {name} (DECIMAL(18,6));"),
            Column::Integer(_) => format!("REQUIRED INT64 {name};"),
            Column::Flag(_) => format!("REQUIRED BOOLEAN {name};"),
        });
        let columns: String = columns.collect();
        let schema = parse_message_type(&format!("message usage {{{columns}}}"));
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let file = schema.and_then(|schema| {
            SerializedFileWriter::new(output, Arc::new(schema), Arc::new(properties))
        });
        Ok(Self { file: file.map_err(io_error)?, waiting: Vec::new(), ppm_seconds: 0 })
    }

    /// Adds intervals.
    pub(super) fn add(&mut self, intervals: Vec<Interval>) -> io::Result<()> {
        for interval in &intervals {
            self.ppm_seconds = self.ppm_seconds.saturating_add(ppm_seconds(interval));
        }
        self.waiting.extend(intervals);
        if self.waiting.len() < ROW_GROUP {
            return Ok(());
        }
        self.write_row_group().map_err(io_error)
    }

    /// Seconds of all devices in the file, in parts per million.
    pub(super) fn ppm_seconds(&self) -> i64 {
        self.ppm_seconds
    }

    /// Completes the file and returns the output.
    pub(super) fn finish(&mut self) -> io::Result<&W> {
        let total = KeyValue::new(TOTAL_KEY.to_owned(), self.ppm_seconds.to_string());
        self.file.append_key_value_metadata(total);
        self.write_row_group().and_then(|()| self.file.finish()).map_err(io_error)?;
        Ok(self.file.inner())
    }

    fn write_row_group(&mut self) -> Result<(), ParquetError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut columns = COLUMNS.iter();
        let mut group = self.file.next_row_group()?;
        while let Some(mut writer) = group.next_column()? {
            if let Some((_, column)) = columns.next() {
                column.write(&self.waiting, &mut writer)?;
            }
            writer.close()?;
        }
        group.close()?;
        self.waiting.clear();
        Ok(())
    }
}

impl Column {
    fn write(
        &self,
        intervals: &[Interval],
        writer: &mut SerializedColumnWriter<'_>,
    ) -> Result<(), ParquetError> {
        let mut integers = |value: &dyn Fn(&Interval) -> i64| {
            let values: Vec<i64> = intervals.iter().map(value).collect();
            writer.typed::<Int64Type>().write_batch(&values, None, None)
        };
        let _written = match self {
            Self::Text(value) => {
                let texts: Vec<Option<&str>> = intervals.iter().map(value).collect();
                let texts = texts.iter().map(|text| text.filter(|text| !text.is_empty()));
                let levels: Vec<i16> = texts.clone().map(|text| text.is_some().into()).collect();
                let values: Vec<ByteArray> = texts.flatten().map(ByteArray::from).collect();
                writer.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)
            }
            Self::Time(value) => integers(&|one| value(one).saturating_mul(1_000_000)),
            Self::Ppm(value) | Self::Integer(value) => integers(value),
            Self::Flag(value) => {
                let values: Vec<bool> = intervals.iter().map(value).collect();
                writer.typed::<BoolType>().write_batch(&values, None, None)
            }
        }?;
        Ok(())
    }
}

/// The seconds of all devices that a complete file contains, in parts per million; `None` for any other file.
pub(super) fn exported_ppm_seconds(file: &impl ChunkReader) -> Option<i64> {
    let metadata = ParquetMetaDataReader::new().parse_and_finish(file).ok()?;
    let values = metadata.file_metadata().key_value_metadata()?;
    let total = values.iter().find(|one| one.key == TOTAL_KEY)?;
    total.value.as_ref()?.parse().ok()
}

fn ppm_seconds(interval: &Interval) -> i64 {
    interval.seconds().saturating_mul(interval.part.ppm.into())
}

fn container(interval: &Interval) -> Option<&Container> {
    interval.part.holder.container().map(|container| &**container)
}

/// The error of the operating system, if that is the cause.
fn io_error(error: ParquetError) -> io::Error {
    if let ParquetError::External(cause) = error {
        return cause.downcast().map_or_else(io::Error::other, |error| *error);
    }
    io::Error::other(error)
}

#[cfg(test)]
mod tests;
