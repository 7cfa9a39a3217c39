//! The table of inputs, `tests/golden/layouts/inputs.txt`: the head of the file describes its format.

use octavo_planner::layout::Dialect;

/// Path under `tests/golden`.
pub(crate) const FILE: &str = "layouts/inputs.txt";

/// The table as compiled in.
pub(crate) const TEXT: &str = include_str!("../../golden/layouts/inputs.txt");

/// An input with its expected result.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) dialect: Dialect,
    /// Name of the evaluated layout.
    pub(crate) select: String,
    /// Result of mig-parted for a file of its dialect.
    pub(crate) original: Option<Original>,
    pub(crate) ours: Verdict,
    /// Reason why our result differs.
    pub(crate) because: Option<String>,
    /// A recorded machine.
    pub(crate) on: Option<String>,
    pub(crate) input: String,
}

/// What mig-parted does with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Original {
    Accepts,
    Refuses,
    /// Accepts it and does something else than intended.
    Misreads,
}

/// Our result for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Ok,
    Warning,
    Error,
}

/// All cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in TEXT.lines() {
        if line.is_empty() || line.starts_with(['#', '>']) {
            continue;
        }
        if let Some(name) = line.strip_prefix("case ") {
            cases.push(Case {
                name: name.to_owned(),
                dialect: Dialect::MigParted,
                select: "c".to_owned(),
                original: None,
                ours: Verdict::Ok,
                because: None,
                on: None,
                input: String::new(),
            });
            continue;
        }
        take(cases.last_mut().unwrap(), line);
    }
    cases
}

fn take(case: &mut Case, line: &str) {
    if let Some(text) = line.strip_prefix('|') {
        case.input.push_str(text);
        case.input.push('\n');
    } else if let Some(text) = line.strip_prefix('\\') {
        unescape(text, &mut case.input);
    } else {
        let (key, value) = line.split_once(' ').unwrap();
        let (word, why) = match value.split_once(": ") {
            Some((word, why)) => (word, Some(why.to_owned())),
            None => (value, None),
        };
        match key {
            "dialect" if value == "octavo" => case.dialect = Dialect::Octavo,
            "dialect" if value == "device-plugin" => {
                case.dialect = Dialect::DevicePlugin;
                value.clone_into(&mut case.select);
            }
            "dialect" => assert_eq!(value, "mig-parted", "{}", case.name),
            "select" => value.clone_into(&mut case.select),
            "on" => case.on = Some(value.to_owned()),
            "original" => case.original = Some(original(word)),
            "ours" => (case.ours, case.because) = (verdict(word), why),
            other => panic!("{}: no key {other}", case.name),
        }
    }
}

fn original(word: &str) -> Original {
    match word {
        "accepts" => Original::Accepts,
        "refuses" => Original::Refuses,
        "misreads" => Original::Misreads,
        other => panic!("the original does not {other}"),
    }
}

fn verdict(word: &str) -> Verdict {
    match word {
        "ok" => Verdict::Ok,
        "warning" => Verdict::Warning,
        "error" => Verdict::Error,
        other => panic!("no verdict {other}"),
    }
}

fn unescape(text: &str, into: &mut String) {
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        into.push_str(before);
        let (kind, after) = after.split_at(1);
        rest = after;
        match kind {
            "t" => into.push('\t'),
            "r" => into.push('\r'),
            "\\" => into.push('\\'),
            "c" => return,
            "u" => {
                let (code, after) = rest.strip_prefix('{').unwrap().split_once('}').unwrap();
                rest = after;
                let code = u32::from_str_radix(code, 16).unwrap();
                into.push(char::from_u32(code).unwrap());
            }
            other => panic!("no escape {other}"),
        }
    }
    into.push_str(rest);
    into.push('\n');
}

/// The table with new messages.
pub(crate) fn rewritten(reported: &[Vec<String>]) -> String {
    let mut text = String::new();
    let mut reported = reported.iter();
    let mut in_case = false;
    for line in TEXT.lines().chain(std::iter::once("")) {
        if line.starts_with('>') {
            continue;
        }
        if line.is_empty() && in_case {
            for line in reported.next().unwrap() {
                text.push_str(format!("> {line}").trim_end());
                text.push('\n');
            }
            in_case = false;
        }
        in_case |= line.starts_with("case ");
        text.push_str(line);
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}
