//! Bits per byte of a suite of one's own: what counts as bytes, what counts nowhere, and that the rows
//! of a forward pass change nothing.
//!
//! ```text
//! cargo run --release --example bits_per_byte                # on a small folder that it writes
//! cargo run --release --example bits_per_byte -- my/texts    # a file or a folder of JSON lines a tag
//! cargo test --example bits_per_byte
//! ```

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use clap::Parser;
use fulmar::data::{Batch, DocumentMarks, Tokenizer};
use fulmar::ep::transport::Group;
use fulmar::eval::{DocumentSum, EvalReport, ModelScorer, Suite, SuiteConfig, score};
use fulmar::prelude::*;
use fulmar::train::device;

/// Documents that are listed, at most.
const SHOWN: usize = 12;

/// Scores a suite with a small model without training, at several batch sizes.
#[derive(Parser)]
#[command(after_help = "Example: cargo run --release --example bits_per_byte -- my/texts")]
struct Args {
    /// A folder with a file (`.jsonl`, `.jsonl.zst`, `.parquet`) or a folder a tag; without one, a
    /// small folder is written and read.
    folder: Option<PathBuf>,
    /// Rows of a forward pass, one evaluation each.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [1, 7, 64])]
    batch_rows: Vec<usize>,
    /// Where the store of the texts is cached.
    #[arg(long, value_name = "DIR", default_value = "runs/cache")]
    cache: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let folder = match args.folder {
        Some(folder) => folder,
        None => write_folder(Path::new("runs/bits_per_byte"))?,
    };
    let scored = Scored::new(&folder, &args.cache)?;
    let sums = scored.sums(args.batch_rows.first().copied().unwrap_or(1))?;
    let report = EvalReport::new(&scored.suite.rows, &sums);
    print_documents(&scored.suite, &sums);
    print_tags(&report);
    for batch_rows in args.batch_rows {
        let again = scored.report(batch_rows)?;
        let same = if again == report { "the same figures" } else { "OTHER FIGURES" };
        let bits = again.total().bits_per_byte();
        println!("{batch_rows:>4} rows a forward pass: {bits:.15} bits per byte, {same}");
    }
    Ok(())
}

/// A suite and a small model that scores it.
struct Scored {
    suite: Suite,
    model: Transformer,
    device: Device,
    dispatcher: Local,
}

impl Scored {
    fn new(folder: &Path, cache: &Path) -> Result<Self, Box<dyn Error>> {
        // Two layers of the miniature, so that this takes seconds; the weights are the first ones.
        let mini = Preset::MiniD48.config();
        let config = ModelConfig { num_layers: 2, max_seq_len: 64, sliding_window: 32, ..mini };
        let device = device::open(DeviceChoice::Cpu)?.device;
        let model = Transformer::new(&config, 0, &device)?;
        let tokenizer = Tokenizer::shipped()?;
        let wanted = SuiteConfig::of_folder("mine", folder);
        let marks = DocumentMarks::default();
        let suite = Suite::open(&wanted, &tokenizer, marks, cache, config.max_seq_len)?;
        Ok(Self { suite, model, device, dispatcher: Local::new(config.num_experts) })
    }

    /// What was scored of each document, with so many rows in a forward pass.
    fn sums(&self, batch_rows: usize) -> Result<Vec<DocumentSum>, Box<dyn Error>> {
        let scorer = ModelScorer::new(&self.model, &self.dispatcher, &self.device);
        let nats = |batch: &Batch| scorer.nats(batch);
        Ok(score(&self.suite.rows, batch_rows, 0, &Group::solo(), nats)?)
    }

    fn report(&self, batch_rows: usize) -> Result<EvalReport, Box<dyn Error>> {
        Ok(EvalReport::new(&self.suite.rows, &self.sums(batch_rows)?))
    }
}

fn print_documents(suite: &Suite, sums: &[DocumentSum]) {
    println!("{:<12}{:<12}{:>8}{:>8}{:>14}", "tag", "document", "bytes", "tokens", "nats");
    for (document, sum) in suite.rows.documents().iter().zip(sums).take(SHOWN) {
        let (tag, id, bytes) = (&document.domain, &document.id, document.source_bytes);
        println!("{tag:<12}{id:<12}{bytes:>8}{:>8}{:>14.4}", sum.tokens, sum.nats);
    }
    if let Some(more) = sums.len().checked_sub(SHOWN + 1) {
        println!("and {} more", more + 1);
    }
    let (empty, rejected) = suite.left_out();
    println!("besides {empty} without a character, and {rejected} that are no text\n");
}

/// Bits over bytes of each tag; their mean, and bits of all over bytes of all.
fn print_tags(report: &EvalReport) {
    for (tag, tally) in &report.domains {
        println!("{tag:<12}{:>10.6} bits per byte of {} bytes", tally.bits_per_byte(), tally.bytes);
    }
    println!("{:<12}{:>10.6}", "macro", report.macro_bits_per_byte());
    println!("{:<12}{:>10.6}\n", "micro", report.total().bits_per_byte());
}

/// A tag of texts with one character of two bytes, with none and with 10,000, and a line that is not
/// UTF-8; and a tag of plain sentences.
fn write_folder(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let line = |id: &str, text: &str| format!("{{\"id\":\"{id}\",\"text\":\"{text}\"}}\n");
    let mut odd = Vec::new();
    odd.extend(line("accent", "é").bytes());
    odd.extend(line("empty", "").bytes());
    odd.extend(line("pairs", &"ab".repeat(5000)).bytes());
    odd.extend(b"{\"id\":\"bytes\",\"text\":\"\xff\xfeA\"}\n");
    let plain: String = (0..6)
        .map(|n| {
            line(&format!("gulls-{n}"), &format!("{n} gulls rose over the grey sea. ").repeat(9))
        })
        .collect();
    fs::create_dir_all(folder)?;
    fs::write(folder.join("odd.jsonl"), odd)?;
    fs::write(folder.join("plain.jsonl"), plain)?;
    Ok(folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored() -> Scored {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let texts = write_folder(&folder.path().join("texts")).expect("written");
        Scored::new(&texts, &folder.path().join("cache")).expect("a suite and a model")
    }

    #[test]
    fn bytes_are_those_of_the_text_and_figures_are_the_same_for_any_batch() {
        let scored = scored();
        let one = scored.report(1).expect("scored");
        // "é" has two bytes, "" none and counts as empty, 5,000 times "ab" ten thousand; the bytes
        // FF FE 41 are no text.
        let odd = one.domains["odd"];
        assert_eq!((odd.documents, odd.bytes), (2, 2 + 10_000));
        assert_eq!((one.empty_documents, one.rejected_documents, one.partial_documents), (1, 1, 0));
        let documents = scored.suite.rows.documents();
        let bytes: Vec<_> = documents.iter().map(|d| (&d.id[..], d.source_bytes)).collect();
        assert_eq!(bytes[..2], [("accent", 2), ("pairs", 10_000)]);
        assert_eq!(one.domains["plain"].bytes, 6 * 9 * 32);
        // Several passes of 64 rows, and a last one that is not full, at any of these sizes.
        let rows = scored.suite.rows.num_rows();
        assert!(rows > 64 && !rows.is_multiple_of(7) && !rows.is_multiple_of(64), "{rows} rows");
        for batch_rows in [7, 64] {
            assert_eq!(scored.report(batch_rows).expect("scored"), one, "{batch_rows} rows");
        }
    }

    #[test]
    fn bits_per_byte_is_the_sum_of_bits_over_the_sum_of_bytes() {
        let scored = scored();
        let (sums, report) = (scored.sums(7).expect("scored"), scored.report(7).expect("scored"));
        let bits_of = |tag: Option<&str>| {
            let documents = scored.suite.rows.documents().iter().zip(&sums);
            let of_tag =
                documents.filter(|(document, _)| tag.is_none_or(|tag| tag == document.domain));
            let (nats, bytes) = of_tag.fold((0.0, 0), |(nats, bytes), (document, sum)| {
                (nats + sum.nats, bytes + document.source_bytes)
            });
            nats / (std::f64::consts::LN_2 * bytes as f64)
        };
        let near =
            |found: f64, needed: f64| assert!((found / needed - 1.0).abs() < 1e-12, "{found}");
        near(report.domains["odd"].bits_per_byte(), bits_of(Some("odd")));
        near(report.domains["plain"].bits_per_byte(), bits_of(Some("plain")));
        near(report.total().bits_per_byte(), bits_of(None));
        let mean = 0.5 * (bits_of(Some("odd")) + bits_of(Some("plain")));
        near(report.macro_bits_per_byte(), mean);
        assert!((mean - bits_of(None)).abs() > 0.01, "the two means are told apart");
    }
}
