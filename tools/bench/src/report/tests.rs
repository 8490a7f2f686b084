//! What a figure says of its runs.

use super::{Case, Ceiling};

fn case(values: &[f64], ceiling: &[f64]) -> Case {
    Case {
        name: "file.read.1MiB".into(),
        unit: "GB/s",
        higher_is_better: true,
        values: values.into(),
        ceiling: Some(Ceiling { name: "pread".into(), values: ceiling.into() }),
        counters: vec![("grants".into(), 1)],
    }
}

#[test]
fn the_ratio_is_the_median_of_the_pairs_ratios() {
    // The ratio of the medians would be 9/10.
    assert_eq!(case(&[5.0, 10.0, 9.0], &[10.0, 10.0, 5.0]).ratio(), Some(1.0));
}

#[test]
fn the_ratio_of_times_grows_as_they_get_worse() {
    let case = Case { unit: "us", higher_is_better: false, ..case(&[30.0, 20.0, 40.0], &[10.0, 10.0, 10.0]) };
    assert_eq!(case.ratio(), Some(3.0));
    assert_eq!(case.json()["higher_is_better"], false);
}

#[test]
fn json_and_line_carry_both_sides() {
    let case = case(&[4.0, 6.0, 10.0], &[8.0, 8.0, 10.0]);
    let json = case.json();
    assert_eq!(json["values"], serde_json::json!([4.0, 6.0, 10.0]));
    assert_eq!(json["ceiling"], serde_json::json!({"name": "pread", "value": 8.0, "values": [8.0, 8.0, 10.0]}));
    assert_eq!((&json["ratio"], &json["median"]), (&0.75.into(), &6.0.into()));
    assert_eq!((&json["min"], &json["max"], &json["runs"]), (&4.0.into(), &10.0.into(), &3.into()));
    assert_eq!(json["counters"], serde_json::json!({"grants": 1}));
    let line = case.line();
    assert!(line.contains("6.00 GB/s") && line.ends_with("0.75 [0.50 .. 1.00] of 8.00 (pread)"), "{line}");
}

#[test]
fn a_case_without_a_ceiling_has_no_ratio() {
    let case = Case { ceiling: None, ..case(&[4.0], &[]) };
    assert_eq!((case.ratio(), &case.json()["ceiling"]), (None, &serde_json::Value::Null));
    assert!(case.line().trim_end().ends_with("[4.00 .. 4.00]"));
}

#[test]
fn a_line_says_how_the_bytes_went() {
    let counters = [("bytes_direct", 0), ("bytes_tcp", 4096), ("bytes_written", 4096), ("round_trips", 1)];
    let counters = counters.map(|(name, value)| (name.to_owned(), value)).into();
    let line = Case { counters, ..case(&[4.0], &[8.0]) }.line();
    assert!(line.ends_with("(pread); tcp 4096 bytes"), "{line}");
}
