"""Writes a CycloneDX 1.6 SBOM of a release file to standard output.

    sbom.py --version 0.1.0 --file octavo-0.1.0-linux-amd64.tar.gz --crates DIR
    sbom.py --version 0.1.0 --file agent.oci.tar --type container --crates DIR --debian var/lib/dpkg/status.d
    sbom.py --version 0.1.0 --file octavo-0.1.0.tgz --image docker.io/octavo/agent:0.1.0

DIR contains Cargo.lock, the output of `cargo metadata` (metadata.json), the lists of the crates that are used and that are linked
(used.txt and linked.txt, from `cargo tree --prefix none`), and the version of Rust (rust.txt). The lists are separate because `cargo
metadata` adds the dependencies of tests.

The crates are those of the package `octavo`, which contains all three programs: Cargo resolves dependencies per package, not per program.
Build scripts, procedural macros and their dependencies run during the build only; their scope is `excluded`.
The output depends only on the arguments and on SOURCE_DATE_EPOCH.
"""

import argparse
import hashlib
import json
import os
import re
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path

ROOT = "octavo"


def lock_checksums(path):
    """Checksums of the archives of crates, by name and version."""
    entry = re.compile(r'^name = "(.*)"\nversion = "(.*)"\nsource = ".*"\nchecksum = "(.*)"$', re.MULTILINE)
    return {(name, version): checksum for name, version, checksum in entry.findall(path.read_text())}


def licenses(expression):
    # Older crates separate alternatives by a slash.
    return [{"expression": re.sub(r"\s*/\s*", " OR ", expression)}] if expression else []


def listed(path):
    """References of the crates in the output of `cargo tree --prefix none`."""
    entries = re.findall(r"^(\S+) v(\S+)", path.read_text(), re.MULTILINE)
    return {f"pkg:cargo/{name}@{version}" for name, version in entries}


def crates(directory):
    """Components and dependency graph of the crates, and the reference of the root."""
    metadata = json.loads((directory / "metadata.json").read_text())
    checksums = lock_checksums(directory / "Cargo.lock")
    used, linked = listed(directory / "used.txt"), listed(directory / "linked.txt")
    packages = {package["id"]: package for package in metadata["packages"]}
    references = {id: f"pkg:cargo/{package['name']}@{package['version']}" for id, package in packages.items()}

    components = []
    for id, reference in sorted(references.items(), key=lambda item: item[1]):
        package = packages[id]
        if reference not in used or package["name"] == ROOT:
            continue
        component = {
            "type": "library",
            "bom-ref": reference,
            "name": package["name"],
            "version": package["version"],
            "scope": "required" if reference in linked else "excluded",
            "licenses": licenses(package["license"]),
        }
        # Crates of the workspace are in no registry, so they have no package URL.
        if package["source"]:
            component["purl"] = reference
            component["hashes"] = [{"alg": "SHA-256", "content": checksums[package["name"], package["version"]]}]
        components.append(component)
    graph = {}
    for node in metadata["resolve"]["nodes"]:
        deps = [dep for dep in node["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
        graph[references[node["id"]]] = {references[dep["pkg"]] for dep in deps} & used
    graph = {reference: direct for reference, direct in graph.items() if reference in used}
    rust = (directory / "rust.txt").read_text().strip()
    components.append(
        {
            "type": "library",
            "bom-ref": f"pkg:generic/rust@{rust}",
            "name": "rust",
            "version": rust,
            "description": "Rust's standard library",
            "scope": "required",
            "licenses": licenses("MIT OR Apache-2.0"),
            "purl": f"pkg:generic/rust@{rust}",
        }
    )
    root = next(reference for id, reference in references.items() if packages[id]["name"] == ROOT)
    direct = graph.pop(root) | {f"pkg:generic/rust@{rust}"}
    return components, graph, direct


def debian_packages(directory):
    """Components of the packages whose control data is in this directory, as scanners read it."""
    components = []
    for path in sorted(directory.iterdir()):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", path.read_text(), re.MULTILINE))
        name, version, architecture = (fields[key] for key in ("Package", "Version", "Architecture"))
        reference = f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace(':', '%3A')}?arch={architecture}"
        components.append(
            {
                "type": "library",
                "bom-ref": reference,
                "name": name,
                "version": version,
                "scope": "required",
                "purl": reference,
            }
        )
    return components


def images(names):
    components = []
    for name in names:
        _, version = name.rsplit(":", 1)
        components.append({"type": "container", "bom-ref": name, "name": name, "version": version})
    return components


def main():
    parser = argparse.ArgumentParser(description="Write a CycloneDX SBOM of a release file to standard output")
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--type", default="application", choices=["application", "container", "library"])
    parser.add_argument("--crates", type=Path)
    parser.add_argument("--debian", type=Path)
    parser.add_argument("--image", action="append", default=[])
    arguments = parser.parse_args()

    digest = hashlib.sha256(arguments.file.read_bytes()).hexdigest()
    name = arguments.file.name
    subject = {
        "type": arguments.type,
        "bom-ref": name,
        "name": name,
        "version": arguments.version,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "licenses": licenses("Apache-2.0"),
    }
    components = images(arguments.image)
    graph = {}
    direct = {component["bom-ref"] for component in components}
    if arguments.crates:
        found, graph, root_uses = crates(arguments.crates)
        components += found
        direct |= root_uses
    if arguments.debian:
        found = debian_packages(arguments.debian)
        components += found
        direct |= {component["bom-ref"] for component in found}
    graph[name] = direct
    epoch = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'sha256:{digest}')}",
        "version": 1,
        "metadata": {
            "timestamp": epoch.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": subject,
        },
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": sorted(graph[ref])} for ref in sorted(graph)],
    }
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
