//! What each parameter is, declared by the module that owns it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The part a parameter plays; the optimizer chooses its rule by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Token embedding.
    Embedding,
    /// Output head.
    Head,
    /// A matrix of attention, a shared expert, a latent projection or a gated norm.
    Matrix,
    /// A stack of routed experts' matrices, each expert's its own.
    ExpertStack,
    /// Router weight.
    Router,
    /// Router bias: set by balancing, without gradient or optimizer.
    RouterBias,
    /// Gate of the attention heads.
    HeadGate,
    /// Gain of a norm.
    Gain,
    /// Taps of a short convolution.
    Convolution,
}

impl Role {
    /// As in files and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Head => "head",
            Self::Matrix => "matrix",
            Self::ExpertStack => "expert_stack",
            Self::Router => "router",
            Self::RouterBias => "router_bias",
            Self::HeadGate => "head_gate",
            Self::Gain => "gain",
            Self::Convolution => "convolution",
        }
    }
}

/// The role of every parameter by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RoleTable(BTreeMap<String, Role>);

impl RoleTable {
    /// The role at `path`.
    pub fn get(&self, path: &str) -> Option<Role> {
        self.0.get(path).copied()
    }

    /// Paths and roles in the order of the paths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Role)> {
        self.0.iter().map(|(path, role)| (path.as_str(), *role))
    }

    /// Declares the parameter in field `name` of the module at `path`.
    pub fn declare(&mut self, path: &str, name: &str, role: Role) {
        self.0.insert(join(path, name), role);
    }
}

/// A module that knows the roles of its parameters.
///
/// Implementations call [`RoleTable::declare`] for their own parameters and pass on the path of
/// each submodule, which is the field name or index that Burn's traversal uses too.
pub trait Roles {
    /// Declares every parameter of the module at `path`.
    fn declare_roles(&self, path: &str, table: &mut RoleTable);

    /// The roles of a whole tree.
    fn roles(&self) -> RoleTable {
        let mut table = RoleTable::default();
        self.declare_roles("", &mut table);
        table
    }
}

impl<M: Roles> Roles for Vec<M> {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        for (index, module) in self.iter().enumerate() {
            module.declare_roles(&join(path, &index.to_string()), table);
        }
    }
}

impl<M: Roles> Roles for Option<M> {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        if let Some(module) = self {
            module.declare_roles(path, table);
        }
    }
}

/// The path of field `name` in the module at `path`.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
