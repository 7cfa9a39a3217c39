"""Judges an OpenAPI document, and answers by the schemas in it. Reads both as JSON; says only what is wrong."""

import json
import sys

from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

given = json.load(sys.stdin)
document = given["document"]
validate(document)

wrong = []
for case in given["cases"]:
    responses = document["paths"][case["path"]][case.get("method", "get")]["responses"]
    place = f'{case["path"]} {case["status"]} {case["mediaType"]}'
    content = responses.get(case["status"], {}).get("content", {})
    if case["mediaType"] not in content:
        wrong.append(f"{place}: not in the document")
        continue
    schema = {**content[case["mediaType"]]["schema"], "components": document["components"]}
    for error in Draft202012Validator(schema).iter_errors(case["value"]):
        wrong.append(f"{place}: at {error.json_path}: {error.message[:2000]}")
        wrong.extend(f"    {one.json_path}: {one.message[:300]}" for one in error.context or [])
if wrong:
    sys.exit("\n".join(wrong))
