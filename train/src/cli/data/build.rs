//! `train data build`.

use std::path::PathBuf;

use clap::Args;
use fulmar_data::{BuildRecipe, BuildSettings, Built};

use crate::error::TrainError;
use crate::plan::grouped;

/// Flags of `data build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// The data recipe (TOML).
    pub recipe: PathBuf,
    /// Folder of the store; it must not be there yet.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Threads that tokenise; one a core when absent.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Text of a part, in MiB: what a kill costs at most.
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    pub part: u64,
    /// Text that is read and not yet in a part, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 32)]
    pub in_flight: u64,
    /// Drop an unfinished build of other sources or settings in the same place.
    #[arg(long)]
    pub fresh: bool,
}

impl BuildArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let (recipe, folder) = BuildRecipe::from_file(&self.recipe)?;
        let tokenizer = recipe.open_tokenizer(&folder)?;
        let settings = BuildSettings {
            part_bytes: self.part.max(1) << 20,
            in_flight_bytes: self.in_flight.max(1) << 20,
        };
        let build = recipe.build(&folder, &tokenizer)?.settings(settings).fresh(self.fresh);
        let built = match self.threads {
            None => build.run(&self.out)?,
            Some(threads) => {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).build();
                let refused = |error| {
                    TrainError::config("--threads", threads, format!("threads to start: {error}"))
                };
                pool.map_err(refused)?.install(|| build.run(&self.out))?
            }
        };
        self.report(&built);
        Ok(())
    }

    fn report(&self, built: &Built) {
        let manifest = built.store.manifest();
        print!("{}", manifest.account());
        if manifest.quarantined > 0 {
            let file = self.out.join(fulmar_data::QUARANTINE_FILE);
            println!("{} left out are listed in {}", grouped(manifest.quarantined), file.display());
        }
        let (cells, out) = (manifest.cells.len(), self.out.display());
        let tokens = grouped(manifest.num_tokens());
        if built.opened {
            println!("{out} was there: {cells} cells, {tokens} tokens");
        } else {
            let (made, old) = (grouped(built.tokenised), grouped(built.taken_over));
            println!(
                "{out}: {cells} cells, {tokens} tokens; {made} documents tokenised, \
                 {old} taken over"
            );
        }
    }
}
