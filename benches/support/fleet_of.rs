//! Statuses of simulated machines, certificates, and a fleet too large for the sockets of one machine.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use octavo_model::inventory::{Inventory, Process, ProcessKind};
use octavo_node::labels::{self, Options};
use octavo_stream::protocol::Parts;
use octavo_stream::status;
use tempfile::TempDir;

use crate::aggregator::Serving;
use crate::simulated;
use crate::swarm::Connect;

/// Eight boards, each with `instances` instances of one slice, read by the program that people use.
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
    let directory = simulated::directory("fleet", &scenario);
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["inspect", "-o", "json", "--nvml-library"])
        .arg(directory.path().join(simulated::LIBRARY))
        .arg("--sys-root")
        .arg(directory.path().join("sys"))
        .output()
        .unwrap();
    octavo_files::inventory::parse(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// The status that an agent would send of them.
pub(crate) fn parts(inventory: &Inventory) -> Parts {
    let labels = labels::compile(inventory, &Options::default(), None).labels;
    status::encode(inventory, &labels, None)
}

/// The same machine with another process on its first device each time: the pid, and the parts.
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

/// A certificate for localhost, and those who trust it.
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

    /// How to reach an aggregator that serves like this.
    pub(crate) fn connect(&self, serving: &Serving, address: SocketAddr) -> Connect {
        match serving {
            Serving::Plain => Connect::plain(address),
            Serving::Tls(..) => Connect { address, tls: Some(Arc::clone(&self.client)) },
        }
    }
}

/// The least that is a status: what a connection costs by itself.
pub(crate) fn least(parts: &Parts) -> Parts {
    let node = parts.iter().filter(|(key, _)| key.as_str() == "node");
    node.map(|(key, content)| (key.clone(), content.clone())).collect()
}
