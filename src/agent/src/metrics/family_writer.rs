//! Writer of metric families for collectors that compute their values when they are read.

use std::fmt;

use octavo_model::quantity::Mebibytes;
use octavo_model::reading::Percent;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Labels of a series with its value.
pub(super) type Samples = Vec<(Labels, f64)>;
/// Labels of a series.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Writer of metric families.
pub(super) struct FamilyWriter<'a, 'b>(pub(super) &'a mut DescriptorEncoder<'b>);

impl FamilyWriter<'_, '_> {
    pub(super) fn gauge(
        &mut self,
        (name, help): (&str, &str),
        samples: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    pub(super) fn counter(
        &mut self,
        (name, help): (&str, &str),
        samples: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in samples {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

pub(super) fn bytes(memory: Mebibytes) -> f64 {
    count(memory.get().saturating_mul(1 << 20))
}

pub(super) fn ratio(percent: Percent) -> f64 {
    f64::from(percent.0) / 100.0
}

pub(super) fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// Exact up to 2^53, which no device's byte count or lifetime energy reaches.
#[expect(clippy::cast_precision_loss, reason = "see above")]
pub(super) fn count(number: u64) -> f64 {
    number as f64
}
