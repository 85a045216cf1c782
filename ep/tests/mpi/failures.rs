//! Whatever goes wrong on one rank ends all, and is told once.

use std::error::Error;
use std::panic::resume_unwind;
use std::thread::sleep;
use std::time::Duration;

use fulmar_ep::transport::{Buffer, Collective, Group};

use crate::{Case, Needed};

type Done = Result<(), Box<dyn Error>>;

/// A deadline that passes.
const SOON: Duration = Duration::from_secs(1);

/// As long as no case may last: for waits that must end by other means than their deadline, and
/// for ranks that are silent.
const FOREVER: Duration = Duration::from_secs(600);

pub(crate) fn cases() -> [Case; 10] {
    let case = |name, deadline, body, errors, says| Case {
        name,
        deadline,
        body,
        needed: Needed::Failure { says, errors },
    };
    [
        case(
            "a_rank_that_skips_a_collective_is_an_error_on_every_rank",
            FOREVER,
            skips,
            4,
            &["barrier `dispatch` with 0 words", "all_reduce `combine` with 2 words"],
        ),
        case(
            "a_part_of_another_length_is_an_error_on_every_rank",
            FOREVER,
            other_length,
            4,
            &["all_reduce `sum` with 3 words", "all_reduce `sum` with 2 words"],
        ),
        case(
            "a_silent_rank_is_named_when_the_deadline_has_passed",
            SOON,
            silent,
            3,
            &["barrier `step` (number 0) waited", "for rank [2], which did not"],
        ),
        case(
            "a_rank_whose_body_does_not_end_is_named_at_the_end",
            SOON,
            endless,
            0,
            &["barrier `end of the run` (number 0) waited", "for rank [2], which did not come"],
        ),
        case(
            "a_rank_that_ended_is_missed_at_once",
            FOREVER,
            ends_early,
            3,
            &["lost rank 1: it has ended"],
        ),
        case(
            "an_error_of_one_rank_reaches_waits_and_ends_of_all_others",
            FOREVER,
            one_error,
            3,
            &["rank 3: the disk is full"],
        ),
        case(
            "what_one_rank_completed_before_it_failed_the_others_complete_too",
            FOREVER,
            completes_and_fails,
            1,
            &["rank 1: stopped for 7"],
        ),
        case(
            "a_panic_on_one_rank_ends_all_and_is_the_cause",
            FOREVER,
            panics,
            3,
            &["rank 1: panicked: a broken rank"],
        ),
        case(
            "a_failed_collective_in_a_backward_pass_is_the_cause",
            SOON,
            unwinds,
            0,
            &["barrier `gradients` (number 0) waited"],
        ),
        case("a_rank_that_leaves_the_process_ends_all", FOREVER, leaves, 0, &[]),
    ]
}

fn skips(all: Group) -> Done {
    if all.rank() != 1 {
        all.barrier("dispatch")?;
    }
    all.sum_u64("combine", &[1])?;
    Ok(())
}

fn other_length(all: Group) -> Done {
    all.sum_f32("sum", vec![1.0; if all.rank() == 3 { 3 } else { 2 }])?;
    Ok(())
}

fn silent(all: Group) -> Done {
    if all.rank() == 2 {
        sleep(FOREVER);
    }
    Ok(all.barrier("step")?)
}

fn endless(all: Group) -> Done {
    if all.rank() == 2 {
        sleep(FOREVER);
    }
    Ok(())
}

fn ends_early(all: Group) -> Done {
    if all.rank() != 1 {
        all.barrier("step")?;
    }
    Ok(())
}

/// Rank 0 has ended and ranks 1 and 2 wait when rank 3 fails.
fn one_error(all: Group) -> Done {
    let rank = all.rank();
    if rank == 0 {
        return Ok(());
    }
    let group = all.transport().subgroup(&[1, 2, 3]);
    if rank == 3 {
        sleep(Duration::from_millis(100));
        return Err("the disk is full".into());
    }
    Ok(Group::new(group).barrier("step")?)
}

/// The others come to look when rank 1 has failed with what it learnt.
fn completes_and_fails(all: Group) -> Done {
    let (send, words) = (Buffer::host(vec![7]), vec![1; all.size()]);
    let verdict = all.transport().start("verdict", Collective::AllGather { send, words })?;
    if all.rank() == 1 {
        return Err(format!("stopped for {}", verdict.wait()?[0]).into());
    }
    sleep(Duration::from_millis(200));
    assert_eq!(verdict.wait()?, [7; 4]);
    Ok(())
}

fn panics(all: Group) -> Done {
    assert!(all.rank() != 1, "a broken rank");
    Ok(all.barrier("step")?)
}

fn unwinds(all: Group) -> Done {
    if all.rank() == 2 {
        sleep(FOREVER);
    }
    all.barrier("gradients").unwrap_or_else(|error| resume_unwind(Box::new(error)));
    Ok(())
}

fn leaves(all: Group) -> Done {
    if all.rank() == 2 {
        std::process::exit(0);
    }
    Ok(all.barrier("step")?)
}
