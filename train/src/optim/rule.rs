//! The table of parameters: role, rule, shape.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fulmar_model::{Role, RoleTable};
use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::plan::grouped;

/// An update rule (SPEC section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Orthogonalised momentum on the sphere of the matrix's norm.
    MuonH,
    /// Adam's direction on that sphere.
    AdamH,
    /// Adam.
    Adam,
    /// Not trained.
    Fixed,
}

impl Rule {
    /// The rule of a role. A role says what a parameter is; this is the one place that says what
    /// follows from it.
    pub fn of(role: Role) -> Self {
        match role {
            Role::Matrix | Role::ExpertStack => Self::MuonH,
            Role::Head => Self::AdamH,
            Role::Embedding | Role::Router | Role::HeadGate | Role::Gain | Role::Convolution => {
                Self::Adam
            }
            Role::RouterBias => Self::Fixed,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::MuonH => "muonh",
            Self::AdamH => "adamh",
            Self::Adam => "adam",
            Self::Fixed => "fixed",
        }
    }
}

/// One parameter of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableEntry {
    /// What the parameter is.
    pub role: Role,
    /// Its update rule.
    pub rule: Rule,
    /// Its shape, of a stack of experts over all shards.
    pub shape: Vec<usize>,
}

/// Every parameter of a model with its rule; printed, hashed and saved with the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OptimizerTable(BTreeMap<String, TableEntry>);

impl OptimizerTable {
    /// Joins the roles that modules declare with the shapes that parameters have.
    ///
    /// # Errors
    /// [`TrainError::Role`] for a parameter without a role or a role without a parameter, and
    /// [`TrainError::RoleShape`] where a rule cannot apply to a shape.
    pub fn new(
        roles: &RoleTable,
        shapes: &BTreeMap<String, Vec<usize>>,
    ) -> Result<Self, TrainError> {
        for (path, _) in roles.iter() {
            if !shapes.contains_key(path) {
                return Err(TrainError::Role { path: path.to_owned(), missing: "parameter" });
            }
        }
        let mut table = BTreeMap::new();
        for (path, shape) in shapes {
            let missing = || TrainError::Role { path: path.clone(), missing: "role" };
            let role = roles.get(path).ok_or_else(missing)?;
            let rule = Rule::of(role);
            if rule == Rule::MuonH && !(2..=3).contains(&shape.len()) {
                return Err(TrainError::RoleShape {
                    path: path.clone(),
                    role,
                    shape: shape.clone(),
                });
            }
            table.insert(path.clone(), TableEntry { role, rule, shape: shape.clone() });
        }
        Ok(Self(table))
    }

    /// The entry at `path`.
    pub fn get(&self, path: &str) -> Option<&TableEntry> {
        self.0.get(path)
    }

    /// Entries in the order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &TableEntry)> {
        self.0.iter()
    }

    /// Parameters and entries for each rule, for a log line.
    pub fn summary(&self) -> String {
        let mut sums: BTreeMap<Rule, (usize, usize)> = BTreeMap::new();
        for entry in self.0.values() {
            let sum = sums.entry(entry.rule).or_default();
            sum.0 += 1;
            sum.1 += entry.shape.iter().product::<usize>();
        }
        let line = |(rule, (tensors, params)): (&Rule, &(usize, usize))| {
            let params = grouped(*params as u64);
            format!("{} {tensors} tensors, {params} parameters", rule.name())
        };
        sums.iter().map(line).collect::<Vec<_>>().join("; ")
    }

    /// A digest of paths, roles, rules and shapes, in hexadecimal; a resumed run must have the
    /// same.
    pub fn digest(&self) -> String {
        blake3::hash(self.to_string().as_bytes()).to_hex().to_string()
    }
}

impl std::fmt::Display for OptimizerTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        for (path, entry) in &self.0 {
            let (rule, role) = (entry.rule.name(), entry.role);
            writeln!(text, "{rule:<6} {role:<12?} {:?} {path}", entry.shape)?;
        }
        f.write_str(&text)
    }
}
