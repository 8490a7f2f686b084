//! Text to tokens, each with its place.

use iov_types::{Result, Uuid, Value};

use super::{
    ast::Op,
    display::Literal,
    error::at,
    key::{begins_bare, continues_bare},
    number, time,
};

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Token {
    /// A bare key, or a word of the grammar.
    Word(String),
    /// A back-quoted key.
    Quoted(String),
    /// A value, other than those that are words.
    Value(Value),
    Param,
    Op(Op),
    /// `~`
    Like,
    /// `!~`
    NotLike,
    /// `^=`
    Begins,
    /// `(`, `)`, `[`, `]` or `,`.
    Mark(char),
    End,
}

impl Token {
    /// What an error says that it found.
    pub(crate) fn found(&self) -> String {
        match self {
            Token::Word(w) => format!("the word '{w}'"),
            Token::Quoted(k) => format!("the key `{k}`"),
            Token::Value(v) => match v {
                Value::Str(s) if s.chars().count() > 40 => "a long string".to_owned(),
                Value::Bytes(b) if b.len() > 20 => "many bytes".to_owned(),
                v => Literal(v).to_string(),
            },
            Token::Param => "'?'".to_owned(),
            Token::Op(op) => format!("'{}'", op.text()),
            Token::Like => "'~'".to_owned(),
            Token::NotLike => "'!~'".to_owned(),
            Token::Begins => "'^='".to_owned(),
            Token::Mark(c) => format!("'{c}'"),
            Token::End => "the end".to_owned(),
        }
    }
}

/// All tokens with their byte offsets; the last is [`Token::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<(Token, usize)>> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.take_while(char::is_whitespace);
        let start = lexer.at;
        let token = lexer.token()?;
        let done = token == Token::End;
        tokens.push((token, start));
        if done {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn take(&mut self, what: &str) -> bool {
        let found = self.rest().starts_with(what);
        self.at += if found { what.len() } else { 0 };
        found
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn token(&mut self) -> Result<Token> {
        const MARKS: [(&str, Token); 17] = [
            ("==", Token::Op(Op::Eq)),
            ("=", Token::Op(Op::Eq)),
            ("!=", Token::Op(Op::Ne)),
            ("<>", Token::Op(Op::Ne)),
            ("<=", Token::Op(Op::Le)),
            ("<", Token::Op(Op::Lt)),
            (">=", Token::Op(Op::Ge)),
            (">", Token::Op(Op::Gt)),
            ("!~", Token::NotLike),
            ("~", Token::Like),
            ("^=", Token::Begins),
            ("?", Token::Param),
            ("(", Token::Mark('(')),
            (")", Token::Mark(')')),
            ("[", Token::Mark('[')),
            ("]", Token::Mark(']')),
            (",", Token::Mark(',')),
        ];
        let start = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        if let Some((mark, token)) = MARKS.iter().find(|(mark, _)| rest.starts_with(mark)) {
            self.at += mark.len();
            return Ok(token.clone());
        }
        match first {
            '"' | '\'' => Ok(Token::Value(Value::Str(self.quoted(first)?))),
            '`' => Ok(Token::Quoted(self.quoted(first)?)),
            'x' if rest[1..].starts_with(['"', '\'']) => self.bytes(),
            c if begins_bare(c) => {
                let word = self.take_while(continues_bare);
                if word == "uuid" && self.take(":") { self.uuid(start) } else { Ok(Token::Word(word.to_owned())) }
            }
            '0'..='9' | '+' | '-' => {
                let parsed = if time::begins(rest) {
                    time::parse(rest)
                        .map(|(ns, len)| (Value::Time(ns), len))
                        .map_err(|why| format!("a timestamp {why}"))
                } else {
                    number::parse(rest)
                };
                let (value, len) = parsed.map_err(|why| at(self.text, start, why))?;
                self.at += len;
                if self.rest().starts_with(continues_bare) {
                    let more = self.rest().chars().take_while(|c| continues_bare(*c)).take(20).collect::<String>();
                    let value = Literal(&value);
                    return Err(at(self.text, self.at, format!("expected a space after {value}, found '{more}'")));
                }
                Ok(Token::Value(value))
            }
            c => Err(at(self.text, start, unknown(c))),
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let here = self.at;
            let Some(c) = self.rest().chars().next() else {
                return Err(at(
                    self.text,
                    start,
                    format!("expected a closing {quote} for the {quote} here, found the end"),
                ));
            };
            self.at += c.len_utf8();
            match c {
                c if c == quote => return Ok(out),
                '\\' => out.push(self.escape().map_err(|why| at(self.text, here, why))?),
                c => out.push(c),
            }
        }
    }

    fn escape(&mut self) -> std::result::Result<char, String> {
        let Some(c) = self.rest().chars().next() else { return Err("expected a character after '\\'".to_owned()) };
        self.at += c.len_utf8();
        match c {
            '\\' | '"' | '\'' | '`' => Ok(c),
            'n' => Ok('\n'),
            't' => Ok('\t'),
            'r' => Ok('\r'),
            'u' => {
                let open = self.take("{");
                let hex = self.take_while(|c| c.is_ascii_hexdigit());
                let c = if open && self.take("}") && hex.len() <= 6 { u32::from_str_radix(hex, 16).ok() } else { None };
                c.and_then(char::from_u32).ok_or_else(|| "expected a character as in \\u{e9}".to_owned())
            }
            '*' | '?' | '[' | ']' | '-' => Err(format!(
                "unknown escape '\\{c}': for a literal '{c}' in a pattern write '\\\\{c}', a backslash being '\\\\' in a string"
            )),
            c => Err(format!(
                "unknown escape '\\{c}': it is one of \\\\ \\\" \\' \\` \\n \\t \\r \\u{{…}}, and bytes are x\"00ff\""
            )),
        }
    }

    fn bytes(&mut self) -> Result<Token> {
        let start = self.at;
        let wrong = |offset| at(self.text, offset, "expected pairs of hexadecimal digits in quotes, as in x\"00ff\"");
        let quote = if self.text[start + 1..].starts_with('"') { '"' } else { '\'' };
        let body = &self.text[start + 2..];
        let len = body.find(quote).ok_or_else(|| wrong(start))?;
        let digits = body[..len].chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<Vec<u8>>>();
        let digits = digits.filter(|d| d.len() % 2 == 0).ok_or_else(|| wrong(start))?;
        self.at = start + 2 + len + 1;
        Ok(Token::Value(Value::Bytes(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())))
    }

    fn uuid(&mut self, start: usize) -> Result<Token> {
        self.take_while(|c| c.is_ascii_alphanumeric() || c == '-');
        let uuid = Uuid::parse(&self.text[start..self.at]).map_err(|e| at(self.text, start, e.detail()))?;
        Ok(Token::Value(Value::Str(uuid.to_string())))
    }
}

fn unknown(c: char) -> String {
    let hint = match c {
        '&' => ": write 'and'",
        '|' => ": write 'or'",
        '!' => ": write 'not', or one of '!=' and '!~'",
        '^' => ": a prefix is '^='",
        '.' => ": a number begins with a digit, as in 0.5",
        '“' | '”' | '„' | '’' | '‘' => ": strings have plain quotes",
        '$' | '@' | '#' | '%' | '{' | '}' | '/' => ": a key with such characters needs back-quotes",
        _ => "",
    };
    format!("unexpected character {c:?}{hint}")
}
