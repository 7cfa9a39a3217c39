//! Metrics of the ledger.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Metrics of the ledger. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct LedgerMetrics {
    written: Gauge<i64>,
    waiting: Gauge<i64>,
    bytes: Gauge<i64>,
    audit_head: Gauge<i64>,
    failures: Counter<u64, AtomicU64>,
    audit_failures: Counter<u64, AtomicU64>,
    pending_days: Gauge<i64>,
    export_failures: Counter<u64, AtomicU64>,
}

impl LedgerMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "octavo_ledger_last_write_timestamp",
            "Time of the last successful write of the usage ledger, in seconds since 1970; 0 before the first one",
            Unit::Seconds,
            self.written.clone(),
        );
        registry.register(
            "octavo_ledger_waiting_intervals",
            "Intervals of usage that wait in memory because the ledger cannot be written",
            self.waiting.clone(),
        );
        registry.register_with_unit(
            "octavo_ledger_size",
            "Size of the usage ledger, measured every hour",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register(
            "octavo_ledger_audit_last_entry",
            "Number of the last audit entry",
            self.audit_head.clone(),
        );
        registry.register(
            "octavo_ledger_failures",
            "Failed accesses to the usage ledger, without those to the audit trail",
            self.failures.clone(),
        );
        registry.register(
            "octavo_ledger_audit_failures",
            "Failed attempts to append to the audit trail",
            self.audit_failures.clone(),
        );
        registry.register(
            "octavo_ledger_export_pending_days",
            "Days of the usage ledger that are over and not exported",
            self.pending_days.clone(),
        );
        registry.register(
            "octavo_ledger_export_failures",
            "Failed exports of the usage ledger",
            self.export_failures.clone(),
        );
    }

    pub(super) fn set_written(&self, at: i64) {
        self.written.set(at);
    }

    pub(super) fn set_waiting(&self, count: usize) {
        self.waiting.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn set_bytes(&self, bytes: u64) {
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(super) fn set_audit_head(&self, seq: i64) {
        self.audit_head.set(seq);
    }

    pub(super) fn count_failure(&self) {
        self.failures.inc();
    }

    pub(super) fn count_audit_failure(&self) {
        self.audit_failures.inc();
    }

    pub(super) fn set_pending_days(&self, count: usize) {
        self.pending_days.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn count_export_failure(&self) {
        self.export_failures.inc();
    }
}
