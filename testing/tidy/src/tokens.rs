//! A lexer for Rust that knows just enough to tell code from comments and strings.

/// A piece of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// An identifier, a keyword or a number.
    Word(String),
    /// The content of a string literal, escapes as they are written.
    Text(String),
    /// Any other character.
    Mark(char),
}

/// A token and the line on which it begins, from 1 on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Where it is.
    pub line: usize,
}

impl Token {
    /// Whether this is the identifier or keyword `word`.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(w) if w == word)
    }

    /// Whether this is the character `mark`.
    pub fn is_mark(&self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }

    /// The identifier, if it is one.
    pub fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(w) => Some(w),
            _ => None,
        }
    }

    /// The content, if it is a string literal.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(t) => Some(t),
            _ => None,
        }
    }
}

/// Whether the tokens from `at` on are these words and marks.
pub fn matches(tokens: &[Token], at: usize, pattern: &[&str]) -> bool {
    pattern.iter().enumerate().all(|(i, want)| {
        tokens.get(at + i).is_some_and(|t| match &t.kind {
            Kind::Word(w) => w == want,
            Kind::Mark(c) => want.len() == c.len_utf8() && want.starts_with(*c),
            Kind::Text(_) => false,
        })
    })
}

/// Splits Rust source into tokens; comments vanish.
pub fn tokens(source: &str) -> Vec<Token> {
    Lexer { chars: source.chars().collect(), at: 0, line: 1, out: Vec::new() }.run()
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    out: Vec<Token>,
}

impl Lexer {
    fn run(mut self) -> Vec<Token> {
        while let Some(c) = self.peek(0) {
            match c {
                '/' if self.peek(1) == Some('/') => self.line_comment(),
                '/' if self.peek(1) == Some('*') => self.block_comment(),
                '"' => self.string(),
                '\'' => self.quote(),
                c if c.is_alphanumeric() || c == '_' => self.word(),
                c => {
                    if !c.is_whitespace() {
                        self.push(Kind::Mark(c), self.line);
                    }
                    self.step();
                }
            }
        }
        self.out
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn step(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        if c == '\n' {
            self.line += 1;
        }
        Some(c)
    }

    fn push(&mut self, kind: Kind, line: usize) {
        self.out.push(Token { kind, line });
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.step();
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0usize;
        while self.peek(0).is_some() {
            if self.peek(0) == Some('/') && self.peek(1) == Some('*') {
                depth += 1;
                self.step();
            } else if self.peek(0) == Some('*') && self.peek(1) == Some('/') {
                depth -= 1;
                self.step();
            }
            self.step();
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        let line = self.line;
        let mut text = String::new();
        self.step();
        while let Some(c) = self.step() {
            match c {
                '"' => break,
                '\\' => {
                    text.push(c);
                    text.extend(self.step());
                }
                c => text.push(c),
            }
        }
        self.push(Kind::Text(text), line);
    }

    /// After `r`: `"…"` or `#"…"#` with any number of `#`. Says whether it was a string.
    fn raw_string(&mut self) -> bool {
        let mut hashes = 0;
        while self.peek(hashes) == Some('#') {
            hashes += 1;
        }
        if self.peek(hashes) != Some('"') {
            return false;
        }
        let line = self.line;
        for _ in 0..=hashes {
            self.step();
        }
        let mut text = String::new();
        while let Some(c) = self.step() {
            if c == '"' && (0..hashes).all(|i| self.peek(i) == Some('#')) {
                break;
            }
            text.push(c);
        }
        for _ in 0..hashes {
            self.step();
        }
        self.push(Kind::Text(text), line);
        true
    }

    /// A character literal is swallowed, a lifetime loses its quote.
    fn quote(&mut self) {
        let literal = self.peek(1) == Some('\\') || self.peek(2) == Some('\'');
        self.step();
        if !literal {
            return;
        }
        while let Some(c) = self.step() {
            match c {
                '\\' => {
                    self.step();
                }
                '\'' => return,
                _ => {}
            }
        }
    }

    fn word(&mut self) {
        let line = self.line;
        let mut word = String::new();
        while let Some(c) = self.peek(0).filter(|c| c.is_alphanumeric() || *c == '_') {
            word.push(c);
            self.step();
        }
        match word.as_str() {
            "r" | "br" | "cr" if self.raw_string() => {}
            "b" | "c" if self.peek(0) == Some('"') => self.string(),
            "b" if self.peek(0) == Some('\'') => self.quote(),
            "r" if self.peek(0) == Some('#') => {
                self.step(); // a raw identifier: r#type
                self.word();
            }
            _ => self.push(Kind::Word(word), line),
        }
    }
}
