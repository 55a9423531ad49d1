//! What Cargo knows of the workspace and of everything it depends on.

use serde_json::Value;

use crate::shell::{self, Outcome};

/// A package of the dependency tree.
#[derive(Debug)]
pub struct Package {
    /// Its name in the registry.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence, as an SPDX expression.
    pub license: String,
    /// Names of the packages it depends on directly, tests included for our own.
    pub dependencies: Vec<Dependency>,
    /// One of ours.
    pub ours: bool,
}

/// An arrow to another package.
#[derive(Debug)]
pub struct Dependency {
    /// Where it points.
    pub name: String,
    /// Only for tests, examples and build scripts.
    pub development: bool,
}

/// Reads `cargo metadata`.
pub fn packages() -> Outcome<Vec<Package>> {
    let mut metadata = shell::command("cargo");
    metadata.args(["metadata", "--format-version", "1", "--locked"]);
    let text = shell::output(&mut metadata)?;
    let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let members = value["workspace_members"].as_array().cloned().unwrap_or_default();
    let packages = value["packages"].as_array().cloned().unwrap_or_default();
    Ok(packages.iter().map(|package| read(package, members.contains(&package["id"]))).collect())
}

fn read(package: &Value, ours: bool) -> Package {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let dependencies = package["dependencies"].as_array().cloned().unwrap_or_default();
    Package {
        name: text(&package["name"]),
        version: text(&package["version"]),
        license: text(&package["license"]),
        dependencies: dependencies
            .iter()
            .map(|dependency| Dependency {
                name: text(&dependency["name"]),
                // Ordinary dependencies have no kind.
                development: !dependency["kind"].is_null(),
            })
            .collect(),
        ours,
    }
}
