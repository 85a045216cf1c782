//! The buffer of an exchange of equal parts: for each shard a header, then rows.

use std::sync::Arc;

use burn::tensor::Tensor;
use fulmar_kernels::pack::Header;

use crate::error::EpError;
use crate::exchange::{Label, Payload, Route};
use crate::report::WireCounter;
use crate::transport::Group;

/// In the place of the first id: the sender cannot route this layer.
const REFUSAL: i32 = -1;

/// The shape of such a buffer. A header holds a number for each slot, in the rows' own type, so
/// that ids and rows need one exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    parts: usize,
    slots: usize,
    header_rows: usize,
    width: usize,
}

impl Frame {
    /// A frame with a header, of `slots` rows of `width` for each of `parts` shards.
    ///
    /// # Errors
    /// [`EpError::TooManyRows`] if a row's index would not fit into 31 bits.
    pub(super) fn new(parts: usize, slots: u64, width: usize) -> Result<Self, EpError> {
        let header_rows = slots.div_ceil(width.max(1) as u64);
        let found = (slots + header_rows).saturating_mul(parts as u64);
        if i32::try_from(found).is_err() {
            return Err(EpError::TooManyRows { found });
        }
        Ok(Self { parts, slots: slots as usize, header_rows: header_rows as usize, width })
    }

    /// # Errors
    /// [`EpError::TooManyRows`] if an index over the rows of so many frames would not fit into 31
    /// bits.
    pub(super) fn check_number(&self, frames: usize) -> Result<(), EpError> {
        let found = self.rows() as u64 * frames as u64;
        i32::try_from(found).map(drop).map_err(|_| EpError::TooManyRows { found })
    }

    /// The same slots without a header.
    pub(super) fn bare(self) -> Self {
        Self { header_rows: 0, ..self }
    }

    /// Rows for each slot of a part.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Header rows of a part.
    pub(super) fn header_rows(&self) -> usize {
        self.header_rows
    }

    /// Rows of each part, header included, by shard.
    pub(super) fn rows_by_part(&self) -> Vec<usize> {
        vec![self.header_rows + self.slots; self.parts]
    }

    /// Rows of all parts.
    pub(super) fn rows(&self) -> usize {
        self.parts * (self.header_rows + self.slots)
    }

    /// Where the row of a slot lies.
    pub(super) fn row(&self, part: usize, slot: usize) -> usize {
        part * (self.header_rows + self.slots) + self.header_rows + slot
    }

    /// An exchange of such frames among the shards of `group`.
    pub(super) fn route(
        &self,
        group: &Group,
        payload: Payload,
        label: Label,
        wire: &Arc<WireCounter>,
    ) -> Route {
        Route {
            group: group.clone(),
            label,
            payload,
            send_rows: self.rows_by_part(),
            recv_rows: self.rows_by_part(),
            header_rows: self.header_rows,
            wire: wire.clone(),
        }
    }

    /// The header with the given numbers, `[parts, slots]`.
    pub(super) fn header(&self, numbers: &[u32]) -> Header {
        let values = numbers.iter().map(|number| *number as f32);
        self.header_of(values)
    }

    /// A header that tells every shard that this one cannot go on.
    pub(super) fn refusal(&self) -> Header {
        let numbers = (0..self.parts * self.slots)
            .map(|i| if i.is_multiple_of(self.slots) { REFUSAL as f32 } else { 0.0 });
        self.header_of(numbers)
    }

    fn header_of(&self, numbers: impl Iterator<Item = f32>) -> Header {
        let part_len = self.header_rows * self.width;
        let mut values = vec![0.0; self.parts * part_len];
        for (i, number) in numbers.enumerate() {
            values[i / self.slots * part_len + i % self.slots] = number;
        }
        Header { parts: self.parts, rows: self.header_rows, values: Arc::new(values) }
    }

    /// The numbers `[parts, slots]` in the header of what arrived.
    ///
    /// # Errors
    /// [`EpError::PeerNotRouted`] if a shard cannot go on; [`EpError::Header`] if a number is not
    /// whole or above `largest`.
    pub(super) fn read(&self, rows: &Tensor<2>, largest: usize) -> Result<Vec<u32>, EpError> {
        let Self { parts, slots, header_rows, width } = *self;
        let rows: Tensor<3> = rows.clone().inner().reshape([parts, header_rows + slots, width]);
        let header = rows.slice([0..parts, 0..header_rows, 0..width]).into_data();
        let header: Vec<f32> = header.try_to_vec().expect("rows of f32");
        let mut numbers = Vec::with_capacity(parts * slots);
        for shard in 0..parts {
            let of_shard = &header[shard * header_rows * width..][..slots];
            if of_shard.first() == Some(&(REFUSAL as f32)) {
                return Err(EpError::PeerNotRouted { shard });
            }
            for (slot, &found) in of_shard.iter().enumerate() {
                let number = found as u32;
                if number as f32 != found || number as usize > largest {
                    return Err(EpError::Header { shard, slot, found, largest });
                }
                numbers.push(number);
            }
        }
        Ok(numbers)
    }
}
