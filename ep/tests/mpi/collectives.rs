//! What arrives is what was sent.

use std::error::Error;
use std::time::Duration;

use fulmar_ep::transport::{Buffer, Collective, Group, TransportError, run_world};
use fulmar_ep::world::{Layout, World};

use crate::{Case, Needed, RANKS};

type Done = Result<(), Box<dyn Error>>;

pub(crate) fn cases() -> [Case; 6] {
    let case = |name, body| Case {
        name,
        deadline: Duration::from_secs(30),
        body,
        needed: Needed::Success,
    };
    [
        case("all_six_collectives_give_each_rank_what_it_is_due", six),
        case("sums_have_the_bits_that_threads_give_them", sums),
        case("counts_add_beyond_32_bits_and_a_maximum_does_not_hide_nan", counts),
        case("groups_have_their_own_order_of_collectives", groups),
        case("collectives_may_be_waited_for_in_any_order_or_not_at_all", any_order),
        case("parts_longer_than_a_message_and_labels_longer_than_one_arrive", long),
    ]
}

/// In the groups of the first `n` ranks, for each `n`.
fn six(all: Group) -> Done {
    for ranks in 1..=RANKS {
        let members = if all.rank() < ranks { 0..ranks } else { ranks..RANKS };
        let group = all.subgroup(&members.collect::<Vec<_>>());
        let (ranks, rank) = (group.size(), group.rank());
        let me = rank as u32;
        let send = Buffer::host((0..ranks as u32).map(|to| 10 * me + to).collect());
        let got = group.run("equal", Collective::AllToAll { send })?;
        assert_eq!(got, (0..ranks as u32).map(|from| 10 * from + me).collect::<Vec<_>>());

        // Rank r sends r + to words to rank `to`, so rank 0 none to itself.
        let send_words: Vec<usize> = (0..ranks).map(|to| rank + to).collect();
        let send = Buffer::host(vec![me; send_words.iter().sum()]);
        let recv_words = send_words.clone();
        let collective = Collective::AllToAllV { send, send_words, recv_words: recv_words.clone() };
        let got = group.run("ragged", collective)?;
        let needed = recv_words.iter().enumerate().flat_map(|(from, n)| vec![from as u32; *n]);
        assert_eq!(got, needed.collect::<Vec<_>>());

        let send = Buffer::host(vec![me; rank]);
        let words: Vec<usize> = (0..ranks).collect();
        let got = group.run("gather", Collective::AllGather { send, words })?;
        let needed = (0..ranks).flat_map(|from| vec![from as u32; from]);
        assert_eq!(got, needed.collect::<Vec<_>>());

        let root = ranks - 1;
        let send = Buffer::host(vec![me; 3]);
        let got = group.run("root", Collective::Broadcast { root, send, words: 3 })?;
        assert_eq!(got, [root as u32; 3]);
        group.agree("recipe digest", "a1")?;
        group.barrier("end")?;
    }
    Ok(())
}

fn sums(all: Group) -> Done {
    let value = |rank: usize, i: usize| 0.1f32 * (rank * 31 + i % 97) as f32 + 1e6;
    let sum = |group: &Group, len| {
        group.sum_f32("sum", (0..len).map(|i| value(group.rank(), i)).collect())
    };
    for len in [1, 7, 5000, 20_001] {
        let threads = run_world(RANKS, all.deadline(), |group| sum(&Group::new(group), len))?;
        let needed: Vec<u32> = threads[all.rank()].iter().map(|sum| sum.to_bits()).collect();
        let found: Vec<u32> = sum(&all, len)?.iter().map(|sum| sum.to_bits()).collect();
        assert_eq!(found, needed);
    }
    Ok(())
}

fn counts(all: Group) -> Done {
    assert_eq!(all.sum_u64("counts", &[u64::from(u32::MAX), 7])?, [17_179_869_180, 28]);
    assert_eq!(all.sum_f64("loss", &[0.5])?, [2.0]);
    let mine = if all.rank() == 0 { vec![f32::NAN, 2.0] } else { vec![1.0, 3.0] };
    let max = all.max_f32("range", mine)?;
    assert!(max[0].is_nan() && max[1] == 3.0, "{max:?}");
    Ok(())
}

fn groups(all: Group) -> Done {
    let world = World::new(all.transport(), Layout::new(2, 2))?;
    let rank = all.rank();
    if rank < 2 {
        world.expert.barrier("only the first pair")?;
    }
    let sum = world.expert.sum_u64("pair", &[rank as u64])?;
    assert_eq!(sum, [[1], [5]][rank / 2]);
    let sum = world.replica.sum_u64("pair", &[rank as u64])?;
    assert_eq!(sum, [[2], [4]][rank % 2]);
    all.barrier("all")?;
    Ok(())
}

fn any_order(all: Group) -> Done {
    let start = |round: u32| {
        let send = Buffer::host(vec![round; 100_000]);
        all.transport().start("round", Collective::AllGather { send, words: vec![100_000; RANKS] })
    };
    let mut rounds = (0..6).map(start).collect::<Result<Vec<_>, TransportError>>()?;
    let never = rounds.pop();
    for (round, pending) in rounds.into_iter().enumerate().rev() {
        let got = pending.wait()?;
        assert!(got.len() == RANKS * 100_000 && got.iter().all(|word| *word == round as u32));
    }
    drop(never);
    all.barrier("after")?;
    Ok(())
}

fn long(all: Group) -> Done {
    const LABEL: &str = include_str!("main.rs");
    const WORDS: usize = (1 << 22) + 5;
    let word = |i: usize| (i as u32).wrapping_mul(0x9e37_79b9);
    // Rank 3 hears from rank 0, and from nobody else.
    let (mut send_words, mut recv_words) = (vec![0; RANKS], vec![0; RANKS]);
    if all.rank() == 0 {
        send_words[3] = WORDS;
    }
    if all.rank() == 3 {
        recv_words[0] = WORDS;
    }
    let send = Buffer::host((0..send_words[3]).map(word).collect());
    let got = all.run(LABEL, Collective::AllToAllV { send, send_words, recv_words })?;
    assert!(got.into_iter().eq((0..if all.rank() == 3 { WORDS } else { 0 }).map(word)));
    Ok(())
}
