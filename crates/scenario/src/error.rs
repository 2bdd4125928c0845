//! Problems of a scenario, each with its position and advice.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Weak};

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

use crate::masking::{mask_excerpt, mask_setting, mask_text};
use crate::origin::{Origin, SourceKind, SourceText};

/// Maximum number of problems in one error.
const PROBLEMS_MAX: usize = 20;

/// Reason why a scenario was refused: all problems found, each with line and column.
#[derive(Debug)]
pub struct ScenarioError {
    /// Type of the document, such as `scenario`.
    what: &'static str,
    problems: Vec<Problem>,
}

/// One mistake in a scenario.
#[derive(Clone)]
pub struct Problem {
    message: String,
    help: Option<String>,
    label: Option<String>,
    origin: Option<Origin>,
    // Boxed, because problems are returned by value.
    second_position: Option<Box<(Origin, String)>>,
    code: Option<Box<NamedSource<Arc<str>>>>,
}

impl Problem {
    pub(crate) fn new(origin: &Origin, message: impl Into<String>) -> Problem {
        let mut message = message.into();
        // `--ramp 20: a unit is missing` does not need to quote the 20 again.
        if origin.source.kind != SourceKind::File
            && let Some(rest) = message.strip_prefix(&format!("`{}`: ", origin.text()))
        {
            message = rest.to_owned();
        }
        Problem {
            code: Some(Box::new(named(&origin.source))),
            origin: Some(origin.clone()),
            ..Problem::without_position(mask_text(&message))
        }
    }

    /// Creates a problem that has no position in a text.
    pub(crate) fn without_position(message: impl Into<String>) -> Problem {
        Problem {
            message: message.into(),
            help: None,
            label: None,
            origin: None,
            second_position: None,
            code: None,
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Problem {
        let help = mask_text(&help.into());
        self.help = (!help.is_empty()).then_some(help);
        self
    }

    /// Sets the position.
    pub(crate) fn at(mut self, origin: &Origin) -> Problem {
        self.origin = Some(origin.clone());
        self
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Problem {
        self.label = Some(label.into());
        self
    }

    /// Adds a second position, which is shown if it is in the same text.
    pub(crate) fn with_second_position(
        mut self,
        origin: &Origin,
        label: impl Into<String>,
    ) -> Problem {
        self.second_position = Some(Box::new((origin.clone(), label.into())));
        self
    }

    /// Adds it to the problems found so far.
    pub(crate) fn report(self, problems: &mut Vec<Problem>) {
        problems.push(self);
    }

    /// Returns the mistake in one sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns advice on how to fix it.
    pub fn help_text(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Returns its position: `FILE:LINE:COLUMN`, the argument, or the environment variable.
    pub fn position(&self) -> Option<String> {
        self.origin.as_ref().map(Origin::to_string)
    }

    /// Returns line and column, both from 1; `None` if the position is not in a file.
    pub fn line_column(&self) -> Option<(usize, usize)> {
        let origin = self.origin.as_ref()?;
        (origin.source.kind == SourceKind::File).then(|| origin.source.line_column(origin.start))
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Returns `true` if message and position are equal.
    pub(crate) fn is_same_as(&self, other: &Problem) -> bool {
        self.message == other.message && self.origin == other.origin
    }

    /// Prefixes the message with a condition.
    pub(crate) fn with(mut self, when: &str) -> Problem {
        self.message.insert_str(0, when);
        self
    }

    fn order(&self) -> (bool, usize) {
        self.origin.as_ref().map_or((true, 0), |origin| {
            (origin.source.kind != SourceKind::File, origin.start)
        })
    }
}

/// Returns the text with masked secrets; all offsets stay the same.
fn masked(source: &Arc<SourceText>) -> Arc<str> {
    thread_local! {
        // Cache: consecutive problems often share a text.
        static LAST: RefCell<(Weak<SourceText>, Arc<str>)> = RefCell::new((Weak::new(), Arc::from("")));
    }
    LAST.with_borrow_mut(|last| {
        let this = Arc::downgrade(source);
        if !last.0.ptr_eq(&this) {
            let text = match source.kind {
                SourceKind::File => mask_excerpt(&source.text),
                _ => mask_setting(&source.text),
            };
            *last = (this, Arc::from(text));
        }
        Arc::clone(&last.1)
    })
}

fn named(source: &Arc<SourceText>) -> NamedSource<Arc<str>> {
    let name = match source.kind {
        SourceKind::File => source.name.clone(),
        SourceKind::Set | SourceKind::Option => "command line".to_owned(),
        SourceKind::Environment => "environment".to_owned(),
    };
    NamedSource::new(name, masked(source))
}

impl ScenarioError {
    /// Creates an error of at least one problem.
    pub(crate) fn new(problems: Vec<Problem>) -> ScenarioError {
        ScenarioError::of_document("scenario", problems)
    }

    /// Creates an error of a document of another type. Problems are sorted by position.
    pub(crate) fn of_document(what: &'static str, mut problems: Vec<Problem>) -> ScenarioError {
        problems.sort_by_key(Problem::order);
        if problems.len() > PROBLEMS_MAX {
            let more = problems.len() - PROBLEMS_MAX;
            problems.truncate(PROBLEMS_MAX);
            problems.push(Problem::without_position(format!("and {more} more")));
        }
        ScenarioError { what, problems }
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// Returns the problems in the order of the file. Never empty.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl From<Problem> for ScenarioError {
    fn from(problem: Problem) -> ScenarioError {
        ScenarioError::new(vec![problem])
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            // The snippet shows file, line and column.
            Some(origin) if origin.source.kind != SourceKind::File => {
                write!(f, "{origin}: {}", self.message)
            }
            _ => f.write_str(&self.message),
        }
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(help) = &self.help {
            write!(f, " [{help}]")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

impl Diagnostic for Problem {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help
            .as_ref()
            .map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.code.as_ref().map(|code| &**code as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let origin = self.origin.as_ref()?;
        let label = self.label.clone().unwrap_or_else(|| "here".to_owned());
        let first = LabeledSpan::new_primary_with_span(
            Some(label),
            (origin.start, origin.end - origin.start),
        );
        let second = self
            .second_position
            .as_ref()
            .map(|other| (&other.0, &other.1))
            .filter(|(other, _)| Arc::ptr_eq(&other.source, &origin.source))
            .map(|(other, label)| {
                LabeledSpan::new(Some(label.clone()), other.start, other.end - other.start)
            });
        Some(Box::new(std::iter::once(first).chain(second)))
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [one] => one.fmt(f),
            several => write!(f, "{} problems in the {}", several.len(), self.what),
        }
    }
}

impl std::error::Error for ScenarioError {}

impl ScenarioError {
    fn single_problem(&self) -> Option<&Problem> {
        match self.problems.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }
}

impl Diagnostic for ScenarioError {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.single_problem().and_then(Diagnostic::help)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.single_problem().and_then(Diagnostic::source_code)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.single_problem().and_then(Diagnostic::labels)
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        if self.problems.len() < 2 {
            return None;
        }
        Some(Box::new(
            self.problems
                .iter()
                .map(|problem| problem as &dyn Diagnostic),
        ))
    }
}
