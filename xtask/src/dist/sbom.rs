//! What the executables are made of: a bill of materials (CycloneDX), and the licences of all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::run::{cargo, repository, succeed};

pub struct BillOfMaterials {
    /// Of agentsh.
    pub version: String,
    packages: Vec<Package>,
    /// The checksums of Cargo.lock, by name and version.
    checksums: BTreeMap<(String, String), String>,
}

#[derive(Debug)]
struct Package {
    name: String,
    version: String,
    licence: String,
    directory: PathBuf,
    needs: Vec<String>,
}

/// # Errors
/// When cargo cannot list the dependencies.
pub fn read() -> Result<BillOfMaterials> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output =
        cargo(["metadata", "--format-version=1", "--locked", "--filter-platform", &target]).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lock = std::fs::read_to_string(repository().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    // The metadata has the features of all packages together, tests included; a tree has those of the executable.
    let tree = [
        "tree",
        "--locked",
        "--package=agentsh",
        "--package=agentsh-server",
        "--edges=normal",
        "--prefix=none",
        "--format={p}",
        "--target",
    ];
    let tree = succeed(cargo(tree).arg(&target))?;
    let inside = tree.lines().filter_map(|line| line.split_once(" v"));
    let inside =
        inside.map(|(name, rest)| (name.to_owned(), rest.split(' ').next().unwrap_or_default().to_owned()));
    from(&serde_json::from_slice(&output.stdout)?, &lock, &inside.collect())
}

fn from(metadata: &Value, lock: &str, inside: &BTreeSet<(String, String)>) -> Result<BillOfMaterials> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let is_inside = |id: &str| {
        let package = packages.get(id).map(|package| (text(&package["name"]), text(&package["version"])));
        package.is_some_and(|package| inside.contains(&package))
    };
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let root = |program: &str| {
        let found = packages.iter().find(|(_, package)| package["name"] == program);
        found.map(|(id, _)| id.clone()).with_context(|| format!("there is no package {program}"))
    };
    let roots = super::build::PROGRAMS.map(root).into_iter().collect::<Result<Vec<_>>>()?;
    // What is in the executables: neither tests nor build scripts are.
    let normal = |id: &str| -> Vec<String> {
        let dependencies = nodes.get(id).map(|node| list(&node["deps"])).unwrap_or_default();
        let is_normal =
            |dependency: &Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        dependencies
            .iter()
            .filter(|dependency| is_normal(dependency))
            .map(|found| text(&found["pkg"]))
            .filter(|id| is_inside(id))
            .collect()
    };
    let (mut seen, mut open) = (roots.iter().cloned().collect::<BTreeSet<_>>(), roots.clone());
    while let Some(id) = open.pop() {
        open.extend(normal(&id).into_iter().filter(|next| seen.insert(next.clone())));
    }
    let reference = |id: &String| packages.get(id).map(|p| purl(&text(&p["name"]), &text(&p["version"])));
    let package = |id: &String| {
        let package = packages.get(id)?;
        Some(Package {
            name: text(&package["name"]),
            version: text(&package["version"]),
            licence: text(&package["license"]).replace('/', " OR "),
            directory: Path::new(package["manifest_path"].as_str()?).parent()?.to_owned(),
            needs: normal(id).iter().filter_map(reference).collect(),
        })
    };
    Ok(BillOfMaterials {
        version: roots
            .first()
            .and_then(|root| packages.get(root))
            .map(|package| text(&package["version"]))
            .unwrap_or_default(),
        packages: seen.iter().filter_map(package).collect(),
        checksums: checksums(lock),
    })
}

fn purl(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{version}")
}

/// Cargo writes one key a line.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
            line.map(|rest| rest.trim_end_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) = (value("name"), value("version"), value("checksum")) {
            found.insert((name, version), sum);
        }
    }
    found
}

impl BillOfMaterials {
    /// CycloneDX 1.5, without time or serial number: the same sources give the same text.
    pub fn text(&self) -> String {
        let component = |package: &Package| {
            let reference = purl(&package.name, &package.version);
            let mut component = json!({
                "type": "library", "bom-ref": reference, "name": package.name, "version": package.version,
                "purl": reference,
            });
            if !package.licence.is_empty() {
                component["licenses"] = json!([{"expression": package.licence}]);
            }
            let key = (package.name.clone(), package.version.clone());
            if let Some(sum) = self.checksums.get(&key) {
                component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
            }
            component
        };
        let (own, others): (Vec<&Package>, Vec<&Package>) =
            self.packages.iter().partition(|package| package.name == "agentsh");
        let mut root = own.first().map(|package| component(package)).unwrap_or_default();
        root["type"] = "application".into();
        let dependencies: Vec<Value> = self
            .packages
            .iter()
            .map(|package| json!({"ref": purl(&package.name, &package.version), "dependsOn": package.needs}))
            .collect();
        let bill = json!({
            "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"component": root},
            "components": others.into_iter().map(component).collect::<Vec<_>>(),
            "dependencies": dependencies,
        });
        format!("{bill:#}\n")
    }

    /// Every licence text once, with the packages that it holds for.
    ///
    /// # Errors
    /// When the sources of a package cannot be read.
    pub fn licences(&self) -> Result<String> {
        let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut list = String::from("agentsh is licensed under Apache-2.0 or MIT. It contains:\n\n");
        for package in &self.packages {
            let name = format!("{} {}", package.name, package.version);
            list.push_str(&format!("    {name}: {}\n", package.licence));
            // The parts of agentsh are below its own licence.
            let place =
                if package.directory.starts_with(repository()) { &repository() } else { &package.directory };
            for entry in
                std::fs::read_dir(place).with_context(|| format!("cannot read {}", place.display()))?
            {
                let entry = entry?;
                let file = entry.file_name().to_string_lossy().to_uppercase();
                let is_licence =
                    ["LICENSE", "LICENCE", "COPYING", "NOTICE"].iter().any(|start| file.starts_with(start));
                if is_licence && entry.path().is_file() {
                    let text = String::from_utf8_lossy(&std::fs::read(entry.path())?).trim().to_owned();
                    texts.entry(text).or_default().insert(name.clone());
                }
            }
        }
        for (text, names) in texts {
            let names: Vec<String> = names.into_iter().collect();
            list.push_str(&format!("\n{}\n{}:\n\n{text}\n", "-".repeat(80), names.join(", ")));
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbom_lists_exactly_the_crates_in_the_executable() {
        let bill = read().unwrap();
        let parsed: Value = serde_json::from_str(&bill.text()).unwrap();
        assert_eq!(parsed["metadata"]["component"]["name"], "agentsh");
        let components = parsed["components"].as_array().unwrap();
        let named = |name: &str| components.iter().find(|component| component["name"] == name);
        let rustls = named("rustls").unwrap();
        assert_eq!(rustls["hashes"][0]["content"].as_str().unwrap().len(), 64, "{rustls}");
        assert!(rustls["licenses"][0]["expression"].as_str().unwrap().contains("MIT"), "{rustls}");
        assert!(named("agentsh-policy").is_some() && named("tempfile").is_none() && named("insta").is_none());
        let all = components.iter().chain(std::iter::once(&parsed["metadata"]["component"]));
        let references: BTreeSet<&str> = all.filter_map(|component| component["bom-ref"].as_str()).collect();
        for needed in parsed["dependencies"].as_array().unwrap() {
            for name in needed["dependsOn"].as_array().unwrap() {
                assert!(references.contains(name.as_str().unwrap()), "{name}");
            }
        }
        let licences = bill.licences().unwrap();
        assert!(licences.contains("    rustls ") && licences.contains("Permission is hereby granted"));
        let without: Vec<_> = bill.packages.iter().filter(|package| package.licence.is_empty()).collect();
        assert!(without.is_empty(), "{without:?}");
    }
}
