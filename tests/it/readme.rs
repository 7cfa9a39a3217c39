//! Output of commands in `README.md` and on the page about the demo. `make golden` rewrites it; review the difference.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::golden::golden;
use crate::plan::programs;
use crate::support::root;
use crate::time_limits::Finish;

const PAGES: [&str; 2] = ["README.md", "docs/get-started/demo.md"];
/// Start of a block whose command is run.
const BEGINNING: &str = "```console\n$ ";

#[test]
fn commands_on_first_pages_print_what_the_pages_show() {
    let programs = programs();
    for name in PAGES {
        let page = fs::read_to_string(root().join(name)).unwrap();
        let mut blocks = page.split(BEGINNING);
        let mut actual = blocks.next().unwrap().to_owned();
        for block in blocks {
            let (command, rest) = block.split_once('\n').unwrap();
            let (_, after) = rest.split_once("```\n").unwrap();
            let output = printed(command, programs.path());
            assert!(!output.is_empty(), "{name}: {command} printed nothing");
            write!(actual, "{BEGINNING}{command}\n{output}```\n{after}").unwrap();
        }
        assert!(actual.contains(BEGINNING), "{name} shows no command");
        golden(&format!("../../{name}"), &actual);
    }
}

/// Standard output of a shell command with the built programs first in `PATH`.
fn printed(command: &str, programs: &Path) -> String {
    let output = Command::new("sh")
        .args(["-c", "PATH=\"$1:$PATH\"; eval \"$2\"", "sh"])
        .arg(programs)
        .arg(command)
        .current_dir(root())
        .env("COLUMNS", "80")
        .stdin(Stdio::null())
        .finish();
    String::from_utf8(output.stdout).unwrap()
}
