use super::*;

#[test]
fn structures_are_those_of_the_kernel() {
    assert_eq!((size_of::<Asked>(), size_of::<Event>()), (64, 32));
    let places = [
        std::mem::offset_of!(Asked, rw_flags),
        std::mem::offset_of!(Asked, opcode),
        std::mem::offset_of!(Asked, fd),
        std::mem::offset_of!(Asked, at),
        std::mem::offset_of!(Asked, eventfd),
    ];
    assert_eq!(places, [12, 16, 20, 40, 60]);
}

#[test]
fn events_are_taken_in_turn_and_waits_end() {
    let id = usize::MAX;
    let context = add_context(id, 8);
    let event = |data| Event { data, asked: 0, answer: 1, second: 0 };
    let mut room = [event(0); 4];
    let at_once = || Waits { until: Some(0), signals: std::ptr::null() };
    assert_eq!(get(id, (1, 4), room.as_mut_ptr(), &at_once()), Some(0));
    (1..4).for_each(|data| context.adds(event(data)));
    assert_eq!(get(id, (1, 2), room.as_mut_ptr(), &at_once()), Some(2));
    assert_eq!((room[0].data, room[1].data), (1, 2));
    assert_eq!(get(id, (3, 2), room.as_mut_ptr(), &at_once()), Some(failed(Errno::EINVAL)));
    // Who waits for more than there is gets what comes meanwhile.
    let other = context.clone();
    let adds = seam::spawn("adds", move || {
        seam::sleep(20_000_000);
        other.adds(event(9));
    });
    let forever = Waits { until: None, signals: std::ptr::null() };
    assert_eq!(get(id, (2, 4), room.as_mut_ptr(), &forever), Some(2));
    assert_eq!((room[0].data, room[1].data), (3, 9));
    adds.unwrap().join().unwrap();
    CONTEXTS.lock().as_mut().unwrap().remove(&id);
    assert_eq!(get(id, (1, 4), room.as_mut_ptr(), &forever), None);
}
