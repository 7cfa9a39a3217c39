//! The output of `octavo doctor -o json`: findings, as `octavo.dev/v1` `Diagnosis`.
//!
//! New checks may be added at any time, so readers treat check names as free text. All other fields are strict.

use octavo_node::doctor::{Finding, Verdict};
use serde::{Deserialize, Serialize};

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Document {
    api_version: ApiVersion,
    kind: Kind,
    /// In the order of the checks.
    pub findings: Vec<FindingJson>,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FindingJson {
    /// Name of the check.
    pub check: String,
    /// `node`, the PCI address of a device, `neuron<N>`, or a resource.
    pub subject: String,
    /// The verdict.
    pub verdict: VerdictJson,
    /// The observed values and their sources.
    pub evidence: String,
    /// Recommended action, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictJson {
    /// The check does not apply to this node.
    NotApplicable,
    /// The check passed.
    Ok,
    /// The required information is not available.
    Unknown,
    /// Needs attention.
    Warning,
    /// Existing devices are not available to pods.
    Failing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum ApiVersion {
    #[serde(rename = "octavo.dev/v1")]
    V1,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    Diagnosis,
}

/// Parses the JSON document.
pub fn parse(text: &str) -> Result<Document, serde_json::Error> {
    serde_json::from_str(text)
}

impl From<&[Finding]> for Document {
    fn from(findings: &[Finding]) -> Self {
        Self {
            api_version: ApiVersion::V1,
            kind: Kind::Diagnosis,
            findings: findings.iter().map(FindingJson::from).collect(),
        }
    }
}

impl From<&Finding> for FindingJson {
    fn from(finding: &Finding) -> Self {
        Self {
            check: finding.check.as_str().to_owned(),
            subject: finding.subject.to_string(),
            verdict: finding.verdict.into(),
            evidence: finding.evidence.clone(),
            remedy: finding.remedy.clone(),
        }
    }
}

impl From<Verdict> for VerdictJson {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::NotApplicable => Self::NotApplicable,
            Verdict::Ok => Self::Ok,
            Verdict::Unknown => Self::Unknown,
            Verdict::Warning => Self::Warning,
            Verdict::Failing => Self::Failing,
        }
    }
}

#[cfg(test)]
mod tests {
    use octavo_node::doctor::{Check, Subject};

    use super::*;

    #[test]
    fn json_verdicts_match_domain_verdicts() {
        for verdict in [
            Verdict::NotApplicable,
            Verdict::Ok,
            Verdict::Unknown,
            Verdict::Warning,
            Verdict::Failing,
        ] {
            let word = serde_json::to_value(VerdictJson::from(verdict)).unwrap();
            assert_eq!(word, verdict.as_str());
        }
    }

    #[test]
    fn i12_document_round_trips_and_modified_documents_are_rejected() {
        let finding = Finding {
            check: Check::NeuronDriver,
            subject: Subject::Neuron(3),
            verdict: Verdict::Failing,
            evidence: "e".to_owned(),
            remedy: None,
        };
        let document = Document::from(&[finding][..]);
        let text = serde_json::to_string(&document).unwrap();
        assert_eq!(
            text,
            r#"{"apiVersion":"octavo.dev/v1","kind":"Diagnosis","findings":[{"check":"neuron-driver","subject":"neuron3","verdict":"failing","evidence":"e"}]}"#
        );
        assert_eq!(parse(&text).unwrap(), document);
        for (from, to) in [
            ("octavo.dev/v1", "octavo.dev/v2"),
            ("Diagnosis", "Inventory"),
            ("failing", "fails"),
            ("evidence", "proof"),
        ] {
            assert!(parse(&text.replace(from, to)).is_err(), "{to}");
        }
    }
}
