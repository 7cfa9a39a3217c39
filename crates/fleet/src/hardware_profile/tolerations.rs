//! Tolerations of a draft for the taints of its nodes.

use std::collections::BTreeSet;

use super::draft_error::DraftError;
use super::user_changes::MAX_SHOWN_CHARS;
use crate::cluster::{Taint, TaintOperator, Toleration};

/// Value that stands for "no taint is tolerated".
pub const NO_TAINT: &str = "none";

/// Tolerations for those of `taints` whose text form is in `named`, and the remaining taints.
pub(super) fn split_tolerated<'a>(
    taints: &'a [Taint],
    named: &BTreeSet<String>,
) -> Result<(Vec<Toleration>, Vec<&'a Taint>), DraftError> {
    let known: Vec<String> = taints.iter().map(ToString::to_string).collect();
    let odd = named.iter().find(|one| !known.contains(one));
    if let Some(odd) = odd {
        return Err(DraftError::NoSuchTaint {
            named: odd.chars().take(MAX_SHOWN_CHARS).collect(),
            known,
        });
    }
    let (chosen, left): (Vec<&Taint>, Vec<&Taint>) =
        taints.iter().partition(|taint| named.contains(&taint.to_string()));
    Ok((chosen.into_iter().map(toleration_for).collect(), left))
}

/// Narrowest toleration for a taint.
pub(super) fn toleration_for(taint: &Taint) -> Toleration {
    Toleration {
        key: taint.key.clone(),
        operator: if taint.value.is_empty() { TaintOperator::Exists } else { TaintOperator::Equal },
        value: taint.value.clone(),
        effect: Some(taint.effect),
    }
}
