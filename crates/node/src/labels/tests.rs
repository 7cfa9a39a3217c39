//! Complete label sets, compared with tables written manually from the rules of gpu-feature-discovery.

mod chips;
mod edges;
mod gfd;
mod machines;
mod octavo_keys;
mod properties;
mod unreported;

use super::*;

/// Labels of every node with driver 570.133.20.
const DRIVER_570: &str = "
nvidia.com/cuda.driver-version.full=570.133.20
nvidia.com/cuda.driver-version.major=570
nvidia.com/cuda.driver-version.minor=133
nvidia.com/cuda.driver-version.revision=20
nvidia.com/cuda.driver.major=570
nvidia.com/cuda.driver.minor=133
nvidia.com/cuda.driver.rev=20
nvidia.com/cuda.runtime-version.full=12.8
nvidia.com/cuda.runtime-version.major=12
nvidia.com/cuda.runtime-version.minor=8
nvidia.com/cuda.runtime.major=12
nvidia.com/cuda.runtime.minor=8
octavo.dev/driver=570.133.20
";

fn options(mig_strategy: MigStrategy) -> Options {
    Options { mig_strategy, ..Options::default() }
}

/// Compares the whole set with the lines of `blocks`.
#[track_caller]
fn check(inventory: &Inventory, options: &Options, blocks: &[&str]) {
    let mut expected: Vec<&str> = blocks
        .iter()
        .flat_map(|block| block.lines())
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    expected.sort_unstable_by_key(|line| line.split('=').next());
    let text = compile(inventory, options, None).labels.to_string();
    let found: Vec<&str> = text.lines().collect();
    assert_eq!(found, expected, "\n{text}");
}

fn notes(inventory: &Inventory, options: &Options) -> Vec<String> {
    let compiled = compile(inventory, options, None);
    compiled.notes.iter().map(Note::to_string).collect()
}
