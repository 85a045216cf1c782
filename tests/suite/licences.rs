//! Licences of everything that a build could pull in, with any feature and on any platform.

use std::process::Command;

use serde::Deserialize;
use spdx::{Expression, Licensee, ParseMode};

/// What a dependency may ask of those who use it: notices. MPL-2.0 also asks that changes to its
/// own files be published; we change none.
const ACCEPTED: [&str; 13] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MPL-2.0",
    "NCSA",
    "Unicode-3.0",
    "Zlib",
];

/// Packages whose manifest names a file, and the licence that we read in it.
const READ_IN_FILE: [(&str, &str, &str); 2] =
    [("cfg_block", "0.1.1", "Apache-2.0"), ("fuchsia-cprng", "0.1.1", "BSD-3-Clause")];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
}

impl Package {
    fn licence(&self) -> Option<&str> {
        let read = READ_IN_FILE.iter().find(|(name, version, _)| {
            self.license.is_none() && *name == self.name && *version == self.version
        });
        self.license.as_deref().or(read.map(|(_, _, licence)| *licence))
    }
}

#[test]
fn every_dependency_has_a_licence_we_accept() {
    let accepted = ACCEPTED.map(|licence| Licensee::parse(licence).expect("an SPDX licence"));
    let packages = metadata().packages;
    assert!(packages.iter().any(|package| package.name == "burn"), "no package `burn`");
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !package.licence().is_some_and(|licence| accepts(&accepted, licence)))
        .map(|package| {
            let licence = package.licence().unwrap_or("none in its manifest");
            format!("{} {}: {licence}", package.name, package.version)
        })
        .collect();
    let list = refused.join("\n");
    assert!(refused.is_empty(), "licences that are not accepted, or are not SPDX:\n{list}");
}

/// Old manifests write `MIT/Apache-2.0`, which the lax mode reads as `OR`.
fn accepts(accepted: &[Licensee], licence: &str) -> bool {
    Expression::parse_mode(licence, ParseMode::LAX).is_ok_and(|expression| {
        expression.evaluate(|needed| accepted.iter().any(|licence| licence.satisfies(needed)))
    })
}

/// Needs the sources of every package in `Cargo.lock`; cargo fetches those that are missing.
fn metadata() -> Metadata {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--all-features", "--locked"])
        .args(["--manifest-path", manifest])
        .output()
        .expect("cargo starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata failed:\n{message}");
    serde_json::from_slice(&output.stdout).expect("the metadata of a workspace")
}
