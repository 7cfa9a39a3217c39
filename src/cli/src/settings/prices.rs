//! Settings of `octavo prices`.

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use octavo_fleet::price::{Currency, PurchaseOption, parse_time};
use octavo_toolkit::choice::words;

use super::input::WantedFile;

/// Settings of `octavo prices`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum PricesCommand {
    /// Validate a price book and list its prices
    ///
    /// Each error is printed as `FILE:LINE:COLUMN: error: ...`. Exit codes: 0 no errors, 1 errors found, 2 usage
    /// error.
    #[command(after_long_help = include_str!("../../help/prices.txt"))]
    Check(PriceBookSettings),
    /// Convert a price book to the format of another program
    ///
    /// Prices that the format cannot express are listed on standard error.
    #[command(after_long_help = include_str!("../../help/prices.txt"))]
    Export(PriceExportSettings),
    /// Convert prices of another program to a price book
    ///
    /// Rows for other assets than GPUs are skipped and counted on standard error.
    #[command(after_long_help = include_str!("../../help/prices.txt"))]
    Import(PriceImportSettings),
}

/// Settings of `octavo prices check`.
#[derive(Debug, Clone, Args)]
pub struct PriceBookSettings {
    /// Price book.
    #[command(flatten)]
    pub file: WantedFile,
}

/// Settings of `octavo prices export`.
#[derive(Debug, Clone, Args)]
pub struct PriceExportSettings {
    /// Format of the output
    #[arg(long, value_name = "FORMAT")]
    pub format: PriceFormat,

    /// Purchase option whose prices are exported
    #[arg(long, value_name = "OPTION", default_value = "on-demand", value_parser = words::<PurchaseOption>())]
    pub purchase: PurchaseOption,

    /// Time at which the prices are valid, as a date or RFC 3339; default: now
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub at: Option<Timestamp>,

    /// Price book.
    #[command(flatten)]
    pub file: WantedFile,
}

/// Settings of `octavo prices import`.
#[derive(Debug, Clone, Args)]
pub struct PriceImportSettings {
    /// Format of the input
    #[arg(long, value_name = "FORMAT")]
    pub format: PriceFormat,

    /// Purchase option of the prices
    #[arg(long, value_name = "OPTION", default_value = "on-demand", value_parser = words::<PurchaseOption>())]
    pub purchase: PurchaseOption,

    /// Currency of the prices
    #[arg(long, value_name = "CODE", default_value = "USD")]
    pub currency: Currency,

    /// Prices of another program.
    #[command(flatten)]
    pub file: WantedFile,
}

/// Format of prices of another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PriceFormat {
    /// CSV that OpenCost reads as custom prices
    Opencost,
}
