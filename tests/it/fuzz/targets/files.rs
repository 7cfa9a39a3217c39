//! Files of users, of other programs, and of an earlier run.

use octavo_demand::simulation::{TraceError, parse_trace};
use octavo_files::hooks::Hooks;
use octavo_files::layouts::{self, LayoutError};
use octavo_files::{cdi, node_resources, opencost, plugin_config};
use octavo_fleet::hardware_profile::object::object;
use octavo_fleet::price::{PurchaseOption, parse_time};
use octavo_ledger::audit::{ChainError, ChainVerifier};
use octavo_model::inventory::Inventory;
use octavo_model::source_position::SourcePosition;
use octavo_planner::plan::feasible;

use crate::fuzz::fuzzer::{Outcome, Target};
use crate::fuzz::seeds::{files, machines};
use crate::layouts::{checks, table};

/// The first error, after a check of the locations of all.
fn located<T>(text: &str, result: &Result<T, Vec<LayoutError>>) -> Outcome {
    let Err(errors) = result else { return Outcome::Accepted };
    for error in errors {
        checks::within(text, error.position(), &error.to_string());
    }
    Outcome::Rejected(errors[0].to_string())
}

pub(super) fn layouts() -> Target {
    let machines = checks::machines();
    let seeds = table::cases().into_iter().map(|case| case.input);
    Target::text(seeds, move |text| {
        checks::check(text, &machines);
        located(text, &layouts::parse(text))
    })
}

pub(super) fn prices() -> Target {
    Target::text(files(&["demo/prices.yaml", "tests/golden/cli/prices"]), |text| {
        let parsed = layouts::prices::parse(text);
        if let Ok(book) = &parsed {
            let written = layouts::prices::write(book);
            let again = layouts::prices::parse(&written)
                .unwrap_or_else(|errors| panic!("{errors:?}\n{written}"));
            assert_eq!(layouts::prices::write(&again), written);
            assert_eq!(again.entries().count(), book.entries().count(), "{written}");
        }
        located(text, &parsed)
    })
}

pub(super) fn budgets() -> Target {
    let seed = "apiVersion: octavo.dev/v1\nkind: Budgets\ncurrency: USD\nbudgets:\n- {namespace: team-a, amount: \"5000\"}\n\
                - {team: research, amount: \"12.50\", currency: EUR}\n";
    Target::text([seed], |text| located(text, &layouts::budgets::parse(text)))
}

pub(super) fn opencost() -> Target {
    let at = parse_time("2026-11-29").unwrap();
    Target::text(files(&["tests/golden/cli/prices"]), move |text| {
        let usd = "USD".parse().unwrap();
        let import = |text: &str| opencost::import(text, &usd, PurchaseOption::OnDemand);
        let imported = match import(text) {
            Ok(imported) => imported,
            Err(errors) => {
                for error in &errors {
                    checks::within(
                        text,
                        SourcePosition { line: error.line, column: 1 },
                        &error.to_string(),
                    );
                }
                return Outcome::Rejected(errors[0].to_string());
            }
        };
        let exported = opencost::export(&imported.book, PurchaseOption::OnDemand, at);
        let again =
            import(&exported.csv).unwrap_or_else(|errors| panic!("{errors:?}\n{}", exported.csv));
        assert_eq!(
            again.book.entries().count(),
            exported.csv.lines().count() - 1,
            "{}",
            exported.csv
        );
        if imported.book.entries().next().is_none() {
            return Outcome::Rejected("no prices".to_owned());
        }
        Outcome::Accepted
    })
}

pub(super) fn hardware_profiles() -> Target {
    let demo = String::from_utf8(files(&["demo/profiles.yaml"]).concat()).unwrap();
    let documents = demo.split("\n- ").skip(1).map(|item| {
        let item = item.replace("\n  ", "\n");
        format!("apiVersion: infrastructure.opendatahub.io/v1\nkind: HardwareProfile\n{item}")
    });
    let mut seeds: Vec<String> = documents.collect();
    seeds.push(seeds.join("\n---\n"));
    Target::text(seeds, |text| {
        let parsed = octavo_files::hardware_profiles::parse(text);
        for profile in parsed.iter().flatten() {
            let written = octavo_files::hardware_profiles::yaml(&object(profile));
            let again = octavo_files::hardware_profiles::parse(&written)
                .unwrap_or_else(|error| panic!("{error}\n{written}"));
            let [again] = again.as_slice() else { panic!("{written}") };
            assert_eq!(octavo_files::hardware_profiles::yaml(&object(again)), written);
        }
        Outcome::from_result(&parsed)
    })
}

pub(super) fn plugin_config() -> Target {
    let seed = "version: v1\nflags:\n  migStrategy: mixed\nsharing:\n  timeSlicing:\n    renameByDefault: false\n    \
                failRequestsGreaterThanOne: true\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n    - name: \
                nvidia.com/mig-1g.10gb\n      replicas: 2\n";
    Target::text([seed], |text| {
        let key = plugin_config::key("layout", text);
        let parsed = plugin_config::read(&key, text);
        if let Ok(config) = &parsed {
            assert_eq!(plugin_config::text(config), text);
        }
        Outcome::from_result(&parsed)
    })
}

pub(super) fn hooks() -> Target {
    let seed = "version: v1\nhooks:\n  pre-apply-mode:\n  - {workdir: /tmp, command: /bin/sh, args: [-c, 'true'], envs: {A: b}}\n  \
                apply-exit: []\n";
    Target::text([seed], |text| Outcome::from_result(&Hooks::parse(text)))
}

/// Seeds for checkpoints: those of recorded machines.
pub(super) fn checkpoints() -> (Vec<String>, Vec<Inventory>) {
    let machines = checks::machines();
    let seeds = machines.iter().filter_map(|machine| octavo_files::checkpoint::write(machine).ok());
    (seeds.collect(), machines)
}

/// Reads the targets of a checkpoint, and plans them.
pub(super) fn check_targets(text: &str, machines: &[Inventory]) -> Outcome {
    use octavo_planner::layout::MigTarget;
    let mut outcome = Outcome::Rejected(String::new());
    for machine in machines {
        let read = octavo_files::checkpoint::read(text, machine);
        for target in read.iter().flat_map(|targets| &targets.devices) {
            let device = machine.devices.iter().find(|device| device.pci == target.pci);
            let device = device.unwrap_or_else(|| panic!("{} is not a device", target.pci));
            if let Some(MigTarget::Enabled(instances)) = &target.mig {
                let _ = feasible(device, instances);
            }
        }
        if read.is_ok() || matches!(&outcome, Outcome::Rejected(text) if text.is_empty()) {
            outcome = Outcome::from_result(&read);
        }
    }
    outcome
}

pub(super) fn checkpoint() -> Target {
    let (seeds, machines) = checkpoints();
    Target::text(seeds, move |text| check_targets(text, &machines))
}

pub(super) fn inventory() -> Target {
    let small = ["a30", "mixed", "overlap", "rtx-pro", "t4", "unknown", "cpu-only"];
    let paths = small.map(|name| format!("tests/golden/cli/machines/{name}.json"));
    let mut seeds = files(&paths.each_ref().map(String::as_str));
    let yaml = files(&["demo/machines/t4.yaml"]);
    seeds.extend(yaml);
    let neuron = machines().into_iter().filter(|machine| machine.neuron.is_some()).take(2);
    seeds.extend(neuron.map(|machine| serde_json::to_vec(&machine).unwrap()));
    Target::text(seeds, |text| {
        let parsed = octavo_files::inventory::parse(text);
        if let Ok(inventory) = &parsed {
            let written = serde_json::to_string(inventory).unwrap();
            let again = octavo_files::inventory::parse(&written)
                .unwrap_or_else(|error| panic!("{error:?}\n{written}"));
            assert_eq!(&again, inventory);
            let _ = octavo_files::checkpoint::write(inventory);
        }
        Outcome::from_result(&parsed)
    })
}

pub(super) fn label_set() -> Target {
    let seeds = [
        &files(&["demo/expected/t4.labels", "tests/golden/sharing/node.json"])[..],
        &[b"metadata:\n  labels:\n    octavo.dev/type: nvidia-t4-16gb\nstatus:\n  allocatable:\n    nvidia.com/gpu: '8'\n".to_vec()],
    ];
    Target::text(seeds.concat(), |text| {
        let allocatable = node_resources::allocatable(text);
        let labels = octavo_files::label_set::parse(text);
        Outcome::from_result(&labels.map_err(|error| format!("{error} {:?}", allocatable.err())))
    })
}

pub(super) fn trace() -> Target {
    let paths = ["tests/golden/cli/simulate/queue.csv", "tests/golden/cli/simulate/usage.csv"];
    Target::text(files(&paths), |text| {
        let parsed = parse_trace(text);
        let lines = u64::try_from(text.split(['\n', '\r']).count()).unwrap();
        match &parsed {
            Ok(trace) => {
                assert!(trace.jobs.is_sorted_by_key(|job| job.arrival), "{trace:?}");
                assert!(trace.jobs[0].arrival.is_zero(), "{trace:?}");
            }
            Err(TraceError::Value { line, reason }) => {
                assert!((1..=lines).contains(line), "line {line} of {lines}: {reason}");
            }
            Err(TraceError::Csv(error)) => {
                let line = error.position().map(csv::Position::line);
                assert!(line.is_some_and(|line| (1..=lines).contains(&line)), "{error}");
            }
            Err(_) => {}
        }
        Outcome::from_result(&parsed)
    })
}

pub(super) fn measured_rows() -> Target {
    let row = r#"{"hardware_type":"H100","hardware_count":1,"prompt_tokens":512,"output_tokens":512,"requests_per_second":2.5,"ttft_p90":120.5,"e2e_p90":900}"#;
    let page = format!(r#"{{"rows":[{row},{row}],"nextPageToken":"x"}}"#);
    let wrapped = r#"{"items":[{"customProperties":{"hardware_type":{"string_value":"A100"},"hardware_count":{"int_value":"2"}}}]}"#;
    Target::text([row, &page, wrapped, &format!("{row}\n{row}")], |text| {
        Outcome::from_result(&octavo_files::measured_rows::parse(text))
    })
}

pub(super) fn cdi() -> Target {
    let seed = r#"{"cdiVersion":"0.6.0","kind":"nvidia.com/gpu","containerEdits":{"deviceNodes":[{"path":"/dev/nvidiactl"}],"mounts":[]}}"#;
    Target::text([seed, "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n"], |text| {
        Outcome::from_result(&cdi::DriverEdits::parse(text).ok_or("no specification"))
    })
}

pub(super) fn audit_chain() -> Target {
    let hash = "0".repeat(64);
    let seed = format!(
        "{{\"seq\":1,\"time\":\"2026-11-29T12:00:00Z\",\"previous\":\"{hash}\",\"kind\":\"price\",\"hash\":\"{hash}\"}}"
    );
    Target::text([seed], |text| {
        let mut chain = ChainVerifier::new(None);
        let verified = text.lines().try_for_each(|line| match chain.verify_line(line) {
            // A correct hash, so that the order is verified.
            Err(ChainError::Changed(_, hash)) => {
                let (fields, _) = line.rsplit_once(':').unwrap();
                chain.verify_line(&format!("{fields}:\"{hash}\"}}"))
            }
            verified => verified,
        });
        Outcome::from_result(&verified.and_then(|()| chain.finish()))
    })
}

pub(super) fn history() -> Target {
    let device = r#"{"pci":"0000:07:00.0","result":"applied","destroyed":1,"created":2,"retries":1,"durationMs":12,"hardwareMs":3}"#;
    let seed = format!(
        "{{\"time\":\"2026-11-29T12:00:00Z\",\"plan\":\"p\",\"layout\":\"all-1g\",\"by\":\"agent\",\"durationMs\":5,\"devices\":[{device}]}}\n"
    );
    Target::text([seed], |text| {
        let attempts = octavo_files::history::parse(text);
        let written: String = attempts.iter().map(octavo_files::history::line).collect();
        assert_eq!(octavo_files::history::parse(&written), attempts);
        assert_eq!(octavo_files::history::last(text), attempts.last().cloned());
        Outcome::from_result(&attempts.last().ok_or("no attempts"))
    })
}

pub(super) fn journal() -> Target {
    let file =
        String::from_utf8(files(&["crates/files/src/journal/recorded.journal"]).concat()).unwrap();
    let (_, body) = file.split_once('\n').unwrap();
    Target::text([body], |text| {
        // A correct header, so that the content is read.
        let head = octavo_model::digest::Digest::from_bytes(text.as_bytes());
        let file = format!("octavo-journal 1 {} {head:016x}\n{text}", text.len());
        let _ = octavo_files::journal::parse(text.as_bytes());
        let parsed = octavo_files::journal::parse(file.as_bytes());
        if let Ok(record) = &parsed {
            let written = octavo_files::journal::write(record);
            assert_eq!(&octavo_files::journal::parse(written.as_bytes()).unwrap(), record);
        }
        Outcome::from_result(&parsed)
    })
}
