//! The reference page of metrics, generated from what running programs expose.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;

use octavo_agent::metrics::claims::ClaimMetrics;
use octavo_toolkit::telemetry::exposition;

use super::served::{ExposedMetrics, budgets, ledger, policies, served};
use crate::fleet_api::Api;
use crate::golden::golden;
use crate::ledger::opencost;
use crate::process::Program;
use crate::sysfs::amd_host::{CPX, mi300x};
use crate::sysfs::neuron_host::{FileLayout, Host, TRAINIUM2, torus};
use crate::time_limits::until_async;
use crate::tree::write_tree;
use crate::usage::served::complete;

const HEAD: &str = "# Metrics

This page lists every metric of the aggregator and the agents, for authors of queries, alerts and dashboards. It is generated from
the output of running programs; `make golden` rewrites it. [Monitoring](../operations/monitoring.md) explains how to scrape the
metrics, which alerts exist, and when series are absent.
";

/// A part of the page.
struct Section {
    title: &'static str,
    text: &'static str,
    /// Label, metrics that have it if not all, and values.
    labels: &'static [(&'static str, &'static str, &'static str)],
}

const FLEET: Section = Section {
    title: "Fleet",
    text: "The aggregator exposes these metrics at `/metrics`. They are calculated at each scrape. No series exists per node or device.",
    labels: &[
        (
            "state",
            "octavo_nodes",
            "`empty`, `passthrough`, `ok`, `applying`, `no-agent`, `attention`, `degraded`, `no-driver`, `nvml-lost`, `nvml-stalled`, `stale`",
        ),
        (
            "state",
            "octavo_aggregator_availability",
            "`capacity`, `allocatable`, `requested`, `free`, `unusable`, `passthrough`, `unknown`, `pending`",
        ),
        (
            "occupancy",
            "octavo_devices",
            "`free`, `in_use`, `partitioned`, `unavailable`, `passthrough`, `unknown`",
        ),
        ("occupancy", "octavo_partitions", "`free`, `in_use`"),
        ("type", "", "accelerator type such as `nvidia-h200-141gb`, `unknown`, or `other`"),
        ("resource", "", "resource name such as `nvidia.com/gpu`, or `other`"),
        ("version", "", "version of the aggregator"),
    ],
};

const CLUSTER: Section = Section {
    title: "Cluster",
    text: "The aggregator exposes these metrics only with `--follow-cluster`.",
    labels: &[("kind", "", "`node`, `pod`")],
};

const POLICIES: Section = Section {
    title: "Accelerator policies",
    text: "The aggregator exposes these metrics only with `--policies`. At most 100 policies have series, those that need attention first. The counter starts at 0 with the process.",
    labels: &[
        ("policy", "", "name of the policy"),
        (
            "state",
            "octavo_policy_nodes",
            "`selected`, `updated`, `applied`, `updating`, `failed`, `overridden`, `conflicting`, `unavailable`",
        ),
        (
            "state",
            "octavo_policy_state",
            "one of the [states](../tasks/policies.md#follow-a-roll-out)",
        ),
        ("kind", "", "`read`, `write`, `failed` (either kind)"),
    ],
};

const BUDGETS: Section = Section {
    title: "Budgets",
    text: "The aggregator exposes these metrics only with `--budgets`, and calculates them every minute. They are absent while the usage ledger cannot be read.",
    labels: &[
        ("namespace", "", "namespace of the budget; absent if it is for a team"),
        ("team", "", "team of the budget; absent if it is for a namespace"),
    ],
};

const LEDGER: Section = Section {
    title: "Usage ledger",
    text: "The aggregator exposes these metrics only with `--ledger`. Counters start at 0 with the process.",
    labels: &[],
};

const OPENCOST: Section = Section {
    title: "Metrics with names of OpenCost",
    text: "The aggregator exposes these metrics only with `--opencost-metrics`, and calculates them every 10 s. Series exist for each node whose agent reports, and for each container with a device, up to 20,000. Labels of nodes other than `instance` and `node` are empty without `--follow-cluster`.",
    labels: &[
        ("instance", "", "name of the node"),
        ("node", "", "name of the node"),
        ("instance_type", "", "label `node.kubernetes.io/instance-type` of the node"),
        ("region", "", "label `topology.kubernetes.io/region` of the node"),
        ("provider_id", "", "ID of the machine at its cloud provider (`spec.providerID`)"),
        ("arch", "", "label `kubernetes.io/arch` of the node"),
        ("namespace", "", "namespace of the pod"),
        ("pod", "", "name of the pod"),
        ("container", "", "name of the container"),
    ],
};

const AGGREGATOR: Section = Section {
    title: "Aggregator",
    text: "These metrics describe the aggregator process. Counters start at 0 with the process.",
    labels: &[
        ("server", "", "`grpc` (agents and Watch clients), `http` (HTTP clients)"),
        ("upstream", "", "name of another cluster"),
        ("kind", "", "`hello`, `snapshot`, `delta`, `heartbeat`"),
        (
            "reason",
            "octavo_aggregator_refusals_total",
            "such as `claimed`, `superseded`, `replayed`, `bad_message`, `unreadable`, `no_hello`, `unauthenticated`",
        ),
        ("reason", "octavo_aggregator_audit_failures_total", "`full`, `late`"),
        (
            "reason",
            "octavo_aggregator_http_refusals_total",
            "such as `unauthenticated`, `forbidden`, `unchecked`, `cross_site`, `not_found`",
        ),
        (
            "reason",
            "octavo_aggregator_connections_cut_total",
            "such as `no_request`, `not_reading`, `slow_body`, `protocol_error`, `too_many_resets`",
        ),
        ("reason", "octavo_aggregator_resyncs_total", "such as `hello`"),
        ("about", "", "`token`, `right`"),
        ("outcome", "octavo_aggregator_token_reviews_total", "`accepted`, `denied`, `failed`"),
        ("outcome", "octavo_aggregator_http_reviews_total", "`accepted`, `denied`, `unanswered`"),
        ("invariant", "", "number of the invariant, such as `I9`"),
    ],
};

const LAYOUTS: Section = Section {
    title: "Layouts and allocation",
    text: "Agents expose these metrics with `--metrics-listen`. Counters start at 0 with the process. One change of one device counts once.",
    labels: &[
        ("result", "", "outcome of a change; one of the [reasons](reasons.md)"),
        ("state", "", "state of a device; one of the [reasons](reasons.md)"),
        (
            "reason",
            "",
            "state of the node's layout or of its allocation; one of the [reasons](reasons.md)",
        ),
        ("layout", "", "name of the layout"),
        (
            "mode",
            "",
            "`hand-off` (NVIDIA's device plugin), `embedded` (the agent), `dra` (the agent, to resource claims)",
        ),
        ("resource", "", "resource name such as `nvidia.com/gpu`"),
        ("count", "", "`wanted`, `allocatable`"),
        ("namespace", "", "namespace of the blocking pod"),
        ("pod", "", "name of the blocking pod, its UID if the name is unknown, or `other`"),
    ],
};

const USAGE: Section = Section {
    title: "Usage",
    text: "Agents expose these metrics with `--usage-interval`.",
    labels: &[
        ("source", "", "`driver`, `kubelet`, `processes`"),
        ("device", "", "number of the GPU, or its PCI address if the driver reports no number"),
        ("gi", "", "GPU instance ID; empty for a whole device"),
        ("ci", "", "compute instance ID; empty for a whole device"),
        ("profile", "", "MIG profile such as `3g.40gb`; empty for a whole device"),
        ("namespace", "", "namespace of the pod"),
        ("pod", "", "name of the pod, its UID if the name is unknown, or `other`"),
        ("container", "", "name of the container"),
        ("claim", "", "name of the resource claim; absent for devices of a device plugin"),
        ("pci", "", "PCI address"),
        ("uuid", "", "UUID of the device or partition"),
        ("product", "", "product name"),
        ("clock", "", "`compute`, `memory`"),
        ("kind", "", "`corrected`, `uncorrected`"),
        ("cause", "", "`correctable`, `uncorrectable`"),
    ],
};

const CLAIMS: Section = Section {
    title: "Resource claims",
    text: "Agents expose these metrics with `--dra` and `--metrics-listen`. Counters start at 0 with the process. Each claim of a call counts once.",
    labels: &[
        ("call", "", "`prepare`, `unprepare`"),
        ("result", "", "`success`, `error`"),
        ("state", "", "`preparing`, `prepared`"),
    ],
};

const VENDORS: Section = Section {
    title: "Neuron and AMD devices",
    text: "Every agent on a node with such devices exposes these metrics with `--metrics-listen`.",
    labels: &[
        ("device", "", "device number of the Neuron driver, or PCI address of an AMD device"),
        ("type", "", "accelerator type such as `aws-trainium2-96gb`"),
        ("sku", "", "SKU such as `aws-trainium2`"),
        ("serial", "", "serial number"),
        ("version", "", "version of the Neuron driver"),
        (
            "layout",
            "",
            "`known`, or `unknown` if the driver's files are not in the expected places",
        ),
        ("chip", "", "chip name from the Neuron driver"),
        ("cores", "", "generation of the Neuron cores, such as `NCv3`"),
        ("kind", "octavo_neuron_cores", "`physical`, `logical`"),
        (
            "kind",
            "octavo_neuron_memory_errors_total",
            "`uncorrected`, `repairable`, `corrected` (driver 2.30 or later)",
        ),
        ("place", "", "`memory`, `sram`"),
        ("product", "", "product name of an AMD device"),
        ("driver", "", "version of the `amdgpu` driver; empty for the driver of the kernel"),
        ("gfx", "", "graphics IP version of an AMD device"),
        ("hive", "", "ID of the xGMI hive"),
        ("compute", "", "compute partition mode such as `CPX`"),
        ("memory", "", "memory partition mode such as `NPS4`"),
    ],
};

const DCGM: Section = Section {
    title: "Metrics with names of dcgm-exporter",
    text: "Agents expose these metrics with `--dcgm-metrics`. All are gauges. Series of a device have no `GPU_I_PROFILE` and `GPU_I_ID`.",
    labels: &[
        ("gpu", "", "number of the GPU, or its PCI address if the driver reports no number"),
        ("UUID", "", "UUID of the device"),
        ("pci_bus_id", "", "PCI address"),
        ("device", "", "device file name such as `nvidia0`"),
        ("modelName", "", "product name"),
        ("GPU_I_PROFILE", "", "MIG profile; only on series of partitions"),
        ("GPU_I_ID", "", "GPU instance ID; only on series of partitions"),
        ("Hostname", "", "name of the node"),
        ("namespace", "", "namespace of the pod if exactly one container has the device"),
        ("pod", "", "name of that pod"),
        ("container", "", "name of that container"),
    ],
};

impl Section {
    /// The section of the metrics whose name satisfies `is_here`.
    fn render(&self, served: &ExposedMetrics, is_here: impl Fn(&str) -> bool) -> String {
        let mut page = format!("\n## {}\n\n{}\n", self.title, self.text);
        let mut used: BTreeSet<(&str, &str)> = BTreeSet::new();
        for (name, (kind, labels)) in served.metrics.iter().filter(|(name, _)| is_here(name)) {
            let help = served.help[name].trim_end_matches('.');
            write!(page, "\n### `{name}`\n\n{help}.\n\n- Type: {kind}\n").unwrap();
            let labels = labels.keys().filter(|label| kind != "histogram" || *label != "le");
            let labels: Vec<&str> = labels.map(String::as_str).collect();
            for label in &labels {
                let rows = self.labels.iter().filter(|(known, _, _)| known == label);
                let mut rows = rows.filter(|(_, of, _)| of.is_empty() || of == name);
                let row = rows.next().unwrap_or_else(|| panic!("no row for {label} of {name}"));
                used.insert((row.0, row.1));
            }
            if !labels.is_empty() {
                writeln!(page, "- Labels: `{}`", labels.join("`, `")).unwrap();
            }
        }
        let rows: BTreeSet<(&str, &str)> =
            self.labels.iter().map(|(label, of, _)| (*label, *of)).collect();
        assert_eq!(used, rows, "{}", self.title);
        if rows.is_empty() {
            return page;
        }
        write!(
            page,
            "\n### Labels: {}\n\n| label | values |\n|---|---|\n",
            self.title
                .to_lowercase()
                .replace("amd", "AMD")
                .replace("neuron", "Neuron")
                .replace("opencost", "OpenCost")
        )
        .unwrap();
        for (label, of, values) in self.labels {
            let of = if of.is_empty() { String::new() } else { format!(" of `{of}`") };
            writeln!(page, "| `{label}`{of} | {values} |").unwrap();
        }
        page
    }
}

/// Metrics of an agent on a machine with Neuron and AMD devices.
async fn vendors() -> ExposedMetrics {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let neuron = Host {
        driver: "2.30.2.0",
        chip: TRAINIUM2,
        file_layout: FileLayout::Known,
        links: torus(4, 4),
    };
    write_tree(root, &neuron.tree());
    let power = "sys/class/neuron_device/neuron0/stats/power/utilization";
    write_tree(root, &format!("{power} = POWER_STATUS_VALID,1789180860,0.00,99.90,12.50\\n"));
    write_tree(&root.join("sys"), &mi300x(&[0x05, 0x27], CPX));
    let mut agent = Program::start(
        Command::new(env!("CARGO_BIN_EXE_octavo-agent"))
            .arg("--sys-root")
            .arg(root.join("sys"))
            .arg("--driver-root")
            .arg(root.join("no-driver"))
            .arg("--neuron-logical-config")
            .arg(root.join("opt/aws/neuron/logical_nc_config"))
            .args(["--interval=100ms", "--node-name=chips", "--metrics-listen=127.0.0.1:0"]),
    );
    let api = Api::at(agent.metrics());
    let scrape = async || api.get("/metrics").await.body;
    let text = until_async("metrics of both vendors", scrape, |text| {
        text.contains("octavo_neuron_power_ratio{") && text.contains("octavo_amd_hive_devices{")
    });
    let mut served = ExposedMetrics::default();
    served.add(&text.await);
    served
}

/// Metrics of an agent that serves resource claims.
fn claims() -> ExposedMetrics {
    let registry = ClaimMetrics::default().registry();
    let mut served = ExposedMetrics::default();
    served.add(&exposition::write(&registry, std::iter::empty()).unwrap().1);
    served
}

#[tokio::test]
async fn metrics_reference_lists_every_exposed_metric_with_its_labels() {
    let (agent, aggregator) = served().await;
    let mut usage = ExposedMetrics::default();
    usage.add(&complete(true).await);
    let vendors = vendors().await;
    let mut opencost = ExposedMetrics::default();
    opencost.add(&opencost::scraped().await);
    let is_opencost =
        |name: &str| !name.starts_with("octavo_") || name.starts_with("octavo_opencost_");
    let is_cluster = |name: &str| name.starts_with("octavo_cluster_");
    let is_own = |name: &str| {
        name.starts_with("octavo_aggregator_")
            && !name.starts_with("octavo_aggregator_availability")
    };
    let is_vendor =
        |name: &str| name.starts_with("octavo_neuron_") || name.starts_with("octavo_amd_");
    let page = [
        HEAD.to_owned(),
        FLEET.render(&aggregator, |name| !is_cluster(name) && !is_own(name)),
        CLUSTER.render(&aggregator, is_cluster),
        POLICIES.render(&policies(), |_| true),
        BUDGETS.render(&budgets(), |_| true),
        LEDGER.render(&ledger(), |_| true),
        OPENCOST.render(&opencost, is_opencost),
        AGGREGATOR.render(&aggregator, is_own),
        LAYOUTS.render(&agent, |name| !is_vendor(name)),
        CLAIMS.render(&claims(), |_| true),
        USAGE.render(&usage, |name| name.starts_with("octavo_")),
        VENDORS.render(&vendors, is_vendor),
        DCGM.render(&usage, |name| name.starts_with("DCGM_")),
    ]
    .concat();
    for line in page.lines().filter(|line| line.starts_with('|')) {
        assert!(line.len() <= 160, "{line}");
    }
    golden("../../docs/reference/metrics.md", &page);
}
