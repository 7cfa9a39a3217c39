"""Compares the output of octavo for a machine with `nvidia-smi -q`, and creates an anonymized fixture.

Called by hw-smoke.sh. Both commands take the folder with nvidia-smi-q.txt, inventory.json and labels.txt.
Only the standard library is used: this runs on a GPU machine where nothing can be installed.
"""

import json
import pathlib
import re
import sys

# Compared values: our key, and the path of headings to the line in the device's block of `nvidia-smi -q`.
DEVICE_FACTS = [
    ("productName", ["Product Name"]),
    ("uuid", ["GPU UUID"]),
    ("minor", ["Minor Number"]),
    ("memoryMiB", ["FB Memory Usage", "Total"]),
    ("mig.mode", ["MIG Mode", "Current"]),
    ("mig.pendingMode", ["MIG Mode", "Pending"]),
    ("health.eccEnabled", ["ECC Mode", "Current"]),
]


def parse_smi(text):
    """Headings and values of `nvidia-smi -q` as nested dicts: {"global": {...}, "<pci address>": {...}}."""
    blocks = {"global": {}}
    stack = [(-1, blocks["global"])]
    for line in text.splitlines():
        if not line.strip() or line.startswith("==="):
            continue
        gpu = re.match(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])$", line)
        if gpu:
            blocks[gpu[1].lower()] = block = {}
            stack = [(0, block)]
            continue
        indent = len(line) - len(line.lstrip())
        while len(stack) > 1 and stack[-1][0] >= indent:
            stack.pop()
        name, colon, value = line.strip().partition(" : ")
        name = name.strip()
        if colon:
            # Some headings appear twice in a block; the first one counts.
            stack[-1][1].setdefault(name, value.strip())
        else:
            child = stack[-1][1].setdefault(name, {})
            if isinstance(child, dict):
                stack.append((indent, child))
    return blocks


def look_up(tree, path):
    for name in path:
        if not isinstance(tree, dict) or name not in tree:
            return None
        tree = tree[name]
    return tree if isinstance(tree, str) else None


def normal(value):
    """Normalizes both spellings of a value: `81559 MiB` and 81559, `Enabled` and true."""
    if value is None or value in ("N/A", "[N/A]", "Not Supported", "notCapable"):
        return "-"
    if isinstance(value, bool):
        return "enabled" if value else "disabled"
    text = str(value).lower()
    return text.removesuffix(" mib")


def ours(device, key):
    for name in key.split("."):
        device = device.get(name) if isinstance(device, dict) else None
    return device


def short_pci(address):
    """Converts NVIDIA's eight-digit PCI domain to the kernel's four digits."""
    domain, rest = address.split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def compare(folder):
    smi = parse_smi((folder / "nvidia-smi-q.txt").read_text())
    inventory = json.loads((folder / "inventory.json").read_text())
    theirs = {short_pci(address): block for address, block in smi.items() if address != "global"}
    devices = {device["pci"]: device for device in inventory["devices"] if device["vendor"] == "nvidia"}
    rows = [("node", "devices", str(sorted(devices)), str(sorted(theirs)))]
    nvml = inventory["nvml"]
    rows.append(("node", "driver", normal(nvml.get("driverVersion")), normal(look_up(smi["global"], ["Driver Version"]))))
    rows.append(("node", "cuda", normal(nvml.get("cudaVersion")), normal(look_up(smi["global"], ["CUDA Version"]))))
    for pci in sorted(set(devices) & set(theirs)):
        for key, path in DEVICE_FACTS:
            rows.append((pci, key, normal(ours(devices[pci], key)), normal(look_up(theirs[pci], path))))
    wrong = 0
    for place, key, mine, yours in rows:
        agree = mine == yours
        wrong += not agree
        print(f"{'ok  ' if agree else 'DIFF'} {place} {key}: octavo {mine}, nvidia-smi {yours}")
    print(f"{len(rows) - wrong} facts match, {wrong} differ")
    return 1 if wrong else 0


def anonymise(text):
    """Replaces UUIDs and serial numbers by numbered ones, consistently, and removes process names and IDs."""
    seen = {}

    def uuid(match):
        number = seen.setdefault(match[0].lower(), len(seen) + 1)
        return f"00000000-0000-4000-8000-{number:012x}"

    text = re.sub(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", uuid, text)
    text = re.sub(r"(Serial Number\s*: ).*", r"\g<1>0", text)
    text = re.sub(r"(?m)^(\s*(?:Process ID|Name|Host ID|GPU PDI|Chassis Serial Number)\s*: ).*", r"\g<1>removed", text)
    return re.sub(r'("(?:pid|serial)"\s*:\s*)("[^"]*"|\d+)', r"\g<1>0", text)


def record(folder, target):
    target.mkdir(parents=True, exist_ok=True)
    # One pass over all files, so that a UUID has the same replacement in every file.
    names = ["inventory.json", "labels.txt", "nvidia-smi-q.txt"]
    mark = "\n=== next file ===\n"
    texts = anonymise(mark.join((folder / name).read_text() for name in names)).split(mark)
    for name, text in zip(names, texts, strict=True):
        (target / name).write_text(text)
    print(f"recorded and anonymized: {target}")
    return 0


def main(arguments):
    match arguments:
        case ["compare", folder]:
            return compare(pathlib.Path(folder))
        case ["record", folder, target]:
            return record(pathlib.Path(folder), pathlib.Path(target))
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
