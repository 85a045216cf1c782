//! How documents lie in rows.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::random::Stream;

/// What a stream of lengths is for.
const LENGTHS: u64 = 1;

/// How long documents are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Documents {
    /// One document a row: the longest that a row allows, and the worst case for balance.
    Row,
    /// All of this many tokens.
    Fixed(usize),
    /// Log-normal, as lengths of web pages are.
    LogNormal {
        /// Tokens of the median document.
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
}

impl FromStr for Documents {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let needed = || {
            "needed `row`, a number of tokens, or `lognormal:MEDIAN:SIGMA` with both above 0"
                .to_owned()
        };
        if text == "row" {
            return Ok(Self::Row);
        }
        if let Some((median, sigma)) =
            text.strip_prefix("lognormal:").and_then(|rest| rest.split_once(':'))
        {
            let positive = |text: &str| text.parse::<f64>().ok().filter(|x| *x > 0.0 && *x < 1e12);
            let (median, sigma) = positive(median).zip(positive(sigma)).ok_or_else(needed)?;
            return Ok(Self::LogNormal { median, sigma });
        }
        text.parse().ok().filter(|tokens| *tokens > 0).map(Self::Fixed).ok_or_else(needed)
    }
}

impl fmt::Display for Documents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row => write!(f, "row"),
            Self::Fixed(tokens) => write!(f, "{tokens}"),
            Self::LogNormal { median, sigma } => write!(f, "lognormal:{median}:{sigma}"),
        }
    }
}

impl Serialize for Documents {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Documents {
    /// First tokens of the documents of a batch of `tokens`, in rows of `row_tokens`.
    ///
    /// Every row begins with a document, and the last of a row ends with it.
    pub(super) fn starts(&self, tokens: usize, row_tokens: usize, seed: u64) -> Vec<usize> {
        let mut starts = Vec::new();
        for row in (0..tokens).step_by(row_tokens) {
            let mut stream = Stream::at(seed, &[LENGTHS, row as u64]);
            let mut start = row;
            while start < row + row_tokens {
                starts.push(start);
                start += self.length(row_tokens, &mut stream);
            }
        }
        starts
    }

    fn length(&self, row_tokens: usize, stream: &mut Stream) -> usize {
        match self {
            Self::Row => row_tokens,
            Self::Fixed(tokens) => *tokens,
            Self::LogNormal { median, sigma } => {
                let tokens = median * (sigma * stream.normal()).exp();
                // A cut off at the row is the row's end anyway.
                tokens.clamp(1.0, row_tokens as f64) as usize
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_filled_from_their_first_token() {
        assert_eq!(Documents::Row.starts(12, 4, 0), [0, 4, 8]);
        assert_eq!(Documents::Fixed(3).starts(8, 4, 0), [0, 3, 4, 7]);
        let web = Documents::LogNormal { median: 50.0, sigma: 1.0 };
        let starts = web.starts(4_000, 1_000, 7);
        assert!(starts.windows(2).all(|pair| pair[0] < pair[1]) && starts.len() > 20);
        assert!([0, 1_000, 2_000, 3_000].iter().all(|row| starts.contains(row)));
        assert_eq!(starts, web.starts(4_000, 1_000, 7));
    }

    #[test]
    fn lengths_are_read_as_they_are_written() {
        for text in ["row", "512", "lognormal:600:1.2"] {
            assert_eq!(text.parse::<Documents>().expect("readable").to_string(), text);
        }
        for text in ["", "0", "-3", "rows", "lognormal:600", "lognormal:0:1", "lognormal:5:NaN"] {
            let error = text.parse::<Documents>().expect_err(text);
            assert!(error.contains("needed `row`"), "{text}: {error}");
        }
    }
}
