//! Admission policies and their bindings. The expressions use only functions that Kubernetes 1.30 has.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ParamKind, ParamRef,
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation, Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::{NAME, Subject};
use crate::kueue::NAMESPACE_LABEL;
use crate::manifest::{Manifest, named};

/// Kinds of objects with a policy each.
const PODS: &str = "pods";
const CLAIMS: &str = "claims";

/// Pods: all containers, and the resources that they request. A request of 0 is a default of a `LimitRange`.
const POD_VARIABLES: [(&str, &str); 4] = [
    (
        "containers",
        "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])",
    ),
    ("types", "params.data.types.split(',')"),
    (
        "forbidden",
        "params.data.forbidden.split(',').filter(name, variables.containers.exists(c, \
         has(c.resources) && has(c.resources.limits) && name in c.resources.limits && \
         string(c.resources.limits[name]) != '0'))",
    ),
    (
        "selected",
        "params.data.selected.split(',').filter(name, variables.containers.exists(c, \
         has(c.resources) && has(c.resources.limits) && name in c.resources.limits && \
         string(c.resources.limits[name]) != '0'))",
    ),
];
/// The pod selects only nodes of allowed types.
const SELECTS_TYPE: &str = "variables.selected.size() == 0 || (has(object.spec.nodeSelector) && \
     'octavo.dev/type' in object.spec.nodeSelector && object.spec.nodeSelector['octavo.dev/type'] in \
     variables.types) || (has(object.spec.affinity) && has(object.spec.affinity.nodeAffinity) && \
     has(object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution) && \
     object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms\
     .all(term, has(term.matchExpressions) && term.matchExpressions.exists(one, one.key == \
     'octavo.dev/type' && one.operator == 'In' && one.values.all(value, value in variables.types))))";
/// Claims: classes of accelerators among the requests of a claim or of its template.
const CLAIM_VARIABLES: [(&str, &str); 4] = [
    ("spec", "has(object.spec.spec) ? object.spec.spec : object.spec"),
    (
        "requests",
        "has(variables.spec.devices) && has(variables.spec.devices.requests) ? \
         variables.spec.devices.requests : []",
    ),
    ("allowed", "params.data.classes.split(',')"),
    (
        "refused",
        "variables.requests.filter(one, (has(one.exactly) ? [one.exactly.deviceClassName] : \
         (has(one.firstAvailable) ? one.firstAvailable.map(each, each.deviceClassName) : []))\
         .exists(class, (class.endsWith('.octavo.dev') || class.endsWith('.nvidia.com')) && !(class in \
         variables.allowed)))",
    ),
];

/// Policies on pods and on claims.
pub(super) fn policies() -> Vec<Manifest> {
    let forbidden = Validation {
        expression: "variables.forbidden.size() == 0".to_owned(),
        message_expression: Some(
            "'the namespace ' + request.namespace + ' must not use ' + variables.forbidden.join(', ') + \
             '; allowed accelerator types: ' + params.data.types"
                .to_owned(),
        ),
        ..Validation::default()
    };
    let selects = Validation {
        expression: SELECTS_TYPE.to_owned(),
        message_expression: Some(
            "'several accelerator types offer ' + variables.selected.join(', ') + '; select nodes by \
             octavo.dev/type with one that the namespace ' + request.namespace + ' may use: ' + \
             params.data.types"
                .to_owned(),
        ),
        ..Validation::default()
    };
    let refused = Validation {
        expression: "variables.refused.size() == 0".to_owned(),
        message_expression: Some(
            "'requests ' + variables.refused.map(one, one.name).join(', ') + ': the namespace ' + \
             request.namespace + ' may use only these classes of accelerators: ' + params.data.classes"
                .to_owned(),
        ),
        ..Validation::default()
    };
    // The scheduler creates claims for pods with extended resources, which the other policy checks.
    let by_users = MatchCondition {
        name: "not-the-scheduler".to_owned(),
        expression: "request.userInfo.username != 'system:kube-scheduler'".to_owned(),
    };
    let claims = &["resourceclaims", "resourceclaimtemplates"];
    vec![
        policy(
            CLAIMS,
            ("resource.k8s.io", claims),
            &CLAIM_VARIABLES,
            vec![refused],
            vec![by_users],
        ),
        policy(PODS, ("", &["pods"]), &POD_VARIABLES, vec![forbidden, selects], Vec::new()),
    ]
}

fn policy(
    kind: &str,
    (group, resources): (&str, &[&str]),
    variables: &[(&str, &str)],
    validations: Vec<Validation>,
    conditions: Vec<MatchCondition>,
) -> Manifest {
    let variables = variables.iter().map(|(name, expression)| Variable {
        name: (*name).to_owned(),
        expression: (*expression).to_owned(),
    });
    let rule = NamedRuleWithOperations {
        api_groups: Some(vec![group.to_owned()]),
        api_versions: Some(vec!["v1".to_owned()]),
        operations: Some(vec!["CREATE".to_owned()]),
        resources: Some(resources.iter().map(ToString::to_string).collect()),
        ..NamedRuleWithOperations::default()
    };
    let param =
        ParamKind { api_version: Some("v1".to_owned()), kind: Some("ConfigMap".to_owned()) };
    Manifest::AdmissionPolicy(Box::new(ValidatingAdmissionPolicy {
        metadata: named(&policy_name(kind)),
        spec: Some(ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            match_conditions: Some(conditions).filter(|all| !all.is_empty()),
            match_constraints: Some(MatchResources {
                resource_rules: Some(vec![rule]),
                ..MatchResources::default()
            }),
            param_kind: Some(param),
            validations: Some(validations),
            variables: Some(variables.collect()),
            ..ValidatingAdmissionPolicySpec::default()
        }),
        status: None,
    }))
}

fn policy_name(kind: &str) -> String {
    format!("{NAME}-{kind}")
}

/// Bindings of both policies. They apply to the namespace, or to all except `excluded`.
pub(super) fn bindings(
    subject: &Subject<'_>,
    excluded: &[&str],
    parameters: &str,
) -> Vec<Manifest> {
    let (operator, names) = match subject.namespace {
        Some(name) => ("In", vec![name.to_owned()]),
        None => ("NotIn", excluded.iter().map(ToString::to_string).collect()),
    };
    let selector = LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: NAMESPACE_LABEL.to_owned(),
            operator: operator.to_owned(),
            values: Some(names),
        }]),
        match_labels: None,
    };
    let binding = |kind: &str| {
        let spec = ValidatingAdmissionPolicyBindingSpec {
            match_resources: Some(MatchResources {
                namespace_selector: Some(selector.clone()),
                ..MatchResources::default()
            }),
            param_ref: Some(ParamRef {
                name: Some(subject.name.clone()),
                namespace: Some(parameters.to_owned()),
                parameter_not_found_action: Some("Deny".to_owned()),
                selector: None,
            }),
            policy_name: Some(policy_name(kind)),
            validation_actions: Some(vec!["Deny".to_owned(), "Audit".to_owned()]),
        };
        let name = subject.namespace.map(|name| format!("-{name}")).unwrap_or_default();
        let metadata = named(&format!("{}{name}", policy_name(kind)));
        Manifest::AdmissionPolicyBinding(Box::new(ValidatingAdmissionPolicyBinding {
            metadata,
            spec: Some(spec),
        }))
    };
    [CLAIMS, PODS].map(binding).into()
}
