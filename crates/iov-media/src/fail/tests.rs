use super::parse;

#[test]
fn a_fail_point_is_named_and_counted() {
    for wrong in ["nothing:1", "sync.data", "sync.data:0", "sync.data:n", "sync.data:1:hurt", "sync.data:1:kill:9"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    let plan = parse("sync.data:3:kill").expect("a plan");
    assert_eq!((plan.name, plan.left, plan.kill), ("sync.data", 3, true));
}
