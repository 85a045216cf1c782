use burn::tensor::{Tensor, TensorData};
use fulmar_kernels::adam::{AdamOptions, adam_step, adamh_reference, adamh_step, reference};

use crate::compare::{assert_close, assert_repeats, bits, device, tensor};
use crate::golden::optimizer_cases;

type Step = fn(
    Tensor<1>,
    Tensor<1>,
    Tensor<1>,
    Tensor<1>,
    &AdamOptions,
) -> (Tensor<1>, Tensor<1>, Tensor<1>);

const OPTIONS: AdamOptions =
    AdamOptions { lr: 0.02, beta1: 0.9062, beta2: 0.95, eps: 1e-15, step: 3, weight_decay: 0.0 };

fn run(step: Step, len: usize, options: &AdamOptions) -> (Tensor<1>, Tensor<1>, Tensor<1>) {
    let v = tensor([len], 4).abs() * 0.1;
    step(tensor([len], 1), tensor([len], 2), tensor([len], 3) * 0.1, v, options)
}

#[test]
fn adam_and_adamh_match_their_references() {
    for len in [1, 7, 600, 8192, 20_001] {
        let decayed = AdamOptions { weight_decay: 0.02, ..OPTIONS };
        for (step, meaning, options) in [
            (adam_step as Step, reference as Step, decayed),
            (adamh_step as Step, adamh_reference as Step, OPTIONS),
        ] {
            let (w, m, v) = run(step, len, &options);
            let (w_ref, m_ref, v_ref) = run(meaning, len, &options);
            assert_close("w", w, w_ref, 1e-6);
            assert_close("m", m, m_ref, 1e-6);
            assert_close("v", v, v_ref, 1e-6);
        }
    }
}

#[test]
fn adam_and_adamh_match_their_golden_values() {
    for case in optimizer_cases() {
        for (name, step) in [("adam", adam_step as Step), ("adamh", adamh_step as Step)] {
            let expected = case.tensor::<2>(name);
            let shape = expected.dims();
            let mut w = case.tensor::<2>("adam_p0").flatten::<1>(0, 1);
            let (mut m, mut v) = (w.zeros_like(), w.zeros_like());
            for i in 0..case.setting("steps") as u64 {
                let options = AdamOptions {
                    lr: case.setting("lr"),
                    beta1: case.setting("beta1"),
                    beta2: case.setting("beta2"),
                    eps: case.setting("epsilon"),
                    step: i + 1,
                    weight_decay: 0.0,
                };
                let grad = case.tensor::<2>(&format!("adam_g{i}")).flatten::<1>(0, 1);
                (w, m, v) = step(w, grad, m, v, &options);
            }
            assert_close(name, w.reshape(shape), expected, 2e-5);
        }
    }
}

#[test]
fn adam_updates_a_buffer_it_owns_in_place_and_spares_a_shared_one() {
    let data = TensorData::new(vec![0.5f32; 64], [64]);
    let address = data.as_bytes().as_ptr();
    let w = Tensor::<1>::from_data(data, &device());
    let (grad, m, v) = (tensor([64], 2), tensor([64], 3), tensor([64], 4).abs());
    let kept = m.clone();
    let before = bits(m.clone());
    let (w, m, _) = adam_step(w, grad, m, v, &OPTIONS);
    assert_eq!(w.into_data().as_bytes().as_ptr(), address, "in place");
    assert_eq!(bits(kept), before, "the shared moment is unchanged");
    assert_ne!(bits(m), before);
}

#[test]
fn adam_reads_strided_inputs() {
    let strided = |salt| tensor([30, 20], salt).swap_dims(0, 1).slice([3..4, 0..30]).flatten(0, 1);
    for (step, meaning) in
        [(adam_step as Step, reference as Step), (adamh_step as Step, adamh_reference as Step)]
    {
        let inputs = || (strided(1), strided(2), strided(3), strided(4).abs());
        let (w, grad, m, v) = inputs();
        let found = step(w, grad, m, v, &OPTIONS);
        let (w, grad, m, v) = inputs();
        assert_close("w", found.0, meaning(w, grad, m, v, &OPTIONS).0, 1e-6);
    }
}

#[test]
fn adamh_leaves_zero_weights_and_weights_without_a_direction_as_they_are() {
    let zeros = || tensor([100], 1) * 0.0;
    for step in [adamh_step as Step, adamh_reference as Step] {
        let (w, m, _) = step(zeros(), tensor([100], 2), zeros(), zeros(), &OPTIONS);
        assert!(bits(w.abs()).iter().all(|bits| *bits == 0));
        assert!(bits(m).iter().any(|bits| *bits != 0), "moments move all the same");
        let (w, _, _) = step(tensor([100], 1), zeros(), zeros(), zeros(), &OPTIONS);
        assert_eq!(bits(w), bits(tensor([100], 1)));
    }
}

#[test]
fn adam_and_adamh_do_not_depend_on_the_number_of_threads() {
    for step in [adam_step as Step, adamh_step as Step] {
        assert_repeats(|| {
            let (w, m, v) = run(step, 100_003, &OPTIONS);
            [bits(w), bits(m), bits(v)]
        });
    }
}

#[test]
#[should_panic(expected = "adamh_step: `weight_decay` is 0.1, needed 0")]
fn adamh_refuses_weight_decay() {
    run(adamh_step, 3, &AdamOptions { weight_decay: 0.1, ..OPTIONS });
}
