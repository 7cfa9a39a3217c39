//! Reports of usage and cost as HTML: the parts that the page of cost and the monthly report share, and the monthly report.
//!
//! Pure: the reports of the ledger and the time are arguments. Names of teams and workloads come from labels of the cluster, and
//! every text is escaped.

mod change;
pub mod daily;
mod monthly;
mod page;
mod section;
pub mod text;

pub use askama::Error as RenderError;

pub use self::monthly::MonthlyReport;
pub use self::section::{MAX_IDLE_WORKLOADS, MAX_WORKLOADS};

/// Styles of a report: colors of both themes, panels, tables, legends and printing.
pub const STYLE: &str = include_str!("../templates/report.css");
