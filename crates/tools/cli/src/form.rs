//! Command output for scripts: JSON or YAML, both from one value.

use serde::Serialize;
use serde_json::Value;

/// How to print.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Form {
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// As YAML.
    #[arg(short = 'y', long, conflicts_with = "json")]
    yaml: bool,
}

impl Form {
    /// As these options say.
    pub(crate) fn of(json: bool, yaml: bool) -> Form {
        Form { json, yaml }
    }

    /// Whether a script is to read it.
    pub(crate) fn is_data(self) -> bool {
        self.json || self.yaml
    }

    /// `value` in the form asked for, else what `text` makes for people.
    pub(crate) fn render<T: Serialize + ?Sized>(
        self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> String {
        if !self.is_data() {
            return text();
        }
        let value = serde_json::to_value(value).unwrap_or_default();
        if self.yaml { yaml(&value) } else { format!("{value:#}\n") }
    }

    /// Prints to stdout what [`Form::render`] gives.
    pub(crate) fn print<T: Serialize + ?Sized>(self, value: &T, text: impl FnOnce() -> String) {
        crate::out::print(&self.render(value, text));
    }
}

/// A document in YAML 1.2: block style, strings in quotes where they would read as something else.
pub(crate) fn yaml(value: &Value) -> String {
    let mut out = String::new();
    put(&mut out, value, 0);
    out
}

fn put(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            items.iter().for_each(|item| put_item(out, item, depth))
        }
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                indent(out, depth);
                put_field(out, name, value, depth);
            }
        }
        leaf => {
            indent(out, depth);
            out.push_str(&scalar(leaf));
            out.push('\n');
        }
    }
}

fn put_item(out: &mut String, item: &Value, depth: usize) {
    indent(out, depth);
    out.push_str("- ");
    match item {
        Value::Object(fields) if !fields.is_empty() => {
            for (number, (name, value)) in fields.iter().enumerate() {
                if number > 0 {
                    indent(out, depth + 1);
                }
                put_field(out, name, value, depth + 1);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            put(out, item, depth + 1);
        }
        leaf => {
            out.push_str(&scalar(leaf));
            out.push('\n');
        }
    }
}

fn put_field(out: &mut String, name: &str, value: &Value, depth: usize) {
    out.push_str(&text(name));
    out.push(':');
    let nested = matches!(value, Value::Array(items) if !items.is_empty())
        || matches!(value, Value::Object(fields) if !fields.is_empty());
    if nested {
        out.push('\n');
        put(out, value, depth + 1);
    } else {
        out.push(' ');
        out.push_str(&scalar(value));
        out.push('\n');
    }
}

fn indent(out: &mut String, depth: usize) {
    out.push_str(&"  ".repeat(depth));
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(string) => text(string),
        other => other.to_string(), // numbers, true, null, [] and {} are the same in both
    }
}

/// Plain where that is surely a string, else in JSON's quotes, which YAML reads alike.
fn text(string: &str) -> String {
    let plain = string.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && string.chars().all(|c| c.is_ascii_alphanumeric() || "_-./@".contains(c))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&string.to_ascii_lowercase().as_str());
    if plain { string.to_owned() } else { Value::from(string).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_lists_and_fields_in_blocks() {
        let value = json!([{"name": "testfs-OST0000", "space": {"bytes": 5, "free": null}, "list": ["a", 1, []]}, {"x": {}}]);
        let expected = "\
- list:
    - a
    - 1
    - []
  name: testfs-OST0000
  space:
    bytes: 5
    free: null
- x: {}
";
        assert_eq!(yaml(&value), expected);
        assert_eq!(
            (yaml(&json!([])), yaml(&json!(7)), yaml(&json!([[1], 2]))),
            ("[]\n".into(), "7\n".into(), "- \n  - 1\n- 2\n".into())
        );
    }

    #[test]
    fn what_would_read_as_something_else_stands_in_quotes() {
        for (string, shown) in [
            ("/mnt/a-b.c", "/mnt/a-b.c"),
            ("yes", "\"yes\""),
            ("0x1", "\"0x1\""),
            ("", "\"\""),
            ("a: b", "\"a: b\""),
            ("two\nlines", "\"two\\nlines\""),
            ("[0x1:0x2:0x0]", "\"[0x1:0x2:0x0]\""),
        ] {
            assert_eq!(text(string), shown);
        }
    }

    #[test]
    fn people_get_text_and_scripts_data() {
        let shown = |form: Form| form.render(&json!({"a": 1}), || "text\n".to_owned());
        assert_eq!(shown(Form::default()), "text\n");
        assert_eq!(shown(Form::of(true, false)), "{\n  \"a\": 1\n}\n");
        assert_eq!(shown(Form::of(false, true)), "a: 1\n");
    }
}
