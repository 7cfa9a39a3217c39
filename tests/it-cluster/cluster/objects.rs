//! What tests put into a cluster, and who they are to it.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::kubectl::Kubectl;

/// A Node object that no kubelet has; deleted when dropped.
pub(crate) struct TestNode {
    name: String,
    kubectl: Kubectl,
}

impl TestNode {
    #[track_caller]
    pub(super) fn new(kubectl: &Kubectl, name: String) -> Self {
        let object = serde_json::json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        });
        kubectl.feed(&["create", "-f", "-"], &object.to_string());
        let node = Self { name, kubectl: kubectl.clone() };
        node.patch(
            &["--subresource=status"],
            &serde_json::json!({"status": {
                "capacity": {"cpu": "64", "memory": "512Gi", "pods": "500"},
                "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "500"},
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "Test", "message": "there is no machine",
                    "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            }}),
        );
        // Given to every new node, and taken away by a controller, which may not be there.
        node.patch(&[], &serde_json::json!({"spec": {"taints": null}}));
        node
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    #[track_caller]
    fn patch(&self, options: &[&str], patch: &serde_json::Value) {
        let patch = patch.to_string();
        let mut arguments = vec!["patch", "node", &self.name, "--type=merge", "-p", &patch];
        arguments.extend(options);
        self.kubectl.run(&arguments);
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        // The API server may be gone with all its nodes.
        let _gone_already = self.kubectl.attempt(&[
            "delete",
            "node",
            &self.name,
            "--ignore-not-found",
            "--wait=false",
            "--request-timeout=10s",
        ]);
    }
}

/// A kubeconfig whose user has a token in a file, as a pod has.
pub(crate) struct Bearer {
    directory: TempDir,
}

impl Bearer {
    pub(super) fn new(url: &str, ca: &Path, token: &str) -> Self {
        let bearer = Self { directory: tempfile::tempdir().unwrap() };
        bearer.set_token(token);
        // YAML has JSON in it.
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": ca}}],
            "users": [{"name": "bearer", "user": {"tokenFile": bearer.token()}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "bearer"}}],
        });
        std::fs::write(bearer.path(), config.to_string()).unwrap();
        bearer
    }

    /// The kubeconfig.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Another token in the same file, which is never half written.
    pub(crate) fn set_token(&self, token: &str) {
        let draft = self.directory.path().join("draft");
        std::fs::write(&draft, token).unwrap();
        std::fs::rename(draft, self.token()).unwrap();
    }

    fn token(&self) -> PathBuf {
        self.directory.path().join("token")
    }
}
