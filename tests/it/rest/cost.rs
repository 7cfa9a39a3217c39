//! `GET /api/v1/cost`, with a ledger in SQLite.

use std::fs;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use octavo_database::LedgerWriter;
use octavo_files::config_files::prices::PriceFile;
use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_store::ledger::LedgerReader;
use tempfile::TempDir;

use super::fleet::{Aggregator, Machines};

#[tokio::test]
async fn invalid_price_book_is_described_only_with_the_permission_to_list_nodes() {
    let directory = TempDir::new().unwrap();
    let url = format!("sqlite://{}", directory.path().join("ledger.db").display());
    let url = url.parse().unwrap();
    drop(LedgerWriter::open(&url).await.unwrap());
    let path = directory.path().join("prices.yaml");
    let text = "apiVersion: octavo.dev/v1\nkind: PriceBook\ncurrency: EUR\nprices: []\n";
    fs::write(&path, text).unwrap();
    let prices = PriceFile::open(&path).unwrap();
    fs::write(&path, "kind: Secret\n").unwrap();
    let aggregator = Aggregator::viewed(&Machines::default(), |view| {
        view.with_ledger(Some(LedgerReader::new(url))).with_prices(prices)
    });
    for nodes in [true, false] {
        let mut request = Request::get("/api/v1/cost").body(Body::empty()).unwrap();
        let visibility =
            Visibility { types: VisibleTypes::All, nodes, profiles: false, pods: false };
        request.extensions_mut().insert(visibility);
        let answer = Aggregator::of_router(&aggregator.ungated, request).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        assert_eq!(answer.body.contains("/prices.yaml"), nodes, "{}", answer.body);
        assert_eq!(answer.body.contains("prices may be outdated"), !nodes, "{}", answer.body);
    }
}
