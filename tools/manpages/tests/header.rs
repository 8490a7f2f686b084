//! The pages of the real header: complete, spelled out, and accepted by mandoc.
#![allow(missing_docs)]

use iov_manpages::header::{Header, Item, parse};
use iov_manpages::notes::NOTES;
use iov_manpages::text::{fault_name, words};
use iov_manpages::{Pages, pages};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/c/include/ioverbs.h");

fn header() -> (String, Header) {
    let source = fs::read_to_string(HEADER).expect("the header");
    let header = parse(&source).expect("a header that can be read");
    (source, header)
}

fn all() -> (String, Header, Pages) {
    let (source, header) = header();
    let pages = pages(&header, "2026-01-31").expect("pages");
    (source, header, pages)
}

/// The functions of the header by another way than the parser's: the word before the first `(` of an `IOV_API` line.
fn declared(source: &str) -> Vec<&str> {
    let lines = source.lines().filter_map(|l| l.strip_prefix("IOV_API "));
    lines.filter_map(|l| l.split_once('(')?.0.rsplit([' ', '*']).next()).collect()
}

/// Follows a page that is only a reference to another.
fn resolved<'a>(pages: &'a Pages, name: &str) -> &'a str {
    let page = pages.get(name).unwrap_or_else(|| panic!("{name} is missing"));
    page.strip_prefix(".so ").map_or(page, |to| resolved(pages, to.trim()))
}

#[test]
fn every_function_has_a_page_that_names_and_declares_it() {
    let (source, _, pages) = all();
    let declared = declared(&source);
    assert!(declared.len() > 90, "{}", declared.len());
    for function in declared {
        let page = resolved(&pages, &format!("man3/{function}.3"));
        let name = page.split(".SH SYNOPSIS").next().unwrap_or("");
        assert!(words(name).iter().any(|(_, w)| *w == function), "NAME of {function}");
        assert!(page.contains(&format!("{function}(\\fP")), "SYNOPSIS of {function}");
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "RETURN VALUE", "ERRORS", "SEE ALSO"] {
            assert!(page.contains(&format!(".SH {section}\n")), "{section} of {function}");
        }
        assert!(page.contains(".SH BLOCKING\n") || function == "iov_backend_ops_v1", "BLOCKING of {function}");
    }
}

#[test]
fn every_struct_and_constant_has_a_place() {
    let (source, header, pages) = all();
    for item in header.items() {
        if let Item::Struct(s) = item {
            assert!(resolved(&pages, &format!("man3/{}.3", s.name)).contains(&s.name), "{}", s.name);
        }
    }
    let structs = source.lines().filter(|l| l.starts_with("typedef struct") && l.contains('{')).count();
    assert_eq!(header.items().filter(|i| matches!(i, Item::Struct(_))).count(), structs);
    let listed = pages["man3/iov_constants.3"].clone() + &pages["man3/iov_error.3"];
    let helpers = ["IOV_API", "IOV_INIT_", "IOV_E", "IOV_E2BIG", "IOV_EFBIG"];
    for (_, word) in words(&source) {
        let constant = word.starts_with("IOV_") && !word.ends_with('_') && !word.ends_with("_INIT");
        assert!(!constant || helpers.contains(&word) || listed.contains(word), "{word} is in no list");
    }
}

#[test]
fn nothing_is_left_unexpanded() {
    let (_, header, pages) = all();
    for (file, page) in &pages {
        for left in ["/**", "[op]", "[call]", "[local]", "`", "@brief", "@file", "\n\n\n", " \n"] {
            assert!(!page.contains(left), "{file} contains {left:?}");
        }
        assert!(page.is_ascii(), "{file}");
        for (at, word) in words(page) {
            let bare = !word.starts_with("IOV_E") && fault_name(&header, word).is_some();
            assert!(!bare, "{file}: {word} without IOV_E: …{}…", &page[at.saturating_sub(30)..at + word.len()]);
        }
    }
}

#[test]
fn references_lead_to_pages() {
    let (_, _, pages) = all();
    for (file, page) in &pages {
        for line in page.lines().filter_map(|l| l.strip_prefix(".BR ")) {
            let Some((name, section)) = line.split_once(" (") else { continue };
            let section = section.trim_end_matches([',', '.', ':', ')']);
            if section == "3" || section == "7" {
                assert!(
                    pages.contains_key(&format!("man{section}/{name}.{section}")),
                    "{file} refers to {name}({section})"
                );
            }
        }
        let styled: Vec<&str> = page.split("\\fP(3)").collect();
        for before in &styled[..styled.len() - 1] {
            let name = before.rsplit("\\fB").next().unwrap_or("");
            assert!(pages.contains_key(&format!("man3/{name}.3")), "{file} refers to {name}(3)");
        }
    }
}

#[test]
fn errors_are_listed_once_with_what_the_header_says() {
    let (_, _, pages) = all();
    let listed = |function: &str| -> Vec<String> {
        let errors = pages[&format!("man3/{function}.3")].split(".SH ERRORS\n").nth(1).unwrap_or("");
        let errors = errors.split(".SH ").next().unwrap_or("");
        errors.lines().filter_map(|l| l.strip_prefix(".B IOV_E")).map(str::to_owned).collect()
    };
    let has = |function: &str, names: &[&str]| {
        let listed: BTreeSet<String> = listed(function).into_iter().collect();
        names.iter().all(|n| listed.contains(*n))
    };
    assert!(has("iov_open", &["NOTFOUND", "UNSUPPORTED", "INVALID", "DENIED", "UNAVAILABLE", "TIMEOUT"]));
    assert!(!has("iov_open", &["BUSY"]), "iov_open appends to no batch");
    assert!(has("iov_punch", &["IMMUTABLE", "FENCED", "FILETOOBIG", "EXHAUSTED", "STALE", "BUSY"]), "as iov_write");
    assert!(has("iov_readv", &["CORRUPT", "LOST"]), "as iov_read");
    assert!(has("iov_wait", &["PARTIAL", "TIMEOUT"]), "by rule 4");
    assert!(has("iov_batch_start", &["REFUSED", "TOOBIG", "BUSY"]));
    assert_eq!(listed("iov_uuid_new"), ["INVALID", "VERSION", "FORKED", "EXHAUSTED", "INTERNAL"]);
    let open = &pages["man3/iov_open.3"];
    assert!(open.contains("Go another way; repeating is useless.\nHere: scheme.\n"), "{open}");
    assert!(!open.contains("IOV_ENOTFOUND, "), "the list of errors is in ERRORS, not in DESCRIPTION");
    assert!(pages["man3/iov_metadata_set_time.3"].starts_with(".so man3/iov_metadata_set_str.3"));
    assert!(pages["man3/iov_allocate.3"].contains("IOV_ALLOCATE_KEEP_SIZE\\fP = 1"));
    assert!(pages["man3/iov_explain.3"].contains("\\fI*needed\\fP is set on \\fBIOV_ETOOBIG\\fP too"));
}

#[test]
fn notes_are_about_functions_of_the_header() {
    let (_, header) = header();
    for note in NOTES {
        assert!(header.group_of(note.function).is_some(), "{}", note.function);
        assert!(note.follows.is_none_or(|f| header.group_of(f).is_some()), "{:?}", note.follows);
    }
    let names: BTreeSet<&str> = NOTES.iter().map(|n| n.function).collect();
    assert_eq!(names.len(), NOTES.len(), "a function has two notes");
}

#[test]
fn the_program_writes_pages_that_mandoc_accepts() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("manpages");
    let stale = folder.join("man3/iov_gone.3");
    fs::create_dir_all(stale.parent().expect("a folder")).expect("make the folder");
    fs::write(&stale, "").expect("write");
    let status = Command::new(env!("CARGO_BIN_EXE_iov-manpages")).args([HEADER.as_ref(), folder.as_os_str()]).status();
    assert!(status.expect("run the program").success());
    assert!(!stale.exists(), "pages of an earlier header are removed");
    let files: Vec<PathBuf> = ["man3", "man7"].iter().flat_map(|s| list(&folder.join(s))).collect();
    assert_eq!(files.len(), all().2.len());
    match Command::new("mandoc").args(["-T", "lint", "-W", "error"]).args(&files).current_dir(&folder).output() {
        Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout)),
        Err(e) => eprintln!("mandoc cannot be run ({e}): the pages were not checked by it"),
    }
}

fn list(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect()
}

#[test]
fn a_bad_header_is_refused_with_a_reason() {
    let (source, _) = header();
    let refused = |from: &str, to: &str| {
        assert!(source.contains(from), "{from}");
        let changed = source.replacen(from, to, 1);
        parse(&changed).and_then(|h| pages(&h, "")).expect_err("should be refused")
    };
    assert!(
        refused("Opens an existing one. NOTFOUND. [call]", "Opens an existing one.").contains("iov_workspace_load")
    );
    assert!(refused("Rule 4. [call]", "Rule 14. [call]").contains("rule 14"));
    assert!(refused("As iov_write. [op]", "As iov_scribble. [op]").contains("iov_scribble"));
    assert!(refused("Not repeated: INVALID", "Not said: INVALID").contains("not repeated"));
    assert!(refused("/** Opens a store.", "/* Opens a store.").contains("iov_open"));
    assert!(parse("int x;\n").is_err());
}
