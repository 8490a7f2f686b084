//! Reads the header: not C in general, but the C that `ioverbs.h` is written in.

use crate::head::{self, Head};

/// The header.
#[derive(Debug, Clone, Default)]
pub struct Header {
    /// `IOV_VERSION_MAJOR.MINOR.PATCH`.
    pub version: String,
    /// The comment at its head.
    pub head: Head,
    /// Its parts, each behind a banner.
    pub sections: Vec<Section>,
    /// The values of `iov_error`: name without `IOV_E`, number, comment.
    pub errors: Vec<(String, i32, String)>,
    /// The comment of `iov_error`.
    pub error_comment: String,
}

/// What stands between two banners.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// The words of the banner.
    pub title: String,
    /// A plain comment right behind the banner.
    pub note: String,
    /// The declarations.
    pub items: Vec<Item>,
}

/// A declaration, or several that share a comment.
#[derive(Debug, Clone)]
pub enum Item {
    /// Functions under one comment.
    Functions(Group),
    /// A struct with its fields.
    Struct(Struct),
    /// A struct of which only the name is known: name, comment.
    Opaque(String, String),
    /// A type of function pointers.
    Callback(Struct),
    /// Constants of one enum or macro, with the plain comment before their group, and the one behind them.
    Constants(Vec<(String, String)>, String, String),
    /// The name of an initialiser, `IOV_*_INIT`.
    Init(String),
}

/// Functions under one comment.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// The comment, in one line.
    pub comment: String,
    /// The functions, in the header's order.
    pub functions: Vec<Function>,
}

/// A function.
#[derive(Debug, Clone, Default)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// What it returns, as `const char *`.
    pub returns: String,
    /// Its parameters, as `const void *buf`.
    pub parameters: Vec<String>,
}

/// A type with a body.
#[derive(Debug, Clone, Default)]
pub struct Struct {
    /// Its name.
    pub name: String,
    /// The comment before it; if it has none, the plain comment before its group, or the one behind it.
    pub comment: String,
    /// Whether the comment is its own, not that of a group.
    pub documented: bool,
    /// The declaration as it stands, comments included.
    pub source: String,
}

impl Header {
    /// All groups of functions.
    pub fn functions(&self) -> impl Iterator<Item = &Group> {
        self.items().filter_map(|item| if let Item::Functions(group) = item { Some(group) } else { None })
    }

    /// All declarations.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.sections.iter().flat_map(|s| &s.items)
    }

    /// All constants, with their values.
    pub fn constants(&self) -> impl Iterator<Item = &(String, String)> {
        self.items().filter_map(|item| if let Item::Constants(list, ..) = item { Some(list) } else { None }).flatten()
    }

    /// The part that declares a function.
    pub fn section_of(&self, function: &str) -> Option<&Section> {
        self.sections.iter().find(|s| {
            s.items
                .iter()
                .any(|item| matches!(item, Item::Functions(g) if g.functions.iter().any(|f| f.name == function)))
        })
    }

    /// The group that declares a function.
    pub fn group_of(&self, function: &str) -> Option<&Group> {
        self.functions().find(|g| g.functions.iter().any(|f| f.name == function))
    }

    /// Whether a struct of this name has a body here, and so a page.
    pub fn has_struct(&self, name: &str) -> bool {
        self.items().any(|item| matches!(item, Item::Struct(s) if s.name == name))
    }
}

/// Reads a header.
///
/// # Errors
/// If a declaration cannot be read; the text says which.
pub fn parse(source: &str) -> Result<Header, String> {
    let mut reader = Reader { rest: source, ..Reader::default() };
    reader.run()?;
    let mut header = reader.out;
    header.version = ["MAJOR", "MINOR", "PATCH"]
        .map(|part| {
            let line = source.lines().find_map(|l| l.strip_prefix(&format!("#define IOV_VERSION_{part} ")));
            line.map(|l| l.trim().to_owned()).unwrap_or_default()
        })
        .join(".");
    match (header.sections.is_empty(), header.errors.is_empty(), header.head.rules.is_empty()) {
        (false, false, false) => Ok(header),
        _ => Err("the header has no banners, no iov_error, or no rules in its head comment".into()),
    }
}

#[derive(Default)]
struct Reader<'a> {
    rest: &'a str,
    out: Header,
    doc: String,
    plain: String,
    at_banner: bool,
}

impl<'a> Reader<'a> {
    fn run(&mut self) -> Result<(), String> {
        loop {
            let blank_line = self.rest.starts_with("\n\n");
            self.rest = self.rest.trim_start();
            if blank_line && self.at_banner && !self.plain.is_empty() {
                let note = std::mem::take(&mut self.plain);
                self.section().note = note;
            }
            if blank_line {
                self.plain.clear();
            }
            if self.rest.is_empty() {
                return Ok(());
            } else if self.rest.starts_with("/*") {
                self.comment()?;
            } else if self.rest.starts_with('#') {
                self.preprocessor();
            } else if self.rest.starts_with("IOV_API ") {
                self.function()?;
            } else if self.rest.starts_with("typedef ") || self.rest.starts_with("enum ") {
                self.declaration()?;
            } else {
                self.line(); // C++: template, extern "C", braces
            }
        }
    }

    fn section(&mut self) -> &mut Section {
        if self.out.sections.is_empty() {
            self.out.sections.push(Section::default());
        }
        self.out.sections.last_mut().expect("just made sure")
    }

    fn push(&mut self, item: Item) {
        self.at_banner = false;
        self.section().items.push(item);
    }

    fn line(&mut self) -> &'a str {
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        line
    }

    fn comment(&mut self) -> Result<(), String> {
        let end = self.rest.find("*/").ok_or("a comment has no end")? + 2;
        let raw = &self.rest[..end];
        self.rest = &self.rest[end..];
        if let Some(title) = raw.strip_prefix("/* ---- ") {
            let title = title.trim_end_matches(['*', '/', ' ', '-']).to_owned();
            self.out.sections.push(Section { title, ..Section::default() });
            self.at_banner = true;
        } else if raw.contains("@file") {
            self.out.head = head::parse(raw)?;
        } else if raw.starts_with("/**") {
            self.doc = comment_text(raw);
        } else {
            self.plain = comment_text(raw);
        }
        Ok(())
    }

    fn preprocessor(&mut self) {
        let mut line = self.line();
        let constant = line.strip_prefix("#define IOV_").and_then(|l| l.split_once(' '));
        if let Some((name, value)) = constant.filter(|(name, _)| !name.contains('(') && !name.ends_with('_')) {
            let (value, comment) = value.split_once("/**<").unwrap_or((value, ""));
            let name = format!("IOV_{name}");
            if name.ends_with("_INIT") {
                self.push(Item::Init(name));
            } else if name != "IOV_API" {
                let constant = (name, value.trim().to_owned());
                self.push(Item::Constants(vec![constant], String::new(), comment_text(comment)));
            }
        }
        while line.ends_with('\\') {
            line = self.line();
        }
    }

    fn function(&mut self) -> Result<(), String> {
        let end = self.rest.find(';').ok_or("a function has no end")?;
        let text = squeeze(&self.rest["IOV_API ".len()..end]);
        self.rest = &self.rest[end + 1..];
        let (left, parameters) = text.split_once('(').ok_or_else(|| format!("no function: {text}"))?;
        let at = left.rfind([' ', '*']).ok_or_else(|| format!("no result: {text}"))? + 1;
        let parameters = parameters.trim_end_matches(')').split(", ").map(str::to_owned).collect();
        let function = Function { name: left[at..].into(), returns: left[..at].trim().into(), parameters };
        if self.doc.is_empty() {
            match self.section().items.last_mut() {
                Some(Item::Functions(group)) => group.functions.push(function),
                _ => return Err(format!("{} has no comment", function.name)),
            }
        } else {
            let comment = std::mem::take(&mut self.doc);
            self.push(Item::Functions(Group { comment, functions: vec![function] }));
        }
        Ok(())
    }

    fn declaration(&mut self) -> Result<(), String> {
        let end = end_of(self.rest).ok_or("a declaration has no end")?;
        let source = self.rest[..end].to_owned();
        self.rest = &self.rest[end..];
        let mut behind = String::new();
        if let Some(after) = self.rest.trim_start_matches(' ').strip_prefix("/*") {
            let end = after.find("*/").ok_or("a comment has no end")?;
            behind = comment_text(&after[..end]);
            self.rest = &after[end + 2..];
        }
        let doc = std::mem::take(&mut self.doc);
        let bare = without_comments(&source);
        let name = bare.trim_end_matches(';').rsplit([' ', '}']).next().unwrap_or("").to_owned();
        if bare.starts_with("typedef enum iov_error") {
            self.out.errors = errors(&source)?;
            self.out.error_comment = doc;
        } else if bare.starts_with("enum") {
            let before = self.plain.clone();
            self.push(Item::Constants(constants(&bare), before, behind));
        } else if let Some(pointer) = bare.split_once("(*").filter(|_| !bare.contains('{')) {
            let name = pointer.1.split(')').next().unwrap_or("").to_owned();
            self.push(Item::Callback(Struct { name, documented: !doc.is_empty(), comment: doc, source }));
        } else if !bare.contains('{') {
            self.push(Item::Opaque(name, behind));
        } else {
            let documented = !doc.is_empty();
            let comment = [doc, self.plain.clone(), behind.clone()].into_iter().find(|c| !c.is_empty());
            let source = if behind.is_empty() { source } else { format!("{source} /**< {behind} */") };
            self.push(Item::Struct(Struct { name, comment: comment.unwrap_or_default(), documented, source }));
        }
        Ok(())
    }
}

/// The position behind the `;` that ends a declaration, braces and comments skipped.
fn end_of(source: &str) -> Option<usize> {
    let (mut depth, mut at) = (0usize, 0);
    while at < source.len() {
        let rest = &source[at..];
        if rest.starts_with("/*") {
            at += rest.find("*/")? + 2;
            continue;
        }
        match rest.chars().next()? {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return Some(at + 1),
            _ => {}
        }
        at += rest.chars().next()?.len_utf8();
    }
    None
}

/// The words of a comment in one line, without its marks.
pub fn comment_text(raw: &str) -> String {
    let inner = raw.trim().trim_start_matches(['/', '*', '<']);
    let inner = inner.strip_suffix("*/").unwrap_or(inner);
    squeeze(&inner.lines().map(|l| l.trim().trim_start_matches("* ")).collect::<Vec<_>>().join(" "))
}

/// Text with every run of white space as one space.
pub fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn without_comments(source: &str) -> String {
    let mut out = String::new();
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, rest)| rest);
    }
    squeeze(&(out + rest))
}

fn constants(bare: &str) -> Vec<(String, String)> {
    let body = bare.split_once('{').map_or("", |(_, b)| b).split('}').next().unwrap_or("");
    let pair = |c: &str| c.split_once('=').map(|(n, v)| (n.trim().to_owned(), v.trim().to_owned()));
    body.split(',').filter_map(pair).collect()
}

/// The lines `IOV_ENAME = number, /**< comment */` of `iov_error`; second names for a number are left out.
fn errors(source: &str) -> Result<Vec<(String, i32, String)>, String> {
    let mut out = Vec::new();
    for line in source.lines().map(str::trim).filter(|l| l.starts_with("IOV_E")) {
        let (code, comment) = line.split_once("/**<").ok_or_else(|| format!("no comment: {line}"))?;
        let (name, number) = code.split_once('=').ok_or_else(|| format!("no number: {line}"))?;
        if let Ok(number) = number.trim().trim_end_matches(',').trim().parse() {
            out.push((name.trim().trim_start_matches("IOV_E").to_owned(), number, comment_text(comment)));
        }
    }
    Ok(out)
}
