//! A cell: the documents of one domain and one quality level.

use std::{fmt, str::FromStr};

use crate::{DataError, Result};

/// Longest domain name, so that a cell's path stays portable.
const MAX_DOMAIN_BYTES: usize = 64;

/// Domain and quality of a document, the unit that a mixture weighs.
///
/// Its name compares case-sensitively: `<domain>/q<quality>`, or `c07q3` for the numbered domain `c07`
/// (`c` and two digits or more), as cells of a clustered corpus are called.
///
/// ```
/// let key: fulmar_data::CellKey = "poetry/q3".parse()?;
/// assert_eq!((key.domain.as_str(), key.quality), ("poetry", 3));
/// assert_eq!(key.to_string(), "poetry/q3");
/// assert_eq!("c07q3".parse::<fulmar_data::CellKey>()?.domain, "c07");
/// # Ok::<(), fulmar_data::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellKey {
    /// Subject or origin; also a folder name.
    pub domain: String,
    /// Quality level; what the number means is up to who assigned it.
    pub quality: u32,
}

impl CellKey {
    /// Whether the domain is a number, and the name the short one.
    fn is_numbered(&self) -> bool {
        let digits = self.domain.strip_prefix('c').unwrap_or_default();
        digits.len() >= 2 && digits.bytes().all(|b| b.is_ascii_digit())
    }

    /// What [`CellKey::has_valid_domain`] asks for, in words.
    pub(crate) const DOMAIN_RULE: &str =
        "1 to 64 ASCII letters, digits, `_`, `-` or `.`, not starting with `.`";

    /// Whether the domain can name a folder on every common file system, beside a store's own files.
    pub(crate) fn has_valid_domain(&self) -> bool {
        let domain = &self.domain;
        let folded = domain.to_ascii_lowercase();
        let is_file = [".json", ".jsonl"].iter().any(|suffix| folded.ends_with(suffix));
        !is_file
            && (1..=MAX_DOMAIN_BYTES).contains(&domain.len())
            && !domain.starts_with('.')
            && domain.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
    }
}

impl fmt::Display for CellKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if self.is_numbered() { "" } else { "/" };
        write!(f, "{}{between}q{}", self.domain, self.quality)
    }
}

impl FromStr for CellKey {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self> {
        name.rsplit_once('q')
            .and_then(|(domain, quality)| {
                let domain = domain.strip_suffix('/').unwrap_or(domain);
                let key = CellKey { domain: domain.to_owned(), quality: quality.parse().ok()? };
                // The round trip refuses spellings such as `q03`, `q+3` and `c07/q3`.
                (key.has_valid_domain() && key.to_string() == name).then_some(key)
            })
            .ok_or_else(|| DataError::CellName { found: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_leave_the_store_is_refused() {
        for name in [
            "../q1",
            "a/b/q1",
            "/q1",
            "Store.json/q1",
            "a/q",
            "a/q-1",
            "a/q03",
            ".a/q1",
            "a",
            "aq1",
            "c07/q3",
        ] {
            let error = name.parse::<CellKey>().expect_err(name);
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
