"""Prints the structure figures of the code beside their targets. Called by house.sh.

Code lines are lines of `src` and `crates` that are not blank, not a comment and not in a test: not under `#[cfg(test)]`,
in a directory `tests`, or in a file `tests.rs` or `tests_support.rs`. A crate is a directory with `Cargo.toml` and `src`.
Only the standard library is used.
"""

import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

ROW = "| {:<52} | {:>22} | {:<28} | {} |"
LITERAL = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)"""
    r"""|(?P<raw>\b[bc]?r(?P<hashes>\#*)".*?"(?P=hashes))"""
    r"""|(?P<string>"(?:\\.|[^"\\])*")"""
    r"""|(?P<char>'(?:\\(?:u\{\w+\}|x\w\w|.)|[^'\\\n])')""",
    re.DOTALL | re.VERBOSE,
)
CFG_TEST = re.compile(r"#\[cfg\(test\)\]")
FUNCTION = re.compile(r"\bfn (\w+)[^;{]*\{")
FLAG = re.compile(r"#\[arg\(")
SPAWN = re.compile(r"\btokio::spawn\(")
READ = re.compile(r"\.(read_to_end|read_to_string)\(")
DOUBLED = re.compile(
    r"\b2(_u\d+)?\.(saturating_|checked_|wrapping_)?pow\("
    r"|\.saturating_mul\(2\)\s*\.min\(|\.checked_shl\(|\b1_?u\d+ << |\b1 << "
)
DELAY = re.compile(r"delay|wait|backoff|retry|interval|pause|patience|peace", re.IGNORECASE)
MIRROR = re.compile(r"\b(?:struct|enum) (\w+Json)\b")


class Source:
    """A Rust file: `code` is its text without comments, literals and tests, with the same line breaks."""

    def __init__(self, root, path):
        self.path = path.relative_to(root)
        text = path.read_text(encoding="utf-8")
        # Literals keep one character per line, so that their lines still count as code.
        self.code = without_tests(LITERAL.sub(blanked, text))
        self.lines = sum(1 for line in self.code.splitlines() if line.strip())

    def line(self, at):
        return f"{self.path}:{self.code.count(chr(10), 0, at) + 1}"

    def functions(self):
        """Place and text of every function, without functions inside."""
        for found in FUNCTION.finditer(self.code):
            yield self.line(found.start()), self.code[found.start() : closing(self.code, found.end() - 1)]


def blanked(found):
    text = found.group()
    if found.group("comment") is not None:
        return "\n" * text.count("\n") or " "
    return "\n".join('""' for _ in text.split("\n"))


def closing(code, start):
    """Index after the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(code)):
        if code[at] in "([{":
            depth += 1
        elif code[at] in ")]}":
            depth -= 1
            if depth == 0:
                return at + 1
    return len(code)


def item_end(code, start):
    """Index after the item at `start`: after its `;` or its block, or before the end of the block around it."""
    at = start
    while at < len(code):
        if code[at] == ";":
            return at + 1
        if code[at] in ")]}":
            return at
        if code[at] in "([{":
            block = code[at] == "{"
            at = closing(code, at)
            if block:
                # `use a::{b};` and `const A: B = B { .. };` extend to their semicolon.
                rest = re.match(r"\s*;", code[at:])
                return at + (rest.end() if rest else 0)
        else:
            at += 1
    return at


def without_tests(code):
    kept = []
    at = 0
    while found := CFG_TEST.search(code, at):
        end = item_end(code, found.end())
        kept += [code[at : found.start()], "\n" * code.count("\n", found.start(), end)]
        at = end
    return "".join(kept) + code[at:]


def is_test(path):
    return path.name in ("tests.rs", "tests_support.rs") or "tests" in path.parent.parts


def rust_files(root):
    found = [path for top in ("src", "crates") for path in sorted((root / top).rglob("*.rs"))]
    return [path for path in found if "target" not in path.relative_to(root).parts]


def crates(root, sources):
    """Code lines by crate: each file belongs to the nearest directory with a manifest."""
    lines = {}
    for source in sources:
        owner = next(dir for dir in source.path.parents if (root / dir / "Cargo.toml").is_file())
        name = package_name(root / owner / "Cargo.toml")
        lines[name] = lines.get(name, 0) + source.lines
    return dict(sorted(lines.items(), key=lambda item: -item[1]))


def package_name(manifest):
    package = re.search(r"^\[package\]\n(.*?)(?:\n\[|\Z)", manifest.read_text(), re.DOTALL | re.MULTILINE)
    return re.search(r'^name = "(.*)"', package.group(1), re.MULTILINE).group(1)


def known_cycles(root):
    """Entries of KNOWN_CYCLES. A test fails unless they are the cycles of the tree."""
    path = root / "tests/it/tidy/cycles.rs"
    if not path.is_file():
        return None
    block = re.search(r"const KNOWN_CYCLES[^=]*= &\[(.*?)\];", path.read_text(), re.DOTALL)
    return re.findall(r'"[^"]*"', block.group(1))


def bounded_readers(sources):
    """Functions that limit a read themselves: `.take(` and a read to the end in one body. One of a pipe counts too."""
    for source in sources:
        for place, body in source.functions():
            if ".take(" in body and READ.search(body):
                yield place


def backoffs(sources):
    """Functions that double a delay: a power of two, or twice the last one up to a limit."""
    for source in sources:
        for place, body in source.functions():
            if DOUBLED.search(body) and DELAY.search(body):
                yield place


def spawned(sources):
    """Every `tokio::spawn`, with whether its handle is dropped: it is a statement of its own, in `drop(`, or bound to `_`."""
    for source in sources:
        for found in SPAWN.finditer(source.code):
            before = source.code[: found.start()].rstrip()
            after = source.code[closing(source.code, found.end() - 1) :].lstrip()
            statement = before.endswith(("{", "}", ";")) and after.startswith(";")
            dropped = re.search(r"(\bdrop\(|\blet _\w* =)$", before) is not None
            yield source.line(found.start()), statement or dropped


def flags(source):
    """Number of `#[arg(..)]` attributes with a long flag."""
    attributes = [source.code[at.end() - 1 : closing(source.code, at.end() - 1)] for at in FLAG.finditer(source.code)]
    return sum(1 for text in attributes if re.search(r"\blong\b", text))


def is_settings(source):
    parts = [part.removesuffix(".rs") for part in source.path.parts]
    return "config" in parts or "settings" in parts or FLAG.search(source.code) is not None


def row(name, value, target, how):
    print(ROW.format(name, value, target, how))


def number(value):
    return f"{value:,}"


def text_figures(root, details):
    files = rust_files(root)
    sources = [Source(root, path) for path in files if not is_test(path.relative_to(root))]
    lines = crates(root, sources)
    total = sum(lines.values())
    row("code lines", number(total), "<= 78,000", "src, crates: without comments, blanks, tests")
    row("files", number(len(files)), "(852 at the start)", "find src crates -name '*.rs'")
    largest = next(iter(lines))
    row("largest crate, code lines", f"{largest} {number(lines[largest])}", "<= 12,000", "nearest Cargo.toml above a file")
    for name, count in lines.items():
        row(f"  {name}", number(count), "<= 12,000", "the same")
    cycles = known_cycles(root)
    shown = "not tested" if cycles is None else len(cycles)
    row("module cycles", shown, "0", "entries of KNOWN_CYCLES in tests/it/tidy/cycles.rs")
    readers = list(bounded_readers(sources))
    row("bounded file readers written by hand", len(readers), "1", "functions with `.take(` and `.read_to_end(` or `.read_to_string(`")
    delays = list(backoffs(sources))
    row("backoffs written by hand", len(delays), "1", "functions with a power of two or doubling, and a delay")
    tasks = list(spawned(sources))
    detached = [place for place, dropped in tasks if dropped]
    row("detached tasks", f"{len(detached)} of {len(tasks)}", "0", "`tokio::spawn(` as a statement, in `drop(` or bound to `_`")
    settings = [source for source in sources if is_settings(source)]
    size, count = sum(source.lines for source in settings), sum(flags(source) for source in settings)
    row("code lines of settings per flag", f"{size / max(count, 1):.0f} ({number(size)} / {count})", "<= 12",
        "files in config or settings or with `#[arg(`, by `#[arg(.. long ..)]`")
    mirrors = [name for source in sources for name in MIRROR.findall(source.code)]
    row("...Json mirror types", len(mirrors), "0", "struct or enum with a name that ends in Json")
    if details:
        for title, places in (("bounded readers", readers), ("backoffs", delays), ("detached tasks", detached)):
            print(f"\n{title}:", *places, sep="\n  ")


class Builds:
    """Measures with Cargo, in the profile and the target directory of the environment."""

    def __init__(self):
        self.cargo = shlex.split(os.environ.get("CARGO", "cargo"))
        self.target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"))
        # GNU time reports the peak of the largest process below it: a compiler or the linker.
        self.timer = shutil.which("time")

    def run(self, *arguments):
        """Standard output, seconds, and peak memory in MiB where GNU time is installed."""
        command = [*self.cargo, *arguments]
        timed = [self.timer, "-v", *command] if self.timer else command
        start = time.monotonic()
        done = subprocess.run(timed, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - start
        if done.returncode:
            sys.exit(f"house: {shlex.join(command)} failed:\n{done.stderr}{done.stdout}")
        peak = re.search(r"Maximum resident set size \(kbytes\): (\d+)", done.stderr)
        return done.stdout, seconds, int(peak.group(1)) // 1024 if peak else None

    def after_edit(self, name, target, file, arguments):
        """Seconds and memory of a command after `touch FILE`. An unmeasured run first brings everything else up to date."""
        if file is None:
            return row(name, "no such file", target, "see EDITS in hack/house.py")
        self.run(*arguments)
        os.utime(file)
        _, seconds, peak = self.run(*arguments)
        memory = f", {peak / 1024:.1f} GiB" if peak else ""
        return row(name, f"{seconds:.0f} s{memory}", target, f"touch {file}; cargo {shlex.join(arguments)}")

    def sizes(self):
        self.run("build", "--profile", "dist", "--locked", "--bins")
        for program, target in (("octavo-agent", "<= 8 MB"), ("octavo-aggregator", ""), ("octavo", "")):
            size = (self.target / "dist" / program).stat().st_size
            row(f"{program}, stripped", f"{size / 1e6:.1f} MB", target, "cargo build --profile dist --bins")

    def agent_memory(self):
        arguments = ("bench", "--locked", "--bench", "agent", "--", "1")
        output, _, _ = self.run(*arguments)
        table = output[output.index("| memory, MiB") :]
        net = next(line for line in table.splitlines() if "H100" in line).split("|")[5].strip()
        row("agent PSS over the NVML library, 8 x H100", f"{net} MiB", "<= 6 MiB", f"cargo {shlex.join(arguments)}")


# Files whose change represents a typical edit.
EDITS = {"planner": "crates/planner/src/plan/mod.rs", "page": "crates/pages/src/node.rs"}


def build_figures(root):
    builds = Builds()
    unit = ["test", "--locked", "--package", "octavo-planner", "--lib"]
    builds.after_edit("planner unit tests after an edit", "<= 20 s, <= 1 GiB", EDITS["planner"], unit)
    aggregator = ["build", "--locked", "--bin", "octavo-aggregator"]
    builds.after_edit("aggregator program after an edit of a page", "<= 30 s", EDITS["page"], aggregator)
    builds.sizes()
    builds.agent_memory()


def main():
    parser = argparse.ArgumentParser(prog="hack/house.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", action="store_true",
                        help="also measure program sizes, agent memory and build times; takes up to an hour (CARGO and CARGO_TARGET_DIR apply)")
    parser.add_argument("--places", action="store_true", help="list the places behind the counts that come from a search")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("."), metavar="DIR", help="count in another checkout")
    arguments = parser.parse_args()
    if arguments.build and arguments.root != pathlib.Path("."):
        parser.error("--build measures this checkout only")
    print(ROW.format("", "now", "target", "search or command"))
    print("|---|---|---|---|")
    text_figures(arguments.root, arguments.places)
    if arguments.build:
        build_figures(arguments.root)


main()
