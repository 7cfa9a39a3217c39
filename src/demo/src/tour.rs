//! `octavo demo --tour`: ten commands against the running demo, each with its purpose and its real output.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::Stdio;

use octavo_terminal::output::{self, OutputState};
use octavo_terminal::style::{Colors, Style};
use octavo_terminal::text::printable;
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::{DemoError, DemoOutcome};

/// A command of the tour.
#[derive(Debug)]
struct Step {
    /// One sentence: what the command is for.
    purpose: &'static str,
    arguments: &'static str,
}

/// The commands, in the order of a first visit.
const STEPS: [Step; 10] = [
    Step {
        purpose: "Every node of the fleet, with its accelerators and its state.",
        arguments: "nodes",
    },
    Step {
        purpose: "The same devices by type: how many exist, and how many are in use.",
        arguments: "types",
    },
    Step {
        purpose: "Free units, pending pods, and why the other units are unavailable.",
        arguments: "availability --type nvidia-h100-80gb,nvidia-a100-80gb,nvidia-t4-16gb",
    },
    Step {
        purpose: "Memory and utilization of a team's pods. One container exceeds its share of a time-sliced GPU.",
        arguments: "top --namespace research",
    },
    Step {
        purpose: "A layout that cannot be applied, with the pod that blocks it: the drain respects its disruption budget.",
        arguments: "node shared-a100-02",
    },
    Step { purpose: "Allocated devices by team and type.", arguments: "usage" },
    Step {
        purpose: "The devices that fit a job, ranked, with their price per hour.",
        arguments: "match --count 2 --memory 40GB",
    },
    Step {
        purpose: "Hardware profiles of the cluster, with matching nodes and available workloads.",
        arguments: "profiles list",
    },
    Step {
        purpose: "A new hardware profile, derived from the nodes with H200 and created in the cluster.",
        arguments: "profiles create --type nvidia-h200-141gb --name h200 --namespace platform --display-name H200",
    },
    Step {
        purpose: "Profiles with mistakes: one selects nodes that no longer exist.",
        arguments: "profiles check",
    },
];

/// Exit codes of a command that failed; others are results.
const FAILURE_CODES: [i32; 2] = [1, 2];

/// A tour of a running demo.
#[derive(Debug)]
pub(crate) struct Tour<'a> {
    /// This program.
    pub(crate) own: &'a Path,
    /// URL of the aggregator.
    pub(crate) aggregator_url: &'a str,
    pub(crate) kubeconfig: &'a Path,
    pub(crate) colors: Colors,
}

impl Tour<'_> {
    /// Runs all commands. On a terminal, waits for Enter after each.
    pub(crate) async fn run(&self) -> Result<DemoOutcome, DemoError> {
        let mut enter = EnterReader::listen();
        for (index, step) in STEPS.iter().enumerate() {
            let number = index.saturating_add(1);
            let head = format!("{number}/{}  {}", STEPS.len(), step.purpose);
            let command = format!("$ octavo {}", step.arguments);
            let head = Style::Strong.paint(&head, self.colors);
            let text = format!("\n{head}\n{command}\n{}", self.output_of(step).await?);
            if output::out(&text).map_err(DemoError::Print)? == OutputState::Closed {
                return Ok(DemoOutcome::OutputClosed);
            }
            if number < STEPS.len() && !enter.next().await? {
                break;
            }
        }
        Ok(DemoOutcome::Complete(
            "==> the tour has ended. `octavo demo` starts the fleet with its web pages".to_owned(),
        ))
    }

    /// Runs a command as a user would, and returns its output with its notes.
    async fn output_of(&self, step: &Step) -> Result<String, DemoError> {
        let failed = |message: String| DemoError::Command { command: step.arguments, message };
        let color = match self.colors {
            Colors::On => "--color=always",
            Colors::Off => "--color=never",
        };
        let done = Command::new(self.own)
            .arg(color)
            .args(step.arguments.split(' '))
            .env("OCTAVO_SERVER", self.aggregator_url)
            .env("KUBECONFIG", self.kubeconfig)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| failed(error.to_string()))?;
        let notes = String::from_utf8_lossy(&done.stderr);
        if done.status.code().is_none_or(|code| FAILURE_CODES.contains(&code)) {
            return Err(failed(printable(notes.trim())));
        }
        Ok(format!("{}{notes}", String::from_utf8_lossy(&done.stdout)))
    }
}

/// Waits for Enter, if standard input and output are terminals.
#[derive(Debug)]
struct EnterReader(Option<mpsc::Receiver<()>>);

impl EnterReader {
    fn listen() -> Self {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Self(None);
        }
        let (sender, lines) = mpsc::channel(1);
        // A read cannot be canceled, so it runs on a thread that ends with the process.
        std::thread::spawn(move || {
            let mut line = String::new();
            while io::stdin().read_line(&mut line).is_ok_and(|count| count > 0) {
                line.clear();
                if sender.blocking_send(()).is_err() {
                    return;
                }
            }
        });
        Self(Some(lines))
    }

    /// Returns whether the tour continues: not after the end of standard input.
    async fn next(&mut self) -> Result<bool, DemoError> {
        let Some(lines) = &mut self.0 else {
            return Ok(true);
        };
        let prompt = "\nPress Enter for the next command, Ctrl-C to stop. ";
        let _ = output::out(prompt).map_err(DemoError::Print)?;
        Ok(lines.recv().await.is_some())
    }
}
