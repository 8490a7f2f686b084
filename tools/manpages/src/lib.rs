//! Writes the man pages of the C library from the comments of its header.
//!
//! [`header::parse`] reads `ioverbs.h` into a [`header::Header`]; [`pages`] turns that into pages. The header is the only
//! source: what it says once, in its head comment, is spelled out in each page that it applies to.
#![forbid(unsafe_code)]

pub mod function;
pub mod head;
pub mod header;
pub mod notes;
pub mod overview;
pub mod roff;
pub mod text;
pub mod types;

use header::Header;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One file: its path below the folder of man pages, and its text.
pub type Pages = BTreeMap<String, String>;

/// What the title line of every page says.
#[derive(Debug, Clone)]
pub struct Title {
    /// The date of the last change, as `2026-01-31`, or nothing.
    pub date: String,
    /// The version of the library.
    pub version: String,
}

impl Title {
    /// The title line of a page.
    pub fn line(&self, name: &str, section: u8) -> String {
        let manual = if section == 7 { "IOVerbs" } else { "IOVerbs Programmer's Manual" };
        format!(
            ".\\\" SPDX-License-Identifier: Apache-2.0\n.\\\" Made from ioverbs.h; change that.\n\
             .TH {name} {section} \"{}\" \"IOVerbs {}\" \"{manual}\"\n",
            self.date, self.version
        )
    }
}

/// Makes all pages of a header.
///
/// # Errors
/// If the header holds something that has no place in a page, or if two pages would have one name.
pub fn pages(header: &Header, date: &str) -> Result<Pages, String> {
    let title = Title { date: date.to_owned(), version: header.version.clone() };
    let mut out = Pages::new();
    for group in header.functions() {
        let page = function::page(header, group, &title)?;
        add(&mut out, &group.functions[0].name, page)?;
        for other in &group.functions[1..] {
            add(&mut out, &other.name, link(&group.functions[0].name))?;
        }
    }
    for group in types::groups(header) {
        let page = types::page(header, &group, &title);
        add(&mut out, &group[0].name, page)?;
        for other in &group[1..] {
            add(&mut out, &other.name, link(&group[0].name))?;
        }
    }
    add(&mut out, "iov_error", types::errors(header, &title))?;
    add(&mut out, "iov_constants", types::constants(header, &title))?;
    out.insert("man7/ioverbs.7".to_owned(), overview::page(header, &title));
    Ok(out)
}

fn add(out: &mut Pages, name: &str, page: String) -> Result<(), String> {
    match out.insert(format!("man3/{name}.3"), page) {
        None => Ok(()),
        Some(_) => Err(format!("two pages would be called {name}.3")),
    }
}

fn link(to: &str) -> String {
    let mut page = String::new();
    let _ = writeln!(page, ".so man3/{to}.3");
    page
}
