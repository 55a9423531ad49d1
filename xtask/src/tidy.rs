//! What no compiler checks, so that nobody has to say it in a review.

use std::fs;
use std::path::{Path, PathBuf};

use crate::manifest::{self, Package};
use crate::shell::{self, Outcome};

/// Which room may lean on which; tests may lean on more (see [`TEST_ARROWS`]).
const ARROWS: &[(&str, &[&str])] = &[
    ("bimetal-io", &[]),
    ("bimetal-policy", &[]),
    ("bimetal-engine", &["bimetal-io", "bimetal-policy"]),
    ("bimetal-uring", &["bimetal-io"]),
    ("bimetal-twin", &["bimetal-io"]),
    ("bimetal-export", &["bimetal-io"]),
    ("bimetal-hostile", &["bimetal-io", "bimetal-engine", "bimetal-twin", "bimetal-export"]),
    ("bimetal-hunt", &["bimetal-io", "bimetal-engine", "bimetal-twin"]),
    ("bimetal-lab", &["bimetal-io", "bimetal-policy", "bimetal-engine", "bimetal-twin"]),
    (
        "bimetal",
        &[
            "bimetal-io",
            "bimetal-engine",
            "bimetal-uring",
            "bimetal-twin",
            "bimetal-export",
            "bimetal-lab",
            "bimetal-hunt",
        ],
    ),
    ("xtask", &[]),
];

/// What only tests and examples may lean on: a world to run in.
const TEST_ARROWS: &[(&str, &[&str])] = &[
    ("bimetal-engine", &["bimetal-twin", "bimetal-hunt", "bimetal-uring"]),
    ("bimetal-export", &["bimetal-uring"]),
    // Itself, with canaries.
    ("bimetal-hunt", &["bimetal-hunt"]),
];

/// What the rooms at the bottom may take from the registry. Anything more needs a decision
/// note in `docs/decisions/`.
const REGISTRY_ALLOWED: &[(&str, &[&str])] = &[
    ("bimetal-io", &[]),
    ("bimetal-policy", &[]),
    ("bimetal-engine", &["crc-fast", "hashbrown", "foldhash", "smallvec"]),
];

/// Licences that may be in the binary.
const LICENCES: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "Unlicense",
    "Unicode-3.0",
    "MIT-0",
    "CC0-1.0",
    "BSL-1.0",
    "Apache-2.0 WITH LLVM-exception",
];

/// Packages that must not be in the tree, and why.
const BANNED_PACKAGES: &[(&str, &str)] = &[
    ("bindgen", "it needs libclang where bimetal is built"),
    ("tokio", "the data path has no runtime"),
];

/// Names that say nothing about what a file holds.
const BANNED_NAMES: &[&str] = &["utils", "util", "common", "helpers", "helper", "misc", "types"];

/// Longest file header search: the header is what a file begins with.
const HEADER_LINES_MAX: usize = 3;

/// Checks everything; the failure lists all that is wrong.
pub fn run() -> Outcome {
    let mut problems = Vec::new();
    let packages = manifest::packages()?;
    check_arrows(&packages, &mut problems);
    check_licences(&packages, &mut problems);
    for path in sources(&shell::root()) {
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        check_source(&path, &text, &mut problems);
    }
    check_command_docs(&mut problems)?;
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

fn check_arrows(packages: &[Package], problems: &mut Vec<String>) {
    let allowed = |table: &[(&str, &'static [&'static str])], name: &str| {
        table.iter().find(|(room, _)| *room == name).map_or(&[][..], |(_, names)| names)
    };
    for package in packages.iter().filter(|package| package.ours) {
        if !ARROWS.iter().any(|(room, _)| *room == package.name) {
            problems.push(format!(
                "{}: a new room: say in xtask/src/tidy.rs what it may lean on",
                package.name
            ));
        }
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let is_room = packages.iter().any(|other| other.ours && other.name == name);
            let arrow = allowed(ARROWS, &package.name).contains(&name)
                || dependency.development && allowed(TEST_ARROWS, &package.name).contains(&name);
            if is_room && !arrow {
                problems.push(format!("{} must not lean on {name}", package.name));
            }
            let bottom = REGISTRY_ALLOWED.iter().any(|(room, _)| *room == package.name);
            let taken = allowed(REGISTRY_ALLOWED, &package.name).contains(&name);
            if bottom && !is_room && !dependency.development && !taken {
                problems.push(format!(
                    "{} takes {name} from the registry without a decision",
                    package.name
                ));
            }
        }
    }
}

fn check_licences(packages: &[Package], problems: &mut Vec<String>) {
    for package in packages {
        let id = format!("{} {}", package.name, package.version);
        if !is_allowed(&package.license) {
            problems.push(format!("{id}: licence '{}' is not on the list", package.license));
        }
        if let Some((_, why)) = BANNED_PACKAGES.iter().find(|(name, _)| *name == package.name) {
            problems.push(format!("{id} must not be in the tree: {why}"));
        }
    }
}

/// Whether an SPDX expression can be met with the licences on the list.
fn is_allowed(expression: &str) -> bool {
    // Old manifests write "MIT/Apache-2.0" for OR.
    let text = expression.replace('/', " OR ").replace(['(', ')'], " ");
    text.split(" AND ").all(|part| part.split(" OR ").any(|one| LICENCES.contains(&one.trim())))
}

/// Every Rust source of ours.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            let skipped = ["target", "run"].iter().any(|skip| name == *skip);
            if !skipped && !name.to_string_lossy().starts_with('.') {
                found.extend(sources(&path));
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn check_source(path: &Path, text: &str, problems: &mut Vec<String>) {
    let shown = path.strip_prefix(shell::root()).unwrap_or(path).display().to_string();
    let is_test = shown.contains("/tests/") || shown.ends_with("/tests.rs");
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    if BANNED_NAMES.contains(&stem.as_ref()) {
        problems.push(format!("{shown}: the name says nothing about what it holds"));
    }
    let inner_tests = path.file_name().is_some_and(|name| name == "tests.rs");
    let begins = text.lines().take(HEADER_LINES_MAX).any(|line| line.starts_with("//!"));
    if !begins && !inner_tests {
        problems.push(format!("{shown}: no //! header says what it holds"));
    }
    // Put together here, so that this file does not find itself.
    let marks = [["TO", "DO"].concat(), ["FIX", "ME"].concat(), ["XX", "X"].concat()];
    // A map with a hasher of its own is as good as any other.
    let names_its_hasher = text.contains("BuildHasher");
    let hash_rooms = ["crates/io/src", "crates/policy/src", "crates/engine/src", "crates/twin/src"];
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.split("//").next().unwrap_or_default();
        let mut say = |what: &str| problems.push(format!("{shown}:{number}: {what}"));
        if marks.iter().any(|mark| line.split(|c: char| !c.is_alphanumeric()).any(|w| w == mark)) {
            say("left-over mark");
        }
        if code.contains(&["dbg", "!("].concat()) {
            say("left-over debugging");
        }
        let grouped = code.contains("std::collections::{")
            && (code.contains("HashMap") || code.contains("HashSet"));
        let map = grouped
            || code.contains("std::collections::HashMap")
            || code.contains("std::collections::HashSet");
        if hash_rooms.iter().any(|room| shown.starts_with(room))
            && !is_test
            && (code.contains("RandomState") || map && !names_its_hasher)
        {
            say("a hash map with a random seed would make runs differ");
        }
    }
}

/// Every command has its page, and the README names it.
fn check_command_docs(problems: &mut Vec<String>) -> Outcome {
    let root = shell::root();
    let commands = root.join("crates/cli/src/commands");
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let readme = read(&root.join("README.md"));
    let entries = fs::read_dir(&commands).map_err(|e| format!("{}: {e}", commands.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().replace('_', "-");
        if stem == "mod" {
            continue;
        }
        let page = root.join(format!("docs/commands/{stem}.md"));
        if !read(&page).contains(&format!("bimetal {stem}")) {
            problems.push(format!("docs/commands/{stem}.md does not describe 'bimetal {stem}'"));
        }
        if !readme.contains(&format!("docs/commands/{stem}.md")) {
            problems.push(format!("README.md does not lead to docs/commands/{stem}.md"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        if let Err(problems) = run() {
            panic!("{problems}");
        }
    }

    #[test]
    fn licence_expressions_are_read_as_alternatives_and_sums() {
        for good in
            ["MIT", "MIT OR GPL-3.0", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0"]
        {
            assert!(is_allowed(good), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-2.0", "AGPL-3.0 OR SSPL-1.0"] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }

    #[test]
    fn every_kind_of_untidiness_is_seen() {
        let problems_of = |path: &str, text: &str| {
            let mut problems = Vec::new();
            check_source(&shell::root().join(path), text, &mut problems);
            problems.len()
        };
        assert_eq!(problems_of("crates/io/src/x.rs", "//! Fine.\nfn a() {}\n"), 0);
        assert_eq!(problems_of("crates/io/src/x.rs", "fn a() {}\n"), 1);
        assert_eq!(problems_of("crates/io/src/utils.rs", "//! Things.\n"), 1);
        let mark = ["//! A.\n// TO", "DO: later\n"].concat();
        assert_eq!(problems_of("crates/io/src/x.rs", &mark), 1);
        let random = "//! A.\nuse std::collections::{BTreeMap, HashMap};\n";
        assert_eq!(problems_of("crates/engine/src/x.rs", random), 1);
        assert_eq!(problems_of("crates/cli/src/x.rs", random), 0);
    }
}
