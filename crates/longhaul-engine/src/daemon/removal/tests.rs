//! Orders that are carried out while nobody listens any more.

use super::*;

#[tokio::test(start_paused = true)]
async fn what_was_done_is_known_also_if_the_client_left_in_the_middle_and_the_rest_is_told_to_end() {
    let (near, far) = tokio::io::duplex(64);
    drop(far);
    let (mut counts, mut writer): (Counts, WriteHalf) = (Counts::default(), Box::new(near));
    let mut orders = RemovalOrders { mover: None, counts: &mut counts, writer: &mut writer };
    let (unheard, mut stop) = Stop::new();
    let work = async move { Ok(stop.stopped().await) };
    let (done, said) = orders.while_it_works(work, &unheard).await;
    assert_eq!(done, Ok(FaultCode::Lost), "what the work has is given");
    assert!(said.is_err(), "and that nobody heard of it");
}

#[test]
fn an_order_about_one_name_twice_is_none_where_each_look_may_take_long() {
    let name = |name: &str| RelPath::new(name).expect("a path");
    assert!(need_sound(&RemovalOrder::Look(vec![name("a"), name("b")])).is_ok());
    let fault = need_sound(&RemovalOrder::Look(vec![name("a"), name("b"), name("a")])).expect_err("twice");
    assert_eq!(fault.code, FaultCode::Protocol);
}
