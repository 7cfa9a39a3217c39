//! Parts of the list in docs/operations/permissions.md that each set of manifests requests.

use std::collections::{BTreeMap, BTreeSet};

/// Requested parts of a directory of `deploy`, or of values in `deploy/chart/octavo/ci`.
pub(crate) struct ManifestRequest {
    pub(crate) name: &'static str,
    /// Parts of the list; with the prefix of a pool, those of its `DaemonSet`.
    parts: &'static str,
    /// Privileges from the values themselves.
    own: &'static str,
}

const fn requested(name: &'static str, parts: &'static str) -> ManifestRequest {
    ManifestRequest { name, parts, own: "" }
}

/// Every kustomization.
pub(crate) const FOLDERS: &[ManifestRequest] = &[
    requested("options/drain", "drain"),
    requested("options/follow-cluster", "follow"),
    requested("options/nodefeature", "nodefeature, nodefeature policy"),
    requested(
        "overlays/openshift",
        "privileged, agent, reports, authority, policies, access, aggregator, annotated pods, pods policy, readers, \
            reviews, certificate, runtime, token, reader, applier, layouts, openshift, scc",
    ),
    requested(
        "tiers/applier",
        "privileged, agent, reports, authority, policies, access, aggregator, annotated pods, pods policy, readers, \
            reviews, aggregator user, certificate, runtime, token, reader, applier, layouts",
    ),
    requested(
        "tiers/reader",
        "restricted, agent, reports, authority, policies, access, aggregator, readers, reviews, \
            aggregator user, certificate, no root, user, runtime, token, reader",
    ),
    requested(
        "tiers/reporter",
        "restricted, agent, reports, authority, policies, aggregator, readers, reviews, \
            aggregator user, certificate, no root, user",
    ),
];

/// Every values file for tests.
pub(crate) const CHART: &[ManifestRequest] = &[
    ManifestRequest {
        name: "alone",
        parts: "agent, access, token, reader, applier",
        own: "
            DaemonSet octavo-agent: volume layouts.configMap ours",
    },
    requested(
        "cert-manager",
        "agent, reports, authority of cert-manager, cert-manager, policies, access, \
            aggregator, aggregator user, certificate, no root, user, runtime, token, reader, \
            readers, reviews, test, test user, test by cert-manager, monitoring, \
            monitoring by cert-manager, monitoring of readers",
    ),
    ManifestRequest {
        name: "cleanup",
        parts: "agent, reports, authority, policies, access, aggregator, aggregator user, token, \
            no root, user, readers, reviews, test, test user, test by ConfigMap",
        own: "Deployment octavo-aggregator: volume tls.secret.secretName=ours",
    },
    requested(
        "default",
        "agent, reports, authority, policies, access, aggregator, aggregator user, \
            certificate, no root, user, runtime, token, reader, readers, reviews, test, \
            test user, test by ConfigMap",
    ),
    requested(
        "dra",
        "agent, reports, authority, policies, access, aggregator, aggregator user, \
            annotated pods, pods policy, certificate, runtime, token, reader, applier, layouts, claims, cdi, \
            readers, reviews, test, test user, test by ConfigMap",
    ),
    requested(
        "embedded",
        "agent, reports, authority, policies, access, aggregator, aggregator user, \
            certificate, runtime, token, reader, applier, layouts, embedded, cdi, readers, \
            reviews, test, test user, test by ConfigMap",
    ),
    ManifestRequest {
        name: "everything",
        parts: "privileged, agent, reports, authority, policies, access, drain, nodefeature, \
            nodefeature policy, host processes, hand-off, pod events, annotated pods, pods policy, rolled out policies, aggregator, follow, made profiles, aggregator user, certificate, runtime, token, reader, \
            applier, layouts, aggregator layouts, readers, reviews, test, test user, test by ConfigMap, \
            monitoring, monitoring by ConfigMap, monitoring of readers, budget",
        own: "
            DaemonSet octavo-agent: agent mounts driver at /opt/driver ro
            DaemonSet octavo-agent: hostAliases.hostnames=octavo.example.com
            DaemonSet octavo-agent: hostAliases.ip=192.0.2.1
            DaemonSet octavo-agent: imagePullSecrets pull
            DaemonSet octavo-agent: volume driver.hostPath.path=/opt/driver
            DaemonSet octavo-agent: volume driver.hostPath.type=Directory
            DaemonSet octavo-agent: example.com/team=platform
            Deployment octavo-aggregator: aggregator has OCTAVO_LEDGER secretKeyRef ledger.key=url
            Deployment octavo-aggregator: aggregator mounts ledger-export at /var/lib/octavo-export rw
            Deployment octavo-aggregator: volume ledger-export.persistentVolumeClaim.claimName=usage-export
            Deployment octavo-aggregator: aggregator mounts files at /etc/octavo/files ro
            Deployment octavo-aggregator: aggregator mounts upstreams at /etc/octavo/upstreams ro
            Deployment octavo-aggregator: volume upstreams.projected.sources.secret octavo-paris.items.key=ca.crt
            Deployment octavo-aggregator: volume upstreams.projected.sources.secret octavo-paris.items.key=token
            Deployment octavo-aggregator: volume upstreams.projected.sources.secret octavo-paris.items.path=paris/ca.crt
            Deployment octavo-aggregator: volume upstreams.projected.sources.secret octavo-paris.items.path=paris/token
            Deployment octavo-aggregator: volume upstreams.projected.sources.secret octavo-paris.optional=true
            Deployment octavo-aggregator: example.com/team=platform
            Deployment octavo-aggregator: imagePullSecrets pull
            Deployment octavo-aggregator: volume files.configMap octavo-aggregator-files
            Pod octavo-test: hostAliases.hostnames=octavo.example.com
            Pod octavo-test: hostAliases.ip=192.0.2.1
            Pod octavo-test: imagePullSecrets pull
            PriorityClass octavo-agent: value=2000
        ",
    },
    requested(
        "neuron",
        "privileged, agent, reports, authority, policies, access, aggregator, aggregator user, \
            certificate, no root, user, token, reader, neuron, readers, reviews, test, \
            test user, test by ConfigMap",
    ),
    ManifestRequest {
        name: "open",
        parts: "agent, reports, authority, policies, access, aggregator, aggregator user, certificate, \
            no root, user, runtime, token, reader, readers, test, test user, \
            test by ConfigMap, HTTPRoute",
        own: "
            Deployment octavo-aggregator: aggregator mounts ledger at /var/lib/octavo rw
            Deployment octavo-aggregator: volume ledger.persistentVolumeClaim.claimName=octavo-aggregator-ledger
            PersistentVolumeClaim octavo-aggregator-ledger: spec.accessModes=ReadWriteOnce
            PersistentVolumeClaim octavo-aggregator-ledger: spec.resources.requests.storage=20Gi
            PersistentVolumeClaim octavo-aggregator-ledger: spec.storageClassName=fast",
    },
    requested(
        "openshift",
        "agent, reports, authority, policies, access, aggregator, annotated pods, pods policy, certificate, \
            runtime, token, reader, applier, layouts, openshift, scc, readers, reviews, test, \
            test by ConfigMap",
    ),
    requested(
        "openshift-reader",
        "agent, reports, authority, policies, access, aggregator, certificate, no root, \
            runtime, token, reader, readers, reviews, test, test by ConfigMap",
    ),
    requested(
        "pools",
        "agent, reports, authority, policies, access, drain, aggregator, annotated pods, pods policy, \
            aggregator user, certificate, no root, user, runtime, token, reader, lab: agent, lab: reports, \
            lab: authority, lab: no root, lab: user, serving: agent, serving: reports, \
            serving: authority, serving: runtime, serving: token, serving: reader, serving: applier, \
            readers, reviews, test, test user, test by ConfigMap, \
            serving: embedded, serving: layouts, training: agent, training: reports, training: authority, \
            training: runtime, training: token, training: reader, training: applier, training: layouts",
    ),
    ManifestRequest {
        name: "reporter",
        parts: "agent, reports, policies, no root, user",
        own: "DaemonSet octavo-agent: volume aggregator-ca.configMap corporate-ca.optional=true",
    },
    ManifestRequest {
        name: "standby",
        parts: "agent, reports, authority, policies, access, aggregator, standby, pods policy, aggregator user, \
            certificate, no root, user, runtime, token, reader, readers, reviews, test, test user, \
            test by ConfigMap, budget",
        own: "Deployment octavo-aggregator: aggregator has OCTAVO_LEDGER secretKeyRef ledger.key=url",
    },
    ManifestRequest {
        name: "web",
        parts: "agent, reports, authority, policies, access, aggregator, aggregator user, certificate, \
            no root, user, runtime, token, reader, readers, reviews, test, test user, \
            test by ConfigMap, proxy, HTTPRoute, Ingress and Route",
        own: "
            Deployment octavo-aggregator: aggregator mounts ledger at /var/lib/octavo rw
            Deployment octavo-aggregator: volume ledger.persistentVolumeClaim.claimName=ledger",
    },
];

/// The parts of the list, by name.
pub(crate) struct List(BTreeMap<String, Vec<String>>);

impl List {
    /// Reads the list from the page.
    pub(crate) fn read() -> Self {
        let mut parts = BTreeMap::new();
        for section in page().split("\n### List: ").skip(1) {
            let (name, rest) = section.split_once('\n').unwrap();
            let lines = rest.split("```text\n").nth(1).unwrap();
            let lines = lines.split("```").next().unwrap();
            let lines = lines.lines().map(str::to_owned).collect();
            let before = parts.insert(name.to_owned(), lines);
            assert_eq!(before, None, "{name} is there twice");
        }
        Self(parts)
    }

    /// All listed privileges of these manifests.
    pub(crate) fn of(&self, requested: &ManifestRequest) -> BTreeSet<String> {
        let own = requested.own.lines().map(str::trim);
        let mut all: BTreeSet<String> =
            own.filter(|line| !line.is_empty()).map(str::to_owned).collect();
        for part in requested.parts.split(", ") {
            let (pool, name) = match part.split_once(": ") {
                Some((pool, name)) => (Some(pool), name),
                None => (None, part),
            };
            let lines = self.0.get(name);
            let lines = lines.unwrap_or_else(|| panic!("there is no list {name:?}"));
            all.extend(lines.iter().filter_map(|line| of_pool(line, pool)));
        }
        all
    }

    /// Parts that no manifests request, which would be unnecessary privileges.
    pub(crate) fn unused(&self) -> Vec<&String> {
        let requested = || FOLDERS.iter().chain(CHART).flat_map(|one| one.parts.split(", "));
        let mut names: Vec<&String> = self.0.keys().collect();
        names.retain(|name| !requested().any(|part| part == *name));
        names
    }

    /// Every line.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &String> {
        self.0.values().flatten()
    }
}

fn of_pool(line: &str, pool: Option<&str>) -> Option<String> {
    let Some(pool) = pool else {
        return Some(line.to_owned());
    };
    let rest = line.strip_prefix("DaemonSet octavo-agent: ")?;
    Some(format!("DaemonSet octavo-agent-{pool}: {rest}"))
}

/// The whole page.
pub(crate) fn page() -> &'static str {
    include_str!("../../../docs/operations/permissions.md")
}
