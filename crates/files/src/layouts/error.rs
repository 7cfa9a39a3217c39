//! Errors and warnings of layout files.

use octavo_fleet::price::PriceError;
use octavo_model::id::IdError;
use octavo_model::profile::ProfileNameError;
use octavo_model::source_position::SourcePosition;
use thiserror::Error;

/// An error with its position.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct LayoutError {
    place: SourcePosition,
    problem: LayoutProblem,
}

/// A warning with its position: something unusual that still has a meaning.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct LayoutWarning {
    place: SourcePosition,
    problem: WarningProblem,
}

impl LayoutError {
    pub(super) fn new(place: SourcePosition, problem: LayoutProblem) -> Self {
        Self { place, problem }
    }

    /// Position of the error: always within the text or directly behind its end.
    pub fn place(&self) -> SourcePosition {
        self.place
    }

    /// The problem.
    pub fn problem(&self) -> &LayoutProblem {
        &self.problem
    }
}

impl LayoutWarning {
    pub(super) fn new(place: SourcePosition, problem: WarningProblem) -> Self {
        Self { place, problem }
    }

    /// Position of the warning.
    pub fn place(&self) -> SourcePosition {
        self.place
    }

    /// The problem.
    pub fn problem(&self) -> &WarningProblem {
        &self.problem
    }
}

/// Kind of warning.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WarningProblem {
    /// A zero next to other counts. mig-parted accepts it, but its `assert` then never succeeds.
    #[error(
        "{profile}: 0 asks for nothing and is left out; mig-parted would never find this layout in place"
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
    #[error("NVIDIA's device plugin reads {key:?} and passes over it; Octavo heeds it")]
    IgnoredByDevicePlugin {
        /// The key.
        key: &'static str,
    },
    /// Resource name patterns, which neither program uses.
    #[error(
        "NVIDIA's device plugin reads \"resources\" and passes over it, and so does Octavo: names are those of the MIG strategy"
    )]
    Resources,
    /// IMEX channels, which Octavo does not support.
    #[error("\"imex\" is read and not heeded: Octavo gives no IMEX channels to containers")]
    Imex,
    /// A flag of NVIDIA's programs.
    #[error("{key} is read and not heeded{}", own_flag(*.instead))]
    Flag {
        /// The key with its section.
        key: String,
        /// The corresponding flag of the agent.
        instead: Option<&'static str>,
    },
}

fn own_flag(flag: Option<&str>) -> String {
    flag.map_or_else(String::new, |flag| {
        format!(": the agent's own flag is {flag}")
    })
}

/// Valid label values. Source: Kubernetes, "Labels and Selectors".
const LABEL_RULE: &str = "a label's value has at most 63 letters, digits, '-', '_' and '.', \
    and begins and ends with a letter or digit";

/// Kind of error. Texts from the file are quoted and shortened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutProblem {
    /// The file is too large.
    #[error("the file has {bytes} bytes; {most} are the most that is read")]
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
    #[error("more than {most} values, aliases counted as what they stand for")]
    TooManyValues {
        /// Maximum number of values.
        most: usize,
    },
    /// A YAML tag.
    #[error("tags like !!str have no meaning here; remove it")]
    Tag,
    /// An alias inside its own anchor.
    #[error("this alias stands for a value that it is part of")]
    RecursiveAlias,
    /// A second YAML document.
    #[error(
        "a second document begins here; a file has one (NVIDIA's programs ignore all others without a message)"
    )]
    SecondDocument,
    /// A key that is a list or a mapping.
    #[error("a key must be text")]
    KeyNotText,
    /// A merge key `<<` with an invalid value.
    #[error("'<<' takes a mapping, or a list of mappings")]
    Merge,
    /// A duplicate key.
    #[error("the key {key} is there twice, first at {first}; keep one")]
    DuplicateKey {
        /// The key, quoted.
        key: String,
        /// Position of its first occurrence.
        first: SourcePosition,
    },
    /// The file is of no known dialect.
    #[error(
        "this is no layout file: it begins with \"apiVersion: octavo.dev/v1\" and \"kind: Layouts\", \
         or with \"version: v1\" as mig-parted and NVIDIA's device plugin have it"
    )]
    UnknownDialect,
    /// The file is not a catalog.
    #[error(
        "this is no catalogue: it begins with \"apiVersion: octavo.dev/v1\" and \"kind: Catalogue\""
    )]
    NotACatalog,
    /// The file is not a price book.
    #[error(
        "this is no price book: it begins with \"apiVersion: octavo.dev/v1\" and \"kind: PriceBook\""
    )]
    NotAPriceBook,
    /// An invalid price, currency or purchase option.
    #[error(transparent)]
    Price(#[from] PriceError),
    /// The file has keys of two dialects.
    #[error(
        "keys of two dialects in one file: \"apiVersion\", \"kind\" and \"layouts\" are Octavo's, \
         \"version\" and \"mig-configs\" are mig-parted's, \"version\", \"flags\", \"resources\", \"sharing\" and \"imex\" \
         are those of NVIDIA's device plugin; use those of one"
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
    #[error("the name of a configuration has {most} characters at most")]
    LongName {
        /// Maximum number of characters.
        most: usize,
    },
    /// A layout name that is not a valid label value.
    #[error("{name} cannot be a layout's name, because a node label selects it: {LABEL_RULE}")]
    Name {
        /// The name, quoted.
        name: String,
    },
    /// An invalid profile.
    #[error(transparent)]
    Profile(#[from] ProfileNameError),
    /// An unknown profile attribute.
    #[error("no profile has the attribute {attribute}; there are +me, +me.all, +gfx and -me")]
    Attribute {
        /// The attribute with its sign, quoted.
        attribute: String,
    },
    /// A duplicate attribute in a profile name.
    #[error("the attribute {attribute} is there twice in one profile; write it once")]
    DuplicateAttribute {
        /// The attribute with its sign, quoted.
        attribute: String,
    },
    /// A duplicate profile, possibly in another spelling.
    #[error("the profile {profile} is there twice, first at {first}; write the sum once")]
    DuplicateProfile {
        /// Canonical name of the profile.
        profile: String,
        /// Position of its first occurrence.
        first: SourcePosition,
    },
    /// An invalid partition count.
    #[error("the count of {profile} must be a whole number from 1, not {found}")]
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
    #[error("partitions without MIG: mig-enabled is false, so mig-devices must go")]
    PartitionsWithoutMig,
    /// `mig: enabled` without partitions.
    #[error(
        "say which partitions: \"mig: {{1g.10gb: 7}}\", or \"mig: {{}}\" for MIG on without partitions"
    )]
    MigEnabled,
    /// A range whose end is before its start.
    #[error("the range {range} ends before it begins")]
    ReversedRange {
        /// The range, quoted.
        range: String,
    },
    /// A duplicate value in a list.
    #[error("{value} is there twice, first at {first}")]
    DuplicateValue {
        /// The value.
        value: String,
        /// Position of its first occurrence.
        first: SourcePosition,
    },
    /// An invalid identifier.
    #[error(transparent)]
    Id(#[from] IdError),
    /// An invalid amount of memory.
    #[error(
        "{found} is no amount of memory: a whole number with a unit, as 40Gi or 40960Mi \
         (Ki, Mi, Gi, Ti are powers of 1024; k, M, G, T are powers of 1000)"
    )]
    Memory {
        /// The actual value.
        found: String,
    },
    /// A key that requires `replicas` next to it.
    #[error(
        "{key:?} without \"replicas\" beside it means nothing; each profile and resource says its own"
    )]
    RequiresReplicas {
        /// The key.
        key: String,
    },
    /// An invalid resource name.
    #[error(
        "{found} is no name of a resource of NVIDIA's: nvidia.com/ and lower-case letters, digits, '-' and '.', \
         {most} characters at most"
    )]
    ResourceName {
        /// The actual value, quoted.
        found: String,
        /// Maximum number of characters, including `nvidia.com/`.
        most: usize,
    },
    /// MPS together with time-slicing.
    #[error(
        "\"mps\" beside \"timeSlicing\": NVIDIA's device plugin would pass over \"timeSlicing\" in silence; keep one"
    )]
    MpsWithTimeSlicing,
    /// MPS alone.
    #[error(
        "\"mps\" is not built: Octavo runs no MPS control daemon; share by \"timeSlicing\", or leave sharing to NVIDIA's device plugin"
    )]
    MpsUnsupported,
    /// An invalid device filter.
    #[error(
        "{found} is no device filter, so it would never match: write the PCI device id before the vendor id, \
         as \"0x20B210DE\" or \"0x20B210DE:0x147F10DE\""
    )]
    InvalidDeviceFilter {
        /// The actual value.
        found: String,
    },
    /// A rule without `mig` and `timeSlicing`.
    #[error("this rule asks for nothing: give it \"mig\", \"timeSlicing\" or both")]
    EmptyRule,
    /// Two rules with `devices: rest`.
    #[error("a second rule for the rest of the devices, the first is at {first}; a layout has one")]
    DuplicateRestRule {
        /// Position of the first rule.
        first: SourcePosition,
    },
    /// A rule with `devices: all` next to another rule.
    #[error(
        "this rule is for all devices and there is another at {other}, so two rules select one device; \
         \"devices: rest\" is for those that no other rule selects"
    )]
    AllWithOtherRules {
        /// Position of the other rule.
        other: SourcePosition,
    },
    /// There are more errors than are reported.
    #[error(
        "there are more errors than these {}; mend these first",
        Self::MAX_ERRORS
    )]
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
        None => format!("there are {}", known.join(", ")),
    }
}
