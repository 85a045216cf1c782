use crate::KernelError;

const OP: &str = "grouped_swiglu";

/// Disjoint ranges of rows, one for each group; a group may be empty, and rows may belong to none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    starts: Vec<usize>,
    lens: Vec<usize>,
    rows: usize,
}

impl Groups {
    /// Groups of `counts` rows that follow each other and cover all rows.
    pub fn from_counts(counts: &[usize]) -> Self {
        let mut rows = 0;
        let starts = counts.iter().map(|count| {
            rows += count;
            rows - count
        });
        Self { starts: starts.collect(), lens: counts.to_vec(), rows }
    }

    /// Group `i` is the `lens[i]` rows from `starts[i]`, of `rows` rows in all.
    ///
    /// # Errors
    /// [`KernelError::Shape`] if the two lists differ in length, [`KernelError::Index`] if a range
    /// ends after `rows`, [`KernelError::Overlap`] if two groups share a row.
    pub fn new(starts: Vec<usize>, lens: Vec<usize>, rows: usize) -> Result<Self, KernelError> {
        if starts.len() != lens.len() {
            return Err(KernelError::Shape {
                op: OP,
                argument: "lens",
                found: vec![lens.len()],
                needed: format!("[{}], one for each of `starts`", starts.len()),
            });
        }
        for (position, (&start, &len)) in starts.iter().zip(&lens).enumerate() {
            let (argument, found, most) = match (start <= rows, start.checked_add(len)) {
                (false, _) => ("starts", start, rows),
                (true, Some(end)) if end <= rows => continue,
                (true, _) => ("lens", len, rows - start),
            };
            let found = i64::try_from(found).unwrap_or(i64::MAX);
            let most = most as i64;
            return Err(KernelError::Index { op: OP, argument, position, found, least: 0, most });
        }
        let groups = Self { starts, lens, rows };
        let order = groups.in_row_order();
        for pair in order.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            if groups.starts[first] + groups.lens[first] > groups.starts[second] {
                return Err(KernelError::Overlap { op: OP, first, second });
            }
        }
        Ok(groups)
    }

    /// The number of groups.
    pub fn num_groups(&self) -> usize {
        self.starts.len()
    }

    /// The number of rows, those of no group included.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The rows of group `index`.
    pub fn range(&self, index: usize) -> std::ops::Range<usize> {
        self.starts[index]..self.starts[index] + self.lens[index]
    }

    /// The groups that have rows, by their first row.
    pub(super) fn in_row_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.lens.len()).filter(|&i| self.lens[i] > 0).collect();
        order.sort_by_key(|&i| self.starts[i]);
        order
    }
}
