//! `octavo match` against a real aggregator that real agents on simulated machines report to.

use std::fs;
use std::process::{Command, Output, Stdio};

use crate::machine::Machine;
use crate::process::{Aggregator, Program};
use crate::time_limits::{Finish, Lines};

const H200: &str = "
machine: h200
driver: 570.133.20
gpus:
  - {board: H200_141GB, count: 2}
processes:
  - {pid: 900, gpu: 0, name: torchrun, memory_mib: 71000}
  - {pid: 901, gpu: 1, name: torchrun, memory_mib: 71000}
";

const A100: &str = "
machine: a100
driver: 570.133.20
gpus:
  - {board: A100_80GB, count: 2}
";

const PRICES: &str = "
apiVersion: octavo.dev/v1
kind: PriceBook
currency: USD
prices:
- {type: nvidia-a100-80gb, perHour: \"1.85\"}
";

const ROWS: &str = r#"[
{"hardware_type": "H200", "hardware_count": 1, "tps_mean": 120},
{"hardware_type": "A100 80GB", "hardware_count": 1, "tps_mean": 75}
]"#;

/// An aggregator with one node of each type, which it has received.
struct Fleet {
    // Fields are dropped in this order: agents before their machines.
    _agents: Vec<Program>,
    _machines: [Machine; 2],
    url: String,
    _aggregator: Aggregator,
}

impl Fleet {
    fn new(arguments: &[&str]) -> Self {
        let aggregator = Aggregator::start(&[&["--plaintext"], arguments].concat());
        let grpc = format!("http://{}", aggregator.grpc);
        let url = format!("http://{}", aggregator.http);
        let machines = [Machine::new(H200), Machine::new(A100)];
        let agents = machines.iter().zip(["h200", "a100"]).map(|(machine, name)| {
            machine.agent(&[
                "--aggregator",
                &grpc,
                "--aggregator-plaintext",
                "--node-name",
                name,
                "--interval=200ms",
            ])
        });
        let fleet =
            Self { _agents: agents.collect(), _machines: machines, url, _aggregator: aggregator };
        fleet.has_both_types();
        fleet
    }

    /// Two lines of a watch mean that both nodes are known.
    fn has_both_types(&self) {
        let mut watch = Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(["watch", "--no-headers"])
            .env("OCTAVO_SERVER", &self.url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = Lines::of(watch.stdout.take().unwrap());
        lines.line();
        lines.line();
        let _gone_already = watch.kill();
        let _gone_already = watch.wait();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_octavo"))
            .arg("match")
            .args(arguments)
            .env("OCTAVO_SERVER", &self.url)
            .stdin(Stdio::null())
            .finish()
    }

    #[track_caller]
    fn prints(&self, arguments: &[&str], code: i32) -> (String, String) {
        let output = self.run(arguments);
        let (out, notes) = (reported(&output.stdout), reported(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{out}{notes}");
        (out, notes)
    }
}

fn reported(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn ac_006_fallback_is_a_warning_and_exit_code_reports_the_verdict() {
    let directory = tempfile::tempdir().unwrap();
    let book = directory.path().join("prices.yaml");
    fs::write(&book, PRICES).unwrap();
    let fleet = Fleet::new(&["--price-book", book.to_str().unwrap()]);
    let (out, notes) = fleet.prints(&["--memory=80GB", "--prefer=nvidia-h200-141gb"], 0);
    assert_eq!(
        out,
        "\
RANK  NAME               COUNT  STATUS  FREE  ON ONE NODE  COST/H
1     nvidia-a100-80gb   1      free    2/2   2            1.85 USD
2     nvidia-h200-141gb  1      taken   0/2   0            -

nvidia-a100-80gb:
  80 GiB each, 74.5 GiB needed
  2 of 2 free, 2 on one node
  cost for 1: 1.85 USD per hour (on-demand)
  warning: nvidia-a100-80gb instead of the preferred nvidia-h200-141gb, of which
    not enough are free
  warning: nvidia-a100-80gb is Ampere; nvidia-h200-141gb is Hopper, which is
    newer and fits, but not enough are free
"
    );
    assert_eq!(notes, "note: 1 x nvidia-a100-80gb fits and is free\n");
    let (out, notes) = fleet.prints(&["--memory=100GB", "--no-headers"], 4);
    assert_eq!(out, "1  nvidia-h200-141gb  1  taken  0/2  0  -\n");
    assert_eq!(notes, "note: 1 x nvidia-h200-141gb fits, but not enough are free on one node\n");
    let (_, notes) = fleet.prints(&["--memory=192GB"], 5);
    assert_eq!(
        notes,
        "note: needs 178.8 GiB or more per device; the largest in this fleet is nvidia-h200-141gb with 140.4 GiB\n"
    );
    let (out, _) = fleet.prints(&["--memory=80GB", "-o", "name"], 0);
    assert_eq!(out, "nvidia-a100-80gb\nnvidia-h200-141gb\n");
    for format in ["json", "yaml"] {
        let (out, _) = fleet.prints(&["--memory=80GB", "-o", format], 0);
        assert!(out.contains("MatchAnswer") && out.contains("onOneNode"), "{out}");
    }
    let rows = directory.path().join("rows.json");
    fs::write(&rows, ROWS).unwrap();
    let rows = rows.to_str().unwrap();
    let (out, _) = fleet.prints(&["--memory=80GB", "--prefer=H200", "--performance", rows], 0);
    let words: Vec<&str> = out.split_whitespace().collect();
    let words = words.join(" ");
    assert!(
        words.contains("of which not enough are free: expect 75 instead of 120 tokens/s (benchmark results: A100 80GB, H200)"),
        "{out}"
    );
    let (_, notes) = fleet.prints(&["--performance", book.to_str().unwrap()], 1);
    assert!(notes.contains("cannot use the rows in "), "{notes}");
    let (_, notes) = fleet.prints(&["--memory=80 apples"], 1);
    assert!(notes.contains("is not an amount of memory"), "{notes}");
    let (_, notes) = fleet.prints(&["--isolation=none"], 2);
    assert!(notes.contains("exclusive, mig, shared"), "{notes}");
}

#[test]
fn invalid_price_book_is_an_error_with_its_location() {
    let directory = tempfile::tempdir().unwrap();
    let book = directory.path().join("prices.yaml");
    fs::write(&book, PRICES.replace("1.85", "cheap")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_octavo-aggregator"))
        .args([
            "--plaintext",
            "--grpc-listen=127.0.0.1:0",
            "--http-listen=127.0.0.1:0",
            "--price-book",
        ])
        .arg(&book)
        .finish();
    let text = reported(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("line 6:37: \"cheap\" is not a price"), "{text}");
}
