//! The files of rules and counts, around the pure decision.
//!
//! One [`Faults`] belongs to one loaded library. It holds the counts of the process; counts of the machine are in a
//! file beside the rules, and only calls that match such a rule need the lock and the write.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::action::Hang;
use super::rule::{ActiveHang, Call, Counts, Rule, RuleError, Rules, Verdict};

const RULES: &str = "faults.yaml";
const COUNTS: &str = "fault-counts.json";
const LOCK: &str = "faults.lock";

/// The rules of a state directory in one process.
#[derive(Debug)]
pub struct Faults {
    directory: PathBuf,
    rules: Rules,
    seen: Option<FileVersion>,
    counts: Counts,
    problem: Option<RuleError>,
}

type FileVersion = (u64, u64, i64, i64);

/// Content of the counts file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredCounts {
    /// Number of rules created so far, which is the number of the newest.
    made: u64,
    counts: Counts,
}

impl StoredCounts {
    fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

impl Faults {
    /// Opens the rules of a state directory; a missing file means no rules.
    pub fn open(directory: &Path) -> Self {
        let mut faults = Self {
            directory: directory.to_owned(),
            rules: Rules::default(),
            seen: None,
            counts: Counts::new(),
            problem: None,
        };
        faults.refresh();
        faults
    }

    /// Decides on a call and counts it. Costs one `stat` when there are no rules for it.
    pub fn decide(&mut self, call: &Call<'_>) -> Verdict {
        self.refresh();
        if !self.rules.counts_on_machine(call) {
            return self.rules.decide(call, &mut self.counts, &mut Counts::new());
        }
        // Without the lock two processes could both be "the second call"; with an unusable directory the count is not
        // shared and the call is the first of the machine.
        let _lock = lock(&self.directory);
        let path = self.directory.join(COUNTS);
        let mut stored = StoredCounts::read(&path);
        let verdict = self.rules.decide(call, &mut self.counts, &mut stored.counts);
        if let Ok(bytes) = serde_json::to_vec(&stored) {
            // Lost counts only delay a fault; the call itself must not fail.
            drop(replace(&path, &bytes));
        }
        verdict
    }

    /// Whether a hang continues; the hanging call checks it repeatedly.
    pub fn still_hangs(&mut self, hang: &ActiveHang) -> bool {
        self.refresh();
        let there = self.rules.0.iter().any(|rule| rule.key() == hang.rule);
        let ended = match &hang.hang {
            Hang::Forever => false,
            Hang::UntilFile(path) => path.exists(),
        };
        there && !ended
    }

    /// Reason why the newest `faults.yaml` is not active; returned once. The previous rules stay active.
    pub fn take_problem(&mut self) -> Option<RuleError> {
        self.problem.take()
    }

    fn refresh(&mut self) {
        let version = version(&self.directory.join(RULES));
        if version == self.seen {
            return;
        }
        self.seen = version;
        match read_rules(&self.directory) {
            Ok(rules) => {
                let known = |key: &String| rules.0.iter().any(|rule| rule.key() == *key);
                self.counts.retain(|key, _| known(key));
                self.rules = rules;
                self.problem = None;
            }
            Err(problem) => self.problem = Some(problem),
        }
    }
}

/// The rules in a state directory; a missing file means no rules.
pub fn read_rules(directory: &Path) -> Result<Rules, RuleError> {
    let path = directory.join(RULES);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Rules::default()),
        Err(source) => {
            return Err(RuleError::File { doing: "read", path, source });
        }
    };
    if text.trim().is_empty() {
        return Ok(Rules::default());
    }
    let rules: Vec<Rule> = crate::yaml::read(&text).map_err(|error| RuleError::Malformed {
        path,
        reason: error.without_snippet().to_string(),
    })?;
    Rules(rules).named()
}

/// Replaces the rules of a state directory and names unnamed ones. Counts of removed rules are dropped.
pub fn write_rules(directory: &Path, rules: &[Rule]) -> Result<(), RuleError> {
    change_rules(directory, |there| {
        *there = rules.to_vec();
        Ok(())
    })
}

/// Changes the rules of a state directory under their lock, so that concurrent changes are not lost.
pub fn change_rules<E: From<RuleError>>(
    directory: &Path,
    change: impl FnOnce(&mut Vec<Rule>) -> Result<(), E>,
) -> Result<(), E> {
    let failed = |doing: &'static str| {
        let path = directory.join(RULES);
        move |source| RuleError::File { doing, path, source }
    };
    let _lock = lock(directory).map_err(failed("lock"))?;
    let mut rules = read_rules(directory)?.0;
    change(&mut rules)?;
    let mut rules = Rules(rules).named()?;
    let counts = directory.join(COUNTS);
    let mut stored = StoredCounts::read(&counts);
    for rule in rules.0.iter_mut().filter(|rule| rule.made == 0) {
        stored.made = stored.made.saturating_add(1);
        rule.made = stored.made;
    }
    let known = |key: &String| rules.0.iter().any(|rule| rule.key() == *key);
    stored.counts.retain(|key, _| known(key));
    // YAML is a superset of JSON, and JSON is independent of the library version.
    let lines: Result<Vec<String>, _> = rules.0.iter().map(serde_json::to_string).collect();
    let lines = lines.map_err(|error| failed("write")(error.into()))?;
    let text = lines.iter().fold(String::new(), |text, line| text + "- " + line + "\n");
    let bytes = serde_json::to_vec(&stored).map_err(|error| failed("write")(error.into()))?;
    replace(&counts, &bytes).map_err(failed("write"))?;
    Ok(replace(&directory.join(RULES), text.as_bytes()).map_err(failed("write"))?)
}

fn lock(directory: &Path) -> io::Result<File> {
    let file = File::options().create(true).append(true).open(directory.join(LOCK))?;
    file.lock()?;
    Ok(file)
}

/// Replaces a file atomically.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let next = path.with_extension("tmp");
    fs::write(&next, bytes)?;
    fs::rename(next, path)
}

fn version(path: &Path) -> Option<FileVersion> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Action;
    use crate::model::Code;

    fn rule(text: &str) -> Rule {
        serde_saphyr::from_str(text).unwrap()
    }

    fn call(function: &str) -> Call<'_> {
        Call { function, gpu: None, now_ms: 0 }
    }

    #[test]
    fn rules_are_added_and_removed_while_a_client_runs() {
        let directory = tempfile::tempdir().unwrap();
        let mut faults = Faults::open(directory.path());
        assert_eq!(faults.decide(&call("f")), Verdict::default());
        write_rules(directory.path(), &[rule("{call: f, hang: forever}")]).unwrap();
        let hang = faults.decide(&call("f")).hang.unwrap();
        assert!(faults.still_hangs(&hang));
        write_rules(directory.path(), &[]).unwrap();
        assert!(!faults.still_hangs(&hang));
        assert_eq!(faults.decide(&call("f")), Verdict::default());
    }

    #[test]
    fn rule_cleared_and_added_again_counts_from_one() {
        for count in ["process", "machine"] {
            let directory = tempfile::tempdir().unwrap();
            let once =
                rule(&format!("{{call: f, id: once, times: 1, count: {count}, return: IN_USE}}"));
            let mut faults = Faults::open(directory.path());
            for _ in 0..2 {
                write_rules(directory.path(), std::slice::from_ref(&once)).unwrap();
                let answers = [(); 2].map(|()| faults.decide(&call("f")).answer);
                assert_eq!(answers, [Some(Code::InUse), None], "{count}");
                // The client makes no call between the two changes, so it never sees the rule removed.
                write_rules(directory.path(), &[]).unwrap();
            }
        }
    }

    #[test]
    fn rule_keeps_its_count_when_another_is_added() {
        let directory = tempfile::tempdir().unwrap();
        write_rules(directory.path(), &[rule("{call: f, nth: 2, return: IN_USE}")]).unwrap();
        let mut faults = Faults::open(directory.path());
        assert_eq!(faults.decide(&call("f")).answer, None);
        let add = |rules: &mut Vec<Rule>| {
            rules.push(rule("{call: g, lie: true}"));
            Ok::<_, RuleError>(())
        };
        change_rules(directory.path(), add).unwrap();
        assert_eq!(faults.decide(&call("f")).answer, Some(Code::InUse));
    }

    #[test]
    fn concurrent_changes_are_not_lost() {
        let directory = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let add = |rules: &mut Vec<Rule>| {
                        rules.push(rule("{call: f, delay_ms: 1}"));
                        Ok::<_, RuleError>(())
                    };
                    change_rules(directory.path(), add).unwrap();
                });
            }
        });
        assert_eq!(read_rules(directory.path()).unwrap().0.len(), 8);
    }

    #[test]
    fn hang_can_end_when_a_file_appears() {
        let directory = tempfile::tempdir().unwrap();
        let go = directory.path().join("go");
        let text = format!("{{call: f, hang: {{until_file: {}}}}}", go.display());
        write_rules(directory.path(), &[rule(&text)]).unwrap();
        let mut faults = Faults::open(directory.path());
        let hang = faults.decide(&call("f")).hang.unwrap();
        assert!(faults.still_hangs(&hang));
        fs::write(go, "").unwrap();
        assert!(!faults.still_hangs(&hang));
    }

    #[test]
    fn two_processes_share_machine_count_but_not_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let shared = rule("{call: f, nth: 2, times: 1, count: machine, return: IN_USE}");
        let own = rule("{call: g, nth: 2, return: TIMEOUT}");
        write_rules(directory.path(), &[shared, own]).unwrap();
        let mut one = Faults::open(directory.path());
        let mut other = Faults::open(directory.path());
        let answers = [
            one.decide(&call("f")).answer,
            other.decide(&call("f")).answer,
            one.decide(&call("f")).answer,
        ];
        assert_eq!(answers, [None, Some(Code::InUse), None]);
        let answers = [one.decide(&call("g")).answer, other.decide(&call("g")).answer];
        assert_eq!(answers, [None, None]);
    }

    #[test]
    fn unreadable_file_keeps_previous_rules_and_reports_why() {
        let directory = tempfile::tempdir().unwrap();
        write_rules(directory.path(), &[rule("{call: f, lie: true}")]).unwrap();
        let mut faults = Faults::open(directory.path());
        fs::write(directory.path().join(RULES), "- {call: f, lie: maybe}").unwrap();
        assert_eq!(faults.decide(&call("f")).answer, Some(Code::Success));
        assert!(matches!(faults.take_problem(), Some(RuleError::Malformed { .. })));
        faults.decide(&call("f"));
        assert!(faults.take_problem().is_none(), "the problem is reported twice");
    }

    #[test]
    fn rule_names_do_not_change_when_another_rule_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let unnamed = rule("{call: f, lie: true}");
        write_rules(directory.path(), &[unnamed.clone(), unnamed.clone()]).unwrap();
        let mut rules = read_rules(directory.path()).unwrap().0;
        rules.remove(0);
        rules.push(unnamed);
        write_rules(directory.path(), &rules).unwrap();
        let rules = read_rules(directory.path()).unwrap().0;
        let ids: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
        assert_eq!(ids, ["fault-2", "fault-1"]);
        assert!(rules.iter().all(|rule| rule.action == Action::Lie));
    }
}
