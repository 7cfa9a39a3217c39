//! Errors and warnings of layout files.

use octavo_fleet::price::PriceError;
use octavo_model::id::ParseError;
use octavo_model::profile::ProfileNameError;
use octavo_model::source_position::SourcePosition;
use thiserror::Error;

/// A problem with its position in the file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct Positioned<P> {
    position: SourcePosition,
    problem: P,
}

/// An error with its position.
pub type LayoutError = Positioned<LayoutProblem>;

/// A warning with its position: something unusual that still has a meaning.
pub type LayoutWarning = Positioned<WarningProblem>;

impl<P> Positioned<P> {
    pub(super) fn new(position: SourcePosition, problem: P) -> Self {
        Self { position, problem }
    }

    /// Position of the problem: always within the text or directly behind its end.
    pub fn position(&self) -> SourcePosition {
        self.position
    }
}

/// Kind of warning.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WarningProblem {
    /// A zero next to other counts. mig-parted accepts it, but its `assert` then never succeeds.
    #[error(
        "{profile}: a count of 0 is ignored; mig-parted would never report this layout as applied"
    )]
    ZeroCount {
        /// The profile.
        profile: String,
    },
    /// A name that is not a valid label value.
    #[error("no node label can select the layout {name}: {LABEL_RULE}")]
    Name {
        /// The name, quoted.
        name: String,
    },
    /// A key that NVIDIA's plugin parses but ignores.
    #[error("NVIDIA's device plugin parses {key:?} but ignores it; Octavo applies it")]
    IgnoredByDevicePlugin {
        /// The key.
        key: &'static str,
    },
    /// Resource name patterns, which neither program uses.
    #[error(
        "NVIDIA's device plugin and Octavo both ignore \"resources\": the names depend on the MIG strategy"
    )]
    Resources,
    /// IMEX channels, which Octavo does not support.
    #[error("\"imex\" is ignored: Octavo does not pass IMEX channels to containers")]
    Imex,
    /// A flag of NVIDIA's programs.
    #[error("{key} is ignored{}", own_flag(*.instead))]
    Flag {
        /// The key with its section.
        key: String,
        /// The corresponding flag of the agent.
        instead: Option<&'static str>,
    },
}

fn own_flag(flag: Option<&str>) -> String {
    flag.map_or_else(String::new, |flag| format!(": use the agent's flag {flag}"))
}

/// Valid label values. Source: Kubernetes, "Labels and Selectors".
const LABEL_RULE: &str = "a label value has at most 63 letters, digits, '-', '_' and '.', and starts and ends with \
    a letter or digit";

/// Kind of error. Texts from the file are quoted and shortened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutProblem {
    /// The file is too large.
    #[error("the file has {bytes} bytes; the maximum is {most}")]
    TooLong {
        /// Length in bytes.
        bytes: usize,
        /// Maximum length in bytes.
        most: usize,
    },
    /// A character that YAML does not allow.
    #[error("the character U+{:04X} is not allowed in YAML; remove it, or write it as an escape in double quotes", u32::from(*.0))]
    Character(char),
    /// The text is not YAML.
    #[error("this is not YAML: {0}")]
    Syntax(String),
    /// The nesting is too deep.
    #[error("nested deeper than {most} levels")]
    TooDeep {
        /// Maximum depth.
        most: usize,
    },
    /// Too many values, possibly because of aliases.
    #[error("more than {most} values, counting the values of each alias")]
    TooManyValues {
        /// Maximum number of values.
        most: usize,
    },
    /// A YAML tag.
    #[error("tags such as !!str are not supported; remove it")]
    Tag,
    /// An alias inside its own anchor.
    #[error("this alias refers to a value that contains it")]
    RecursiveAlias,
    /// A second YAML document.
    #[error(
        "a second document starts here; a file can contain only one (NVIDIA's programs silently ignore the others)"
    )]
    SecondDocument,
    /// A key that is a list or a mapping.
    #[error("a key must be text")]
    KeyNotText,
    /// A merge key `<<` with an invalid value.
    #[error("'<<' requires a mapping, or a list of mappings")]
    Merge,
    /// A duplicate key.
    #[error("duplicate key {key}, first at {first}; remove one")]
    DuplicateKey {
        /// The key, quoted.
        key: String,
        /// Position of its first occurrence.
        first: SourcePosition,
    },
    /// The file is of no known dialect.
    #[error(
        "this is not a layouts file: expected \"apiVersion: octavo.dev/v1\" and \"kind: Layouts\", or \"version: \
         v1\" for files of mig-parted and NVIDIA's device plugin"
    )]
    UnknownDialect,
    /// The file is not a price book.
    #[error(
        "this is not a price book: expected \"apiVersion: octavo.dev/v1\" and \"kind: PriceBook\""
    )]
    NotAPriceBook,
    /// The file is not a budget file.
    #[error(
        "this is not a budget file: expected \"apiVersion: octavo.dev/v1\" and \"kind: Budgets\""
    )]
    NotABudgetFile,
    /// A budget without a scope, or with two.
    #[error("a budget is for either a namespace or a team: set one of \"namespace\" and \"team\"")]
    BudgetScope,
    /// An invalid price, currency or purchase option.
    #[error(transparent)]
    Price(#[from] PriceError),
    /// The file has keys of two dialects.
    #[error(
        "the file mixes keys of two dialects: \"apiVersion\", \"kind\" and \"layouts\" belong to Octavo, \
         \"version\" and \"mig-configs\" to mig-parted, \"version\", \"flags\", \"resources\", \"sharing\" \
         and \"imex\" to NVIDIA's device plugin; use the keys of one dialect"
    )]
    MixedDialects,
    /// A key with a fixed value has another value.
    #[error("{key} must be {expected:?}, not {found}")]
    WrongFixedValue {
        /// The key.
        key: &'static str,
        /// The expected value.
        expected: &'static str,
        /// The actual value.
        found: String,
    },
    /// An unknown key.
    #[error("unknown key {key} in {within}; {}", hint(.nearest.as_ref(), .known))]
    UnknownKey {
        /// The key, quoted.
        key: String,
        /// The mapping that contains it.
        within: &'static str,
        /// The most similar known key.
        nearest: Option<&'static str>,
        /// All known keys.
        known: &'static [&'static str],
    },
    /// A required key is missing.
    #[error("{within} needs {key:?}: {example}")]
    MissingKey {
        /// The key.
        key: &'static str,
        /// The mapping that requires it.
        within: &'static str,
        /// An example.
        example: &'static str,
    },
    /// A value of the wrong type.
    #[error("{what} must be {expected}, not {found}")]
    WrongKind {
        /// The key or purpose of the value.
        what: &'static str,
        /// The expected type.
        expected: &'static str,
        /// The actual value.
        found: String,
    },
    /// A list or mapping that must not be empty.
    #[error("{what} must not be empty: {example}")]
    Empty {
        /// The key or purpose of the value.
        what: &'static str,
        /// An example.
        example: &'static str,
    },
    /// A configuration name that is too long.
    #[error("the name of a configuration can have at most {most} characters")]
    LongName {
        /// Maximum number of characters.
        most: usize,
    },
    /// A layout name that is not a valid label value.
    #[error(
        "{name} is not a valid layout name, because a node label selects the layout: {LABEL_RULE}"
    )]
    Name {
        /// The name, quoted.
        name: String,
    },
    /// An invalid profile.
    #[error(transparent)]
    Profile(#[from] ProfileNameError),
    /// An unknown profile attribute.
    #[error(
        "unknown profile attribute {attribute}; known attributes are +me, +me.all, +gfx and -me"
    )]
    Attribute {
        /// The attribute with its sign, quoted.
        attribute: String,
    },
    /// A duplicate attribute in a profile name.
    #[error("duplicate attribute {attribute} in one profile; remove one")]
    DuplicateAttribute {
        /// The attribute with its sign, quoted.
        attribute: String,
    },
    /// A duplicate profile, possibly in another spelling.
    #[error("duplicate profile {profile}, first at {first}; write the sum once")]
    DuplicateProfile {
        /// Canonical name of the profile.
        profile: String,
        /// Position of its first occurrence.
        first: SourcePosition,
    },
    /// An invalid partition count.
    #[error("the count of {profile} must be a positive integer, not {found}")]
    Count {
        /// The profile, quoted.
        profile: String,
        /// The actual value.
        found: String,
    },
    /// All counts are zero.
    #[error("all counts are 0; write {{}} for MIG on without partitions")]
    AllZero,
    /// Partitions although MIG is disabled.
    #[error("partitions without MIG: mig-enabled is false, so remove mig-devices")]
    PartitionsWithoutMig,
    /// `mig: enabled` without partitions.
    #[error(
        "specify the partitions: \"mig: {{1g.10gb: 7}}\", or \"mig: {{}}\" for MIG on without partitions"
    )]
    MigEnabled,
    /// A range whose end is before its start.
    #[error("the range {range} ends before it starts")]
    ReversedRange {
        /// The range, quoted.
        range: String,
    },
    /// A duplicate value in a list.
    #[error("duplicate value {value}, first at {first}")]
    DuplicateValue {
        /// The value.
        value: String,
        /// Position of its first occurrence.
        first: SourcePosition,
    },
    /// Two prices of the same devices for the same time.
    #[error(
        "{key} already has a price for this time, at {first}; remove one, or set \"from\" and \"until\" so that they do \
         not overlap"
    )]
    OverlappingPrice {
        /// The devices.
        key: String,
        /// Position of the other price.
        first: SourcePosition,
    },
    /// A price that is never valid.
    #[error("until must be later than from, which is {from}")]
    EmptyValidity {
        /// Start of the validity.
        from: String,
    },
    /// An invalid identifier.
    #[error(transparent)]
    Id(#[from] ParseError),
    /// An invalid amount of memory.
    #[error(
        "{found} is not an amount of memory: use an integer with a unit, such as 40Gi or 40960Mi (Ki, Mi, Gi, Ti \
         are powers of 1024; k, M, G, T are powers of 1000)"
    )]
    Memory {
        /// The actual value.
        found: String,
    },
    /// A key that requires `replicas` next to it.
    #[error(
        "{key:?} has no effect without \"replicas\" in the same mapping; set it in each profile and resource"
    )]
    RequiresReplicas {
        /// The key.
        key: String,
    },
    /// An invalid resource name.
    #[error(
        "{found} is not an NVIDIA resource name: use nvidia.com/ followed by lowercase letters, digits, '-' and \
         '.', at most {most} characters"
    )]
    ResourceName {
        /// The actual value, quoted.
        found: String,
        /// Maximum number of characters, including `nvidia.com/`.
        most: usize,
    },
    /// MPS together with time-slicing.
    #[error(
        "both \"mps\" and \"timeSlicing\" are set: NVIDIA's device plugin would silently ignore \"timeSlicing\"; \
         remove one"
    )]
    MpsWithTimeSlicing,
    /// MPS alone.
    #[error(
        "\"mps\" is not supported: Octavo runs no MPS control daemon; use \"timeSlicing\", or leave sharing to \
         NVIDIA's device plugin"
    )]
    MpsUnsupported,
    /// An invalid device filter.
    #[error(
        "{found} is not a device filter, so it would never match: write the PCI device id before the vendor id, \
         such as \"0x20B210DE\" or \"0x20B210DE:0x147F10DE\""
    )]
    InvalidDeviceFilter {
        /// The actual value.
        found: String,
    },
    /// A rule without `mig`, `timeSlicing` and `claims`.
    #[error("this rule has no effect: add \"mig\", \"timeSlicing\" or \"claims\"")]
    EmptyRule,
    /// Partitions in a rule with `claims: dra`.
    #[error(
        "resource claims determine the partitions of a rule with \"claims: dra\": write \"mig: {{}}\", or remove \
         \"claims\""
    )]
    PartitionsWithClaims,
    /// Settings of resources in a rule with `claims: dra`.
    #[error(
        "with \"claims: dra\", time-slicing has only \"replicas\" and \"profiles\" with \"replicas\": remove the \
         other keys"
    )]
    SharingWithClaims,
    /// Two rules with `devices: rest`.
    #[error(
        "a second rule for the rest of the devices, the first is at {first}; a layout can have only one"
    )]
    DuplicateRestRule {
        /// Position of the first rule.
        first: SourcePosition,
    },
    /// A rule with `devices: all` next to another rule.
    #[error(
        "this rule selects all devices, and another rule is at {other}, so two rules select the same device; \
         \"devices: rest\" selects the devices that no other rule selects"
    )]
    AllWithOtherRules {
        /// Position of the other rule.
        other: SourcePosition,
    },
    /// There are more errors than are reported.
    #[error("there are more than {} errors; correct these first", Self::MAX_ERRORS)]
    TooManyErrors,
}

impl LayoutProblem {
    /// Maximum number of reported errors.
    pub const MAX_ERRORS: usize = 100;
}

/// Suggests the most similar key, or lists all keys.
fn hint(nearest: Option<&&'static str>, known: &[&str]) -> String {
    match nearest {
        Some(nearest) => format!("did you mean {nearest:?}?"),
        None => format!("known keys: {}", known.join(", ")),
    }
}
