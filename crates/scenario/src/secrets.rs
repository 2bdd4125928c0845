//! Secrets of a scenario, which must not appear in files, reports and messages.
//!
//! Clients and servers get the scenario as written. All other output is masked here:
//! [`Scenario::shown`] is the scenario without secrets, and [`Secrets`] masks the texts of a run.
//! Some secrets are recognizable in any text: the password of a URL, the value of `token=` in a
//! query, an `Authorization` line. Others are known from the scenario; texts are searched for them
//! as written.

use kit::url::percent_decode;
use serde_json::Value;

use crate::masking::{
    MASK, SECRET_LENGTH_MIN, is_public_header, is_secret_config, is_secret_name, mask_command,
    mask_text, replace_ranges, secret_ranges, secret_words,
};
use crate::model::{Scenario, Server, ServerStart};

/// Minimum length of a variable's value that is masked although its name is not that of a secret.
const VALUE_LENGTH_MIN: usize = 6;

/// Maximum number of secrets that are searched for as written, because each is searched for in each
/// text. Secrets of URLs are recognizable anyway.
const WORDS_MAX: usize = 1_000;

/// Minimum length of a secret that is also masked within a longer word.
const MASK_WITHIN_WORDS_LENGTH_MIN: usize = 8;

/// The secrets of one scenario. Masks them in texts.
#[derive(Clone, Default)]
pub struct Secrets {
    /// Longest first, so that a secret that contains another one is masked as a whole.
    words: Vec<String>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Secrets({})", self.words.len())
    }
}

impl Secrets {
    /// Masks every secret in a text.
    pub fn mask(&self, text: &str) -> String {
        let mut masked = mask_text(text);
        for word in &self.words {
            if masked.contains(word.as_str()) {
                masked = mask_literal(&masked, word);
            }
        }
        masked
    }

    /// Masks the secrets in all strings of a value, but not in its keys.
    pub fn mask_json(&self, value: &mut Value) {
        walk(value, &|text| self.mask(text));
    }

    fn add(&mut self, word: &str) {
        if word.len() >= SECRET_LENGTH_MIN && word != MASK {
            self.words.push(word.to_owned());
        }
    }

    /// Adds a secret as written in a URL, and decoded.
    fn add_encoded(&mut self, word: &str) {
        self.add(word);
        self.add(&percent_decode(word));
    }

    /// Adds the recognizable secrets of a text.
    fn add_of_text(&mut self, text: &str) {
        for (from, to) in secret_ranges(text) {
            self.add_encoded(&text[from..to]);
        }
    }

    fn add_of_server(&mut self, server: &Server) {
        for (name, value) in &server.environment {
            self.add_of_text(value);
            let number = value.bytes().all(|byte| byte.is_ascii_digit());
            if is_secret_name(name) || value.len() >= VALUE_LENGTH_MIN && !number {
                self.add(value);
            }
        }
        match &server.start {
            ServerStart::Command(words) => {
                for (word, secret) in words.iter().zip(secret_words(words)) {
                    self.add_of_text(word);
                    self.add(&word[secret.unwrap_or(word.len())..]);
                }
            }
            ServerStart::Exporters { node, process, .. } => {
                for url in [node, process].into_iter().flatten() {
                    self.add_of_text(url);
                }
            }
            ServerStart::Launch { .. }
            | ServerStart::Observe { .. }
            | ServerStart::Observer { .. } => {}
        }
    }
}

impl Scenario {
    /// Returns the secrets of the scenario.
    pub fn secrets(&self) -> Secrets {
        let mut secrets = Secrets::default();
        if let Some(server) = &self.server {
            secrets.add_of_server(server);
        }
        for population in &self.populations {
            for url in &population.urls {
                secrets.add_of_text(url);
            }
            let mut config = serde_json::to_value(&population.config).unwrap_or_default();
            for_each_secret(&mut config, &mut |text| {
                secrets.add(text);
                // The last word of `Bearer x` is secret as well.
                secrets.add(text.rsplit(' ').next().unwrap_or(""));
            });
        }
        let words = &mut secrets.words;
        words.sort_by_key(|word| (std::cmp::Reverse(word.len()), word.clone()));
        words.dedup();
        words.truncate(WORDS_MAX);
        secrets
    }

    /// Returns the scenario for run files and reports: JSON without secrets.
    pub fn shown(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(variables) = value.pointer_mut("/server/environment") {
            mask_strings(variables);
        }
        if let Some(Value::Array(words)) = value.pointer_mut("/server/start/command") {
            let texts: Vec<String> = words
                .iter()
                .map(|word| word.as_str().unwrap_or("").to_owned())
                .collect();
            let secrets = self.secrets();
            let masked = mask_command(&texts).into_iter();
            *words = masked.map(|word| secrets.mask(&word).into()).collect();
        }
        if let Some(Value::Array(populations)) = value.pointer_mut("/populations") {
            for population in populations {
                if let Some(Value::Object(configs)) = population.get_mut("config") {
                    for config in configs.values_mut() {
                        hide_in_config(config);
                    }
                }
            }
        }
        walk(&mut value, &mask_text);
        value
    }
}

/// Calls `found` with every secret in the keys of a population.
fn for_each_secret(config: &mut Value, found: &mut dyn FnMut(&str)) {
    let mut masked = config.clone();
    hide_in_config(&mut masked);
    differences(config, &masked, found);
}

fn differences(value: &Value, masked: &Value, found: &mut dyn FnMut(&str)) {
    match (value, masked) {
        (Value::String(text), Value::String(other)) if text != other => found(text),
        (Value::Array(items), Value::Array(others)) => {
            for (item, other) in items.iter().zip(others) {
                differences(item, other, found);
            }
        }
        (Value::Object(fields), Value::Object(others)) => {
            for (name, field) in fields {
                if let Some(other) = others.get(name) {
                    differences(field, other, found);
                }
            }
        }
        _ => {}
    }
}

/// Masks the secrets in the keys of a population: header fields, the texts that a greeting sends,
/// and the values of keys such as `password` and `token`.
fn hide_in_config(config: &mut Value) {
    let Value::Object(fields) = config else {
        return;
    };
    for (name, field) in fields {
        match (name.as_str(), &mut *field) {
            ("headers", Value::Object(headers)) => {
                for (name, header) in headers {
                    if !is_public_header(name) {
                        mask_strings(header);
                    }
                }
            }
            ("greeting", Value::Array(steps)) => {
                for step in steps.iter_mut().filter_map(Value::as_object_mut) {
                    let sent = step.iter_mut().filter(|(kind, _)| kind.starts_with("send"));
                    sent.for_each(|(_, text)| mask_strings(text));
                }
            }
            // Each parameter may be a secret of the server.
            ("connect", Value::Object(parameters)) => {
                parameters.values_mut().for_each(mask_values);
            }
            (name, field) if is_secret_config(name) => mask_strings(field),
            (_, field) => hide_in_config(field),
        }
    }
}

/// Masks a value of any type.
fn mask_values(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(mask_values),
        Value::Object(fields) => fields.values_mut().for_each(mask_values),
        Value::Null => {}
        _ => *value = MASK.into(),
    }
}

/// Masks every string in a value.
fn mask_strings(value: &mut Value) {
    walk(value, &|_| MASK.to_owned());
}

fn walk(value: &mut Value, mask: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => {
            let masked = mask(text);
            if masked != *text {
                *text = masked;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, mask)),
        Value::Object(fields) => fields.values_mut().for_each(|field| walk(field, mask)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Masks a secret in a text. A short secret is masked only if it is a whole word.
fn mask_literal(text: &str, secret: &str) -> String {
    let ranges = text.match_indices(secret).filter_map(|(begin, _)| {
        let end = begin + secret.len();
        let word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let within = word(text[..begin].chars().next_back()) || word(text[end..].chars().next());
        let is_masked = secret.len() >= MASK_WITHIN_WORDS_LENGTH_MIN || !within;
        is_masked.then_some((begin, end, MASK))
    });
    replace_ranges(text, ranges)
}

#[cfg(test)]
mod tests;
