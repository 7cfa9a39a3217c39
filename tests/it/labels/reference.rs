//! List of all labels, and the page generated from it, `docs/reference/label-list.md`.
//!
//! `list.rs` compares the list with the labels of known machines and with the keys in the compiler.

mod groups;

use std::fmt::Write as _;

pub(super) use self::groups::GROUPS;

/// Description of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LabelReference {
    /// Key. `<type>` and `<profile>` stand for an accelerator type and a MIG profile.
    pub(super) key: &'static str,
    /// Example of a value.
    pub(super) example: &'static str,
    /// Condition under which the label is present, in addition to that of its group.
    pub(super) present: &'static str,
    /// Meaning of the value.
    pub(super) meaning: &'static str,
}

/// Labels with a common heading and condition.
#[derive(Debug, Clone, Copy)]
pub(super) struct LabelGroup {
    /// Heading.
    pub(super) heading: &'static str,
    /// Text below the heading.
    pub(super) introduction: &'static str,
    /// Labels.
    pub(super) labels: &'static [LabelReference],
}

const HEAD: &str = "\
# Label list

This page lists every label that Octavo writes to a Node, with an example of its value and the condition under which it is present.
[Labels](labels.md) explains how to select nodes by these labels and how types are determined.

The page is generated from the code by `make golden`. A node without accelerators has none of these labels.
";

/// Returns the page as committed to the repository.
pub(super) fn page() -> String {
    let mut page = HEAD.to_owned();
    for group in GROUPS {
        let _infallible = write!(
            page,
            "\n## {}\n\n{}\n\n| key | example | present if | meaning |\n|---|---|---|---|\n",
            group.heading, group.introduction
        );
        for LabelReference { key, example, present, meaning } in group.labels {
            let _infallible = writeln!(page, "| `{key}` | `{example}` | {present} | {meaning} |");
        }
    }
    page.push_str(FOOT);
    page
}

const FOOT: &str = "
## Labels for other programs

Octavo sets these labels of other programs in certain modes only.

| key | example | present if | meaning |
|---|---|---|---|
| `nvidia.com/device-plugin.config` | `octavo-serving-0f3a` | `--sharing hand-off` and time-slicing | configuration of NVIDIA's device plugin |
| `nvidia.com/mig.config.state` | `success` | `--compat mig-manager` | state of the layout: `success`, `pending`, `failed` |
| `nvidia.com/gpu.deploy.<operand>` | `paused-for-octavo` | operands are paused | pauses an operand of the GPU Operator |

## Labels that users set

Agents read these labels and never write them. With accelerator policies, the aggregator sets `octavo.dev/layout`.

| key | example | meaning |
|---|---|---|
| `octavo.dev/layout` | `serving` | name of the desired layout of the node |
| `octavo.dev/type-override` | `nvidia-a100-80gb` | type of the devices whose type is unknown |
| `nvidia.com/mig.config` | `all-1g.10gb` | name of the desired layout, with `--compat mig-manager` |
";
