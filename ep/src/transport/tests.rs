use std::sync::Arc;
use std::time::Duration;

use super::*;

const SOON: Duration = Duration::from_millis(300);

fn world<T: Send>(
    ranks: usize,
    body: impl Fn(Group) -> Result<T, TransportError> + Sync,
) -> Result<Vec<T>, WorldError<TransportError>> {
    run_world(ranks, SOON, |transport| body(Group::new(transport)))
}

#[test]
fn all_six_collectives_give_each_rank_what_it_is_due() {
    for ranks in [1, 2, 3, 5] {
        let done = world(ranks, |group| {
            let me = group.rank() as u32;
            let send = Buffer::host((0..ranks as u32).map(|to| 10 * me + to).collect());
            let got = group.run("equal", Collective::AllToAll { send })?;
            assert_eq!(got, (0..ranks as u32).map(|from| 10 * from + me).collect::<Vec<_>>());

            // Rank r sends r + to words to rank `to`.
            let send_words: Vec<usize> = (0..ranks).map(|to| group.rank() + to).collect();
            let send = Buffer::host(vec![me; send_words.iter().sum()]);
            let recv_words = send_words.clone();
            let collective =
                Collective::AllToAllV { send, send_words, recv_words: recv_words.clone() };
            let got = group.run("ragged", collective)?;
            let needed = recv_words.iter().enumerate().flat_map(|(from, n)| vec![from as u32; *n]);
            assert_eq!(got, needed.collect::<Vec<_>>());

            let words: Vec<usize> = (0..ranks).collect();
            let send = Buffer::host(vec![me; group.rank()]);
            let got = group.run("gather", Collective::AllGather { send, words })?;
            assert_eq!(got.len(), ranks * (ranks - 1) / 2);

            let root = ranks - 1;
            let send = Buffer::host(vec![me; 3]);
            let got = group.run("root", Collective::Broadcast { root, send, words: 3 })?;
            assert_eq!(got, [root as u32; 3]);
            group.barrier("end")
        });
        done.expect("no failure");
    }
}

#[test]
fn sums_are_in_the_order_of_ranks_whether_short_or_long() {
    for len in [1, 7, 5000, 20_001] {
        let value = |rank: usize, i: usize| 0.1f32 * (rank * 31 + i % 97) as f32 + 1e6;
        let sums = world(3, |group| {
            group.sum_f32("sum", (0..len).map(|i| value(group.rank(), i)).collect())
        });
        let needed: Vec<f32> = (0..len).map(|i| value(0, i) + value(1, i) + value(2, i)).collect();
        for sums in sums.expect("no failure") {
            assert_eq!(sums, needed);
        }
    }
}

#[test]
fn counts_add_beyond_32_bits_and_a_maximum_does_not_hide_nan() {
    let done = world(2, |group| {
        assert_eq!(group.sum_u64("counts", &[u64::from(u32::MAX), 7])?, [8_589_934_590, 14]);
        assert_eq!(group.sum_f64("loss", &[0.5])?, [1.0]);
        let mine = if group.rank() == 0 { vec![f32::NAN, 2.0] } else { vec![1.0, 3.0] };
        let max = group.max_f32("range", mine)?;
        assert!(max[0].is_nan() && max[1] == 3.0);
        Ok(())
    });
    done.expect("no failure");
}

#[test]
fn groups_have_their_own_order_of_collectives() {
    let done = world(4, |all| {
        let rank = all.rank();
        let pair = all.subgroup(&[rank / 2 * 2, rank / 2 * 2 + 1]);
        if rank < 2 {
            pair.barrier("only the first pair")?;
        }
        let sum = pair.sum_u64("pair", &[rank as u64])?;
        all.barrier("all")?;
        Ok(sum[0])
    });
    assert_eq!(done.expect("no failure"), [1, 1, 5, 5]);
}

#[test]
fn a_rank_that_skips_a_collective_is_an_error_on_every_rank() {
    let errors = std::sync::Mutex::new(Vec::new());
    let failed = world(3, |group| {
        let run = || {
            if group.rank() != 1 {
                group.barrier("dispatch")?;
            }
            group.sum_u64("combine", &[1])
        };
        run().inspect_err(|error| errors.lock().expect("no panic").push(error.to_string()))
    });
    let error = failed.expect_err("ranks in different collectives").to_string();
    assert!(
        error.contains("barrier `dispatch`") && error.contains("all_reduce `combine`"),
        "{error}"
    );
    assert_eq!(errors.into_inner().expect("no panic").len(), 3);
}

#[test]
fn a_silent_rank_is_named_when_the_deadline_has_passed() {
    let failed = world(3, |group| {
        if group.rank() == 2 {
            // Waits for nobody, and comes too late.
            std::thread::sleep(3 * SOON);
        }
        group.barrier("step")
    });
    let failure = failed.expect_err("a rank that does not come").failure;
    let RankFailure::Error(TransportError::Deadline { missing, call, sequence, .. }) = failure
    else {
        panic!("{failure}");
    };
    assert_eq!((missing, call.as_str(), sequence), (vec![2], "barrier `step`", 0));
}

#[test]
fn a_rank_that_ended_is_missed_at_once() {
    let started = std::time::Instant::now();
    let failed = run_world(2, Duration::from_secs(60), |transport| {
        let group = Group::new(transport);
        if group.rank() == 1 { Ok(()) } else { group.barrier("step") }
    });
    let error = failed.expect_err("a rank that left").to_string();
    assert!(error.contains("lost rank 1: it has ended"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_panic_on_one_rank_ends_all_and_is_the_cause() {
    let failed = run_world(3, Duration::from_secs(60), |transport| {
        let group = Group::new(transport);
        assert!(group.rank() != 1, "a broken rank");
        group.barrier("step")
    });
    let error = failed.expect_err("a rank that panicked");
    assert_eq!(error.rank, 1);
    assert!(error.to_string().contains("a broken rank"), "{error}");
}

#[test]
fn what_one_rank_completed_before_it_failed_the_others_complete_too() {
    let seen = std::sync::Mutex::new(None);
    let failed = run_world(2, Duration::from_secs(60), |transport| {
        let group = Group::new(transport);
        let send = Buffer::host(vec![7]);
        let verdict = Collective::AllGather { send, words: vec![1; 2] };
        let pending = group.transport().start("verdict", verdict).expect("started");
        if group.rank() == 1 {
            let learnt = pending.wait().expect("all have come")[0];
            return Err(format!("stopped for {learnt}"));
        }
        // Comes to look when the other has long ended with what it learnt.
        std::thread::sleep(SOON);
        let verdict = pending.wait();
        let next = group.barrier("next step").map_err(|lost| lost.to_string());
        *seen.lock().expect("no panic") = Some((verdict, next));
        Ok(())
    });
    let error = failed.expect_err("rank 1 has stopped").to_string();
    assert_eq!(error, "rank 1: stopped for 7");
    let (verdict, next) = seen.into_inner().expect("no panic").expect("rank 0 looked");
    assert_eq!(verdict, Ok(vec![7, 7]));
    assert!(next.expect_err("nobody comes").contains("lost rank 1: stopped for 7"));
}

#[test]
fn disagreement_names_both_values() {
    let failed =
        world(3, |group| group.agree("recipe digest", if group.rank() == 2 { "b7" } else { "a1" }));
    let error = failed.expect_err("values that differ").to_string();
    assert!(error.contains("`recipe digest`") && error.contains("rank 2 has b7"), "{error}");
}

#[test]
fn disagreement_in_a_subgroup_names_ranks_of_the_world() {
    let failed = world(4, |all| {
        let rank = all.rank();
        let column = all.subgroup(&[rank % 2, rank % 2 + 2]);
        column.agree("weights", if rank == 3 { "b7" } else { "a1" })
    });
    let error = failed.expect_err("values that differ").to_string();
    assert!(error.contains("rank 1 has a1, rank 3 has b7"), "{error}");
}

#[test]
fn a_request_that_does_not_fit_the_group_is_refused() {
    let failed = world(2, |group| {
        let send = Buffer::host(vec![1, 2, 3]);
        group.run("rows", Collective::AllToAll { send }).map(drop)
    });
    let error = failed.expect_err("three words for two ranks").to_string();
    assert!(error.contains("`send` is 3 words, needed a multiple of 2"), "{error}");
    let region = DeviceRegion { address: 64, words: 4, stream: 0 };
    let collective = Collective::AllToAll { send: Buffer::Device(region) };
    let error = Arc::new(Solo).start("rows", collective).expect_err("no device here").to_string();
    assert!(error.contains("needed host memory"), "{error}");
}
