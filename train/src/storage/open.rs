//! From the recipe's words to a storage.

use std::path::Path;
use std::sync::Arc;

use super::{LocalStorage, Storage};
use crate::checkpoint::RECIPE;
use crate::config::{CheckpointConfig, RunConfig};
use crate::error::TrainError;
use crate::recipe;

/// Addresses that are known, with what they mean.
const SCHEMES: [&str; 6] = ["file", "s3", "s3a", "gs", "az", "abfss"];

/// The storage of a run's checkpoints: what `checkpoint.target` names, or `checkpoints` in the run's
/// folder. Nothing is written or asked for yet.
///
/// A target is a folder, `file:///folder`, or the address of an object store in a build with the
/// feature `cloud`: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`. Credentials,
/// region and endpoint come from the variables that the provider's own tools read (`AWS_...`,
/// `GOOGLE_...`, `AZURE_...`), or from the machine.
///
/// # Errors
/// [`TrainError::Config`] of `checkpoint.target` if it is no such address, if this build lacks the
/// feature, or if the environment does not hold what the address needs.
pub fn open_storage(config: &RunConfig, run_folder: &Path) -> Result<Arc<dyn Storage>, TrainError> {
    match &config.checkpoint.target {
        None => Ok(Arc::new(LocalStorage::new(run_folder.join("checkpoints")))),
        Some(target) => open_target(target),
    }
}

/// The storage of the checkpoints of a run that is there, as its recipe says, and what the recipe says
/// of them; of a folder that is there and has no recipe, that folder.
///
/// # Errors
/// As [`open_storage`], and if there is no such folder or its recipe cannot be read.
pub(crate) fn storage_of_run(
    run: &Path,
) -> Result<(Arc<dyn Storage>, CheckpointConfig), TrainError> {
    let path = run.join(RECIPE);
    if !run.is_dir() {
        let problem = "no such folder, needed one with a `recipe.toml` or with checkpoints";
        return Err(TrainError::checkpoint(run, problem));
    }
    if !path.exists() {
        return Ok((Arc::new(LocalStorage::new(run)), CheckpointConfig::default()));
    }
    let config = recipe::load(&path, &[])?;
    Ok((open_storage(&config, run)?, config.checkpoint))
}

/// A folder or an address.
fn open_target(target: &str) -> Result<Arc<dyn Storage>, TrainError> {
    let refuse =
        |rule: String| TrainError::config("checkpoint.target", format!("{target:?}"), rule);
    if target.is_empty() {
        return Err(refuse("a folder or an address".to_owned()));
    }
    match target.split_once(':') {
        Some((scheme, rest)) if rest.starts_with("//") || SCHEMES.contains(&scheme) => {
            if !SCHEMES.contains(&scheme) {
                let known = SCHEMES.map(|scheme| format!("{scheme}://")).join(", ");
                return Err(refuse(format!("a folder or one of {known}")));
            }
            let url = url::Url::parse(target).map_err(|error| refuse(format!("a URL: {error}")))?;
            if scheme != "file" {
                return in_the_cloud(&url).map_err(refuse);
            }
            let no_path =
                |()| refuse("a whole path after `file://`, as in file:///data".to_owned());
            Ok(Arc::new(LocalStorage::new(url.to_file_path().map_err(no_path)?)))
        }
        _ => Ok(Arc::new(LocalStorage::new(target))),
    }
}

#[cfg(not(feature = "cloud"))]
fn in_the_cloud(_url: &url::Url) -> Result<Arc<dyn Storage>, String> {
    Err("a folder: this build has no `cloud`; add `--features cloud` to cargo".to_owned())
}

#[cfg(feature = "cloud")]
fn in_the_cloud(url: &url::Url) -> Result<Arc<dyn Storage>, String> {
    super::cloud::open(url).map_err(|error| format!("an object store that opens: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_opened_however_it_is_written() {
        let place = |target| open_target(target).expect("a folder").locate("step/file");
        assert_eq!(place("here/too"), "here/too/step/file");
        assert_eq!(place("/data/a:b"), "/data/a:b/step/file");
        assert_eq!(place("file:///data/of%20run"), "/data/of run/step/file");
    }

    #[test]
    fn a_target_that_is_no_address_says_what_is_needed() {
        let problem = |target| open_target(target).expect_err("refused").to_string();
        let said = problem("ftp://host/folder");
        assert!(said.contains("`checkpoint.target` is \"ftp://host/folder\""), "{said}");
        assert!(said.contains("s3://, s3a://, gs://"), "{said}");
        assert!(problem("file://host/folder").contains("file:///data"), "not this machine's");
        assert!(problem("").contains("a folder or an address"));
    }

    #[cfg(not(feature = "cloud"))]
    #[test]
    fn a_build_without_the_feature_names_it() {
        for target in ["s3://bucket/prefix", "gs://bucket", "az://container", "s3:bucket"] {
            let said = open_target(target).expect_err("no such client").to_string();
            assert!(said.contains(target) && said.contains("--features cloud"), "{said}");
        }
    }
}
