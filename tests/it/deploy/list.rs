//! The privileges that are meant, each with its reason in docs/permissions.md.

/// Every kustomization and what it asks for.
pub(super) const ALL: &[(&str, &[&str])] = &[
    ("agent", &[AGENT, NOT_ROOT]),
    (
        "base",
        &[RESTRICTED, ACCOUNTS, POLICIES, AGGREGATOR, ACCESS],
    ),
    ("options/drain", &[DRAIN]),
    ("options/nodefeature", &[NODE_FEATURE]),
    (
        "tiers/reporter",
        &[RESTRICTED, ACCOUNTS, POLICIES, AGGREGATOR, AGENT, NOT_ROOT],
    ),
    (
        "tiers/reader",
        &[
            RESTRICTED, ACCOUNTS, POLICIES, AGGREGATOR, ACCESS, AGENT, NOT_ROOT, READER,
        ],
    ),
    (
        "tiers/applier",
        &[
            PRIVILEGED, ACCOUNTS, POLICIES, AGGREGATOR, ACCESS, AGENT, READER, APPLIER,
        ],
    ),
];

const RESTRICTED: &str = "
    Namespace octavo-system: labels.pod-security.kubernetes.io/audit=restricted
    Namespace octavo-system: labels.pod-security.kubernetes.io/enforce=restricted
    Namespace octavo-system: labels.pod-security.kubernetes.io/warn=restricted
";

const PRIVILEGED: &str = "
    Namespace octavo-system: labels.pod-security.kubernetes.io/audit=privileged
    Namespace octavo-system: labels.pod-security.kubernetes.io/enforce=privileged
    Namespace octavo-system: labels.pod-security.kubernetes.io/warn=privileged
";

const ACCOUNTS: &str = "
    ServiceAccount octavo-agent: automountServiceAccountToken=false
    ServiceAccount octavo-aggregator: automountServiceAccountToken=false
";

/// That they bind, and whom.
const POLICIES: &str = "
    ValidatingAdmissionPolicy octavo-agent: failurePolicy=Fail
    ValidatingAdmissionPolicy octavo-agent: matches of-the-agent.expression=request.userInfo.username == 'system:serviceaccount:octavo-system:octavo-agent'
    ValidatingAdmissionPolicy octavo-agent-events: failurePolicy=Fail
    ValidatingAdmissionPolicy octavo-agent-events: matches of-the-agent.expression=request.userInfo.username == 'system:serviceaccount:octavo-system:octavo-agent'
    ValidatingAdmissionPolicyBinding octavo-agent: spec.policyName=octavo-agent
    ValidatingAdmissionPolicyBinding octavo-agent: spec.validationActions=Audit
    ValidatingAdmissionPolicyBinding octavo-agent: spec.validationActions=Deny
    ValidatingAdmissionPolicyBinding octavo-agent-events: spec.policyName=octavo-agent-events
    ValidatingAdmissionPolicyBinding octavo-agent-events: spec.validationActions=Audit
    ValidatingAdmissionPolicyBinding octavo-agent-events: spec.validationActions=Deny
";

const AGGREGATOR: &str = r#"
    ClusterRole octavo-aggregator: create tokenreviews of "authentication.k8s.io" in ""
    ClusterRoleBinding octavo-aggregator: roleRef octavo-aggregator.apiGroup=rbac.authorization.k8s.io
    ClusterRoleBinding octavo-aggregator: roleRef octavo-aggregator.kind=ClusterRole
    ClusterRoleBinding octavo-aggregator: subjects octavo-aggregator.kind=ServiceAccount
    ClusterRoleBinding octavo-aggregator: subjects octavo-aggregator.namespace=octavo-system
    Deployment octavo-aggregator: aggregator mounts api at /var/run/secrets/kubernetes.io/serviceaccount ro
    Deployment octavo-aggregator: aggregator mounts tls at /etc/octavo/tls ro
    Deployment octavo-aggregator: aggregator securityContext.allowPrivilegeEscalation=false
    Deployment octavo-aggregator: aggregator securityContext.capabilities.drop=ALL
    Deployment octavo-aggregator: aggregator securityContext.readOnlyRootFilesystem=true
    Deployment octavo-aggregator: automountServiceAccountToken=false
    Deployment octavo-aggregator: securityContext.fsGroup=65532
    Deployment octavo-aggregator: securityContext.runAsGroup=65532
    Deployment octavo-aggregator: securityContext.runAsNonRoot=true
    Deployment octavo-aggregator: securityContext.runAsUser=65532
    Deployment octavo-aggregator: securityContext.seccompProfile.type=RuntimeDefault
    Deployment octavo-aggregator: serviceAccountName=octavo-aggregator
    Deployment octavo-aggregator: volume api.projected.sources.configMap kube-root-ca.crt.items.key=ca.crt
    Deployment octavo-aggregator: volume api.projected.sources.configMap kube-root-ca.crt.items.path=ca.crt
    Deployment octavo-aggregator: volume api.projected.sources.downwardAPI.items.fieldRef.apiVersion=v1
    Deployment octavo-aggregator: volume api.projected.sources.downwardAPI.items.fieldRef.fieldPath=metadata.namespace
    Deployment octavo-aggregator: volume api.projected.sources.downwardAPI.items.path=namespace
    Deployment octavo-aggregator: volume api.projected.sources.serviceAccountToken.expirationSeconds=3600
    Deployment octavo-aggregator: volume api.projected.sources.serviceAccountToken.path=token
    Deployment octavo-aggregator: volume tls.secret.secretName=octavo-aggregator-tls
"#;

/// Of agents that speak to the API server.
const ACCESS: &str = r#"
    ClusterRole octavo-agent: get nodes of "" in ""
    ClusterRole octavo-agent: list nodes of "" in ""
    ClusterRole octavo-agent: patch nodes of "" in ""
    ClusterRole octavo-agent: watch nodes of "" in ""
    ClusterRoleBinding octavo-agent: roleRef octavo-agent.apiGroup=rbac.authorization.k8s.io
    ClusterRoleBinding octavo-agent: roleRef octavo-agent.kind=ClusterRole
    ClusterRoleBinding octavo-agent: subjects octavo-agent.kind=ServiceAccount
    ClusterRoleBinding octavo-agent: subjects octavo-agent.namespace=octavo-system
    Role octavo-agent-events: create events of "" in "default"
    RoleBinding octavo-agent-events: roleRef octavo-agent-events.apiGroup=rbac.authorization.k8s.io
    RoleBinding octavo-agent-events: roleRef octavo-agent-events.kind=Role
    RoleBinding octavo-agent-events: subjects octavo-agent.kind=ServiceAccount
    RoleBinding octavo-agent-events: subjects octavo-agent.namespace=octavo-system
"#;

/// Of every agent.
const AGENT: &str = "
    DaemonSet octavo-agent: agent mounts aggregator-ca at /etc/octavo/aggregator ro
    DaemonSet octavo-agent: agent mounts aggregator-token at /var/run/secrets/octavo ro
    DaemonSet octavo-agent: agent securityContext.allowPrivilegeEscalation=false
    DaemonSet octavo-agent: agent securityContext.capabilities.drop=ALL
    DaemonSet octavo-agent: agent securityContext.readOnlyRootFilesystem=true
    DaemonSet octavo-agent: automountServiceAccountToken=false
    DaemonSet octavo-agent: securityContext.seccompProfile.type=RuntimeDefault
    DaemonSet octavo-agent: serviceAccountName=octavo-agent
    DaemonSet octavo-agent: volume aggregator-ca.configMap octavo-aggregator-ca.optional=true
    DaemonSet octavo-agent: volume aggregator-token.projected.sources.serviceAccountToken.audience=octavo
    DaemonSet octavo-agent: volume aggregator-token.projected.sources.serviceAccountToken.expirationSeconds=3600
    DaemonSet octavo-agent: volume aggregator-token.projected.sources.serviceAccountToken.path=token
";

const NOT_ROOT: &str = "
    DaemonSet octavo-agent: securityContext.fsGroup=65532
    DaemonSet octavo-agent: securityContext.runAsGroup=65532
    DaemonSet octavo-agent: securityContext.runAsNonRoot=true
    DaemonSet octavo-agent: securityContext.runAsUser=65532
";

/// What reading the driver and labelling a node add.
const READER: &str = "
    DaemonSet octavo-agent: runtimeClassName=nvidia
    DaemonSet octavo-agent: agent has NVIDIA_DRIVER_CAPABILITIES=utility
    DaemonSet octavo-agent: agent has NVIDIA_VISIBLE_DEVICES=all
    DaemonSet octavo-agent: agent mounts api at /var/run/secrets/kubernetes.io/serviceaccount ro
    DaemonSet octavo-agent: volume api.projected.sources.configMap kube-root-ca.crt.items.key=ca.crt
    DaemonSet octavo-agent: volume api.projected.sources.configMap kube-root-ca.crt.items.path=ca.crt
    DaemonSet octavo-agent: volume api.projected.sources.downwardAPI.items.fieldRef.apiVersion=v1
    DaemonSet octavo-agent: volume api.projected.sources.downwardAPI.items.fieldRef.fieldPath=metadata.namespace
    DaemonSet octavo-agent: volume api.projected.sources.downwardAPI.items.path=namespace
    DaemonSet octavo-agent: volume api.projected.sources.serviceAccountToken.expirationSeconds=3600
    DaemonSet octavo-agent: volume api.projected.sources.serviceAccountToken.path=token
";

/// What changing devices adds.
const APPLIER: &str = "
    DaemonSet octavo-agent: securityContext.runAsGroup=0
    DaemonSet octavo-agent: securityContext.runAsNonRoot=false
    DaemonSet octavo-agent: securityContext.runAsUser=0
    DaemonSet octavo-agent: agent has NVIDIA_MIG_CONFIG_DEVICES=all
    DaemonSet octavo-agent: agent has NVIDIA_MIG_MONITOR_DEVICES=all
    DaemonSet octavo-agent: agent securityContext.appArmorProfile.type=Unconfined
    DaemonSet octavo-agent: agent securityContext.capabilities.add=DAC_READ_SEARCH
    DaemonSet octavo-agent: agent securityContext.capabilities.add=SYS_ADMIN
    DaemonSet octavo-agent: agent securityContext.capabilities.add=SYS_PTRACE
    DaemonSet octavo-agent: agent mounts layouts at /etc/octavo/layouts ro
    DaemonSet octavo-agent: agent mounts pod-resources at /var/lib/kubelet/pod-resources ro
    DaemonSet octavo-agent: agent mounts proc at /host/proc ro
    DaemonSet octavo-agent: agent mounts state at /var/lib/octavo rw
    DaemonSet octavo-agent: volume layouts.configMap octavo-layouts
    DaemonSet octavo-agent: volume pod-resources.hostPath.path=/var/lib/kubelet/pod-resources
    DaemonSet octavo-agent: volume pod-resources.hostPath.type=Directory
    DaemonSet octavo-agent: volume proc.hostPath.path=/proc
    DaemonSet octavo-agent: volume proc.hostPath.type=Directory
    DaemonSet octavo-agent: volume state.hostPath.path=/var/lib/octavo
    DaemonSet octavo-agent: volume state.hostPath.type=DirectoryOrCreate
";

const DRAIN: &str = r#"
    ClusterRole octavo-drain: create pods/eviction of "" in ""
    ClusterRole octavo-drain: get pods of "" in ""
    ClusterRole octavo-drain: list pods of "" in ""
    ClusterRoleBinding octavo-drain: roleRef octavo-drain.apiGroup=rbac.authorization.k8s.io
    ClusterRoleBinding octavo-drain: roleRef octavo-drain.kind=ClusterRole
    ClusterRoleBinding octavo-drain: subjects octavo-agent.kind=ServiceAccount
    ClusterRoleBinding octavo-drain: subjects octavo-agent.namespace=octavo-system
"#;

const NODE_FEATURE: &str = r#"
    Role octavo-agent-nodefeature: create nodefeatures of "nfd.k8s-sigs.io" in "octavo-system"
    Role octavo-agent-nodefeature: delete nodefeatures of "nfd.k8s-sigs.io" in "octavo-system"
    Role octavo-agent-nodefeature: get nodefeatures of "nfd.k8s-sigs.io" in "octavo-system"
    Role octavo-agent-nodefeature: list nodefeatures of "nfd.k8s-sigs.io" in "octavo-system"
    Role octavo-agent-nodefeature: patch nodefeatures of "nfd.k8s-sigs.io" in "octavo-system"
    RoleBinding octavo-agent-nodefeature: roleRef octavo-agent-nodefeature.apiGroup=rbac.authorization.k8s.io
    RoleBinding octavo-agent-nodefeature: roleRef octavo-agent-nodefeature.kind=Role
    RoleBinding octavo-agent-nodefeature: subjects octavo-agent.kind=ServiceAccount
    RoleBinding octavo-agent-nodefeature: subjects octavo-agent.namespace=octavo-system
    ValidatingAdmissionPolicy octavo-agent-nodefeature: failurePolicy=Fail
    ValidatingAdmissionPolicy octavo-agent-nodefeature: matches of-the-agent.expression=request.userInfo.username == 'system:serviceaccount:octavo-system:octavo-agent'
    ValidatingAdmissionPolicyBinding octavo-agent-nodefeature: spec.policyName=octavo-agent-nodefeature
    ValidatingAdmissionPolicyBinding octavo-agent-nodefeature: spec.validationActions=Audit
    ValidatingAdmissionPolicyBinding octavo-agent-nodefeature: spec.validationActions=Deny
"#;
