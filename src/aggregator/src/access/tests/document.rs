//! Refusals in the OpenAPI document, compared with the access table.

use octavo_fleet::access::RouteRule;

use super::*;

#[tokio::test]
async fn openapi_documents_refusals_exactly_for_guarded_paths() {
    let site = site(TrustedIdentitySources::default());
    let document = text(site.get("/openapi.json", None).await).await;
    let document: Value = serde_json::from_str(&document).unwrap();
    let (mut guarded, mut open) = (0, 0);
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let known = Method::from_name(&method.to_uppercase()).unwrap();
            let row = RouteRule::find(known, path).unwrap();
            let asks = row.review(path, None).is_some();
            for status in ["401", "403", "503"] {
                let answer = &operation["responses"][status];
                let body = &answer["content"]["application/problem+json"]["schema"]["$ref"];
                if asks {
                    assert_eq!(*body, "#/components/schemas/Problem", "{method} {path} {status}");
                } else if status != "503" {
                    assert!(answer.is_null(), "{method} {path} {status}");
                }
            }
            *(if asks { &mut guarded } else { &mut open }) += 1;
        }
    }
    assert!(guarded >= 18 && open == 3, "{guarded} {open}");
}
