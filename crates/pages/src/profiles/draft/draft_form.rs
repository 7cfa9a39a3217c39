//! Fields of the form of a new profile, parsed from an address or a form, and converted to an API request and to
//! commands.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Uri;
use octavo_fleet::hardware_profile::create_request::{MAX_NODES, ProfileOrder};
use octavo_fleet::hardware_profile::{
    Count, CountField, CountOverride, Draft, DraftRequest, Identifier, NO_TAINT, Scheduling,
};
use octavo_model::text::shell_word;

use crate::address::query_pairs;
use crate::badges::{capitalize, printable};

/// Maximum length of a command. Linux passes at most 128 KiB in one argument of a program (`MAX_ARG_STRLEN`).
const MAX_COMMAND_BYTES: usize = 120 << 10;

/// Fields of the form.
#[derive(Debug, Default)]
pub(super) struct DraftForm {
    pub(super) nodes: BTreeSet<String>,
    pub(super) name: String,
    pub(super) display_name: String,
    pub(super) namespace: String,
    pub(super) type_name: String,
    pub(super) resource: String,
    pub(super) reason: String,
    pub(super) replace: bool,
    /// By resource.
    pub(super) counts: BTreeMap<String, CountOverride>,
    pub(super) tolerate: Option<BTreeSet<String>>,
    /// Requested action: `dry-run`, `create`, or none.
    pub(super) action: String,
}

impl DraftForm {
    /// Parses the query of an address.
    pub(super) fn parse_address(uri: &Uri) -> Result<Self, String> {
        let pairs = query_pairs(uri);
        Self::parse_pairs(pairs.ok_or("The address has an invalid encoding.")?)
    }

    /// Parses form fields.
    pub(super) fn parse_pairs(pairs: Vec<(String, String)>) -> Result<Self, String> {
        let mut form = Self::default();
        for (name, value) in pairs {
            let value = value.trim().to_owned();
            if !value.is_empty() {
                form.take(&name, value)?;
            }
        }
        Ok(form)
    }

    fn take(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            // Check boxes send `node`, the API takes `nodes`.
            "node" | "nodes" => {
                self.nodes.extend(value.split(',').map(str::to_owned));
                // Everything parsed is rendered again, each name several times.
                if self.nodes.len() > MAX_NODES {
                    return Err(format!("Select at most {MAX_NODES} nodes."));
                }
            }
            "name" => self.name = value,
            "displayName" => self.display_name = value,
            "namespace" => self.namespace = value,
            "type" => self.type_name = value,
            "resource" => self.resource = value,
            "reason" => self.reason = value,
            "replace" => self.replace = true,
            "do" => self.action = value,
            "tolerate" => {
                let named = value.split(',').map(str::to_owned);
                self.tolerate.get_or_insert_default().extend(named);
            }
            "counts" => {
                for text in value.split(',') {
                    let counts: CountOverride =
                        text.parse().map_err(|error| format!("{error}."))?;
                    self.counts.insert(counts.resource.clone(), counts);
                }
            }
            _ => self.count(name, value)?,
        }
        Ok(())
    }

    /// Parses fields such as `min:nvidia.com/gpu`.
    fn count(&mut self, name: &str, value: String) -> Result<(), String> {
        let unknown = || format!("Unknown parameter {:?}.", printable(name));
        let (part, resource) = name.split_once(':').ok_or_else(unknown)?;
        let entry = self.counts.entry(resource.to_owned());
        let counts = entry.or_insert_with(|| CountOverride {
            resource: resource.to_owned(),
            ..CountOverride::default()
        });
        match part {
            "min" => counts.min = Some(value),
            "default" => counts.default = Some(value),
            "max" => counts.max = Some(value),
            _ => return Err(unknown()),
        }
        Ok(())
    }

    /// Converts the fields to an API request.
    pub(super) fn to_request(&self) -> ProfileOrder {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ProfileOrder {
            nodes: self.nodes.iter().cloned().collect(),
            type_name: given(&self.type_name),
            resource: given(&self.resource),
            name: given(&self.name),
            namespace: given(&self.namespace),
            display_name: given(&self.display_name),
            counts: self.counts.values().cloned().collect(),
            tolerations: self.tolerate.as_ref().map(|all| all.iter().cloned().collect()),
            reason: given(&self.reason),
            replace: self.replace,
        }
    }

    /// Converts the fields to the wish that the draft is created from. The error is a message for the user.
    pub(super) fn request(&self) -> Result<DraftRequest, String> {
        if self.nodes.is_empty() && self.type_name.is_empty() {
            return Err("No nodes are selected. Select nodes in the list of nodes.".to_owned());
        }
        let request = self.to_request().draft_request();
        request.map_err(|error| {
            let problem = capitalize(&error.problem);
            match error.field {
                "reason" => format!("Invalid reason: {}.", error.problem),
                "displayName" => format!("Invalid display name: {}.", error.problem),
                _ => format!("{problem}."),
            }
        })
    }

    /// Fills empty fields from the draft, and drops counts and taints that are equal to the draft's own.
    pub(super) fn prefill(&mut self, drafted: &Draft) {
        let profile = &drafted.profile;
        let or = |entered: &mut String, drafted: &str| {
            if entered.is_empty() {
                drafted.clone_into(entered);
            }
        };
        or(&mut self.name, &profile.key.name);
        or(&mut self.namespace, &profile.key.namespace);
        or(&mut self.display_name, profile.shown());
        for one in &profile.identifiers {
            if let Some(counts) = self.counts.get_mut(&one.resource) {
                let drop_default = |entered: &mut Option<String>, drafted: &str| {
                    *entered = entered.take().filter(|text| text != drafted);
                };
                drop_default(&mut counts.min, &one.min.text);
                drop_default(&mut counts.default, &one.default.text);
                drop_default(&mut counts.max, text(one.max.as_ref()));
            }
        }
        self.counts.retain(|_, counts| {
            counts.min.is_some() || counts.default.is_some() || counts.max.is_some()
        });
        let own = tolerated(drafted);
        let entered = self.tolerate.take();
        self.tolerate = entered.filter(|entered| {
            let entered: BTreeSet<&String> =
                entered.iter().filter(|one| *one != NO_TAINT).collect();
            entered != own.iter().collect()
        });
    }

    /// The chosen fields, by their names in the API.
    pub(super) fn pairs(&self) -> Vec<(&'static str, String)> {
        let joined = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(",");
        let tolerate = self.tolerate.as_ref().map(|all| {
            let mut named = all.iter().filter(|one| *one != NO_TAINT).cloned();
            let named = joined(&mut named);
            if named.is_empty() { NO_TAINT.to_owned() } else { named }
        });
        let all = [
            ("nodes", joined(&mut self.nodes.iter().cloned())),
            ("type", self.type_name.clone()),
            ("resource", self.resource.clone()),
            ("name", self.name.clone()),
            ("namespace", self.namespace.clone()),
            ("displayName", self.display_name.clone()),
            ("counts", joined(&mut self.counts.values().map(ToString::to_string))),
            ("tolerate", tolerate.unwrap_or_default()),
        ];
        let given = all.into_iter();
        given.filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Command that creates the profile with the reader's own kubeconfig and without `octavo`.
    pub(super) fn curl_command(&self, origin: &str) -> String {
        let order = ProfileOrder {
            // These fields only apply to profiles that the aggregator creates.
            reason: None,
            replace: false,
            ..self.to_request()
        };
        let document = serde_json::to_string(&order).unwrap_or_default();
        let address = shell_word(&format!("{origin}/api/v1/profile-draft"));
        self.or_too_long(format!(
            "curl -sf -H 'Content-Type: application/json' -d {} {address} | jq .profile | kubectl create -f -",
            shell_word(&document)
        ))
    }

    /// Command that creates the profile with the reader's own kubeconfig.
    pub(super) fn octavo_command(&self, origin: &str) -> String {
        let flags = self.pairs().into_iter().map(|(name, value)| {
            let flag = match name {
                "nodes" => "from-nodes",
                "displayName" => "display-name",
                other => other,
            };
            format!(" --{flag} {}", shell_word(&value))
        });
        let reason = Some(&self.reason).filter(|reason| !reason.is_empty());
        let reason = reason.map(|reason| format!(" --reason {}", shell_word(reason)));
        let replace = self.replace.then(|| " --replace".to_owned());
        let flags: String = flags.chain(reason).chain(replace).collect();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._/:".contains(c);
        let server =
            if origin.chars().all(is_plain) { origin.to_owned() } else { shell_word(origin) };
        self.or_too_long(format!("octavo profiles create --server {server}{flags}"))
    }

    /// Returns the command, or a shell comment that explains why it is too long.
    fn or_too_long(&self, command: String) -> String {
        if command.len() <= MAX_COMMAND_BYTES {
            return command;
        }
        let nodes = self.nodes.len();
        format!(
            "# a command with {nodes} nodes is too long for a shell: copy the manifest above, or select a type instead of nodes"
        )
    }

    /// Value of a count field: the user's, or the draft's.
    pub(super) fn count_value(&self, one: &Identifier, part: CountField) -> String {
        let entered = self.counts.get(&one.resource);
        let (entered, drafted) = match part {
            CountField::Min => {
                (entered.and_then(|entered| entered.min.as_ref()), one.min.text.as_str())
            }
            CountField::Default => {
                (entered.and_then(|entered| entered.default.as_ref()), one.default.text.as_str())
            }
            CountField::Max => {
                (entered.and_then(|entered| entered.max.as_ref()), text(one.max.as_ref()))
            }
            CountField::Resource => (None, one.resource.as_str()),
        };
        entered.map_or_else(|| drafted.to_owned(), Clone::clone)
    }
}

fn text(count: Option<&Count>) -> &str {
    count.map_or("", |count| &count.text)
}

/// Taints that a draft tolerates, as shown in the form.
pub(super) fn tolerated(draft: &Draft) -> BTreeSet<String> {
    let Scheduling::Node { tolerations, .. } = &draft.profile.scheduling else {
        return BTreeSet::new();
    };
    let all = draft.taints.iter().filter(|taint| {
        let mut all = tolerations.iter();
        all.any(|one| {
            one.key == taint.key && one.value == taint.value && one.effect == Some(taint.effect)
        })
    });
    all.map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(uri: &str) -> Result<DraftForm, String> {
        DraftForm::parse_address(&uri.parse().unwrap())
    }

    #[test]
    fn check_boxes_and_api_parameters_are_equivalent_for_nodes() {
        let boxes = form("/profiles/new?node=b&node=a&name=&displayName=Big%20one").unwrap();
        let list = form("/profiles/new?nodes=a,b&displayName=Big%20one").unwrap();
        assert_eq!(boxes.pairs(), list.pairs());
        assert_eq!(
            boxes.curl_command("https://octavo.example"),
            "curl -sf -H 'Content-Type: application/json' -d '{\"nodes\":[\"a\",\"b\"],\"displayName\":\"Big one\"}' \
             'https://octavo.example/api/v1/profile-draft' | jq .profile | kubectl create -f -"
        );
    }

    #[test]
    fn fields_and_api_parameters_are_equivalent_for_counts_and_taints() {
        let fields = form(
            "/profiles/new?node=a&default:memory=16Gi&max:cpu=8&tolerate=none&tolerate=a:NoSchedule",
        )
        .unwrap();
        let list = form("/profiles/new?nodes=a&counts=cpu:::8,memory::16Gi:&tolerate=a:NoSchedule")
            .unwrap();
        assert_eq!(fields.pairs(), list.pairs());
        assert_eq!(
            fields.octavo_command("https://octavo.example"),
            "octavo profiles create --server https://octavo.example --from-nodes a --counts 'cpu:::8,memory::16Gi:' --tolerate 'a:NoSchedule'"
        );
        let none = form("/profiles/new?node=a&tolerate=none").unwrap();
        assert!(none.pairs().contains(&("tolerate", "none".to_owned())));
        assert_eq!(none.request().unwrap().tolerate, Some(BTreeSet::new()));
    }

    #[test]
    fn command_is_quoted_for_a_shell() {
        let form =
            form("/profiles/new?node=a&displayName=it%27s%20%24(rm)&reason=a%20b&replace=yes")
                .unwrap();
        assert_eq!(
            form.octavo_command("https://octavo.example"),
            r"octavo profiles create --server https://octavo.example --from-nodes a --display-name 'it'\''s $(rm)' --reason 'a b' --replace"
        );
    }

    #[test]
    fn every_part_of_a_command_is_quoted_including_the_server() {
        let form = form("/profiles/new?node=a").unwrap();
        let origin = "https://octavo.example/$(rm)";
        let apply = form.curl_command(origin);
        assert!(
            apply.contains(" 'https://octavo.example/$(rm)/api/v1/profile-draft' | "),
            "{apply}"
        );
        let command = form.octavo_command(origin);
        assert!(command.contains(" --server 'https://octavo.example/$(rm)' "), "{command}");
    }

    #[test]
    fn commands_longer_than_an_argument_are_not_shown() {
        let of = |count: usize| {
            let nodes = (0..count).map(|at| ("node".to_owned(), format!("{at:0>100}")));
            DraftForm::parse_pairs(nodes.collect()).unwrap()
        };
        let origin = "https://octavo.example";
        let some = of(1000);
        for command in [some.curl_command(origin), some.octavo_command(origin)] {
            assert!(!command.starts_with('#') && command.len() < 128 << 10);
        }
        let many = of(1300);
        for command in [many.curl_command(origin), many.octavo_command(origin)] {
            assert!(command.starts_with("# a command with 1300 nodes is too long"), "{command}");
        }
    }

    #[test]
    fn invalid_fields_are_refused_with_a_reason() {
        let why = |uri: &str| form(uri).and_then(|form| form.request().map(|_| ())).unwrap_err();
        assert_eq!(why("/profiles/new?colour=red"), "Unknown parameter \"colour\".");
        assert!(why("/profiles/new?node=a&least:cpu=1").starts_with("Unknown parameter"));
        assert!(why("/profiles/new?node=a&counts=cpu").contains("is not RESOURCE:MIN"));
        assert!(why("/profiles/new").starts_with("No nodes are selected"));
        assert!(
            why("/profiles/new?node=a&name=A%20b").starts_with("\"A b\" is not an object name")
        );
        assert!(why("/profiles/new?node=a&type=%3Cb%3E").starts_with("\"<b>\" is not a type"));
        let nodes: Vec<String> = (0..=5000).map(|at| format!("n{at}")).collect();
        let many = format!("/profiles/new?nodes={}", nodes.join(","));
        assert_eq!(why(&many), "Select at most 5000 nodes.");
        // No name is retained for rendering.
        assert!(form(&many).is_err());
        let each = nodes.into_iter().map(|node| ("node".to_owned(), node));
        assert!(DraftForm::parse_pairs(each.collect()).is_err());
    }
}
