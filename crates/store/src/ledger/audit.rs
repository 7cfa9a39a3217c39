//! Export of the audit trail, page by page.

use octavo_database::{AuditPage, in_time};
use octavo_ledger::audit::{AuditKind, AuditQuery};
use strum::VariantNames;

use super::{LedgerError, LedgerReader, READ_TIMEOUT, time};
use crate::query::QueryError;
use crate::query::parse::set_each;

const PARAMETERS: &str = "from, until, namespace, kind";

impl LedgerReader {
    /// Numbers of the first and the last entry of an export; `None` if there are no entries.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn audit_range(&self, query: &AuditQuery) -> Result<Option<(i64, i64)>, LedgerError> {
        Ok(in_time(READ_TIMEOUT, self.database().await?.audit_range(query)).await?)
    }

    /// The next entries of an export, from the first to the last number.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn audit_page(
        &self,
        query: &AuditQuery,
        range: (i64, i64),
    ) -> Result<AuditPage, LedgerError> {
        Ok(in_time(READ_TIMEOUT, self.database().await?.audit_page(query, range)).await?)
    }
}

/// Parses the parameters of an export in `pairs`. Without them, the export contains all entries.
///
/// # Errors
/// Fails with the name of an unknown or invalid parameter.
pub fn parse_audit_query(
    pairs: impl IntoIterator<Item = (String, String)>,
) -> Result<AuditQuery, QueryError> {
    let mut query = AuditQuery::default();
    set_each(pairs, &[], |name, value| set(&mut query, name, value))?;
    Ok(query)
}

fn set(query: &mut AuditQuery, name: &str, value: &str) -> Result<(), QueryError> {
    if value.is_empty() {
        return Ok(());
    }
    match name {
        "from" => query.from = Some(time("from", value)?),
        "until" => query.until = Some(time("until", value)?),
        "namespace" => query.namespace = Some(value.to_owned()),
        "kind" => {
            let wanted = || format!("one of {}", AuditKind::VARIANTS.join(", "));
            let kind = value.parse().map_err(|_| QueryError::value("kind", value, wanted()))?;
            query.kind = Some(kind);
        }
        _ => return Err(QueryError::unknown(name, PARAMETERS)),
    }
    Ok(())
}
