//! Refusals in the OpenAPI document, compared with the access table.

use super::*;
use crate::domain::access::Row;

#[tokio::test]
async fn the_document_says_of_every_path_that_asks_who_somebody_is_how_it_refuses_and_of_no_other()
{
    let site = site(Believed::default());
    let document = text(site.gets("/openapi.json", None).await).await;
    let document: Value = serde_json::from_str(&document).unwrap();
    let (mut guarded, mut open) = (0, 0);
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let known = Method::of(&method.to_uppercase()).unwrap();
            let row = Row::of(known, path).unwrap();
            let asks = row.question(path, None).is_some();
            for status in ["401", "403", "503"] {
                let answer = &operation["responses"][status];
                let body = &answer["content"]["application/problem+json"]["schema"]["$ref"];
                if asks {
                    assert_eq!(
                        *body, "#/components/schemas/Problem",
                        "{method} {path} {status}"
                    );
                } else if status != "503" {
                    assert!(answer.is_null(), "{method} {path} {status}");
                }
            }
            *(if asks { &mut guarded } else { &mut open }) += 1;
        }
    }
    assert!(guarded >= 18 && open == 3, "{guarded} {open}");
}
