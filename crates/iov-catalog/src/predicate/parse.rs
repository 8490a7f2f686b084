//! Tokens to a tree, by recursive descent; every error says where, what was expected and what was found.

use iov_types::{Clause, Error, Result, Value, limits};

use super::{
    Key,
    ast::{Condition, Node, Op, Test},
    check,
    error::at,
    glob::Glob,
    key,
    lex::{Token, tokens},
};

/// Deepest nesting of parentheses and `not`: evaluation recurses as deep.
pub(crate) const DEPTH: usize = 64;

pub(crate) fn parse(text: &str, params: &[Value]) -> Result<Node> {
    if text.len() > limits::PREDICATE_BYTES {
        return Err(Error::invalid(format!(
            "the predicate has {} bytes, the limit is {}: search for less at a time",
            text.len(),
            limits::PREDICATE_BYTES
        ))
        .with_clause(Clause::O5));
    }
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0, params, used: 0, depth: 0 };
    if parser.tokens.len() == 1 {
        return Err(at(text, 0, "expected a condition, found the end: to match everything, give no predicate"));
    }
    let node = parser.any()?;
    if *parser.peek() != Token::End {
        return Err(parser.expected("'and', 'or' or the end"));
    }
    if parser.used != params.len() {
        let (given, used) = (params.len(), parser.used);
        return Err(parser.error_here(format!("{given} parameters are given, but there are {used} '?'")));
    }
    Ok(node)
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token, usize)>,
    next: usize,
    params: &'a [Value],
    used: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn here(&self) -> usize {
        self.tokens[self.next].1
    }

    fn take(&mut self, token: &Token) -> bool {
        let found = self.peek() == token;
        self.next += usize::from(found);
        found
    }

    /// The word of the grammar that comes next.
    fn word(&self) -> Option<&'static str> {
        if let Token::Word(w) = self.peek() { key::word(w) } else { None }
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.word() == Some(word);
        self.next += usize::from(found);
        found
    }

    fn error_here(&self, message: impl AsRef<str>) -> Error {
        at(self.text, self.here(), message)
    }

    fn expected(&self, what: &str) -> Error {
        self.error_here(format!("expected {what}, found {}", self.peek().found()))
    }

    fn any(&mut self) -> Result<Node> {
        let mut parts = vec![self.all()?];
        while self.take_word("or") {
            parts.push(self.all()?);
        }
        Ok(Node::or(parts))
    }

    fn all(&mut self) -> Result<Node> {
        let mut parts = vec![self.one()?];
        while self.take_word("and") {
            parts.push(self.one()?);
        }
        Ok(Node::and(parts))
    }

    fn one(&mut self) -> Result<Node> {
        match self.word() {
            Some("not") => {
                self.next += 1;
                let inner = self.deeper(Self::one)?;
                Ok(Node::Not(Box::new(inner)))
            }
            Some("exists") => {
                self.next += 1;
                if !self.take(&Token::Mark('(')) {
                    return Err(self.expected("'(' after 'exists' (a key of that name needs back-quotes)"));
                }
                let key = self.key()?;
                self.close("')' after the key")?;
                Ok(Node::Condition(Condition { key, test: Test::Exists }))
            }
            _ if self.take(&Token::Mark('(')) => {
                let inner = self.deeper(Self::any)?;
                self.close("'and', 'or' or ')'")?;
                Ok(inner)
            }
            _ => self.condition(),
        }
    }

    fn deeper(&mut self, part: fn(&mut Self) -> Result<Node>) -> Result<Node> {
        if self.depth == DEPTH {
            return Err(self.error_here(format!("parentheses and 'not' are nested more than {DEPTH} deep")));
        }
        self.depth += 1;
        let node = part(self)?;
        self.depth -= 1;
        Ok(node)
    }

    fn close(&mut self, what: &str) -> Result<()> {
        if self.take(&Token::Mark(')')) { Ok(()) } else { Err(self.expected(what)) }
    }

    fn key(&mut self) -> Result<Key> {
        let text = match self.peek() {
            Token::Quoted(k) => k.clone(),
            Token::Word(w) => match key::word(w) {
                Some(_) => return Err(self.expected("a key (one of that name needs back-quotes)")),
                None => w.clone(),
            },
            Token::Value(_) | Token::Param => return Err(self.expected("a key: it comes first, then the value")),
            _ => return Err(self.expected("a key, 'exists', 'not' or '('")),
        };
        let key = Key::parse(&text).map_err(|why| self.error_here(why))?;
        self.next += 1;
        Ok(key)
    }

    fn condition(&mut self) -> Result<Node> {
        let key = self.key()?;
        let test = if self.take_word("in") {
            self.membership(&key)?
        } else {
            match self.peek().clone() {
                Token::Op(op) => {
                    self.next += 1;
                    Test::Compare(op, self.value(&key, Some(op), op.text())?)
                }
                Token::Like => self.pattern(&key, false)?,
                Token::NotLike => self.pattern(&key, true)?,
                Token::Begins => {
                    self.next += 1;
                    let place = self.here();
                    let value = self.literal("^=")?;
                    check::prefix(&key, &value).map_err(|why| at(self.text, place, why))?;
                    Test::Prefix(value)
                }
                _ => {
                    let what = format!("a comparison (= != < <= > >= ~ !~ ^= in) after the key {key}");
                    return Err(self.expected(&what));
                }
            }
        };
        Ok(Node::Condition(Condition { key, test }))
    }

    fn pattern(&mut self, key: &Key, negated: bool) -> Result<Test> {
        self.next += 1;
        let place = self.here();
        let value = self.literal(if negated { "!~" } else { "~" })?;
        let glob = check::pattern(key, &value).and_then(Glob::new).map_err(|why| at(self.text, place, why))?;
        Ok(Test::Glob { glob, negated })
    }

    fn membership(&mut self, key: &Key) -> Result<Test> {
        if self.take(&Token::Mark('(')) {
            let mut values = vec![self.value(key, Some(Op::Eq), "(")?];
            while self.take(&Token::Mark(',')) {
                values.push(self.value(key, Some(Op::Eq), ",")?);
            }
            self.close("',' or ')'")?;
            return Ok(Test::In(values));
        }
        if !self.take(&Token::Mark('[')) {
            return Err(self.expected("'(' and a set, or '[' and a range, after 'in'"));
        }
        let from = self.value(key, None, "[")?;
        if !self.take(&Token::Mark(',')) {
            return Err(self.expected("',' and the end of the range"));
        }
        let place = self.here();
        let to = self.value(key, None, ",")?;
        if !check::same_class(&from, &to) {
            return Err(at(self.text, place, "expected a value of the same type as the range's first"));
        }
        let closed = self.take(&Token::Mark(']'));
        if !closed && !self.take(&Token::Mark(')')) {
            return Err(self.expected("']' (the end included) or ')' (the end excluded)"));
        }
        Ok(Test::Range { from, to, closed })
    }

    /// A value that fits the key, in the form in which it is compared. `op` is `None` for the ends of a range.
    fn value(&mut self, key: &Key, op: Option<Op>, after: &str) -> Result<Value> {
        let place = self.here();
        let value = self.literal(after)?;
        check::value(key, op, value).map_err(|why| at(self.text, place, why))
    }

    fn literal(&mut self, after: &str) -> Result<Value> {
        let value = match self.peek() {
            Token::Value(v) => v.clone(),
            Token::Param => {
                let number = self.used + 1;
                let Some(value) = self.params.get(self.used) else {
                    let given = self.params.len();
                    return Err(self.error_here(format!("expected a value for parameter {number}, {given} are given")));
                };
                if matches!(value, Value::F64(f) if f.is_nan()) {
                    return Err(self.error_here(format!("parameter {number} is NaN, which equals nothing")));
                }
                self.used += 1;
                value.clone()
            }
            Token::Word(w) => match key::word(w) {
                Some("true") => Value::Bool(true),
                Some("false") => Value::Bool(false),
                Some("inf") => Value::F64(f64::INFINITY),
                Some("nan") => return Err(self.error_here("NaN equals nothing: no comparison with it can hold")),
                Some("now") => {
                    return Err(self.error_here(
                        "'now' is no value here, a search has no clock: write the time out, as in 2026-01-31T12:00:00Z, \
                         or pass it as a parameter '?'",
                    ));
                }
                _ => {
                    let what = format!("a value after '{after}' (a string needs quotes)");
                    return Err(self.expected(&what));
                }
            },
            _ => return Err(self.expected(&format!("a value after '{after}'"))),
        };
        self.next += 1;
        Ok(value)
    }
}
