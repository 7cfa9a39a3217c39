//! YAML (including JSON) as a tree with source positions.
//!
//! Limits apply to bytes, depth and number of values. An alias counts as the values that it stands for, so a small file
//! cannot expand to millions of values. Scalars stay text, so no value is implicitly converted to a boolean. The layout
//! parser interprets them.

use std::collections::BTreeMap;
use std::rc::Rc;

use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, ScanError, Span};
use octavo_model::source_position::SourcePosition;

use super::error::LayoutProblem;
use super::findings::Findings;
use super::node::{Entry, Scalar, Value, YamlNode, quoted};

/// Maximum file size. NVIDIA's own file with all boards has 20 KiB.
const MAX_BYTES: usize = 1 << 20;

/// Maximum number of values, including those behind aliases.
const MAX_VALUES: usize = 100_000;

/// Parses a text. Invalid YAML or an exceeded limit is reported as one error.
pub(super) fn read(text: &str, findings: &mut Findings) -> Option<Rc<YamlNode>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match Builder::build(text, findings) {
        Ok(root) => Some(root),
        Err((position, problem)) => {
            findings.error(position, problem);
            None
        }
    }
}

/// An unfinished list or mapping.
struct OpenNode {
    position: SourcePosition,
    anchor: usize,
    weight: usize,
    content: Content,
}

enum Content {
    List(Vec<Rc<YamlNode>>),
    Map {
        entries: Vec<Entry>,
        /// A key whose value has not been read yet.
        key: Option<(SourcePosition, Rc<str>, bool)>,
        seen: BTreeMap<Rc<str>, SourcePosition>,
        merged: Vec<(SourcePosition, Rc<YamlNode>)>,
    },
}

struct Builder<'f> {
    findings: &'f mut Findings,
    open: Vec<OpenNode>,
    anchors: BTreeMap<usize, Rc<YamlNode>>,
    root: Option<Rc<YamlNode>>,
}

impl<'f> Builder<'f> {
    fn build(text: &str, findings: &'f mut Findings) -> Result<Rc<YamlNode>, PlacedProblem> {
        let start = SourcePosition { line: 1, column: 1 };
        if text.len() > MAX_BYTES {
            let (bytes, most) = (text.len(), MAX_BYTES);
            return Err((start, LayoutProblem::TooLong { bytes, most }));
        }
        check_characters(text)?;
        let mut options = Options::default();
        options.set_emit_comments(false);
        options.flow_nesting_limit = MAX_DEPTH;
        options.block_nesting_limit = MAX_DEPTH;
        let mut builder = Self { findings, open: Vec::new(), anchors: BTreeMap::new(), root: None };
        for event in Parser::new_from_str_with_options(text, options) {
            let (event, span) = event.map_err(|error| syntax_error(&error))?;
            builder.take(event, &span)?;
        }
        builder.root.ok_or((start, LayoutProblem::UnknownDialect))
    }

    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), PlacedProblem> {
        let position = position(span.start.line(), span.start.col());
        if event.tag().is_some() {
            let mark = span.tag_start().unwrap_or(span.start);
            return Err((self::position(mark.line(), mark.col()), LayoutProblem::Tag));
        }
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                Err((position, LayoutProblem::SecondDocument))
            }
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                let text = text.into_owned();
                let value = Value::Scalar(Scalar { text, plain });
                self.finish(anchor, YamlNode { position, value, weight: 1 })
            }
            Event::SequenceStart(_, anchor, _) => {
                self.begin(position, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, _) => {
                let content = Content::Map {
                    entries: Vec::new(),
                    key: None,
                    seen: BTreeMap::new(),
                    merged: Vec::new(),
                };
                self.begin(position, anchor, content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => {
                let Some(target) = self.anchors.get(&anchor).map(Rc::clone) else {
                    return Err((position, LayoutProblem::RecursiveAlias));
                };
                self.add(target, position)
            }
            Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(..)
            | Event::DocumentEnd
            | Event::Anchor(..)
            | Event::UnresolvedAlias(_)
            | Event::Comment(..)
            // The parser may add variants. Events that carry no value are ignored.
            | _ => Ok(()),
        }
    }

    fn begin(
        &mut self,
        position: SourcePosition,
        anchor: usize,
        content: Content,
    ) -> Result<(), PlacedProblem> {
        if self.open.len() >= MAX_DEPTH {
            return Err((position, LayoutProblem::TooDeep { most: MAX_DEPTH }));
        }
        self.open.push(OpenNode { position, anchor, weight: 1, content });
        Ok(())
    }

    fn end(&mut self) -> Result<(), PlacedProblem> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let OpenNode { position, anchor, mut weight, content } = open;
        let value = match content {
            Content::List(items) => Value::List(items),
            Content::Map { mut entries, mut seen, merged, .. } => {
                for (at, node) in merged {
                    merge(&node, at, (&mut entries, &mut seen, &mut weight))?;
                }
                Value::Map(entries)
            }
        };
        self.finish(anchor, YamlNode { position, value, weight })
    }

    fn finish(&mut self, anchor: usize, node: YamlNode) -> Result<(), PlacedProblem> {
        let (position, node) = (node.position, Rc::new(node));
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        self.add(node, position)
    }

    /// Adds a finished node to its parent. `position` is the position of the alias if the node is inserted through one.
    fn add(&mut self, node: Rc<YamlNode>, position: SourcePosition) -> Result<(), PlacedProblem> {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.weight = add_weight(open.weight, node.weight, position)?;
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Map { entries, key, seen, merged } => match key.take() {
                None => *key = Some(as_key(&node, position)?),
                Some((at, text, plain)) if plain && *text == *"<<" => merged.push((at, node)),
                Some((at, text, plain)) => {
                    if let Some(first) = seen.get(&text).copied() {
                        let key = quoted(&text);
                        self.findings.error(at, LayoutProblem::DuplicateKey { key, first });
                    } else {
                        seen.insert(Rc::clone(&text), at);
                        entries.push(Entry { position: at, key: text, plain, value: node });
                    }
                }
            },
        }
        Ok(())
    }
}

fn as_key(
    node: &YamlNode,
    position: SourcePosition,
) -> Result<(SourcePosition, Rc<str>, bool), PlacedProblem> {
    match &node.value {
        Value::Scalar(scalar) if !node.is_null() => {
            Ok((position, Rc::from(&*scalar.text), scalar.plain))
        }
        Value::Scalar(_) | Value::List(_) | Value::Map(_) => {
            Err((position, LayoutProblem::KeyNotText))
        }
    }
}

fn add_weight(
    weight: usize,
    more: usize,
    position: SourcePosition,
) -> Result<usize, PlacedProblem> {
    let sum = weight.saturating_add(more);
    if sum > MAX_VALUES {
        return Err((position, LayoutProblem::TooManyValues { most: MAX_VALUES }));
    }
    Ok(sum)
}

/// Applies YAML 1.1's merge key, which mig-parted's parser supports: adds the entries of another mapping whose keys are
/// not present yet.
fn merge(
    node: &Rc<YamlNode>,
    at: SourcePosition,
    (entries, seen, weight): (&mut Vec<Entry>, &mut BTreeMap<Rc<str>, SourcePosition>, &mut usize),
) -> Result<(), PlacedProblem> {
    let several = match &node.value {
        Value::List(items) => items.as_slice(),
        Value::Map(_) => std::slice::from_ref(node),
        Value::Scalar(_) => return Err((at, LayoutProblem::Merge)),
    };
    for item in several {
        let Value::Map(others) = &item.value else {
            return Err((at, LayoutProblem::Merge));
        };
        for other in others {
            if seen.contains_key(&other.key) {
                continue;
            }
            seen.insert(Rc::clone(&other.key), other.position);
            *weight = add_weight(*weight, other.value.weight, at)?;
            entries.push(other.clone());
        }
    }
    Ok(())
}

/// Maximum nesting depth. A layout needs seven levels.
pub(super) const MAX_DEPTH: usize = 32;

/// A problem and its position.
pub(super) type PlacedProblem = (SourcePosition, LayoutProblem);

/// Rejects characters that YAML forbids. The parser treats U+0000 as the end of the text and would ignore everything
/// after it. Source: YAML 1.2.2, 5.1 "Character Set".
pub(super) fn check_characters(text: &str) -> Result<(), PlacedProblem> {
    let allowed = |c: char| match c {
        '\t' | '\n' | '\r' | '\u{85}' => true,
        '\u{feff}' | '\u{fffe}' | '\u{ffff}' => false,
        _ => !c.is_control(),
    };
    let Some((at, wrong)) = text.char_indices().find(|(_, c)| !allowed(*c)) else {
        return Ok(());
    };
    let before = text.get(..at).unwrap_or_default();
    let breaks = before.matches(['\r', '\n']).count() - before.matches("\r\n").count();
    let column = before.chars().rev().take_while(|c| !matches!(c, '\r' | '\n'));
    Err((position(breaks + 1, column.count()), LayoutProblem::Character(wrong)))
}

pub(super) fn syntax_error(error: &ScanError) -> PlacedProblem {
    let mark = error.marker();
    let position = position(mark.line(), mark.col());
    let problem = if *error.kind() == ErrorKind::RecursionLimitExceeded {
        LayoutProblem::TooDeep { most: MAX_DEPTH }
    } else {
        LayoutProblem::Syntax(error.info())
    };
    (position, problem)
}

/// Converts the parser's position: its lines start at one, its columns at zero.
pub(super) fn position(line: usize, column: usize) -> SourcePosition {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    SourcePosition { line: count(line).max(1), column: count(column).saturating_add(1) }
}
