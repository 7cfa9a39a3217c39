//! Statuses of simulated machines, and certificates.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use octavo_model::inventory::{Inventory, Process, ProcessKind};
use octavo_node::labels::{self, Options};
use octavo_stream::protocol::Parts;
use octavo_stream::status;
use tempfile::TempDir;

use crate::aggregator::Serving;
use crate::inspect;
use crate::simulated_agents::Connect;

/// Returns the inventory of a machine with eight boards and `instances` 1g.10gb instances on each.
pub(crate) fn inventory(board: &str, instances: usize) -> Inventory {
    let mig = if instances == 0 {
        String::new()
    } else {
        format!(
            "    mig: enabled\n    instances:\n      - {{profile: 1g.10gb, count: {instances}}}\n"
        )
    };
    let scenario = format!(
        "machine: bench\nmachine_type: DGX\ndriver: 570.133.20\ncuda: \"12.8\"\nlinks: nvswitch\ngpus:\n  - board: {board}\n    count: 8\n{mig}"
    );
    inspect::inventory(&scenario)
}

/// Returns the status that an agent of this machine sends.
pub(crate) fn parts(inventory: &Inventory) -> Parts {
    let labels = labels::compile(inventory, &Options::default(), None).labels;
    status::encode(inventory, &labels, None)
}

/// Returns statuses that differ in the process on the first device, with the PID of that process.
pub(crate) fn variants(inventory: &Inventory, count: u32) -> Vec<(u32, Parts)> {
    let variant = |pid| {
        let mut inventory = inventory.clone();
        inventory.devices[0].processes = vec![Process {
            pid,
            kind: ProcessKind::Compute,
            gpu_instance: None,
            compute_instance: None,
            memory: None,
        }];
        (pid, parts(&inventory))
    };
    (100_000..).map(variant).take(usize::try_from(count).unwrap()).collect()
}

/// A certificate for localhost, and a client configuration that trusts it.
pub(crate) struct Certificates {
    directory: TempDir,
    client: Arc<rustls::ClientConfig>,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(directory.path().join("tls.crt"), cert.pem()).unwrap();
        fs::write(directory.path().join("tls.key"), signing_key.serialize_pem()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![b"h2".to_vec()];
        Self { directory, client: Arc::new(client) }
    }

    pub(crate) fn serving(&self) -> Serving {
        let file = |name: &str| -> PathBuf { self.directory.path().join(name) };
        Serving::Tls(file("tls.crt"), file("tls.key"))
    }

    /// Returns the configuration of agents for an aggregator with this transport security.
    pub(crate) fn connect(&self, serving: &Serving, address: SocketAddr) -> Connect {
        match serving {
            Serving::Plain => Connect::plain(address),
            Serving::Tls(..) => Connect { address, tls: Some(Arc::clone(&self.client)) },
        }
    }
}

/// Returns the smallest valid status, to measure a connection by itself.
pub(crate) fn minimal(parts: &Parts) -> Parts {
    let node = parts.iter().filter(|(key, _)| key.as_str() == "node");
    node.map(|(key, content)| (key.clone(), content.clone())).collect()
}
