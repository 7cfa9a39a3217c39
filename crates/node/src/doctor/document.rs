//! The output of `octavo doctor -o json`: findings, as `octavo.dev/v1` `Diagnosis`.
//!
//! New checks may be added at any time, so other readers must treat check names as free text. All other fields are
//! strict.

use octavo_model::inventory::ApiVersion;
use serde::{Deserialize, Serialize};

use super::Finding;

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Diagnosis {
    api_version: ApiVersion,
    kind: Kind,
    /// In the order of the checks.
    pub findings: Vec<Finding>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    Diagnosis,
}

impl Diagnosis {
    /// Creates the document of these findings.
    pub fn new(findings: Vec<Finding>) -> Self {
        Self { api_version: ApiVersion::V1, kind: Kind::Diagnosis, findings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{Check, CheckResult, Subject};

    #[test]
    fn json_words_match_displayed_words() {
        for verdict in [
            CheckResult::NotApplicable,
            CheckResult::Ok,
            CheckResult::Unknown,
            CheckResult::Warning,
            CheckResult::Failing,
        ] {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.as_str());
        }
        for &check in Check::ALL {
            assert_eq!(serde_json::to_value(check).unwrap(), check.as_str());
        }
    }

    #[test]
    fn i12_document_round_trips_and_modified_documents_are_rejected() {
        let finding = |subject| Finding {
            check: Check::NeuronDriver,
            subject,
            verdict: CheckResult::Failing,
            evidence: "e".to_owned(),
            remedy: None,
        };
        for subject in [
            Subject::Node,
            Subject::Device("0000:17:00.0".parse().unwrap()),
            Subject::Resource("nvidia.com/gpu".to_owned()),
        ] {
            let document = Diagnosis::new(vec![finding(subject)]);
            let text = serde_json::to_string(&document).unwrap();
            assert_eq!(serde_json::from_str::<Diagnosis>(&text).unwrap(), document);
        }
        let text = serde_json::to_string(&Diagnosis::new(vec![finding(Subject::Neuron(3))]));
        let text = text.unwrap();
        assert_eq!(
            text,
            r#"{"apiVersion":"octavo.dev/v1","kind":"Diagnosis","findings":[{"check":"neuron-driver","subject":"neuron3","verdict":"failing","evidence":"e"}]}"#
        );
        for (from, to) in [
            ("octavo.dev/v1", "octavo.dev/v2"),
            ("Diagnosis", "Inventory"),
            ("failing", "fails"),
            ("evidence", "proof"),
        ] {
            let text = text.replace(from, to);
            assert!(serde_json::from_str::<Diagnosis>(&text).is_err(), "{to}");
        }
    }
}
