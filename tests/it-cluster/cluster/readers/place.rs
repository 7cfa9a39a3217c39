//! Accounts with one role each, and an aggregator that reviews them.

use serde_json::{Value, json};

use crate::cluster::Api;
use crate::cluster::objects::TokenKubeconfig;
use crate::fleet_api::Api as Readers;
use crate::machine::Machine;
use crate::process::{Aggregator, Program};
use crate::time_limits::until_async;

const H100: &str = "{machine: h100, driver: 570.133.20, gpus: [{board: H100_80GB_SXM}]}";
const A100: &str = "{machine: a100, driver: 570.133.20, gpus: [{board: A100_80GB}]}";
pub(super) const H100_TYPE: &str = "nvidia-h100-80gb";
pub(super) const A100_TYPE: &str = "nvidia-a100-80gb";

/// A namespace with accounts that have one role each.
pub(super) struct ReaderNamespace<'a> {
    cluster: &'a Api,
    pub(super) namespace: String,
    /// Credentials of the aggregator.
    pub(super) asks: TokenKubeconfig,
}

/// An aggregator that authorizes readers with the cluster, and two nodes that report to it.
pub(super) struct Site {
    pub(super) aggregator: Aggregator,
    _agents: [(Program, Machine); 2],
    pub(super) readers: Readers,
}

fn rule(resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": ["octavo.dev"], "resources": resources, "verbs": verbs})
}

impl<'a> ReaderNamespace<'a> {
    pub(super) fn new(cluster: &'a Api) -> Self {
        let namespace = cluster.namespace();
        let place = Self { asks: cluster.kubeconfig_with_token("none yet"), cluster, namespace };
        let reviews = |group: &str, resource: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": ["create"]});
        place.gives(
            "aggregator",
            &[
                reviews("authentication.k8s.io", "tokenreviews"),
                reviews("authorization.k8s.io", "subjectaccessreviews"),
            ],
        );
        let all = ["get", "list", "watch"];
        place.gives("nobody", &[]);
        place.gives("viewer", &[rule(&["acceleratortypes"], &all)]);
        place.gives(
            "admin",
            &[
                rule(&["acceleratortypes", "auditentries", "nodes", "usage"], &all),
                json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}),
            ],
        );
        place.gives("scraper", &[json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]})]);
        let mut some = rule(&["acceleratortypes"], &["get"]);
        some["resourceNames"] = json!([H100_TYPE, "nvidia-t4-16gb"]);
        let mut one = rule(&["nodes"], &["get"]);
        one["resourceNames"] = json!(["node-a"]);
        place.gives("some", &[some, one]);
        place.gives("team", &[]);
        place.gives_in_namespace("team", &rule(&["usage"], &["list"]));
        place.asks.set_token(&place.token("aggregator"));
        place
    }

    /// An account with these rules in the whole cluster.
    fn gives(&self, account: &str, rules: &[Value]) {
        let namespace = &self.namespace;
        let name = format!("{namespace}-{account}");
        let objects = [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace}}),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
            }),
        ];
        let objects = objects.map(|object| object.to_string());
        self.cluster.apply(&objects.join("\n---\n"));
    }

    fn gives_in_namespace(&self, account: &str, rule: &Value) {
        let of = json!({"name": account, "namespace": self.namespace});
        let objects = [
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": of, "rules": [rule]}),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": of,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}],
            }),
        ];
        let objects = objects.map(|object| object.to_string());
        self.cluster.apply(&objects.join("\n---\n"));
    }

    pub(super) fn token(&self, account: &str) -> String {
        let token = ["create", "token", account, "-n", &self.namespace];
        self.cluster.kubectl(&token).trim_end().to_owned()
    }

    /// The RBAC user name of an account.
    pub(super) fn user(&self, account: &str) -> String {
        format!("system:serviceaccount:{}:{account}", self.namespace)
    }

    pub(super) async fn site(&self, auth: &[&str]) -> Site {
        let kubeconfig = format!("--kubeconfig={}", self.asks.path().display());
        let arguments = [&["--plaintext", &kubeconfig, "--log-level=trace"], auth].concat();
        let aggregator = Aggregator::start(&arguments);
        let agents = [("node-a", H100), ("node-b", A100)].map(|(name, machine)| {
            let machine = Machine::new(machine);
            let to = format!("--aggregator=http://{}", aggregator.grpc);
            let name = format!("--node-name={name}");
            let mut agent = machine.agent(&["--aggregator-plaintext", "--interval=1s", &to, &name]);
            agent.expect_log("reporting to the aggregator aggregator=http://");
            (agent, machine)
        });
        let readers = Readers::at(aggregator.http);
        let site = Site { readers, aggregator, _agents: agents };
        // Roles take effect with a delay, and nodes appear after their report.
        let admin = site.as_who(&self.token("admin"));
        let types = async || admin.get("/api/v1/types").await;
        until_async("types of both nodes", types, |answer| {
            answer.status == 200 && answer.json()["items"].as_array().unwrap().len() == 2
        })
        .await;
        site
    }
}

impl Site {
    /// A reader with this token.
    pub(super) fn as_who(&self, token: &str) -> Readers {
        self.readers.with_header(&format!("Authorization: Bearer {token}"))
    }
}
