//! The bill of materials of one program, as CycloneDX has it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::cargo::{CrateFacts, CrateId, Crates};

/// A crate of the program is unknown to cargo, which is a fault of this program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BomError {
    #[error("cargo tree has no package {0}; name tunnel-server, tunnel-agent, node-lb, fleet or cli")]
    NoRoot(String),
    #[error("cargo metadata knows nothing about {0} {1}, which cargo tree lists")]
    Unknown(String, String),
}

/// The bill of materials of `package`. Lists are sorted, and nothing in it depends on time or place.
pub(crate) fn of(package: &str, crates: &Crates) -> Result<Value, BomError> {
    let root = crates.shipped.iter().find(|(name, _)| name == package);
    let root = root.ok_or_else(|| BomError::NoRoot(package.to_owned()))?;
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for id in &crates.built {
        let facts = facts(crates, id)?;
        let on: BTreeSet<String> = facts
            .dependencies
            .intersection(&crates.built)
            .map(|id| Ok(reference(id, self::facts(crates, id)?)))
            .collect::<Result<_, _>>()?;
        dependencies.push(json!({ "ref": reference(id, facts), "dependsOn": on }));
        if id != root {
            components.push(component("library", id, facts, Some(scope(crates, id))));
        }
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": component("application", root, facts(crates, root)?, None) },
        "components": components,
        "dependencies": dependencies,
    }))
}

fn facts<'c>(crates: &'c Crates, id: &CrateId) -> Result<&'c CrateFacts, BomError> {
    crates.facts.get(id).ok_or_else(|| BomError::Unknown(id.0.clone(), id.1.clone()))
}

/// CycloneDX calls what only takes part in the build excluded from the program.
fn scope(crates: &Crates, id: &CrateId) -> &'static str {
    if crates.shipped.contains(id) { "required" } else { "excluded" }
}

fn component(kind: &str, id: &CrateId, facts: &CrateFacts, scope: Option<&str>) -> Value {
    let reference = reference(id, facts);
    let mut found = json!({ "type": kind, "bom-ref": reference, "name": id.0, "version": id.1 });
    if facts.is_foreign {
        // Crates of this workspace have none: some have the names of crates that the registry has.
        found["purl"] = json!(reference);
    }
    if let Some(scope) = scope {
        found["scope"] = json!(scope);
    }
    if let Some(license) = &facts.license {
        // Before SPDX, crates wrote a slash.
        found["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    if let Some(checksum) = &facts.checksum {
        found["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    found
}

fn reference((name, version): &CrateId, facts: &CrateFacts) -> String {
    let kind = if facts.is_foreign { "pkg:cargo/" } else { "tombolo:" };
    format!("{kind}{name}@{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> CrateId {
        (name.to_owned(), "1.0.0".to_owned())
    }

    fn program() -> Crates {
        let facts = |is_foreign: bool, on: &[&str]| CrateFacts {
            license: Some("MIT/Apache-2.0".to_owned()),
            is_foreign,
            checksum: is_foreign.then(|| "ab".to_owned()),
            dependencies: on.iter().map(|name| id(name)).collect(),
        };
        Crates {
            shipped: [id("agent"), id("proto"), id("bytes")].into(),
            built: [id("agent"), id("proto"), id("bytes"), id("derive")].into(),
            facts: [
                (id("agent"), facts(false, &["proto", "tonic"])),
                (id("proto"), facts(false, &["bytes", "derive"])),
                (id("bytes"), facts(true, &[])),
                (id("derive"), facts(true, &[])),
                (id("tonic"), facts(true, &[])),
            ]
            .into(),
        }
    }

    /// Features of other programs of the workspace bring `tonic`, which the agent does not have.
    #[test]
    fn only_crates_of_the_program_are_listed_and_build_time_ones_say_so() {
        let bom = of("agent", &program()).unwrap();

        let components = bom["components"].as_array().unwrap();
        let shown: Vec<_> = components.iter().map(|it| (it["name"].as_str(), it["scope"].as_str())).collect();
        let expected = [("bytes", "required"), ("derive", "excluded"), ("proto", "required")];
        assert_eq!(shown, expected.map(|(name, scope)| (Some(name), Some(scope))));
        assert_eq!(bom["metadata"]["component"]["name"], "agent");
        let agent = json!({ "ref": "tombolo:agent@1.0.0", "dependsOn": ["tombolo:proto@1.0.0"] });
        assert_eq!(bom["dependencies"][0], agent);
    }

    #[test]
    fn a_crate_of_the_registry_has_its_address_hash_and_license() {
        let bom = of("agent", &program()).unwrap();

        let bytes = &bom["components"][0];
        assert_eq!(bytes["purl"], "pkg:cargo/bytes@1.0.0");
        assert_eq!(bytes["hashes"][0]["content"], "ab");
        assert_eq!(bytes["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bom["components"][2]["purl"], Value::Null, "ours is in no registry");
    }

    #[test]
    fn a_package_without_a_program_is_refused_by_name() {
        assert!(matches!(of("nosuch", &program()), Err(BomError::NoRoot(name)) if name == "nosuch"));
    }
}
