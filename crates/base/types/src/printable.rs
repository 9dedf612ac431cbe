//! Text from outside, as logs, parameters and terminals show it.

use std::fmt::Write as _;

/// `text` in which nothing ends a line, moves a cursor, changes colours or turns the direction of
/// what follows: such characters are shown as escapes. Everything else stays, backslashes too, so
/// doing it twice changes nothing.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            _ if acts(char) => write!(shown, "{}", char.escape_unicode()).expect("memory"),
            _ => shown.push(char),
        }
    }
    shown
}

/// Whether a terminal or an editor does something else with it than to show it: controls, line and
/// paragraph separators, marks of direction, and what takes no room.
fn acts(char: char) -> bool {
    char.is_control()
        || matches!(char,
            '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_shown_and_the_rest_stays() {
        let text = "a\nERROR b\r\u{1b}[2J\u{9b}1m\u{202e}gpj\u{2028}\u{feff}\0\u{7f}\tz";
        let shown =
            "a\\nERROR b\\r\\u{1b}[2J\\u{9b}1m\\u{202e}gpj\\u{2028}\\u{feff}\\u{0}\\u{7f}\\tz";
        assert_eq!(printable(text), shown);
        assert_eq!(printable(shown), shown);
        for plain in ["", "node1:/mnt", "Größe \"x\" \\n 日本 🙂"] {
            assert_eq!(printable(plain), plain);
        }
    }
}
