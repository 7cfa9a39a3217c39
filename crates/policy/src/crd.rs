//! The custom resource definition, generated from [`PolicySpec`] and [`PolicyStatus`].
//!
//! The schema of a custom resource is structural: without references, and with one type per field. Source: Kubernetes, "Specifying
//! a structural schema". The rules in CEL express the limits that a schema cannot.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::{PartialSchema, ToSchema};

use crate::spec::PolicySpec;
use crate::status::PolicyStatus;

/// API group.
pub const GROUP: &str = "octavo.dev";
/// API version.
pub const VERSION: &str = "v1alpha1";
/// Kind.
pub const KIND: &str = "AcceleratorPolicy";
/// Plural name of the kind.
pub const PLURAL: &str = "acceleratorpolicies";

/// Pattern of a duration.
const DURATION: &str = "^([0-9]+h)?([0-9]+m)?([0-9]+s)?$";
/// Pattern of the value of a label. Source: Kubernetes, "Labels and Selectors".
const LABEL_VALUE: &str = "^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$";
/// Pattern of the name of a layout, which is a value of a label.
const LAYOUT: &str = "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$";
/// Keys that a policy cannot set, as a CEL expression of `k`. Equal to [`crate::validation::is_reserved`].
const RESERVED: &str = "k.startsWith('octavo.dev/') || k.contains('.octavo.dev/') || k.startsWith('nvidia.com/mig.config') \
     || ((k.startsWith('kubernetes.io/') || k.contains('.kubernetes.io/')) && !k.startsWith('node-role.kubernetes.io/')) \
     || k.startsWith('k8s.io/') || k.contains('.k8s.io/') \
     || k in ['node-role.kubernetes.io/control-plane', 'node-role.kubernetes.io/master']";

/// Returns the definition.
pub fn definition() -> Value {
    let spec = with_limits(structural::<PolicySpec>());
    let status = with_status_limits(structural::<PolicyStatus>());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{PLURAL}.{GROUP}"),
            // Without the definition, all policies would be deleted. Their nodes would keep labels, taints and layouts.
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"kind": KIND, "listKind": format!("{KIND}List"), "plural": PLURAL, "singular": "acceleratorpolicy", "shortNames": ["apol"], "categories": ["octavo"]},
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns(),
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "Layout, labels and taints of a set of nodes, and their roll-out.",
                    "required": ["spec"],
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": spec,
                        "status": status,
                    },
                    "x-kubernetes-validations": [
                        rule("size(self.metadata.name) <= 63", "the name of a policy has at most 63 characters"),
                    ],
                }},
            }],
        },
    })
}

fn columns() -> Value {
    let column =
        |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    json!([
        column("Layout", "string", ".spec.layout"),
        column("Demand", "string", ".spec.demand.mode"),
        column("Nodes", "integer", ".status.nodes.selected"),
        column("Applied", "integer", ".status.nodes.applied"),
        column("Updating", "integer", ".status.nodes.updating"),
        column("Failed", "integer", ".status.nodes.failed"),
        column("State", "string", ".status.state"),
        column("Age", "date", ".metadata.creationTimestamp"),
        {"name": "Waits for", "type": "string", "jsonPath": ".status.waitsFor", "priority": 1},
    ])
}

fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

/// Adds the limits and rules of the spec.
fn with_limits(mut spec: Value) -> Value {
    let rules = [
        rule(
            "has(self.layout) || has(self.demand) || (has(self.nodeLabels) && size(self.nodeLabels) > 0) || (has(self.taints) && size(self.taints) > 0)",
            "set at least one of layout, demand, nodeLabels and taints",
        ),
        rule(
            "!has(self.nodeLabels) || !has(self.nodeSelector.matchLabels) || self.nodeLabels.all(k, !(k in self.nodeSelector.matchLabels))",
            "nodeLabels cannot contain a label of the policy's own nodeSelector",
        ),
        rule(
            "!has(self.nodeLabels) || !has(self.nodeSelector.matchExpressions) \
             || self.nodeSelector.matchExpressions.all(e, !(e.key in self.nodeLabels))",
            "nodeLabels cannot contain a label of the policy's own nodeSelector",
        ),
        rule("!has(self.drain) || has(self.layout)", "a drain requires a layout"),
        rule("!has(self.demand) || !has(self.layout)", "a policy has either a layout or demand"),
        rule(
            "!has(self.demand) || !has(self.rollout) || !has(self.rollout.onFailure) || self.rollout.onFailure == 'Pause'",
            "with demand, onFailure must be Pause",
        ),
    ];
    limit(&mut spec, "", json!({"x-kubernetes-validations": rules}));
    limit(&mut spec, "layout", json!({"minLength": 1, "maxLength": 63, "pattern": LAYOUT}));
    let reserved =
        rule("!self.startsWith('demand-')", "names that begin with demand- are reserved");
    limit(&mut spec, "layout", json!({"x-kubernetes-validations": [reserved]}));
    limit(&mut spec, "revisionHistoryLimit", json!({"minimum": 1, "maximum": 20, "default": 10}));
    limit_keys(&mut spec);
    limit_drain(&mut spec);
    limit_demand(&mut spec);
    limit_selector(&mut spec);
    limit_rollout(&mut spec);
    spec
}

fn limit_keys(spec: &mut Value) {
    let reserved =
        "keys of octavo.dev, kubernetes.io, k8s.io and nvidia.com/mig.config are reserved";
    let rules = [
        rule(&format!("self.all(k, !({RESERVED}))"), reserved),
        rule("self.all(k, size(k) <= 317)", "the key of a label has at most 317 characters"),
    ];
    limit(spec, "nodeLabels", json!({"maxProperties": 32, "x-kubernetes-validations": rules}));
    limit(spec, "nodeLabels.*", json!({"maxLength": 63, "pattern": LABEL_VALUE}));
    let rules = [rule(&format!("self.map(t, t.key).all(k, !({RESERVED}))"), reserved)];
    let list = json!({
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["key", "effect"],
        "x-kubernetes-validations": rules,
    });
    limit(spec, "taints", list);
    limit(spec, "taints[].key", json!({"minLength": 1, "maxLength": 317}));
    limit(spec, "taints[].value", json!({"maxLength": 63, "pattern": LABEL_VALUE}));
}

fn limit_selector(spec: &mut Value) {
    let rules = [rule(
        "(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
        "select nodes by at least one label",
    )];
    limit(spec, "nodeSelector", json!({"x-kubernetes-validations": rules}));
    limit(spec, "nodeSelector.matchLabels", json!({"maxProperties": 16}));
    limit(spec, "nodeSelector.matchLabels.*", json!({"maxLength": 63}));
    limit(spec, "nodeSelector.matchExpressions", json!({"maxItems": 16}));
    let expression = "nodeSelector.matchExpressions[]";
    limit(spec, expression, json!({"required": ["key", "operator"]}));
    limit(spec, &format!("{expression}.key"), json!({"minLength": 1, "maxLength": 317}));
    limit(
        spec,
        &format!("{expression}.operator"),
        json!({"enum": ["In", "NotIn", "Exists", "DoesNotExist"]}),
    );
    limit(spec, &format!("{expression}.values"), json!({"maxItems": 64}));
    limit(spec, &format!("{expression}.values[]"), json!({"maxLength": 63}));
}

fn limit_drain(spec: &mut Value) {
    limit(spec, "drain.scope", json!({"enum": ["never", "affected", "node"]}));
    let positive = rule("duration(self) > duration('0s')", "use at least 1s");
    let timeout = json!({
        "maxLength": 16,
        "minLength": 2,
        "pattern": DURATION,
        "default": "10m",
        "x-kubernetes-validations": [positive],
    });
    limit(spec, "drain.timeout", timeout);
}

fn limit_demand(spec: &mut Value) {
    let duration = json!({"maxLength": 16, "minLength": 2, "pattern": DURATION});
    let positive = [rule("duration(self) > duration('0s')", "use at least 1s")];
    for field in ["hold", "cooldown", "reserveAfter"] {
        limit(spec, &format!("demand.{field}"), duration.clone());
        limit(spec, &format!("demand.{field}"), json!({"x-kubernetes-validations": positive}));
    }
    limit(spec, "demand.hold", json!({"default": "1m"}));
    limit(spec, "demand.cooldown", json!({"default": "30m"}));
    limit(spec, "demand.changesPerHour", json!({"minimum": 1, "maximum": 60, "default": 12}));
    limit(spec, "demand.evictionsPerHour", json!({"minimum": 0, "maximum": 60, "default": 0}));
    limit(spec, "demand.mode", json!({"default": "Observe"}));
}

fn limit_rollout(spec: &mut Value) {
    let rules = [rule(
        "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
        "use at least 1, or a percentage from 1% to 100%",
    )];
    let budget = json!({
        "x-kubernetes-int-or-string": true,
        "default": 1,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-validations": rules,
    });
    limit(spec, "rollout.maxUnavailable", budget);
    // A type excludes the others.
    if let Some(Value::Object(budget)) = spec.pointer_mut(&pointer("rollout.maxUnavailable")) {
        budget.remove("type");
    }
    let duration = json!({"maxLength": 16, "minLength": 2, "pattern": DURATION});
    limit(spec, "rollout.pause", duration.clone());
    limit(spec, "rollout.nodeDeadline", duration.clone());
    let positive = rule("duration(self) > duration('0s')", "use at least 1s");
    let deadline = json!({"default": "30m", "x-kubernetes-validations": [positive]});
    limit(spec, "rollout.nodeDeadline", deadline);
    limit(spec, "rollout.maxFailures", json!({"minimum": 0, "maximum": 100, "default": 0}));
    limit(spec, "rollout.onFailure", json!({"default": "Pause"}));
    limit(spec, "rollout.paused", json!({"default": false}));
    limit(spec, "rollout.windows", json!({"maxItems": 16}));
    let days = json!({"maxItems": 7, "x-kubernetes-list-type": "set"});
    limit(spec, "rollout.windows[].days", days);
    let start = json!({"maxLength": 5, "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"});
    limit(spec, "rollout.windows[].start", start);
    let rules = [rule(
        "duration(self) > duration('0s') && duration(self) <= duration('24h')",
        "a window is open for at most 24h",
    )];
    limit(spec, "rollout.windows[].duration", duration);
    limit(spec, "rollout.windows[].duration", json!({"x-kubernetes-validations": rules}));
    limit(spec, "rollout.windows[].timeZone", json!({"maxLength": 64}));
}

/// Adds the list types of the status.
fn with_status_limits(mut status: Value) -> Value {
    let list = json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]});
    limit(&mut status, "conditions", list);
    status
}

/// Adds keywords to the schema of a field. A test compares the definition, so a misspelled field is found.
fn limit(schema: &mut Value, field: &str, limits: Value) {
    if let (Some(Value::Object(field)), Value::Object(limits)) =
        (schema.pointer_mut(&pointer(field)), limits)
    {
        field.extend(limits);
    }
}

/// JSON pointer to the schema of a field such as `taints[].key`; `*` is the value of a map.
fn pointer(field: &str) -> String {
    let segments = field.split('.').filter(|segment| !segment.is_empty());
    segments.fold(String::new(), |path, segment| match segment.strip_suffix("[]") {
        _ if segment == "*" => format!("{path}/additionalProperties"),
        Some(list) => format!("{path}/properties/{list}/items"),
        None => format!("{path}/properties/{segment}"),
    })
}

/// The structural schema of a type.
fn structural<T: ToSchema + PartialSchema>() -> Value {
    let mut named = Vec::new();
    T::schemas(&mut named);
    let named = named.into_iter();
    let named: BTreeMap<String, Value> = named
        .filter_map(|(name, schema)| Some((name, serde_json::to_value(schema).ok()?)))
        .collect();
    let root = serde_json::to_value(T::schema()).unwrap_or_default();
    inline(&root, &named)
}

/// Replaces references by their targets, and the notations of OpenAPI 3.1 by those of structural schemas.
fn inline(schema: &Value, named: &BTreeMap<String, Value>) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let mut result = Map::new();
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("$ref", Value::String(path)) => {
                let name = path.rsplit('/').next().unwrap_or_default();
                if let Value::Object(target) =
                    inline(named.get(name).unwrap_or(&Value::Null), named)
                {
                    for (key, value) in target {
                        result.entry(key).or_insert(value);
                    }
                }
            }
            // A nullable reference, or a flattened or documented one.
            ("oneOf" | "allOf" | "anyOf", Value::Array(all)) => {
                for one in
                    all.iter().filter(|one| one.get("type").is_none_or(|kind| kind != "null"))
                {
                    merge(&mut result, inline(one, named));
                }
            }
            ("type", Value::Array(types)) => {
                let kind = types.iter().find(|kind| *kind != "null");
                result.insert("type".to_owned(), kind.cloned().unwrap_or_default());
            }
            ("properties", Value::Object(all)) => {
                let all = all.iter().map(|(name, field)| (name.clone(), inline(field, named)));
                merge(&mut result, json!({"properties": all.collect::<Map<_, _>>()}));
            }
            ("items" | "additionalProperties", _) => {
                result.insert(key.clone(), inline(value, named));
            }
            (
                "propertyNames" | "example" | "examples" | "format" | "title" | "default"
                | "minimum",
                _,
            ) => {}
            _ => {
                result.insert(key.clone(), value.clone());
            }
        }
    }
    if result.get("format").is_none()
        && fields.get("format").is_some_and(|format| format == "date-time")
    {
        result.insert("format".to_owned(), json!("date-time"));
    }
    Value::Object(result)
}

/// Adds the properties and required fields of another schema of the same object.
fn merge(result: &mut Map<String, Value>, other: Value) {
    let Value::Object(other) = other else { return };
    for (key, value) in other {
        match (result.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
            (Some(Value::Array(known)), Value::Array(more)) => known.extend(more),
            (Some(_), _) => {}
            (None, value) => {
                result.insert(key, value);
            }
        }
    }
}
