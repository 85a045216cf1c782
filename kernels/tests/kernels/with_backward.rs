use std::sync::{Arc, Mutex};

use burn::tensor::{Device, Tensor};
use fulmar_kernels::with_backward::{with_backward, with_backward_after};

use crate::compare::{bits, leaf, tensor};

/// What happened, in order.
type Log = Arc<Mutex<Vec<&'static str>>>;

/// `x`, noting when its gradient passes.
fn noted<const D: usize>(x: Tensor<D>, log: &Log, name: &'static str) -> Tensor<D> {
    let (value, log) = (x.clone().inner(), log.clone());
    with_backward(x, value, move |grad: Tensor<D>| {
        log.lock().expect("a log").push(name);
        Some(grad)
    })
}

#[test]
fn the_value_is_the_callers_and_so_is_the_gradient() {
    let x = leaf::<2>([3, 4], 1);
    let value = tensor::<1>([5], 2);
    let out = with_backward(x.clone(), value.clone(), |grad: Tensor<1>| {
        Some(Tensor::<2>::ones([3, 4], &grad.device()) * grad.sum().reshape([1, 1]))
    });
    assert_eq!(bits(out.clone()), bits(value));
    let grads = (out * 2.0).sum().backward();
    let expected = Tensor::<2>::full([3, 4], 10.0, &Device::flex());
    assert_eq!(bits(x.grad(&grads).expect("dx")), bits(expected));
}

#[test]
fn it_gets_the_sum_over_all_uses_once_and_may_keep_it() {
    let x = leaf::<2>([2, 3], 1);
    let kept = Arc::new(Mutex::new(Vec::new()));
    let slot = kept.clone();
    let y = with_backward(x.clone(), x.clone().inner(), move |grad: Tensor<2>| {
        slot.lock().expect("a slot").push(grad);
        None::<Tensor<2>>
    });
    let grads = (y.clone() * 3.0 + y.clone() * 4.0 + y).sum().backward();
    assert!(x.grad(&grads).is_none());
    let kept = std::mem::take(&mut *kept.lock().expect("a slot"));
    let [grad] = kept.try_into().expect("called once");
    assert_eq!(bits(grad), bits(Tensor::<2>::full([2, 3], 8.0, &Device::flex())));
}

#[test]
fn a_leaf_that_is_used_late_has_its_gradient_before_what_is_older() {
    let order = |placed: bool| {
        let log = Log::default();
        let (x, w) = (leaf::<2>([2, 3], 1), leaf::<2>([3, 3], 2));
        let older = noted(noted(x * 2.0, &log, "oldest"), &log, "older");
        let (value, slot) = (w.clone().inner(), log.clone());
        let note = move |_: Tensor<2>| {
            slot.lock().expect("a log").push("w");
            None::<Tensor<2>>
        };
        let w = match placed {
            true => with_backward_after(w, older.clone(), value, note),
            false => with_backward(w, value, note),
        };
        older.matmul(w).sum().backward();
        log.lock().expect("a log").clone()
    };
    assert_eq!(order(true), ["w", "older", "oldest"]);
    // By its depth alone it comes with the oldest of all.
    assert_eq!(order(false)[0], "older");
}

#[test]
fn it_may_differentiate_a_graph_of_its_own() {
    let x = leaf::<2>([2, 3], 1);
    let value = x.clone().inner();
    let cube = value.clone().powi_scalar(3);
    let out = with_backward(x.clone(), cube, move |grad: Tensor<2>| {
        let again = Tensor::from_inner(value.clone()).require_grad();
        let grads = (again.clone().powi_scalar(3) * Tensor::from_inner(grad)).sum().backward();
        again.grad(&grads)
    });
    let found = x.grad(&(out * 0.5).sum().backward()).expect("dx");
    let needed = x.grad(&(x.clone().powi_scalar(3) * 0.5).sum().backward()).expect("dx");
    assert_eq!(bits(found), bits(needed));
}

#[test]
fn outside_a_graph_nothing_is_called() {
    let x = tensor::<2>([2, 3], 1);
    let never = |_: Tensor<2>| -> Option<Tensor<2>> { panic!("there is no backward pass") };
    let out = with_backward(x.clone(), x.clone(), never);
    assert_eq!(bits(out), bits(x));
    let y = leaf::<2>([2, 3], 1);
    let untracked = Tensor::from_inner(tensor::<2>([2, 3], 1));
    let out = with_backward(untracked.clone(), untracked.inner(), never);
    (out + y).sum().backward();
}
