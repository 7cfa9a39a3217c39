//! Metrics of the aggregator itself.

use octavo_history::HistoryStatus;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metric with one label. Label values are Octavo's own words and never come from a peer, so there are few of them.
type LabeledFamily<M> = Family<[(&'static str, &'static str); 1], M>;

/// Counters and gauges. Clones share the values.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    messages: LabeledFamily<Counter>,
    refusals: LabeledFamily<Counter>,
    token_reviews: LabeledFamily<Counter>,
    http_refusals: LabeledFamily<Counter>,
    audit_failures: LabeledFamily<Counter>,
    http_reviews: Family<[(&'static str, &'static str); 2], Counter>,
    resyncs: LabeledFamily<Counter>,
    connections: LabeledFamily<Gauge>,
    upstreams: Family<[(&'static str, String); 1], Gauge>,
    accepted: LabeledFamily<Counter>,
    connections_refused: LabeledFamily<Counter>,
    connections_closed: LabeledFamily<Counter>,
    handshake_failures: LabeledFamily<Counter>,
    tls_reloads: LabeledFamily<Counter>,
    tls_reload_failures: LabeledFamily<Counter>,
    invariant_violations: LabeledFamily<Counter>,
    /// Open `Watch` streams.
    pub watchers: Gauge,
    /// Fleets published to readers.
    pub publications: Counter,
    /// Nodes in the fleet.
    pub nodes: Gauge,
    /// Contents shared between nodes.
    pub shared_contents: Gauge,
    history_bytes: Gauge,
    history_series: Gauge,
    history_series_omitted: Gauge,
}

impl Stats {
    /// Counts a message from an agent.
    pub fn count_message(&self, kind: &'static str) {
        self.messages.get_or_create(&[("kind", kind)]).inc();
    }

    /// Counts a refused message or stream.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a token review.
    pub fn count_token_review(&self, outcome: &'static str) {
        self.token_reviews.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Counts a refused HTTP request.
    pub fn count_http_refusal(&self, reason: &'static str) {
        self.http_refusals.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts an audit event that was not stored, or not in time.
    pub fn count_audit_failure(&self, reason: &'static str) {
        self.audit_failures.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts an authentication or authorization of an HTTP reader.
    pub fn checked(&self, what: &'static str, outcome: &'static str) {
        self.http_reviews.get_or_create(&[("about", what), ("outcome", outcome)]).inc();
    }

    /// Counts a requested snapshot.
    pub fn count_resync(&self, reason: &'static str) {
        self.resyncs.get_or_create(&[("reason", reason)]).inc();
    }

    /// Gauge of a server's open connections.
    pub fn connections(&self, server: &'static str) -> Gauge {
        self.connections.get_or_create_owned(&[("server", server)])
    }

    /// Gauge that is 1 while the fleet of the upstream aggregator of this cluster is received, otherwise 0.
    pub fn upstream(&self, cluster: &str) -> Gauge {
        self.upstreams.get_or_create_owned(&[("upstream", cluster.to_owned())])
    }

    /// Counts an accepted connection.
    pub fn count_connection(&self, server: &'static str) {
        self.accepted.get_or_create(&[("server", server)]).inc();
    }

    /// Counts a connection refused because of the limit.
    pub fn count_refused_connection(&self, server: &'static str) {
        self.connections_refused.get_or_create(&[("server", server)]).inc();
    }

    /// Counts a connection that was ended because of the peer's behavior.
    pub fn count_closed_connection(&self, reason: &'static str) {
        self.connections_closed.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a TLS handshake that failed or timed out.
    pub fn count_handshake_failure(&self, server: &'static str) {
        self.handshake_failures.get_or_create(&[("server", server)]).inc();
    }

    /// Counts a certificate reload.
    pub fn count_tls_reload(&self, server: &'static str) {
        self.tls_reloads.get_or_create(&[("server", server)]).inc();
    }

    /// Counts a failed certificate reload.
    pub fn count_tls_reload_failure(&self, server: &'static str) {
        self.tls_reload_failures.get_or_create(&[("server", server)]).inc();
    }

    /// Counts the violation of an invariant.
    pub fn count_invariant_violation(&self, invariant: &'static str) {
        self.invariant_violations.get_or_create(&[("invariant", invariant)]).inc();
    }

    /// Sets the size of the history.
    pub fn set_history(&self, status: HistoryStatus) {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.history_bytes.set(gauge(status.bytes));
        self.history_series.set(gauge(status.series));
        self.history_series_omitted.set(gauge(status.omitted_series));
    }

    /// Registers all metrics with `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("octavo_aggregator");
        // Initialized with 0, so that a first, possibly severe, event is visible as an increase.
        for server in [("server", "grpc"), ("server", "http")] {
            drop(self.tls_reloads.get_or_create(&[server]));
            drop(self.tls_reload_failures.get_or_create(&[server]));
        }
        self.register_messages(registry);
        self.register_connections(registry);
        self.register_history(registry);
        registry.register("nodes", "Nodes in the fleet, including stale nodes", self.nodes.clone());
        registry.register(
            "shared_contents",
            "Status fragments that are stored once and shared by several nodes",
            self.shared_contents.clone(),
        );
        registry.register(
            "publications",
            "Versions of the fleet that were published to readers",
            self.publications.clone(),
        );
        registry.register("watchers", "Open Watch streams (gRPC)", self.watchers.clone());
        registry.register(
            "invariant_violations",
            "Violations of internal invariants; a nonzero value is a bug in Octavo",
            self.invariant_violations.clone(),
        );
    }

    fn register_messages(&self, registry: &mut Registry) {
        registry.register("messages", "Messages from agents by kind", self.messages.clone());
        registry.register(
            "refusals",
            "Refused messages and streams by reason",
            self.refusals.clone(),
        );
        registry.register(
            "token_reviews",
            "Reviews of agents' tokens by the API server, by outcome",
            self.token_reviews.clone(),
        );
        registry.register(
            "http_refusals",
            "HTTP requests refused by authentication, authorization or request checks, by reason",
            self.http_refusals.clone(),
        );
        registry.register(
            "audit_failures",
            "Audit events that were dropped because the queue was full (full), and changes that were not stored within 2 s (late)",
            self.audit_failures.clone(),
        );
        registry.register(
            "http_reviews",
            "Reviews of HTTP clients by the API server, by subject and outcome",
            self.http_reviews.clone(),
        );
        registry.register(
            "resyncs",
            "Full snapshots requested from agents, by reason",
            self.resyncs.clone(),
        );
    }

    fn register_history(&self, registry: &mut Registry) {
        registry.register(
            "history_bytes",
            "Memory of the history, in bytes; the limit is --history-memory",
            self.history_bytes.clone(),
        );
        registry.register(
            "history_series",
            "Devices and partitions with a history",
            self.history_series.clone(),
        );
        registry.register(
            "history_series_omitted",
            "Devices and partitions without a history because of --history-memory",
            self.history_series_omitted.clone(),
        );
    }

    fn register_connections(&self, registry: &mut Registry) {
        registry.register("connections", "Open connections by server", self.connections.clone());
        registry.register(
            "upstream_connected",
            "Whether the fleet of an upstream aggregator is received, by its name (0 or 1)",
            self.upstreams.clone(),
        );
        registry.register(
            "connections_accepted",
            "Accepted connections by server",
            self.accepted.clone(),
        );
        registry.register(
            "connections_refused",
            "Connections beyond --max-connections, by server",
            self.connections_refused.clone(),
        );
        registry.register(
            "connections_cut",
            "Connections, streams and requests that the aggregator ended, by reason",
            self.connections_closed.clone(),
        );
        registry.register(
            "tls_handshake_failures",
            "TLS handshakes that failed or timed out, by server",
            self.handshake_failures.clone(),
        );
        registry.register(
            "tls_reloads",
            "Renewed certificates that were loaded, by server",
            self.tls_reloads.clone(),
        );
        registry.register(
            "tls_reload_failures",
            "Renewed certificates that could not be loaded, by server; the previous certificate stays in use",
            self.tls_reload_failures.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn every_metric_is_documented() {
        let stats = Stats::default();
        let mut registry = Registry::default();
        stats.register(&mut registry);
        // A metric without a value has no series and would not be listed.
        stats.count_message("hello");
        stats.refused("claimed");
        stats.count_token_review("accepted");
        stats.count_audit_failure("late");
        stats.count_resync("hello");
        stats.connections("grpc").inc();
        stats.count_connection("grpc");
        stats.count_refused_connection("grpc");
        stats.count_closed_connection("no_request");
        stats.count_handshake_failure("grpc");
        stats.count_tls_reload("grpc");
        stats.count_tls_reload_failure("grpc");
        stats.count_invariant_violation("I9");
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let page = include_str!("../../../docs/reference/metrics.md");
        let types: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        assert_eq!(types.len(), 20, "{types:?}");
        for metric_type in types {
            let (name, kind) = metric_type.split_once(' ').unwrap();
            let suffix = if kind == "counter" { "_total" } else { "" };
            let entry = format!("\n### `{name}{suffix}`\n");
            assert!(page.contains(&entry), "docs/reference/metrics.md does not list {name}");
        }
    }

    #[test]
    fn metrics_are_exported_with_prefix_and_help() {
        let stats = Stats::default();
        let mut registry = Registry::default();
        stats.register(&mut registry);
        stats.count_message("hello");
        stats.count_message("hello");
        stats.connections("grpc").inc();
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "octavo_aggregator_messages_total{kind=\"hello\"} 2",
            "octavo_aggregator_connections{server=\"grpc\"} 1",
            "octavo_aggregator_nodes 0",
            "# HELP octavo_aggregator_nodes Nodes in the fleet, including stale nodes.",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
