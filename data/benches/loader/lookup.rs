//! Rows of the hero's mixture, by arithmetic.

use std::hint::black_box;

use fulmar_data::{
    LengthChange, MixturePlan,
    mixture::{MixtureFile, MixtureRun},
};

use super::{best, timed};

const BATCH_ROWS: u64 = 11_264;

/// The step in the middle of the hero run whose first row is beyond 2^31.
const STEP: u64 = 190_650;

pub(super) fn measure(repeats: usize) {
    let run = hero(&[]);
    println!("lookup: {} cells, two phases, no data", run.cells.len());
    let plan = run.plan().expect("a good mixture");
    let rows = STEP * BATCH_ROWS..(STEP + 1) * BATCH_ROWS;
    let batch = |plan: &MixturePlan| {
        timed(|| rows.clone().map(|row| u64::from(black_box(plan.locate(row)).cell)).sum::<u64>()).0
    };
    let per_row = |name: &str, secs: f64, rows: u64| {
        println!("  {name:<44} {:>9.3} us a row", secs / rows as f64 * 1e6);
    };
    per_row("a batch, its blocks known", best(3 * repeats, || batch(&plan)), BATCH_ROWS);
    let cold = best(repeats, || {
        let plan = run.plan().expect("a good mixture");
        batch(&plan)
    });
    per_row("a batch, the plan never asked before", cold, BATCH_ROWS);
    // A prime step, so that no two rows are of one block.
    let scattered = best(repeats, || {
        timed(|| (0..2_000).for_each(|i| _ = black_box(plan.locate(i * 1_299_709)))).0
    });
    per_row("single rows, each of another block", scattered, 2_000);

    let changes = [(44_715, 8_192), (71_544, 16_384), (84_953, 65_536), (88_539, 262_144)];
    for changes in [&changes[..0], &changes[..1], &changes[..]] {
        let run = hero(changes);
        let far = run.batches().expect("good lengths").rows(run.steps).start;
        let secs = best(repeats, || {
            let (secs, read) = timed(|| run.plan().expect("a good mixture").consumed(far));
            assert_eq!(read.iter().sum::<u64>(), far);
            secs
        });
        let name = format!("plan, and rows read by the end, {} lengths", changes.len() + 1);
        println!("  {name:<44} {:>9.1} ms", secs * 1e3);
    }
}

fn hero(changes: &[(u64, usize)]) -> MixtureRun {
    let (mut file, cells) = MixtureFile::harrier().expect("it ships with the project");
    let change = |&(from_block, seq_len)| LengthChange { from_block, seq_len };
    file.lengths = changes.iter().map(change).collect();
    file.run_of_table(&cells).expect("a good mixture")
}
