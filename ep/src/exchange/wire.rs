//! Rows as words of a transport.

use std::sync::Arc;

use half::bf16;
use half::slice::HalfFloatSliceExt;

use super::{Payload, Route};
use crate::transport::{Buffer, Collective, Words, or_unwind};

/// Host floats that a peer may read in place.
pub(super) trait Floats: Words + 'static {
    /// The values.
    fn floats(&self) -> &[f32];
}

/// Sends and receives the parts of a route.
pub(super) fn all_to_all(x: impl Floats, width: usize, route: &Route) -> Vec<f32> {
    route.count_sent(width);
    let sizes = |rows: &[usize]| rows.iter().map(|rows| rows * width).collect::<Vec<_>>();
    let (send, recv) = (sizes(&route.send_rows), sizes(&route.recv_rows));
    let collective = Collective::AllToAllV {
        send: encoded(x, &send, route.payload),
        send_words: words(&send, route.payload),
        recv_words: words(&recv, route.payload),
    };
    decoded(or_unwind(route.group.run(route.label.forward, collective)), &recv, route.payload)
}

/// The floats of every member.
pub(super) fn all_gather(x: impl Floats, width: usize, route: &Route) -> Vec<f32> {
    route.count_sent(width);
    let recv: Vec<usize> = route.recv_rows.iter().map(|rows| rows * width).collect();
    let own = recv[route.group.rank()];
    let collective = Collective::AllGather {
        send: encoded(x, &[own], route.payload),
        words: words(&recv, route.payload),
    };
    decoded(or_unwind(route.group.run(route.label.forward, collective)), &recv, route.payload)
}

/// The sum, in the order of members, of what they send here.
pub(super) fn reduce_scatter(x: impl Floats, width: usize, route: &Route) -> Vec<f32> {
    let parts = all_to_all(x, width, route);
    let len = route.recv_rows[0] * width;
    let (mut sum, rest) = (parts[..len].to_vec(), &parts[len..]);
    if len > 0 {
        for part in rest.chunks(len) {
            sum.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
        }
    }
    sum
}

/// Words of parts with so many floats; a part of bf16 ends on a whole word.
fn words(floats: &[usize], payload: Payload) -> Vec<usize> {
    floats.iter().map(|floats| (floats * payload.bytes()).div_ceil(4)).collect()
}

fn encoded(x: impl Floats, parts: &[usize], payload: Payload) -> Buffer {
    if payload == Payload::F32 {
        return Buffer::Host(Arc::new(x));
    }
    let mut rest = x.floats();
    let mut words = Vec::with_capacity(rest.len().div_ceil(2) + parts.len());
    for len in parts {
        let (part, after) = rest.split_at(*len);
        rest = after;
        let mut halves = vec![bf16::ZERO; len.next_multiple_of(2)];
        halves[..*len].convert_from_f32_slice(part);
        let bits: &[u16] = bytemuck::cast_slice(&halves);
        words.extend(
            bits.as_chunks().0.iter().map(|[low, high]| u32::from(*low) | u32::from(*high) << 16),
        );
    }
    Buffer::host(words)
}

fn decoded(words: Vec<u32>, parts: &[usize], payload: Payload) -> Vec<f32> {
    if payload == Payload::F32 {
        return bytemuck::cast_vec(words);
    }
    let mut rest = words.as_slice();
    let mut floats = Vec::with_capacity(parts.iter().sum());
    for len in parts {
        let (part, after) = rest.split_at(len.div_ceil(2));
        rest = after;
        let halves = part.iter().flat_map(|word| [*word as u16, (*word >> 16) as u16]);
        floats.extend(halves.take(*len).map(|bits| bf16::from_bits(bits).to_f32()));
    }
    floats
}
