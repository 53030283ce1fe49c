//! Text for a page: escaped, shortened, and numbers as people read them.

use std::fmt::{self, Display, Write};

pub use gputrace_analyzer::units::{bytes, duration, gigabytes_per_second, thousands};

/// What a name may take where it is shown.
const NAME: usize = 90;
/// What it may take where it is told in full, on pointing at it.
const FULL_NAME: usize = 1500;

/// A page in the making.
#[derive(Default)]
pub struct Page(String);

impl Page {
    /// Adds markup.
    pub fn add(&mut self, markup: impl Display) -> &mut Self {
        // Writing into a string never fails.
        let _ = write!(self.0, "{markup}");
        self
    }

    /// A section with a heading, and what it shows in a sentence.
    pub fn section(&mut self, id: &str, heading: &str, lead: &str) -> &mut Self {
        self.add(format_args!(
            "</section>\n<section id=\"{id}\"><h2>{}</h2>\n",
            Escaped(heading)
        ));
        if !lead.is_empty() {
            self.add(format_args!("<p class=\"lead\">{}</p>\n", Escaped(lead)));
        }
        self
    }

    /// The whole page.
    pub fn html(self) -> String {
        self.0
    }
}

/// Text that may hold anything: nothing in it is markup, and no control or direction mark is left.
pub struct Escaped<T: AsRef<str>>(pub T);

impl<T: AsRef<str>> Display for Escaped<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.as_ref().chars() {
            match letter {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                '\'' => out.write_str("&#39;")?,
                '\n' => out.write_char(' ')?,
                '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    out.write_char('\u{fffd}')?;
                }
                _ if letter.is_control() => out.write_char('\u{fffd}')?,
                _ => out.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Text cut to so many characters, with an ellipsis where something was cut.
pub fn shorten(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}\u{2026}", &text[..end]),
    }
}

/// A name for a cell: shortened, with the whole of it (up to a bound) on pointing at it.
pub fn name(text: &str) -> String {
    let short = shorten(text, NAME);
    let full = shorten(text, FULL_NAME);
    if short == full {
        format!("<span class=\"name\">{}</span>", Escaped(short))
    } else {
        format!(
            "<span class=\"name\" title=\"{}\">{}</span>",
            Escaped(full),
            Escaped(short)
        )
    }
}

/// A share as a percentage.
pub fn percent(share: Option<f64>) -> String {
    or_dash(share, |share| format!("{:.1} %", share * 100.0))
}

/// What is not known is a dash.
pub fn or_dash<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "\u{2013}".to_owned(), text)
}

/// A number with its noun: "1 step", "2 steps".
pub fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(count as u64))
}

/// A moment as a date in UTC.
///
/// The calendar is that of "chrono-Compatible Low-Level Date Algorithms" (Howard Hinnant): eras of 400 years, that begin in March.
pub fn date(ns: i64) -> String {
    let seconds = ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hours, minutes) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup() {
        let text = Escaped("<b a=\"'\">&\n\u{202e}\u{7}").to_string();
        assert_eq!(text, "&lt;b a=&quot;&#39;&quot;&gt;&amp; \u{fffd}\u{fffd}");
    }

    #[test]
    fn long_names_are_short_and_told_in_full_up_to_a_bound() {
        let cell = name(&"<".repeat(100_000));
        assert!(cell.len() < 8000, "{}", cell.len());
        assert!(cell.contains("title="));
        assert_eq!(name("add"), "<span class=\"name\">add</span>");
    }

    #[test]
    fn moments_are_dates() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_399_000_000_000), "2000-02-28 23:59 UTC");
        assert_eq!(date(951_782_400_000_000_000), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_283_641_821_858_573), "2026-11-21 17:54 UTC");
    }
}
