//! Reports of simulations as HTML: the strategies of each trace, as charts and tables.
//!
//! Pure: the results and the version are arguments. Names of files and products come from users and drivers, and every text is escaped.

mod bars;
mod page;
mod requests;
mod series;
pub mod text;
mod trace;

pub use askama::Error as RenderError;

pub use self::page::SimulationReport;
pub use self::requests::Requests;
