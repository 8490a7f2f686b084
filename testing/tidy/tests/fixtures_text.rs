//! The checks of texts, on small trees that are right or wrong on purpose.
#![allow(missing_docs)]

mod fixture;

use fixture::{Fixture, places};
use testing_tidy::{Violation, clauses, expect_none, links, sizes, symbols, words};

#[test]
fn a_long_file_is_reported_and_a_short_one_is_not() {
    let long = "x\n".repeat(501);
    let short = "x\n".repeat(500);
    let fixture = Fixture::new(&[
        ("a/long.rs", &long),
        ("a/short.rs", &short),
        ("a/long.py", &long),
        ("a/long.md", &long),
        ("bindings/c/include/ioverbs.h", &long),
    ]);
    assert_eq!(places(&sizes::check(&fixture.tree())), ["a/long.py:501", "a/long.rs:501"]);
}

#[test]
fn unknown_clauses_are_reported() {
    let page = "| id | clause |\n| --- | --- |\n| C1 | one |\n| T1 read | w r |\n";
    let rust = r#"
        #[test]
        fn c1_holds() { clause("C1"); clause("C99"); clause("nonsense"); }
        #[test]
        fn c9_is_unknown() {}
        #[tokio::test]
        async fn t30_is_unknown() {}
        #[test]
        #[should_panic]
        fn x5_is_unknown() {}
        #[test]
        fn i64_is_a_type() {}
        fn p3_is_no_test() { let s = "fn b9_in_a_string"; }
        // #[test] fn b9_in_a_comment
    "#;
    let python = "def test_c1_holds(): pass\ndef test_m7_unknown(): pass\n";
    let c = "static void test_t1_read(void) {}\nstatic void test_g9_unknown(void) {}\n";
    let files = [("docs/semantics/clauses.md", page), ("a.rs", rust), ("b.py", python), ("c.c", c)];
    let found = clauses::check(&Fixture::new(&files).tree());
    assert_eq!(places(&found), ["a.rs:10", "a.rs:3", "a.rs:3", "a.rs:5", "a.rs:7", "b.py:2", "c.c:2"]);
    let no_page = Fixture::new(&[("a.rs", rust)]);
    assert_eq!(places(&clauses::check(&no_page.tree())), ["docs/semantics/clauses.md:0"]);
}

#[test]
fn dead_links_are_reported() {
    let page = "# The first heading\n\
        [good](docs/there.md) [folder](docs) [here](#the-first-heading) [web](https://example.org/x)\n\
        [gone](docs/gone.md) [heading](docs/there.md#absent) [out](../elsewhere.md) [absolute](/etc/hosts)\n\
        `[code](no.md)` [`name`](docs/there.md#its-own-heading)\n\
        ```\n[fenced](no.md)\n```\n\
        [label]: docs/lost.md\n";
    let there = "# Its own heading\n[up](../README.md)\n";
    let fixture = Fixture::new(&[("README.md", page), ("docs/there.md", there)]);
    let found = links::check(&fixture.tree());
    assert_eq!(places(&found), ["README.md:3", "README.md:3", "README.md:3", "README.md:3", "README.md:8"]);
}

#[test]
fn unfinished_work_is_reported() {
    let mark = concat!("// TO", "DO: later\n");
    let rust =
        concat!("// todo!() in a comment is none\nfn f() { to", "do!() }\nfn g() { unimple", "mented!(\"x\") }\n");
    let harmless = "# mktemp x.XXXXXX, FIXMELODY\n";
    let fixture = Fixture::new(&[("a.c", mark), ("b.rs", rust), ("c.sh", harmless), ("d.md", mark)]);
    assert_eq!(places(&words::unfinished(&fixture.tree())), ["a.c:1", "b.rs:2", "b.rs:3"]);
}

#[test]
fn paths_of_one_machine_are_reported() {
    let (work, tmp) = (concat!("/wo", "rk"), concat!("/t", "mp"));
    let page = format!("see {work}/x\nor `{tmp}/y`\nnot net{work} nor {work}space nor $HOME{tmp}\n");
    let source = format!("let a = \"{work}\";\nlet b = \"{tmp}/y\";\n");
    let fixture = Fixture::new(&[("a.md", &page), ("b.rs", &source), ("data.bin", &page)]);
    let found = words::machine_paths(&fixture.tree());
    assert_eq!(places(&found), ["a.md:1", "a.md:2", "b.rs:1"]);
}

#[test]
fn a_way_around_the_seam_is_reported() {
    let source = "#![allow(clippy::disallowed_methods)]\n";
    let files = [
        "crates/iov-engine/src/drive.rs",
        "crates/iov-engine/src/drive/tests.rs",
        "crates/iov-engine/tests/all.rs",
        "crates/iov-store/src/seam.rs",
        "testing/sim/src/lib.rs",
    ];
    let fixture = Fixture::new(&files.map(|f| (f, source)));
    assert_eq!(places(&words::seam(&fixture.tree())), ["crates/iov-engine/src/drive.rs:1"]);
}

#[test]
fn map_and_header_are_compared() {
    let header = "#define IOV_API\nIOV_API int iov_a(int x);\nIOV_API const char *iov_b(void);\n\
                  IOV_API int iov_c(int x,\n                  int y);\nIOV_API const ops *iov_backend_ops_v1(void);\n";
    let right = "IOVERBS_0.1 {\n  global:\n    iov_a; iov_b;\n    iov_c;\n  local: *;\n};\n";
    let later = "IOVERBS_0.1 {\n  global: iov_a;\n  local: *;\n};\nIOVERBS_0.2 {\n  global:\n    iov_b; iov_c;\n} IOVERBS_0.1;\n";
    let wrong = "IOVERBS_0.1 {\n  global:\n    iov_a;\n    iov_a;\n    iov_z;\n    iov_backend_ops_v1;\n};\n";
    let found = |map: &str| {
        let fixture = Fixture::new(&[(symbols::HEADER, header), (symbols::MAP, map)]);
        places(&symbols::check(&fixture.tree()))
    };
    assert_eq!(found(right), [""; 0]);
    assert_eq!(found(later), [""; 0]);
    let (h, m) = (symbols::HEADER, symbols::MAP);
    let expected =
        [format!("{h}:3"), format!("{h}:4"), format!("{m}:0"), format!("{m}:4"), format!("{m}:5"), format!("{m}:6")];
    assert_eq!(found(wrong), expected);
}

#[test]
#[should_panic(expected = "2 violation(s) of the rule: r\n  a:1: x -> y\n  b: x -> y")]
fn all_violations_are_shown_in_order() {
    expect_none("r", vec![Violation::of("b", "x", "y"), Violation::at("a", 1, "x", "y")]);
}
