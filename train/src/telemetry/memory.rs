//! Where a rank's memory goes: bytes by owner, and the most that its process has held.

use std::fmt;

use fulmar_model::{Role, weights};

use crate::optim::Rule;
use crate::state::TrainState;

/// Bytes of a weight or of a gradient.
const F32_BYTES: u64 = 4;

/// Bytes of one kind by the parameters they belong to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ByRole {
    /// Matrices of routed experts.
    pub expert_stacks: u64,
    /// Everything else in the layers, norms and gates.
    pub shared: u64,
    /// Token embedding and output head.
    pub embedding_and_head: u64,
}

impl ByRole {
    /// Of all parameters.
    pub fn total(&self) -> u64 {
        self.expert_stacks + self.shared + self.embedding_and_head
    }

    /// Each part with its name in metrics.
    pub fn parts(&self) -> [(&'static str, u64); 3] {
        [
            ("expert_stacks", self.expert_stacks),
            ("shared", self.shared),
            ("embedding_and_head", self.embedding_and_head),
        ]
    }

    fn add(&mut self, role: Role, bytes: u64) {
        let part = match role {
            Role::ExpertStack => &mut self.expert_stacks,
            Role::Embedding | Role::Head => &mut self.embedding_and_head,
            _ => &mut self.shared,
        };
        *part += bytes;
    }
}

/// Bytes that a rank holds from step to step, and the gradients of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Weights.
    pub weights: ByRole,
    /// One gradient of each trained parameter.
    pub gradients: ByRole,
    /// Momentum and moments, once the first update has made them.
    pub optimizer: ByRole,
}

impl Sizes {
    /// Of a rank's state; of expert stacks, its own experts.
    pub fn of(state: &TrainState) -> Self {
        let mut sizes = Self::default();
        for (path, shape) in weights::shapes(&state.model) {
            let Some(entry) = state.optimizer.table().get(&path) else { continue };
            let elements = shape.iter().product::<usize>() as u64;
            sizes.weights.add(entry.role, F32_BYTES * elements);
            if entry.rule != Rule::Fixed {
                sizes.gradients.add(entry.role, F32_BYTES * elements);
            }
            let state_bytes = state.optimizer.state_bytes(entry.rule);
            sizes.optimizer.add(entry.role, state_bytes * elements);
        }
        sizes
    }

    /// Each kind with its name in metrics.
    pub fn kinds(&self) -> [(&'static str, ByRole); 3] {
        [("weights", self.weights), ("gradients", self.gradients), ("optimizer", self.optimizer)]
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.kinds().iter().map(|(_, bytes)| bytes.total()).sum()
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<20}{:>14}{:>14}", "memory of a rank", "expert stacks", "shared")?;
        writeln!(f, "{:>19}{:>12}", "embedding and head", "all")?;
        let mut all = ByRole::default();
        for (kind, bytes) in self.kinds() {
            all = ByRole {
                expert_stacks: all.expert_stacks + bytes.expert_stacks,
                shared: all.shared + bytes.shared,
                embedding_and_head: all.embedding_and_head + bytes.embedding_and_head,
            };
            row(f, kind, bytes)?;
        }
        row(f, "all", all)
    }
}

fn row(f: &mut fmt::Formatter<'_>, kind: &str, bytes: ByRole) -> fmt::Result {
    let [stacks, shared, vocabulary] = bytes.parts().map(|(_, bytes)| human(bytes));
    writeln!(f, "  {kind:<18}{stacks:>14}{shared:>14}{vocabulary:>19}{:>12}", human(bytes.total()))
}

/// `18.5 GiB`, `376 MiB`, `12 KiB` or `7 B`: three figures or all there are.
pub fn human(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1023.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if unit == 0 || value >= 99.95 { 0 } else { 1 };
    format!("{value:.decimals$} {}", units[unit])
}

/// The most memory that this process has held so far, with all of its ranks in threads; where the
/// system tells it in the manner of Linux.
pub fn peak_resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024 * kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_said_in_three_figures() {
        let said = [0, 7, 1023, 1024, 12_700, 394_002_432, 19_864_223_744].map(human);
        let expected = ["0 B", "7 B", "1023 B", "1.0 KiB", "12.4 KiB", "376 MiB", "18.5 GiB"];
        assert_eq!(said, expected);
        assert_eq!(human(1 << 20), "1.0 MiB");
    }

    #[test]
    fn the_peak_grows_with_what_is_held() {
        let Some(before) = peak_resident_bytes() else {
            println!("skipped, there is no /proc/self/status");
            return;
        };
        let held = vec![1u8; (before + (64 << 20)) as usize];
        let after = peak_resident_bytes().expect("as before");
        assert!(after > before && held.iter().all(|byte| *byte == 1));
    }
}
