//! What public runs dropped: the published 535B-A23B run and its forerunners.
//!
//! Left out are routers in their first hundred steps, which have no topics yet, and numbers whose
//! rule or setting is not public, such as the 1.42% of a later try at 262,144 (#9119).

use fulmar_ep::replay::{FixedCells, PooledWave, Ragged, Rule, World};
use serde::Serialize;

use super::synthetic::Shape;

/// Where a number was measured.
#[derive(Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) shape: Shape,
    /// Slices of the tokens that exchange apart from each other: context-parallel neighbours are
    /// in different ones. Shards of `shape` are those of all slices.
    pub(super) slices: usize,
}

/// 64 shards with the hero's 384 experts, in rows of 4,096.
pub(super) const HERO: Setting = setting([64, 384, 8], 65_536, 4_096, 1);
/// The d2048 run of issue 8062: 192 experts, top-4, one rack of 1,024 rows (settings: pull 8156).
const D2048: Setting = setting([64, 192, 4], 65_536, 4_096, 1);
/// The d768 sweep of pull 7981: 64 shards, rows of 8,192; 128 experts, top-4 and 16,384 tokens a
/// shard are what its launcher (`small_scale_abl_launch.py`) says of that grid.
const D768: Setting = setting([64, 128, 4], 16_384, 8_192, 1);
/// Issue 8754: rows of 262,144 on 16 x 4 shards. Each of the four context slices exchanges among
/// 16 shards with 24 experts each.
const LONG: Setting = setting([64, 384, 8], 65_536, 262_144, 4);

/// `world` is shards, experts, experts of a token.
const fn setting(world: [usize; 3], tokens: usize, row_tokens: usize, slices: usize) -> Setting {
    let [shards, num_experts, experts_per_token] = world;
    let world = World { shards, num_experts, experts_per_token };
    Setting { shape: Shape { world, tokens, row_tokens }, slices }
}

/// Waves of pooled-wave in all of them.
pub(super) const WAVES: usize = 3;

/// A rule at one factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum At {
    PooledWave(f64),
    Ragged(f64),
    FixedCells(f64),
}

impl At {
    pub(super) fn factor(self) -> f64 {
        let (Self::PooledWave(factor) | Self::Ragged(factor) | Self::FixedCells(factor)) = self;
        factor
    }

    pub(super) fn rule(self) -> Box<dyn Rule> {
        match self {
            Self::PooledWave(factor) => {
                Box::new(PooledWave { waves: WAVES, sender: factor, receiver: factor })
            }
            Self::Ragged(receiver) => Box::new(Ragged { receiver }),
            Self::FixedCells(receiver) => Box::new(FixedCells { receiver }),
        }
    }
}

/// Whose drops are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// All.
    Total,
    /// The senders'.
    Sender,
    /// The receivers'.
    Receiver,
}

/// A recorded drop rate.
pub(super) struct Case {
    pub(super) what: &'static str,
    pub(super) setting: &'static Setting,
    pub(super) at: At,
    pub(super) part: Part,
    /// Recorded range in percent; from 0 where only a bound was recorded.
    pub(super) percent: (f64, f64),
    pub(super) source: &'static str,
}

/// Numbers are issues and pulls of github.com/marin-community/marin.
pub(super) const CASES: [Case; 12] = [
    // 3.4% in #8506 (issuecomment-5518372559), 3.5% in #8754.
    case("hero live, 11 racks", &HERO, At::PooledWave(1.15), (3.4, 3.5), "#8506, #8754"),
    case("hero step 6,000, one rack", &HERO, At::PooledWave(1.15), (2.67, 2.67), "#8549"),
    // #8754 gives 0.017% without the rule; #8549 gives ragged 0.018% for the same step.
    case("hero step 6,000, one rack", &HERO, At::Ragged(1.15), (0.017, 0.018), "#8549, #8754"),
    case("hero step 54,000, 11 racks", &HERO, At::Ragged(1.15), (0.0, 0.01), "#8506"),
    case("hero shape, steps 250-299", &HERO, At::Ragged(1.15), (0.107, 0.107), "#8317"),
    // From the run's loads of experts, not measured in an exchange.
    case("d2048, step 47,000", &D2048, At::Ragged(1.0), (1.0, 1.7), "#8077"),
    case("d2048, step 47,000", &D2048, At::Ragged(1.1), (0.0, 0.05), "#8077"),
    case("d2048", &D2048, At::FixedCells(1.3), (6.6, 7.1), "#8062, #8077"),
    case("d768, rows of 8,192", &D768, At::FixedCells(1.0), (22.15, 22.15), "#7981"),
    long(Part::Total, (18.05, 18.05)),
    long(Part::Sender, (8.06, 8.06)),
    long(Part::Receiver, (10.08, 10.08)),
];

const fn case(
    what: &'static str,
    setting: &'static Setting,
    at: At,
    percent: (f64, f64),
    source: &'static str,
) -> Case {
    Case { what, setting, at, part: Part::Total, percent, source }
}

const fn long(part: Part, percent: (f64, f64)) -> Case {
    let at = At::PooledWave(1.15);
    Case { what: "hero at 262,144, EP16xCP4", setting: &LONG, at, part, percent, source: "#8754" }
}
