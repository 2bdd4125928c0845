//! No files of a crate import each other in a circle: to understand one, a reader would need all.
//!
//! Each file is a module. Its imports are found in its text: `use` with nested braces, and paths
//! that begin with `crate`, `super`, `self` or an imported module. A name that a module only
//! re-exports (`pub use`) belongs to the file that defines it. A module and its submodules may
//! import each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use super::{ORDER, is_test, root, sources, without_tests};

/// Circles that are still allowed: the crate, its files, and why. Remove files that are no longer
/// in a circle.
const STILL_ALLOWED: &[(&str, &[&str], &str)] = &[];

/// Names that lead from the root of a crate to a module; empty for the root.
type Module = Vec<String>;

/// Imports and re-exports of a module.
#[derive(Debug, Default)]
struct File {
    /// Names that `use` imports, each with its path as written.
    names: BTreeMap<String, Vec<String>>,
    /// All paths that lead to something in this crate or in an imported module.
    paths: BTreeSet<Vec<String>>,
}

#[test]
fn no_files_of_a_crate_import_each_other_in_a_circle() {
    let mut wrong = Vec::new();
    for name in ORDER {
        let folder = root().join("crates").join(name).join("src");
        let texts = sources(name).into_iter().filter_map(|(path, text)| {
            let inside = path.strip_prefix(&folder).ok()?;
            (!is_test(&path)).then(|| (module_of(inside), text))
        });
        let found = circles(&texts.collect());
        let allowed = STILL_ALLOWED.iter().filter(|entry| entry.0 == name);
        let allowed: Vec<&[&str]> = allowed.map(|entry| entry.1).collect();
        for circle in &found {
            let names = |files: &&[&str]| circle.iter().all(|file| files.contains(&file.as_str()));
            if !allowed.iter().any(names) {
                wrong.push(format!("{name}: {}", circle.join(", ")));
            }
        }
        for file in allowed.iter().copied().flatten() {
            if !found.iter().flatten().any(|other| other == file) {
                wrong.push(format!(
                    "{name}: {file} is in no circle any more: take it out here"
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "these files import each other; move what they share to a file of its own:\n{}",
        wrong.join("\n")
    );
}

/// Returns the groups of modules of a crate that import each other.
fn circles(texts: &BTreeMap<Module, String>) -> Vec<Vec<String>> {
    let files: BTreeMap<&Module, File> = texts
        .iter()
        .map(|(module, text)| (module, read(without_tests(text))))
        .collect();
    let imports: BTreeMap<&Module, BTreeSet<&Module>> = files
        .iter()
        .map(|(&module, file)| {
            let paths = file.paths.iter();
            let targets = paths.filter_map(|path| resolve(&files, module, path, 0));
            let apart = |other: &&Module| !module.starts_with(other) && !other.starts_with(module);
            (module, targets.filter(apart).collect())
        })
        .collect();
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = imports
        .keys()
        .map(|&module| {
            let mut seen = BTreeSet::new();
            let mut next = vec![module];
            while let Some(at) = next.pop() {
                next.extend(imports[at].iter().filter(|other| seen.insert(**other)));
            }
            (module, seen)
        })
        .collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    let mut done = BTreeSet::new();
    for (&module, others) in &reached {
        if !others.contains(module) || done.contains(module) {
            continue;
        }
        let circle = others
            .iter()
            .filter(|other| reached[**other].contains(module));
        let circle: Vec<&Module> = circle.copied().collect();
        done.extend(circle.iter().copied());
        found.push(circle.iter().map(|module| module.join("::")).collect());
    }
    found
}

/// Returns the module of a source file, by its path below `src`.
fn module_of(path: &Path) -> Module {
    let path = path.with_extension("");
    let names = path.components().map(|part| match part {
        Component::Normal(name) => name.to_str().expect("names of files are ASCII").to_owned(),
        _ => panic!("{} is below src", path.display()),
    });
    let mut module: Module = names.collect();
    let is_root = module.len() == 1 && ["lib", "main"].contains(&module[0].as_str());
    if is_root || module.last().is_some_and(|name| name == "mod") {
        module.pop();
    }
    module
}

/// Finds the file that defines what a path leads to, seen from a module. Returns `None` for other
/// crates.
fn resolve<'a>(
    files: &BTreeMap<&'a Module, File>,
    from: &Module,
    path: &[String],
    depth: usize,
) -> Option<&'a Module> {
    let found = |module: &Module| files.get_key_value(module).map(|(module, _)| *module);
    let mut at = from.clone();
    let mut path = path.iter().peekable();
    match path.peek()?.as_str() {
        "crate" => at.clear(),
        "self" | "super" => {}
        // An imported module, or one that is declared here.
        name => {
            let mut inner = from.clone();
            inner.push(name.to_owned());
            let mut full = match files[from].names.get(name) {
                _ if files.contains_key(&inner) => vec!["self".to_owned(), name.to_owned()],
                Some(import) if depth < 8 && import[0] != name => import.clone(),
                _ => return None,
            };
            full.extend(path.skip(1).cloned());
            return resolve(files, from, &full, depth + 1);
        }
    }
    while let Some(step) = path.next_if(|step| ["crate", "self", "super"].contains(&step.as_str()))
    {
        if step == "super" {
            at.pop()?;
        }
    }
    while let Some(name) = path.next() {
        at.push(name.clone());
        if files.contains_key(&at) {
            continue;
        }
        at.pop();
        // A re-exported name belongs to the file that defines it.
        if let Some(import) = files.get(&at).and_then(|file| file.names.get(name))
            && depth < 8
        {
            let mut full = import.clone();
            full.extend(path.cloned());
            // The re-export may be from another crate, or a macro of this file.
            let passed_on = resolve(files, &at, &full, depth + 1);
            return passed_on.or_else(|| found(&at));
        }
        break;
    }
    found(&at)
}

/// Finds the imports and paths in the text of a file.
fn read(text: &str) -> File {
    let words = words(text);
    let mut file = File::default();
    let mut at = 0;
    while at < words.len() {
        if words[at..].starts_with(&["#", "[", "cfg", "(", "test", ")", "]"].map(str::to_owned)) {
            // Imports for tests only are skipped; other things for tests have bodies.
            at += 7;
            let statement = words[at..]
                .iter()
                .position(|word| word == ";" || word == "{");
            let import = words[at..].iter().take(4).any(|word| word == "use");
            at += statement.filter(|_| import).map_or(0, |length| {
                let end = words[at..].iter().position(|word| word == ";");
                end.unwrap_or(length)
            });
            continue;
        }
        if words[at] == "use" {
            let end = words[at..].iter().position(|word| word == ";");
            let end = at + end.unwrap_or(words.len() - at);
            imports(&words[at + 1..end], &[], &mut file);
            at = end;
            continue;
        }
        let is_path = |at: usize| words.get(at).is_some_and(|word| word == "::");
        if is_name(&words[at]) && is_path(at + 1) && (at == 0 || words[at - 1] != "::") {
            let mut path = vec![words[at].clone()];
            while is_path(at + 1) && words.get(at + 2).is_some_and(|word| is_name(word)) {
                path.push(words[at + 2].clone());
                at += 2;
            }
            file.paths.insert(path);
        }
        at += 1;
    }
    file
}

/// Adds the imports of one `use`: a path, which may branch in braces.
fn imports(words: &[String], before: &[String], file: &mut File) {
    let mut path = before.to_vec();
    let mut words = words.iter().enumerate();
    while let Some((at, word)) = words.next() {
        match word.as_str() {
            "{" => {
                let inside: Vec<String> = words.map(|(_, word)| word.clone()).collect();
                let inside = inside.strip_suffix(&["}".to_owned()]).unwrap_or(&inside);
                let mut depth = 0;
                let branches = inside.split(|word| {
                    depth += i32::from(word == "{") - i32::from(word == "}");
                    depth == 0 && word == ","
                });
                branches
                    .filter(|branch| !branch.is_empty())
                    .for_each(|branch| imports(branch, &path, file));
                return;
            }
            "as" => {
                let alias = words.next().map_or("_", |(_, alias)| alias.as_str());
                file.names.insert(alias.to_owned(), path.clone());
                file.paths.insert(path);
                return;
            }
            // `use a::b::{self}` is `use a::b`.
            "self" if at == 0 && !path.is_empty() => {}
            word if is_name(word) => path.push(word.to_owned()),
            _ => {}
        }
    }
    if let Some(name) = path.last() {
        file.names.insert(name.clone(), path.clone());
        file.paths.insert(path);
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Splits a source file into words: names, `::`, and every other character by itself. Comments,
/// strings and character literals are left out.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            _ if rest.starts_with("r\"") || rest.starts_with("r#") => raw_text(rest),
            '"' => quoted(rest),
            '\'' => match rest[1..].chars().next() {
                Some('\\') => 3 + rest[3..].find('\'').unwrap_or(0),
                Some(letter) if rest[1 + letter.len_utf8()..].starts_with('\'') => {
                    2 + letter.len_utf8()
                }
                _ => 1,
            },
            _ if rest.starts_with("::") => {
                words.push("::".to_owned());
                2
            }
            _ if is_name(rest) => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                let end = end.unwrap_or(rest.len());
                words.push(rest[..end].to_owned());
                end
            }
            other => {
                if !other.is_whitespace() {
                    words.push(other.to_string());
                }
                other.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    words
}

/// Returns the length of a string literal.
fn quoted(text: &str) -> usize {
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => _ = letters.next(),
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of `r"..."` or `r#"..."#`; for `r#name`, the length of the prefix.
fn raw_text(text: &str) -> usize {
    let marks = text[1..].len() - text[1..].trim_start_matches('#').len();
    if !text[1 + marks..].starts_with('"') {
        return 1 + marks;
    }
    let end = format!("\"{}", "#".repeat(marks));
    let begin = 2 + marks;
    text[begin..]
        .find(&end)
        .map_or(text.len(), |at| begin + at + end.len())
}

/// Returns the circles of a crate with these files, each given by its path and text.
fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let files = files.iter();
    let texts = files.map(|(path, text)| (module_of(Path::new(path)), (*text).to_owned()));
    circles(&texts.collect())
}

#[test]
fn circles_are_found_in_every_notation() {
    let other = ("b.rs", "pub struct B(crate::a::A); pub(crate) use words;");
    for text in [
        "use crate::b::B;",
        "use super::b::{self, B};",
        "use crate::{d::{C, D}, b::B as Other};",
        "fn f() { crate::b::g() }",
        "use crate::B;",
        "use crate::c::Passed;",
        "use crate::b::words;",
    ] {
        let passed_on = ("lib.rs", "mod a; mod b; mod c; pub use b::B;");
        let twice = ("c.rs", "pub(crate) use crate::b::B as Passed;");
        let files = [("a.rs", text), other, passed_on, twice];
        assert_eq!(circles_of(&files), [["a", "b"]], "{text}");
    }
}

#[test]
fn circle_of_three_includes_deeper_files() {
    let files = [
        ("a/mod.rs", "pub mod deep;"),
        ("a/deep.rs", "use crate::b;\nfn f() { b::inner::g() }"),
        ("b.rs", ""),
        ("b/inner.rs", "use crate::c::C;"),
        ("c.rs", "use super::a::deep::f;"),
    ];
    assert_eq!(circles_of(&files), [["a::deep", "b::inner", "c"]]);
}

#[test]
fn text_without_imports_makes_no_circle() {
    let uses_a = ("b.rs", "use crate::a::A;");
    for text in [
        "// use crate::b::B;",
        "/* crate::b */ const A: &str = \"use crate::b::B;\"; const B: char = '\"';",
        "const A: &str = r#\"crate::b::B\"#;",
        "#[cfg(test)]\nuse crate::b::B;",
        "#[cfg(test)]\nmod tests {\n use crate::b::B;\n}\n",
        "use other::b::B;",
    ] {
        assert_eq!(
            circles_of(&[("a.rs", text), uses_a]),
            [[""; 0]; 0],
            "{text}"
        );
    }
    // A module and its submodule.
    let files = [("a.rs", "mod c; use c::C;"), ("a/c.rs", "use super::A;")];
    assert_eq!(circles_of(&files), [[""; 0]; 0]);
}
