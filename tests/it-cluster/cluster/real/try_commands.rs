//! The commands that `make try` prints, run in their order on the shared nodes, and the page that explains them.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use super::super::nodes::Nodes;
use super::site::{A100, NAMESPACE, Site, VERSION, values};
use crate::time_limits::Finish;

/// As `hack/try.sh` installs it.
const INSTALL: &str = "
kubectl create namespace octavo-system
kubectl label namespace octavo-system pod-security.kubernetes.io/enforce=privileged
helm install octavo deploy/chart/octavo --namespace octavo-system --values hack/try/values.yaml \
  --set-file layouts=hack/try/layouts.yaml --wait
";

/// Ends the commands that run until Ctrl-C.
const BACKGROUND: &str = "background=()\ntrap 'kill \"${background[@]}\"' EXIT\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The commands without their comments.
fn commands() -> Vec<String> {
    let output = Command::new(root().join("hack/try.sh")).arg("--list").finish();
    assert!(output.status.success(), "{output:?}");
    let list = String::from_utf8(output.stdout).unwrap();
    list.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// The commands as one script. Those that run until Ctrl-C run in the background.
fn script() -> String {
    let mut script = BACKGROUND.to_owned();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for command in commands() {
        let command = command
            .replace("octavo-aggregator 8443", &format!("octavo-aggregator {port}:8443"))
            .replace("localhost:8443", &format!("localhost:{port}"));
        if command == "octavo watch" {
            writeln!(script, "{command} & background+=($!)").unwrap();
        } else if command.contains(" port-forward ") {
            // Its first line is printed when the port is open.
            writeln!(script, "exec 5< <(exec {command}); background+=($!); read -r _ <&5").unwrap();
        } else {
            writeln!(script, "{command}").unwrap();
        }
    }
    script
}

#[tokio::test]
async fn commands_of_make_try_run_on_real_nodes() {
    let _alone = Nodes::alone().await;
    let site = Site::new();
    site.reader.set_values(&values(VERSION));
    site.reader.run_commands(INSTALL, A100);
    site.node(A100, |node| !node["metadata"]["labels"]["octavo.dev/count"].is_null());
    let shown = site.reader.run_commands(&script(), A100);
    for expected in [
        "nvidia-a100-80gb",
        "agent       ",
        "3g.40gb",
        "default/trainer",
        "blocked",
        "policy inference created",
        "<!DOCTYPE html>",
    ] {
        assert!(shown.contains(expected), "no {expected:?} in\n{shown}");
    }
    assert_eq!([site.geometry(0), site.geometry(1)], [["3g.40gb"; 2]; 2]);
    site.reader.run_block("operations/upgrade.md", "uninstall", A100);
    site.api().kubectl(&["delete", "crd", "acceleratorpolicies.octavo.dev"]);
    site.is_restored();
    let left = site.api().kubectl(&["get", "namespaces", "-o", "name"]);
    assert!(!left.contains(NAMESPACE), "{left}");
}

/// The blocks of the page that are marked with `<!-- make try -->` have the commands in the same order.
#[test]
fn page_about_make_try_explains_its_commands() {
    let page = root().join("docs/get-started/try-on-kubernetes.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks = page.split("<!-- make try -->\n```sh\n").skip(1);
    let explained = blocks.flat_map(|block| block.split_once("```\n").unwrap().0.lines());
    let explained: Vec<&str> = explained.collect();
    assert_eq!(explained, commands());
}
