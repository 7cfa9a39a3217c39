//! Objects and credentials of tests.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::kubectl::Kubectl;

/// A Node object without a kubelet; deleted when dropped.
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
        // Every new node gets it until a controller removes it, and there may be no controller.
        node.patch(&[], &serde_json::json!({"spec": {"taints": null}}));
        node
    }

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
        // The API server may already be gone.
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

/// A kubeconfig whose user has a token in a file, like a pod.
pub(crate) struct TokenKubeconfig {
    directory: TempDir,
}

impl TokenKubeconfig {
    pub(super) fn new(url: &str, ca: &Path, token: &str) -> Self {
        let bearer = Self { directory: tempfile::tempdir().unwrap() };
        bearer.set_token(token);
        // JSON is valid YAML.
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": ca}}],
            "users": [{"name": "bearer", "user": {"tokenFile": bearer.token()}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "bearer"}}],
        });
        std::fs::write(bearer.path(), config.to_string()).unwrap();
        bearer
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Replaces the token in the same file atomically.
    pub(crate) fn set_token(&self, token: &str) {
        let draft = self.directory.path().join("draft");
        std::fs::write(&draft, token).unwrap();
        std::fs::rename(draft, self.token()).unwrap();
    }

    fn token(&self) -> PathBuf {
        self.directory.path().join("token")
    }
}
