use super::*;

#[test]
fn a_long_line_of_a_group_is_read_with_more_room() {
    for group in [false, true] {
        assert_eq!(lookup_in(1, group, "root"), Some(0));
        assert_eq!(lookup_in(1, group, "no such name of anybody"), None);
    }
}
