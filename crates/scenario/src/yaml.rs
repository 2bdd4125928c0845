//! Parses YAML text into a tree of nodes, within limits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};

use crate::error::Problem;
use crate::node::{Entry, Node, Value, display_text};
use crate::origin::{Origin, SourceText, floor};

/// Maximum size of a scenario file: 1 MiB.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// Maximum nesting depth of a scenario.
const MAX_DEPTH: usize = 32;

/// Maximum number of nodes after the expansion of aliases. Long texts count as several.
const NODES_MAX: usize = 100_000;

/// Parses the only document in `source`, from the byte `from` on.
pub(crate) fn parse(source: &Arc<SourceText>, from: usize) -> Result<Node, Problem> {
    let text = source.text.get(from..).unwrap_or("");
    // A byte order mark at the beginning is not content.
    let (from, text) = match text.strip_prefix('\u{feff}') {
        Some(rest) => (from + '\u{feff}'.len_utf8(), rest),
        None => (from, text),
    };
    if text.len() > MAX_BYTES {
        let text = format!("a scenario of {} bytes is too large", text.len());
        return Err(Problem::new(&Origin::new(source, from, from), text)
            .label("begins here")
            .help("at most 1 MiB is read"));
    }
    TreeReader {
        source,
        from,
        text,
        events: Parser::new_from_str(text),
        anchors: HashMap::new(),
        nodes: 0,
    }
    .document()
}

struct TreeReader<'a> {
    source: &'a Arc<SourceText>,
    from: usize,
    text: &'a str,
    events: Parser<'a, granit_parser::StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'a> TreeReader<'a> {
    fn document(mut self) -> Result<Node, Problem> {
        let mut document: Option<Node> = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(..) => {
                    if document.is_some() {
                        let text = "a second document begins here";
                        return Err(Problem::new(&self.origin(span), text)
                            .help("a scenario is one document: remove the `---`"));
                    }
                }
                event => document = Some(self.node(event, span, 0)?),
            }
        }
        let nothing = || Node::null(Origin::new(self.source, self.from, self.from));
        Ok(document.unwrap_or_else(nothing))
    }

    /// Returns the next event that is not a comment.
    fn next(&mut self) -> Result<(Event<'a>, Span), Problem> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                let marker = error.marker();
                let at = marker
                    .byte_offset()
                    .unwrap_or_else(|| byte_of_char(self.text, marker.index()));
                Err(self.syntax_error(&error.info(), at))
            }
            None => Ok((
                Event::StreamEnd,
                Span::empty(granit_parser::Marker::default()),
            )),
        }
    }

    fn syntax_error(&self, message: &str, at: usize) -> Problem {
        let at = at.min(self.text.len());
        let start_of_line = |at| self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let this = start_of_line(floor(self.text, at));
        // A tab that indents this line or the previous one is the cause.
        for start in [this, start_of_line(this.saturating_sub(1))] {
            let line = &self.text[start..];
            let indent = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
            if let Some(tab) = indent.find('\t') {
                let at = self.from + start + tab;
                return Problem::new(
                    &Origin::new(self.source, at, at + 1),
                    "a tab indents this line",
                )
                .label("this is a tab")
                .help("YAML is indented with spaces only");
            }
        }
        let at = self.from + at;
        let text = format!("not valid YAML: {message}");
        Problem::new(&Origin::new(self.source, at, at + 1), text).help(
            "strings with `: `, ` #` or a first character such as `{`, `[`, `*`, `&`, `%` or `@` \
             need quotes",
        )
    }

    fn origin(&self, span: Span) -> Origin {
        let range = span.byte_range().unwrap_or_else(|| {
            byte_of_char(self.text, span.start.index())..byte_of_char(self.text, span.end.index())
        });
        let text = self.text.get(range.clone()).unwrap_or("");
        // A collection in block style ends where the next node begins.
        let end = range.start + text.trim_end().len();
        Origin::new(self.source, self.from + range.start, self.from + end)
    }

    fn count_nodes(&mut self, nodes: usize, origin: &Origin) -> Result<(), Problem> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > NODES_MAX {
            let text = format!("this scenario has more than {NODES_MAX} values");
            return Err(Problem::new(origin, text)
                .help("an alias counts for all the values that it refers to"));
        }
        Ok(())
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Problem> {
        let origin = self.origin(span);
        if depth > MAX_DEPTH {
            let message = format!("this is nested deeper than {MAX_DEPTH} levels");
            return Err(Problem::new(&origin, message));
        }
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count_nodes(1 + text.len() / 64, &origin)?;
                let quoted =
                    style != ScalarStyle::Plain || self.is_text(tag.as_deref(), &origin)?;
                let null = !quoted && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let value = if null {
                    Value::Null
                } else {
                    Value::Scalar {
                        text: text.into_owned(),
                        quoted,
                    }
                };
                (Node { value, origin }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.count_nodes(1, &origin)?;
                self.is_text(tag.as_deref(), &origin)?;
                let (items, end) = self.items(depth)?;
                let origin = self.collection(&origin, end);
                (Node::list(items, origin), anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.count_nodes(1, &origin)?;
                self.is_text(tag.as_deref(), &origin)?;
                let (entries, end) = self.entries(depth)?;
                let origin = self.collection(&origin, end);
                (Node::map(entries, origin), anchor)
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    let text = "this alias refers to a value that contains it";
                    return Err(Problem::new(&origin, text));
                };
                self.count_nodes(node.node_count(), &origin)?;
                (node, 0)
            }
            _ => return Err(Problem::new(&origin, "a value is missing here")),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn collection(&self, start: &Origin, end: Span) -> Origin {
        let end = self.origin(end).end.max(start.end);
        let text = self.source.text.get(start.start..end).unwrap_or("");
        Origin::new(
            self.source,
            start.start,
            start.start + text.trim_end().len(),
        )
    }

    fn items(&mut self, depth: usize) -> Result<(Vec<Node>, Span), Problem> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, span) => return Ok((items, span)),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn entries(&mut self, depth: usize) -> Result<(Vec<Entry>, Span), Problem> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut merged: Vec<Entry> = Vec::new();
        loop {
            let (event, span) = match self.next()? {
                (Event::MappingEnd, span) => {
                    merged.retain(|entry| !seen.contains_key(&entry.key));
                    entries.append(&mut merged);
                    return Ok((entries, span));
                }
                other => other,
            };
            let key = self.node(event, span, depth + 1)?;
            let (event, span) = self.next()?;
            let node = self.node(event, span, depth + 1)?;
            let (key, quoted) = match key {
                Node {
                    value: Value::Scalar { text, quoted },
                    origin,
                } => ((text, origin), quoted),
                other => {
                    let message = format!("a key must be a word, but this is {}", other.describe());
                    return Err(Problem::new(&other.origin, message));
                }
            };
            let (text, origin) = key;
            if text == "<<" && !quoted {
                self.merge(node, &mut merged)?;
                continue;
            }
            if let Some(first) = seen.get(&text) {
                let message = format!("duplicate key `{}`", display_text(&text));
                return Err(Problem::new(&origin, message)
                    .label("and again here")
                    .with_second_position(&entries[*first].key_origin, "first here")
                    .help("remove one of them"));
            }
            seen.insert(text.clone(), entries.len());
            entries.push(Entry::new(text, origin, node));
        }
    }

    /// `<<: *defaults`: adds the keys of another mapping that this one does not have.
    fn merge(&mut self, node: Node, into: &mut Vec<Entry>) -> Result<(), Problem> {
        let mut known: HashSet<String> = into.iter().map(|entry| entry.key.clone()).collect();
        let nodes = match node.value {
            Value::List(items) => items,
            _ => vec![node],
        };
        for node in nodes {
            let Value::Map(entries) = node.value else {
                let text = "`<<` needs a mapping, or a list of mappings";
                return Err(Problem::new(&node.origin, text));
            };
            for entry in entries {
                if known.insert(entry.key.clone()) {
                    into.push(entry);
                }
            }
        }
        Ok(())
    }

    /// Returns `true` if a tag marks a scalar as a string. Other tags of the core schema are
    /// allowed, but have no effect; further tags are refused.
    fn is_text(&self, tag: Option<&Tag>, origin: &Origin) -> Result<bool, Problem> {
        let Some(tag) = tag else {
            return Ok(false);
        };
        match tag.core_suffix() {
            Some(suffix) => Ok(suffix == "str"),
            None => Err(Problem::new(
                origin,
                format!("unsupported tag `{}`", display_text(&tag.original())),
            )
            .help("remove it; a string that begins with `!` needs quotes")),
        }
    }
}

/// Returns the byte offset of the `index`-th character.
fn byte_of_char(text: &str, index: usize) -> usize {
    text.char_indices()
        .nth(index)
        .map_or(text.len(), |(byte, _)| byte)
}
