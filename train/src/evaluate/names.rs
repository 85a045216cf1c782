//! Figures of a report by name, in a run's log too.

use fulmar_eval::EvalReport;
use fulmar_eval::suite::Mode;

use crate::telemetry::{Metrics, names};

/// Where metrics of the held-out text stand when nothing can be dropped.
pub const DROPLESS: &str = "eval/heldout";
/// Where they stand when assignments may be dropped as they are in training.
pub const AS_TRAINED: &str = "eval_as_trained/heldout";

/// Where metrics of a suite stand; `heldout` is one.
pub fn place(mode: Mode, suite: &str) -> String {
    match mode {
        Mode::Dropless => format!("eval/{suite}"),
        Mode::AsTrained => format!("eval_as_trained/{suite}"),
    }
}

/// Figures of a report by name, `under` a place.
pub fn metrics(under: &str, report: &EvalReport) -> Metrics {
    let mut metrics = Metrics::new();
    let mut put = |name: &str, value: f64| {
        metrics.insert(format!("{under}/{name}"), names::number(value));
    };
    put("loss", report.total().loss());
    put("macro_loss", report.macro_loss());
    put("bpb", report.total().bits_per_byte());
    put("macro_bpb", report.macro_bits_per_byte());
    for (domain, tally) in &report.domains {
        put(&format!("{domain}/loss"), tally.loss());
        put(&format!("{domain}/bpb"), tally.bits_per_byte());
    }
    for (name, count) in [
        ("partial_documents", report.partial_documents),
        ("empty_documents", report.empty_documents),
        ("rejected_documents", report.rejected_documents),
    ] {
        metrics.insert(format!("{under}/{name}"), count.into());
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_held_out_text_stands_where_any_suite_does() {
        use fulmar_eval::suite::HELDOUT;
        assert_eq!(place(Mode::Dropless, HELDOUT), DROPLESS);
        assert_eq!(place(Mode::AsTrained, HELDOUT), AS_TRAINED);
    }
}
