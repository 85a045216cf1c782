use std::fmt::Display;
use std::ops::Deref;
use std::sync::Arc;

use super::reduce::{values_of, words_of};
use super::{Buffer, Collective, Element, Reduce, Reduction, Solo, Transport, TransportError};

/// The members of a transport as seen from one of them, with the small collectives that training
/// needs, started and waited for at once.
#[derive(Debug, Clone)]
pub struct Group {
    transport: Arc<dyn Transport>,
    /// World ranks.
    members: Arc<[usize]>,
}

impl Group {
    /// A group of one rank.
    pub fn solo() -> Self {
        Self::new(Arc::new(Solo))
    }

    /// The members of `transport`, which are all ranks of a world.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        let members = (0..transport.size()).collect();
        Self { transport, members }
    }

    /// The transport.
    pub fn transport(&self) -> Arc<dyn Transport> {
        self.transport.clone()
    }

    /// The group of some members; see [`Transport::subgroup`].
    #[must_use]
    pub fn subgroup(&self, members: &[usize]) -> Self {
        let transport = self.transport.subgroup(members);
        let members = members.iter().map(|member| self.members[*member]).collect();
        Self { transport, members }
    }

    /// Runs a collective to its end.
    ///
    /// # Errors
    /// See [`super::Pending::wait`].
    pub fn run(
        &self,
        label: &'static str,
        collective: Collective,
    ) -> Result<Vec<u32>, TransportError> {
        self.transport().start(label, collective)?.wait()
    }

    /// Every member's values, by member.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn gather_u64(
        &self,
        label: &'static str,
        values: &[u64],
    ) -> Result<Vec<Vec<u64>>, TransportError> {
        let send = Buffer::host(words_of(values.iter().copied()));
        let words = vec![send.len(); self.size()];
        let all = values_of(&self.run(label, Collective::AllGather { send, words })?);
        // `chunks` of an empty list would lose the members.
        Ok((0..self.size())
            .map(|member| all[member * values.len()..][..values.len()].to_vec())
            .collect())
    }

    /// Elementwise sums over members.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn sum_u64(&self, label: &'static str, values: &[u64]) -> Result<Vec<u64>, TransportError> {
        let send = Buffer::host(words_of(values.iter().copied()));
        let reduce = Reduce { element: Element::U64, reduction: Reduction::Sum };
        Ok(values_of(&self.run(label, Collective::AllReduce { send, reduce })?))
    }

    /// Elementwise sums over members, in their order.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn sum_f64(&self, label: &'static str, values: &[f64]) -> Result<Vec<f64>, TransportError> {
        let send = Buffer::host(words_of(values.iter().map(|value| value.to_bits())));
        let reduce = Reduce { element: Element::F64, reduction: Reduction::Sum };
        let sums = values_of(&self.run(label, Collective::AllReduce { send, reduce })?);
        Ok(sums.into_iter().map(f64::from_bits).collect())
    }

    /// Elementwise sums over members, in their order.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn sum_f32(
        &self,
        label: &'static str,
        values: Vec<f32>,
    ) -> Result<Vec<f32>, TransportError> {
        self.reduce_f32(label, values, Reduction::Sum)
    }

    /// Elementwise maxima over members; NaN if any member has NaN.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn max_f32(
        &self,
        label: &'static str,
        values: Vec<f32>,
    ) -> Result<Vec<f32>, TransportError> {
        self.reduce_f32(label, values, Reduction::Max)
    }

    fn reduce_f32(
        &self,
        label: &'static str,
        values: Vec<f32>,
        reduction: Reduction,
    ) -> Result<Vec<f32>, TransportError> {
        let send = Buffer::host(bytemuck::cast_vec(values));
        let reduce = Reduce { element: Element::F32, reduction };
        Ok(bytemuck::cast_vec(self.run(label, Collective::AllReduce { send, reduce })?))
    }

    /// Waits until every member has come.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn barrier(&self, label: &'static str) -> Result<(), TransportError> {
        self.run(label, Collective::Barrier).map(drop)
    }

    /// The first member's bytes, on every member; what the others hand in is not looked at.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn bytes_of_first(
        &self,
        label: &'static str,
        bytes: &[u8],
    ) -> Result<Vec<u8>, TransportError> {
        let own = if self.rank() == 0 { bytes } else { &[] };
        Ok(self.gather_bytes(label, own)?.swap_remove(0))
    }

    /// Every member's bytes, by member; they may differ in length.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn gather_bytes(
        &self,
        label: &'static str,
        bytes: &[u8],
    ) -> Result<Vec<Vec<u8>>, TransportError> {
        let lengths = self.gather_u64(label, &[bytes.len() as u64])?;
        let words = lengths.iter().map(|len| (len[0] as usize).div_ceil(4)).collect();
        let quads = bytes.chunks(4).map(|bytes| {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            u32::from_le_bytes(word)
        });
        let send = Buffer::host(quads.collect());
        let all = self.run(label, Collective::AllGather { send, words })?;
        let mut rest = all.as_slice();
        let members = lengths.into_iter().map(|len| {
            let len = len[0] as usize;
            let (own, after) = rest.split_at(len.div_ceil(4));
            rest = after;
            let mut bytes: Vec<u8> = own.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.truncate(len);
            bytes
        });
        Ok(members.collect())
    }

    /// Fails on every member unless all of them have the same `value`.
    ///
    /// # Errors
    /// [`TransportError::Disagree`] naming two members that differ, and as [`run`](Self::run).
    pub fn agree(&self, what: &'static str, value: impl Display) -> Result<(), TransportError> {
        let texts = self.gather_bytes(what, value.to_string().as_bytes())?;
        let text = |member: usize| String::from_utf8_lossy(&texts[member]).into_owned();
        match texts.iter().position(|text| *text != texts[0]) {
            None => Ok(()),
            Some(peer) => Err(TransportError::Disagree {
                what,
                rank: self.members[0],
                found: text(0),
                peer: self.members[peer],
                other: text(peer),
            }),
        }
    }
}

impl Deref for Group {
    type Target = dyn Transport;

    fn deref(&self) -> &Self::Target {
        &*self.transport
    }
}
