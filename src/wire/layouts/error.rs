//! What can be wrong with a layout file, and what can be odd about one.

use thiserror::Error;

use crate::domain::id::IdError;
use crate::domain::layout::Place;
use crate::domain::price::PriceError;
use crate::domain::profile::ProfileNameError;

/// Something wrong, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct LayoutError {
    place: Place,
    problem: LayoutProblem,
}

/// Something odd that has a meaning all the same, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct LayoutWarning {
    place: Place,
    problem: WarningProblem,
}

impl LayoutError {
    pub(super) fn new(place: Place, problem: LayoutProblem) -> Self {
        Self { place, problem }
    }

    /// Where it is; always a place in the text or just behind its end.
    pub fn place(&self) -> Place {
        self.place
    }

    /// What it is.
    pub fn problem(&self) -> &LayoutProblem {
        &self.problem
    }
}

impl LayoutWarning {
    pub(super) fn new(place: Place, problem: WarningProblem) -> Self {
        Self { place, problem }
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// What it is.
    pub fn problem(&self) -> &WarningProblem {
        &self.problem
    }
}

/// What is odd about a layout file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WarningProblem {
    /// mig-parted reads a zero beside other counts, and then its `assert` never agrees.
    #[error(
        "{profile}: 0 asks for nothing and is left out; mig-parted would never find this layout in place"
    )]
    ZeroCount {
        /// The profile.
        profile: String,
    },
    /// A name that no node label can have.
    #[error("no node label can select the layout {name}: {LABEL_RULE}")]
    Name {
        /// The name, quoted.
        name: String,
    },
    /// NVIDIA's plugin reads it and heeds it not.
    #[error("NVIDIA's device plugin reads {key:?} and passes over it; Octavo heeds it")]
    OnlyHere {
        /// The key.
        key: &'static str,
    },
    /// Nobody heeds it.
    #[error(
        "NVIDIA's device plugin reads \"resources\" and passes over it, and so does Octavo: names are those of the MIG strategy"
    )]
    Resources,
    /// Octavo hands no IMEX channels out.
    #[error("\"imex\" is read and not heeded: Octavo gives no IMEX channels to containers")]
    Imex,
    /// A flag of NVIDIA's programs.
    #[error("{key} is read and not heeded{}", own_flag(*.instead))]
    Flag {
        /// The key, and what it is in.
        key: String,
        /// The agent's own flag for it.
        instead: Option<&'static str>,
    },
}

fn own_flag(flag: Option<&str>) -> String {
    flag.map_or_else(String::new, |flag| {
        format!(": the agent's own flag is {flag}")
    })
}

/// What a label's value may be. Source: Kubernetes, "Labels and Selectors".
const LABEL_RULE: &str = "a label's value has at most 63 letters, digits, '-', '_' and '.', \
    and begins and ends with a letter or digit";

/// What is wrong with a layout file. Texts from the file are quoted and cut.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutProblem {
    /// The file is too long to be one.
    #[error("the file has {bytes} bytes; {most} are the most that is read")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// A character that YAML does not allow.
    #[error("the character U+{:04X} is not allowed in YAML; remove it, or write it as an escape in double quotes", u32::from(*.0))]
    Character(char),
    /// No YAML.
    #[error("this is not YAML: {0}")]
    Syntax(String),
    /// Nested too deep.
    #[error("nested deeper than {most} levels")]
    TooDeep {
        /// The most.
        most: usize,
    },
    /// Too much, perhaps through aliases.
    #[error("more than {most} values, aliases counted as what they stand for")]
    TooMuch {
        /// The most.
        most: usize,
    },
    /// A tag.
    #[error("tags like !!str have no meaning here; remove it")]
    Tag,
    /// An alias within what it stands for.
    #[error("this alias stands for a value that it is part of")]
    OwnAlias,
    /// A second document.
    #[error(
        "a second document begins here; a file has one (NVIDIA's programs ignore all others without a message)"
    )]
    SecondDocument,
    /// A key that is a list or mapping.
    #[error("a key must be text")]
    KeyNotText,
    /// What `<<` takes.
    #[error("'<<' takes a mapping, or a list of mappings")]
    Merge,
    /// A key that was there before.
    #[error("the key {key} is there twice, first at {first}; keep one")]
    DuplicateKey {
        /// The key, quoted.
        key: String,
        /// Where it stands first.
        first: Place,
    },
    /// Neither dialect.
    #[error(
        "this is no layout file: it begins with \"apiVersion: octavo.dev/v1\" and \"kind: Layouts\", \
         or with \"version: v1\" as mig-parted and NVIDIA's device plugin have it"
    )]
    NoDialect,
    /// No catalogue.
    #[error(
        "this is no catalogue: it begins with \"apiVersion: octavo.dev/v1\" and \"kind: Catalogue\""
    )]
    NoCatalogue,
    /// No price book.
    #[error(
        "this is no price book: it begins with \"apiVersion: octavo.dev/v1\" and \"kind: PriceBook\""
    )]
    NoPriceBook,
    /// Not a price, a currency or a way of buying.
    #[error(transparent)]
    Price(#[from] PriceError),
    /// Two dialects.
    #[error(
        "keys of two dialects in one file: \"apiVersion\", \"kind\" and \"layouts\" are Octavo's, \
         \"version\" and \"mig-configs\" are mig-parted's, \"version\", \"flags\", \"resources\", \"sharing\" and \"imex\" \
         are those of NVIDIA's device plugin; use those of one"
    )]
    BothDialects,
    /// A fixed value that is another.
    #[error("{key} must be {expected:?}, not {found}")]
    NotThis {
        /// The key.
        key: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A key that means nothing.
    #[error("unknown key {key} in {within}; {}", hint(.nearest.as_ref(), .known))]
    UnknownKey {
        /// The key, quoted.
        key: String,
        /// In what.
        within: &'static str,
        /// The known key that looks most like it.
        nearest: Option<&'static str>,
        /// All known keys.
        known: &'static [&'static str],
    },
    /// A key that must be there.
    #[error("{within} needs {key:?}: {example}")]
    MissingKey {
        /// The key.
        key: &'static str,
        /// In what.
        within: &'static str,
        /// What to write.
        example: &'static str,
    },
    /// A value of another kind.
    #[error("{what} must be {expected}, not {found}")]
    WrongKind {
        /// What it is for.
        what: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A list or mapping that must not be empty.
    #[error("{what} must not be empty: {example}")]
    Empty {
        /// What it is for.
        what: &'static str,
        /// What to write.
        example: &'static str,
    },
    /// A configuration's name that nobody could write on one line.
    #[error("the name of a configuration has {most} characters at most")]
    LongName {
        /// How many it may have.
        most: usize,
    },
    /// A layout's name that no label can have.
    #[error("{name} cannot be a layout's name, because a node label selects it: {LABEL_RULE}")]
    Name {
        /// The name, quoted.
        name: String,
    },
    /// Not a profile.
    #[error(transparent)]
    Profile(#[from] ProfileNameError),
    /// An attribute that no profile has.
    #[error("no profile has the attribute {attribute}; there are +me, +me.all, +gfx and -me")]
    Attribute {
        /// With its sign, quoted.
        attribute: String,
    },
    /// An attribute twice in one name.
    #[error("the attribute {attribute} is there twice in one profile; write it once")]
    AttributeTwice {
        /// With its sign, quoted.
        attribute: String,
    },
    /// A profile in two spellings.
    #[error("the profile {profile} is there twice, first at {first}; write the sum once")]
    DuplicateProfile {
        /// Its canonical name.
        profile: String,
        /// Where it stands first.
        first: Place,
    },
    /// A count of partitions.
    #[error("the count of {profile} must be a whole number from 1, not {found}")]
    Count {
        /// The profile, quoted.
        profile: String,
        /// What it is.
        found: String,
    },
    /// Only zeros.
    #[error("all counts are 0; write {{}} for MIG on without partitions")]
    AllZero,
    /// Partitions without MIG.
    #[error("partitions without MIG: mig-enabled is false, so mig-devices must go")]
    PartitionsWithoutMig,
    /// `mig: enabled`.
    #[error(
        "say which partitions: \"mig: {{1g.10gb: 7}}\", or \"mig: {{}}\" for MIG on without partitions"
    )]
    MigEnabled,
    /// A range that ends before it begins.
    #[error("the range {range} ends before it begins")]
    Backwards {
        /// The range, quoted.
        range: String,
    },
    /// A value that a list has already.
    #[error("{value} is there twice, first at {first}")]
    Repeated {
        /// The value.
        value: String,
        /// Where it stands first.
        first: Place,
    },
    /// Not the identifier it should be.
    #[error(transparent)]
    Id(#[from] IdError),
    /// Not an amount of memory.
    #[error(
        "{found} is no amount of memory: a whole number with a unit, as 40Gi or 40960Mi \
         (Ki, Mi, Gi, Ti are powers of 1024; k, M, G, T are powers of 1000)"
    )]
    Memory {
        /// What it is.
        found: String,
    },
    /// Said of replicas where there are none.
    #[error(
        "{key:?} without \"replicas\" beside it means nothing; each profile and resource says its own"
    )]
    WithoutReplicas {
        /// The key.
        key: String,
    },
    /// Not a resource.
    #[error(
        "{found} is no name of a resource of NVIDIA's: nvidia.com/ and lower-case letters, digits, '-' and '.', \
         {most} characters at most"
    )]
    ResourceName {
        /// What it is, quoted.
        found: String,
        /// The most characters, nvidia.com/ among them.
        most: usize,
    },
    /// MPS and time-slicing.
    #[error(
        "\"mps\" beside \"timeSlicing\": NVIDIA's device plugin would pass over \"timeSlicing\" in silence; keep one"
    )]
    MpsBesideTimeSlicing,
    /// MPS alone.
    #[error(
        "\"mps\" is not built: Octavo runs no MPS control daemon; share by \"timeSlicing\", or leave sharing to NVIDIA's device plugin"
    )]
    Mps,
    /// Not PCI ids.
    #[error(
        "{found} is no device filter, so it would never match: write the PCI device id before the vendor id, \
         as \"0x20B210DE\" or \"0x20B210DE:0x147F10DE\""
    )]
    Filter {
        /// What it is.
        found: String,
    },
    /// A rule that asks for nothing.
    #[error("this rule asks for nothing: give it \"mig\", \"timeSlicing\" or both")]
    AsksNothing,
    /// Two rules for the rest.
    #[error("a second rule for the rest of the devices, the first is at {first}; a layout has one")]
    TwoRests {
        /// The first one.
        first: Place,
    },
    /// `all` beside another rule.
    #[error(
        "this rule is for all devices and there is another at {other}, so two rules select one device; \
         \"devices: rest\" is for those that no other rule selects"
    )]
    AllBesideOthers {
        /// Another rule.
        other: Place,
    },
    /// There were more.
    #[error("there are more errors than these {}; mend these first", Self::MOST)]
    More,
}

impl LayoutProblem {
    /// The most errors that are told at once.
    pub const MOST: usize = 100;
}

/// The nearest key, or else all.
fn hint(nearest: Option<&&'static str>, known: &[&str]) -> String {
    match nearest {
        Some(nearest) => format!("did you mean {nearest:?}?"),
        None => format!("there are {}", known.join(", ")),
    }
}
