//! Storage of the usage ledger in SQLite (one file) or PostgreSQL.
//!
//! One aggregator writes; readers use their own connections. Both databases run the same statements. Intervals are written
//! under their key, so writing one again changes nothing. The intervals of a day that is over are summed up, so that reports
//! over months read few rows. In the same transaction, the usage of its containers is appended to the audit.

mod audit;
mod connection;
mod day;
mod error;
mod rows;
mod statement;
mod sums;
#[cfg(test)]
mod tests;
mod writer;

pub use self::audit::AuditPage;
pub use self::connection::{Database, DatabaseUrl, in_time};
pub use self::day::{ClosedDay, DayReader};
pub use self::error::{DatabaseError, InvalidUrl};
pub use self::sums::MAX_SUMS;
pub use self::writer::LedgerWriter;
