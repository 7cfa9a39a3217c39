//! Finds module cycles inside every crate, at every level.
//!
//! The children of a module form a graph. It has an edge `a -> b` when anything below `a` names anything below `b` by its
//! path, directly or through a re-export. A cycle is a strongly connected component of two or more children. A child may
//! name the items of its own parent, and a parent its children: neither is an edge.
//!
//! The scan is textual. It resolves `use` trees and inline paths outside of comments, literals and tests. It does not see
//! method calls, generated code and paths in attribute strings.

mod examples;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, slice};

use super::tokens::{Token, is_word, item_end, tokens, without_tests};
use crate::support::root;

/// Cycles that still exist, each as the sorted names of its modules. This list may only shrink.
const KNOWN_CYCLES: &[&str] = &[];

/// Modules that hold tests, or support them.
const TEST_MODULES: &[&str] = &["tests", "tests_support"];

#[test]
fn module_cycles_are_known_ones() {
    let mut unused = KNOWN_CYCLES.to_vec();
    let mut wrong = Vec::new();
    let mut modules = 0;
    for crate_root in crate_roots() {
        let found = Crate::parse(&crate_root, &|path| fs::read_to_string(root().join(path)).ok());
        modules += found.modules.len();
        for cycle in found.cycles() {
            match unused.iter().position(|known| *known == cycle.members.join(" ")) {
                Some(known) => drop(unused.swap_remove(known)),
                None => wrong.push(cycle.message),
            }
        }
    }
    assert!(modules > 500, "the scan found only {modules} modules");
    let fixed =
        unused.iter().map(|known| format!("KNOWN_CYCLES: {known:?} no longer exists; remove it"));
    wrong.extend(fixed);
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// Root files of all crates of the workspace, relative to the repository: libraries and programs.
fn crate_roots() -> Vec<String> {
    let packages = ["crates", "src", "tests"].map(|dir| entries(&root().join(dir)));
    let mut roots = Vec::new();
    for package in [vec![root().to_owned()], packages.concat()].concat() {
        if package.join("Cargo.toml").is_file() {
            roots.extend(["src/lib.rs", "src/main.rs"].map(|file| package.join(file)));
            roots.extend(entries(&package.join("src/bin")));
        }
    }
    roots.retain(|file| file.is_file());
    let relative = |file: &PathBuf| Some(file.strip_prefix(root()).ok()?.to_str()?.to_owned());
    roots.iter().filter_map(relative).collect()
}

/// Sorted entries of a directory; none if it does not exist.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(dir).into_iter().flatten();
    let mut paths: Vec<PathBuf> = read.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Names from the root of a crate to a module. The root itself has none.
type ModulePath = Vec<String>;

/// All modules of a library or program.
#[derive(Default)]
struct Crate {
    /// Declared modules: path, file without `.rs` or `/mod.rs`, directory of the children.
    unread: Vec<(ModulePath, String, String)>,
    modules: BTreeMap<ModulePath, Module>,
}

#[derive(Default)]
struct Module {
    file: String,
    /// Directory of the files of its children.
    dir: String,
    /// Names of types, functions, constants and macros that it defines.
    items: BTreeSet<String>,
    /// Names that `use` brings in, with their paths.
    imports: BTreeMap<String, Vec<String>>,
    /// Modules of which `use` brings in every name.
    globs: Vec<Vec<String>>,
    /// Every path in the module, with its line.
    named: Vec<(Vec<String>, usize)>,
}

struct Cycle {
    members: Vec<String>,
    /// Place, members, and for each edge where the source names the target.
    message: String,
}

/// Pairs of sibling modules, each with the places where the first names the second.
type Edges = BTreeMap<(String, String), Vec<String>>;

impl Crate {
    /// Parses the root file and every module it declares, without tests. `read` returns the text of a file.
    fn parse(root_file: &str, read: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut parsed = Self::default();
        let base = root_file.trim_end_matches(".rs").to_owned();
        let dir = base.rsplit_once('/').map_or("", |(dir, _)| dir).to_owned();
        parsed.unread.push((Vec::new(), base, dir));
        while let Some((path, base, dir)) = parsed.unread.pop() {
            let files = [".rs", "/mod.rs"].map(|end| format!("{base}{end}"));
            let text = |file: &String| Some((file.clone(), read(file)?));
            let Some((file, text)) = files.iter().find_map(text) else {
                panic!("no file {base}.rs for module {path:?}");
            };
            let tokens = without_tests(&tokens(&text));
            parsed.add(path, Module::new(file, dir), &tokens);
        }
        parsed
    }

    /// Adds a module with the names of its body.
    fn add(&mut self, path: ModulePath, mut module: Module, body: &[Token]) {
        let mut at = 0;
        while let Some(token) = body.get(at) {
            let next = body.get(at + 1).map_or("", |token| token.text);
            let after = body.get(at + 2).map_or("", |token| token.text);
            let mut end = at + 1;
            match token.text {
                "mod" if matches!(after, ";" | "{") => {
                    end = item_end(body, at + 2);
                    let child = [&path[..], &[next.to_owned()]].concat();
                    let dir = format!("{}/{next}", module.dir);
                    if !TEST_MODULES.contains(&next) && after == ";" {
                        self.unread.push((child, dir.clone(), dir));
                    } else if !TEST_MODULES.contains(&next) {
                        let inline = Module::new(module.file.clone(), dir);
                        self.add(child, inline, &body[at + 3..end - 1]);
                    }
                }
                "use" if next != "<" => {
                    end = item_end(body, at);
                    let tree = body[at + 1..end].split(|token| token.text == ";").next();
                    module.add_use(tree.unwrap_or_default(), &[]);
                }
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" => {
                    module.items.insert(next.to_owned());
                }
                "macro_rules" => drop(module.items.insert(after.to_owned())),
                _ if next == "::" && token.text.starts_with(is_word) => {
                    end = path_end(body, at);
                    let names = body[at..end].iter().step_by(2);
                    let names = names.map(|name| name.text.to_owned()).collect();
                    module.named.push((names, token.line));
                }
                // Not a path of this crate: `::std::mem` or `<T as Trait>::NAME`.
                "::" => end = path_end(body, at + 1),
                _ => {}
            }
            at = end;
        }
        self.modules.insert(path, module);
    }

    /// Returns the module that defines the item of a path, then the modules whose re-exports lead there.
    ///
    /// `seen` ends the resolution of imports that lead back to themselves. A path of another crate has no result.
    fn resolve(
        &self,
        from: &[String],
        path: &[String],
        seen: &mut BTreeSet<(ModulePath, String)>,
    ) -> Vec<ModulePath> {
        let mut module = from.to_vec();
        for (index, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => module.clear(),
                "self" => {}
                "super" => drop(module.pop()),
                _ => {
                    let child = [&module, slice::from_ref(name)].concat();
                    if !self.modules.contains_key(&child) {
                        let mut found = self.follow(&module, &path[index..], seen);
                        if index > 0 || !found.is_empty() {
                            found.push(module);
                        }
                        return found;
                    }
                    module = child;
                }
            }
        }
        vec![module]
    }

    /// Resolves a path whose first name is not a module but may be an import.
    fn follow(
        &self,
        module: &[String],
        path: &[String],
        seen: &mut BTreeSet<(ModulePath, String)>,
    ) -> Vec<ModulePath> {
        let (name, rest) = (&path[0], &path[1..]);
        let here = &self.modules[module];
        if !seen.insert((module.to_vec(), name.clone())) {
            return Vec::new();
        }
        if let Some(target) = here.imports.get(name) {
            return self.resolve(module, &[target, rest].concat(), seen);
        }
        if here.items.contains(name) {
            return Vec::new();
        }
        let sources = here.globs.iter().map(|glob| [glob, path].concat());
        let mut found = sources.map(|path| self.resolve(module, &path, seen));
        let defines = |found: &Vec<ModulePath>| {
            let origin = found.first().and_then(|origin| self.modules.get(origin));
            origin.is_some_and(|origin| origin.items.contains(name))
        };
        found.find(defines).unwrap_or_default()
    }

    /// The graph of the children of each module.
    fn graphs(&self) -> BTreeMap<ModulePath, Edges> {
        let mut graphs: BTreeMap<ModulePath, Edges> = BTreeMap::new();
        for (from, module) in &self.modules {
            for (path, line) in &module.named {
                for to in self.resolve(from, path, &mut BTreeSet::new()) {
                    let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                    if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
                        let site = format!("{}:{line} names {}", module.file, path.join("::"));
                        let edges = graphs.entry(from[..shared].to_vec()).or_default();
                        let sites = edges.entry((a.clone(), b.clone())).or_default();
                        if sites.last() != Some(&site) {
                            sites.push(site);
                        }
                    }
                }
            }
        }
        graphs
    }

    fn cycles(&self) -> Vec<Cycle> {
        let mut cycles = Vec::new();
        for (level, edges) in self.graphs() {
            for members in components(&edges) {
                let place = &self.modules[&level].file;
                let title = format!("module cycle in {place}: {}", members.join(", "));
                let inside = |edge: &&(String, String)| {
                    members.contains(&edge.0) && members.contains(&edge.1)
                };
                let lines = edges.keys().filter(inside).map(|edge| {
                    let (a, b) = edge;
                    match &edges[edge][..] {
                        [site] => format!("    {a} -> {b}: {site}"),
                        sites => {
                            format!("    {a} -> {b}: {} and {} more", sites[0], sites.len() - 1)
                        }
                    }
                });
                let message = [title].into_iter().chain(lines);
                let message = message.collect::<Vec<_>>().join("\n");
                cycles.push(Cycle { members, message });
            }
        }
        cycles
    }
}

impl Module {
    fn new(file: String, dir: String) -> Self {
        Self { file, dir, ..Self::default() }
    }

    /// Adds the paths of a `use` tree.
    fn add_use(&mut self, tree: &[Token], prefix: &[String]) {
        let Some(line) = tree.first().map(|token| token.line) else {
            return;
        };
        let mut path = prefix.to_vec();
        let mut alias = None;
        for (at, token) in tree.iter().enumerate() {
            match token.text {
                "{" => {
                    for branch in branches(&tree[at + 1..tree.len() - 1]) {
                        self.add_use(branch, &path);
                    }
                    return;
                }
                "*" => {
                    self.globs.push(path.clone());
                    self.named.push((path, line));
                    return;
                }
                "as" => {
                    alias = tree.get(at + 1).map(|name| name.text.to_owned());
                    break;
                }
                "::" => {}
                "self" if !path.is_empty() => {}
                name => path.push(name.to_owned()),
            }
        }
        if let Some(name) = alias.as_ref().or_else(|| path.last()) {
            self.imports.insert(name.clone(), path.clone());
        }
        self.named.push((path, line));
    }
}

/// Strongly connected components of two or more modules, as sorted names.
fn components(edges: &Edges) -> BTreeSet<Vec<String>> {
    let mut reach: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    for (start, _) in edges.keys() {
        let mut open = vec![start];
        while let Some(from) = open.pop() {
            for (_, to) in edges.keys().filter(|(a, _)| a == from) {
                if reach.entry(start).or_default().insert(to) {
                    open.push(to);
                }
            }
        }
    }
    let mutual = |a: &String| {
        let back = |b: &&String| reach.get(*b).is_some_and(|all| all.contains(a));
        let all = reach[a].iter().copied().filter(back).cloned();
        all.collect::<Vec<String>>()
    };
    let mut found: BTreeSet<Vec<String>> = reach.keys().map(|a| mutual(a)).collect();
    found.retain(|members| members.len() > 1);
    found
}

/// Index after the path that starts at an index.
fn path_end(tokens: &[Token], start: usize) -> usize {
    let mut end = start + 1;
    while let Some([separator, name]) = tokens.get(end..end + 2) {
        if separator.text != "::" || !name.text.starts_with(is_word) {
            break;
        }
        end += 2;
    }
    end
}

/// The branches between the braces of a `use` tree.
fn branches<'a, 'b>(tree: &'b [Token<'a>]) -> impl Iterator<Item = &'b [Token<'a>]> {
    let mut depth = 0;
    tree.split(move |token| {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        token.text == "," && depth == 0
    })
}
