//! Tables in CSV (RFC 4180): a line with the names of the columns, and rows of values.

use crate::error::Problem;
use crate::masking::replace_ranges;
use crate::node::display_text;
use crate::origin::{Origin, SourceKind, SourceText};

/// Maximum number of rows: as many as a population has URLs.
const ROWS_MAX: usize = crate::urls::MAX_URLS;

/// Maximum number of columns.
const COLUMNS_MAX: usize = 32;

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug)]
struct Cell {
    text: String,
    origin: Origin,
}

/// A field as written, and its byte range.
struct Field {
    text: String,
    from: usize,
    to: usize,
    /// True if it is the last one of its line.
    is_last: bool,
}

/// Parses a table. Its values may be secrets: messages never quote them.
///
/// # Errors
/// The first mistake, with line and column.
pub(crate) fn parse(name: &str, text: &str) -> Result<Table, Problem> {
    // Positions stay the same.
    let source = SourceText::new(SourceKind::File, name, hide_values(text));
    let origin = |field: &Field| Origin::new(&source, field.from, field.to);
    let mut columns: Vec<String> = Vec::new();
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut row: Vec<Cell> = Vec::new();
    let mut is_header = true;
    let mut at = 0;
    while at < text.len() {
        if row.is_empty() && columns.is_empty() == is_header && at_empty_line(text, at) {
            at = text[at..].find('\n').map_or(text.len(), |end| at + end + 1);
            continue;
        }
        let (field, next) = read_field(text, at).map_err(|(at, message)| {
            Problem::new(&Origin::new(&source, at, at + 1), message)
                .help("write a quote in a quoted value twice: `\"a\"\"b\"`")
        })?;
        at = next;
        let own = origin(&field);
        if is_header {
            check_column(&field.text, &columns)
                .map_err(|(message, help)| Problem::new(&own, message).help(help))?;
            columns.push(field.text.trim().to_owned());
            is_header = !field.is_last;
            continue;
        }
        if field.text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
            let text = "a value must be one line of printable characters";
            return Err(Problem::new(&own, text));
        }
        row.push(Cell {
            text: field.text,
            origin: own.clone(),
        });
        if !field.is_last && row.len() < columns.len() {
            continue;
        }
        if row.len() != columns.len() || !field.is_last {
            let found = row.len() + usize::from(!field.is_last);
            let more = if field.is_last { "" } else { " or more" };
            let text = format!(
                "this row has {found}{more} values, and there are {} columns",
                columns.len()
            );
            let help = "quote values that contain a comma";
            return Err(Problem::new(&own, text).help(help));
        }
        rows.push(std::mem::take(&mut row));
        if rows.len() > ROWS_MAX {
            let text = format!("there are more than {ROWS_MAX} rows");
            let help = "that is the maximum for one population";
            return Err(Problem::new(&own, text).help(help));
        }
    }
    if rows.is_empty() {
        let whole = Origin::new(&source, 0, text.len().min(1));
        let text = format!("the table `{}` has no row", display_text(name));
        return Err(Problem::new(&whole, text)
            .help("write the names of the columns in the first line, and values below it"));
    }
    Ok(Table { columns, rows })
}

/// Returns `true` if the line that begins at `at` is empty.
fn at_empty_line(text: &str, at: usize) -> bool {
    let line = text[at..].split('\n').next().unwrap_or_default();
    line.trim().is_empty()
}

/// Checks the name of a column.
fn check_column(name: &str, before: &[String]) -> Result<(), (String, &'static str)> {
    const FORM: &str = "the first line names the columns: letters, digits and `_`";
    let name = name.trim();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_word) {
        return Err(("this cannot be the name of a column".to_owned(), FORM));
    }
    if name == "server" {
        let text = "`{server}` is the address of the server".to_owned();
        return Err((text, "choose another name"));
    }
    if before.iter().any(|other| other == name) {
        return Err((format!("there are two columns `{name}`"), FORM));
    }
    if before.len() >= COLUMNS_MAX {
        let text = format!("there are more than {COLUMNS_MAX} columns");
        return Err((text, FORM));
    }
    Ok(())
}

/// Reads the field at `at`. Returns it and the position after its separator.
fn read_field(text: &str, at: usize) -> Result<(Field, usize), (usize, &'static str)> {
    let bytes = text.as_bytes();
    let mut end = at;
    let mut value = String::new();
    if bytes.get(at) == Some(&b'"') {
        end += 1;
        loop {
            let rest = &text[end..];
            let Some(quote) = rest.find('"') else {
                return Err((at, "this quote is not closed"));
            };
            value.push_str(&rest[..quote]);
            end += quote + 1;
            if bytes.get(end) != Some(&b'"') {
                break;
            }
            value.push('"');
            end += 1;
        }
        // A carriage return belongs to the end of a line.
        let ends = matches!(
            &bytes[end..],
            [] | [b',' | b'\n', ..] | [b'\r'] | [b'\r', b'\n', ..]
        );
        if !ends {
            return Err((end, "a quoted value ends at its quote"));
        }
    } else {
        let rest = &text[at..];
        let length = rest.find([',', '\n']).unwrap_or(rest.len());
        end += length;
        value.push_str(rest[..length].strip_suffix('\r').unwrap_or(&rest[..length]));
    }
    let to = end;
    if bytes.get(end) == Some(&b'\r') {
        end += 1;
    }
    let is_last = bytes.get(end) != Some(&b',');
    let field = Field {
        to,
        text: value,
        from: at,
        is_last,
    };
    Ok((field, (end + 1).min(text.len())))
}

/// Replaces each value below the first line by stars; all offsets stay the same.
fn hide_values(text: &str) -> String {
    let header = text.find('\n').map_or(text.len(), |end| end + 1);
    let mut hidden = text[..header].to_owned();
    for character in text[header..].chars() {
        match character {
            ',' | '\n' | '\r' | '"' => hidden.push(character),
            other => hidden.extend(std::iter::repeat_n('*', other.len_utf8())),
        }
    }
    hidden
}

impl Table {
    pub(crate) fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Returns the columns that a text names, each with its byte range.
    fn named_in<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (usize, usize, usize)> + 'a {
        text.match_indices('{').filter_map(|(begin, _)| {
            let length = text[begin..].find('}')?;
            let name = &text[begin + 1..begin + length];
            let column = self.columns.iter().position(|own| own == name)?;
            Some((begin, begin + length + 1, column))
        })
    }

    /// Returns `true` if a text names a column, as `{name}`.
    pub(crate) fn is_named_in(&self, text: &str) -> bool {
        self.named_in(text).next().is_some()
    }

    /// Returns the origin of the first value of a row that a text names.
    pub(crate) fn origin(&self, row: usize, text: &str) -> Origin {
        let column = self.named_in(text).next().map_or(0, |(.., column)| column);
        self.rows[row][column].origin.clone()
    }

    /// Returns a text with the values of a row.
    pub(crate) fn fill(&self, row: usize, text: &str) -> String {
        self.replace(row, text, |_, value| value.to_owned())
    }

    /// Returns a URL with the values of a row. Values of user name and password are escaped; other
    /// values may be several parts of a path. Braces would be ranges.
    pub(crate) fn fill_url(&self, row: usize, url: &str) -> String {
        let authority = url.find("://").map_or(0, |at| at + 3);
        let end = url[authority..].find(['/', '?', '#']);
        let end = end.map_or(url.len(), |end| authority + end);
        let user = url[..end].rfind('@').unwrap_or(0);
        self.replace(row, url, |at, value| {
            let is_plain = |byte: u8| match at < user {
                true => byte.is_ascii_alphanumeric() || b"-._~".contains(&byte),
                false => byte != b'{' && byte != b'}',
            };
            escape(value, is_plain)
        })
    }

    fn replace(&self, row: usize, text: &str, written: impl Fn(usize, &str) -> String) -> String {
        let values = self.named_in(text).map(|(begin, end, column)| {
            let value = written(begin, &self.rows[row][column].text);
            (begin, end, value)
        });
        replace_ranges(text, values)
    }
}

/// Percent-encodes all bytes that are not plain (RFC 3986, 2.1).
fn escape(text: &str, is_plain: impl Fn(u8) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        let mut bytes = [0; 4];
        let encoded = character.encode_utf8(&mut bytes);
        match encoded.bytes().all(&is_plain) {
            true => escaped.push(character),
            false => encoded
                .bytes()
                .for_each(|byte| escaped += &format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::ScenarioError;

    fn table(text: &str) -> Table {
        parse("t.csv", text).unwrap_or_else(|problem| panic!("{}", problem.message()))
    }

    #[test]
    fn values_are_read_with_quotes_and_any_line_end() {
        let table = table("user,pass\r\nann,\"a,\"\"b\"\r\n\r\nbob,\n");
        assert_eq!(table.columns, ["user", "pass"]);
        let values = |row| table.fill(row, "{user}|{pass}|{other}");
        assert_eq!(table.row_count(), 2);
        assert_eq!(values(0), "ann|a,\"b|{other}");
        assert_eq!(values(1), "bob||{other}");
    }

    #[test]
    fn credentials_in_urls_are_escaped() {
        let table = table("user,pass,path\nann,p@ss/{1},live/{2}\n");
        let url = table.fill_url(0, "rtsp://{user}:{pass}@h:8554/{path}?u={user}");
        assert_eq!(url, "rtsp://ann:p%40ss%2F%7B1%7D@h:8554/live/%7B2%7D?u=ann");
    }

    #[test]
    fn mistakes_have_line_and_column_and_hide_values() {
        for (text, position, message) in [
            ("", (1, 1), "has no row"),
            ("a,b\n", (1, 1), "has no row"),
            ("a,b\n1,2\nsecret\n", (3, 1), "this row has 1 values"),
            ("a,b\n1,2,3\n", (2, 3), "this row has 3 or more values"),
            ("a,\"b\n", (1, 3), "not closed"),
            ("a\n\"1\"2\n", (2, 4), "ends at its quote"),
            ("a\n\"1\"\ré\n", (2, 4), "ends at its quote"),
            ("\"a\"é\n1\n", (1, 4), "ends at its quote"),
            ("a,b c\n1,2\n", (1, 3), "cannot be the name"),
            ("a,a\n1,2\n", (1, 3), "two columns `a`"),
            ("server\n1\n", (1, 1), "address of the server"),
            ("a\n\"1\n2\"\n", (2, 1), "one line"),
        ] {
            let problem = parse("t.csv", text).expect_err(text);
            assert_eq!(problem.line_column(), Some(position), "{text}");
            assert!(problem.message().contains(message), "{}", problem.message());
            let origin = problem.origin().expect("it has a position");
            assert!(!origin.source.text.contains("secret"), "{text}");
            assert!(ScenarioError::from(problem).to_string().contains(message));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_table_or_a_mistake(text in "[ab{}\",\r\n é]{0,60}") {
            let parsed = parse("t.csv", &text);
            if let Err(problem) = &parsed {
                prop_assert!(!ScenarioError::from(problem.clone()).to_string().is_empty());
            }
            if let Ok(table) = parsed {
                for row in 0..table.row_count() {
                    let template = format!("{{{}}}", table.columns[0]);
                    let filled = table.fill_url(row, &template);
                    prop_assert_eq!(filled.find(['{', '}']), None);
                }
            }
        }
    }
}
