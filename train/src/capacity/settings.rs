//! What is asked.

use fulmar_ep::replay::{RowFormat, World};
use serde::Serialize;

use super::documents::Documents;
use super::sweep;
use super::synthetic::{Shape, Synthetic};
use crate::error::TrainError;

/// Experts of a shard that a bf16 header can number: it holds id + 1, and bf16 holds no integer
/// beyond 256 exactly.
const MOST_BF16_EXPERTS: usize = 255;
/// Ids are kept in 16 bits.
const MOST_EXPERTS: usize = 1 << 16;

/// Who exchanges what, and with how much room.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exchange {
    /// Shards.
    pub shards: usize,
    /// Experts of a layer.
    pub num_experts: usize,
    /// Experts of a token.
    pub experts_per_token: usize,
    /// Tokens of a shard.
    pub tokens: usize,
    /// Waves of the pooled-wave rule.
    pub waves: usize,
    /// Rows that travel.
    pub payload: RowFormat,
    /// Capacity factors, each the sender's and the receiver's at once.
    pub factors: Vec<f64>,
}

impl Exchange {
    /// Who exchanges.
    pub fn world(&self) -> World {
        World {
            shards: self.shards,
            num_experts: self.num_experts,
            experts_per_token: self.experts_per_token,
        }
    }

    /// The exchange's tokens in rows of this length.
    pub(super) fn shape(&self, row_tokens: usize) -> Shape {
        Shape { world: self.world(), tokens: self.tokens, row_tokens }
    }

    /// Confirms that all rules can run.
    ///
    /// # Errors
    /// Names the flag, or what the rule calls it, with its value and what is needed.
    pub fn validate(&self) -> Result<(), TrainError> {
        self.world().validate()?;
        let positive = [
            ("--tokens", self.tokens as u64),
            ("--latent", self.payload.width),
            ("--element-bytes", self.payload.element_bytes),
            ("--factors", self.factors.len() as u64),
        ];
        for (flag, found) in positive {
            if found == 0 {
                return Err(TrainError::config(flag, found, "at least 1"));
            }
        }
        if self.num_experts > MOST_EXPERTS {
            let rule = format!("at most {MOST_EXPERTS}");
            return Err(TrainError::config("--experts", self.num_experts, rule));
        }
        let local_experts = self.world().local_experts();
        if self.payload.element_bytes == 2 && local_experts > MOST_BF16_EXPERTS {
            let found = format!("{}, {local_experts} a shard", self.num_experts);
            let rule = format!(
                "at most {MOST_BF16_EXPERTS} a shard, which the bf16 headers of pooled-wave can \
                 number; use more shards or --element-bytes 4"
            );
            return Err(TrainError::config("--experts", found, rule));
        }
        for &factor in &self.factors {
            for rule in sweep::rules(self.waves, factor) {
                rule.validate(self.world())?;
            }
        }
        Ok(())
    }
}

/// Where the documents' concentration comes from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Concentration {
    /// It is this.
    Given(f64),
    /// It is what makes this share of the assignments drop.
    Fit(f64),
}

/// What is drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drawn {
    /// Row lengths, in tokens.
    pub rows: Vec<usize>,
    /// Documents, balancing and seed.
    #[serde(flatten)]
    pub synthetic: Synthetic,
    /// The documents' concentration, or what it is fitted to.
    pub concentration: Concentration,
}

impl Drawn {
    /// Confirms that rows lie evenly on shards and that numbers are in range.
    ///
    /// # Errors
    /// Names the flag, its value and what is needed.
    pub fn validate(&self, exchange: &Exchange) -> Result<(), TrainError> {
        if self.rows.is_empty() {
            return Err(TrainError::config("--rows", "empty", "at least one row length"));
        }
        for &row in &self.rows {
            if !exchange.shape(row).is_even() {
                let rule = format!(
                    "a divisor of a shard's {} tokens, or a multiple whose rows fill all {} shards",
                    exchange.tokens, exchange.shards
                );
                return Err(TrainError::config("--rows", row, rule));
            }
        }
        if self.synthetic.documents == Documents::Fixed(0) {
            return Err(TrainError::config("--documents", 0, "at least 1 token"));
        }
        match self.concentration {
            Concentration::Given(x) if !(x.is_finite() && x > 0.0) => {
                Err(TrainError::config("--concentration", x, "a finite number above 0"))
            }
            Concentration::Fit(x) if !(x > 0.0 && x < 1.0) => {
                Err(TrainError::config("--fit", x, "a share between 0 and 1"))
            }
            _ => Ok(()),
        }
    }
}
