//! Capacity planning: what each exchange rule would drop, hold and send, before a run finds out.
//!
//! Choices of experts, recorded in a run or drawn from documents with topics of their own, go
//! through exact replays of the rules ([`fulmar_ep::replay`]). Drawn choices have one free number,
//! the concentration of the documents' preferences; it is fitted to one drop rate, and everything
//! else is a prediction that stands beside the public record.

mod affinity;
mod balance;
mod documents;
mod draw;
mod random;
mod synthetic;

mod compare;
mod fit;
mod record;
mod recorded;
mod report;
mod settings;
mod sweep;
mod table;

pub use compare::{Comparison, Verdict};
pub use documents::Documents;
pub use fit::Fit;
pub use record::Part;
pub use report::{Block, Origin, Report};
pub use settings::{Concentration, Drawn, Exchange};
pub use sweep::{Gate, Line};
pub use synthetic::{Shape, Synthetic};

use std::path::Path;

use fulmar_ep::replay::Choices;

use crate::error::TrainError;
use sweep::Sweep;

/// Draws choices and replays them at every row length.
///
/// # Errors
/// If a setting breaks a rule, named by its flag, or no concentration reaches the drop rate.
pub fn plan(exchange: &Exchange, drawn: &Drawn) -> Result<Report, TrainError> {
    exchange.validate()?;
    drawn.validate(exchange)?;
    let (concentration, fit) = match drawn.concentration {
        Concentration::Given(given) => (given, None),
        Concentration::Fit(target) => {
            let fit = fit::fit(exchange, drawn, target)?;
            (fit.concentration, Some(fit))
        }
    };
    let mut blocks = Vec::new();
    for &row_tokens in &drawn.rows {
        let shape = exchange.shape(row_tokens);
        let selected = drawn.synthetic.choices(&shape, concentration);
        let mut sweep = Sweep::new(exchange);
        sweep.add(&Choices::new(shape.world, &selected, None)?)?;
        let documents = drawn.synthetic.num_documents(&shape);
        blocks.push(Block { row_tokens, documents, lines: sweep.lines() });
    }
    let record = compare::compare(exchange, &drawn.synthetic, concentration, fit.is_some())?;
    let origin = Origin::Drawn { settings: drawn.clone(), concentration, fit, blocks, record };
    Ok(Report { exchange: exchange.clone(), origin })
}

/// Replays recorded choices; shards, tokens and experts per token are those of the file.
///
/// # Errors
/// If the file cannot be read, a tensor is not as needed, or a setting breaks a rule.
pub fn plan_recorded(exchange: &Exchange, path: &Path) -> Result<Report, TrainError> {
    let recorded = recorded::open(path)?;
    let exchange = recorded.exchange(exchange)?;
    exchange.validate()?;
    let mut sweep = Sweep::new(&exchange);
    for layer in 0..recorded.layers {
        let selected = recorded.layer(layer, exchange.num_experts)?;
        sweep.add(&Choices::new(exchange.world(), &selected, recorded.valid.as_deref())?)?;
    }
    let (file, lines) = (path.display().to_string(), sweep.lines());
    let origin = Origin::Recorded { file, layers: recorded.layers, lines };
    Ok(Report { exchange, origin })
}
